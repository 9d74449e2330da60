//! The recorder: any number of streams to plain disks, through the smallest rings that hold.
//!
//! ```text
//!   ring_size                 sizes rings by what earlier takes and measurements of a disk met
//!   calibrate                 measures a directory
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
mod calibrate;
mod directories;
mod drift;
mod engine;
mod flac;
mod header;
mod input;
mod jack;
mod limits;
mod locks;
mod meter;
mod osc;
mod overdub;
mod play;
mod realtime;
mod recorder;
mod recover;
mod ring;
mod ring_size;
mod sample;
mod shares;
mod start;
mod take;
mod verify;
mod writes;

pub use calibrate::{Calibration, calibrate};
pub use engine::EngineSettings;
pub use header::{FileKind, LocalTime};
pub use input::{
    InputSpec, RecordInput, RtpPacket, RtpWindow, SdpStream, TestInput, check_apart, parse_input,
};
pub use limits::{CHUNK_BYTES, RING_BYTES};
pub use meter::{LevelReader, StreamLevel};
pub use osc::{OscMessage, OscValue, read_osc, write_osc};
pub use overdub::{OverdubOutcome, overdub};
pub use play::{PlayOutcome, PlayPlan, PlaySink, PreparedPlay, play};
pub use realtime::{be_served_first, thread_time};
pub use recorder::{
    ALARM_PERCENT, RunningTake, StreamStatus, TakeOrder, TakeOutcome, TakePhase, TakePlan,
    TakeStatus, check_armed, memory_of, record,
};
pub use recover::recover;
pub use ring_size::{RingObservation, RingSource, choose_ring, observe, share};
pub use sample::{SampleFormat, StreamShape, fill_test};
pub use take::{
    CommitStages, DiskFolder, JOURNAL as JOURNAL_FILE, Journal, JournalEvent, JournalRecord,
    MANIFEST as MANIFEST_FILE, Manifest, PieceBehind, ProgressRun, RecordedPiece, SlowSync, Summed,
    TakeFile, TakeFolder, TakeState, decode_journal, is_plain_name,
};
pub use verify::{VerifyOutcome, is_take, verify};
pub use writes::{WriteChoice, WritePolicy, durability_warning};
