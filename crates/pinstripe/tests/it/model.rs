//! The model: a tree of any shape comes back equal to a plain copy of what it was, then and after
//! any change, and nothing that did not change is read again.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use pinstripe_base::monitor::Counter;
use pinstripe_testing::{is_root, skipped};
use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use pinstripe_sim::{Ledger, Site, assert_whole, backup, noise};
use pinstripe_sim::{look, paths, stamps};

/// Lengths around what chunking at 4K decides by: shortest chunk 1 KiB, longest 16 KiB.
const LENGTHS: &[usize] =
    &[0, 1, 2, 1023, 1024, 1025, 4095, 4096, 4097, 16_383, 16_384, 16_385, 32_768, 50_000];

#[derive(Debug, Clone)]
enum What {
    Directory,
    /// Length, seed, and how soon it repeats.
    File(usize, u64, usize),
    /// Blocks of data between holes, then a hole to this many blocks.
    Sparse(Vec<(u64, u64)>, u64),
    /// Another name of an earlier file.
    HardLink(usize),
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    Device(bool),
}

#[derive(Debug, Clone)]
struct Spec {
    parent: usize,
    name: Vec<u8>,
    what: What,
    mode: u32,
    mtime: (i64, u32),
    owner: Option<(u32, u32)>,
    xattr: Option<(Vec<u8>, Vec<u8>)>,
}

/// A change of a tree; the number picks an entry.
#[derive(Debug, Clone)]
enum Change {
    Add(Spec),
    Overwrite(usize, usize, u64),
    Append(usize, usize),
    Truncate(usize, u64),
    Remove(usize),
    Rename(usize),
    Link(usize),
    Mode(usize, u32),
    Touch(usize, (i64, u32)),
    BecomeSymlink(usize),
    BecomeDirectory(usize),
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => 1_u8..=b'.', 4 => b'0'..=255];
    let short = prop::collection::vec(byte.clone(), 1..24);
    prop_oneof![20 => short, 1 => prop::collection::vec(byte, 240..250)]
}

fn content() -> impl Strategy<Value = What> {
    let length = prop_oneof![4 => prop::sample::select(LENGTHS), 1 => 0_usize..60_000];
    let period = prop_oneof![Just(usize::MAX), Just(1), Just(1024), 1_usize..9000];
    (length, 0_u64..12, period).prop_map(|(length, seed, period)| What::File(length, seed, period))
}

fn what() -> impl Strategy<Value = What> {
    let sparse = (prop::collection::vec((0_u64..40, 1_u64..6), 0..5), 0_u64..64);
    prop_oneof![
        3 => Just(What::Directory),
        10 => content(),
        3 => sparse.prop_map(|(runs, end)| What::Sparse(runs, end)),
        3 => any::<usize>().prop_map(What::HardLink),
        2 => prop::collection::vec(1_u8..=255, 1..60).prop_map(What::Symlink),
        1 => Just(What::Fifo),
        1 => Just(What::Socket),
        1 => any::<bool>().prop_map(What::Device),
    ]
}

fn mtime() -> impl Strategy<Value = (i64, u32)> {
    (prop_oneof![-(1_i64 << 31)..(1 << 31), Just(0), Just(-1)], 0_u32..1_000_000_000)
}

