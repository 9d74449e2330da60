//! The array by its library interface: granules, levels and kinds of members compared with each
//! other and with their targets; by NBD, compared with nbdkit and the disk; a rebuild, compared
//! with the speed of the members.
//!
//! Variants take turns: in each round every granule has its turn on one running array,
//! which is never stopped or emptied in between.

mod load;
mod nbd;
mod places;
mod shares;
mod table;
mod work;
mod writes;

use std::path::PathBuf;

use pinstripe_base::units::MIB;
use pinstripe_lab::Table;

use super::bench::{Bench, Part, absolute, measure, only, size};
use super::pairs;
use crate::Result;
use crate::trees;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "arrays of four members in memory, on tmpfs and on a disk: --work DIR, --shm DIR, \
                         --size SIZE (of each member), --only memory|shm|disk|nbd|writes|work|shares, --rounds N, --fio FILE, \
                         --nbdkit FILE";

const PARTS: &[Part<Settings>] = &[
    Part { name: "memory", measure: |settings| table::measure(settings, "memory") },
    Part { name: "shm", measure: |settings| table::measure(settings, "shm") },
    Part { name: "disk", measure: |settings| table::measure(settings, "disk") },
    Part { name: "nbd", measure: nbd::measure },
    Part { name: "writes", measure: writes::measure },
    Part { name: "work", measure: work::measure },
    Part { name: "shares", measure: shares::measure },
];

/// Measures all, or what `--only` names.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let settings = Settings::read(args)?;
    let tables = measure(PARTS, settings.only, &settings);
    for place in [&settings.bench.work, &settings.shm] {
        trees::remove(place)?;
    }
    tables
}

struct Settings {
    bench: Bench,
    only: Option<&'static str>,
    /// A directory in memory.
    shm: PathBuf,
    /// Data bytes of each member.
    member_bytes: u64,
    fio: PathBuf,
    nbdkit: PathBuf,
}

impl Settings {
    fn read(args: &[String]) -> Result<Settings> {
        let mut settings = Settings {
            bench: Bench::new()?,
            only: None,
            shm: PathBuf::from("/dev/shm"),
            member_bytes: 128 * MIB,
            fio: PathBuf::from("fio"),
            nbdkit: PathBuf::from("nbdkit"),
        };
        let known = ["--work", "--shm", "--size", "--only", "--rounds", "--fio", "--nbdkit"];
        for (name, value) in pairs(args, &known)? {
            match name {
                "--only" => settings.only = Some(only(PARTS, value)?),
                "--size" => settings.member_bytes = size(value)?,
                "--shm" => settings.shm = absolute(value)?,
                "--fio" => settings.fio = PathBuf::from(value),
                "--nbdkit" => settings.nbdkit = PathBuf::from(value),
                _ => settings.bench.set(name, value)?,
            }
        }
        settings.bench.work.push("array");
        settings.shm.push(format!("pinstripe-bench-{}", std::process::id()));
        Ok(settings)
    }
}
