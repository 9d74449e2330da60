//! The store under its typical loads: many writers, many small files, sealing, a lost member,
//! deletion during a backup.
//!
//! Each table is measured in one run on the same data, and the compared variants take turns, so
//! that a neighbour's load affects both. pinstripe has four members with parity one, encrypted. In
//! comparisons with restic both are opened by a password, otherwise pinstripe by a key file, as in
//! a store with default options. Making stores and data is not measured.

mod collect;
mod crowd;
mod rebuild;
mod seal;
mod small;

use pinstripe_base::units::GIB;
use pinstripe_lab::Table;

use super::bench::{Bench, Part, measure, mib, only, say, size, timed};
use super::{count, pairs};
use crate::Result;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "many writers, small files, sealing, a lost member, gc: --work DIR (20 GB free), \
                         --only crowd|small|seal|rebuild|gc, --rounds N, --files N, --size SIZE, \
                         --restic FILE, --pinstripe FILE";

const PARTS: &[Part<Settings>] = &[
    Part { name: "crowd", measure: crowd::measure },
    Part { name: "small", measure: small::measure },
    Part { name: "seal", measure: seal::measure },
    Part { name: "rebuild", measure: rebuild::measure },
    Part { name: "gc", measure: collect::measure },
];

/// Measures all, or what `--only` names.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let settings = Settings::read(args)?;
    measure(PARTS, settings.only, &settings)
}

struct Settings {
    bench: Bench,
    only: Option<&'static str>,
    files: u64,
    bytes: u64,
}

impl Settings {
    fn read(args: &[String]) -> Result<Settings> {
        let mut settings =
            Settings { bench: Bench::new()?, only: None, files: 1_000_000, bytes: 2 * GIB };
        let known =
            ["--work", "--only", "--rounds", "--files", "--size", "--restic", "--pinstripe"];
        for (name, value) in pairs(args, &known)? {
            match name {
                "--only" => settings.only = Some(only(PARTS, value)?),
                "--files" => settings.files = count(name, value)?,
                "--size" => settings.bytes = size(value)?,
                _ => settings.bench.set(name, value)?,
            }
        }
        settings.bench.work.push("store");
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_named() {
        let read = |text: &str| {
            let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Settings::read(&args).map(|settings| (settings.only, settings.files, settings.bytes))
        };
        assert_eq!(read(""), Ok((None, 1_000_000, 2 * GIB)));
        assert_eq!(read("--only small --files 100"), Ok((Some("small"), 100, 2 * GIB)));
        for wrong in ["--only big", "--files 0", "--rounds x", "--size 0", "--size 1Q"] {
            let value = wrong.split(' ').nth(1).unwrap_or_default();
            assert!(read(wrong).unwrap_err().contains(value), "{wrong}");
        }
    }
}
