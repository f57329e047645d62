//! Is any answer classified, and does its body stay out of the text?
#![no_main]

#[allow(dead_code, reason = "each target makes one of the checks")]
#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::status(data));
