//! Random trees, backups and restores against a model that is written from doc/semantics.md: what a
//! snapshot contains, what a restore changes, and that a dry run predicts the real run.
//!
//! `PINSTRIPE_ORACLE_SEEDS=FROM..TO` plays given seeds. A failure prints the story of its seed.

mod found;
mod model;
mod tools;
mod tree;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pinstripe_testing::{chosen_seeds, in_own_mounts, is_root, skipped};
use serde_json::Value;

use crate::stand::{Ran, Stand};
use model::{
    Act, BackupAsked, Inode, ModelPattern, Outcome, Restore, RestoreAsked, Saved, excludes,
};
use tree::{Draw, Ground, NodeKind, NodeTree, TreeNode, scan};

const SEEDS_VARIABLE: &str = "PINSTRIPE_ORACLE_SEEDS";
const SEEDS: std::ops::Range<u64> = 0..36;
const PATTERNS: &[&[u8]] = &[
    b"out",
    b"out/",
    b"*.o",
    b"a",
    b"[ab]",
    b"b/a",
    b"a/",
    b"?",
    b"\\*",
    b"a/**",
    b"in",
    b"sub/a",
    b"**/b/a",
    b"b/**/a",
    b"deep",
    b"CACHEDIR.TAG",
    b"c d",
    b"nothing*",
];

#[test]
fn a_backup_and_a_restore_do_what_the_model_says() {
    let test = "a_backup_and_a_restore_do_what_the_model_says";
    let seeds = chosen_seeds(SEEDS_VARIABLE, SEEDS);
    if !is_root() {
        return skipped(test, "only root may give files away and mount");
    }
    in_own_mounts(test, || seeds.for_each(play));
}

/// One seed: a store, a tree, and what is done with it.
struct Play {
    stand: Stand,
    seed: u64,
    draw: Draw,
    ground: Ground,
    /// Command lines, for the report of a failure.
    story: Vec<String>,
}

impl Drop for Play {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}:\n  {}", self.seed, self.story.join("\n  "));
        }
    }
}

fn play(seed: u64) {
    let stand = Stand::in_memory();
    let at = stand.path("w").parent().unwrap().canonicalize().unwrap();
    let ground = Ground::new(at.join("w"), at.join("e"), true);
    let mut play = Play { stand, seed, draw: Draw::new(seed), ground, story: Vec::new() };
    assert_eq!(play.stand.run("init --encryption none --member m0 -q").code, 0);
    let count = 3 + play.draw.below(14);
    play.ground.grow(&mut play.draw, count);
    let command = play.draw_backup();
    let Some(first) = play.back_up(&command, None) else { return };
    let whole = play.draw.one_in(4);
    play.restore_anew(&first, whole);
    play.restore_onto_a_changed_copy(&first, whole);
    let count = play.draw.below(7);
    play.ground.change(&mut play.draw, count);
    let command = play.resolved(command);
    if command.asked.roots.iter().any(|root| !root.starts_with(&play.ground.root)) {
        return; // A link leads out of the tree now.
    }
    let second = play.back_up(&command, Some(&first));
    if let Some(second) = &second {
        play.differ(&first, second);
        play.tell_history(&first, second);
    }
    if !play.ground.has_aliases {
        play.restore_to_the_origin(&first);
    }
}

/// The words of a backup's command line, and what they mean.
struct BackupLine {
    spelled: Vec<PathBuf>,
    options: Vec<OsString>,
    list: Option<(PathBuf, u8)>,
    asked: BackupAsked,
}

