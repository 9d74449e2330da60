//! The options of `lab run readahead`.

use crate::cases::{CaseOption, ValueForm, pool, shared};

pub(super) const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "windows",
        value: "SIZE,...",
        form: ValueForm::Text,
        default: Some("kernel,0,4M,16M,64M,256M"),
        about: "Read-ahead windows to compare; 'kernel' means the present setting of the kernel",
        more: "The first value is the baseline, with which the other values are compared.",
    },
    CaseOption { default: Some("1,2,4"), ..shared::CLIENTS },
    CaseOption {
        name: "file-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("256M"),
        about: "Size of the file of each client",
        more: "",
    },
    CaseOption { default: Some("4M"), about: "Size of each read", ..shared::RECORD_SIZE },
    CaseOption {
        name: "through",
        value: "WAY,...",
        form: ValueForm::SomeOf(&["none", "advice", "kernel", "overlay", "store"]),
        default: Some("advice"),
        about: "Methods of read-ahead to compare: none, advice, kernel, overlay, store",
        more: "With advice, pinstripe advises the kernel to read ahead by each window of \
               --windows. With kernel, the read-ahead setting of the kernel is changed to each \
               window of --windows. With overlay, the read-ahead of 'pinstripe overlay' is used, \
               which detects the access pattern itself. With store, the read-ahead of 'pinstripe \
               overlay' reads from a backup of the files.",
    },
    pool::ENGINE,
    pool::CONF,
    pool::USER,
    shared::CACHE,
];
