//! Arrays as their users meet them.

mod absent;
mod living;
mod making;
mod managing;
mod md;
mod monitoring;
mod naming;
mod parting;
mod printed;
mod scanning;
mod serving;