impl Play {
    fn run(&mut self, verb: &str, args: &[OsString]) -> Ran {
        self.story.push(format!("pinstripe {verb} {args:?}"));
        let mut command = self.stand.command(&format!("{verb} --store m0 --json"));
        let output = command.args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).expect("only UTF-8 is printed");
        let code = output.status.code().expect("the command is not killed by a signal");
        Ran { code, out: text(output.stdout), err: text(output.stderr) }
    }

    fn draw_patterns(&mut self, most: usize) -> Vec<ModelPattern> {
        let mut patterns = Vec::new();
        for _ in 0..self.draw.below(most + 1) {
            let pattern = PATTERNS[self.draw.below(PATTERNS.len())].to_vec();
            let root = self.ground.root.as_os_str().as_bytes();
            let anchor = if self.draw.one_in(5) { [root, b"/*/"].concat() } else { Vec::new() };
            patterns.push(ModelPattern([anchor, pattern].concat()));
        }
        patterns
    }

    /// Spells a path of the tree in one of several ways.
    fn spell(&mut self, path: &Path) -> PathBuf {
        let is_directory = fs::symlink_metadata(path).is_ok_and(|it| it.is_dir());
        let link = path.parent().unwrap().join(format!("link {}", self.draw.below(3)));
        let name = path.file_name().unwrap();
        match self.draw.below(8) {
            0 if path != self.ground.root => {
                Path::new("w").join(path.strip_prefix(&self.ground.root).unwrap())
            }
            1 => path
                .parent()
                .unwrap()
                .join("..")
                .join(path.parent().unwrap().file_name().unwrap())
                .join(name),
            2 if is_directory || path.is_dir() => {
                OsString::from_vec([path.as_os_str().as_bytes(), b"/"].concat()).into()
            }
            3 if is_directory && path != self.ground.root => {
                let _ = symlink(name, &link);
                match fs::read_link(&link).is_ok_and(|it| it == name) {
                    true => {
                        OsString::from_vec([link.as_os_str().as_bytes(), b"/."].concat()).into()
                    }
                    false => path.to_path_buf(),
                }
            }
            4 if path != self.ground.root => {
                let outside = self.ground.root.with_file_name(format!("to {}", self.draw.below(3)));
                let _ = symlink(path.parent().unwrap(), &outside);
                let leads = fs::read_link(&outside).is_ok_and(|it| it == path.parent().unwrap());
                if leads { outside.join(name) } else { path.to_path_buf() }
            }
            _ => path.to_path_buf(),
        }
    }

    fn draw_backup(&mut self) -> BackupLine {
        let mut spelled = Vec::new();
        for _ in 0..1 + self.draw.below(3) {
            let root = self.ground.root.clone();
            let path = match self.draw.below(6) {
                0 | 1 => root,
                2 => self.ground.pick(&mut self.draw, |_| true).unwrap_or(root),
                3 if self.draw.one_in(3) => root.join("missing"),
                3 => self.ground.mounts.first().cloned().unwrap_or(root),
                _ => self.ground.pick(&mut self.draw, TreeNode::is_directory).unwrap_or(root),
            };
            spelled.push(self.spell(&path));
        }
        let most = if self.draw.one_in(2) { 3 } else { 0 };
        let mut patterns = self.draw_patterns(most);
        for ModelPattern(text) in &mut patterns {
            if self.draw.one_in(4) {
                text.insert(0, b'!');
            }
        }
        let asked = BackupAsked {
            roots: Vec::new(),
            missing: Vec::new(),
            is_list: self.draw.one_in(4),
            patterns,
            caches: self.draw.one_in(2),
            one_file_system: self.draw.one_in(2),
        };
        let mut options: Vec<OsString> = Vec::new();
        for ModelPattern(text) in &asked.patterns {
            options.extend(["--exclude".into(), OsString::from_vec(text.clone())]);
        }
        options.extend(asked.caches.then(|| "--exclude-caches".into()));
        options.extend(asked.one_file_system.then(|| "-x".into()));
        let mut list = None;
        if asked.is_list {
            let is_plain = spelled.iter().all(|it| !it.as_os_str().as_bytes().contains(&b'\n'));
            let end = if is_plain && self.draw.one_in(2) { b'\n' } else { 0 };
            let file = self.ground.root.with_file_name("list");
            list = Some((file.clone(), end));
            options.extend(["--files-from".into(), file.into()]);
            options.extend((end == 0).then(|| "--from0".into()));
        }
        self.resolved(BackupLine { spelled, options, list, asked })
    }

    /// Finds out what the paths of a command line lead to now.
    fn resolved(&self, mut line: BackupLine) -> BackupLine {
        let at = self.ground.root.parent().unwrap();
        let (mut roots, mut missing) = (Vec::new(), Vec::new());
        for spelled in &line.spelled {
            let path = at.join(spelled);
            let bytes = path.as_os_str().as_bytes();
            let real = match fs::symlink_metadata(&path) {
                Err(_) => None,
                Ok(_) if bytes.ends_with(b"/.") => fs::canonicalize(&path).ok(),
                Ok(_) => {
                    let parent = fs::canonicalize(path.parent().unwrap()).ok();
                    parent.map(|it| it.join(path.file_name().unwrap()))
                }
            };
            match real {
                Some(real) => roots.push(real),
                None => missing.push(resolved_as_far_as_it_exists(&path)),
            }
        }
        roots.sort();
        roots.dedup();
        (line.asked.roots, line.asked.missing) = (roots, missing);
        line
    }

    /// Backs up after a dry run. Returns the snapshot, unless there was nothing to back up.
    fn back_up(&mut self, line: &BackupLine, parent: Option<&Saved>) -> Option<Saved> {
        let mut args = line.options.clone();
        match &line.list {
            Some((file, end)) => {
                let names =
                    line.spelled.iter().map(|it| [it.as_os_str().as_bytes(), &[*end]].concat());
                fs::write(file, names.collect::<Vec<_>>().concat()).unwrap();
            }
            None => args.extend(line.spelled.iter().map(OsString::from)),
        }
        let asked = &line.asked;
        let tree = self.ground.scan();
        let dry = self.run("backup --dry-run", &args);
        let real = self.run("backup", &args);
        assert_eq!(problems(&dry), problems(&real), "a dry run reports what the real run reports");
        assert_eq!(dry.code, real.code, "{}\n{}", dry.err, real.err);
        let (told, done) = (dry.summary(), real.summary());
        if asked.roots.is_empty() {
            assert_eq!(real.code, 11, "{}", real.err);
            return None;
        }
        assert_eq!(real.code, if asked.missing.is_empty() { 0 } else { 3 }, "{}", real.err);
        assert_eq!(done["losses"], asked.missing.len(), "{}", real.err);
        let is_odd = |path: &PathBuf| excludes(&asked.patterns, path, tree[path].is_directory());
        let warnings = usize::from(asked.roots.iter().any(is_odd));
        assert_eq!(done["warnings"], warnings, "{}", real.err);
        for key in COUNTED {
            assert_eq!(told[key], done[key], "{key}");
        }
        let mut saved = self.saved(asked, &tree, &done);
        self.assert_files(&tree, &saved, parent, &dry, &done);
        self.assert_listed(&mut saved);
        Some(saved)
    }

    /// Returns what the snapshot should contain.
    fn saved(&self, asked: &BackupAsked, tree: &NodeTree, done: &Value) -> Saved {
        let paths = asked.saved(tree, &self.ground.mounts);
        let entered = paths.iter().filter(|(_, is_entered)| **is_entered);
        let entered = entered.map(|(path, _)| path.clone()).collect();
        let mut there: NodeTree =
            paths.keys().map(|path| (path.clone(), tree[path].clone())).collect();
        for above in self.ground.root.ancestors().skip(1) {
            let mut one = scan_one(above);
            one.links = 0;
            there.insert(above.to_path_buf(), one);
        }
        there.remove(Path::new("/"));
        let sources = asked.sources();
        let told: Vec<_> = paths_of(done, "sources");
        assert_eq!(told, sources, "sources");
        let id = done["snapshot"].as_str().unwrap().to_owned();
        Saved { id, tree: there, entered, sources, losses: asked.missing.len() }
    }

    /// Compares what was new, changed and unchanged with the model.
    fn assert_files(
        &self,
        tree: &NodeTree,
        saved: &Saved,
        parent: Option<&Saved>,
        dry: &Ran,
        done: &Value,
    ) {
        let mut counts = [0_u64; 3];
        let (mut read, mut names) = (BTreeMap::new(), HashMap::new());
        let parent = parent.filter(|it| it.sources == saved.sources);
        let files = saved
            .tree
            .iter()
            .filter(|(path, it)| it.kind == NodeKind::File && tree.contains_key(*path));
        for (path, seen) in files {
            let before =
                parent.and_then(|it| it.tree.get(path)).filter(|it| it.kind == NodeKind::File);
            let facts = |it: &TreeNode| (it.size, it.mtime, it.ctime, it.id.1);
            let is_same = before.is_some_and(|it| facts(it) == facts(seen));
            counts[match (before, is_same) {
                (None, _) => 0,
                (Some(_), false) => 1,
                (Some(_), true) => 2,
            }] += 1;
            // A file with several names is read under the first one, and again when there are more
            // names than links because of a bind mount.
            let name = names.entry(seen.id).or_insert(0);
            let is_first = *name % seen.links == 0;
            *name += 1;
            if !is_same && is_first {
                read.insert(path.clone(), if before.is_none() { "new" } else { "changed" });
            }
        }
        let found = ["new_files", "changed_files", "unchanged_files"]
            .map(|key| done[key].as_u64().unwrap());
        assert_eq!(found, counts, "new, changed and unchanged files");
        let told = dry
            .events_of("would_read")
            .into_iter()
            .map(|event| (path_of(&event, "path"), event["change"].as_str().unwrap().to_owned()));
        let read: BTreeMap<_, _> =
            read.into_iter().map(|(path, it)| (path, it.to_owned())).collect();
        assert_eq!(told.collect::<BTreeMap<_, _>>(), read, "would_read");
        assert_eq!(done["walked_entries"], saved.tree.len());
    }

    /// Compares a snapshot as `ls` lists it with the model.
    fn assert_listed(&mut self, saved: &mut Saved) {
        let listed = self.run("ls", &[saved.id.clone().into()]);
        assert_eq!(listed.code, 0, "{}", listed.err);
        let entries = listed.events_of("entry");
        let found: BTreeMap<_, _> = entries.iter().map(|it| (path_of(it, "path"), it)).collect();
        let names = |it: &NodeTree| it.keys().cloned().collect::<BTreeSet<_>>();
        let mut paths: BTreeSet<_> = found.keys().cloned().collect();
        paths.remove(Path::new("/"));
        assert_eq!(paths, names(&saved.tree), "entries of the snapshot");
        for (path, seen) in &mut saved.tree {
            let it = found[path];
            if self.ground.root.starts_with(path) && *path != self.ground.root {
                // Others change the directories above.
                let time = |key: &str| it[key].as_i64().unwrap();
                seen.mtime = (time("mtime_seconds"), time("mtime_nanos"));
            }
            assert_eq!(it["type"], kind_name(seen.kind), "{path:?}");
            assert_eq!(it["mode"], format!("{:04o}", seen.mode), "{path:?}");
            let links = match seen.is_directory() {
                true => it["links"].as_u64().unwrap().min(1),
                false => it["links"].as_u64().unwrap(),
            };
            let wanted = match seen.is_directory() {
                true => u64::from(saved.entered.contains(path)),
                false => seen.links,
            };
            assert_eq!(links, wanted, "links of {path:?}");
            assert_eq!([&it["uid"], &it["gid"]], [seen.owner.0, seen.owner.1], "{path:?}");
            assert_eq!(
                [&it["mtime_seconds"], &it["mtime_nanos"]],
                [seen.mtime.0, seen.mtime.1],
                "{path:?}"
            );
            if seen.kind == NodeKind::File {
                assert_eq!(it["bytes"], seen.size, "{path:?}");
            }
            if seen.kind == NodeKind::Symlink {
                assert_eq!(path_of(it, "target").into_os_string().into_vec(), seen.content);
            }
        }
    }

    /// The path whose content becomes that of the target: the tree, or everything.
    fn top(&self, whole: bool) -> PathBuf {
        if whole { PathBuf::from("/") } else { self.ground.root.clone() }
    }

    /// Restores everything into a directory that does not exist.
    fn restore_anew(&mut self, saved: &Saved, whole: bool) {
        let to = self.ground.root.with_file_name("new");
        let path = self.top(whole);
        let asked = RestoreAsked { path, to: to.clone(), ..RestoreAsked::default() };
        self.restore(saved, &asked, &BTreeSet::new());
        let restored = scan(&to);
        for (path, seen) in saved.tree.iter().filter(|(_, it)| it.kind == NodeKind::File) {
            let rest = path.strip_prefix(self.top(whole)).unwrap();
            assert_eq!(restored[&to.join(rest)].data, seen.data, "holes of {path:?}");
        }
    }

    fn restore_onto_a_changed_copy(&mut self, saved: &Saved, whole: bool) {
        let to = self.ground.root.with_file_name("new");
        let top = self.top(whole);
        let copy = to.join(self.ground.root.strip_prefix(&top).unwrap());
        let mut target = Ground::new(copy, self.ground.root.with_file_name("f"), true);
        let count = self.draw.below(4);
        target.change(&mut self.draw, count);
        let count = self.draw.below(5);
        target.spoil(&mut self.draw, count);
        if self.draw.one_in(3) {
            target.grow(&mut self.draw, 3);
        }
        if target.has_aliases {
            return;
        }
        let mut asked = self.draw_restore(saved);
        // The copy of a directory is the target for that directory.
        asked.to = to.join(asked.path.strip_prefix(&top).unwrap());
        let is_in_a_way = |it: &Path| fs::symlink_metadata(it).is_ok_and(|it| !it.is_dir());
        let mut above = asked.to.ancestors().take_while(|it| it.starts_with(&to));
        let is_whole = asked.path == self.ground.root;
        if is_whole || !saved.tree[&asked.path].is_directory() || above.any(is_in_a_way) {
            (asked.to, asked.path) = (to, top);
        }
        self.restore(saved, &asked, &target.mounts);
    }

    fn restore_to_the_origin(&mut self, saved: &Saved) {
        let mut asked = self.draw_restore(saved);
        (asked.to_origin, asked.in_place) = (true, true);
        if !asked.path.parent().unwrap().is_dir() {
            asked.path = self.ground.root.clone();
        }
        asked.to = PathBuf::from("/");
        self.restore(saved, &asked, &self.ground.mounts.clone());
    }

    fn draw_restore(&mut self, saved: &Saved) -> RestoreAsked {
        let mut asked = RestoreAsked { path: self.ground.root.clone(), ..RestoreAsked::default() };
        let all: Vec<_> =
            saved.tree.keys().filter(|it| it.starts_with(&self.ground.root)).collect();
        if self.draw.one_in(3) {
            asked.path = (*self.draw.pick(&all)).clone();
        }
        asked.in_place = !self.draw.one_in(5);
        asked.overwrite = !asked.in_place && self.draw.one_in(2);
        if asked.in_place {
            asked.checksum = self.draw.one_in(2);
            asked.delete = self.draw.one_in(2);
            asked.yes = asked.delete && self.draw.one_in(2);
        }
        asked.verify = self.draw.one_in(2);
        if !asked.delete && self.draw.one_in(2) {
            asked.include = self.draw_patterns(2);
            asked.exclude = self.draw_patterns(1);
        }
        asked
    }

    /// Restores after a dry run, and compares both with the model.
    fn restore(&mut self, saved: &Saved, asked: &RestoreAsked, mounts: &BTreeSet<PathBuf>) {
        let looked = if asked.to_origin { self.ground.root.clone() } else { asked.to.clone() };
        let mut before = scan(&looked);
        let untouched = before.clone();
        if asked.to_origin {
            for above in self.ground.root.ancestors().skip(1) {
                before.insert(above.to_path_buf(), scan_one(above));
            }
        }
        let args = words(saved, asked);
        let mut line = "restore".to_owned();
        for (is_given, word) in [
            (asked.in_place, " --in-place"),
            (asked.overwrite, " --overwrite"),
            (asked.checksum, " --checksum"),
            (asked.delete, " --delete"),
            (asked.yes, " --yes"),
        ] {
            line += if is_given { word } else { "" };
        }
        let model = Restore { saved, asked, before: &before, mounts };
        let outcome = model.outcome();
        let dry = self.run(&format!("{line} --dry-run"), &args);
        assert!(scan(&looked) == untouched, "a dry run changes nothing");
        assert_eq!(
            dry.code, outcome.code,
            "exit code of the dry run\n{}{:?}",
            dry.err, outcome.acts
        );
        let is_done = ![11, 14].contains(&outcome.code);
        if is_done {
            assert_predicted(&outcome, &dry);
        }
        line += if asked.verify { " --verify" } else { "" };
        let real = self.run(&line, &args);
        let differ = if asked.verify && is_done { outcome.differ.clone() } else { BTreeSet::new() };
        let code = if differ.is_empty() { outcome.code } else { 3 };
        assert_eq!(real.code, code, "exit code, and {differ:?} differ\n{}", real.err);
        // A dry run that is refused has reported what it found before.
        if outcome.code != 14 {
            let mut told = problems(&real);
            told.retain(|it| !differ.contains(&path_of(&parsed(it), "place")));
            assert_eq!(problems(&dry), told, "a dry run reports what the real run reports");
        }
        if is_done {
            assert_counted(&dry.summary(), &real.summary(), differ.len() as u64);
        }
        assert_after(&outcome, &before, &scan(&looked), &looked);
    }

    /// Compares `diff` with the model.
    fn differ(&mut self, old: &Saved, new: &Saved) {
        let told = self.run("diff", &[old.id.clone().into(), new.id.clone().into()]);
        assert_eq!(told.code, 0, "{}", told.err);
        let is_ours = |path: &PathBuf| path.starts_with(&self.ground.root);
        let told = told
            .events_of("difference")
            .into_iter()
            .map(|event| (path_of(&event, "path"), event["change"].as_str().unwrap().to_owned()));
        let told: BTreeMap<_, _> = told.filter(|(path, _)| is_ours(path)).collect();
        let paths: BTreeSet<_> =
            old.tree.keys().chain(new.tree.keys()).filter(|it| is_ours(it)).collect();
        let wanted = paths.into_iter().filter_map(|path| {
            let word = difference(old.tree.get(path), new.tree.get(path))?;
            Some((path.clone(), word.to_owned()))
        });
        assert_eq!(told, wanted.collect(), "differences");
    }

    /// Compares `history` of a few paths with the model.
    fn tell_history(&mut self, old: &Saved, new: &Saved) {
        if old.sources != new.sources {
            return;
        }
        let all: Vec<_> = old.tree.keys().chain(new.tree.keys()).cloned().collect();
        for _ in 0..2 {
            let path = self.draw.pick(&all).clone();
            if !path.starts_with(&self.ground.root) {
                continue;
            }
            let told = self.run("history", &[path.clone().into()]);
            assert_eq!(told.code, 0, "{}", told.err);
            let events = told.events_of("version");
            let told: Vec<_> = events.iter().map(|it| it["what"].as_str().unwrap()).collect();
            let states = [old.tree.get(&path), new.tree.get(&path)];
            let wanted = match states {
                [Some(_), None] => vec!["first", "gone"],
                [None, _] => vec!["first"],
                [Some(_), Some(_)] => match difference(states[0], states[1]) {
                    None => vec!["first"],
                    Some("metadata") => vec!["first", "metadata"],
                    Some(_) => vec!["first", "content"],
                },
            };
            assert_eq!(told, wanted, "history of {path:?}");
            assert!(events.iter().all(|it| path_of(it, "path") == path && it["host"].is_string()));
        }
    }
}

