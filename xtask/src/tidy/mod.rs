//! `cargo xtask tidy`: the rules of this repository that no compiler checks, reported as findings
//! with a place.
//!
//! All rules are data in [`rules`]. A finding either makes the run fail or is only a warning; no
//! file is ever changed.

mod crates;
mod cycles;
mod files;
mod pages;
mod paths;
mod rooms;
mod rules;
mod source;
mod surface;
mod words;

use std::fmt;
use std::fs;
use std::path::Path;

use crate::workspace::{Result, Workspace, root_folder};
use source::Source;

/// A violation of a rule, or a size that is near its limit.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The path relative to the repository; empty for a finding about the crate graph.
    pub place: String,
    /// The line number, from 1; 0 if the finding is about the file as a whole.
    pub line: usize,
    /// The violated rule, and what to do.
    pub what: String,
    /// Whether the finding is only a warning.
    pub only_warns: bool,
}

impl Finding {
    fn new(place: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { place: place.to_owned(), line, what: what.into(), only_warns: false }
    }

    fn warning(place: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { only_warns: true, ..Finding::new(place, line, what) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.only_warns { "warning: " } else { "error: " })?;
        match (self.place.as_str(), self.line) {
            ("", _) => {}
            (place, 0) => write!(f, "{place}: ")?,
            (place, line) => write!(f, "{place}:{line}: ")?,
        }
        f.write_str(&self.what)
    }
}

/// A text file of the repository.
struct File {
    /// The path of the file relative to the repository, with `/`.
    path: String,
    /// Its content.
    text: String,
}

/// A Rust file of a product, after scanning.
struct Scanned {
    path: String,
    source: Source,
}

/// Checks everything and prints the findings; returns false if one of them makes the run fail.
pub fn run() -> Result<bool> {
    let findings = check(&root_folder()?, &Workspace::load()?)?;
    for finding in &findings {
        println!("{finding}");
    }
    let failed = findings.iter().filter(|finding| !finding.only_warns).count();
    println!("tidy: {failed} errors, {} warnings", findings.len() - failed);
    Ok(failed == 0)
}

/// Prints how many lines have odd words, or lists these lines of the crate or page `name`.
pub fn list_words(name: Option<&str>) -> Result<bool> {
    let files = read_files(&root_folder()?)?;
    words::list(&files, &scan(&files), name)?;
    Ok(true)
}

/// Returns all findings in the repository at `root`, sorted by place.
pub fn check(root: &Path, workspace: &Workspace) -> Result<Vec<Finding>> {
    let files = read_files(root)?;
    let scanned = scan(&files);
    let mut findings = crates::check(workspace);
    findings.extend(rooms::check(&scanned));
    findings.extend(files::check(&files, &scanned));
    findings.extend(files::names_of_crates(&scanned, rules::NAMES_OF_SEVERAL_CRATES));
    findings.extend(surface::roots(&scanned));
    findings.extend(surface::unused(&files, &scanned, rules::UNUSED_PUBLIC_ITEMS));
    findings.extend(cycles::check(&scanned, rules::FILE_CYCLES, rules::FILES_OF_A_CYCLE));
    findings.extend(pages::check(root, &files, workspace));
    findings.extend(words::check(&files, &scanned));
    findings.sort();
    Ok(findings)
}

/// Compares a count with its limit: a higher count is an error, and a lower count is a warning, so
/// that the limit gets reduced. `told` returns a description of what was counted, and how to reduce
/// it.
fn ratchet(
    found: usize,
    most: usize,
    limit: &str,
    told: impl FnOnce(usize) -> (String, String),
) -> Option<Finding> {
    if found == most {
        return None;
    }
    let (what, advice) = told(found);
    Some(match found > most {
        true => Finding::new("", 0, format!("{what}; at most {most} may, {advice}")),
        false => Finding::warning("", 0, format!("{what}; lower {limit} to that")),
    })
}

/// Returns all text files of the repository.
fn read_files(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let told = |error| format!("cannot read {}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(told)? {
            let entry = entry.map_err(told)?;
            let path = entry.path();
            let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let name = entry.file_name();
            let ignored = rules::IGNORED_FOLDERS.iter().any(|i| relative == *i || name == **i);
            let kind = entry.file_type().map_err(told)?;
            if ignored || path.join("CACHEDIR.TAG").exists() {
                continue;
            } else if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(&path).map_err(|e| format!("cannot read {relative}: {e}"))?;
                // Files that are not text, such as pictures, contain neither prose nor code.
                if let Ok(text) = String::from_utf8(bytes) {
                    files.push(File { path: relative, text });
                }
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Returns the Rust files that are not tests, after scanning.
fn scan(files: &[File]) -> Vec<Scanned> {
    let is_product = |path: &str| {
        let folders = ["tests", "benches", "examples", "fuzz"];
        path.ends_with(".rs")
            && !path.ends_with("/tests.rs")
            && !rules::CRATES_OF_TESTS.iter().any(|it| path.starts_with(it))
            && !path.split('/').any(|part| folders.contains(&part))
    };
    let mut scanned: Vec<Scanned> = files
        .iter()
        .filter(|file| is_product(&file.path))
        .map(|file| Scanned { path: file.path.clone(), source: Source::scan(&file.text) })
        .collect();
    // A file that is declared under `#[cfg(test)]` is a test whatever its name, and so is all
    // below.
    let tests: Vec<String> = scanned
        .iter()
        .flat_map(|file| file.source.test_modules.iter().map(|name| child(&file.path, name)))
        .collect();
    scanned.retain(|file| {
        let stem = file.path.trim_end_matches(".rs");
        !tests.iter().any(|test| stem == test || stem.starts_with(&format!("{test}/")))
    });
    scanned
}

/// Returns the path, without `.rs`, of the module `name` that the file at `path` declares.
fn child(path: &str, name: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    match stem {
        "mod" | "lib" | "main" => format!("{folder}/{name}"),
        _ => format!("{folder}/{stem}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text file for the rules' own tests.
    pub(super) fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    /// The findings of a check, one line each.
    pub(super) fn lines(findings: Vec<Finding>) -> Vec<String> {
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn files_declared_for_tests_are_not_product() {
        let files = [
            file("c/src/lib.rs", "#[cfg(test)]\nmod oracle;\nmod walk;"),
            file("c/src/oracle.rs", ""),
            file("c/src/oracle/deep.rs", ""),
            file("c/src/walk/mod.rs", "#[cfg(test)]\nmod made_up;"),
            file("c/src/walk/made_up.rs", ""),
            file("c/src/walk/tests.rs", ""),
            file("c/tests/it.rs", ""),
            file("crates/pinstripe-sim/src/world.rs", ""),
            file("c/src/notes.md", ""),
        ];
        let kept: Vec<String> = scan(&files).into_iter().map(|file| file.path).collect();
        assert_eq!(kept, ["c/src/lib.rs", "c/src/walk/mod.rs"]);
    }

    #[test]
    fn reading_leaves_out_what_is_built_or_not_text() {
        let root = tempfile::tempdir().unwrap();
        for (path, bytes) in [
            ("a.md", b"text".as_slice()),
            ("src/b.rs", b"fn b() {}"),
            ("picture", b"\xff\xfe"),
            ("target/built.rs", b""),
            ("elsewhere/CACHEDIR.TAG", b""),
            ("fuzz/corpus/seed", b""),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let paths: Vec<String> =
            read_files(root.path()).unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(paths, ["a.md", "src/b.rs"]);
    }
}
