//! The recorder: any number of streams to plain disks, through the smallest rings that hold.
//!
//! ```text
//!   calibrate                 measures a directory and sizes the rings
//!   overdub                   records one take while another is played
//!   recorder   play           a take from its beginning to its end, and back
//!   verify   recover          what it left
//!   directories               which directories of a take are there, and what stands in none
//!   engine                    writes rings to files, and makes files durable
//!   input   drift             what is recorded; how far its clock is off
//!   take                      the directory of a take: files, journal, manifest
//!   alsa   jack               sound cards; a client of a JACK server
//!   flac                      samples encoded and decoded, with libFLAC when there is one
//!   header   ring   start     heads of WAV and CAF; one locked arena of rings; a common beginning
//!   shares                    streams dealt out to the threads that serve them
//!   realtime   writes         priorities of threads; the way to the disk
//!   osc                       messages of remote controls
//!   sample   meter   limits   formats of samples; their levels; what nothing may exceed
//! ```
//!
//! Invariants: an input's side of a ring never blocks, allocates or takes a lock. A header and the
//! journal never promise more than is durable. What a ring could not hold is replaced by silence
//! of the same length, counted, and named.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod alsa;
pub mod calibrate;
mod directories;
pub mod drift;
pub mod engine;
pub mod flac;
pub mod header;
pub mod input;
mod jack;
pub mod limits;
mod locks;
pub mod meter;
pub mod osc;
pub mod overdub;
pub mod play;
pub mod realtime;
pub mod recorder;
pub mod recover;
pub mod ring;
pub mod sample;
mod shares;
pub mod start;
pub mod take;
pub mod verify;
pub mod writes;