prop_compose! {
    fn spec()(
        parent: usize,
        name in name(),
        what in what(),
        mode in 0_u32..0o10000,
        mtime in mtime(),
        owner in prop::option::weighted(0.3, (0_u32..70_000, 0_u32..70_000)),
        xattr in prop::option::weighted(
            0.3,
            ("user\\.[a-z]{1,20}", prop::collection::vec(any::<u8>(), 0..300)),
        ),
    ) -> Spec {
        let xattr = xattr.map(|(name, value)| (name.into_bytes(), value));
        Spec { parent, name, what, mode, mtime, owner, xattr }
    }
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => spec().prop_map(Change::Add),
        3 => (any::<usize>(), prop::sample::select(LENGTHS), 0_u64..12)
            .prop_map(|(at, length, seed)| Change::Overwrite(at, length, seed)),
        2 => (any::<usize>(), 1_usize..9000).prop_map(|(at, length)| Change::Append(at, length)),
        1 => (any::<usize>(), 0_u64..9000).prop_map(|(at, length)| Change::Truncate(at, length)),
        2 => any::<usize>().prop_map(Change::Remove),
        2 => any::<usize>().prop_map(Change::Rename),
        1 => any::<usize>().prop_map(Change::Link),
        2 => (any::<usize>(), 0_u32..0o10000).prop_map(|(at, mode)| Change::Mode(at, mode)),
        2 => (any::<usize>(), mtime()).prop_map(|(at, mtime)| Change::Touch(at, mtime)),
        1 => any::<usize>().prop_map(Change::BecomeSymlink),
        1 => any::<usize>().prop_map(Change::BecomeDirectory),
    ]
}

/// Builds and changes one tree.
struct Builder {
    root: PathBuf,
    /// Makes every name the only one of its kind.
    made: usize,
}

impl Builder {
    fn all(&self, keep: impl Fn(&fs::Metadata) -> bool) -> Vec<PathBuf> {
        let paths = paths(&self.root).into_iter().map(|path| self.root.join(bytes(path)));
        paths.filter(|path| keep(&fs::symlink_metadata(path).unwrap())).collect()
    }

    fn pick(&self, number: usize, keep: impl Fn(&fs::Metadata) -> bool) -> Option<PathBuf> {
        let mut all = self.all(keep);
        all.retain(|path| *path != self.root);
        (!all.is_empty()).then(|| all[number % all.len()].clone())
    }

    fn fresh(&mut self, parent: usize, name: &[u8]) -> PathBuf {
        self.made += 1;
        let parents = self.all(fs::Metadata::is_dir);
        let name = [name, format!("{}", self.made).as_bytes()].concat();
        parents[parent % parents.len()].join(bytes(name))
    }

    fn add(&mut self, spec: &Spec) -> Option<PathBuf> {
        let path = self.fresh(spec.parent, &spec.name);
        let node = |kind, device| {
            rustix::fs::mknodat(CWD, &path, kind, Mode::RUSR, device).is_ok().then_some(())
        };
        match &spec.what {
            What::Directory => fs::create_dir(&path).unwrap(),
            What::File(length, seed, period) => {
                fs::write(&path, filling(*length, *seed, *period)).unwrap();
            }
            What::Sparse(runs, end) => {
                let file = fs::File::create(&path).unwrap();
                let mut at = 0;
                for (hole, data) in runs {
                    at += hole * 4096;
                    file.write_all_at(&noise(at, *data as usize * 4096), at).unwrap();
                    at += data * 4096;
                }
                file.set_len(at + end * 4096 + end % 7).unwrap();
            }
            What::HardLink(number) => {
                let existing = self.pick(*number, |stat| !stat.is_dir())?;
                fs::hard_link(existing, &path).unwrap();
            }
            What::Symlink(target) => symlink(bytes(target.clone()), &path).unwrap(),
            What::Fifo => node(FileType::Fifo, 0)?,
            What::Socket => node(FileType::Socket, 0)?,
            What::Device(is_block) => {
                let kind =
                    if *is_block { FileType::BlockDevice } else { FileType::CharacterDevice };
                node(kind, rustix::fs::makedev(7, 300))?;
            }
        }
        Some(path)
    }

    fn build(&mut self, specs: &[Spec]) {
        let made: Vec<_> = specs.iter().map(|spec| self.add(spec)).collect();
        // What is in a directory moves its times, and its mode may forbid more: deepest first.
        for (path, spec) in made.into_iter().zip(specs).rev() {
            if let Some(path) = path {
                dress(&path, spec);
            }
        }
    }

