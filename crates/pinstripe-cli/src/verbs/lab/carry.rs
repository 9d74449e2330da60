//! Runs a case, shows its progress to the user, and keeps its results.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::{
    Effort, Live, Origin, Plan, Results, Runner, Setting, Values, append_to_history, find_case,
    leftovers, measure, measure_by, save_results,
};

use super::watch::Watch;
use super::{history, state, tell};
use crate::escape;
use crate::run::Run;
use crate::signals;
use crate::time;

/// Measures a plan, shows a live line, and saves the results as they arrive.
///
/// # Errors
/// Fails with the errors of the plan and of saving. An interrupt is not an error: the results are
/// marked as incomplete.
pub fn carry_out(
    run: &Run,
    plan: &mut dyn Plan,
    effort: &Effort,
    origin: &Origin,
    place: &Path,
) -> Result<Results> {
    for left in plan.places().iter().flat_map(|place| leftovers(place)) {
        let left = escape::path(&left);
        run.monitor.note(&format!(
            "{left} is left over from a killed run; 'pinstripe lab clean' removes it"
        ));
    }
    keep(run, place, |live, each| measure(plan, effort, origin, live, each))
}

/// Like [`carry_out`], for runs on other machines.
///
/// # Errors
/// Fails with the errors of [`carry_out`].
pub fn carry_out_by(
    run: &Run,
    runner: &mut dyn Runner,
    effort: &Effort,
    origin: &Origin,
    place: &Path,
) -> Result<Results> {
    keep(run, place, |live, each| measure_by(runner, effort, origin, live, each))
}

/// A function that receives the results so far.
type Each<'a> = &'a mut dyn FnMut(&Results) -> Result<()>;