/// Counters that a dry run of a backup has in common with the real run.
const COUNTED: &[&str] = &[
    "walked_entries",
    "new_files",
    "changed_files",
    "unchanged_files",
    "new_bytes",
    "changed_bytes",
    "unchanged_bytes",
    "linked_bytes",
    "changed_while_read",
    "warnings",
    "losses",
];

fn words(saved: &Saved, asked: &RestoreAsked) -> Vec<OsString> {
    let path = asked.path.as_os_str().as_bytes();
    let what = OsString::from_vec([saved.id.as_bytes(), b":", path].concat());
    let mut words = vec![what];
    if !asked.to_origin {
        words.extend(["--to".into(), asked.to.clone().into()]);
    }
    for (option, patterns) in [("--include", &asked.include), ("--exclude", &asked.exclude)] {
        for ModelPattern(text) in patterns {
            words.extend([option.into(), OsStr::from_bytes(text).into()]);
        }
    }
    words
}

fn resolved_as_far_as_it_exists(path: &Path) -> PathBuf {
    let above = path.ancestors().skip(1).find_map(|it| Some((it, fs::canonicalize(it).ok()?)));
    let (above, real) = above.unwrap();
    real.join(path.strip_prefix(above).unwrap())
}

fn scan_one(path: &Path) -> TreeNode {
    tree::see(path, &fs::symlink_metadata(path).unwrap())
}

