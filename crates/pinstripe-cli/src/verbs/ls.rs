//! `pinstripe ls`: lists the content of a snapshot, as `ls -l` does.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use pinstripe::{SnapshotName, ls};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::{FileKind, Metadata};

use crate::choice_args::HostChoiceArgs;
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::snapshot_path;
use crate::time;

/// List the entries of a snapshot
///
/// Prints one line for each entry. Each line shows the mode, the number of hard links, the numbers
/// of the owner and the group, the size in bytes (for a device: the device numbers), the time of
/// the last change in local time, the path, and the target of a symlink. Unprintable characters in
/// names are written as escapes such as \n and \xff.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe ls latest
  pinstripe ls 1a2b3c4d:/home/me/Documents
  pinstripe ls latest:/home/me --depth 1
  pinstripe ls latest:.
  pinstripe ls latest:/var --sort size | head
  pinstripe ls latest --json | jq -r 'select(.event == \"entry\") | .path'")]
pub struct LsArgs {
    /// The snapshot: 'latest', 'latest~N' (N before the latest), or the beginning of its id (at
    /// least 4 characters)
    ///
    /// With :PATH, only PATH and the entries below it are listed.
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    snapshot: OsString,

    /// List only this path and the entries below it, as with SNAPSHOT:PATH
    #[arg(value_name = "PATH")]
    path: Option<OsString>,

    /// List only entries at most N directories below PATH: with 0, PATH alone; with 1, also the
    /// entries in the directory PATH
    #[arg(long, value_name = "N")]
    depth: Option<usize>,

    /// Order of the entries: by path, by size (largest first) or by time of the last change (latest
    /// first); the last two keep all lines in memory
    #[arg(long, value_name = "ORDER", default_value = "path")]
    sort: Order,

    #[command(flatten)]
    choice: HostChoiceArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    Path,
    Size,
    Time,
}

impl Order {
    /// The key of an entry in this order; the largest key comes first.
    fn key(self, entry: &Entry) -> (i64, u32) {
        match self {
            Order::Path => (0, 0),
            Order::Size => (i64::try_from(entry.size).unwrap_or(i64::MAX), 0),
            Order::Time => (entry.meta.mtime.seconds, entry.meta.mtime.nanos),
        }
    }
}

impl LsArgs {
    /// Prints the entries.
    ///
    /// # Errors
    /// Fails with the errors of [`ls::run`], and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let (snapshot, path) = snapshot_path::parse(&self.snapshot)?;
        if !path.is_empty() && self.path.is_some() {
            let error = Error::new(
                Kind::Usage,
                "two paths were given: one after ':', and one as a separate argument",
            );
            return Err(error.advice("give only one path"));
        }
        let path = match &self.path {
            Some(path) => snapshot_path::absolute(path)?,
            None => path,
        };
        let below = path.as_bytes();
        let choice = &self.choice.choice(run)?;
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        let (mut entries, mut bytes) = (0_u64, 0_u64);
        let name = SnapshotName { name: &snapshot, choice };
        let top = depth_of(below);
        let mut sorted = Vec::new();
        ls::run(&store, name, below, &run.monitor, &mut |entry| {
            if self.depth.is_some_and(|depth| depth_of(&entry.path) > top + depth) {
                return Ok(());
            }
            entries += 1;
            if entry.meta.kind == FileKind::File {
                bytes += entry.size;
            }
            if self.sort != Order::Path {
                sorted.push((self.sort.key(entry), shown(run, entry)));
                return Ok(());
            }
            print(run, &shown(run, entry))
        })?;
        // Equal ones stay in the order of their paths.
        sorted.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
        sorted.iter().try_for_each(|(_, shown)| print(run, shown))?;
        Ok(Ending::done(Event::default().with("entries", entries).with("bytes", bytes)))
    }
}

/// An entry as it is printed.
enum Shown {
    Line(String),
    Event(Event),
}

fn shown(run: &Run, entry: &Entry) -> Shown {
    match run.screen.is_json() {
        true => Shown::Event(event(entry)),
        false => Shown::Line(line(entry)),
    }
}

fn print(run: &Run, shown: &Shown) -> Result<()> {
    match shown {
        Shown::Line(line) => run.screen.row(line),
        Shown::Event(event) => run.screen.event(event),
    }
}

/// The number of names in a path.
fn depth_of(path: &[u8]) -> usize {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).count()
}

fn line(entry: &Entry) -> String {
    let meta = &entry.meta;
    let size = match meta.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            format!("{}, {}", meta.rdev.0, meta.rdev.1)
        }
        _ => entry.size.to_string(),
    };
    let mut line = format!(
        "{} {:>2} {:>5} {:>5} {size:>11} {} /{}",
        mode_text(meta),
        entry.links,
        meta.uid,
        meta.gid,
        time::date(meta.mtime.seconds),
        escape::name(&entry.path),
    );
    if meta.kind == FileKind::Symlink {
        line += " -> ";
        line += &escape::name(&entry.target);
    }
    line
}

fn event(entry: &Entry) -> Event {
    let meta = &entry.meta;
    let path = [b"/", &entry.path[..]].concat();
    let event = Event::new("entry")
        .with_name("path", &path)
        .with("type", kind_name(meta.kind))
        .with("mode", format!("{:04o}", meta.mode))
        .with("uid", meta.uid)
        .with("gid", meta.gid)
        .with("links", entry.links)
        .with("bytes", entry.size)
        .with("mtime_seconds", meta.mtime.seconds)
        .with("mtime_nanos", meta.mtime.nanos);
    match meta.kind {
        FileKind::Symlink => event.with_name("target", &entry.target),
        FileKind::CharDevice | FileKind::BlockDevice => {
            event.with("rdev", vec![meta.rdev.0, meta.rdev.1])
        }
        _ => event,
    }
}

/// The kind's name in JSON.
pub fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char_device",
        FileKind::BlockDevice => "block_device",
    }
}

/// Formats the mode as in `drwxr-xr-x`, with `s` and `t` for set-user-id, set-group-id and the
/// sticky bit.
fn mode_text(meta: &Metadata) -> String {
    let kind = match meta.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
    for (shift, special_bit, special) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = meta.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (meta.mode & special_bit != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => special.to_ascii_uppercase(),
            (true, true) => special,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use pinstripe_member::meta::Time;

    use super::*;

    #[test]
    fn modes_read_as_ls_writes_them() {
        for (kind, mode, text) in [
            (FileKind::File, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::File, 0o4755, "-rwsr-xr-x"),
            (FileKind::File, 0o6644, "-rwSr-Sr--"),
            (FileKind::CharDevice, 0o1660, "crw-rw---T"),
            (FileKind::Symlink, 0o777, "lrwxrwxrwx"),
        ] {
            let meta = Metadata {
                kind,
                mode,
                uid: 0,
                gid: 0,
                mtime: Time::default(),
                rdev: (0, 0),
                xattrs: Vec::new(),
            };
            assert_eq!(mode_text(&meta), text);
        }
    }
}
