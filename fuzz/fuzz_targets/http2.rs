#![no_main]

use seawall_invariants::load::transport::{self, Protocol};

libfuzzer_sys::fuzz_target!(|input: &[u8]| transport::check_script(Protocol::Http2, input));
