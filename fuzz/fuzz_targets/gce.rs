#![no_main]

use seawall_invariants::cloud;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cloud::check(input);
});
