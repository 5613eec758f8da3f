#![no_main]

#[path = "../../crates/wire/tests/invariants/mod.rs"]
#[allow(dead_code, reason = "each target checks one part of the file")]
mod invariants;

libfuzzer_sys::fuzz_target!(|input: &[u8]| invariants::request::check(input));
