#![no_main]

use seawall_invariants::wire::body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::check(input));
