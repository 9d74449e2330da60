//! One file per thing that is measured.

pub mod walk;
