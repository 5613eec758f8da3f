#![no_main]

use seawall_invariants::lab::find_reports;

libfuzzer_sys::fuzz_target!(|input: &[u8]| find_reports::check(input));
