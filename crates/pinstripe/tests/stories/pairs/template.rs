//! The sources, and the stores with which stories begin: each is made once in a process, and put
//! back for every story, which takes a fraction of the time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe::backup::{BackupOptions, Interval};
use pinstripe::forget::{ForgetChoice, ForgetOptions};
use pinstripe::{OpenOptions, Quorum, Store, backup, forget, member, sessions};
use pinstripe_member::ExtentKind;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_sim::under;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::keys::Key;
use super::story::{Origin, Shape};
use super::world::{Kept, Seat, World, limits};
use crate::process::Scheduled;
use crate::trace::Trace;
use pinstripe_sim::{Cut, End};
use pinstripe_sim::{Image, Ledger, NoWait, Site, noise, read_files, remove_tree};
use pinstripe_sim::{STAMP_SECONDS, Stamps};
use pinstripe_sim::{Tree, look};

/// Small files of the source of which a backup was interrupted: several jobs.
const SMALL_FILES: usize = 210;
/// Versions of each source.
const VERSIONS: [usize; 3] = [3, 2, 1];
/// The number of the source of which a backup was interrupted.
pub const INTERRUPTED: usize = 2;

/// The source trees, in all their versions; one of each is at the place that backups name.
pub struct Sources {
    root: PathBuf,
    trees: Vec<Vec<Arc<Tree>>>,
    /// The version that is in place.
    at: Mutex<[Option<usize>; VERSIONS.len()]>,
}

impl Sources {
    fn make(root: &Path) -> Self {
        let mut stamps = Stamps::default();
        let mut trees = Vec::new();
        for (number, versions) in VERSIONS.into_iter().enumerate() {
            let place = |version| root.join(format!("s{number}.v{version}"));
            if number == INTERRUPTED {
                fs::create_dir_all(place(0)).unwrap();
                for file in 0..SMALL_FILES {
                    fs::write(place(0).join(format!("{file:03}")), noise(file as u64, 40)).unwrap();
                }
            }
            pinstripe_sim::make_source(&place(0), 40 + number as u64, &mut stamps);
            for version in 1..versions {
                copy(&place(version - 1), &place(version));
                pinstripe_sim::change_source(
                    &place(version),
                    60 + (3 * number + version) as u64,
                    &mut stamps,
                );
            }
            trees.push((0..versions).map(|version| Arc::new(look(&place(version)))).collect());
        }
        Sources { root: root.to_path_buf(), trees, at: Mutex::default() }
    }

    /// The path that backups name.
    pub fn path(&self, source: usize) -> PathBuf {
        self.root.join(format!("s{source}"))
    }

    /// Puts a version of a source in place.
    pub fn put(&self, source: usize, version: usize) {
        let version = version % VERSIONS[source];
        let mut at = self.at.lock().unwrap();
        if at[source] == Some(version) {
            return;
        }
        let aside = |version| self.root.join(format!("s{source}.v{version}"));
        if let Some(old) = at[source] {
            fs::rename(self.path(source), aside(old)).unwrap();
        }
        fs::rename(aside(version), self.path(source)).unwrap();
        at[source] = Some(version);
    }

    /// The tree of a source as it is now.
    pub fn tree(&self, source: usize) -> Arc<Tree> {
        let version = self.at.lock().unwrap()[source].expect("it was put in place");
        Arc::clone(&self.trees[source][version])
    }
}

/// Copies a tree with its times, by which the stories tell inodes and their versions.
fn copy(from: &Path, to: &Path) {
    use std::os::unix::fs::MetadataExt;
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&entry).unwrap(), &target).unwrap();
            stamp(&target, fs::symlink_metadata(&entry).unwrap().mtime_nsec());
        } else if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(&entry, &target).unwrap();
            stamp(&target, fs::metadata(&entry).unwrap().mtime_nsec());
        }
    }
    stamp(to, fs::metadata(from).unwrap().mtime_nsec());
}

