//! Edges between the rooms of the library: imports go down the floors, stages never meet.

use super::{Finding, Scanned, rules};

/// Every import that goes up, sideways, or past a narrow door.
pub fn check(scanned: &[Scanned]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in scanned {
        let Some(inner) = file.path.strip_prefix(rules::LIBRARY) else { continue };
        let module: Vec<&str> = inner
            .trim_start_matches('/')
            .trim_end_matches(".rs")
            .split('/')
            .filter(|part| *part != "mod")
            .collect();
        let room = module[0];
        if room == "lib" {
            continue; // The root names all rooms.
        }
        if floor(room).is_none() {
            let what = format!("room {room} has no floor in FLOORS of xtask/src/tidy/rules.rs");
            findings.push(Finding::new(&file.path, 0, what));
            continue;
        }
        for (named, at) in file.source.rooms_named(module.len()) {
            if let Some(why) = refused(room, &named) {
                findings.push(Finding::new(&file.path, file.source.line(at), why));
            }
        }
    }
    findings
}

/// Why `room` may not import `named`; none when it may, or when `named` is no room.
fn refused(room: &str, named: &str) -> Option<String> {
    let (from, to) = (floor(room)?, floor(named)?);
    if room == named {
        return None;
    }
    if let Some((_, allowed)) = rules::NARROW.iter().find(|(narrow, _)| *narrow == room) {
        let only = allowed.join(", ");
        return (!allowed.contains(&named))
            .then(|| format!("{room} imports {named}; it may import {only} only"));
    }
    if from < to || rules::NEIGHBOURS.contains(&(room, named)) {
        return None;
    }
    if from > to {
        return Some(format!("{room} imports {named}, which stands above it"));
    }
    (from != rules::GROUND).then(|| {
        format!("{room} imports {named}: they stand side by side and meet in pipeline or ops")
    })
}

fn floor(room: &str) -> Option<usize> {
    rules::FLOORS.iter().position(|floor| floor.contains(&room))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, lines};
    use super::super::{rules, scan};
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        lines(check(&scan(&[file(&format!("{}/{path}", rules::LIBRARY), text)])))
    }

    #[test]
    fn imports_down_the_floors_pass() {
        for (path, text) in [
            ("ops/backup.rs", "use crate::{pipeline, store, walk, error::Result};"),
            ("store/mod.rs", "use crate::stripe::Geometry; use crate::member::Member;"),
            ("codec/lzo.rs", "use super::Codec; use crate::codec::Level; use crate::units;"),
            ("fault/mod.rs", "use crate::member::Member;"),
            ("monitor.rs", "use crate::error::Error;"),
            ("format/pack.rs", "use crate::{id, units, error};"),
            ("chunk/mod.rs", "#[cfg(test)]\nmod tests { use crate::codec; }"),
            ("lib.rs", "pub use crate::ops;"),
        ] {
            assert_eq!(found(path, text), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn imports_up_or_sideways_are_refused_with_their_line() {
        for (path, text, line, part) in [
            ("chunk/mod.rs", "\nuse crate::codec::Codec;", 2, "side by side"),
            ("chunk/cut.rs", "fn a() { super::super::dedup::b() }", 1, "side by side"),
            ("member/mod.rs", "use crate::{error, store};", 1, "stands above"),
            ("member/mod.rs", "use crate::fault;", 1, "side by side"),
            (
                "format/pack.rs",
                "\n\nuse crate::monitor::Monitor;",
                3,
                "may import id, units, error",
            ),
            ("error.rs", "use crate::ops::backup;", 1, "stands above"),
        ] {
            let found = found(path, text);
            assert_eq!(found.len(), 1, "{path}: {found:?}");
            assert!(found[0].contains(&format!("{path}:{line}: ")), "{found:?}");
            assert!(found[0].contains(part), "{found:?}");
        }
        assert!(found("attic/mod.rs", "")[0].contains("has no floor"));
    }
}
