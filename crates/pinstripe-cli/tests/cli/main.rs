//! Tests of the command as its users meet it: arguments in; messages, events, exit codes out.

mod content;
mod faults;
mod flow;
mod help;
mod init;
mod json;
mod key;
mod kill;
mod member;
mod places;
mod scrub;
mod stand;
mod store;
