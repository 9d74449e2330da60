//! Arrays as their users meet them.

mod making;
mod md;
mod serving;
