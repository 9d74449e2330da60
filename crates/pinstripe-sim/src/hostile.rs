//! Writes snapshots that no backup would write, to test that restores do not trust them.

use pinstripe::index::Index;
use pinstripe::{
    FinishedRecord, Laying, MemberWriters, Publisher, ScratchPool, Store, ToPacker, TreeWriter,
    run_packer,
};
use pinstripe_base::id::{ChunkId, SnapshotId};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::ExtentName;
use pinstripe_member::entry::{Content, Entry};
use pinstripe_member::meta::{FileKind, Metadata, Time};
use pinstripe_member::record::{ChunkRow, RecordKind};
use pinstripe_member::snapshot::{Snapshot, TreeRoot};
use pinstripe_member::tree::{Child, compare_paths, encode_node};
use pinstripe_stripe::{Abort, Claims, Sealer};

/// Returns an ordinary entry of this kind.
pub fn entry(path: &[u8], kind: FileKind) -> Entry {
    let mtime = Time { seconds: 1_000_000_000, nanos: 0 };
    let mode = if kind == FileKind::Directory { 0o755 } else { 0o644 };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Entry {
        path: path.to_vec(),
        meta: Metadata { kind, mode, uid, gid, mtime, rdev: (0, 0), xattrs: Vec::new() },
        ctime: mtime,
        inode: 0,
        device: 0,
        links: 1,
        size: 0,
        extents: Vec::new(),
        target: Vec::new(),
        content: Content::default(),
    }
}

pub fn symlink(path: &[u8], target: &[u8]) -> Entry {
    Entry { target: target.to_vec(), ..entry(path, FileKind::Symlink) }
}

/// Writes chunks and trees directly to a store, without a source.
pub struct Forge<'a> {
    store: &'a Store,
    sealer: Sealer,
    records: Vec<FinishedRecord>,
}

impl<'a> Forge<'a> {
    pub fn new(store: &'a Store) -> Self {
        Forge { store, sealer: store.sealer().unwrap(), records: Vec::new() }
    }

    fn chunk(&mut self, kind: RecordKind, bytes: &[u8]) -> ChunkId {
        let row = ChunkRow {
            id: self.store.keys().unwrap().chunk_id(bytes),
            raw_bytes: bytes.len() as u32,
        };
        let mut record = Vec::new();
        self.sealer.begin(&mut record, &[row]);
        record.extend_from_slice(bytes);
        let head = self.sealer.close(&mut record, kind, 0, vec![row], row.raw_bytes).unwrap();
        self.records.push(FinishedRecord { head, bytes: record });
        row.id
    }

    /// Stores a node or a page with any content.
    pub fn tree_chunk(&mut self, bytes: &[u8]) -> ChunkId {
        self.chunk(RecordKind::Tree, bytes)
    }

    /// Stores a file with this content, and returns its entry.
    pub fn file(&mut self, path: &[u8], bytes: &[u8]) -> Entry {
        let row =
            ChunkRow { id: self.chunk(RecordKind::Data, bytes), raw_bytes: bytes.len() as u32 };
        Entry {
            size: bytes.len() as u64,
            content: Content::Chunks(vec![row]),
            ..entry(path, FileKind::File)
        }
    }

    /// Writes the entries to a snapshot and commits it.
    pub fn commit(mut self, mut entries: Vec<Entry>) -> Snapshot {
        entries.sort_by(|left, right| compare_paths(&left.path, &right.path));
        let root = self.tree(&entries);
        self.commit_root(root)
    }

    /// Commits a snapshot with one node; each child has a page of entries, and the path with which
    /// the node says that the child begins.
    pub fn commit_node(mut self, children: &[(&[u8], Vec<Entry>)]) -> Snapshot {
        let child = |(path, entries): &(&[u8], Vec<Entry>)| {
            let page = self.tree(entries);
            assert_eq!(page.height, 0, "a page");
            Child { first_path: path.to_vec(), id: page.id, entries: page.entries }
        };
        let children: Vec<Child> = children.iter().map(child).collect();
        let id = self.tree_chunk(&encode_node(&children));
        let entries = children.iter().map(|child| child.entries).sum();
        self.commit_root(TreeRoot { id, height: 1, entries })
    }

    fn tree(&mut self, entries: &[Entry]) -> TreeRoot {
        let mut tree = TreeWriter::new();
        let mut keep = |bytes: Vec<u8>| Ok(self.tree_chunk(&bytes));
        entries.iter().for_each(|entry| tree.push(entry, &mut keep).unwrap());
        tree.finish(&mut keep).unwrap()
    }

    /// Commits a snapshot with this root.
    pub fn commit_root(self, root: TreeRoot) -> Snapshot {
        let store = self.store;
        let snapshot = Snapshot {
            store: store.config.store,
            id: SnapshotId(pinstripe_base::id::random().unwrap()),
            created_seconds: 1_700_000_000,
            created_nanos: 0,
            host: b"elsewhere".to_vec(),
            program: "none".to_owned(),
            sources: vec![Vec::new()],
            parent: None,
            root,
            counts: Vec::new(),
            tags: Vec::new(),
            comment: String::new(),
        };
        let (abort, monitor) = (Abort::default(), Monitor::default());
        std::thread::scope(|scope| {
            let writers = MemberWriters::start(scope, store, 16, &abort, &monitor);
            let (sender, records) = crossbeam_channel::unbounded();
            self.records
                .into_iter()
                .for_each(|record| sender.send(ToPacker::Record(record)).unwrap());
            drop(sender);
            let (index, claims) = (Index::load(store, &monitor).unwrap(), Claims::default());
            let sealer = &self.sealer;
            let publisher =
                Publisher::new(store, &index, sealer, &claims, &writers, &monitor, usize::MAX);
            run_packer(&records, &publisher, Laying::Striped, &ScratchPool::default()).unwrap();
            publisher.publish().unwrap();
            writers
                .put(ExtentName::snapshot(snapshot.id), self.sealer.snapshot(&snapshot).unwrap());
            writers.barrier().unwrap();
        });
        snapshot
    }
}
