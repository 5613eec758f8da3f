#![no_main]

#[path = "../../crates/load/tests/mergeable/mod.rs"]
mod mergeable;

libfuzzer_sys::fuzz_target!(|input: &[u8]| mergeable::check(input));
