//! The interface between the engine and a runner, which carries out single runs: a plan on this
//! machine, or the same plan on several machines.

use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_base::error::Result;

use super::station::Station;
use super::{Effort, Live, Plan, VariantNo, VariantSpec};
use crate::result::{Host, Parameter, Run};

/// Carries out the runs of an execution.
///
/// The calls come in this order: `prepare`, then any number of `warm_up` and `run_once`, and at the
/// end `clean`, also after an error or an interrupt.
pub trait Runner {
    /// Every parameter of the case, including defaults, in the order in which they are shown.
    fn parameters(&self) -> Vec<Parameter>;

    /// The variants; the order is the one in which results are shown.
    fn variants(&self) -> Vec<VariantSpec>;

    /// Directories and devices of this machine that are measured.
    fn places(&self) -> Vec<PathBuf>;

    /// Notes on all results, for people; they are requested again after `prepare`.
    fn notes(&self) -> Vec<String>;

    /// Whether one run of each variant is enough: see [`Plan::is_exact`].
    fn is_exact(&self) -> bool;

    /// The machines that measure; empty if only this machine measures.
    fn hosts(&self) -> Vec<Host> {
        Vec::new()
    }

    /// Whether no further run would be comparable with the previous ones, because a machine was
    /// lost.
    fn has_ended(&self) -> bool {
        false
    }

    /// Creates what all runs need.
    ///
    /// # Errors
    /// Any error of the case; then nothing is measured, and `clean` is called.
    fn prepare(&mut self, live: &Arc<Live>) -> Result<()>;

    /// Runs a variant once and discards the measurement.
    ///
    /// # Errors
    /// Any error of the case; then no further run is made.
    fn warm_up(&mut self, variant: VariantNo, live: &Arc<Live>) -> Result<()>;

    /// Runs a variant once, under the guard. `order` makes random choices differ from run to run.
    ///
    /// # Errors
    /// Any error of the case; then this run is dropped, and no further run is made.
    fn run_once(&mut self, variant: VariantNo, order: u64, live: &Arc<Live>) -> Result<Run>;

    /// Removes everything that the plan created.
    ///
    /// # Errors
    /// Any error of the case while it removes files. If there is an earlier error that is not an
    /// interrupt, that error is reported instead.
    fn clean(&mut self) -> Result<()>;
}

/// The runner of a plan on this machine.
pub(super) struct Here<'a> {
    plan: &'a mut dyn Plan,
    station: Station,
}

impl<'a> Here<'a> {
    pub fn new(plan: &'a mut dyn Plan, effort: &Effort) -> Self {
        let station = Station::new(plan, effort);
        Here { plan, station }
    }
}

impl Runner for Here<'_> {
    fn parameters(&self) -> Vec<Parameter> {
        self.plan.parameters()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        self.plan.variants()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.plan.places()
    }

    fn notes(&self) -> Vec<String> {
        self.plan.notes()
    }

    fn is_exact(&self) -> bool {
        self.plan.is_exact()
    }

    fn prepare(&mut self, live: &Arc<Live>) -> Result<()> {
        self.plan.prepare(live)?;
        self.station.settle(self.plan);
        Ok(())
    }

    fn warm_up(&mut self, variant: VariantNo, live: &Arc<Live>) -> Result<()> {
        self.plan.ready(variant, live)?;
        self.plan.run(variant, u64::MAX, live)?;
        self.plan.check(variant, live)
    }

    fn run_once(&mut self, variant: VariantNo, order: u64, live: &Arc<Live>) -> Result<Run> {
        let Here { plan, station } = self;
        let readied = station.ready(*plan, variant, live)?;
        let run = station.run(*plan, variant, order, readied, live, &mut || Ok(()))?;
        plan.check(variant, live)?;
        Ok(run)
    }

    fn clean(&mut self) -> Result<()> {
        self.plan.clean()
    }
}
