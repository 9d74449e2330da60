//! The options of `lab run readahead`.

use crate::cases::{CaseOption, ValueForm, pool, shared};

pub(super) const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "windows",
        value: "SIZE,...",
        form: ValueForm::Text,
        default: Some("kernel,0,4M,16M,64M,256M"),
        about: "Windows of read-ahead; 'kernel' means the present setting of the kernel",
        more: "The first value is the baseline, with which the other values are compared.",
    },
    CaseOption { default: Some("1,2,4"), ..shared::CLIENTS },
    CaseOption {
        name: "file-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("256M"),
        about: "Bytes of each client's file",
        more: "",
    },
    CaseOption { default: Some("4M"), about: "Bytes of each read", ..shared::RECORD_SIZE },
    CaseOption {
        name: "through",
        value: "WAY,...",
        form: ValueForm::SomeOf(&["none", "advice", "kernel", "overlay", "store"]),
        default: Some("advice"),
        about: "What reads ahead: none, advice, kernel, overlay, store",
        more: "With advice, pinstripe advises the kernel to read ahead by the windows of \
               --windows. With kernel, the kernel itself reads ahead, and its setting is changed \
               to the windows of --windows. With overlay, the read-ahead of 'pinstripe overlay' \
               reads ahead, and detects the pattern itself. With store, the same read-ahead reads \
               from a backup of the files.",
    },
    pool::ENGINE,
    pool::CONF,
    pool::USER,
    shared::CACHE,
];
