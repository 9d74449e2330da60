//! Walks with rules: ignore files against git, limits, and explanations against walks.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use pinstripe_base::error::Kind;
use pinstripe_member::meta::Time;
use tempfile::TempDir;

use super::*;

const IGNORE: &str = ".gitignore";
const NAMES: &[&str] = &["a", "b", "ab", "B", "a.o", "c d", "keep.o", "x!", "#y", "caf\u{e9}"];
const PATTERNS: &[&str] = &[
    "a",
    "b/",
    "/a",
    "*.o",
    "!keep.o",
    "!*.o",
    "a/b",
    "/a/b/",
    "a/*",
    "!a/b",
    "**/b",
    "b/**",
    "a/**/b",
    "**",
    "!**/",
    "*",
    "!*/",
    "?",
    "[ab]",
    "[!a]",
    "[^ab]*",
    "[[:upper:]]",
    "\\!x",
    "x\\!",
    "\\#y",
    "#y",
    "c d",
    "c\\ d",
    "a ",
    "!a",
    "!/a",
    "a//b",
    "./a",
    "[",
    "a\\",
    "!",
    "/",
    "ab*",
    "a**b",
    "**a",
    "/**",
    "a/",
    "!b/",
    "!!a",
    "[]a]",
    "[a-]",
    "*\\.o",
    "a?",
    "b",
    "/*",
    "!/a/",
    "[[:x]",
];

/// A stream of pseudorandom numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// Makes a tree, with ignore files in some directories; returns all paths below its root.
fn grow(root: &Path, draw: &mut Draw) -> BTreeSet<PathBuf> {
    let mut directories = vec![PathBuf::new()];
    let mut all = BTreeSet::new();
    for _ in 0..8 + draw.below(30) {
        let path = directories[draw.below(directories.len())].join(draw.pick(NAMES));
        if !all.insert(path.clone()) {
            continue;
        }
        if draw.below(2) == 0 {
            fs::create_dir(root.join(&path)).unwrap();
            directories.push(path);
        } else {
            fs::write(root.join(&path), vec![0; draw.below(20)]).unwrap();
        }
    }
    for directory in directories {
        if draw.below(3) > 0 {
            continue;
        }
        let lines: Vec<_> = (0..1 + draw.below(4)).map(|_| draw.pick(PATTERNS)).collect();
        let path = directory.join(IGNORE);
        fs::write(root.join(&path), lines.join("\n")).unwrap();
        all.insert(path);
    }
    all
}

fn absolute(root: &Path, below: &Path) -> Vec<u8> {
    // Joined to an empty path, the root would end with a slash.
    let path = if below.as_os_str().is_empty() { root.to_path_buf() } else { root.join(below) };
    path.as_os_str().as_bytes().to_vec()
}

fn walked(root: &Path, options: WalkOptions) -> (BTreeMap<PathBuf, bool>, Vec<(PathBuf, Kind)>) {
    let walker = Walker::new(root, absolute(root, Path::new("")), options).unwrap();
    let (mut found, mut troubles) = (BTreeMap::new(), Vec::new());
    let path_of = |path: &[u8]| PathBuf::from(OsStr::from_bytes(path));
    walker.batches().for_each(|batch| {
        for item in batch.iter() {
            let path = path_of(item.path());
            match item {
                WalkItem::Found(it) => {
                    let _ = found.insert(path, it.stat.kind == FileKind::Directory);
                }
                WalkItem::Trouble(it) => troubles.push((path, it.error.kind())),
            }
        }
    });
    found.remove(Path::new(""));
    (found, troubles)
}

fn obeying(names: &[&str]) -> Exclude {
    let file = |name: &&str| IgnoreFile::parse(name.as_bytes()).unwrap();
    names.iter().map(file).fold(Exclude::default(), Exclude::with_ignore_file)
}

fn with(exclude: Exclude) -> WalkOptions {
    WalkOptions { exclude, ..WalkOptions::default() }
}

fn root_of(dir: &TempDir) -> PathBuf {
    let root = dir.path().canonicalize().unwrap();
    // TempDir's name begins with a dot, which no pattern here matches by accident.
    let inner = root.join("tree");
    fs::create_dir(&inner).unwrap();
    inner
}

