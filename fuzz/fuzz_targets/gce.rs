#![no_main]

use seawall_invariants::protocols;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    protocols::check(input);
});
