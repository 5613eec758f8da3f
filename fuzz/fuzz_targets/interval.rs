#![no_main]

use seawall_invariants::load::pod_reports;

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_reports::check(input));
