//! Rules on documentation pages: they exist, are short, name every crate and module, and their
//! links are valid.

use std::collections::BTreeSet;
use std::path::Path;

use super::source::whole_words;
use super::{File, Finding, rules};
use crate::workspace::Workspace;

/// Returns all findings in the Markdown pages.
pub fn check(root: &Path, files: &[File], workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let page = |name: &str| files.iter().find(|file| file.path == name);
    for &(name, most) in rules::PAGES {
        match page(name).map(|file| file.text.split_whitespace().count()) {
            None => findings.push(Finding::new(name, 0, "the page is missing")),
            Some(words) if words > most => {
                findings.push(Finding::new(name, 0, format!("{words} words; the limit is {most}")));
            }
            Some(_) => {}
        }
    }
    if let Some(map) = page(rules::MAP) {
        for thing in things_to_name(files, workspace) {
            if !map.text.lines().any(|line| is_sentence_about(line, &thing)) {
                let what = format!("no line says in a sentence what {thing} is for");
                findings.push(Finding::new(rules::MAP, 0, what));
            }
        }
    }
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, columns) in long_lines(&file.text) {
            let what = format!("{columns} columns; the limit is {}", rules::PAGE_COLUMNS);
            findings.push(Finding::new(&file.path, line, what));
        }
        for (line, target) in links(&file.text) {
            let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !root.join(folder).join(path).exists() {
                let what = format!("the link to {target} leads nowhere");
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

/// The lines of a page, with their numbers, that are neither empty nor code.
pub fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    let mut may_be_code = true;
    let mut is_prose = move |line: &str| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        let is_code = may_be_code && line.starts_with("    ");
        may_be_code = is_code || line.trim().is_empty() || line.starts_with('#');
        !(is_fence || is_fenced || is_code || line.trim().is_empty())
    };
    text.lines().enumerate().filter(move |(_, line)| is_prose(line)).map(|(n, line)| (n + 1, line))
}

/// Returns the lines of prose that are too long, each with its number of columns. Rows of tables do
/// not count, and neither does a line with only one word, which cannot be broken.
fn long_lines(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let lines = prose_lines(text).map(|(number, line)| (number, line.trim_end()));
    let lines = lines.filter(|(_, line)| !line.trim_start().starts_with('|'));
    let lines = lines.filter(|(_, line)| line.split_whitespace().nth(1).is_some());
    let lines = lines.map(|(number, line)| (number, line.chars().count()));
    lines.filter(|(_, columns)| *columns > rules::PAGE_COLUMNS)
}

/// Returns the names of the workspace's crates, and of modules that are directories with a `/` at
/// the end.
fn things_to_name(files: &[File], workspace: &Workspace) -> BTreeSet<String> {
    let crates = workspace.members.iter().filter_map(|id| workspace.packages.get(id));
    let rooms = files.iter().filter_map(|file| {
        let inner = file.path.strip_prefix(rules::LIBRARY)?.trim_start_matches('/');
        inner.split_once('/').map(|(room, _)| format!("{room}/"))
    });
    crates.map(|package| package.name.clone()).chain(rooms).collect()
}

fn is_sentence_about(line: &str, thing: &str) -> bool {
    // `pinstripe` is not named by `pinstripe-kernel`, nor `chunk/` by `lab/chunk/`.
    let part_of_longer = |at: usize| {
        let before = line[..at].chars().next_back();
        let after = line[at + thing.len()..].chars().next();
        before.is_some_and(|c| "-/.".contains(c)) || after == Some('-')
    };
    let named = whole_words(line.as_bytes(), thing.as_bytes()).any(|at| !part_of_longer(at));
    let is_word = |word: &&str| word.chars().any(char::is_alphabetic);
    named && line.split_whitespace().filter(is_word).count() >= rules::SENTENCE_WORDS
}

/// Returns the relative targets of `[text](target)` with their lines; code is skipped.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every second piece between back-ticks is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for piece in prose.split("](").skip(1) {
            let target = piece.split([')', ' ']).next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !elsewhere {
                links.push((number + 1, target.to_owned()));
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, lines};
    use super::*;
    use crate::workspace::tests::made_up;

    fn found(files: &[File]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("doc")).unwrap();
        std::fs::write(root.path().join("doc/format.md"), "").unwrap();
        let space = made_up(&["pinstripe"], &[("pinstripe", "MIT", &[], &[])]);
        lines(check(root.path(), files, &space))
    }

    #[test]
    fn missing_and_long_pages_fail() {
        let most = rules::PAGES[0].1;
        let found = found(&[file("README.md", &"x\n".repeat(most + 1))]);
        assert_eq!(
            found,
            [
                format!("error: README.md: {} words; the limit is {most}", most + 1),
                "error: ARCHITECTURE.md: the page is missing".to_owned(),
                "error: CONTRIBUTING.md: the page is missing".to_owned(),
            ]
        );
    }

    #[test]
    fn long_lines_fail_and_tables_and_code_do_not() {
        let long = "ab ".repeat(41);
        let text = format!("{long}\n| {long} |\n\n    {long}\n\n```\n{long}\n```\n- {long}\n");
        let word = "a".repeat(130);
        let found: Vec<_> = long_lines(&format!("{text}{word}\n")).collect();
        assert_eq!(found, [(1, 122), (9, 124)]);
    }

    #[test]
    fn every_crate_and_room_needs_a_sentence() {
        let room = file("crates/pinstripe/src/chunk/mod.rs", "");
        let map = |text: &str| file("ARCHITECTURE.md", text);
        let readme = || file("README.md", "");
        let contributing = || file("CONTRIBUTING.md", "");
        let good = "- `pinstripe` is the library, without threads\n\
                    - `chunk/` cuts content where it says so\n";
        assert_eq!(found(&[readme(), contributing(), map(good), room]), Vec::<String>::new());

        let room = file("crates/pinstripe/src/chunk/mod.rs", "");
        let poor = "- `pinstripe-kernel` is not the crate that is meant\n- `chunk/`\n";
        let found = found(&[readme(), contributing(), map(poor), room]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("what chunk/ is for"), "{found:?}");
        assert!(found[1].contains("what pinstripe is for"), "{found:?}");
    }

    #[test]
    fn links_must_lead_somewhere() {
        let page = "[a](format.md#bytes) [b](gone.md) [c](https://x.org/y) [d](#here)\n\
                    `[e](code.md)`\n```\n[f](code.md)\n```\n[g](../lost.md \"title\")\n";
        let pages = [
            file("README.md", ""),
            file("CONTRIBUTING.md", ""),
            file("ARCHITECTURE.md", "the crate pinstripe is all there is\n"),
            file("doc/a.md", page),
        ];
        assert_eq!(
            found(&pages),
            [
                "error: doc/a.md:1: the link to gone.md leads nowhere",
                "error: doc/a.md:6: the link to ../lost.md leads nowhere"
            ]
        );
    }
}
