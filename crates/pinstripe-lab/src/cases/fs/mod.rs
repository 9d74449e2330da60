//! Compares file systems: each run formats a file system, mounts it, fills it, drops the caches and
//! measures.

mod plan;
mod tables;

use std::path::PathBuf;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;

use super::{Again, Case, CaseOption, Given, Setting, ValueForm, Values, fileio, shared};
use crate::run::Plan;
use crate::scratch::kinds::{FILE_SYSTEMS, FileSystem, NAMES, System};
use crate::scratch::{FsCandidate, Maker};
use plan::FsPlan;

/// The case.
pub static CASE: Case = Case {
    name: "fs",
    about: "Compare file systems and their options; every run creates a new file system",
    help: "\
Every run creates a new file system and mounts it. If the mode needs existing files, the run then fills the \
file system with files, and unmounts and remounts it to empty all caches. The measured part of a run is one \
of the modes of the case 'fileio': seqwr, seqrewr, seqrd, rndrd, rndwr or rndrw. The number of requests in a \
run equals the number of blocks in the files; with random offsets, about every third request accesses a \
block that was accessed before. The file systems are measured in turn, and the first file system is the \
baseline of each mode. By default, the case compares all file systems whose mkfs is installed and that the \
kernel can mount, with their default options, and also btrfs with compression. Omitted file systems are \
listed.

The file systems are created on a loop device over an image file in --dir. The image file is fully written \
once, so that no run measures its allocation. The image file is also unlinked, so that it disappears even if \
the program is killed. Without --device, the results are those of file systems in an image file, which is \
itself stored on the file system of --dir. With --device, the file systems are created directly on the \
device; the device must be unused and empty, and is wiped at the end.

A candidate of --candidates is the name of a file system, followed by arguments for its mkfs, and by \
mount=OPTION,... with options of mount(8). By default, half of the written bytes are zeros, so that \
compression has an effect; with --content noise, compression has no effect. This case needs root. A run \
takes some seconds, and a round consists of one run for each combination of mode and file system; to limit \
the duration, set --time or --runs.",
    examples: "\
  sudo pinstripe lab run fs --dir /srv --runs 5 --warm-up 0
  sudo pinstripe lab run fs --file-systems ext4,xfs --modes seqwr,rndwr --time 600
  sudo pinstripe lab run fs --candidates 'ext4; ext4 -O ^has_journal mount=noatime'
  sudo pinstripe lab run fs --candidates 'btrfs; btrfs mount=compress=lzo; btrfs mount=compress=zstd:9'
  sudo pinstripe lab run fs --device /dev/sdx --total-size 8G --dry-run",
    options: OPTIONS,
    plan,
    tables: tables::tables,
    again: AGAIN,
};

/// One parameter lists all file systems, and each variant has one of them as a parameter, whichever
/// option selected them.
const AGAIN: Again = Again {
    of_all: |parameter| (parameter.name == "file-systems").then(|| chosen_by(&parameter.value)),
    of_variant: |parameter| (parameter.name == "file-system").then(|| chosen_by(&parameter.value)),
    ..Again::BY_NAME
};

const PLAIN: CaseOption = CaseOption {
    name: "file-systems",
    value: "NAME,...",
    form: ValueForm::SomeOf(&NAMES),
    default: None,
    about: "File systems to compare, with their default options [default: all that can be created \
            on this machine]",
    more: "",
};

const CANDIDATES: CaseOption = CaseOption {
    name: "candidates",
    value: "TEXT",
    form: ValueForm::Text,
    default: None,
    about: "File systems with options to compare, separated by ';', for example 'xfs; ext4 -b 1024 \
            mount=noatime'",
    more: "The candidates are compared in addition to the file systems of --file-systems. \
           Arguments that could name another device are refused.",
};

