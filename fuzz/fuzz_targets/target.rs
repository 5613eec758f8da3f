#![no_main]

use seawall_invariants::load::targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| targets::check(input));