/// Runs git on a work tree; `None` if there is no git.
fn git(dir: &Path, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new("git")
        .arg("--git-dir")
        .arg(dir.join("git"))
        .arg("--work-tree")
        .arg(dir.join("tree"))
        .args(["-c", "core.excludesFile=/dev/null", "-c", "core.ignoreCase=false"])
        .args(args)
        .current_dir(dir.join("tree"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    child.stdin.take().unwrap().write_all(input).unwrap();
    Some(child.wait_with_output().unwrap().stdout)
}

#[test]
fn git_decides_alike_about_ignore_files() {
    let test = "git_decides_alike_about_ignore_files";
    for seed in 0..60 {
        let dir = TempDir::new().unwrap();
        let root = root_of(&dir);
        let dir = root.parent().unwrap();
        let all = grow(&root, &mut Draw(seed));
        if git(dir, &["init", "-q"], b"").is_none() {
            return pinstripe_testing::skipped(test, "git is not installed");
        }
        let story = || {
            let files = all.iter().filter(|path| path.ends_with(IGNORE));
            let shown = files.map(|path| (path, fs::read_to_string(root.join(path)).unwrap()));
            format!("seed {seed}: {:?}", shown.collect::<Vec<_>>())
        };
        let options = with(obeying(&[IGNORE]));
        let (found, _) = walked(&root, options.clone());
        let saved: BTreeSet<_> = found
            .iter()
            .filter(|(_, is_directory)| !**is_directory)
            .map(|(path, _)| path)
            .collect();
        let listed = git(dir, &["ls-files", "--others", "--exclude-standard", "-z"], b"").unwrap();
        let names = listed.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        let kept: Vec<_> = names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect();
        assert_eq!(saved, kept.iter().collect(), "{}", story());
        let paths: Vec<_> = all.iter().map(|path| path.as_os_str().as_bytes()).collect();
        let args = ["check-ignore", "--no-index", "--verbose", "--non-matching", "-z", "--stdin"];
        let told = git(dir, &args, &[&paths.join(&0)[..], b"\0"].concat()).unwrap();
        let mut fields = told.split(|&byte| byte == 0);
        for path in &all {
            let next = |it: Option<&[u8]>| String::from_utf8(it.unwrap().to_vec()).unwrap();
            let [file, line, _, name] = [(); 4].map(|()| next(fields.next()));
            assert_eq!(Path::new(&name), path);
            let explained = explain(
                root.as_os_str().as_bytes(),
                &absolute(&root, path),
                &options,
                &mut |_, _| {},
            );
            let ours = match explained.unwrap().reason {
                Reason::Rule(rule) => match rule.origin {
                    RuleOrigin::Ignore(file, line) => {
                        (file.strip_prefix(&root).unwrap().to_path_buf(), line.to_string())
                    }
                    other => panic!("{other}"),
                },
                _ => (PathBuf::new(), String::new()),
            };
            assert_eq!(ours, (PathBuf::from(file), line), "{path:?} {}", story());
        }
    }
}

/// What a walk finds is what the explanations say.
#[test]
fn explanations_agree_with_walks() {
    for seed in 0..80 {
        let draw = &mut Draw(seed * 77 + 5);
        let dir = TempDir::new().unwrap();
        let root = root_of(&dir);
        let all = grow(&root, draw);
        let is_valid = |pattern: &&str| Exclude::new([pattern]).is_ok();
        let valid: Vec<_> = PATTERNS.iter().copied().filter(is_valid).collect();
        let rules = (0..draw.below(4)).map(|_| WrittenRule {
            text: draw.pick(&valid).as_bytes().to_vec(),
            ignores_case: draw.below(2) == 0,
            origin: RuleOrigin::Option("--exclude"),
        });
        let exclude = Exclude::of_rules(rules.collect::<Vec<_>>()).unwrap();
        let exclude = exclude.with_ignore_file(IgnoreFile::parse(IGNORE.as_bytes()).unwrap());
        let larger_than = (draw.below(2) == 0).then_some(10);
        let exclude = exclude.with_limits(FileLimits { larger_than, older_than: None });
        let tag = ["ab", "nothing"][draw.below(2)];
        let exclude = exclude.with_tag(DirectoryTag::parse(tag.as_bytes()).unwrap());
        let mut named: Vec<_> =
            all.iter().filter(|_| draw.below(12) == 0).map(|path| absolute(&root, path)).collect();
        named.sort_by(|left, right| pinstripe_member::tree::compare_paths(left, right));
        let options = WalkOptions { named, ..with(exclude) };
        let (found, _) = walked(&root, options.clone());
        for path in &all {
            let prefix = root.as_os_str().as_bytes();
            let explained =
                explain(prefix, &absolute(&root, path), &options, &mut |_, _| {}).unwrap();
            let is_found = found.contains_key(path);
            assert_eq!(explained.is_saved, is_found, "seed {seed}, {path:?}: {explained:?}");
        }
    }
}

#[test]
fn nested_ignore_files_override_those_above_and_options_override_all() {
    let dir = TempDir::new().unwrap();
    let root = root_of(&dir);
    fs::create_dir_all(root.join("in/deep")).unwrap();
    fs::create_dir_all(root.join("out")).unwrap();
    for path in ["a.o", "in/a.o", "in/b.o", "in/deep/a.o", "in/deep/x", "out/y", "n\u{ff}"] {
        fs::write(root.join(path), "").unwrap();
    }
    fs::write(root.join(".one"), "*.o\n/x\nout\n").unwrap();
    fs::write(root.join("in/.one"), "!a.o\n").unwrap();
    fs::write(root.join("in/.two"), "!b.o\n").unwrap();
    fs::write(root.join("out/.one"), "!y\n").unwrap();
    let paths = |exclude: Exclude| {
        let (found, troubles) = walked(&root, with(exclude));
        assert_eq!(troubles, []);
        let is_file = |(path, is_directory): (PathBuf, bool)| {
            let name = path.file_name()?.to_str()?;
            (!is_directory && !name.starts_with(['.', 'n'])).then(|| path.display().to_string())
        };
        found.into_iter().filter_map(is_file).collect::<Vec<_>>()
    };
    assert_eq!(paths(obeying(&[".one"])), ["in/a.o", "in/deep/a.o", "in/deep/x"]);
    let both = ["in/a.o", "in/b.o", "in/deep/a.o", "in/deep/x"];
    assert_eq!(paths(obeying(&[".one", ".two"])), both);
    let options = Exclude::new(["!a.o", "in/a.o", "!out"]).unwrap();
    let options = options.with_ignore_file(IgnoreFile::parse(b".one").unwrap());
    assert_eq!(paths(options), ["a.o", "in/deep/a.o", "in/deep/x", "out/y"]);
    let unmet = obeying(&[".one", ".three"]);
    paths(unmet.clone());
    let met: Vec<_> = unmet.ignore_files().map(IgnoreFile::is_met).collect();
    assert_eq!(met, [true, false]);
    for name in ["", ".", "a/b", "a\0"] {
        assert!(IgnoreFile::parse(name.as_bytes()).is_err());
    }
}

#[test]
fn ignore_files_without_effect_are_reported() {
    let dir = TempDir::new().unwrap();
    let root = root_of(&dir);
    for name in ["link", "dir/.ig", "lines", "long", "bytes", "closed"] {
        fs::create_dir_all(root.join(name)).unwrap();
        fs::write(root.join(name).join("a"), "").unwrap();
    }
    fs::write(root.join("rules"), "a").unwrap();
    symlink("../rules", root.join("link/.ig")).unwrap();
    fs::write(root.join("lines/.ig"), "b\n[\na\n").unwrap();
    fs::write(root.join("long/.ig"), vec![b'\n'; (1 << 20) + 1]).unwrap();
    fs::write(root.join("bytes/.ig"), b"caf\xe9*\n").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"bytes/caf\xe9!")), "").unwrap();
    fs::write(root.join("closed/.ig"), "a\n").unwrap();
    fs::set_permissions(root.join("closed/.ig"), fs::Permissions::from_mode(0o0)).unwrap();
    let (found, troubles) = walked(&root, with(obeying(&[".ig"])));
    let closed = [(PathBuf::from("closed/.ig"), Kind::Io)];
    let is_root = pinstripe_testing::is_root();
    let others = ["dir/.ig", "lines/.ig", "link/.ig", "long/.ig"];
    let others = others.map(|path| (PathBuf::from(path), Kind::Usage));
    let closed = if is_root { &[][..] } else { &closed };
    assert_eq!(troubles, [closed, &others].concat());
    let kept = ["link/a", "dir/.ig/a", "long/a", "bytes/a"];
    assert!(kept.iter().all(|path| found.contains_key(Path::new(path))), "{found:?}");
    assert!(!found.contains_key(Path::new("lines/a")));
    assert!(!found.contains_key(Path::new(OsStr::from_bytes(b"bytes/caf\xe9!"))));
    assert_eq!(found.contains_key(Path::new("closed/a")), !is_root);
}

#[test]
fn limits_exclude_regular_files_only() {
    let dir = TempDir::new().unwrap();
    let root = root_of(&dir);
    fs::create_dir(root.join("directory")).unwrap();
    for (name, bytes) in [("small", 10), ("large", 11), ("old", 0), ("kept", 11)] {
        fs::write(root.join(name), vec![0; bytes]).unwrap();
    }
    symlink("a name of more than ten bytes", root.join("link")).unwrap();
    let hour = Duration::from_secs(3600);
    let old = fs::File::options().write(true).open(root.join("old")).unwrap();
    old.set_modified(SystemTime::now() - 2 * hour).unwrap();
    let then = (SystemTime::now() - hour).duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let limits = FileLimits {
        larger_than: Some(10),
        older_than: Some(Time { seconds: then.as_secs() as i64, nanos: 0 }),
    };
    // A negated rule does not lift a limit, but a named path is always saved.
    let exclude = Exclude::new(["!large"]).unwrap().with_limits(limits);
    let named = vec![absolute(&root, Path::new("kept"))];
    let (found, _) = walked(&root, WalkOptions { named, ..with(exclude) });
    let found: Vec<_> = found.keys().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(found, ["directory", "kept", "link", "small"]);
}
