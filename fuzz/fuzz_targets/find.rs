#![no_main]

use seawall_invariants::lab;

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::check(input));
