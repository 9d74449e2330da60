//! A server and its clients over loopback.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod alarms;
mod browser;
mod catalog;
mod cuts;
mod hostile;
mod page;
mod roles;
mod seam;
mod setup;
mod together;
