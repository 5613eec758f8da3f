#![no_main]

#[path = "../../crates/cloud/tests/invariants/mod.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    invariants::check(input);
});
