//! `pinstripe backup`: backs up files and directories into the store as a new snapshot.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use pinstripe::{Exclude, Limits, RuleOrigin, Store, backup, init};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{StoreId, random};
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::{format_count, format_size};
use pinstripe_member::snapshot::Snapshot;
use pinstripe_stripe::{Chunking, Codec, Credential};

use super::{explain, key, snapshots};
use crate::args::{comment, past_time, tag};
use crate::command_output::CommandOutput;
use crate::config::BackupEntry;
use crate::credential::{key_file_advice, own_key_file, remove_key_file, write_key_file};
use crate::escape;
use crate::event::Event;
use crate::exclude_args::{ExcludeArgs, Ordered};
use crate::lists;
use crate::message::counted;
use crate::run::place;
use crate::run::progress::{self, Gauge};
use crate::run::rollback;
use crate::run::{Ending, PackPlan, Run};
use crate::signals;
use crate::system;
use crate::table::{self, Side};
use crate::time;
use crate::xdg;

/// Back up files and directories as a new snapshot
///
/// Data that the store already contains is not stored again. Files that have not changed since the
/// last snapshot of their path are not read. If no store is given or configured, a default
/// store with one member is created in $XDG_DATA_HOME/pinstripe/store or
/// ~/.local/share/pinstripe/store.
#[derive(clap::Args)]
#[command(after_long_help = "\
Patterns of --exclude follow the rules of .gitignore, and are matched against absolute paths:
  '*.o'            any name with this ending
  'build/'         directories of this name
  '/home/*/tmp'    a path from the root
  'target/debug'   the end of any path
  '**'             any number of directories
  '!keep.o'        includes what an earlier pattern excludes
The complete grammar is in doc/patterns.md.

Sizes are shown in KiB, MiB and GiB (powers of 1024); MB/s means millions of bytes per second.

Examples:
  pinstripe backup ~/Documents
  pinstripe backup /etc /home --store /mnt/a/store
  pinstripe backup / --one-file-system --exclude '/var/cache/*' --exclude '*.tmp'
  pinstripe backup ~ --exclude-if-present .nobackup
  pinstripe backup ~ --exclude-caches --exclude-file ~/.backup-ignore --tag daily
  pinstripe backup ~ --ignore-file .gitignore --exclude '*.o' --exclude '!/home/me/keep.o'
  pinstripe backup ~ --exclude-larger-than 4G --explain ~/disk.img
  find /srv -newer /tmp/mark -type f -print0 | pinstripe backup --files-from - --from0
  pinstripe backup ~ --dry-run
  pinstripe backup --named documents
  pinstripe backup --stdin mydb.sql --stdin-from-command -- pg_dump mydb
  zfs send pool@now | pinstripe backup --stdin pool.zfs --tag zfs
  PINSTRIPE_STORE=/mnt/a/store pinstripe backup /srv --json")]
pub struct BackupArgs {
    /// Files and directories to back up
    ///
    /// A missing path is reported as a loss (exit code 3), and the other paths are backed up. A
    /// PATH inside another PATH is always backed up, even if an option would exclude it.
    #[arg(required_unless_present_any = ["files_from", "named", "stdin"], value_name = "PATH",
          value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,

    /// Make the backup that the config file defines under this name
    ///
    /// The paths and the store are those of the entry [backup.NAME] in the config file; --store
    /// overrides the store. Exclude patterns and tags of the config file and of the command line
    /// are combined.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["paths", "files_from"])]
    named: Option<String>,

    /// Back up the paths that are listed in this file, one per line; - means standard input
    ///
    /// --files-from may be given more than once, and may be combined with PATHs.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files_from: Vec<PathBuf>,

    /// Paths in the file of --files-from end with a NUL byte, as 'find -print0' writes them
    #[arg(long, requires = "files_from")]
    from0: bool,

