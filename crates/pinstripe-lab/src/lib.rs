//! Experiments on the user's own disks, with verdicts that can be trusted: `pinstripe lab`.
//!
//! A [case](cases) is a plan of variants; the [run] measures each of them several times in
//! interleaved order, watched by the [guard], until the [statistics](pinstripe_stats) are narrow enough; this
//! gives a [result] with the [fingerprint] of the machine, which can be saved, [shown](show),
//! compared and kept.
//!
//! A module imports from lower floors only:
//!
//! | floor | modules |
//! |---|---|
//! | pages | [report] |
//! | text, and several machines | [show], [agents] |
//! | experiments | [cases], [knobs] |
//! | their loads, and what follows from results | [arrays], [catalog], [fio], [scratch], [advice] |
//! | work | [io], `program`, [safety] |
//! | the engine | [run] |
//! | what is kept | [result] |
//! | what is observed | [fingerprint], [guard] |
//! | ground | `display`, [histogram], [machine], [questions], [table] |
//!
//! Not in this crate: printing, reading the environment, and asking the user anything. Threads are
//! started in `io/`, `run/` and `agents/` only, sockets opened in `agents/`.

#![allow(
    clippy::disallowed_methods,
    reason = "the lab measures: files, threads and clocks are its business"
)]

pub mod advice;
pub mod agents;
pub mod arrays;
pub mod cases;
pub mod catalog;
mod display;
pub mod fingerprint;
pub mod fio;
pub mod guard;
pub mod histogram;
pub mod io;
pub mod knobs;
pub mod machine;
mod program;
pub mod questions;
pub mod report;
pub mod result;
pub mod run;
pub mod safety;
pub mod scratch;
pub mod show;
pub mod table;
#[cfg(test)]
mod verdicts;
