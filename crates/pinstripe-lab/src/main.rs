//! Measures each stage of pinstripe on the disks and data of whoever runs it.
fn main() {}
