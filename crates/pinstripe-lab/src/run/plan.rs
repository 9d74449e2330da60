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
    /// The name, which is unique in its case.
    pub name: String,
    /// The group; variants of one group are compared with its baseline, and end together.
    pub group: String,
    /// The purpose, for people.
    pub about: String,
    /// The parameters in which the variant differs from others.
    pub parameters: Vec<Parameter>,
    /// The metric of the variant's values.
    pub metric: Metric,
    /// The place whose disk the guard watches; without places, no disk is watched.
    pub place: PlaceNo,
}

impl From<VariantSpec> for Variant {
    /// Converts a specification to a variant without runs.
    fn from(spec: VariantSpec) -> Self {
        let VariantSpec { name, group, about, parameters, metric, place: _ } = spec;
        Variant { name, group, about, parameters, metric, runs: Vec::new() }
    }
}

/// A case whose options have been read: defines what is measured and how it is measured once.
///
/// The calls come in this order: `may_begin`, `prepare`, then for each run `ready`, `run` and
/// `check`, and at the end `clean`, also after an error or an interrupt. Only the time of `run` is
/// measured.
pub trait Plan {
    /// Every parameter, including defaults, in the order in which they are shown.
    fn parameters(&self) -> Vec<Parameter>;

    /// The variants; the order is the one in which results are shown.
    fn variants(&self) -> Vec<VariantSpec>;

    /// Directories and devices that are measured.
    fn places(&self) -> Vec<PathBuf>;

    /// Notes on all results, for people; they are requested again after `prepare`.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Descriptions of the files that are created and overwritten, for people: "make 128 files
    /// ...".
    fn intents(&self) -> Vec<String>;

    /// The directories that need space, each with the number of bytes: all that exists at the same
    /// time. The plan does not begin if this space is not available.
    fn room(&self) -> Vec<(PathBuf, u64)> {
        Vec::new()
    }

    /// Checks whether the plan can begin, without changing anything; a rehearsal calls this as a
    /// run does. The check may read a device.
    ///
    /// # Errors
    /// The errors that `prepare` would return, as far as they can be predicted: for example a
    /// device that is too short, or a missing permission or program.
    fn may_begin(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the values are counts instead of times: then one run of each variant is enough, no
    /// warm-up is needed, and a run cannot be disturbed.
    fn is_exact(&self) -> bool {
        false
    }

    /// Creates what all runs need.
    ///
    /// # Errors
    /// Any error of the case; then nothing is measured, and `clean` is called.
    fn prepare(&mut self, live: &Live) -> Result<()>;

    /// Prepares the next run of a variant: creates files again, drops caches.
    ///
    /// # Errors
    /// Any error of the case; then no further run is made, and the runs made so far are kept.
    fn ready(&mut self, variant: VariantNo, live: &Live) -> Result<()>;

    /// Runs a variant once. `number` makes random choices differ from run to run.
    ///
    /// # Errors
    /// Any error of the case; then this run is dropped, and no further run is made.
    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome>;

    /// Checks the result of a run. The time of the check is not measured.
    ///
    /// # Errors
    /// Any error of the case, such as content that differs; then the run is dropped, and no further
    /// run is made.
    fn check(&mut self, _variant: VariantNo, _live: &Live) -> Result<()> {
        Ok(())
    }

    /// Removes everything that the plan created.
    ///
    /// # Errors
    /// Any error of the case while it removes files. If there is an earlier error that is not an
    /// interrupt, that error is reported instead.
    fn clean(&mut self) -> Result<()>;
}

/// The outcome of one run of a variant: the figures that are kept, and the data with which the
/// engine distinguishes its work from that of other processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// The measured value, with its additional figures.
    pub measured: Measured,
    /// Bytes that the run read in addition to those requested: parity, logs, metadata. These bytes
    /// do not count as a disturbance.
    pub beside_read_bytes: u64,
    /// Bytes that the run wrote in addition to those requested.
    pub beside_written_bytes: u64,
    /// The share of the requested bytes that the disk has to store if the content is compressed or
    /// deduplicated inline; only this share has to come from the disk.
    pub stored_share: Option<f64>,
    /// The number of waits until bytes were durable.
    pub syncs: u64,
    /// Notes needed to read the value.
    pub notes: Vec<Note>,
    /// Processor time that another program took if one was run, or that the kernel's threads took
    /// if a run leaves much work to them.
    pub other_cpu_s: f64,
}