const OPTIONS: &[CaseOption] = &[
    PLAIN,
    CANDIDATES,
    fileio::MODES,
    fileio::FILES,
    CaseOption { default: Some("256M"), ..fileio::TOTAL_SIZE },
    CaseOption {
        name: "image-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1G"),
        about: "Size of the image file; has no effect with --device",
        more: "",
    },
    fileio::BLOCK_SIZE,
    CaseOption {
        default: Some("10"),
        about: "Maximum duration of a run in seconds; a run also ends after one request per block \
                of the files",
        ..fileio::RUN_TIME
    },
    shared::THREADS,
    shared::ENGINE,
    shared::DEPTH,
    shared::POLICY,
    shared::SYNC,
    fileio::READ_SHARE,
    CaseOption { default: Some("zeros:50%"), ..shared::CONTENT },
];

/// The options that select file systems: one option takes only plain names, the other takes several
/// names and names with mkfs options.
fn chosen_by(value: &str) -> Vec<Given> {
    let none = || "none".to_owned();
    match PLAIN.check(value) {
        Ok(()) => vec![(PLAIN.name, value.to_owned()), (CANDIDATES.name, none())],
        Err(_) => vec![(CANDIDATES.name, value.to_owned()), (PLAIN.name, none())],
    }
}

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    Ok(Box::new(FsPlan::new(setting, values, &System::default())?))
}

/// The file systems that are measured, and the reasons why others are left out.
///
/// # Errors
/// [`Kind::Usage`] if a candidate is invalid, is given twice, or needs more space; the errors of
/// [`System::maker`] if a named file system is not available.
fn chosen(
    values: &Values,
    system: &System,
    image_bytes: Option<u64>,
) -> Result<(Vec<Maker>, Vec<String>)> {
    let mut wanted = Vec::new();
    for name in values.words("file-systems") {
        wanted.push(FsCandidate::list(name)?.remove(0));
    }
    wanted.extend(values.text("candidates").map_or(Ok(Vec::new()), FsCandidate::list)?);
    if wanted.is_empty() {
        return Ok(all(system, image_bytes));
    }
    let mut makers: Vec<Maker> = Vec::new();
    for candidate in wanted {
        if makers.iter().any(|it| it.candidate == candidate) {
            let what = format!("the file system '{candidate}' is given twice");
            return Err(Error::new(Kind::Usage, what));
        }
        let program = able(candidate.kind, system, image_bytes)?;
        makers.push(Maker { candidate, program });
    }
    Ok((makers, Vec::new()))
}

/// All file systems that can be created on this machine, and the reasons why the rest is left out.
fn all(system: &System, image_bytes: Option<u64>) -> (Vec<Maker>, Vec<String>) {
    let (mut makers, mut notes) = (Vec::new(), Vec::new());
    for kind in FILE_SYSTEMS {
        match able(kind, system, image_bytes) {
            Err(error) => notes.push(format!("the file system {} is left out: {error}", kind.name)),
            Ok(program) => {
                let mut candidates = vec![FsCandidate::plain(kind)];
                if kind.name == "btrfs" {
                    let mounting = vec!["compress=zstd".to_owned()];
                    candidates.push(FsCandidate { mounting, ..FsCandidate::plain(kind) });
                }
                let maker = |candidate| Maker { candidate, program: program.clone() };
                makers.extend(candidates.into_iter().map(maker));
            }
        }
    }
    (makers, notes)
}

/// Returns the program that creates a file system, if this machine can create and mount it and has
/// the space for it.
fn able(kind: &FileSystem, system: &System, image_bytes: Option<u64>) -> Result<PathBuf> {
    let program = system.maker(kind)?;
    match image_bytes {
        Some(bytes) if bytes < kind.least_bytes => {
            let (least, bytes) = (format_size(kind.least_bytes), format_size(bytes));
            let what =
                format!("{} needs at least {least} of space, but the image has {bytes}", kind.name);
            Err(Error::new(Kind::Usage, what).advice("give a larger --image-size"))
        }
        _ => Ok(program),
    }
}

#[cfg(test)]
mod tests;
