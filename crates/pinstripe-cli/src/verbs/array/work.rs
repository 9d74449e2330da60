//! Long work followed to its end, wherever it is done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pinstripe::error::{Error, Kind, Result};
use pinstripe::monitor::Counter;
use pinstripe::ops::array::detail::Detail;
use pinstripe::ops::array::open::Reached;

use super::{show, status};
use crate::event::Event;
use crate::exit;
use crate::progress::Gauge;
use crate::run::{Ending, Run};
use crate::signals;

/// How often it is asked how far the work is.
const LOOK: Duration = Duration::from_millis(100);

const GAUGE: Gauge =
    Gauge { label: "working", done_bytes: |monitor| monitor.get(Counter::CheckedBytes), passes: 1 };

/// Whether to wait for what was begun.
#[derive(clap::Args)]
pub struct Patience {
    /// Do not wait for work that was begun: in the process that serves it goes on; here it goes on when
    /// the array is opened again
    #[arg(long)]
    no_wait: bool,
}

/// Follows what was begun to its end unless that is not wanted, closes what was opened, and shows the array.
///
/// # Errors
/// [`Kind::Interrupted`] by a signal: what is done stays done; those of the array.
pub fn conclude(run: &Run, mut reached: Reached, patience: &Patience) -> Result<Ending> {
    let stop = signals::catch()?;
    let followed = match patience.no_wait {
        true => reached.detail(),
        false => follow(run, &mut reached, &stop),
    };
    let is_served = reached.is_served();
    let closed = reached.close();
    let detail = followed?;
    closed?;
    for line in status::lines(&detail) {
        run.screen.say(&line);
    }
    if detail.work.is_some() && !is_served {
        run.screen.say("what was begun goes on when the array is opened again");
    }
    let is_wrong = detail.mismatches > 0;
    let code = if is_wrong { exit::REPAIRABLE } else { exit::DONE };
    Ok(Ending { code, facts: show::event(Event::default(), &detail) })
}

/// Waits until nothing goes on.
///
/// # Errors
/// As [`conclude`].
pub fn follow(run: &Run, reached: &mut Reached, stop: &AtomicBool) -> Result<Detail> {
    let mut ticker = None;
    let mut told = 0;
    loop {
        let detail = reached.detail()?;
        let Some(work) = &detail.work else { return Ok(detail) };
        if !detail.is_usable {
            return Err(Error::new(Kind::TooManyLosses, "the array cannot go on")
                .advice("see 'pinstripe array detail' for what failed"));
        }
        run.monitor.expect(work.all_bytes, 0);
        run.monitor.add(Counter::CheckedBytes, work.done_bytes.saturating_sub(told));
        told = told.max(work.done_bytes);
        ticker.get_or_insert_with(|| run.ticker(GAUGE));
        if stop.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Interrupted, format!("{} was interrupted", work.kind))
                .advice("what is done stays done; it goes on when the array is opened again"));
        }
        std::thread::sleep(LOOK);
    }
}