fn stamp(at: &Path, nanos: i64) {
    let time = Timespec { tv_sec: STAMP_SECONDS, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, at, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// What a store is before its story.
pub struct Template {
    /// The files of all members, and of another half.
    files: Image,
    /// The files of the members when they had one snapshot.
    pub old: Image,
    /// The members by their numbers.
    seats: Vec<(usize, PathBuf)>,
    kept: Vec<Kept>,
    keys: Vec<Key>,
    /// The directory of a member of another half, and what it has and this one lacks.
    other_half: Option<(PathBuf, Kept)>,
}

/// Sources and templates of this process.
pub struct Templates {
    place: PathBuf,
    pub sources: Arc<Sources>,
    made: BTreeMap<Shape, Arc<Template>>,
}

impl Templates {
    pub fn new(place: &Path) -> Self {
        let sources = place.join("sources");
        if sources.exists() {
            remove_tree(&sources);
        }
        fs::create_dir_all(&sources).unwrap();
        let sources = Arc::new(Sources::make(&sources));
        Templates { place: place.to_path_buf(), sources, made: BTreeMap::new() }
    }

    /// An empty site of a story.
    pub fn site(&self, shape: Shape) -> Site {
        let site = self.place.join("story");
        if site.exists() {
            remove_tree(&site);
        }
        let dir = tempfile::Builder::new().prefix("story").rand_bytes(0).tempdir_in(&self.place);
        let mut site = Site::bare_in(dir.unwrap(), shape.members);
        site.sealed = shape.is_sealed;
        site
    }

    /// The template of a shape, made on a schedule of its own.
    pub fn of(&mut self, shape: Shape) -> Arc<Template> {
        if let Some(made) = self.made.get(&shape) {
            return Arc::clone(made);
        }
        let made = pinstripe_schedule::scheduled(77, || self.make(shape)).0;
        let made = Arc::new(made);
        self.made.insert(shape, Arc::clone(&made));
        made
    }

    /// The world of a story: the store as its template has it.
    pub fn world(&self, shape: Shape, template: &Arc<Template>) -> World {
        let site = self.site(shape);
        site.put_image(&template.files);
        let seats = template.seats.iter();
        let seats = seats.map(|(number, place)| Seat::sound(*number, place.clone())).collect();
        let kept = template.kept.clone();
        let keys = template.keys.clone();
        let half = template.other_half.clone();
        let sources = Arc::clone(&self.sources);
        World::new(site, shape, sources, Arc::clone(template), seats, kept, keys, half)
    }

    fn make(&self, shape: Shape) -> Template {
        let site = self.site(shape);
        match shape.origin {
            Origin::New => self.make_new(&site, shape),
            Origin::Old => make_old(&site, shape),
            Origin::Divided => self.make_divided(site, shape),
        }
    }

    fn save(&self, site: &Site, through: usize, source: usize, version: usize) -> Kept {
        self.sources.put(source, version);
        let store = site.store_through(through);
        let ledger = Ledger::new();
        let snapshot = backup(&store, &self.sources.path(source), &ledger).unwrap();
        ledger.assert_no_losses();
        Kept::new(snapshot, &self.sources.path(source), self.sources.tree(source))
    }

    /// Three snapshots, of which the first is forgotten; an interrupted backup; two keys.
    fn make_new(&self, site: &Site, shape: Shape) -> Template {
        site.init(shape.parity, "4K", Arc::new(NoWait)).unwrap();
        let mut kept = vec![self.save(site, 0, 0, 0)];
        let old = site.image();
        kept.push(self.save(site, 0, 0, 1));
        kept.push(self.save(site, 0, 1, 0));
        let first = kept[0].id().to_string();
        let choice = ForgetChoice::Named(std::slice::from_ref(&first));
        let options = ForgetOptions::new(choice);
        forget::run(&site.store(), &options, &Ledger::new().monitor).unwrap();
        kept[0].wanted = super::world::Wanted::No;
        self.interrupt(site);
        let mut keys = vec![Key::first()];
        if shape.is_sealed {
            keys.push(Key::new(0));
            pinstripe::key::add(&site.store(), &keys[1].slot()).unwrap();
        }
        let seats = site.members.iter().cloned().enumerate().collect();
        Template { files: site.image(), old, seats, kept, keys, other_half: None }
    }

    /// A backup dies when its first checkpoint is on all members.
    fn interrupt(&self, site: &Site) {
        self.sources.put(INTERRUPTED, 0);
        let cut = Cut::within(ExtentKind::Checkpoints, site.members.len() as u64);
        let (done, cut) = under(&Scheduled, End::Killed(cut), |who| {
            let steps = Trace::before(&Arc::default(), who);
            let options =
                OpenOptions { steps: Some(steps), process: who.process, ..OpenOptions::default() };
            let mut store = Store::open_with(&site.members[0], options)?;
            if site.sealed {
                store.unlock(&pinstripe_sim::credential())?;
            }
            let options = options_of(&self.sources.path(INTERRUPTED));
            backup::run(&store, options, &Ledger::new().monitor)
        });
        assert!(cut && done.is_err(), "it is cut off: {cut} {:?}", done.map(|it| it.id));
        assert!(!site.store().list(ExtentKind::Checkpoints).unwrap().is_empty());
    }

    /// Both halves of a mirror went on without the other, each with a new member.
    fn make_divided(&self, site: Site, shape: Shape) -> Template {
        site.init(shape.parity, "4K", Arc::new(NoWait)).unwrap();
        let mut kept = vec![self.save(&site, 0, 0, 0)];
        let old = site.image();
        let [m0, m1] = [0, 1].map(|number| site.members[number].clone());
        let [aside, n0, n1, n1_aside] =
            ["aside", "n0", "n1", "n1-aside"].map(|name| site.path(name));
        let replace = |site: &Site, through: usize, new: &Path| {
            let (mut store, monitor) = (site.store_through(through), Ledger::new().monitor);
            let replaced = member::replace(&mut store, 1 - through, new, true, &limits(), &monitor);
            replaced.unwrap();
        };
        fs::rename(&m1, &aside).unwrap();
        replace(&site, 0, &n1);
        kept.push(self.save(&site, 0, 0, 1));
        fs::rename(&aside, &m1).unwrap();
        fs::rename(&m0, &aside).unwrap();
        fs::rename(&n1, &n1_aside).unwrap();
        replace(&site, 1, &n0);
        let other = self.save(&site, 1, 1, 0);
        fs::rename(&aside, &m0).unwrap();
        fs::rename(&n1_aside, &n1).unwrap();
        let mut files = BTreeMap::new();
        for directory in [&m0, &m1, &n0, &n1] {
            read_files(directory, &mut files);
        }
        // The new member of this half has the number after those of both halves' members.
        let (seats, keys) = (vec![(0, m0), (2, n1)], vec![Key::first()]);
        Template { files: Image(files), old, seats, kept, keys, other_half: Some((m1, other)) }
    }
}

/// A store of format version 1, from the frozen ones.
fn make_old(site: &Site, shape: Shape) -> Template {
    let name = if shape.is_sealed { "store-v2-aes" } else { "store-v1-raw" };
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name);
    for (number, member) in site.members.iter().enumerate() {
        let mut files = BTreeMap::new();
        let from = frozen.join(format!("m{number}"));
        read_files(&from, &mut files);
        let moved = files
            .into_iter()
            .map(|(path, bytes)| (member.join(path.strip_prefix(&from).unwrap()), bytes));
        for (path, bytes) in moved {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
    let key = match shape.is_sealed {
        true => Key::of_file(&fs::read(frozen.join("key")).unwrap()),
        false => Key::first(),
    };
    let steps: Option<Arc<dyn pinstripe_member::Steps>> = Some(Arc::new(NoWait));
    let options = OpenOptions { steps, ..OpenOptions::default() };
    let mut store = Store::open_with(&site.members[0], options).unwrap();
    if shape.is_sealed {
        store.unlock(&key.credential()).unwrap();
    }
    for session in sessions::load(&store, Quorum::Deletion).unwrap() {
        sessions::fence(&store, &session).unwrap();
    }
    store.write_labels().unwrap();
    let known = pinstripe::load_snapshots(&store, &Ledger::new().monitor).unwrap();
    let keep = |known: pinstripe::Known| {
        let snapshot = known.snapshot;
        let path = snapshot.sources[0].clone();
        let path = Path::new("/").join(String::from_utf8(path).unwrap());
        if known.is_forgotten {
            let kept = Kept::new(snapshot, &path, Arc::default());
            return Kept { wanted: super::world::Wanted::No, ..kept };
        }
        let (to, ledger) = (site.target(), Ledger::new());
        pinstripe_sim::restore(&store, &snapshot.id.to_string(), &path, &to, &ledger).unwrap();
        ledger.assert_no_losses();
        let tree = Arc::new(look(&to));
        remove_tree(&to);
        Kept::new(snapshot, &path, tree)
    };
    let kept = known.into_iter().map(keep).collect();
    let files = site.image();
    let (old, seats) = (files.clone(), site.members.iter().cloned().enumerate().collect());
    Template { files, old, seats, kept, keys: vec![key], other_half: None }
}

/// The options of every backup: with a checkpoint after each job, which a later one goes on from.
pub fn options_of(source: &Path) -> BackupOptions {
    let checkpoints = Some(Interval { time: Duration::ZERO, read_bytes: 0, waits: true });
    let options = BackupOptions::new(vec![source.to_path_buf()], b"test", limits());
    BackupOptions { checkpoints, ..options }
}

fn backup(
    store: &Store,
    source: &Path,
    ledger: &Ledger,
) -> pinstripe_base::error::Result<Snapshot> {
    pinstripe_sim::await_tick();
    let options = BackupOptions::new(vec![source.to_path_buf()], b"test", limits());
    backup::run(store, options, &ledger.monitor)
}
