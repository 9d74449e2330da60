//! Restoring in place with `--delete`: what is removed, what stays, and that it is counted, guarded
//! and shown before. Mounts always stay.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use pinstripe::backup::BackupOptions;
use pinstripe::preview::{Act, Preview};
use pinstripe::restore::{Delete, RestoreOptions, run};
use pinstripe::{RemovedCount, Reuse, Rules, TreeSink, backup, preview};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_member::entry::Entry;
use pinstripe_testing::{in_own_mounts, mount, skipped, unmount};

use pinstripe_sim::{Ledger, Site, limits};
use pinstripe_sim::{assert_same, look};

/// A restore in place, with a guard or without, or without `--delete`.
fn options(delete: Option<Delete>) -> RestoreOptions<'static> {
    let plain = RestoreOptions::new("latest", b"", Path::new(""), limits());
    RestoreOptions { reuse: Some(Reuse::ByTime), delete, ..plain }
}

/// The result of a dry run and of the real run after it.
struct Both {
    rows: Vec<(Act, PathBuf)>,
    dry: Ledger,
    real: Ledger,
    error: Option<Error>,
}

impl Both {
    fn removed(&self) -> BTreeSet<String> {
        let removed = self.rows.iter().filter(|(act, _)| *act == Act::Remove);
        removed.map(|(_, path)| path.to_str().unwrap().to_owned()).collect()
    }
}

/// Restores `path` of the latest snapshot onto `to`, first as a dry run, which must predict counts,
/// losses, warnings and refusal of the real run.
fn both(site: &Site, path: &Path, to: &Path, delete: Option<Delete>) -> Both {
    let (dry, real, mut rows) = (Ledger::new(), Ledger::new(), Vec::new());
    let options = RestoreOptions { path: path.as_os_str().as_bytes(), to, ..options(delete) };
    let before = look(to);
    let mut show = |act, place: PathBuf, _, _: Option<&Entry>| {
        rows.push((act, place.strip_prefix(to).unwrap_or(&place).to_owned()));
        Ok(())
    };
    let store = site.store();
    let predicted = preview::run(&store, &options, &dry.monitor, &mut show);
    assert_same(&before, &look(to));
    let done = run(&store, &options, &real.monitor);
    assert_eq!(kind(&predicted), kind(&done), "a dry run refuses what the real run refuses");
    if let Ok((_, found)) = &predicted {
        assert_eq!(counts(found), real_counts(&real), "{rows:?} {:?}", real.seen());
    }
    let told = |ledger: &Ledger| {
        let told = ledger.seen().into_iter().map(|it| (it.severity as u8, it.place, it.text));
        told.collect::<BTreeSet<_>>()
    };
    assert_eq!(told(&dry), told(&real), "a dry run reports what the real run reports");
    Both { rows, dry, real, error: done.err() }
}

fn kind<T>(result: &Result<T>) -> Option<Kind> {
    result.as_ref().err().map(Error::kind)
}

fn counts(found: &Preview) -> [u64; 4] {
    let Preview { make, change, keep, remove } = *found;
    [make.entries + change.entries, keep.entries, remove.entries, remove.bytes]
}

fn real_counts(ledger: &Ledger) -> [u64; 4] {
    use Counter::{KeptEntries, RemovedBytes, RemovedEntries, RestoredEntries};
    [RestoredEntries, KeptEntries, RemovedEntries, RemovedBytes].map(|it| ledger.get(it))
}

