#![no_main]

use seawall_invariants::lab::find;

libfuzzer_sys::fuzz_target!(|input: &[u8]| find::check(input));
