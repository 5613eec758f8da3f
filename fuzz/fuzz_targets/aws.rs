#![no_main]

use seawall_invariants::protocols::aws;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    aws::check(input);
});
