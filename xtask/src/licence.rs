//! The licences that dependencies may have: every crate that the workspace is built or tested with
//! must be free of copyleft.
//!
//! The SPDX expression of each manifest is judged: of an `OR` one side must be permitted, of an
//! `AND` both. A crate without a licence in its manifest is refused.

use crate::workspace::Workspace;

/// The permitted licences. All of them are permissive; a licence that is not listed here is
/// refused, whatever it says.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Every crate of the dependency graph whose licence is not permitted, with the path of
/// dependencies that leads to it.
pub fn refused(workspace: &Workspace) -> Vec<String> {
    let ways = workspace.ways(&workspace.members, true);
    let mut findings = Vec::new();
    for (id, way) in &ways {
        let Some(package) = workspace.packages.get(id) else { continue };
        let judged = match &package.licence {
            None => Err("names no licence".to_owned()),
            Some(expression) => match allowed(expression) {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!("has licence {expression}")),
                Err(why) => Err(format!("has licence {expression}, which cannot be read: {why}")),
            },
        };
        if let Err(why) = judged {
            let way = workspace.show_way(way);
            findings.push(format!("{} {} {why}; by way of {way}", package.name, package.version));
        }
    }
    findings
}

/// Whether an SPDX expression permits a choice of permitted licences only.
fn allowed(expression: &str) -> Result<bool, String> {
    // Old manifests write `MIT/Apache-2.0` for a choice.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut words = words.as_slice();
    let judged = choice(&mut words)?;
    match words.first() {
        None => Ok(judged),
        Some(word) => Err(format!("'{word}' stands where it should end")),
    }
}

fn choice(words: &mut &[&str]) -> Result<bool, String> {
    let mut judged = union(words)?;
    while take(words, "OR") {
        judged |= union(words)?;
    }
    Ok(judged)
}

fn union(words: &mut &[&str]) -> Result<bool, String> {
    let mut judged = one(words)?;
    while take(words, "AND") {
        judged &= one(words)?;
    }
    Ok(judged)
}

fn one(words: &mut &[&str]) -> Result<bool, String> {
    if take(words, "(") {
        let judged = choice(words)?;
        return if take(words, ")") { Ok(judged) } else { Err("a ')' is missing".to_owned()) };
    }
    let Some((&name, rest)) = words.split_first() else {
        return Err("it ends too early".to_owned());
    };
    *words = rest;
    if !take(words, "WITH") {
        return Ok(ALLOWED.contains(&name));
    }
    let Some((&exception, rest)) = words.split_first() else {
        return Err("it ends too early".to_owned());
    };
    *words = rest;
    Ok(ALLOWED.contains(&format!("{name} WITH {exception}").as_str()))
}

fn take(words: &mut &[&str], wanted: &str) -> bool {
    let found = words.first() == Some(&wanted);
    if found {
        *words = &words[1..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::made_up;

    #[test]
    fn expressions_are_judged_by_the_choice_they_leave() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "Apache-2.0 / MIT",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
        ] {
            assert_eq!(allowed(good), Ok(true), "{good}");
        }
        for bad in [
            "GPL-2.0-or-later",
            "LGPL-3.0",
            "AGPL-3.0-only",
            "MIT AND GPL-2.0-only",
            "MIT AND (GPL-2.0 OR LGPL-2.1)",
            "GPL-2.0-only WITH Classpath-exception-2.0",
            "SomethingNew-1.0",
        ] {
            assert_eq!(allowed(bad), Ok(false), "{bad}");
        }
        for broken in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "MIT WITH"] {
            assert!(allowed(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_copyleft_crate_is_named_with_its_way_in() {
        let space = made_up(
            &["ours"],
            &[
                ("ours", "MIT", &["fine"], &["silent"]),
                ("fine", "MIT", &["deep"], &[]),
                ("deep", "GPL-3.0-or-later", &[], &[]),
                ("silent", "", &[], &[]),
            ],
        );
        assert_eq!(
            refused(&space),
            [
                "deep 1 has licence GPL-3.0-or-later; by way of ours 1 -> fine 1 -> deep 1",
                "silent 1 names no licence; by way of ours 1 -> silent 1",
            ]
        );
    }
}
