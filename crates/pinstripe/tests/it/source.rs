//! Sources and targets that misbehave: unreadable, changing, vanishing, strange, hostile. Each is
//! named and counted, nothing else suffers, and nothing outside the target is ever touched.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pinstripe::{LARGE_BYTES, restore};
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Counter;
use pinstripe_io::beneath::{open_beneath, parent_beneath};
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;
use pinstripe_member::{DiskStep, Steps};
use pinstripe_testing::{is_root, skipped};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use pinstripe_sim::{Forge, entry, symlink as link_entry};
use pinstripe_sim::{
    Ledger, NoWait, STRIP_BYTES, Site, assert_whole, backup, limits, noise, restore,
};
use pinstripe_sim::{assert_same, look};

/// Does `work` as a user without rights, on a thread of its own: identity is each thread's own
/// to the kernel, and the threads that this one starts inherit it.
fn as_nobody(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            if is_root() {
                let nobody = rustix::process::Uid::from_raw(65_534);
                let keep = None::<rustix::process::Uid>;
                rustix::thread::set_thread_res_uid(keep, Some(nobody), keep).unwrap();
            }
            work();
        });
        done.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_saved() {
    as_nobody(|| {
        let site = Site::new(3, 1);
        let source = site.source();
        for name in ["closed", "open", "blind"] {
            fs::create_dir(source.join(name)).unwrap();
            fs::write(source.join(name).join("inside"), name).unwrap();
        }
        fs::write(source.join("secret"), b"no").unwrap();
        fs::write(source.join("plain"), b"yes").unwrap();
        allow(&source.join("secret"), 0o000);
        allow(&source.join("closed"), 0o000);
        // May be listed, not entered.
        allow(&source.join("blind"), 0o400);
        let ledger = Ledger::new();
        let snapshot = backup(&site.store(), &source, &ledger).unwrap();
        for name in ["source/secret", "source/closed", "blind/inside"] {
            assert_eq!(ledger.loss_at(name).kind, Kind::Io, "{name}");
        }
        assert_eq!(ledger.losses().len(), 3);
        let to = site.target();
        let name = snapshot.id.to_string();
        restore(&site.store(), &name, &source, &to, &Ledger::new()).unwrap();
        assert_eq!(fs::read(to.join("plain")).unwrap(), b"yes");
        assert_eq!(fs::read(to.join("open/inside")).unwrap(), b"open");
        assert!(!to.join("secret").exists());
        for at in [&source, &to] {
            allow(&at.join("closed"), 0o700);
            allow(&at.join("blind"), 0o700);
        }
        assert_eq!(fs::read_dir(to.join("closed")).unwrap().count(), 0);
    });
}

