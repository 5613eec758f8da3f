#![no_main]

use seawall_invariants::lab::exposition;

libfuzzer_sys::fuzz_target!(|input: &[u8]| exposition::check(input));
