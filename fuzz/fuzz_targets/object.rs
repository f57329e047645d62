//! The identity of an object is what a JSON parser sees.
#![no_main]

#[allow(dead_code, reason = "each target makes one of the checks")]
#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::object(data));
