//! The options of `lab run stride`.

use crate::cases::{CaseOption, ValueForm, shared};

pub(super) const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "stride",
        value: "N",
        form: ValueForm::Count,
        default: Some("17"),
        about: "Read one of this many records",
        more: "",
    },
    CaseOption {
        name: "record-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("4M"),
        about: "Bytes of a record",
        more: "",
    },
    CaseOption {
        name: "total-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1G"),
        about: "Bytes of the file",
        more: "",
    },
    CaseOption {
        name: "ahead",
        value: "N,...",
        form: ValueForm::Counts,
        default: Some("0,1,4,16,64,128"),
        about: "Records ahead that are advised",
        more: "The first is the baseline of the others.",
    },
    CaseOption {
        name: "delay",
        value: "TIME",
        form: ValueForm::Text,
        default: None,
        about: "Time added to each read: 5ms, 100us",
        more: "",
    },
    CaseOption {
        name: "through",
        value: "WAY,...",
        form: ValueForm::SomeOf(&["none", "advice", "overlay", "store"]),
        default: Some("advice"),
        about: "What knows of the next records: none, advice, overlay, store",
        more: "none: nothing, the baseline. advice: the program, see --ahead. overlay: pinstripe's \
               read-ahead, which is told nothing. store: the same, of a backup of the file.",
    },
    CaseOption {
        name: "engine",
        value: "NAME",
        form: ValueForm::Text,
        default: Some("file"),
        about: "Read a file, or the objects of a Ceph pool: ceph:POOL, ceph:POOL/NAMESPACE",
        more: "Objects are made in the namespace pinstripe-lab unless another one is named, and removed \
               at the end. The package librados2 must be installed.",
    },
    CaseOption {
        name: "ceph-conf",
        value: "FILE",
        form: ValueForm::Path,
        default: None,
        about: "Configuration of the cluster [default: /etc/ceph/ceph.conf]",
        more: "",
    },
    CaseOption {
        name: "ceph-user",
        value: "NAME",
        form: ValueForm::Text,
        default: None,
        about: "Name at the cluster [default: client.admin]",
        more: "",
    },
    shared::CACHE,
];
