//! Waits for writers until each has answered, ended, or is considered dead.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Collector, roots, silent};
use crate::store::deletion::{self, Case, Cases, decide};
use crate::store::objects::Quorum;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{CondemnationId, SessionId};
use pinstripe_member::session::Session;

/// The interval at which a waiting gc lists heartbeats: a heartbeat that does not come wakes no
/// waiter.
const LOOKS_EVERY: Duration = Duration::from_secs(30);

impl Collector<'_> {
    /// Ends the sessions of writers that have stopped putting heartbeats.
    pub(super) fn end_silent(&self) -> Result<u64> {
        let ended = silent::end(self, &self.others_at_work()?)?;
        self.fenced.fetch_add(ended, Ordering::Relaxed);
        Ok(ended)
    }

    /// Waits until each running backup has acknowledged the condemnation. A backup that began after
    /// the condemnation was put has seen it already.
    pub(super) fn wait_for_answers(&self) -> Result<()> {
        let mut asked: Option<Vec<Session>> = None;
        self.wait(|| {
            // In this order: answers, sessions, snapshots.
            let cases = deletion::load(self.store, Quorum::Deletion)?;
            let answered = answered(&cases, self.case);
            let now = self.others_at_work()?;
            let asked = asked.get_or_insert_with(|| now.clone());
            asked.retain(|session| now.iter().any(|it| it.id == session.id));
            let names = roots::names(self.store)?;
            Ok(decide::silent(asked, &answered, &names).into_iter().cloned().collect())
        })
    }

    /// Checks at growing intervals until no session is left to wait for: the file systems of the
    /// members do not wake a waiter when another process removes a session.
    pub(super) fn wait(&self, mut left: impl FnMut() -> Result<Vec<Session>>) -> Result<()> {
        const PAUSES_MS: [u64; 7] = [10, 40, 100, 200, 400, 2000, 5000];
        // One check of remote members is several listings, which cost money.
        let pauses_ms = if self.store.is_far() { &PAUSES_MS[3..] } else { &PAUSES_MS[..5] };
        let began = clock::monotonic();
        let mut looked = began;
        let (mut pauses, last) = (pauses_ms.iter(), pauses_ms[pauses_ms.len() - 1]);
        loop {
            let left = left()?;
            if left.is_empty() {
                return Ok(());
            }
            if clock::since(looked) >= LOOKS_EVERY {
                looked = clock::monotonic();
                if self.end_silent()? > 0 {
                    continue;
                }
            }
            if clock::since(began) >= self.options.wait {
                return Err(busy(&left, self.options.detector.timeout()));
            }
            let left_to_wait = self.options.wait.saturating_sub(clock::since(began));
            let pause = Duration::from_millis(pauses.next().copied().unwrap_or(last));
            clock::sleep(pause.min(left_to_wait));
        }
    }
}

fn answered(cases: &Cases, case: CondemnationId) -> BTreeSet<SessionId> {
    let acks = |case: &Case| case.acks.keys().copied().collect::<BTreeSet<_>>();
    cases.0.get(&case).map(acks).unwrap_or_default()
}

/// Returns the error that names the sessions that were still running at the end of the wait.
fn busy(left: &[Session], timeout: Duration) -> Error {
    let who: Vec<String> = left
        .iter()
        .map(|it| format!("{} {} (process {})", it.work.name(), it.id.short(), it.process.pid))
        .collect();
    let first = left[0].id.short();
    let by_itself = if left.iter().all(silent::is_watched) {
        let minutes = timeout.as_secs().div_ceil(60);
        format!(
            " A later 'pinstripe gc' ends such a session automatically if it has no heartbeat for \
             {minutes} min."
        )
    } else {
        String::new()
    };
    Error::new(Kind::Busy, format!("these sessions did not answer in time: {}", who.join(", ")))
        .advice(format!(
            "nothing was deleted; run 'pinstripe gc' again when these sessions have ended. If the \
             process of a session certainly no longer runs, for example because its machine was \
             removed, end the session with 'pinstripe gc --fence {first}'.{by_itself}"
        ))
}
