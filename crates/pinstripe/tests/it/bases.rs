//! A backup of a list of paths that no snapshot has: each path is compared with the latest snapshot
//! that has it.

use std::fs;
use std::path::PathBuf;

use pinstripe::backup::BackupOptions;
use pinstripe::forget::{ForgetChoice, ForgetOptions};
use pinstripe::{Store, backup, forget};
use pinstripe_base::monitor::Counter;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_sim::{Ledger, Site, await_tick, limits, look, restore};

/// What a backup of a list of paths counts.
struct Counts {
    snapshot: Snapshot,
    read_bytes: u64,
    unchanged_files: u64,
    dry_new_files: u64,
    new_files: u64,
}

struct Tree {
    site: Site,
    store: Store,
}

impl Tree {
    /// Four directories of two files and one file beside them, of 1,000 bytes each.
    fn new() -> Self {
        let site = Site::new(3, 1);
        for (number, directory) in ["a", "b/inner", "b", "c", "d"].iter().enumerate() {
            fs::create_dir_all(site.source().join(directory)).unwrap();
            for file in ["one", "two"] {
                let path = site.source().join(directory).join(file);
                fs::write(path, vec![number as u8 + 1; 1000]).unwrap();
            }
        }
        fs::write(site.source().join("file"), vec![9; 1000]).unwrap();
        let store = site.store();
        Tree { site, store }
    }

    fn options(&self, host: &str, names: &[&str]) -> BackupOptions {
        let paths: Vec<PathBuf> = names.iter().map(|name| self.site.source().join(name)).collect();
        BackupOptions::new(paths, host.as_bytes(), limits())
    }

    fn backup(&self, names: &[&str]) -> Counts {
        self.backup_of("test", names)
    }

    fn backup_of(&self, host: &str, names: &[&str]) -> Counts {
        await_tick();
        let (dry, ledger) = (Ledger::new(), Ledger::new());
        let show = &mut |_: pinstripe::Wanted<'_>| Ok(());
        backup::survey(&self.store, &self.options(host, names), &dry.monitor, show).unwrap();
        let snapshot = backup::run(&self.store, self.options(host, names), &ledger.monitor);
        ledger.assert_no_losses();
        Counts {
            snapshot: snapshot.unwrap(),
            read_bytes: ledger.get(Counter::ReadBytes),
            unchanged_files: ledger.get(Counter::UnchangedFiles),
            dry_new_files: dry.get(Counter::NewFiles),
            new_files: ledger.get(Counter::NewFiles),
        }
    }

    /// Backs up `names`, of which `fresh` files are in no earlier snapshot, and compares the
    /// restored files with the source.
    #[track_caller]
    fn assert_fresh(&self, names: &[&str], fresh: u64, unchanged: u64) -> Snapshot {
        let counts = self.backup(names);
        let found = (counts.new_files, counts.unchanged_files, counts.read_bytes);
        assert_eq!(found, (fresh, unchanged, 1000 * fresh), "{names:?}");
        assert_eq!(counts.dry_new_files, fresh, "a dry run counts as the real run: {names:?}");
        let to = self.site.target();
        let id = counts.snapshot.id.to_string();
        restore(&self.store, &id, &self.site.source(), &to, &Ledger::new()).unwrap();
        let (source, restored) = (look(&self.site.source()), look(&to));
        for (path, is) in restored.iter().filter(|(path, _)| !path.is_empty()) {
            assert_eq!(Some(is), source.get(path), "{names:?}");
        }
        fs::remove_dir_all(to).unwrap();
        counts.snapshot
    }
}

#[test]
fn one_more_path_reads_only_that_path() {
    let tree = Tree::new();
    let first = tree.assert_fresh(&["a", "d"], 4, 0);
    let second = tree.assert_fresh(&["a", "c", "d"], 2, 4);
    assert_eq!((first.parent, second.parent), (None, None), "no snapshot has the same paths");
    let third = tree.assert_fresh(&["a", "c", "d"], 0, 6);
    assert_eq!(third.parent, Some(second.id));
    // One path less, and a file.
    tree.assert_fresh(&["c", "file"], 1, 2);
}

#[test]
fn each_path_has_its_own_latest_snapshot() {
    let tree = Tree::new();
    for name in ["a", "b", "c", "d", "file"] {
        tree.backup(&[name]);
    }
    // Two neighbours of one snapshot, between others.
    tree.backup(&["b", "c"]);
    tree.assert_fresh(&["a", "b", "c", "d", "file"], 0, 11);
}

#[test]
fn a_path_above_or_below_the_sources_is_found() {
    let tree = Tree::new();
    tree.backup(&["b/inner", "d"]);
    tree.assert_fresh(&["b"], 2, 2);
    tree.assert_fresh(&["."], 5, 6);
    tree.assert_fresh(&["a", "b/inner", "b/one"], 0, 5);
}

#[test]
fn a_changed_file_is_read_and_the_latest_snapshot_decides() {
    let tree = Tree::new();
    tree.backup(&["a", "c"]);
    await_tick();
    fs::write(tree.site.source().join("a/one"), vec![77; 500]).unwrap();
    tree.backup(&["a", "d"]);
    let counts = tree.backup(&["a", "c", "d"]);
    assert_eq!((counts.read_bytes, counts.unchanged_files), (0, 6));
    await_tick();
    fs::write(tree.site.source().join("c/two"), vec![78; 700]).unwrap();
    let counts = tree.backup(&["a", "b", "c"]);
    assert_eq!((counts.read_bytes, counts.unchanged_files, counts.new_files), (4700, 3, 4));
}

#[test]
fn another_host_and_a_forgotten_snapshot_are_no_base() {
    let tree = Tree::new();
    tree.backup_of("other", &["a"]);
    let first = tree.assert_fresh(&["a", "c"], 4, 0);
    let names = [first.id.to_string()];
    let options = ForgetOptions::new(ForgetChoice::Named(&names));
    forget::run(&tree.store, &options, &Ledger::new().monitor).unwrap();
    tree.assert_fresh(&["a", "d"], 4, 0);
}
