#![no_main]

use seawall_invariants::load::logs;

libfuzzer_sys::fuzz_target!(|input: &[u8]| logs::check(input));
