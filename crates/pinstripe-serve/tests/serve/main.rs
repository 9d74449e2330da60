//! A server and its clients over loopback.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod alarms;
mod browser;
mod catalog;
mod certificates;
mod cut_off;
mod cuts;
mod cutting_proxy;
mod full_state;
mod hostile;
mod page;
mod refused;
mod roles;
mod seam;
mod sets;
mod setup;
mod silent;
mod site;
mod stores;
mod together;
