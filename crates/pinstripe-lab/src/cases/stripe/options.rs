//! The options of the case `stripe`.

use super::shared;
use super::{CaseOption, ValueForm};

/// The names of the loads, in the order of [`LOADS`].
pub const NAMES: &[&str] = &["randwrite", "write64k", "write1m", "randread", "read1m"];

pub(crate) const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "granules",
        value: "SIZE,...",
        form: ValueForm::Text,
        default: Some("auto,4K,8K,16K,32K,64K"),
        about: "Granules (sizes to which small writes are widened) to compare; 'auto' follows the \
                size of each write",
        more: "The first value is the baseline, with which the other values are compared. The \
               option --granules has no effect with --knob.",
    },
    CaseOption {
        name: "knob",
        value: "NAME=BEFORE,AFTER",
        form: ValueForm::Text,
        default: None,
        about: "Compare values of this knob (setting of an array) instead of granules, for example \
                chunk=64K,256K",
        more: "\
The first value is the baseline; each other value is compared with the baseline, and gets a verdict for each \
load. For each value of a knob of 'array create' (chunk, layout, consistency-policy or log-size), a new \
array is created. The value of a knob of 'array set' (stripe_size, stripe_cache_size, rmw_level or \
write_deadline) is changed on one running array.",
    },
    CaseOption {
        name: "loads",
        value: "NAME,...",
        form: ValueForm::SomeOf(NAMES),
        default: Some("randwrite,write64k,write1m,randread,read1m"),
        about: "Loads to run: randwrite, write64k, write1m, randread, read1m",
        more: "",
    },
    CaseOption {
        name: "level",
        value: "LEVEL",
        form: ValueForm::OneOf(&["raid4", "raid5", "raid6"]),
        default: Some("raid5"),
        about: "Level of the array: raid4, raid5 or raid6",
        more: "",
    },
    CaseOption {
        name: "members",
        value: "N",
        form: ValueForm::Count,
        default: Some("4"),
        about: "Number of members",
        more: "",
    },
    CaseOption {
        name: "member-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("128M"),
        about: "Size of the data on each member; the array log needs 64 MiB more",
        more: "",
    },
    CaseOption {
        name: "members-in",
        value: "WHERE",
        form: ValueForm::OneOf(&["dir", "memory"]),
        default: Some("dir"),
        about: "Location of members: files in --dir, or memory",
        more: "With members in memory, the array is measured, not the disk.",
    },
    CaseOption {
        name: "requests",
        value: "N",
        form: ValueForm::Count,
        default: Some("5000"),
        about: "Number of requests in a run of randwrite or randread; the other loads access the \
                complete array once",
        more: "",
    },
    CaseOption {
        about: "Number of threads that issue requests, like numjobs of fio",
        ..shared::THREADS
    },
    CaseOption {
        about: "Number of requests in flight per thread, like iodepth of fio",
        more: "Calls of an array are synchronous, so each request in flight has its own thread.",
        ..shared::DEPTH
    },
    CaseOption {
        default: Some("direct"),
        about: "Write policy of the array's members: buffered, dsync, sync, direct, direct+dsync \
                or uncached",
        more: "With buffered, reads may come from the page cache.",
        ..shared::POLICY
    },
];