/// What was reported: severity, place and text, in any order.
fn problems(ran: &Ran) -> BTreeSet<String> {
    let events = ran.events().into_iter();
    let problems = events.filter(|it| it["event"] == "problem" || it["event"] == "error");
    problems.map(|it| it.to_string()).collect()
}

fn parsed(problem: &str) -> Value {
    serde_json::from_str(problem).unwrap()
}

fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Symlink => "symlink",
        NodeKind::Fifo => "fifo",
        NodeKind::Socket => "socket",
        NodeKind::Device => "char_device",
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// The path under a key, exactly.
fn path_of(event: &Value, key: &str) -> PathBuf {
    match event[format!("{key}_bytes")].as_str() {
        Some(hex) => OsString::from_vec(from_hex(hex)).into(),
        None => PathBuf::from(event[key].as_str().unwrap()),
    }
}

fn paths_of(event: &Value, key: &str) -> Vec<PathBuf> {
    let list = |key: &str| {
        event[key]
            .as_array()
            .map(|it| it.iter().map(|it| it.as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    match list(&format!("{key}_bytes")) {
        Some(hex) => hex.iter().map(|it| OsString::from_vec(from_hex(it)).into()).collect(),
        None => list(key).unwrap().into_iter().map(PathBuf::from).collect(),
    }
}

/// How `diff` names a difference, if there is one.
fn difference(old: Option<&TreeNode>, new: Option<&TreeNode>) -> Option<&'static str> {
    let (old, new) = match (old, new) {
        (None, None) => return None,
        (None, _) => return Some("added"),
        (_, None) => return Some("deleted"),
        (Some(old), Some(new)) => (old, new),
    };
    let facts = |it: &TreeNode| (it.mode, it.owner, it.mtime, it.xattrs.clone());
    match () {
        () if old.kind != new.kind => Some("retyped"),
        () if old.content != new.content => Some("modified"),
        () => (facts(old) != facts(new)).then_some("metadata"),
    }
}

/// Compares the dry run of a restore with the model.
fn assert_predicted(outcome: &Outcome, dry: &Ran) {
    let act = |word: &str| match word {
        "make" => Act::Make,
        "change" => Act::Change,
        "remove" => Act::Remove,
        _ => panic!("{word}"),
    };
    let events = dry.events_of("preview");
    let told: BTreeSet<_> =
        events.iter().map(|it| (act(it["act"].as_str().unwrap()), path_of(it, "path"))).collect();
    let missing: Vec<_> = outcome.acts.difference(&told).collect();
    let extra: Vec<_> = told.difference(&outcome.acts).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "the dry run lacks {missing:?} and has {extra:?}\n{}",
        dry.err
    );
    let summary = dry.summary();
    let count = |wanted: Act| outcome.acts.iter().filter(|(act, _)| *act == wanted).count() as u64;
    assert_eq!(summary["make_entries"], count(Act::Make));
    assert_eq!(summary["change_entries"], count(Act::Change));
    assert_eq!(summary["keep_entries"], outcome.kept, "kept entries");
    assert_eq!(summary["remove_entries"], outcome.removed, "removed entries");
    assert_eq!(summary["remove_bytes"], outcome.removed_bytes, "removed bytes");
    let of = |severity: &str| -> BTreeSet<PathBuf> {
        let events = dry.events_of("problem").into_iter().filter(|it| it["severity"] == severity);
        events.filter(|it| it["place"].is_string()).map(|it| path_of(&it, "place")).collect()
    };
    assert_eq!(of("warning"), outcome.warned, "warnings");
    if outcome.code == 0 || !outcome.lost.is_empty() {
        assert!(of("loss").is_superset(&outcome.lost), "{:?} {:?}", of("loss"), outcome.lost);
    }
}

/// Compares the counts of a restore with those of its dry run.
fn assert_counted(told: &Value, done: &Value, differ: u64) {
    let number = |key: &str| told[key].as_u64().unwrap();
    assert_eq!(
        done["restored_entries"],
        number("make_entries") + number("change_entries"),
        "restored"
    );
    assert_eq!(
        done["restored_bytes"],
        number("make_bytes") + number("change_bytes"),
        "restored bytes"
    );
    assert_eq!(done["kept_entries"], number("keep_entries"), "kept");
    assert_eq!(done["removed_entries"], number("remove_entries"), "removed");
    assert_eq!(done["removed_bytes"], number("remove_bytes"), "removed bytes");
    assert_eq!(done["lost_entries"], number("lost_entries") + differ, "lost");
}

/// Whether a file has the names that it had: a name that is made or removed changes its ctime.
fn has_same_names(before: &NodeTree, after: &NodeTree, file: &TreeNode) -> bool {
    let names = |tree: &NodeTree| -> Vec<PathBuf> {
        let names = tree.iter().filter(|(_, it)| it.id == file.id);
        names.map(|(path, _)| path.clone()).collect()
    };
    names(before) == names(after)
}

/// Compares the target with the model.
fn assert_after(outcome: &Outcome, before: &NodeTree, after: &NodeTree, looked: &Path) {
    let wanted: BTreeSet<_> = outcome.after.keys().filter(|it| it.starts_with(looked)).collect();
    let found: BTreeSet<_> = after.keys().collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    let mut extra: Vec<_> = found.difference(&wanted).collect();
    // The target itself may be no entry of the snapshot.
    extra.retain(|path| ***path != *looked);
    assert!(
        missing.is_empty() && extra.is_empty(),
        "the target lacks {missing:?} and has {extra:?}"
    );
    let old: BTreeSet<_> = before.values().map(|it| it.id).collect();
    let mut new = HashMap::new();
    for (path, wanted) in outcome.after.iter().filter(|(path, _)| path.starts_with(looked)) {
        let found = &after[path];
        let is_loose = outcome.loose.contains(path);
        let facts =
            |it: &TreeNode| (it.kind, it.mode, it.owner, if is_loose { (0, 0) } else { it.mtime });
        assert_eq!(facts(found), facts(&wanted.seen), "kind, mode, owner and time of {path:?}");
        assert_eq!(found.xattrs, wanted.seen.xattrs, "extended attributes of {path:?}");
        if !found.is_directory() {
            assert!(found.content == wanted.seen.content, "content of {path:?}");
        }
        match &wanted.inode {
            Inode::Same(id) => assert_eq!(found.id, *id, "{path:?} stays"),
            Inode::New(_) if found.is_directory() => {}
            Inode::New(first) | Inode::Any(first) => {
                let is_new = !old.contains(&found.id) || wanted.inode == Inode::Any(first.clone());
                assert!(is_new, "{path:?} is made anew");
                let id = *new.entry(first.clone()).or_insert(found.id);
                assert_eq!(id, found.id, "links of {path:?}");
            }
        }
        if outcome.untouched.contains(path)
            && !found.is_directory()
            && has_same_names(before, after, found)
        {
            assert_eq!(found.ctime, before[path].ctime, "{path:?} is not touched");
        }
    }
    let ids: BTreeSet<_> = new.values().collect();
    assert_eq!(ids.len(), new.len(), "files that are no links of each other");
}
