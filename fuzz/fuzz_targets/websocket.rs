#![no_main]

use seawall_invariants::kube;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    kube::check(input);
});
