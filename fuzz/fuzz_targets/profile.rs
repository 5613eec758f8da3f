#![no_main]

use seawall_invariants::load::profiles;

libfuzzer_sys::fuzz_target!(|input: &[u8]| profiles::check(input));
