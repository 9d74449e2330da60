//! Paths named below another named path: each is saved wherever the walk of the other one does not
//! reach it, once, and a second backup reads nothing.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use pinstripe::backup::BackupOptions;
use pinstripe::{DirectoryTag, Exclude, backup};
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Counter;
use pinstripe_testing::{in_own_mounts, is_root, mount, skipped, unmount};

use pinstripe_sim::look;
use pinstripe_sim::{Ledger, Site, limits, restore};

const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55";

/// A way to back up: what the options say beside the paths.
#[derive(Clone, Copy, Default)]
struct Way {
    exclude: &'static [&'static str],
    caches: bool,
    one_file_system: bool,
    is_list: bool,
}

impl Way {
    fn options(self, site: &Site, names: &[&str]) -> BackupOptions {
        let exclude = Exclude::new(self.exclude).unwrap();
        let paths = names.iter().map(|name| site.source().join(name)).collect();
        BackupOptions {
            exclude: if self.caches {
                exclude.with_tag(DirectoryTag::of_caches())
            } else {
                exclude
            },
            one_file_system: self.one_file_system,
            paths_are_a_list: self.is_list,
            ..BackupOptions::new(paths, b"test", limits())
        }
    }

    /// Backs `names` up in both orders, by a first backup, a dry run and a second backup. Returns
    /// the names that the snapshot has below the source directory.
    fn save(self, site: &Site, names: &[&str]) -> BTreeSet<String> {
        pinstripe_testing::await_tick();
        let reversed: Vec<_> = names.iter().rev().copied().collect();
        let counts = |ledger: &Ledger| {
            let counters = [Counter::NewFiles, Counter::NewBytes, Counter::WalkedEntries];
            counters.map(|counter| ledger.get(counter))
        };
        let (dry, real, again) = (Ledger::new(), Ledger::new(), Ledger::new());
        let store = site.store();
        let show = &mut |_: pinstripe::Wanted<'_>| Ok(());
        backup::survey(&store, &self.options(site, names), &dry.monitor, show).unwrap();
        let snapshot = backup::run(&store, self.options(site, &reversed), &real.monitor).unwrap();
        real.assert_no_losses();
        assert_eq!(counts(&dry), counts(&real), "a dry run counts as the real run");
        assert_eq!(snapshot.root.entries, real.get(Counter::WalkedEntries));
        pinstripe_testing::await_tick();
        backup::run(&store, self.options(site, names), &again.monitor).unwrap();
        let touched = [Counter::NewFiles, Counter::ChangedFiles, Counter::ReadBytes];
        assert_eq!(touched.map(|counter| again.get(counter)), [0; 3], "nothing changed");
        saved(site, &snapshot.id.to_string())
    }
}

