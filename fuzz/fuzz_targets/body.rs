#![no_main]

use seawall_invariants::http::body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::check(input));
