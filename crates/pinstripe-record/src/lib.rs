//! The recorder: records any number of streams to ordinary disks, through the smallest rings that
//! suffice.
//!
//! The modules:
//! * `calibrate` measures a directory and computes the size of the rings.
//! * `ring_size` chooses the size of the rings from earlier takes and measurements.
//! * `overdub` records one take while another is played.
//! * `recorder` records a take from its beginning to its end.
//! * `play` plays a take.
//! * `verify` compares a take with the checksums of its journal.
//! * `recover` recovers an interrupted take.
//! * `directories` finds out which directories of a take are available, and what is in none of
//!   them.
//! * `engine` writes rings to files, and makes the files durable.
//! * `input` contains the inputs that can be recorded.
//! * `drift` measures the clock of an input.
//! * `take` contains the directory of a take: files, journal, manifest.
//! * `alsa` uses sound cards.
//! * `jack` is a client of a JACK server.
//! * `flac` encodes and decodes samples with libFLAC, if it is installed.
//! * `header` creates the heads of files.
//! * `ring` contains one locked arena of rings.
//! * `start` is the common beginning of recording and playback.
//! * `shares` distributes streams over threads.
//! * `realtime` sets priorities of threads.
//! * `writes` chooses how data is written to the disk.
//! * `osc` reads and writes messages of remote controls.
//! * `sample` defines the formats of samples.
//! * `meter` measures levels.
//! * `limits` contains limits that nothing may exceed.
//!
//! Invariants: the producer of a ring never blocks, allocates or takes a lock. A header and the
//! journal never promise more than is durable. Samples that did not fit in a ring are replaced by
//! silence of the same length, counted, and reported.

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
    CommitStages, DiskFolder, FileBehind, JOURNAL as JOURNAL_FILE, Journal, JournalEvent,
    JournalRecord, MANIFEST as MANIFEST_FILE, Manifest, ProgressRun, RecordedFile, SlowSync,
    Summed, TakeFile, TakeFolder, TakeState, decode_journal, is_plain_name,
};
pub use verify::{VerifyOutcome, is_take, verify};
pub use writes::{WriteChoice, WritePolicy, durability_warning};
