#![no_main]

use seawall_invariants::load::hdr_logs;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hdr_logs::check(input));
