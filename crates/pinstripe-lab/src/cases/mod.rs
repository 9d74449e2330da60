//! The experiments: each case is a file that defines what it measures and with which options, and
//! makes a [`Plan`] from them.
//!
//! To add a case, add a `mod` line and a line in [`ALL`]; the command line, its help and its manual
//! are generated from these. This module does not repeat runs, compute statistics or format
//! results.

mod again;
mod catalog;
mod command;
mod dedup;
mod device;
mod disk;
mod fileio;
mod fs;
mod grid;
mod iozone;
mod knob_command;
mod leftovers;
mod opmix;
mod options;
mod pool;
mod quick;
mod readahead;
mod record_probe;
mod shared;
mod slices;
mod split;
mod stored;
mod stream;
mod streams;
mod stride;
mod stripe;
mod walk;

use std::path::PathBuf;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;

use crate::result::{Parameter, Results};
use crate::run::Plan;
use crate::table::Table;

pub use again::{Again, Elsewhere, Given, again, alone, command_line};
pub(crate) use grid::quantile_text;
pub use knob_command::{KnobCommand, with_knob_commands};
pub use leftovers::{extent_of, leftovers, remove_leftover};
pub use options::{CaseOption, ValueForm, Values};
pub use shared::refuse_plan_without_room;
pub use walk::{OtherWalker, beside as walk_beside};

/// An experiment.
#[derive(Debug)]
pub struct Case {
    /// The name on the command line.
    pub name: &'static str,
    /// The purpose of the case, in one line.
    pub about: &'static str,
    /// The long description of the case.
    pub help: &'static str,
    /// Example command lines, as the end of the help text shows them.
    pub examples: &'static str,
    /// Its own options.
    pub options: &'static [CaseOption],
    /// Reads its options.
    pub plan: fn(&Setting, &Values) -> Result<Box<dyn Plan>>,
    /// Returns tables of the results in their usual form, in addition to the table of all variants.
    pub tables: fn(&Results) -> Vec<Table>,
    /// How the measurement of the case is repeated.
    pub again: Again,
}

/// The settings of a case besides its own options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setting {
    /// Directories to work in: at least one, unless a device is given.
    pub dirs: Vec<PathBuf>,
    /// A device that may be overwritten; the caller has checked this.
    pub device: Option<PathBuf>,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Every case.
pub static ALL: &[&Case] = &[
    &fileio::CASE,
    &iozone::CASE,
    &fs::CASE,
    &streams::CASE,
    &record_probe::CASE,
    &split::CASE,
    &stripe::CASE,
    &stride::CASE,
    &readahead::CASE,
    &slices::CASE,
    &opmix::CASE,
    &dedup::CASE,
    &walk::CASE,
    &catalog::CASE,
    &command::CASE,
    &quick::CASE,
];

/// The value of a parameter as people read it: a plain number of bytes gets a unit.
pub(crate) fn shown_value(case: &str, parameter: &Parameter) -> String {
    let Parameter { name, value } = parameter;
    let options = find(case).map(|it| it.options).unwrap_or_default();
    let is_size = options.iter().any(|it| it.name == *name && it.form == ValueForm::Size);
    match value.parse::<u64>() {
        Ok(bytes) if is_size => format_size(bytes),
        _ => value.clone(),
    }
}

/// Returns the tables of the case that the results belong to; empty for an unknown case.
///
/// With knob commands, there are tables without a setting, and tables for each setting, because
/// the case cannot tell the variants apart.
pub fn tables(results: &Results) -> Vec<Table> {
    let Ok(case) = find(&results.case) else { return Vec::new() };
    let settings = knob_command::settings(&results.variants);
    if settings.is_empty() {
        return (case.tables)(results);
    }
    let with = |setting: &String| {
        let mut part = results.clone();
        part.variants.retain(|it| knob_command::setting(it) == Some(setting));
        let tables = (case.tables)(&part);
        let title = knob_command::title(setting);
        tables.into_iter().map(move |it| it.with_subtitle(&title)).collect::<Vec<_>>()
    };
    settings.iter().flat_map(with).collect()
}

/// For a case that needs only the table of its variants.
fn no_tables(_: &Results) -> Vec<Table> {
    Vec::new()
}

/// Returns the case with this name.
///
/// # Errors
/// [`Kind::NotFound`], with the names of all cases.
pub fn find(name: &str) -> Result<&'static Case> {
    let found = ALL.iter().find(|case| case.name == name).copied();
    found.ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|case| case.name).collect();
        let error = Error::new(Kind::NotFound, format!("there is no case '{name}'"));
        error.advice(format!("the cases are {}", names.join(", ")))
    })
}

