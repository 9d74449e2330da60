//! The panel of tests of iozone: one file, read and written in every way.

use pinstripe_base::error::Result;

use super::disk::{DiskOptions, DiskPlan, InitialState, Mode, Work};
use super::shared;
use super::{Again, Case, CaseOption, Setting, ValueForm, Values};
use crate::io::{Direction, Order, Syncing};
use crate::result::Parameter;
use crate::run::Plan;

/// The case.
pub static CASE: Case = Case {
    name: "iozone",
    about: "Run the twelve tests of iozone, which access a file in different ways",
    help: "\
Each test accesses a file in one of these ways, with as many requests as the file has records:
  write, rewrite          write from the first record to the last: a new file, and an existing one
  read, reread            read from the first record to the last: from the disk, and from the page cache
  random-read, random-write, mixed   access records at random offsets; mixed alternates reads and writes
  backward                read from the last record to the first
  record-rewrite          write the record in the middle of the file repeatedly
  stride                  read every Nth record (--stride), in passes, until each record was read once
  fwrite, fread           write and read through the C library's buffer of 4 KiB
The rate is the number of bytes transferred, divided by the time until they were durable. The measured time \
includes the sync at the end (as with iozone -e). Unlike in iozone, every read test except reread begins \
with an empty page cache (as with iozone -U, but without unmounting), and every test is repeated.",
    examples: "\
  pinstripe lab run iozone --dir /srv --file-size 8G --record-size 4M
  pinstripe lab run iozone --tests read,stride --stride 17 --policy direct",
    options: OPTIONS,
    plan,
    tables: super::no_tables,
    again: Again::BY_NAME,
};

/// The tests of the panel, in the order in which they are run.
pub(super) const PANEL: [&str; 12] = [
    "write",
    "rewrite",
    "read",
    "reread",
    "random-read",
    "random-write",
    "backward",
    "record-rewrite",
    "stride",
    "fwrite",
    "fread",
    "mixed",
];

/// The option that selects the tests.
pub(super) const TESTS: CaseOption = CaseOption {
    name: "tests",
    value: "NAME,...",
    form: ValueForm::SomeOf(&PANEL),
    default: Some(
        "write,rewrite,read,reread,random-read,random-write,backward,record-rewrite,stride,\
         fwrite,fread,mixed",
    ),
    about: "Tests to run, in the given order",
    more: "",
};

const OPTIONS: &[CaseOption] = &[
    TESTS,
    CaseOption {
        name: "file-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("512M"),
        about: "Size of the file",
        more: "",
    },
    shared::RECORD_SIZE,
    CaseOption {
        name: "stride",
        value: "N",
        form: ValueForm::Count,
        default: Some("17"),
        about: "Distance from one read to the next in the test stride, in records",
        more: "",
    },
    CaseOption { default: Some("30"), ..shared::RUN_TIME },
    shared::THREADS,
    shared::ENGINE,
    shared::DEPTH,
    shared::POLICY,
    shared::SYNC,
    shared::RATE,
    shared::CONTENT,
    shared::CACHE,
    shared::CROSS_CHECK,
];

/// The share of reads in the test `mixed`.
const MIX: f64 = 0.5;

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let syncing = Syncing { at_end: values.text("sync") == Some("end"), ..Syncing::NEVER };
    let sizes = (1, values.size("file-size"), values.size("record-size"));
    let options = DiskOptions::read((CASE.name, "tests"), (setting, values), sizes, syncing)?;
    let tests = values.words("tests").into_iter();
    let value = |option: &CaseOption| match option.name {
        "file-size" => options.file_bytes.to_string(),
        name => values.text(name).unwrap_or("none").to_owned(),
    };
    Ok(Box::new(DiskPlan::new(DiskOptions {
        parameters: OPTIONS.iter().map(|it| Parameter::new(it.name, value(it))).collect(),
        modes: tests.filter_map(|name| mode(name, values.count("stride"))).collect(),
        ..options
    })?))
}

/// Returns the test with this name; tests with a stride access only every `stride`-th record.
pub(super) fn mode(name: &str, stride: u64) -> Option<Mode> {
    use Direction::{Mixed, Read, Write};
    use InitialState::{CachedFiles, Files, Nothing};
    use Order::{Backward, Random, Same, Sequential, Strided};
    let (name, about, work, initial) = match name {
        "write" => ("write", "write a new file", Work::Requests(Sequential, Write), Nothing),
        "rewrite" => ("rewrite", "overwrite the file", Work::Requests(Sequential, Write), Files),
        "read" => ("read", "read the file", Work::Requests(Sequential, Read), Files),
        "reread" => ("reread", "read it again", Work::Requests(Sequential, Read), CachedFiles),
        "random-read" => ("random-read", "read anywhere", Work::Requests(Random, Read), Files),
        "random-write" => ("random-write", "write anywhere", Work::Requests(Random, Write), Files),
        "backward" => ("backward", "read backwards", Work::Requests(Backward, Read), Files),
        "record-rewrite" => (
            "record-rewrite",
            "write one record again and again",
            Work::Requests(Same, Write),
            Files,
        ),
        "stride" => ("stride", "read in strides", Work::Requests(Strided(stride), Read), Files),
        "fwrite" => ("fwrite", "write through a buffer", Work::StreamWrite, Nothing),
        "fread" => ("fread", "read through a buffer", Work::StreamRead, Files),
        "mixed" => {
            ("mixed", "read and write at random offsets", Work::Requests(Random, Mixed(MIX)), Files)
        }
        _ => return None,
    };
    Some(Mode { name, about, work, initial, is_once: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::{assert_accessed, measured};

    #[test]
    #[ignore = "with --all: it measures for 7 s"]
    fn every_test_moves_the_file_once_and_nothing_is_left_behind() {
        for more in [
            vec![],
            vec![("policy", "direct"), ("engine", "uring"), ("depth", "8")],
            vec![("workers", "3"), ("cache", "keep")],
        ] {
            let dir = tempfile::tempdir().unwrap();
            let small = [("file-size", "257K"), ("record-size", "8K")];
            let results = measured(&CASE, dir.path(), &[&small[..], &more].concat());
            let names: Vec<&str> = results.variants.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names, PANEL);
            for variant in &results.variants {
                let run = &variant.runs[0];
                assert_accessed(variant, 256 << 10);
                assert_eq!(run.measured.operations, 32, "{}", variant.name);
                assert!(run.measured.value > 0.0);
                let writes = variant.name.contains("write") || variant.name == "mixed";
                assert_eq!(run.measured.latency.contains_key("sync"), writes, "{}", variant.name);
            }
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{more:?}");
        }
    }
}
