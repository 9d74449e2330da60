//! `pinstripe backup`: take files and directories into the store as a new snapshot.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use pinstripe::chunk::Chunking;
use pinstripe::clock;
use pinstripe::codec::Codec;
use pinstripe::error::{Error, Kind, Result};
use pinstripe::format::snapshot::Snapshot;
use pinstripe::id::{StoreId, random};
use pinstripe::monitor::Counter;
use pinstripe::ops::{backup, init};
use pinstripe::seal::Credential;
use pinstripe::store::Store;
use pinstripe::units::{format_count, format_size};
use pinstripe::walk::Exclude;

use super::{key, snapshots};
use crate::credential::{keep_a_copy, own_key_file, take_back, write_key_file};
use crate::escape;
use crate::place;
use crate::progress::{self, Gauge};
use crate::run::{Ending, Run};
use crate::system;
use crate::table::{self, Side};
use crate::time;

/// Back up files and directories as a new snapshot
///
/// What the store has already is not stored again: files that did not change since the last
/// snapshot of the same paths are not even read. Without a store named, a default store with one
/// member is made in your data directory.
#[derive(clap::Args)]
#[command(after_long_help = "\
Patterns of --exclude follow the rules of .gitignore, against absolute paths:
  '*.o'            any name that ends so
  'build/'         directories of this name
  '/home/*/tmp'    from the root on
  'target/debug'   any end of a path
  '**'             any number of directories

Sizes are in KiB, MiB, GiB (powers of 1024); MB/s is millions of bytes per second.

Examples:
  pinstripe backup ~/Documents
  pinstripe backup /etc /home --store /mnt/a/store
  pinstripe backup / --one-file-system --exclude '/var/cache/*' --exclude '*.tmp'
  PINSTRIPE_STORE=/mnt/a/store pinstripe backup /srv --json")]
pub struct Args {
    /// Files and directories to back up
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,

    /// Leave out what matches; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,

    /// Do not enter other file systems that are mounted below a PATH
    #[arg(long, short = 'x')]
    one_file_system: bool,
}

const GAUGE: Gauge = Gauge {
    label: "backing up",
    done_bytes: |monitor| monitor.get(Counter::ReadBytes) + monitor.get(Counter::UnchangedBytes),
    passes: 1,
};

impl Args {
    /// Runs the backup.
    ///
    /// # Errors
    /// Those of [`backup::run`], and of opening or making the store.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let exclude = Exclude::new(self.exclude.iter().map(|pattern| pattern.as_bytes()))?;
        let store = self.store(run)?;
        let options = backup::Options {
            paths: self.paths.clone(),
            exclude,
            one_file_system: self.one_file_system,
            host: system::host_name(),
            tags: Vec::new(),
            estimate: progress::is_wanted(&run.common),
            limits: run.limits(&store),
        };
        let ticker = run.ticker(GAUGE);
        let snapshot = backup::run(&store, options, &run.monitor)?;
        drop(ticker);
        say(run, &store, &snapshot);
        run.screen.event(&snapshots::event(&snapshot))?;
        Ok(Ending::done(snapshots::facts(&snapshot)))
    }

    /// The store to back up into; without one named, the default one, which is made if need be.
    fn store(&self, run: &Run) -> Result<Store> {
        if let Some(named) = place::named(&run.common) {
            return run.open(&named);
        }
        let place = place::default_place()?;
        if !place::is_store(&place) {
            // A backup that cannot begin should not leave a store behind.
            for path in &self.paths {
                std::fs::symlink_metadata(path)
                    .map_err(|error| Error::io("cannot back this path up", path, error))
                    .map_err(|error| error.advice("name files and directories that exist"))?;
            }
            let key_file = make_default(run, &place)?;
            let shown = escape::path(&place);
            run.monitor.note(&format!("made the default store at {shown}, on one disk only"));
            run.monitor.note(
                "to survive the loss of a disk, make a store over several disks with \
                 'pinstripe init --member DIR --member DIR --member DIR --parity 1' and name it \
                 with --store or PINSTRIPE_STORE",
            );
            if let Some(file) = key_file {
                run.monitor.note(&keep_a_copy(&file));
            }
        }
        run.open(&place)
    }
}

/// Makes the default store, encrypted; returns the key file that was made for it, if no password
/// was given.
fn make_default(run: &Run, place: &Path) -> Result<Option<PathBuf>> {
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|error| Error::io("cannot make the data directory", parent, error))?;
    }
    let store = StoreId(random()?);
    let (credential, made) = match run.common.key.read()? {
        Some(given) => (given, None),
        None => {
            let file = own_key_file(store).ok_or_else(|| {
                Error::new(Kind::NotFound, "there is no place for a key file: HOME is not set")
                    .advice("set it, or make a store with: pinstripe init")
            })?;
            let credential = Credential::generate()?;
            write_key_file(&file, &credential)?;
            (credential, Some(file))
        }
    };
    let slot = key::new_slot(credential, None, key::KDF_MEMORY)?;
    init::run(&init::Options {
        members: vec![place.to_path_buf()],
        parity: 0,
        strip_bytes: init::STRIP_BYTES_DEFAULT.into(),
        chunking: init::CHUNKING_DEFAULT.parse::<Chunking>()?,
        codec: Codec::default(),
        seal: init::Seal { store: Some(store), ..init::Seal::with(slot) },
        same_disk: false,
        now_seconds: clock::now().0,
    })
    .inspect_err(|_| take_back(made.as_deref()))?;
    Ok(made)
}

fn say(run: &Run, store: &Store, snapshot: &Snapshot) {
    let count = |counter| format_count(run.count(counter));
    let size = |counter| format_size(run.count(counter));
    let say = |line: &str| run.screen.say(line);
    let elapsed = run.elapsed();
    say(&format!("snapshot {}", snapshot.id.short()));
    let head = [("", Side::Left), ("files", Side::Right), ("size", Side::Right)];
    let row = |name: &str, files, bytes| vec![name.to_owned(), count(files), size(bytes)];
    let rows = [
        row("  new", Counter::NewFiles, Counter::NewBytes),
        row("  changed", Counter::ChangedFiles, Counter::ChangedBytes),
        row("  unchanged", Counter::UnchangedFiles, Counter::UnchangedBytes),
    ];
    table::lines(&head, &rows).iter().for_each(|line| say(line));
    let read = run.count(Counter::ReadBytes);
    let mut line = format!("read {} in {}", format_size(read), time::span(elapsed));
    if read > 0 {
        line += &format!(", {}", time::rate(read, elapsed));
    }
    say(&line);
    let protection = match store.config.parity {
        0 => "no parity",
        _ => "with parity",
    };
    say(&format!(
        "stored {} after dedup, {} after compression, {} written ({protection})",
        size(Counter::DedupedBytes),
        size(Counter::CompressedBytes),
        size(Counter::WrittenBytes),
    ));
}
