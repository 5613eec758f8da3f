#![no_main]

use seawall_invariants::load::results;
use seawall_load::results::Format;

libfuzzer_sys::fuzz_target!(|input: &[u8]| results::check(Format::Json, input));
