#![no_main]

#[path = "../../crates/load/tests/sendable/mod.rs"]
mod sendable;

libfuzzer_sys::fuzz_target!(|input: &[u8]| sendable::check(input));