fn files(at: &Path, names: &[&str]) {
    for name in names {
        let path = at.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
}

/// A store with one snapshot of these files.
fn saved(names: &[&str]) -> Site {
    let site = Site::new(3, 1);
    files(&site.source(), names);
    site.save();
    site
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[test]
fn a_directory_where_a_file_belongs_is_counted_guarded_and_shown() {
    for is_link in [false, true] {
        let site = Site::new(3, 1);
        files(&site.source(), &["other"]);
        match is_link {
            false => fs::write(site.source().join("current"), "1").unwrap(),
            true => symlink("other", site.source().join("current")).unwrap(),
        }
        site.save();
        let to = site.target();
        fs::create_dir(&to).unwrap();
        files(&to, &["current/a", "current/b/c", "current/b/d", "current/e"]);
        let refused = both(&site, &site.source(), &to, Some(Delete::WithinReason));
        assert_eq!(refused.error.unwrap().kind(), Kind::Refused);
        let entries = ["current", "current/a", "current/b", "current/b/c", "current/b/d"];
        let entries: BTreeSet<_> =
            entries.into_iter().chain(["current/e"]).map(str::to_owned).collect();
        assert!(is_there(&to.join("current/b/c")), "nothing was removed");
        let kept = both(&site, &site.source(), &to, None);
        assert_eq!(kept.real.loss_at("current").kind, Kind::Refused);
        assert!(is_there(&to.join("current/b/c")), "nothing was removed");
        let done = both(&site, &site.source(), &to, Some(Delete::Whatever));
        assert_eq!(done.removed(), entries);
        done.real.assert_clean();
        assert_same(&look(&site.source()), &look(&to));
    }
}

#[test]
fn a_few_entries_in_a_directory_in_the_way_go_without_confirmation() {
    let site = saved(&["current", "a", "b", "c", "d"]);
    let to = site.target();
    fs::create_dir(&to).unwrap();
    files(&to, &["current/a", "current/b", "extra"]);
    let done = both(&site, &site.source(), &to, Some(Delete::WithinReason));
    assert_eq!(real_counts(&done.real)[2], 4);
    assert_same(&look(&site.source()), &look(&to));
}

#[test]
fn a_member_in_a_directory_in_the_way_stays() {
    let site = saved(&["current", "a"]);
    let to = site.target();
    fs::create_dir(&to).unwrap();
    files(&to, &["current/deep/pinstripe.member", "current/deep/pack", "current/x"]);
    let done = both(&site, &site.source(), &to, Some(Delete::Whatever));
    assert_eq!(done.real.loss_at("current").kind, Kind::Refused);
    assert_eq!(real_counts(&done.real)[2], 0);
    assert!(is_there(&to.join("current/x")) && is_there(&to.join("current/deep/pack")));
}

#[test]
fn what_cannot_be_removed_is_not_counted() {
    if !pinstripe_testing::is_root() {
        return skipped("what_cannot_be_removed_is_not_counted", "only root may set chattr +i");
    }
    let site = saved(&["a", "d/b"]);
    let to = site.target();
    fs::create_dir(&to).unwrap();
    files(&to, &["a", "d/b", "d/extra"]);
    let chattr = |flag: &str| {
        let status = Command::new("chattr").arg(flag).arg(to.join("d")).output();
        status.is_ok_and(|it| it.status.success())
    };
    if !chattr("+i") {
        return skipped("what_cannot_be_removed_is_not_counted", "chattr does not work here");
    }
    let ledger = Ledger::new();
    let path = site.source();
    let path = path.as_os_str().as_bytes();
    let options = RestoreOptions { path, to: &to, ..options(Some(Delete::Whatever)) };
    let done = run(&site.store(), &options, &ledger.monitor);
    assert!(chattr("-i"));
    done.unwrap();
    assert_eq!(ledger.get(Counter::RemovedEntries), 0);
    assert!(is_there(&to.join("d/extra")));
}

fn bind(what: &Path, at: &Path) -> bool {
    let status = Command::new("mount").arg("--bind").args([what, at]).status();
    status.is_ok_and(|status| status.success())
}

/// Mounts a tmpfs and a bind mount of `elsewhere` at two directories, with a file `precious` and
/// a directory `deep` with a file in each.
fn mounts(site: &Site, at: [&Path; 2]) -> bool {
    let elsewhere = site.path("elsewhere");
    files(&elsewhere, &["precious", "deep/precious"]);
    at.iter().for_each(|at| fs::create_dir_all(at).unwrap());
    if !mount("tmpfs", "size=1m", Path::new("tmpfs"), at[0]) || !bind(&elsewhere, at[1]) {
        return false;
    }
    files(at[0], &["precious", "deep/precious"]);
    true
}

fn assert_precious(at: [&Path; 2]) {
    for at in at {
        assert!(is_there(&at.join("precious")) && is_there(&at.join("deep/precious")), "{at:?}");
    }
}

/// Runs `work` with a site and its target, in mounts of its own.
fn with_mounts(test: &str, names: &[&str], work: impl FnOnce(&Site, &Path) -> bool + Send) {
    in_own_mounts(test, || {
        let site = saved(names);
        let to = site.target();
        fs::create_dir(&to).unwrap();
        if !work(&site, &to) {
            skipped(test, "no tmpfs or bind mount is possible here");
        }
    });
}

#[test]
fn a_mount_that_the_snapshot_lacks_stays_and_is_named() {
    let test = "a_mount_that_the_snapshot_lacks_stays_and_is_named";
    with_mounts(test, &["a", "b", "d/c"], |site, to| {
        let at = [&*to.join("disk"), &*to.join("more/bound")];
        if !mounts(site, at) {
            return false;
        }
        files(to, &["more/file", "extra"]);
        let done = both(site, &site.source(), to, Some(Delete::WithinReason));
        assert_precious(at);
        assert!(is_there(&to.join("more/file")), "a directory that holds a mount stays whole");
        assert!(!is_there(&to.join("extra")));
        assert_eq!(real_counts(&done.real)[2..], [1, 5], "no mount is counted");
        let warned: Vec<_> = done.real.warnings().into_iter().map(|it| it.place).collect();
        assert_eq!(BTreeSet::from_iter(warned), [to.join("disk"), to.join("more")].into());
        assert_eq!(done.removed(), ["extra".to_owned()].into());
        at.into_iter().for_each(unmount);
        true
    });
}

#[test]
fn a_mount_on_a_directory_of_the_snapshot_stays_and_is_named() {
    let test = "a_mount_on_a_directory_of_the_snapshot_stays_and_is_named";
    let names = ["a", "b", "disk/deep/file", "bound/deep/file", "c/d/e"];
    with_mounts(test, &names, |site, to| {
        let at = [&*to.join("disk"), &*to.join("bound")];
        if !mounts(site, at) {
            return false;
        }
        files(to, &["extra"]);
        let done = both(site, &site.source(), to, Some(Delete::Whatever));
        assert_precious(at);
        assert!(is_there(&to.join("disk/deep/file")), "what the snapshot has is restored");
        assert_eq!(done.removed(), ["extra".to_owned()].into());
        let warned: Vec<_> = done.real.warnings().into_iter().map(|it| it.place).collect();
        assert_eq!(BTreeSet::from_iter(warned), at.map(Path::to_owned).into());
        // What is named is what the command is about.
        let done = both(site, &site.source().join("bound"), at[1], Some(Delete::Whatever));
        done.real.assert_clean();
        assert!(!is_there(&at[1].join("precious")) && is_there(&at[1].join("deep/file")));
        at.into_iter().for_each(unmount);
        true
    });
}

#[test]
fn a_mount_in_a_directory_in_the_way_stays() {
    let test = "a_mount_in_a_directory_in_the_way_stays";
    with_mounts(test, &["disk", "more", "a"], |site, to| {
        let at = [&*to.join("disk"), &*to.join("more/bound")];
        if !mounts(site, at) {
            return false;
        }
        files(to, &["more/file"]);
        let done = both(site, &site.source(), to, Some(Delete::Whatever));
        assert_precious(at);
        assert!(is_there(&to.join("more/file")));
        assert_eq!(done.real.losses().len(), 2, "{:?}", done.real.seen());
        assert_eq!(done.dry.losses().len(), 2);
        assert_eq!(real_counts(&done.real)[2], 0);
        at.into_iter().for_each(unmount);
        true
    });
}

#[test]
fn a_mounted_file_stays() {
    let test = "a_mounted_file_stays";
    with_mounts(test, &["a", "b"], |site, to| {
        files(&site.path("elsewhere"), &["precious"]);
        files(to, &["more/bound", "more/file"]);
        if !bind(&site.path("elsewhere").join("precious"), &to.join("more/bound")) {
            return false;
        }
        both(site, &site.source(), to, Some(Delete::Whatever));
        assert_eq!(fs::read(to.join("more/bound")).unwrap(), b"precious");
        assert!(is_there(&to.join("more/file")), "it was found before anything was removed");
        unmount(&to.join("more/bound"));
        true
    });
}

/// A backup with `-x` has mount points as empty directories, and of a mount with something named
/// below it only that. Neither means that there was nothing else.
#[test]
fn what_a_backup_did_not_enter_is_not_removed() {
    let test = "what_a_backup_did_not_enter_is_not_removed";
    in_own_mounts(test, || {
        let site = Site::new(3, 1);
        let source = site.source();
        files(&source, &["a", "b", "c", "d"]);
        let at = [&*source.join("disk"), &*source.join("bound")];
        if !mounts(&site, at) {
            return skipped(test, "no tmpfs or bind mount is possible here");
        }
        let paths = vec![source.clone(), source.join("bound/deep")];
        let plain = BackupOptions::new(paths, b"test", limits());
        let options = BackupOptions { one_file_system: true, ..plain };
        backup::run(&site.store(), options, &Ledger::new().monitor).unwrap();
        both(&site, &source, &source, Some(Delete::Whatever));
        assert_precious(at);
        both(&site, at[1], at[1], Some(Delete::Whatever));
        assert_precious(at);
        at.into_iter().for_each(unmount);
        // No longer mounts, but with content that the backup did not see.
        at.iter().for_each(|at| files(at, &["precious", "deep/precious", "deep/extra"]));
        let done = both(&site, &source, &source, Some(Delete::Whatever));
        assert_precious(at);
        assert_eq!(done.removed(), ["bound/deep/extra".to_owned()].into(), "it was named");
    });
}

#[test]
fn a_mount_that_appears_amid_a_removal_stays() {
    let test = "a_mount_that_appears_amid_a_removal_stays";
    in_own_mounts(test, || {
        let site = Site::bare(1);
        let elsewhere = site.path("elsewhere");
        let names = ["x/a/1", "x/a/2", "x/b/1", "x/b/2", "x/1", "x/2"];
        for over in ["x", "x/a", "x/b"] {
            let to = site.target();
            files(&to, &names);
            files(&elsewhere, &["a/1", "a/2", "b/1", "b/2", "1", "2"]);
            let before = look(&elsewhere);
            let sink = TreeSink::create(&to, Rules::OVERWRITE).unwrap();
            let mut removed = RemovedCount::default();
            let mut is_mounted = None;
            let mut show = |path: &[u8], _| {
                let is_next = !path.starts_with(over.as_bytes()) || over == "x";
                if is_mounted.is_none() && is_next {
                    is_mounted = Some(bind(&elsewhere, &to.join(over)));
                }
            };
            let done = sink.remove(b"x", &mut removed, &mut show);
            if is_mounted == Some(false) {
                return skipped(test, "no bind mount is possible here");
            }
            assert_same(&before, &look(&elsewhere));
            if is_mounted.is_some() && is_there(&to.join(over)) {
                assert_eq!(done.unwrap_err().kind(), Kind::Refused);
                unmount(&to.join(over));
            }
        }
    });
}

/// The directory above what was backed up was moved to another disk, and a symlink leads there.
#[test]
fn a_symlink_above_what_was_backed_up_is_not_replaced() {
    let site = Site::new(3, 1);
    let source = site.source();
    files(&source, &["home/me/a"]);
    let ledger = Ledger::new();
    let options_of = BackupOptions::new(vec![source.join("home/me")], b"test", limits());
    backup::run(&site.store(), options_of, &ledger.monitor).unwrap();
    fs::create_dir(source.join("disk")).unwrap();
    fs::rename(source.join("home"), source.join("disk/home")).unwrap();
    symlink("disk/home", source.join("home")).unwrap();
    let before = look(&source);
    for path in [b"".to_vec(), source.join("home/me").as_os_str().as_bytes().to_vec()] {
        let to = Path::new("/");
        let options = RestoreOptions { path: &path, to, full_paths: true, ..options(None) };
        let ledger = Ledger::new();
        let dry = preview::run(&site.store(), &options, &ledger.monitor, &mut |_, _, _, _| Ok(()));
        let real = run(&site.store(), &options, &ledger.monitor);
        assert_eq!((kind(&dry), kind(&real)), (Some(Kind::Refused), Some(Kind::Refused)));
        assert_eq!(look(&source), before);
    }
}
