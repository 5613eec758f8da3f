#![no_main]

#[path = "../../crates/load/tests/invariants/mod.rs"]
mod invariants;

use seawall_load::results::Format;

libfuzzer_sys::fuzz_target!(|input: &[u8]| invariants::check(Format::Gob, input));
