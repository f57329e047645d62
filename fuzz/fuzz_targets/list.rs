//! A list splits the same way in one chunk and in many.
#![no_main]

#[allow(dead_code, reason = "each target makes one of the checks")]
#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::list(data));
