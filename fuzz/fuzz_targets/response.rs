#![no_main]

use seawall_invariants::wire::response;

libfuzzer_sys::fuzz_target!(|input: &[u8]| response::check(input));
