#![no_main]

use seawall_invariants::http::request;

libfuzzer_sys::fuzz_target!(|input: &[u8]| request::check(input));
