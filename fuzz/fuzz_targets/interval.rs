#![no_main]

use seawall_invariants::load::pods;

libfuzzer_sys::fuzz_target!(|input: &[u8]| pods::check(input));