fn keep(
    run: &Run,
    place: &Path,
    measure: impl FnOnce(&Arc<Live>, Each<'_>) -> Result<Results>,
) -> Result<Results> {
    let live = Arc::new(Live::new(Arc::clone(signals::catch()?.as_flag())));
    let watch = Watch::start(run, &live);
    let mut told = 0;
    let mut each = |results: &Results| {
        if has_runs(results) {
            save_results(results, place)?;
        }
        told = report_new(run, results, told)?;
        Ok(())
    };
    let mut results = measure(&live, &mut each)?;
    drop(watch);
    if results.is_complete {
        append_to_history(&results, &history::usual_place()?)?;
    } else if has_runs(&results) {
        // Variants without a run have nothing to show.
        results.variants.retain(|it| !it.runs.is_empty());
        results.judge();
        save_results(&results, place)?;
    }
    Ok(results)
}

/// Whether anything was measured.
pub fn has_runs(results: &Results) -> bool {
    results.variants.iter().any(|it| !it.runs.is_empty())
}

/// Measures a case in given directories with some of its options.
///
/// # Errors
/// Fails with the errors of the case and of [`carry_out`].
pub fn measured(
    run: &Run,
    name: &str,
    dirs: &[PathBuf],
    given: &[(&str, &str)],
    effort: &Effort,
    place: &Path,
) -> Result<Results> {
    let case = find_case(name)?;
    let origin = origin(name, None);
    let values = Values::read(case.options, given)?;
    let dirs = dirs.iter().map(|dir| whole_dir(dir)).collect::<Result<_>>()?;
    let setting = Setting { dirs, seed: origin.seed, ..Setting::default() };
    let mut plan = (case.plan)(&setting, &values)?;
    carry_out(run, plan.as_mut(), effort, &origin, place)
}

/// After the results were shown, fails if an interrupt came or a host was lost.
///
/// # Errors
/// Fails with [`Kind::Interrupted`] after an interrupt; with [`Kind::Unanswered`], with the hosts
/// and the reason, after the loss of a host.
pub fn check_complete(results: &Results, place: &Path) -> Result<()> {
    let lost: Vec<String> =
        results.lost_hosts().map(|(host, why)| format!("{}: {why}", host.address)).collect();
    if !lost.is_empty() {
        let which =
            if lost.len() == 1 { "the connection to a host was lost" } else { "hosts were lost" };
        let error = Error::new(Kind::Unanswered, format!("{which}: {}", lost.join("; ")));
        return Err(match has_runs(results) {
            true => error.advice(format!(
                "the results that were measured before the loss are in {}",
                escape::path(place)
            )),
            false => error,
        });
    }
    match results.is_complete {
        true => Ok(()),
        false if !has_runs(results) => {
            let what = "the measurement was interrupted before the first run ended, so no results \
                        were saved";
            Err(Error::new(Kind::Interrupted, what))
        }
        false => Err(Error::new(
            Kind::Interrupted,
            "the measurement was interrupted; the results that were measured before are saved",
        )
        .at(place)
        .advice("'pinstripe lab show FILE' shows the results")),
    }
}

/// The origin of the results of a case that is run now.
pub fn origin(case: &str, seed: Option<u64>) -> Origin {
    Origin {
        program: program(),
        command: std::env::args_os().map(|it| it.to_string_lossy().into_owned()).collect(),
        case: case.to_owned(),
        seed: seed.unwrap_or_else(new_seed),
    }
}

/// The name and version of this program.
pub fn program() -> String {
    format!("pinstripe {}", env!("CARGO_PKG_VERSION"))
}

/// A free name for new results in the default directory, which is created.
///
/// # Errors
/// Fails without a home directory; with the errors of the system.
pub fn usual_place(case: &str) -> Result<PathBuf> {
    let folder = state()?.join("results");
    fs::create_dir_all(&folder).map_err(|error| Error::io("cannot create", &folder, error))?;
    let (seconds, nanos) = clock::now();
    let now = time::utc(seconds, nanos).unwrap_or_default();
    let now: String = now.chars().filter(|it| it.is_ascii_alphanumeric()).take(18).collect();
    Ok(free_name(&folder, &format!("{case}-{now}")))
}

/// A name that does not exist yet.
fn free_name(folder: &Path, stem: &str) -> PathBuf {
    let names = (1_u64..).map(|number| match number {
        1 => folder.join(format!("{stem}.json")),
        _ => folder.join(format!("{stem}-{number}.json")),
    });
    names.into_iter().find(|it| !it.exists()).unwrap_or_else(|| folder.join(stem))
}

/// The real path of a device: a symlink may point to another device between the question and the
/// first write.
pub fn own_name(device: &Path) -> PathBuf {
    fs::canonicalize(device).unwrap_or_else(|_| device.to_path_buf())
}

/// The full path of a directory that is to be measured.
///
/// # Errors
/// Fails with the errors of [`whole_dir_or`].
pub fn whole_dir(dir: &Path) -> Result<PathBuf> {
    whole_dir_or("cannot be measured", dir)
}

/// The full path of a directory. `cannot` is the text for the error when the directory is missing.
///
/// # Errors
/// Fails with [`Kind::Usage`] if the path is not a directory; with the errors of the system.
pub fn whole_dir_or(cannot: &str, dir: &Path) -> Result<PathBuf> {
    let whole = fs::canonicalize(dir);
    let whole = whole.map_err(|error| Error::io(cannot, dir, error))?;
    match whole.is_dir() {
        true => Ok(whole),
        false => Err(Error::new(Kind::Usage, "this is not a directory").at(dir)),
    }
}

/// A seed with few digits, so that it is easily typed.
fn new_seed() -> u64 {
    let (seconds, nanos) = clock::now();
    (seconds as u64 ^ u64::from(nanos)) % 1_000_000
}

/// Prints an event for each run from number `from` on; returns the number of the next run.
fn report_new(run: &Run, results: &Results, from: u64) -> Result<u64> {
    let runs = results.variants.iter().flat_map(|it| it.runs.iter().map(move |run| (it, run)));
    let mut new: Vec<_> = runs.filter(|(_, run)| run.order >= from).collect();
    new.sort_by_key(|(_, run)| run.order);
    for (variant, it) in &new {
        run.screen.event(&tell::of_run(variant, it))?;
    }
    Ok(new.last().map_or(from, |(_, run)| run.order + 1))
}