    fn change(&mut self, change: &Change) {
        let is_file = fs::Metadata::is_file;
        let any = |_: &fs::Metadata| true;
        match change {
            Change::Add(spec) => self.build(std::slice::from_ref(spec)),
            Change::Overwrite(at, length, seed) => {
                if let Some(path) = self.pick(*at, is_file) {
                    allow(&path);
                    fs::write(path, filling(*length, *seed, usize::MAX)).unwrap();
                }
            }
            Change::Append(at, length) => {
                if let Some(path) = self.pick(*at, is_file) {
                    allow(&path);
                    let old = fs::metadata(&path).unwrap().len();
                    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                    file.write_all_at(&noise(old, *length), old).unwrap();
                }
            }
            Change::Truncate(at, length) => {
                if let Some(path) = self.pick(*at, is_file) {
                    allow(&path);
                    fs::OpenOptions::new()
                        .write(true)
                        .open(path)
                        .unwrap()
                        .set_len(*length)
                        .unwrap();
                }
            }
            Change::Remove(at) => self.pick(*at, any).iter().for_each(|path| remove(path)),
            Change::Rename(at) => {
                if let Some(path) = self.pick(*at, |stat| !stat.is_dir()) {
                    let to = self.fresh(*at / 3, b"renamed");
                    fs::rename(path, to).unwrap();
                }
            }
            Change::Link(at) => {
                if let Some(path) = self.pick(*at, is_file) {
                    let to = self.fresh(*at / 3, b"linked");
                    fs::hard_link(path, to).unwrap();
                }
            }
            Change::Mode(at, mode) => {
                if let Some(path) = self.pick(*at, |stat| !stat.is_symlink()) {
                    set_mode(&path, *mode);
                }
            }
            Change::Touch(at, mtime) => {
                self.pick(*at, any).iter().for_each(|path| set_mtime(path, *mtime));
            }
            Change::BecomeSymlink(at) => {
                if let Some(path) = self.pick(*at, any) {
                    remove(&path);
                    symlink("where/to", path).unwrap();
                }
            }
            Change::BecomeDirectory(at) => {
                if let Some(path) = self.pick(*at, any) {
                    remove(&path);
                    fs::create_dir(&path).unwrap();
                    fs::write(path.join("in it"), noise(7, 3000)).unwrap();
                }
            }
        }
    }
}

fn bytes(path: Vec<u8>) -> OsString {
    OsString::from_vec(path)
}

fn filling(length: usize, seed: u64, period: usize) -> Vec<u8> {
    let once = noise(seed, length.min(period));
    once.iter().copied().cycle().take(length).collect()
}

fn remove(path: &Path) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else {
        fs::remove_file(path).unwrap();
    }
}

/// Every user but root needs some rights to build and read the tree.
fn set_mode(path: &Path, mode: u32) {
    let needed = match (is_root(), fs::symlink_metadata(path).unwrap().is_dir()) {
        (true, _) => 0,
        (false, true) => 0o700,
        (false, false) => 0o600,
    };
    rustix::fs::chmod(path, Mode::from_raw_mode(mode | needed)).unwrap();
}

/// A file that is to be written may have been made unwritable; its owner can undo that.
fn allow(path: &Path) {
    if !is_root() {
        rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR).unwrap();
    }
}

fn set_mtime(path: &Path, (seconds, nanos): (i64, u32)) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn dress(path: &Path, spec: &Spec) {
    let stat = fs::symlink_metadata(path).unwrap();
    if is_root()
        && let Some((uid, gid)) = spec.owner
    {
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
    }
    if let Some((name, value)) = &spec.xattr
        && (stat.is_file() || stat.is_dir())
    {
        // Where there are none, or no room for one as long, there is less to compare.
        let _ = rustix::fs::lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty());
    }
    if !stat.is_symlink() {
        set_mode(path, spec.mode);
    }
    set_mtime(path, spec.mtime);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_comes_back_and_so_does_what_it_becomes(
        specs in prop::collection::vec(spec(), 1..28),
        changes in prop::collection::vec(change(), 0..10),
        parity in 0_u8..3,
    ) {
        let site = Site::new(usize::from(parity) + 2, parity);
        let mut builder = Builder { root: site.source(), made: 0 };
        builder.build(&specs);
        let (first_look, first_stamps) = (look(&site.source()), stamps(&site.source()));
        let first = site.save();

        changes.iter().for_each(|change| builder.change(change));
        let (second_look, second_stamps) = (look(&site.source()), stamps(&site.source()));
        let (store, ledger) = (site.store(), Ledger::new());
        let second = backup(&store, &site.source(), &ledger).unwrap();
        ledger.assert_clean();

        let same = |path: &Vec<u8>| first_stamps.get(path) == second_stamps.get(path);
        let (kept, touched): (Vec<_>, Vec<_>) =
            second_stamps.keys().partition(|path| same(path));
        prop_assert_eq!(ledger.get(Counter::UnchangedFiles), kept.len() as u64);
        let inodes: BTreeSet<_> =
            touched.iter().map(|path| (second_stamps[*path].inode, second_stamps[*path].data_bytes)).collect();
        let to_read: u64 = inodes.into_iter().map(|(_, bytes)| bytes).sum();
        prop_assert_eq!(ledger.get(Counter::ReadBytes), to_read);

        let store = site.store();
        site.assert_restores(&store, &first, &first_look);
        site.assert_restores(&store, &second, &second_look);
        assert_whole(&store);
    }
}

