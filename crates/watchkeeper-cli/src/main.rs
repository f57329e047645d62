//! The watchkeeper command.
fn main() {}
