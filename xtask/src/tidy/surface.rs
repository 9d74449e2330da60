//! Rules on the public items of a library: its root re-exports what other crates use, and no other
//! item is public. An unused public item prevents the compiler from finding dead code, and a reader
//! takes it for a promise.
//!
//! An item counts as used if any Rust file outside the crate's `src`, including tests and comments,
//! contains its name or the name that the root of the crate gives it. So the true number of unused
//! items can be higher, but never lower.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::paths;
use super::source::{skip_blanks, whole_words, word_at, words};
use super::{File, Finding, Scanned, ratchet, rules};

/// Crates that are not libraries: programs, and crates for tests.
const NO_LIBRARIES: [&str; 2] = ["crates/pinstripe-cli", "crates/pinstripe-testing"];

/// Returns every public module in the root of a library, except in [`rules::PUBLIC_ROOTS`].
pub fn roots(scanned: &[Scanned]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for root in scanned.iter().filter(|file| file.path.ends_with("/src/lib.rs")) {
        if crate_of(&root.path).is_none_or(|folder| rules::PUBLIC_ROOTS.contains(&folder)) {
            continue;
        }
        let code = &root.source.product;
        for at in whole_words(code, b"pub") {
            let kind = skip_blanks(code, at + "pub".len());
            if word_at(code, kind) == "mod" {
                let name = word_at(code, skip_blanks(code, kind + "mod".len()));
                let what = format!("module {name} is public: re-export what other crates use");
                findings.push(Finding::new(&root.path, root.source.line(at), what));
            }
        }
    }
    findings
}

/// Limits the number of unused public items by a ratchet at `most`.
pub fn unused(files: &[File], scanned: &[Scanned], most: usize) -> Option<Finding> {
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let user = crate_of(&file.path).unwrap_or("others");
        for word in words(&file.text) {
            users.entry(word).or_default().insert(user);
        }
    }
    let renamed = renamed(scanned);
    let is_used = |folder: &str, name: &str| {
        users.get(name).is_some_and(|users| users.iter().any(|it| *it != folder))
    };
    let mut unused = Vec::new();
    for file in scanned {
        let Some(folder) = crate_of(&file.path) else { continue };
        if NO_LIBRARIES.contains(&folder) {
            continue;
        }
        for (name, at) in file.source.public_items() {
            let alias = renamed.get(&(folder, name.clone()));
            if !is_used(folder, &name) && !alias.is_some_and(|alias| is_used(folder, alias)) {
                unused.push(format!("{}:{}: {name}", file.path, file.source.line(at)));
            }
        }
    }
    ratchet(unused.len(), most, "UNUSED_PUBLIC_ITEMS", |found| {
        let names = unused.join(", ");
        let what = format!("{found} public items are used by no other crate");
        (what, format!("make them pub(crate): {names}"))
    })
}

/// The names that the roots of crates give to items, by the directory of the crate and the item's
/// own name.
fn renamed(scanned: &[Scanned]) -> BTreeMap<(&str, String), String> {
    let mut renamed = BTreeMap::new();
    for root in scanned.iter().filter(|file| file.path.ends_with("/src/lib.rs")) {
        let Some(folder) = crate_of(&root.path) else { continue };
        for path in paths(&root.source.product).into_iter().filter(|path| path.is_reexport) {
            let Some(name) = path.names.last().filter(|name| **name != path.alias) else {
                continue;
            };
            renamed.insert((folder, name.clone()), path.alias);
        }
    }
    renamed
}

/// Returns the directory of the crate whose `src` contains a file.
fn crate_of(path: &str) -> Option<&str> {
    path.split_once("/src/").map(|(folder, _)| folder).filter(|it| it.starts_with("crates/"))
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::super::tests::{file, lines};
    use super::*;

    #[test]
    fn the_root_of_a_library_has_no_public_modules() {
        let root = "mod lane;\npub mod pool; pub use lane::Lane; pub(crate) mod own;\n\
                    #[cfg(test)]\npub mod tests;";
        let files = [
            file("crates/pinstripe-nbd/src/lib.rs", root),
            file("crates/pinstripe-nbd/src/lane/mod.rs", root),
            file("crates/pinstripe-io/src/lib.rs", root),
        ];
        let found = lines(roots(&scan(&files)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("pinstripe-nbd/src/lib.rs:2: module pool"), "{found:?}");
    }

    #[test]
    fn an_item_that_no_other_crate_names_counts() {
        let files = [
            file(
                "crates/pinstripe-io/src/lib.rs",
                "pub struct Lane; pub fn cut() {} pub(crate) fn own() {} pub const MOST: u8 = 1; \
                 mod parts; pub use parts::{open as open_lane, shut as shut_lane};",
            ),
            file("crates/pinstripe-io/src/parts.rs", "pub fn open() {} pub fn shut() {}"),
            file("crates/pinstripe-io/src/lane.rs", "fn uses() { cut() }"),
            file("crates/pinstripe-io/tests/lane.rs", "fn tests(_: Lane) { open_lane() }"),
            file("crates/pinstripe-cli/src/main.rs", "pub fn run() {}"),
        ];
        let told = |most| unused(&files, &scan(&files), most).map(|it| it.to_string());
        assert_eq!(told(3), None);
        let more = told(2).unwrap();
        assert!(more.starts_with("error: 3 "), "{more}");
        assert!(["cut", "MOST", "shut"].iter().all(|name| more.contains(name)), "{more}");
        assert!(told(4).unwrap().starts_with("warning: 3 "));
    }
}
