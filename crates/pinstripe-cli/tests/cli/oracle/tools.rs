//! GNU tar and rsync against the model, where they mean the same: the model is not only the
//! product's opinion.
//!
//! tar and rsync recognise a mount by its device, save no name that is a socket (tar), and keep
//! hard links of the target that the source does not have (rsync). Such entries are not compared.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pinstripe_testing::{chosen_seeds, in_own_mounts, is_root, not_installed, skipped};

use super::model::{BackupAsked, Restore, RestoreAsked, Saved};
use super::tree::{Draw, Ground, NodeKind, NodeTree, SIGNATURE, TAG, TreeNode, scan, set_time};
use super::{SEEDS, SEEDS_VARIABLE};

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success())
}

#[test]
fn the_model_of_a_backup_is_that_of_tar() {
    let test = "the_model_of_a_backup_is_that_of_tar";
    if !is_there("tar") {
        return not_installed(test, "tar");
    }
    if !is_root() {
        return skipped(test, "only root may give files away and mount");
    }
    in_own_mounts(test, || chosen_seeds(SEEDS_VARIABLE, SEEDS).for_each(save_by_tar));
}

fn save_by_tar(seed: u64) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let at = dir.path().canonicalize().unwrap();
    let (mut draw, mut ground) = (Draw::new(seed), Ground::new(at.join("w"), at.join("e"), true));
    ground.grow(&mut draw, 14);
    let tree = ground.scan();
    let all: Vec<_> = tree.keys().cloned().collect();
    let mut asked = BackupAsked { caches: draw.one_in(2), ..BackupAsked::default() };
    for _ in 0..1 + draw.below(3) {
        asked.roots.push(if draw.one_in(2) { all[0].clone() } else { draw.pick(&all).clone() });
    }
    let is_bound = |path: &PathBuf| tree[path].id.0 == tree[&all[0]].id.0;
    asked.one_file_system = draw.one_in(2) && !ground.mounts.iter().any(is_bound);
    let is_cache = |path: &PathBuf| {
        tree.get(&path.join(TAG)).is_some_and(|it| it.content.starts_with(SIGNATURE))
    };
    asked.caches &= !asked.roots.iter().any(is_cache);
    let mut tar = Command::new("tar");
    tar.args(["-cvPf", "/dev/null", "--quoting-style=escape", "--warning=none"]);
    tar.args(asked.caches.then_some("--exclude-caches"));
    tar.args(asked.one_file_system.then_some("--one-file-system"));
    let output = tar.args(&asked.roots).output().unwrap();
    let told = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let told: BTreeSet<_> = told.map(unescaped).collect();
    let is_reached = |path: &PathBuf| {
        asked.roots.iter().any(|root| asked.reach(&tree, &ground.mounts, root, path).is_some())
    };
    let is_saved = |path: &PathBuf| tree[path].kind != NodeKind::Socket && is_reached(path);
    let saved = asked.saved(&tree, &ground.mounts).into_keys().filter(is_saved);
    assert_eq!(told, saved.collect(), "seed {seed}: {asked:?}");
}

/// Returns the path that tar shows with escapes.
fn unescaped(line: &[u8]) -> PathBuf {
    let (mut path, mut at) = (Vec::new(), 0);
    while at < line.len() {
        let (byte, length) = match &line[at..] {
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', octal @ b'0'..=b'3', second, third, ..] => {
                ((octal - b'0') * 64 + (second - b'0') * 8 + (third - b'0'), 4)
            }
            [b'\\', byte, ..] => (*byte, 2),
            [byte, ..] => (*byte, 1),
            [] => unreachable!(),
        };
        path.push(byte);
        at += length;
    }
    // A slash at the end marks a directory.
    PathBuf::from(OsString::from_vec(path)).components().collect()
}

#[test]
fn the_model_of_a_restore_is_that_of_rsync() {
    let test = "the_model_of_a_restore_is_that_of_rsync";
    if !is_there("rsync") {
        return not_installed(test, "rsync");
    }
    if !is_root() {
        return skipped(test, "only root may give files away");
    }
    chosen_seeds(SEEDS_VARIABLE, SEEDS).for_each(restore_by_rsync);
}

fn rsync(options: &[&str], from: &Path, to: &Path) {
    let from: OsString = [from.as_os_str(), "/".as_ref()].into_iter().collect();
    let output = Command::new("rsync").args(options).arg(from).arg(to).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn restore_by_rsync(seed: u64) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let at = dir.path().canonicalize().unwrap();
    let (mut draw, mut ground) = (Draw::new(seed), Ground::new(at.join("w"), at.join("e"), false));
    ground.grow(&mut draw, 14);
    // rsync compares seconds, and the target is changed in this one.
    ground.scan().keys().for_each(|path| set_time(path, (1_500_000_000, 0)));
    let tree = ground.scan();
    let mut target = Ground::new(at.join("t"), at.join("f"), false);
    rsync(&["-aH"], &ground.root, &target.root);
    let count = draw.below(8);
    target.change(&mut draw, count);
    let before = target.scan();
    let is_directory = |it: &&PathBuf| tree[*it].is_directory();
    let saved = Saved {
        entered: tree.keys().filter(is_directory).cloned().collect(),
        sources: vec![ground.root.clone()],
        tree: tree.clone(),
        ..Saved::default()
    };
    let asked = RestoreAsked {
        path: ground.root.clone(),
        to: target.root.clone(),
        in_place: true,
        checksum: draw.one_in(2),
        delete: true,
        yes: true,
        ..RestoreAsked::default()
    };
    let model = Restore { saved: &saved, asked: &asked, before: &before, mounts: &target.mounts };
    let outcome = model.outcome();
    let how = if asked.checksum { "-aHc" } else { "-aH" };
    rsync(&[how, "--delete"], &ground.root, &target.root);
    let is_plain = |path: &Path| {
        let source = tree.get(&ground.root.join(path.strip_prefix(&target.root).unwrap()));
        let has_links =
            |it: Option<&TreeNode>| it.is_some_and(|it| !it.is_directory() && it.links > 1);
        !has_links(source) && !has_links(before.get(path))
    };
    let facts = |path: &PathBuf, it: &TreeNode| {
        let facts = (it.kind, it.mode, it.owner, it.mtime);
        let content = if it.is_directory() { Vec::new() } else { it.content.clone() };
        (path.clone(), is_plain(path).then_some((facts, content)))
    };
    let after: NodeTree = scan(&target.root);
    let found: BTreeMap<_, _> = after.iter().map(|(path, it)| facts(path, it)).collect();
    let wanted = outcome.after.iter().map(|(path, it)| facts(path, &it.seen));
    let wanted: BTreeMap<_, _> = wanted.collect();
    let differs = |it: &&PathBuf| found.get(*it) != wanted.get(*it);
    let different: Vec<_> = found.keys().chain(wanted.keys()).filter(differs).collect();
    assert!(different.is_empty(), "seed {seed}: {different:?} {:#?}", target.story);
}
