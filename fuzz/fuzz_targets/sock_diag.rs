#![no_main]

use seawall_invariants::redirect;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    redirect::check(input);
});
