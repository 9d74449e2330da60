//! Reading back: read-ahead by its rules alone, overlays, and mounts of snapshots.
//!
//! Four parts: rules in virtual time, compared with those of other systems; an overlay of a
//! directory whose reads take 40 ms; an overlay of a local directory, where it can only lose; and a
//! mount of a backed up tree, compared with `restic mount` and `borg mount` of the same tree.

mod local;
mod mounts;
mod place;
mod rules;
mod slow;

use std::fs;
use std::path::PathBuf;

use pinstripe_base::units::GIB;
use pinstripe_lab::Table;

use super::bench::{self, Bench, Part, absolute};
use super::pairs;
use crate::Result;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "read-ahead, overlay and mount: --only rules|slow|local|mount, --source \
                         TREE, --image-size SIZE, --work DIR (30 GB free), --restic FILE, \
                         --pinstripe FILE; needs /dev/fuse";

const PARTS: &[Part<Settings>] = &[
    Part { name: "rules", measure: |_| rules::table() },
    Part { name: "slow", measure: slow::table },
    Part { name: "local", measure: local::table },
    Part { name: "mount", measure: mounts::table },
];

/// The requested settings.
struct Settings {
    bench: Bench,
    source: Option<PathBuf>,
    image_bytes: u64,
    only: Option<&'static str>,
}

/// Makes the tables.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let mut settings =
        Settings { bench: Bench::new()?, source: None, image_bytes: 4 * GIB, only: None };
    let known =
        ["--only", "--source", "--image-size", "--work", "--rounds", "--restic", "--pinstripe"];
    for (name, value) in pairs(args, &known)? {
        match name {
            "--only" => settings.only = Some(bench::only(PARTS, value)?),
            "--source" => settings.source = Some(absolute(value)?),
            "--image-size" => settings.image_bytes = bench::size(value)?,
            _ => settings.bench.set(name, value)?,
        }
    }
    let work = &settings.bench.work;
    fs::create_dir_all(work.join("logs")).map_err(|e| format!("{}: {e}", work.display()))?;
    bench::measure(PARTS, settings.only, &settings)
}
