//! The pinstripe command.
fn main() {}