    /// Back up standard input as a file of this name, in a separate snapshot
    ///
    /// --stdin is useful for database dumps. To restore the file, run 'pinstripe restore ID:/NAME
    /// --to-file FILE'. If standard input cannot be read to its end, no snapshot is created. pinstripe
    /// does not detect that the program that writes to the pipe has failed: use --stdin-from-command
    /// instead of a pipe.
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["files_from", "named", "dry_run", "exclude",
                                "iexclude", "exclude_file", "ignore_file", "exclude_caches",
                                "exclude_if_present", "exclude_larger_than",
                                "exclude_older_than", "one_file_system", "explain"])]
    stdin: Option<OsString>,

    /// Run the command given after -- instead of reading standard input, and back up its output
    ///
    /// If the command fails, that is, if its exit code is not 0, no snapshot is created. --stdin
    /// gives the name of the file. The command is not passed to a shell, and its standard input is
    /// empty.
    #[arg(long, requires = "stdin")]
    stdin_from_command: bool,

    #[command(flatten)]
    excludes: Ordered<ExcludeArgs>,

    /// Do not enter other file systems that are mounted below a PATH
    ///
    /// A mount point is backed up if it is itself given as a PATH, for example by 'backup -x /
    /// /home'.
    #[arg(long, short = 'x')]
    one_file_system: bool,

    /// Tag of the snapshot: one word, which listings show and 'forget --keep-tag' uses; may be
    /// given more than once
    #[arg(long = "tag", value_name = "TAG", value_parser = tag)]
    tags: Vec<String>,

    /// Comment of the snapshot, one line of text, which listings show
    #[arg(long, value_name = "TEXT", value_parser = comment)]
    comment: Option<String>,

    /// Time of the snapshot, for example '2024-05-01 12:30:00' or @1714559400 (seconds since 1970)
    /// [default: now]
    ///
    /// The time must have passed. --time is for copies of old data, for example when the backups of
    /// another tool are imported one after the other. Rules of 'forget' and 'latest' use it.
    #[arg(long, value_name = "TIME", value_parser = past_time)]
    time: Option<i64>,

    /// Make no snapshot if nothing has changed since the last snapshot of the same PATHs
    ///
    /// Metadata counts: a changed mode, owner or time of modification is a change. Directories above
    /// the PATHs do not count. The exit code is 0, and the id of the last snapshot is printed.
    #[arg(long, conflicts_with_all = ["stdin", "dry_run"])]
    skip_if_unchanged: bool,

    /// Host name that is stored in the snapshot [default: the name of this machine]
    ///
    /// Unchanged files are taken from the latest snapshot of the same host name that has the PATH.
    #[arg(long, value_name = "NAME")]
    host: Option<OsString>,

    /// Only show how much data would be read; no file content is read, and nothing is written or
    /// created
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Only show whether a backup with these options would save this path, and which rule decides;
    /// nothing is backed up, and no store is opened
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath,
          conflicts_with = "dry_run")]
    explain: Option<PathBuf>,
}

/// The largest number of requests that a backup sends to a bucket, not counting requests for packs.
/// Tests check it.
const REQUESTS_BESIDE: u64 = 60;

const GAUGE: Gauge = Gauge {
    label: "backing up",
    done_bytes: |monitor| monitor.get(Counter::ReadBytes) + monitor.get(Counter::UnchangedBytes),
    passes: 1,
};

impl BackupArgs {
    /// Whether the backup reads standard input. A backup of standard input cannot be repeated.
    pub fn reads_stdin(&self) -> bool {
        self.stdin.is_some() || !self.files_from.is_empty()
    }

