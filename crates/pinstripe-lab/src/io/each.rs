//! Runs several things at the same time: a job on several areas, or other work of a case on several
//! threads.

use std::thread;
use std::time::Instant;

use pinstripe_base::error::Result;

use super::work::{run, sync_all};
use super::{Area, Done, Job, Syncing};
use crate::run::Live;

/// Calls `act` with each number below `count`, each call on its own thread, and waits for all.
pub fn at_once<T: Send>(count: usize, act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let act = &act;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..count).map(|number| scope.spawn(move || act(number))).collect();
        // One that panicked has a mistake of ours: pass it on.
        workers
            .into_iter()
            .map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Carries out a job on each of these areas at the same time. The time is that of the last area to
/// finish; the sync is made after all have finished.
///
/// # Errors
/// The errors of [`run`]; if several areas fail, the error of the first one.
pub(crate) fn run_each(job: &Job, areas: &[Area], live: &Live) -> Result<Done> {
    let alone = Job { syncing: Syncing { at_end: false, ..job.syncing }, ..job.clone() };
    let began = Instant::now();
    let parts = at_once(areas.len(), |number| {
        let job = Job { seed: job.seed ^ (number as u64) << 32, ..alone.clone() };
        run(&job, &areas[number], live)
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut done = Done::default();
    for part in parts {
        let part = part?;
        done.has_wrapped |= part.has_wrapped;
        done.merge(&part);
    }
    done.seconds = seconds;
    if job.syncing.at_end {
        let began = Instant::now();
        for area in areas {
            sync_all(job, area, &mut done.syncs)?;
        }
        done.sync_s = began.elapsed().as_secs_f64();
    }
    Ok(done)
}
