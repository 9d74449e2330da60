//! Rules on single files: banned texts, sizes, and files that no module declares.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::source::whole_words;
use super::{File, Finding, Scanned, child, ratchet, rules};

/// Returns all findings in the text and code of the files.
pub fn check(files: &[File], scanned: &[Scanned]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        banned_texts(file, &mut findings);
        examples(file, &mut findings);
        attributes_of_tests(file, &mut findings);
    }
    for file in scanned {
        sizes(file, &mut findings);
        misleading_names(file, &mut findings);
        panics(file, &mut findings);
    }
    dead_files(scanned, &mut findings);
    shared_names(scanned, &mut findings);
    findings
}

fn banned_texts(file: &File, findings: &mut Vec<Finding>) {
    if file.path.starts_with(rules::NAMES_BANNED_TEXTS) {
        return;
    }
    for banned in rules::BANNED_TEXTS {
        let (text, instead) = (banned.text, banned.instead);
        for at in whole_words(file.text.as_bytes(), text.as_bytes()) {
            // `a/Users/` is a path below some folder, not of this machine.
            let before = file.text[..at].chars().next_back().unwrap_or(' ');
            if text.starts_with('/') && (before.is_alphanumeric() || "._-/}".contains(before)) {
                continue;
            }
            let line = file.text[..at].lines().count().max(1);
            let line = if file.text[..at].ends_with('\n') { line + 1 } else { line };
            findings.push(Finding::new(&file.path, line, format!("{text} is banned: {instead}")));
        }
    }
}

/// Finds code in documentation, which would be compiled separately for each crate. Code that is to
/// be compiled belongs in a test, and code blocks in documentation are text.
fn examples(file: &File, findings: &mut Vec<Finding>) {
    if !file.path.ends_with(".rs") {
        return;
    }
    let mut is_open = false;
    for (number, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let prose = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(fence) = prose.and_then(|it| it.trim().strip_prefix("```")) else { continue };
        is_open = !is_open;
        if is_open && fence != "text" {
            let what = "a block in documentation is ```text: make a test of code".to_owned();
            findings.push(Finding::new(&file.path, number + 1, what));
        }
    }
}

/// Checks that each test is in one of the two lists of the test command; an ignored test is in the
/// list of `--all`. Also checks that no module is compiled from the directory of other tests.
fn attributes_of_tests(file: &File, findings: &mut Vec<Finding>) {
    if !file.path.ends_with(".rs") {
        return;
    }
    for (number, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        if line.starts_with("#[ignore") && !line.starts_with(rules::IGNORED_TEST) {
            let what = format!("an ignored test has the reason {}REASON\"]", rules::IGNORED_TEST);
            findings.push(Finding::new(&file.path, number + 1, what));
        }
        if line.starts_with(rules::PATH_ELSEWHERE) {
            let what = "a module of another folder: make it one of pinstripe-testing or -sim";
            findings.push(Finding::new(&file.path, number + 1, what));
        }
    }
}

fn sizes(file: &Scanned, findings: &mut Vec<Finding>) {
    let limit = rules::FILE_LINES;
    let judge = |line, name: &str, lines: usize, limit: &rules::Limit| {
        let what = format!("{name} has {lines} lines, more than {}", limit.warn);
        match lines {
            _ if lines > limit.fail => {
                let what = format!("{name} has {lines} lines; the limit is {}", limit.fail);
                Some(Finding::new(&file.path, line, what))
            }
            _ if lines > limit.warn => Some(Finding::warning(&file.path, line, what)),
            _ => None,
        }
    };
    findings.extend(judge(0, "the file", file.source.product_lines, &limit));
    for function in file.source.functions() {
        let name = format!("fn {}", function.name);
        findings.extend(judge(function.line, &name, function.lines, &rules::FUNCTION_LINES));
    }
}