    /// Runs the backup.
    ///
    /// # Errors
    /// Fails with the errors of [`backup::run`], and of opening or creating the store.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        if let Some(name) = &self.stdin {
            return self.stream(run, name);
        }
        let named = match &self.named {
            Some(name) => run.config()?.backup(name)?.clone(),
            None => BackupEntry::default(),
        };
        let exclude = self.excludes.with(&named)?;
        let mut paths = self.paths.clone();
        paths.extend_from_slice(&named.paths);
        for list in &self.files_from {
            paths.extend(lists::paths(list, self.from0)?);
        }
        let one_file_system = self.one_file_system || named.one_file_system;
        if let Some(path) = &self.explain {
            let limits = Limits::new(1, 1, run.common.memory.0);
            let options = backup::BackupOptions {
                exclude,
                one_file_system,
                ..backup::BackupOptions::new(paths, b"", limits)
            };
            return explain::run(run, &options, path);
        }
        let store = self.store(run, &named, &paths)?;
        let host = self.host.clone().or(named.host.map(OsString::from));
        let host = host.map_or_else(system::host_name, |host| host.as_bytes().to_vec());
        let options = backup::BackupOptions {
            paths_are_a_list: !self.files_from.is_empty(),
            exclude: exclude.clone(),
            one_file_system,
            tags: self.tags.iter().chain(&named.tags).cloned().collect(),
            comment: self.comment.clone().unwrap_or_default(),
            time: self.time,
            skip_unchanged: self.skip_if_unchanged,
            estimate: progress::is_wanted(&run.common) && !self.dry_run,
            ..backup::BackupOptions::new(paths, &host, run.limits(&store))
        };
        if self.dry_run {
            let ending = survey(run, &store, &options)?;
            self.note_unmet(run, &exclude);
            return Ok(ending);
        }
        rollback::warn(run, &store)?;
        let options =
            backup::BackupOptions { stop: signals::catch()?.as_flag().clone(), ..options };
        run.end_what_hangs();
        let ticker = run.ticker(GAUGE);
        let saved = backup::run_unless_unchanged(&store, options, &run.monitor)?;
        drop(ticker);
        self.note_unmet(run, &exclude);
        let snapshot = saved.snapshot;
        if !saved.is_new {
            let short = snapshot.id.short();
            run.screen.say(&format!("nothing has changed since snapshot {short}"));
            return Ok(Ending::done(snapshots::facts(&snapshot).with("unchanged", true)));
        }
        rollback::keep_made(run, &store, &snapshot);
        say(run, &store, &snapshot);
        #[cfg(feature = "serve")]
        run.share(&store);
        run.screen.event(&snapshots::event(&snapshot))?;
        Ok(Ending::done(snapshots::facts(&snapshot)))
    }

    /// Backs up standard input.
    fn stream(&self, run: &Run, name: &OsStr) -> Result<Ending> {
        self.refuse_stream_paths()?;
        let store = self.store(run, &BackupEntry::default(), &[])?;
        rollback::warn(run, &store)?;
        let host = self.host.clone().map_or_else(system::host_name, OsString::into_vec);
        let options = backup::BackupOptions {
            tags: self.tags.clone(),
            comment: self.comment.clone().unwrap_or_default(),
            time: self.time,
            ..backup::BackupOptions::new(Vec::new(), &host, run.limits(&store))
        };
        let (name, owner) = (name.as_bytes().to_vec(), system::owner());
        let content = self.content()?;
        let ticker = run.ticker(GAUGE);
        let stream = backup::Stream { name, content, owner };
        let snapshot = backup::run_stream(&store, stream, &options, &run.monitor)?;
        drop(ticker);
        rollback::keep_made(run, &store, &snapshot);
        // How long the new file is was known only at its end.
        run.monitor.add(Counter::NewBytes, run.count(Counter::ReadBytes));
        say(run, &store, &snapshot);
        #[cfg(feature = "serve")]
        run.share(&store);
        run.screen.event(&snapshots::event(&snapshot))?;
        Ok(Ending::done(snapshots::facts(&snapshot)))
    }

    /// Refuses PATHs that are not a command, and a command without words.
    fn refuse_stream_paths(&self) -> Result<()> {
        match (self.stdin_from_command, self.paths.as_slice()) {
            (true, []) => Err(Error::new(Kind::Usage, "--stdin-from-command needs a command")
                .advice("give the command after --, for example: -- pg_dump mydb")),
            (false, [_, ..]) => {
                Err(Error::new(Kind::Usage, "--stdin cannot be used together with PATHs").advice(
                    "run two backups, or give a command with --stdin-from-command -- COMMAND",
                ))
            }
            (false, []) if std::io::stdin().is_terminal() => {
                Err(Error::new(Kind::Usage, "standard input is a terminal").advice(
                    "use --stdin with a pipe or a file, or with --stdin-from-command -- COMMAND",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The content of the stream.
    fn content(&self) -> Result<Box<dyn Read>> {
        if !self.stdin_from_command {
            return Ok(Box::new(std::io::stdin().lock()));
        }
        let words: Vec<_> = self.paths.iter().map(|it| it.clone().into_os_string()).collect();
        Ok(Box::new(CommandOutput::start(&words)?))
    }

    /// Notes the patterns, tags and ignore files of the command line that left nothing out.
    fn note_unmet(&self, run: &Run, exclude: &Exclude) {
        note_unmet(run, exclude);
        let shown = |name: &[u8]| escape::path(Path::new(OsStr::from_bytes(name)));
        for tag in exclude.tags().filter(|tag| !tag.is_met()) {
            let name = tag.name().to_bytes();
            let names_it =
                |it: &OsString| it.as_bytes().split(|&byte| byte == b':').next() == Some(name);
            if self.excludes.exclude_if_present.iter().any(names_it) {
                let shown = shown(name);
                run.monitor.note(&format!("no directory matches --exclude-if-present {shown}"));
            }
        }
        for file in exclude.ignore_files().filter(|file| !file.is_met()) {
            let name = file.name().to_bytes();
            if self.excludes.ignore_file.iter().any(|it| it.as_bytes() == name) {
                let shown = shown(name);
                run.monitor.note(&format!("no directory has a file of --ignore-file {shown}"));
            }
        }
    }

    /// The store to back up into: the named one, or else the default store, which is created if it
    /// is missing.
    fn store(&self, run: &Run, named: &BackupEntry, paths: &[PathBuf]) -> Result<Store> {
        if let Some(named) = run.named_store(named.store.as_deref())? {
            return run.open(&named.members);
        }
        if self.dry_run {
            return run.open_store();
        }
        let place = xdg::default_store()?;
        if !place::is_store(&place) && run.known_stores().at(&place).is_none() {
            // A backup that cannot begin should not leave a store behind.
            let looked = paths.iter().map(|path| {
                std::fs::symlink_metadata(path)
                    .map_err(|error| Error::io("cannot back up this path", path, error))
                    .map_err(|error| error.advice("give files and directories that exist"))
            });
            looked.reduce(Result::or).transpose()?;
            let key_file = make_default(run, &place)?;
            let shown = escape::path(&place);
            run.monitor
                .note(&format!("created the default store at {shown}, which is on only one disk"));
            run.monitor.note(
                "to survive the loss of a disk, create a store on several disks with 'pinstripe \
                 init --member DIR --member DIR --member DIR --parity 1', and give that store with \
                 --store or PINSTRIPE_STORE",
            );
            if let Some(file) = key_file {
                run.monitor.note(&key_file_advice(&file));
            }
        }
        run.open(&[place])
    }
}

/// Notes the patterns of the command line that matched nothing. Those of files and of the config
/// file may be meant for other hosts.
pub(super) fn note_unmet(run: &Run, exclude: &Exclude) {
    for rule in exclude.unmet() {
        if let RuleOrigin::Option(option) = rule.origin {
            let shown = escape::path(Path::new(OsStr::from_bytes(&rule.text)));
            run.monitor.note(&format!("no path matches {option} {shown}"));
        }
    }
}

/// Creates the default store, encrypted; returns the key file that was created for it, if no
/// password was given.
fn make_default(run: &Run, place: &Path) -> Result<Option<PathBuf>> {
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|error| Error::io("cannot create the data directory", parent, error))?;
    }
    let store = StoreId(random()?);
    let (credential, made) = match run.common.key.read(&run.monitor)? {
        Some(given) => (given, None),
        None => {
            let file = own_key_file(store).ok_or_else(|| {
                Error::new(Kind::NotFound, "a key file cannot be created, because HOME is not set")
                    .advice("set HOME, or create a store with 'pinstripe init'")
            })?;
            let credential = Credential::generate()?;
            write_key_file(&file, &credential)?;
            (credential, Some(file))
        }
    };
    let slot = key::new_slot(credential, None, key::KDF_MEMORY)?;
    init::run(&init::InitOptions {
        members: vec![place.to_path_buf()],
        parity: 0,
        strip_bytes: init::STRIP_BYTES_DEFAULT.into(),
        chunking: init::CHUNKING_DEFAULT.parse::<Chunking>()?,
        codec: Codec::default(),
        seal: init::Seal { store: Some(store), ..init::Seal::with(slot) },
        same_disk: false,
        now_seconds: clock::now().0,
    })
    .inspect_err(|_| remove_key_file(made.as_deref()))?;
    Ok(made)
}

/// Reports which files a backup would read, and how many bytes.
fn survey(run: &Run, store: &Store, options: &backup::BackupOptions) -> Result<Ending> {
    let (mut files, mut bytes) = (0, 0);
    backup::survey(store, options, &run.monitor, &mut |wanted| {
        files += 1;
        bytes += wanted.size_bytes;
        let change = if wanted.is_new { "new" } else { "changed" };
        let path = [b"/", wanted.path].concat();
        let size = format_size(wanted.size_bytes);
        run.screen.row(&format!("{change:<7}  {size:>10}  {}", escape::name(&path)))?;
        let event = Event::new("would_read").with_name("path", &path);
        run.screen.event(&event.with("change", change).with("bytes", wanted.size_bytes))
    })?;
    let unchanged = format_count(run.count(Counter::UnchangedFiles));
    let (shown, size) = (counted(files, "file"), format_size(bytes));
    run.screen
        .say(&format!("a backup would read {shown} with {size}; unchanged files: {unchanged}"));
    let plan =
        PackPlan { written_bytes: bytes, requests_beside: REQUESTS_BESIDE, ..PackPlan::default() };
    let cost = run.say_cost(store, &plan)?;
    let facts = Event::default().with("would_read_files", files).with("would_read_bytes", bytes);
    Ok(Ending::done(facts.with_all(cost).with("dry_run", true)))
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
    let changed = run.count(Counter::ChangedWhileRead);
    if changed > 0 {
        let entries = pinstripe_base::units::counted(changed, "entry", "entries");
        say(&format!("{entries} changed while being read"));
    }
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
        "new data: {} after deduplication, {} after compression, {} written to members \
         ({protection})",
        size(Counter::DedupedBytes),
        size(Counter::CompressedBytes),
        size(Counter::WrittenBytes),
    ));
    // The last line of a degraded run has it.
    if run.count(Counter::DegradedMembers) == 0 {
        run.say_redundancy();
    }
}
