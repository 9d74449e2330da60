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
        about: "Bytes per second of each stream: 288000 is one channel of 24 bits at 96 kHz",
        more: "",
    },
    CaseOption {
        name: "chunk",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("64K"),
        about: "Bytes of each write",
        more: "",
    },
    CaseOption {
        name: "ring",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1M"),
        about: "Bytes of each stream's ring, in which data waits to be written",
        more: "",
    },
    CaseOption {
        name: "writers",
        value: "N",
        form: ValueForm::Count,
        default: Some("1"),
        about: "Threads that write",
        more: "",
    },
    CaseOption {
        form: ValueForm::SomeOf(POLICIES),
        default: Some("recorder,buffered,direct,dsync"),
        about: "Write policies: recorder, recorder-direct, buffered, dsync, sync, direct, \
                direct+dsync, uncached",
        more: "The policy recorder is the engine of 'pinstripe record': rings in memory, one \
               thread that writes chunks through the page cache, 64 syncs in flight, journal and \
               headers; recorder-direct is the same with --writes direct. The options --writers \
               and --preallocate have no effect on these two policies; with --io-class rt, their \
               threads also request SCHED_FIFO. The other policies use the threads of --writers, \
               and one more thread that syncs. The first value is the baseline, with which the \
               other values are compared.",
        ..shared::POLICIES
    },
    CaseOption {
        name: "under",
        value: "NAME,...",
        form: ValueForm::SomeOf(UNDER),
        default: Some("idle,storm"),
        about: "Other load: idle, storm",
        more: "",
    },
    CaseOption {
        name: "io-class",
        value: "NAME,...",
        form: ValueForm::SomeOf(CLASSES),
        default: Some("normal"),
        about: "I/O class of the stream writers: normal, rt",
        more: "rt is the real-time class, ioprio_set(2), which needs a privilege and a scheduler \
               that supports it (mq-deadline, bfq). If the real-time class is not permitted, the \
               run continues without it and reports this.",
    },
    CaseOption {
        name: "preallocate",
        value: "",
        form: ValueForm::Flag,
        default: None,
        about: "Reserve the space of each stream before recording it, by fallocate(2)",
        more: "",
    },
    CaseOption {
        name: "find-most",
        value: "N",
        form: ValueForm::Count,
        default: None,
        about: "Find the largest number of streams without an overrun, up to N",
        more: "Each run begins with the number of --streams, and doubles the number until a ring \
               overruns or N is reached. Then a binary search finds the limit with a precision of \
               a sixteenth, or of one stream. Each step lasts for --run-time. The result is the \
               largest number of streams without an overrun; 'overran at' is the smallest number \
               of streams with an overrun.",
    },
    CaseOption {
        name: "sync-every",
        value: "S",
        form: ValueForm::Number,
        default: Some("1"),
        about: "Seconds between two syncs of all streams; 0 is never",
        more: "",
    },
    CaseOption {
        name: "storm-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1G"),
        about: "Bytes of the file that the storm overwrites",
        more: "",
    },
    CaseOption {
        name: "storm-sync",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("256M"),
        about: "The storm syncs its file after writing this many bytes",
        more: "Without these syncs, the storm would only fill the page cache on a machine with much memory.",
    },
    CaseOption { default: Some("5"), about: "Duration of a run in seconds", ..shared::RUN_TIME },
];
