#![no_main]

use seawall_invariants::broker;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    broker::check(input);
});
