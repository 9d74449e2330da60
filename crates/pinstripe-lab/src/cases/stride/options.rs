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
    CaseOption { default: Some("4M"), about: "Bytes of a record", ..shared::RECORD_SIZE },
    CaseOption {
        name: "total-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1G"),
        about: "Bytes of each client's file",
        more: "",
    },
    CaseOption {
        default: Some("1"),
        about: "Concurrent clients, each with a file of its own",
        ..shared::CLIENTS
    },
    CaseOption {
        name: "ahead",
        value: "N,...",
        form: ValueForm::Counts,
        default: Some("0,1,4,16,64,128"),
        about: "How many records ahead the kernel is advised to read",
        more: "The first value is the baseline, with which the other values are compared.",
    },
    CaseOption {
        name: "delay",
        value: "TIME",
        form: ValueForm::Text,
        default: None,
        about: "Time added to each read, as in 5ms or 100us",
        more: "",
    },
    CaseOption {
        name: "through",
        value: "WAY,...",
        form: ValueForm::SomeOf(&["none", "advice", "overlay", "store"]),
        default: Some("advice"),
        about: "What reads ahead: none, advice, overlay, store",
        more: "With none, which is the baseline, nothing is read ahead. With advice, the program \
               advises the kernel of the next records (--ahead). With overlay, the read-ahead of \
               'pinstripe overlay' reads ahead, and detects the pattern itself. With store, the \
               same read-ahead reads from a backup of the file.",
    },
    pool::ENGINE,
    pool::CONF,
    pool::USER,
    shared::CACHE,
];
