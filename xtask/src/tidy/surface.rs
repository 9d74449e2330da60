//! The public items of a library that nothing outside its crate uses: they hide what is dead from
//! the compiler, and a reader takes them for promises.
//!
//! An item counts as used when any Rust file outside the crate's `src` has its name, tests and
//! comments included. So the true number is higher, and never lower.

use std::collections::{BTreeMap, BTreeSet};

use super::source::words;
use super::{File, Finding, Scanned, ratchet};

/// Crates that are not libraries: programs, and helpers of tests.
const NO_LIBRARIES: [&str; 2] = ["crates/pinstripe-cli", "crates/pinstripe-testing"];

/// Holds the number of unused public items by a ratchet at `most`.
pub fn unused(files: &[File], scanned: &[Scanned], most: usize) -> Option<Finding> {
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let user = crate_of(&file.path).unwrap_or("others");
        for word in words(&file.text) {
            users.entry(word).or_default().insert(user);
        }
    }
    let mut unused = Vec::new();
    for file in scanned {
        let Some(folder) = crate_of(&file.path) else { continue };
        if NO_LIBRARIES.contains(&folder) {
            continue;
        }
        for (name, at) in file.source.public_items() {
            if users.get(name.as_str()).is_none_or(|users| users.iter().all(|it| *it == folder)) {
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

/// The folder of the crate in whose `src` a file is.
fn crate_of(path: &str) -> Option<&str> {
    path.split_once("/src/").map(|(folder, _)| folder).filter(|it| it.starts_with("crates/"))
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::super::tests::file;
    use super::*;

    #[test]
    fn an_item_that_no_other_crate_names_counts() {
        let files = [
            file(
                "crates/pinstripe-io/src/lib.rs",
                "pub struct Lane; pub fn cut() {} pub(crate) fn own() {} pub const MOST: u8 = 1;",
            ),
            file("crates/pinstripe-io/src/lane.rs", "fn uses() { cut() }"),
            file("crates/pinstripe-io/tests/lane.rs", "fn tests(_: Lane) {}"),
            file("crates/pinstripe-cli/src/main.rs", "pub fn run() {}"),
        ];
        let told = |most| unused(&files, &scan(&files), most).map(|it| it.to_string());
        assert_eq!(told(2), None);
        let more = told(1).unwrap();
        assert!(more.starts_with("error: 2 ") && more.contains("cut") && more.contains("MOST"));
        assert!(told(3).unwrap().starts_with("warning: 2 "));
    }
}
