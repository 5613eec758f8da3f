#![no_main]

use seawall_invariants::kubectl;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    kubectl::check(input);
});
