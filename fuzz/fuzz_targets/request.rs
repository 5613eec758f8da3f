#![no_main]

use seawall_invariants::wire::request;

libfuzzer_sys::fuzz_target!(|input: &[u8]| request::check(input));
