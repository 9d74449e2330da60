//! The verbs of arrays. The verbs find arrays by name, check devices before use, and run in this
//! process or in the one that serves the array.
//!
//! [`create`](create::create) and [`assemble`](assemble::assemble) add an array to the
//! [`Register`]; all other verbs look it up there by its name. An array that is served belongs to
//! the serving process: requests go to the control socket of that process. An array that no process
//! serves is opened, used, and closed.

pub mod assemble;
mod check;
pub mod controller;
mod counted;
pub mod create;
pub mod detail;
pub mod devices;
pub mod events;
pub mod examine;
pub mod forget;
pub mod knobs;
pub mod made_files;
mod manage;
pub mod md;
pub mod monitor;
pub mod open;
pub mod probe;
pub mod register;
pub mod request;
pub mod scan;
pub mod zero;

pub use register::{Entry, Register};
