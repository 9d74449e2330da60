//! Tests of the command as its users meet it: arguments in; messages, events, exit codes out.

mod daily;
mod faults;
mod flow;
mod help;
mod init;
mod json;
mod key;
mod kill;
mod places;
mod stand;
mod store;