/// The names of a snapshot below the source directory.
fn saved(site: &Site, snapshot: &str) -> BTreeSet<String> {
    let to = site.target();
    restore(&site.store(), snapshot, &site.source(), &to, &Ledger::new()).unwrap();
    let names = look(&to).into_keys().map(|path| String::from_utf8(path).unwrap());
    names.filter(|path| !path.is_empty()).collect()
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

/// Makes files with their directories; the content of each is its name.
fn files(site: &Site, names: &[&str]) {
    for name in names {
        let path = site.source().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
}

#[test]
fn a_path_named_below_an_excluded_directory_is_saved() {
    for is_list in [false, true] {
        let site = Site::new(3, 1);
        files(&site, &["a/keep", "a/out/x", "a/out/deep/in/y", "a/out/deep/z", "a/other/out/q"]);
        let way = Way { exclude: &["out"], is_list, ..Way::default() };
        let found = way.save(&site, &["a", "a/out/deep/in"]);
        let wanted =
            ["a", "a/keep", "a/other", "a/out", "a/out/deep", "a/out/deep/in", "a/out/deep/in/y"];
        assert_eq!(found, names(wanted));
        let found = way.save(&site, &["a", "a/out/deep/in/y", "a/out/x"]);
        let wanted = ["a", "a/keep", "a/other", "a/out", "a/out/deep", "a/out/deep/in"];
        let named = names(["a/out/deep/in/y", "a/out/x"]);
        assert_eq!(found, &names(wanted) | &named);
    }
}

#[test]
fn a_named_path_that_matches_a_pattern_is_saved_with_a_warning() {
    let site = Site::new(3, 1);
    files(&site, &["a/keep", "a/out/x", "a/b.o", "a/c.o"]);
    let way = Way { exclude: &["out/", "*.o"], ..Way::default() };
    let options = way.options(&site, &["a", "a/out", "a/b.o"]);
    let ledger = Ledger::new();
    backup::run(&site.store(), options, &ledger.monitor).unwrap();
    assert_eq!(saved(&site, "latest"), names(["a", "a/keep", "a/out", "a/out/x", "a/b.o"]));
    let [warning] = &ledger.warnings()[..] else { panic!("{:?}", ledger.seen()) };
    assert!(warning.place.ends_with("a/b.o"), "{warning:?}");
    assert!(warning.text.contains("1 other given path"), "{warning:?}");
}

#[test]
fn a_path_named_below_a_cache_is_saved() {
    let site = Site::new(3, 1);
    files(&site, &["a/keep", "a/cache/big", "a/cache/d/mine/x", "a/cache/d/big", "a/cache/one"]);
    fs::write(site.source().join("a/cache/CACHEDIR.TAG"), TAG).unwrap();
    let way = Way { caches: true, ..Way::default() };
    let found = way.save(&site, &["a", "a/cache/d/mine", "a/cache/one"]);
    let wanted = ["a", "a/keep", "a/cache", "a/cache/CACHEDIR.TAG", "a/cache/d", "a/cache/one"];
    assert_eq!(found, &names(wanted) | &names(["a/cache/d/mine", "a/cache/d/mine/x"]));
    let found = way.save(&site, &["a", "a/cache"]);
    assert!(found.contains("a/cache/big"), "a named directory is no cache to be left out");
}

#[test]
fn a_path_named_below_a_directory_that_may_not_be_listed_is_saved() {
    if is_root() {
        return skipped(
            "a_path_named_below_a_directory_that_may_not_be_listed_is_saved",
            "root may list every directory",
        );
    }
    let site = Site::new(3, 1);
    files(&site, &["a/keep", "a/closed/mine/x"]);
    let closed = site.source().join("a/closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o100)).unwrap();
    let options = Way::default().options(&site, &["a", "a/closed/mine"]);
    let ledger = Ledger::new();
    backup::run(&site.store(), options, &ledger.monitor).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(ledger.losses().len(), 1, "{:?}", ledger.seen());
    assert!(saved(&site, "latest").contains("a/closed/mine/x"));
}

#[test]
fn a_path_named_twice_or_within_another_is_saved_once() {
    let site = Site::new(3, 1);
    files(&site, &["a/b/c/x", "a/b/y"]);
    fs::hard_link(site.source().join("a/b/y"), site.source().join("a/b/c/y")).unwrap();
    let wanted = names(["a", "a/b", "a/b/c", "a/b/c/x", "a/b/c/y", "a/b/y"]);
    for is_list in [false, true] {
        let way = Way { is_list, ..Way::default() };
        assert_eq!(way.save(&site, &["a", "a/b/c", "a/b/c/x", "a", "a/b/y"]), wanted);
    }
}

#[test]
fn hard_links_across_named_paths_stay_links() {
    let site = Site::new(3, 1);
    files(&site, &["a/out/in/x", "a/first"]);
    fs::hard_link(site.source().join("a/first"), site.source().join("a/out/in/same")).unwrap();
    let way = Way { exclude: &["/**/out"], ..Way::default() };
    way.save(&site, &["a", "a/out/in"]);
    let to = site.target();
    restore(&site.store(), "latest", &site.source(), &to, &Ledger::new()).unwrap();
    let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
    assert_eq!(inode("a/first"), inode("a/out/in/same"));
}

#[test]
fn a_named_path_that_vanishes_is_reported() {
    let site = Site::new(3, 1);
    files(&site, &["a/out/in/x"]);
    let way = Way { exclude: &["out"], ..Way::default() };
    let options = way.options(&site, &["a", "a/out/gone", "a/in"]);
    let ledger = Ledger::new();
    backup::run(&site.store(), options, &ledger.monitor).unwrap();
    assert_eq!(ledger.losses().len(), 2, "{:?}", ledger.seen());
    assert_eq!(ledger.loss_at("a/out/gone").kind, Kind::NotFound);
}

/// The first backup after an upgrade takes the snapshots of earlier versions as parents, which had
/// only the topmost of the named paths as sources.
#[test]
fn a_snapshot_of_the_topmost_paths_is_a_parent() {
    let site = Site::new(3, 1);
    files(&site, &["a/b/x", "a/y"]);
    pinstripe_testing::await_tick();
    let store = site.store();
    let run = |names: &[&str]| {
        let ledger = Ledger::new();
        let options = Way::default().options(&site, names);
        (backup::run(&store, options, &ledger.monitor).unwrap(), ledger)
    };
    let (before, _) = run(&["a"]);
    let (after, ledger) = run(&["a/b", "a"]);
    assert_eq!(after.parent, Some(before.id));
    assert_eq!(ledger.get(Counter::UnchangedFiles), 2);
    assert_eq!((before.sources.len(), after.sources.len()), (1, 2));
}

fn bind(what: &Path, at: &Path) -> bool {
    let status = Command::new("mount").arg("--bind").args([what, at]).status();
    status.is_ok_and(|status| status.success())
}

/// Mounts a tmpfs and a bind mount below `a`, with files in them. Returns where, if it can.
fn mounts(site: &Site) -> Option<[PathBuf; 2]> {
    files(site, &["a/keep", "elsewhere/file", "elsewhere/deep/er/file"]);
    let at = ["a/disk", "a/bound"].map(|name| site.source().join(name));
    at.iter().for_each(|at| fs::create_dir(at).unwrap());
    if !mount("tmpfs", "size=1m", Path::new("tmpfs"), &at[0])
        || !bind(&site.source().join("elsewhere"), &at[1])
    {
        return None;
    }
    files(site, &["a/disk/file", "a/disk/deep/er/file"]);
    Some(at)
}

#[test]
fn a_mount_named_below_another_path_is_saved_with_one_file_system() {
    let test = "a_mount_named_below_another_path_is_saved_with_one_file_system";
    in_own_mounts(test, || {
        let site = Site::new(3, 1);
        let Some(at) = mounts(&site) else {
            return skipped(test, "no tmpfs or bind mount is possible here");
        };
        let way = Way { one_file_system: true, ..Way::default() };
        let plain = names(["a", "a/keep", "a/disk", "a/bound"]);
        assert_eq!(way.save(&site, &["a"]), plain);
        for is_list in [false, true] {
            let way = Way { is_list, ..way };
            for name in ["a/disk", "a/bound"] {
                let below = |rest: &str| format!("{name}/{rest}");
                let all = ["file", "deep", "deep/er", "deep/er/file"].map(below);
                assert_eq!(way.save(&site, &["a", name]), &plain | &all.clone().into());
                let deeper = BTreeSet::from_iter(all[1..].iter().cloned());
                assert_eq!(way.save(&site, &["a", &below("deep")]), &plain | &deeper);
                let only = BTreeSet::from([below("file")]);
                assert_eq!(way.save(&site, &["a", &below("file")]), &plain | &only);
            }
        }
        at.iter().for_each(|at| unmount(at));
    });
}
