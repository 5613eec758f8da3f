#![no_main]

use seawall_invariants::load::results;
use seawall_load::results::ResultFormat;

libfuzzer_sys::fuzz_target!(|input: &[u8]| results::check(ResultFormat::Json, input));