/// The questions of the case `quick`.
#[cfg(test)]
pub(crate) fn quick_groups() -> Vec<String> {
    let values = Values::read(quick::CASE.options, &[]).expect("defaults are sound");
    let plan = (quick::CASE.plan)(&Setting::default(), &values).expect("defaults are sound");
    plan.variants().into_iter().map(|it| it.group).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::result::{Parameter, Results, Variant};
    use crate::run::{Effort, Live, Origin, VariantNo, measure};

    /// One run of each variant, without waiting.
    pub fn effort() -> Effort {
        Effort { warm_up: 0, patience: Duration::ZERO, budget: Duration::ZERO, ..Effort::default() }
    }

    /// One run of each variant of a case in a directory.
    pub fn measured(case: &'static Case, dir: &Path, given: &[(&str, &str)]) -> Results {
        let setting = Setting { dirs: vec![dir.to_path_buf()], device: None, seed: 7 };
        measured_in(case, &setting, given)
    }

    /// The same in several directories.
    pub fn measured_in(case: &Case, setting: &Setting, given: &[(&str, &str)]) -> Results {
        let values = Values::read(case.options, given).unwrap();
        let mut plan = (case.plan)(setting, &values).unwrap();
        let effort = effort();
        let origin = Origin { case: case.name.to_owned(), ..Origin::default() };
        let live = Arc::new(Live::new(Arc::default()));
        measure(plan.as_mut(), &effort, &origin, &live, &mut |_| Ok(())).unwrap()
    }

    /// Has a plan prepare itself, run its first variant once and find nothing wrong; the folder that it
    /// made in `dir`.
    pub fn run_once(plan: &mut dyn Plan, live: &Live, dir: &Path) -> PathBuf {
        plan.prepare(live).unwrap();
        plan.ready(VariantNo(0), live).unwrap();
        plan.run(VariantNo(0), 0, live).unwrap();
        plan.check(VariantNo(0), live).unwrap();
        std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path()
    }

    /// The first run of a variant read and wrote so many bytes.
    #[track_caller]
    pub fn assert_accessed(variant: &Variant, bytes: u64) {
        let measured = &variant.runs[0].measured;
        assert_eq!(measured.read_bytes + measured.written_bytes, bytes, "{}", variant.name);
    }

    /// Each client of a variant read so many bytes.
    #[track_caller]
    pub fn assert_each_client_read(results: &Results, bytes: u64) {
        for variant in &results.variants {
            let clients: u64 = grid::parameter(variant, "clients").parse().unwrap();
            let read = variant.runs[0].measured.read_bytes;
            assert_eq!(read, clients * bytes, "{}", variant.name);
        }
    }

    #[test]
    fn every_case_says_what_it_is_and_has_sound_defaults() {
        for case in ALL {
            assert!(std::ptr::eq(find(case.name).unwrap(), *case));
            assert!(case.examples.contains(&format!("pinstripe lab run {}", case.name)));
            let mut names: Vec<_> = case.options.iter().map(|it| it.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), case.options.len(), "{}: an option stands twice", case.name);
            // This case has nothing to measure by default.
            let needed = if case.name == "command" { &[("command", "true")][..] } else { &[] };
            let values = Values::read(case.options, needed).unwrap();
            let setting = Setting { dirs: vec![std::env::temp_dir()], device: None, seed: 1 };
            let plan = (case.plan)(&setting, &values).unwrap();
            // Every option is shown as a parameter, unless it only says what is left out.
            let shown: Vec<String> = plan.parameters().into_iter().map(|it| it.name).collect();
            for option in case.options.iter().filter(|it| it.default.is_some()) {
                assert!(shown.iter().any(|it| it == option.name), "{}: {}", case.name, option.name);
            }
        }
        assert_eq!(find("nothing").unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn a_size_is_shown_with_its_unit() {
        let shown = |name: &str, value: &str| shown_value("fileio", &Parameter::new(name, value));
        assert_eq!(shown("total-size", "8388608"), "8.0 MiB");
        assert_eq!(shown("block-size", "16K"), "16K", "as it was typed");
        assert_eq!(shown("files", "128"), "128", "a number of files is no size");
        assert_eq!(shown_value("no case", &Parameter::new("total-size", "8388608")), "8388608");
    }
}
