//! Backs up a stream as one file in a snapshot of its own.

use std::io::Read;

use super::writer::Writer;
use super::{BackupOptions, begun, counts, end, prepare, refuse_future};
use crate::pipeline;
use crate::pipeline::backup::{Ending, Input, Tree};
use crate::pipeline::heartbeat;
use crate::store::Store;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::entry::{Content, Entry};
use pinstripe_member::meta::{FileKind, Metadata, Time};
use pinstripe_member::snapshot::Snapshot;

/// The longest file name that file systems allow.
const NAME_MAX_BYTES: usize = 255;

/// A stream to back up as a file.
pub struct Stream<'a> {
    /// The file's name: one component of a path.
    pub name: Vec<u8>,
    /// The content, which is read to its end.
    pub content: Box<dyn Read + 'a>,
    /// The numeric owner and group of the file.
    pub owner: (u32, u32),
}

/// Backs up a stream as one file in a snapshot of its own. The paths of `options` are ignored.
/// Unchanged files of earlier snapshots are not reused; only deduplication applies.
///
/// # Errors
/// Fails with the errors of [`run`](super::run), with [`Kind::Usage`] for an invalid name, or with
/// the errors of reading the stream; a partial stream never becomes a snapshot.
pub fn run_stream(
    store: &Store,
    stream: Stream<'_>,
    options: &BackupOptions,
    monitor: &Monitor,
) -> Result<Snapshot> {
    let began = clock::now();
    refuse_future(options, began)?;
    let Stream { name, content, owner } = stream;
    let is_name = !matches!(&name[..], b"" | b"." | b"..") && name.len() <= NAME_MAX_BYTES;
    if !is_name || name.contains(&b'/') || name.contains(&0) {
        let shown = String::from_utf8_lossy(&name).into_owned();
        return Err(Error::new(
            Kind::Usage,
            "a backup of standard input needs a name for the file",
        )
        .expected(format!("a name of 1 to {NAME_MAX_BYTES} bytes without a slash"), shown));
    }
    prepare(store, monitor);
    let (cutter, codec) = pipeline::backup::cutting(store)?;
    let id = SnapshotId(store.new_name()?);
    let Writer { session, mut acknowledger, index, .. } = Writer::begin(store, id, monitor)?;
    let losses_mark = index.losses_mark();
    let plan = pipeline::backup::BackupPlan {
        store,
        index: &index,
        tree: Tree::Made(Input::Stream(content, Box::new(stream_entry(&name, owner, began)))),
        cutter: &cutter,
        codec,
        limits: options.limits.for_chunks(cutter.max_bytes()),
        checkpoint_due: None,
        checkpoint_waits: false,
        stop: &options.stop,
        ending: Ending { session: session.name(), superseded: Vec::new(), unless: None },
    };
    let shown = options.time.map_or(began, |it| (it, 0));
    let begun = begun(store, id, shown, options, vec![name], None);
    monitor.add(Counter::WalkedEntries, 1);
    monitor.add(Counter::NewFiles, 1);
    let describe = |root, _| {
        // Its length is known now.
        let counts =
            counts(monitor, losses_mark).into_iter().map(|(name, count)| match name.as_str() {
                "new_bytes" => (name, monitor.get(Counter::ReadBytes)),
                _ => (name, count),
            });
        Snapshot { root, counts: counts.collect(), ..begun.clone() }
    };
    let (snapshot, _) = heartbeat::beside(store, &session, || {
        pipeline::backup::run(plan, &mut acknowledger, monitor, &describe)
    })?;
    end(store, session, monitor)?;
    Ok(snapshot)
}

fn stream_entry(name: &[u8], owner: (u32, u32), began: (i64, u32)) -> Entry {
    let time = Time { seconds: began.0, nanos: began.1 };
    Entry {
        path: name.to_vec(),
        meta: Metadata {
            kind: FileKind::File,
            mode: 0o600,
            uid: owner.0,
            gid: owner.1,
            mtime: time,
            rdev: (0, 0),
            xattrs: Vec::new(),
        },
        ctime: time,
        inode: 0,
        device: 0,
        links: 1,
        size: 0,
        extents: Vec::new(),
        target: Vec::new(),
        content: Content::default(),
    }
}
