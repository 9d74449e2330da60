//! The options of the case `record-probe`.

use super::{CaseOption, ValueForm, shared};

pub(crate) const UNDER: &[&str] = &["idle", "storm"];
pub const CLASSES: &[&str] = &["normal", "rt"];
/// The recorder's own two ways of writing, then policies of plain writers, which write a file by
/// one call for each chunk.
pub const POLICIES: &[&str] = &[
    "recorder",
    "recorder-direct",
    "buffered",
    "dsync",
    "sync",
    "direct",
    "direct+dsync",
    "uncached",
];

pub(crate) const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "streams",
        value: "N",
        form: ValueForm::Count,
        default: Some("50"),
        about: "Number of streams",
        more: "",
    },
    CaseOption {
        name: "rate",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("288000"),
        about: "Rate of each stream in bytes per second; 288000 is one channel of 24 bits at 96 \
                kHz",
        more: "",
    },
    CaseOption {
        name: "chunk",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("64K"),
        about: "Size of each write",
        more: "",
    },
    CaseOption {
        name: "ring",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1M"),
        about: "Size of the ring buffer of each stream, in which data waits to be written",
        more: "",
    },
    CaseOption {
        name: "writers",
        value: "N",
        form: ValueForm::Count,
        default: Some("1"),
        about: "Number of threads that write",
        more: "",
    },
    CaseOption {
        form: ValueForm::SomeOf(POLICIES),
        default: Some("recorder,buffered,direct,dsync"),
        about: "Write policies to compare: recorder, recorder-direct, buffered, dsync, sync, \
                direct, direct+dsync, uncached",
        more: "The policy recorder writes as 'pinstripe record' does: with ring buffers in memory, \
               one thread that writes chunks through the page cache, 64 concurrent syncs, a \
               journal and headers. The policy recorder-direct writes as 'pinstripe record \
               --writes direct' does. The options --writers and --preallocate have no effect on \
               recorder and recorder-direct. With --io-class rt, the threads of recorder and \
               recorder-direct also request SCHED_FIFO. All other policies use the threads of \
               --writers, and one more thread that syncs. The first value is the baseline, with \
               which the other values are compared.",
        ..shared::POLICIES
    },
    CaseOption {
        name: "under",
        value: "NAME,...",
        form: ValueForm::SomeOf(UNDER),
        default: Some("idle,storm"),
        about: "Other load during the runs: idle (none), storm (as many writes as possible)",
        more: "",
    },
    CaseOption {
        name: "io-class",
        value: "NAME,...",
        form: ValueForm::SomeOf(CLASSES),
        default: Some("normal"),
        about: "I/O class of the stream writers: normal, rt",
        more: "The class rt is the real-time class of ioprio_set(2). The real-time class needs a \
               privilege, and an I/O scheduler that supports it (mq-deadline or bfq). If the \
               real-time class is not permitted, the run continues without it and reports this.",
    },
    CaseOption {
        name: "preallocate",
        value: "",
        form: ValueForm::Flag,
        default: None,
        about: "Reserve the disk space of each stream by fallocate(2) before the recording",
        more: "",
    },
    CaseOption {
        name: "find-most",
        value: "N",
        form: ValueForm::Count,
        default: None,
        about: "Find the largest number of streams, up to N, that can be recorded without an \
                overrun",
        more: "Each run begins with the number of streams given by --streams, and doubles it until \
               a ring buffer overruns or N is reached. A binary search then finds the limit, with \
               a precision of a sixteenth of the limit or of one stream. Each step of the search \
               takes the time of --run-time. The result is the largest number of streams without \
               an overrun; the value 'overran at' is the smallest number of streams with an \
               overrun.",
    },
    CaseOption {
        name: "sync-every",
        value: "S",
        form: ValueForm::Number,
        default: Some("1"),
        about: "Seconds between two syncs of all streams; 0 means that streams are never synced",
        more: "",
    },
    CaseOption {
        name: "storm-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1G"),
        about: "Size of the file that the load 'storm' overwrites",
        more: "",
    },
    CaseOption {
        name: "storm-sync",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("256M"),
        about: "Number of bytes after which the load 'storm' syncs its file",
        more: "Without syncs, the load 'storm' would only fill the page cache on a machine with \
               much memory.",
    },
    CaseOption { default: Some("5"), about: "Duration of a run in seconds", ..shared::RUN_TIME },
];