/// Finds functions whose names would disturb every search for possible panics.
fn misleading_names(file: &Scanned, findings: &mut Vec<Finding>) {
    for function in file.source.functions().iter().filter(|it| rules::NO_NAMES.contains(&&*it.name))
    {
        let what = format!("fn {} reads like a call that panics: call it otherwise", function.name);
        findings.push(Finding::new(&file.path, function.line, what));
    }
}

/// Finds `unwrap()` in released code; an `expect` states why it cannot fail.
fn panics(file: &Scanned, findings: &mut Vec<Finding>) {
    let is_unshipped = rules::UNSHIPPED.iter().any(|part| file.path.contains(part));
    if is_unshipped || !file.path.contains("/src/") {
        return;
    }
    let text = &file.source.product;
    for at in whole_words(text, b"unwrap").filter(|at| text[at + 6..].starts_with(b"()")) {
        let what = "unwrap() in shipped code: an error, or an expect that says why it holds";
        findings.push(Finding::new(&file.path, file.source.line(at), what));
    }
}

/// Finds public types of one crate that have the same name, so that a reader cannot tell which is
/// meant.
fn shared_names(scanned: &[Scanned], findings: &mut Vec<Finding>) {
    let mut first: HashMap<(&str, String), &str> = HashMap::new();
    for file in scanned {
        let Some((folder, _)) = file.path.split_once("/src/") else { continue };
        for (name, at) in file.source.public_types() {
            match first.entry((folder, name)) {
                Entry::Vacant(entry) => {
                    entry.insert(&file.path);
                }
                Entry::Occupied(entry) => {
                    let what = format!("{} names a type of {} too", entry.key().1, entry.get());
                    findings.push(Finding::new(&file.path, file.source.line(at), what));
                }
            }
        }
    }
}

/// Compares the number of names that public types of several crates have in common with the ratchet
/// `most`.
pub fn names_of_crates(scanned: &[Scanned], most: usize) -> Option<Finding> {
    let mut crates: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in scanned {
        let Some((folder, _)) = file.path.split_once("/src/") else { continue };
        for (name, _) in file.source.public_types() {
            crates.entry(name).or_default().insert(folder);
        }
    }
    crates.retain(|_, folders| folders.len() > 1);
    ratchet(crates.len(), most, "NAMES_OF_SEVERAL_CRATES", |found| {
        let names: Vec<&str> = crates.keys().map(String::as_str).collect();
        let what = format!("{found} names of public types are used in several crates");
        (what, format!("rename the newest of {}", names.join(", ")))
    })
}

