//! A bench that is a case of the lab: its variants run in turns, a fixed number of times. Disturbed
//! runs count too.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Result as LabResult};
use pinstripe_lab::{Effort, Live, Origin, Plan, Results, Setting, Values, find_case, measure};

use crate::Result;

/// Measures a case in a directory with these options.
pub fn measured(case: &str, dir: &Path, given: &[(&str, &str)], rounds: usize) -> Result<Results> {
    let plan = find_case(case).map_err(said)?.plan;
    measured_by(case, plan, dir, given, rounds)
}

/// The same with a plan of its own for the options of the case.
pub fn measured_by(
    case: &str,
    plan: impl Fn(&Setting, &Values) -> LabResult<Box<dyn Plan>>,
    dir: &Path,
    given: &[(&str, &str)],
    rounds: usize,
) -> Result<Results> {
    std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let setting = Setting { dirs: vec![dir.to_owned()], device: None, seed: 1 };
    let values = Values::read(find_case(case).map_err(said)?.options, given).map_err(said)?;
    let mut plan = plan(&setting, &values).map_err(said)?;
    let effort = Effort {
        warm_up: 0,
        patience: Duration::ZERO,
        budget: Duration::MAX,
        accepts_noise: true,
        ..Effort::default().exactly(rounds)
    };
    let origin = Origin { case: case.to_owned(), ..Origin::default() };
    let live = Arc::new(Live::new(Arc::default()));
    measure(plan.as_mut(), &effort, &origin, &live, &mut |_| Ok(())).map_err(said)
}

fn said(error: Error) -> String {
    error.to_string()
}