/// Does something to the source at the first write of a strip to a member: when the backup has
/// begun to read, and while most is still unread.
struct AtFirstWrite(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Steps for AtFirstWrite {
    fn take(&self, step: &DiskStep<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        if matches!(step, DiskStep::Write { len, .. } if *len as u64 >= STRIP_BYTES)
            && let Some(work) = self.0.lock().unwrap().take()
        {
            work();
        }
        NoWait.take(step, act)
    }
}

/// A source whose first file is so large that all else is still unread when it is being stored.
struct Moving {
    site: Site,
    large: Vec<u8>,
}

impl Moving {
    fn new() -> Self {
        let site = Site::with_chunks(2, 1, "256K");
        let large = noise(1, LARGE_BYTES as usize * 2);
        fs::write(site.source().join("a large"), &large).unwrap();
        Moving { site, large }
    }

    /// Backs up while `work` is done, and restores what was saved.
    fn save(&self, work: impl FnOnce() + Send + 'static) -> (Ledger, PathBuf) {
        let steps = Arc::new(AtFirstWrite(Mutex::new(Some(Box::new(work)))));
        let store = self.site.open(0, "", Arc::clone(&steps) as Arc<dyn Steps>).unwrap();
        let ledger = Ledger::new();
        let snapshot = backup(&store, &self.site.source(), &ledger).unwrap();
        assert!(steps.0.lock().unwrap().is_none());
        let (to, restored) = (self.site.target(), Ledger::new());
        let name = snapshot.id.to_string();
        restore(&self.site.store(), &name, &self.site.source(), &to, &restored).unwrap();
        restored.assert_no_losses();
        (ledger, to)
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_told_and_saved_as_far_as_it_was_there() {
    let moving = Moving::new();
    let file = moving.site.source().join("a large");
    let (ledger, to) = moving.save(move || {
        fs::OpenOptions::new().write(true).open(file).unwrap().set_len(70_000).unwrap();
    });
    assert_eq!((ledger.losses().len(), ledger.get(Counter::ChangedWhileRead)), (0, 1));
    assert!(ledger.seen()[0].place.ends_with("a large"), "{:?}", ledger.seen());
    let restored = fs::read(to.join("a large")).unwrap();
    assert!(restored.len() < moving.large.len(), "all of it was read before it shrank");
    assert!(restored.len() >= 70_000 && restored[..] == moving.large[..restored.len()]);
    assert_whole(&moving.site.store());
}

#[test]
fn a_file_that_grows_while_it_is_read_is_told_and_saved_as_it_was_found() {
    let moving = Moving::new();
    let file = moving.site.source().join("a large");
    let len = moving.large.len() as u64;
    let (ledger, to) = moving.save(move || {
        let file = fs::OpenOptions::new().write(true).open(file).unwrap();
        file.write_all_at(b"and more", len).unwrap();
    });
    // What it held when it was opened is complete.
    ledger.assert_clean();
    assert_eq!(ledger.get(Counter::ChangedWhileRead), 1);
    assert!(fs::read(to.join("a large")).unwrap() == moving.large);
    // The next backup reads it again and has it whole.
    let wanted = look(&moving.site.source());
    let next = moving.site.save();
    moving.site.assert_restores(&moving.site.store(), &next, &wanted);
}

#[test]
fn what_vanishes_or_becomes_something_else_is_told_and_not_followed() {
    let moving = Moving::new();
    let source = moving.site.source();
    let outside = moving.site.path("outside");
    fs::write(&outside, b"not to be saved").unwrap();
    for name in ["vanishes", "fifo", "symlink", "directory", "short", "long", "stays"] {
        fs::write(source.join(format!("b {name}")), noise(5, 3000)).unwrap();
    }
    fs::create_dir(source.join("c gone")).unwrap();
    symlink("target", source.join("d link vanishes")).unwrap();
    let at = source.clone();
    let (ledger, to) = moving.save(move || {
        let become_new = |name: &str| {
            let path = at.join(name);
            fs::remove_file(&path).unwrap();
            path
        };
        become_new("b vanishes");
        let fifo = become_new("b fifo");
        rustix::fs::mknodat(CWD, fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        symlink(&outside, become_new("b symlink")).unwrap();
        fs::create_dir(become_new("b directory")).unwrap();
        fs::write(at.join("b short"), b"short").unwrap();
        fs::write(at.join("b long"), noise(6, 9000)).unwrap();
        become_new("d link vanishes");
    });
    for name in ["b fifo", "b symlink", "b directory"] {
        assert_eq!(ledger.loss_at(name).kind, Kind::Changed, "{name}");
        assert!(fs::symlink_metadata(to.join(name)).is_err(), "{name}");
    }
    for name in ["b vanishes", "d link vanishes"] {
        assert!(fs::symlink_metadata(to.join(name)).is_err(), "{name}");
    }
    assert_eq!((ledger.losses().len(), ledger.get(Counter::ChangedWhileRead)), (3, 2));
    assert_eq!(fs::read(to.join("b short")).unwrap(), b"short");
    assert!(fs::read(to.join("b long")).unwrap() == noise(6, 9000));
    assert!(fs::read(to.join("b stays")).unwrap() == noise(5, 3000));
    assert!(fs::read(to.join("a large")).unwrap() == moving.large);
    assert_whole(&moving.site.store());
}

#[test]
fn strange_names_kinds_and_loops_come_back() {
    let site = Site::new(3, 1);
    let source = site.source();
    for name in [&b"not \xff\xfe utf-8"[..], b"new\nline", b" ", b"-rf", b"..a", b"\x01\x7f"] {
        fs::write(source.join(OsStr::from_bytes(name)), name).unwrap();
    }
    fs::create_dir(source.join(OsStr::from_bytes(b"dir \x80"))).unwrap();
    fs::write(source.join(OsStr::from_bytes(b"dir \x80/inner \x81")), b"x").unwrap();
    symlink("loop b", source.join("loop a")).unwrap();
    symlink("loop a", source.join("loop b")).unwrap();
    symlink(".", source.join("self")).unwrap();
    symlink("..", source.join("up")).unwrap();
    for (name, kind) in [("fifo", FileType::Fifo), ("socket", FileType::Socket)] {
        rustix::fs::mknodat(CWD, source.join(name), kind, Mode::RUSR, 0).unwrap();
    }
    let wanted = look(&source);
    let snapshot = site.save();
    site.assert_restores(&site.store(), &snapshot, &wanted);
    // A source that is itself a symlink is one, and not what it points to.
    let ledger = Ledger::new();
    let snapshot = backup(&site.store(), &source.join("loop a"), &ledger).unwrap();
    ledger.assert_clean();
    let to = site.target();
    let name = snapshot.id.to_string();
    restore(&site.store(), &name, &source.join("loop a"), &to, &ledger).unwrap();
    assert_eq!(fs::read_link(to.join("loop a")).unwrap(), Path::new("loop b"));
}

#[test]
fn a_path_longer_than_the_system_takes_comes_back() {
    let site = Site::new(2, 1);
    let open = |path: &Path| fs::File::open(path).unwrap();
    let mut deep = b"deep".to_vec();
    let root = open(&site.source());
    while deep.len() < 4500 {
        let (parent, name) = parent_beneath(root.as_fd(), &deep).unwrap();
        rustix::fs::mkdirat(&parent, name, Mode::RWXU).unwrap();
        deep.extend_from_slice(b"/a rather long name of a directory to get there sooner");
    }
    let flags = OFlags::CREATE | OFlags::RDWR;
    let file = open_beneath(root.as_fd(), &deep, flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::write(&file, b"down here").unwrap();
    let snapshot = site.save();
    let (ledger, to) = (Ledger::new(), site.target());
    let name = snapshot.id.to_string();
    restore(&site.store(), &name, &site.source(), &to, &ledger).unwrap();
    ledger.assert_no_losses();
    let restored = open(&to);
    let file = open_beneath(restored.as_fd(), &deep, OFlags::RDONLY, Mode::empty()).unwrap();
    let mut bytes = [0; 20];
    assert_eq!(rustix::io::read(&file, &mut bytes).unwrap(), 9);
    assert_eq!(bytes[..9], *b"down here");
    // Not every library removes such a tree.
    for root in [&root, &restored] {
        let mut path = &deep[..];
        let mut flags = AtFlags::empty();
        loop {
            let (parent, name) = parent_beneath(root.as_fd(), path).unwrap();
            rustix::fs::unlinkat(&parent, name, flags).unwrap();
            flags = AtFlags::REMOVEDIR;
            match path.iter().rposition(|&byte| byte == b'/') {
                Some(at) => path = &path[..at],
                None => break,
            }
        }
    }
}

#[test]
fn a_path_that_does_not_exist_is_refused_before_anything_is_written() {
    let site = Site::new(2, 1);
    let image = site.image();
    let missing = site.source().join("nothing here");
    let error = backup(&site.store(), &missing, &Ledger::new()).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("nothing here") && error.advice_text().is_some());
    assert!(site.image() == image);
    // Neither does the store take itself in.
    let error = backup(&site.store(), &site.members[0], &Ledger::new()).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
}

#[test]
fn what_is_asked_for_and_is_not_there_is_not_found() {
    let site = Site::new(2, 1);
    fs::write(site.source().join("file"), b"x").unwrap();
    let none = restore(&site.store(), "latest", Path::new(""), &site.target(), &Ledger::new());
    assert_eq!(none.unwrap_err().kind(), Kind::NotFound);
    let snapshot = site.save();
    let store = site.store();
    for (name, path) in [
        ("abcdef0123456789", PathBuf::new()),
        ("latest", site.source().join("no such file")),
        (&snapshot.id.to_string(), PathBuf::from("/nowhere")),
    ] {
        let to = site.target();
        let error = restore(&store, name, &path, &to, &Ledger::new()).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{name}:{}", path.display());
        assert!(!to.exists(), "a target was made for nothing");
    }
    let error = restore(&store, "ab", Path::new(""), &site.target(), &Ledger::new()).unwrap_err();
    assert!(matches!(error.kind(), Kind::NotFound | Kind::Usage), "{error}");
}

#[test]
fn a_target_that_is_not_empty_is_refused_without_overwrite() {
    let site = Site::new(2, 1);
    fs::write(site.source().join("file"), b"saved").unwrap();
    let wanted = look(&site.source());
    site.save();
    let to = site.target();
    fs::create_dir(&to).unwrap();
    fs::write(to.join("file"), b"older").unwrap();
    fs::write(to.join("mine"), b"mine").unwrap();
    let store = site.store();
    let refused = restore(&store, "latest", &site.source(), &to, &Ledger::new()).unwrap_err();
    assert_eq!(refused.kind(), Kind::Refused);
    assert!(refused.advice_text().unwrap().contains("--overwrite"));
    assert_eq!(fs::read(to.join("file")).unwrap(), b"older");
    let path = site.source();
    let path = path.as_os_str().as_bytes();
    let plain = restore::RestoreOptions::new("latest", path, &to, limits());
    let options = restore::RestoreOptions { overwrite: true, verify: true, ..plain };
    let ledger = Ledger::new();
    restore::run(&store, &options, &ledger.monitor).unwrap();
    ledger.assert_no_losses();
    assert_eq!(fs::read(to.join("mine")).unwrap(), b"mine");
    fs::remove_file(to.join("mine")).unwrap();
    let mut found = look(&to);
    // The directory's time moved with the removal just now.
    found.get_mut(&b""[..]).unwrap().mtime = wanted[&b""[..]].mtime;
    assert_same(&wanted, &found);
}

/// The files beside the target, which must stay as they are.
struct Surroundings {
    site: Site,
    outside: PathBuf,
}

impl Surroundings {
    fn new() -> Self {
        let site = Site::new(3, 1);
        let outside = site.path("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), b"as it was").unwrap();
        Surroundings { site, outside }
    }

    /// Restores entries beside an innocent file; returns the ledger. Nothing but the target may
    /// change.
    fn restore(
        &self,
        overwrite: bool,
        to: &Path,
        forge: impl Fn(&mut Forge<'_>) -> Vec<Entry>,
    ) -> Ledger {
        let store = self.site.store();
        let mut forging = Forge::new(&store);
        let mut entries = forge(&mut forging);
        entries.push(forging.file(b"~innocent", b"comes back"));
        let snapshot = forging.commit(entries);
        let before = (look(&self.outside), fs::read_dir(self.site.path("")).unwrap().count());
        let store = self.site.store();
        let name = snapshot.id.to_string();
        let ledger = Ledger::new();
        let plain = restore::RestoreOptions::new(&name, b"", to, limits());
        let options = restore::RestoreOptions { overwrite, ..plain };
        restore::run(&store, &options, &ledger.monitor).unwrap();
        assert_same(&before.0, &look(&self.outside));
        let beside = fs::read_dir(self.site.path("")).unwrap().count();
        assert!(beside <= before.1 + 1, "something was made beside the target");
        ledger
    }
}

#[test]
fn names_that_leave_the_target_are_refused_one_by_one() {
    let hostile: &[&[u8]] = &[
        b"../outside/new",
        b"a/../../outside/new",
        b"..",
        b"./dot",
        b"a//b",
        b"nul\0byte",
        b"a/..",
    ];
    let around = Surroundings::new();
    let absolute = around.outside.join("new");
    let mut names: Vec<Vec<u8>> = hostile.iter().map(|name| name.to_vec()).collect();
    names.push(absolute.as_os_str().as_bytes().to_vec());
    for kind in [FileKind::File, FileKind::Directory, FileKind::Symlink, FileKind::Fifo] {
        for name in &names {
            let to = around.site.target();
            let ledger = around.restore(false, &to, |forge| match kind {
                FileKind::File => vec![forge.file(name, b"evil")],
                FileKind::Symlink => vec![link_entry(name, b"/")],
                _ => vec![entry(name, kind)],
            });
            let shown = String::from_utf8_lossy(name);
            assert!(!ledger.losses().is_empty(), "{kind:?} '{shown}' was not told");
            for seen in ledger.losses() {
                assert_eq!(seen.kind, Kind::Refused, "{kind:?} '{shown}': {}", seen.text);
            }
            assert_eq!(fs::read(to.join("~innocent")).unwrap(), b"comes back");
            assert_eq!(fs::read_dir(&to).unwrap().count(), 1, "{kind:?} '{shown}'");
        }
    }
}

#[test]
fn a_symlink_planted_before_a_file_below_it_is_not_followed() {
    let around = Surroundings::new();
    let outside = around.outside.as_os_str().as_bytes().to_vec();
    for target in [outside, b"../outside".to_vec(), b"/".to_vec()] {
        // In the snapshot itself: the same name is a symlink and has something below it.
        let to = around.site.target();
        let ledger = around.restore(false, &to, |forge| {
            vec![
                link_entry(b"trap", &target),
                forge.file(b"trap/new", b"evil"),
                forge.file(b"trap/precious", b"evil"),
            ]
        });
        // What is below the name comes back in a directory made for it, and the link does not.
        let losses = ledger.losses();
        assert_eq!(losses.len(), 2, "{losses:#?}");
        assert!(losses.iter().all(|seen| seen.place.ends_with("trap")), "{losses:#?}");
        assert!(fs::symlink_metadata(to.join("trap")).unwrap().is_dir());
        assert_eq!(fs::read(to.join("trap/new")).unwrap(), b"evil");
        assert_eq!(fs::read(to.join("~innocent")).unwrap(), b"comes back");

        // In the target, where another process put it.
        let to = around.site.target();
        fs::create_dir(&to).unwrap();
        symlink(OsStr::from_bytes(&target), to.join("trap")).unwrap();
        symlink(around.outside.join("precious"), to.join("file")).unwrap();
        let ledger = around.restore(true, &to, |forge| {
            vec![
                entry(b"trap", FileKind::Directory),
                forge.file(b"trap/precious", b"restored"),
                forge.file(b"file", b"restored"),
            ]
        });
        ledger.assert_no_losses();
        assert_eq!(fs::read(to.join("trap/precious")).unwrap(), b"restored");
        assert!(fs::symlink_metadata(to.join("file")).unwrap().is_file());
    }
}

#[test]
fn a_hard_link_through_a_symlink_or_to_the_outside_is_not_made() {
    let around = Surroundings::new();
    let outside = around.outside.as_os_str().as_bytes().to_vec();
    let to = around.site.target();
    let linked = |entry: Entry| Entry { links: 2, inode: 7, device: 7, ..entry };
    let ledger = around.restore(false, &to, |forge| {
        vec![
            link_entry(b"trap", &outside),
            linked(forge.file(b"trap/precious", b"evil")),
            linked(forge.file(b"zz stolen", b"evil")),
        ]
    });
    assert!(!ledger.losses().is_empty());
    assert!(!to.join("zz stolen").exists() || fs::read(to.join("zz stolen")).unwrap() == b"evil");
    assert_eq!(fs::read(to.join("~innocent")).unwrap(), b"comes back");
}

/// A file of a snapshot that does not say the truth about its own length or chunks.
#[test]
fn content_that_does_not_fit_its_file_is_a_loss() {
    let around = Surroundings::new();
    let to = around.site.target();
    let ledger = around.restore(false, &to, |_| vec![unstored(b"missing", 5000)]);
    assert_eq!(ledger.loss_at("missing").kind, Kind::NotFound);
    assert!(!to.join("missing").exists(), "half a file under its name");
    assert_eq!(ledger.get(Counter::Losses), 1);
}

/// Under --overwrite the old file keeps its name when the new one cannot be restored; no other
/// name of the new one may become a name of the old.
#[test]
fn a_name_is_not_linked_to_the_file_that_its_first_name_failed_to_replace() {
    let around = Surroundings::new();
    let to = around.site.target();
    fs::create_dir(&to).unwrap();
    fs::write(to.join("first"), b"from before").unwrap();
    let linked = |path| Entry { links: 2, inode: 7, device: 7, ..unstored(path, 5000) };
    let ledger = around.restore(true, &to, |_| vec![linked(b"first"), linked(b"second")]);
    ledger.loss_at("first");
    ledger.loss_at("second");
    assert_eq!(fs::read(to.join("first")).unwrap(), b"from before");
    assert!(!to.join("second").exists());
}

fn unstored(path: &[u8], bytes: u32) -> Entry {
    use pinstripe_member::entry::Content;
    use pinstripe_member::record::ChunkRow;
    let row = ChunkRow { id: pinstripe_base::id::ChunkId([9; 32]), raw_bytes: bytes };
    let content = Content::Chunks(vec![row]);
    Entry { size: bytes.into(), content, ..entry(path, FileKind::File) }
}

#[test]
fn a_full_target_ends_the_restore() {
    let test = "a_full_target_ends_the_restore";
    if !is_root() {
        return skipped(test, "only root may mount");
    }
    pinstripe_testing::in_own_mounts(test, || {
        let site = Site::new(2, 1);
        fs::write(site.source().join("big"), noise(1, 3 << 20)).unwrap();
        site.save();
        let to = site.target();
        fs::create_dir(&to).unwrap();
        if !pinstripe_testing::mount("tmpfs", "size=1m", Path::new("tmpfs"), &to) {
            return skipped(test, "no tmpfs can be mounted here");
        }
        let error =
            restore(&site.store(), "latest", &site.source(), &to, &Ledger::new()).unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace, "{error}");
        assert!(error.advice_text().is_some());
        assert!(!to.join("big").exists(), "half a file under its name");
        pinstripe_testing::unmount(&to);
    });
}
