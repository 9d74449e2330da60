//! The two verbs.

pub mod join;
pub mod split;