/// Finds files that no `mod` declares, which the compiler never sees.
fn dead_files(scanned: &[Scanned], findings: &mut Vec<Finding>) {
    let declared: Vec<String> = scanned
        .iter()
        .flat_map(|file| file.source.modules.iter().map(|name| child(&file.path, name)))
        .collect();
    for file in scanned {
        let stem = file.path.trim_end_matches(".rs");
        let module = stem.trim_end_matches("/mod");
        let root = ["/lib", "/main", "/build"].iter().any(|end| stem.ends_with(end))
            || stem.contains("/bin/");
        if !root && !declared.iter().any(|declared| declared == module) {
            findings.push(Finding::new(&file.path, 0, "no mod declares this file"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::super::tests::{file, lines};
    use super::*;

    const CORE_FILE: &str = "crates/pinstripe/src/chunk/mod.rs";

    fn found(path: &str, text: &str) -> Vec<String> {
        let root = file("crates/pinstripe/src/lib.rs", "mod chunk; mod pipeline; mod clock;");
        let files = [root, file(path, text)];
        lines(check(&files, &scan(&files)))
    }

    #[test]
    fn banned_texts_are_found_in_prose_too() {
        let found = found("doc/a.md", "fine\nFIXME later\nsee /Users/x, not a/Users/x, XXXL\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("doc/a.md:2: FIXME"), "{found:?}");
        assert!(found[1].contains("doc/a.md:3: /Users/"), "{found:?}");
    }

    #[test]
    fn code_in_documentation_is_found_and_text_is_not() {
        let text = "//! ```text\n//! a -> b\n//! ```\nfn a() {\n    /// ```\n    /// b();\n    /// ```\n}\n";
        let found = found(CORE_FILE, text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("mod.rs:5: "), "{found:?}");
    }

    #[test]
    fn an_ignored_test_is_one_of_the_long_list() {
        let text = "#[test]\n#[ignore = \"with --all: it boots\"]\nfn a() {}\n    #[ignore]\n";
        let found = found("crates/pinstripe/tests/it/a.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("a.rs:4: "), "{found:?}");
    }

    #[test]
    fn a_module_is_not_compiled_from_another_folder() {
        let text = "#[path = \"own.rs\"]\nmod a;\n#[path = \"../it/look.rs\"]\nmod look;\n";
        let found = found("crates/pinstripe/tests/it/a.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("a.rs:3: "), "{found:?}");
    }

    #[test]
    fn sizes_warn_first_and_fail_later() {
        let function = |lines: usize| format!("fn a() {{\n{}}}\n", "b();\n".repeat(lines - 2));
        let body = |lines: usize| "// prose\n".repeat(lines);
        assert_eq!(found(CORE_FILE, &function(70)), Vec::<String>::new());
        assert!(found(CORE_FILE, &function(71))[0].starts_with("warning: "));
        assert!(found(CORE_FILE, &function(101))[0].starts_with("error: "));
        assert_eq!(found(CORE_FILE, &body(400)), Vec::<String>::new());
        assert!(found(CORE_FILE, &body(401))[0].starts_with("warning: "));
        assert!(found(CORE_FILE, &body(601))[0].starts_with("error: "));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// prose\n".repeat(700));
        assert_eq!(found(CORE_FILE, &tests), Vec::<String>::new());
    }

    #[test]
    fn names_that_two_types_share_and_names_that_mislead_are_told() {
        let files = [
            file("crates/pinstripe/src/lib.rs", "mod chunk; pub struct Cutter;"),
            file("crates/pinstripe-io/src/lib.rs", "pub struct Options;"),
            file(CORE_FILE, "\npub struct Cutter;\npub struct Options;\nfn expect() {}"),
        ];
        let found = lines(check(&files, &scan(&files)));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("mod.rs:4: fn expect"), "{found:?}");
        assert!(found[1].contains("mod.rs:2: Cutter names"), "{found:?}");
    }

    #[test]
    fn unwrap_is_for_tests_and_what_is_never_shipped() {
        let code = "fn a() {\n    b().unwrap();\n    c().unwrap_or(1); // d().unwrap()\n}\n";
        let tests = "#[cfg(test)]\nmod tests {\n    fn e() { f().unwrap(); }\n}\n";
        let told = found(CORE_FILE, &format!("{code}{tests}"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("mod.rs:2: unwrap()"), "{told:?}");
        let shared = file("crates/pinstripe-testing/src/lib.rs", code);
        assert!(
            check(std::slice::from_ref(&shared), &scan(std::slice::from_ref(&shared))).is_empty()
        );
    }

    #[test]
    fn names_that_several_crates_share_may_only_become_fewer() {
        let files = [
            file("crates/pinstripe/src/lib.rs", "pub struct Options; pub struct Cutter;"),
            file("crates/pinstripe-io/src/lib.rs", "pub enum Options {} pub trait Lane {}"),
            file("crates/pinstripe-lab/src/lib.rs", "pub type Options = u8; struct Lane;"),
        ];
        let told = |most| names_of_crates(&scan(&files), most).map(|it| it.to_string());
        assert_eq!(told(1), None);
        assert!(
            told(0).is_some_and(|it| it.starts_with("error: 1 ") && it.ends_with("of Options"))
        );
        assert!(told(2).is_some_and(|it| it.starts_with("warning: 1 names")));
    }

    #[test]
    fn a_file_that_no_module_declares_is_dead() {
        let found = found("crates/pinstripe/src/chunk/attic.rs", "");
        assert!(found[0].contains("no mod declares this file"), "{found:?}");
    }
}
