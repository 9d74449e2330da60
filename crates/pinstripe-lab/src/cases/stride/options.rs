//! The options of `lab run stride`.

use crate::cases::{CaseOption, ValueForm, pool, shared};

pub(super) const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "stride",
        value: "N",
        form: ValueForm::Count,
        default: Some("17"),
        about: "Read every Nth record",
        more: "",
    },
    CaseOption { default: Some("4M"), about: "Size of a record", ..shared::RECORD_SIZE },
    CaseOption {
        name: "total-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1G"),
        about: "Size of the file of each client",
        more: "",
    },
    CaseOption {
        default: Some("1"),
        about: "Numbers of concurrent clients to compare; each client has its own file",
        ..shared::CLIENTS
    },
    CaseOption {
        name: "ahead",
        value: "N,...",
        form: ValueForm::Counts,
        default: Some("0,1,4,16,64,128"),
        about: "Numbers of records to compare; the kernel is advised to read this many records \
                ahead",
        more: "The first value is the baseline, with which the other values are compared.",
    },
    CaseOption {
        name: "delay",
        value: "TIME",
        form: ValueForm::Text,
        default: None,
        about: "Time that is added to each read, for example 5ms or 100us",
        more: "",
    },
    CaseOption {
        name: "through",
        value: "WAY,...",
        form: ValueForm::SomeOf(&["none", "advice", "overlay", "store"]),
        default: Some("advice"),
        about: "Methods of read-ahead to compare: none, advice, overlay, store",
        more: "With none, which is the baseline, nothing is read ahead. With advice, pinstripe \
               advises the kernel to read the next records (--ahead). With overlay, the read-ahead \
               of 'pinstripe overlay' is used, which detects the access pattern itself. With \
               store, the read-ahead of 'pinstripe overlay' reads from a backup of the file.",
    },
    pool::ENGINE,
    pool::CONF,
    pool::USER,
    shared::CACHE,
];
