//! format

pub mod meta;
