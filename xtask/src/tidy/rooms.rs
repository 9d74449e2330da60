//! Rules on imports between the modules (rooms) of a crate: a module imports only from lower
//! floors.

use super::rules::Rooms;
use super::source::HIDDEN;
use super::{Finding, Scanned, rules};

/// Returns every import from a higher floor, from the same floor, or from outside a module's narrow
/// list.
pub fn check(scanned: &[Scanned]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in scanned {
        let inner = |rooms: &Rooms| file.path.strip_prefix(rooms.folder)?.strip_prefix('/');
        for rooms in rules::ROOMS {
            if let Some(inner) = inner(rooms) {
                check_file(rooms, inner, file, &mut findings);
            }
        }
    }
    findings
}

fn check_file(rooms: &Rooms, inner: &str, file: &Scanned, findings: &mut Vec<Finding>) {
    let module: Vec<&str> =
        inner.trim_end_matches(".rs").split('/').filter(|part| *part != "mod").collect();
    let room = module[0];
    if matches!(room, "lib" | "main") {
        return; // The root names all rooms.
    }
    if rooms.floor(room).is_none() {
        let what = format!("room {room} has no floor in ROOMS of xtask/src/tidy/rules.rs");
        findings.push(Finding::new(&file.path, 0, what));
        return;
    }
    for (named, at) in file.source.rooms_named(module.len()) {
        if let Some(why) = rooms.refused(room, &named) {
            findings.push(Finding::new(&file.path, file.source.line(at), why));
        }
    }
}

impl Rooms {
    /// Returns why `room` may not import `named`; `None` if it may, or if `named` is not a room.
    fn refused(&self, room: &str, named: &str) -> Option<String> {
        if named == HIDDEN {
            return Some(format!("{room} imports the root of the crate: name the room instead"));
        }
        let (from, to) = (self.floor(room)?, self.floor(named)?);
        if room == named {
            return None;
        }
        if let Some((_, allowed)) = self.narrow.iter().find(|(narrow, _)| *narrow == room) {
            let only = allowed.join(", ");
            return (!allowed.contains(&named))
                .then(|| format!("{room} imports {named}; it may import {only} only"));
        }
        if from < to || self.neighbours.contains(&(room, named)) {
            return None;
        }
        Some(match from > to {
            true => format!("{room} imports {named}, which stands above it"),
            false => {
                format!("{room} imports {named}: they stand side by side and meet in a room above")
            }
        })
    }

    fn floor(&self, room: &str) -> Option<usize> {
        self.floors.iter().position(|floor| floor.contains(&room))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::super::tests::{file, lines};
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        lines(check(&scan(&[file(&format!("crates/{path}"), text)])))
    }

    #[test]
    fn imports_down_the_floors_pass() {
        for (path, text) in [
            ("pinstripe/src/ops/backup.rs", "use crate::{pipeline, store, walk};"),
            ("pinstripe/src/store/mod.rs", "use crate::walk::Walk; use crate::sink::Sink;"),
            ("pinstripe-stripe/src/codec/lzo.rs", "use super::Codec; use crate::codec::Level;"),
            ("pinstripe-stripe/src/codec/lzo.rs", "mod deep { use super::super::Codec; }"),
            ("pinstripe-member/src/fault/mod.rs", "use crate::memory::MemoryMember;"),
            ("pinstripe-member/src/format/pack.rs", "use crate::secret;"),
            ("pinstripe-stripe/src/chunk/mod.rs", "#[cfg(test)]\nmod tests { use crate::codec; }"),
            ("pinstripe/src/lib.rs", "pub use crate::ops;"),
        ] {
            assert_eq!(found(path, text), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn imports_up_or_sideways_are_refused_with_their_line() {
        for (path, text, line, part) in [
            ("pinstripe-stripe/src/chunk/mod.rs", "\nuse crate::codec::Codec;", 2, "side by side"),
            (
                "pinstripe-stripe/src/chunk/cut.rs",
                "fn a() { super::super::dedup::b() }",
                1,
                "side by side",
            ),
            ("pinstripe/src/walk/mod.rs", "use crate::{source, store};", 1, "stands above"),
            ("pinstripe/src/source/mod.rs", "use crate::sink;", 1, "side by side"),
            (
                "pinstripe-member/src/format/pack.rs",
                "\n\nuse crate::process;",
                3,
                "may import secret only",
            ),
            ("pinstripe-member/src/secret.rs", "use crate::format::label;", 1, "stands above"),
            // However it is written.
            (
                "pinstripe/src/walk/mod.rs",
                "use crate as me; fn x(_: &me::store::Store) {}",
                1,
                "the root",
            ),
            ("pinstripe/src/walk/mod.rs", "use crate::*; fn x(_: &store::Store) {}", 1, "the root"),
            (
                "pinstripe/src/walk/mod.rs",
                "mod deep { fn x(_: &super::super::store::Store) {} }",
                1,
                "stands above",
            ),
        ] {
            let found = found(path, text);
            assert!(!found.is_empty(), "{path}: {text}");
            assert!(found[0].contains(&format!("{path}:{line}: ")), "{found:?}");
            assert!(found[0].contains(part), "{found:?}");
        }
        assert!(found("pinstripe/src/attic/mod.rs", "")[0].contains("has no floor"));
    }
}
