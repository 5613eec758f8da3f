#![no_main]

#[path = "../../crates/load/tests/plannable/mod.rs"]
mod plannable;

libfuzzer_sys::fuzz_target!(|input: &[u8]| plannable::check(input));
