#![no_main]

use seawall_invariants::http::response;

libfuzzer_sys::fuzz_target!(|input: &[u8]| response::check(input));
