//! The interface between a case and the engine that carries it out: variants, and one run of each.

use std::path::PathBuf;

use pinstripe_base::error::Result;

use super::Live;
use crate::result::{Measured, Metric, Note, Parameter, Variant};

/// The number of a variant: its index in [`Plan::variants`] and in the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VariantNo(pub usize);

/// The number of a place: its index in [`Plan::places`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceNo(pub usize);

impl PlaceNo {
    /// The place of all variants of a plan that has one place, or none.
    pub const FIRST: PlaceNo = PlaceNo(0);
}

/// A variant before it is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantSpec {
    /// The name, the only one in its case.
    pub name: String,
    /// Variants of one group are compared with its baseline, and end together.
    pub group: String,
    /// The purpose, for people.
    pub about: String,
    /// In what it differs from others.
    pub parameters: Vec<Parameter>,
    /// The metric of its value.
    pub metric: Metric,
    /// The place whose disk the guard watches; a plan without places has none to watch.
    pub place: PlaceNo,
}

impl From<VariantSpec> for Variant {
    /// Before its first run.
    fn from(spec: VariantSpec) -> Self {
        let VariantSpec { name, group, about, parameters, metric, place: _ } = spec;
        Variant { name, group, about, parameters, metric, runs: Vec::new() }
    }
}

/// A case with its options read: what is to be measured, and how that is done once.
///
/// The calls come in this order: `may_begin`, `prepare`, then for each run `ready`, `run` and `check`, at last
/// `clean`, also after an error or an interrupt. Only what `run` does is measured.
pub trait Plan {
    /// Every parameter, defaults too, in the order in which they are shown.
    fn parameters(&self) -> Vec<Parameter>;

    /// The variants; the order is the one in which results are shown.
    fn variants(&self) -> Vec<VariantSpec>;

    /// Directories and devices that are measured.
    fn places(&self) -> Vec<PathBuf>;

    /// Notes on all results, for people; asked for again when all was prepared.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The files made and overwritten, for people: "make 128 files ...".
    fn intents(&self) -> Vec<String>;

    /// The directories that need room, each with its bytes: all that exists at one time. Without
    /// this room the plan does not begin.
    fn room(&self) -> Vec<(PathBuf, u64)> {
        Vec::new()
    }

    /// Checks whether it can be begun, without changing anything: a rehearsal asks this as a run
    /// does. A device may be read by then.
    ///
    /// # Errors
    /// The errors that `prepare` would report, as far as they can be determined: for example a
    /// device that is too short, or a missing permission or program.
    fn may_begin(&self) -> Result<()> {
        Ok(())
    }

    /// Whether values are found by counting, not by the clock: then one run of each variant is
    /// enough, needs no warm-up, and cannot be disturbed.
    fn is_exact(&self) -> bool {
        false
    }

    /// Makes what all runs need.
    ///
    /// # Errors
    /// Any error of the case: nothing is measured, and `clean` is called.
    fn prepare(&mut self, live: &Live) -> Result<()>;

    /// Makes what the next run of a variant needs: files again, caches dropped.
    ///
    /// # Errors
    /// Any error of the case: no further run follows; runs made so far are kept.
    fn ready(&mut self, variant: VariantNo, live: &Live) -> Result<()>;

    /// Runs a variant once. The number makes chance differ from run to run.
    ///
    /// # Errors
    /// Any error of the case: this run is dropped, and no further one follows.
    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome>;

    /// Checks the result of a run. This is not measured.
    ///
    /// # Errors
    /// Any error of the case, such as content that differs: the run is dropped, and no further one
    /// follows.
    fn check(&mut self, _variant: VariantNo, _live: &Live) -> Result<()> {
        Ok(())
    }

    /// Removes everything that was made.
    ///
    /// # Errors
    /// Any error of the case. An earlier error, unless it is an interrupt, takes precedence.
    fn clean(&mut self) -> Result<()>;
}

/// The outcome of one run of a variant: the figures that are kept, and the data with which the
/// engine distinguishes its work from that of other processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// The value and its accompanying figures.
    pub measured: Measured,
    /// Bytes that it read in addition to those requested: parity, logs, metadata. They do not count
    /// as a disturbance.
    pub beside_read_bytes: u64,
    /// The same of bytes written.
    pub beside_written_bytes: u64,
    /// The share of the requested bytes that the disk has to hold if content is compressed or
    /// deduplicated inline: only this part has to come from the disk.
    pub stored_share: Option<f64>,
    /// Waits until bytes were durable.
    pub syncs: u64,
    /// Notes needed to read the value.
    pub notes: Vec<Note>,
    /// Processor time that another program took, where one was run, or that the kernel's threads
    /// took where a run leaves much to them.
    pub other_cpu_s: f64,
}