#[test]
fn device_nodes_come_back() {
    if !is_root() {
        return skipped("device_nodes_come_back", "only root makes device nodes");
    }
    let site = Site::new(3, 1);
    let make = |name: &str, kind, major, minor| {
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, site.source().join(name), kind, Mode::RUSR, device)
    };
    if make("null", FileType::CharacterDevice, 1, 3).is_err() {
        return skipped("device_nodes_come_back", "device nodes are not allowed here");
    }
    make("disk", FileType::BlockDevice, 259, 70_000).unwrap();
    let wanted = look(&site.source());
    let snapshot = site.save();
    site.assert_restores(&site.store(), &snapshot, &wanted);
}

/// A tree that was not made for this test.
#[test]
fn a_real_tree_comes_back() {
    let Some(real) = real_tree() else {
        return skipped("a_real_tree_comes_back", "/usr/share/doc is missing or empty");
    };
    let site = Site::with_chunks(4, 1, "64K");
    let (wanted, store) = (look(&real), site.store());
    assert!(wanted.len() <= REAL_ENTRIES_MAX + 1);
    let (ledger, to) = (Ledger::new(), site.target());
    let first = backup(&store, &real, &ledger).unwrap();
    ledger.assert_clean();
    assert_eq!(ledger.get(Counter::NewFiles), stamps(&real).len() as u64);
    let (store, ledger) = (site.store(), Ledger::new());
    pinstripe_sim::restore(&store, &first.id.to_string(), &real, &to, &ledger).unwrap();
    ledger.assert_no_losses();
    let found = look(&to);
    assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (path, wanted) in &wanted {
        // Only root gives files away, and holes that a file system made by itself may move.
        let mut found = found[path].clone();
        found.extents.clone_from(&wanted.extents);
        if !is_root() {
            (found.uid, found.gid) = (wanted.uid, wanted.gid);
        }
        assert_eq!(*wanted, found, "{}", String::from_utf8_lossy(path));
    }
    let ledger = Ledger::new();
    backup(&store, &real, &ledger).unwrap();
    ledger.assert_clean();
    assert_eq!((ledger.get(Counter::ReadBytes), ledger.get(Counter::NewFiles)), (0, 0));
}

const REAL_ENTRIES_MAX: usize = 5000;

/// The largest directory of documentation, or all of it, with a bearable number of entries.
fn real_tree() -> Option<PathBuf> {
    let root = Path::new("/usr/share/doc");
    let count = |path: &Path| fs::read_dir(path).map_or(0, |_| paths(path).len());
    let all = count(root);
    if all > 1 && all <= REAL_ENTRIES_MAX {
        return Some(root.to_path_buf());
    }
    let below = fs::read_dir(root).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let below = below.filter(|path| path.is_dir() && !path.is_symlink());
    let sized = below.map(|path| (count(&path), path));
    sized.filter(|(count, _)| *count <= REAL_ENTRIES_MAX).max().map(|(_, path)| path)
}
