//! Arrays as their users meet them.

mod living;
mod making;
mod md;
mod monitoring;
mod scanning;
mod serving;
