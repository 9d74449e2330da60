//! The state of scrubbing between runs: it is read from any member and written to all; the old
//! state is removed last.

use super::sets::Item;
use crate::store::Store;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::scrub::{ScrubShare, ScrubState};
use pinstripe_member::{ExtentKind, ExtentName};

/// Returns the newest state, updated with later verifications from other states. A state without
/// any intact copy is ignored: its sets are verified again.
///
/// # Errors
/// Fails when the kind cannot be listed, or with [`Kind::Unsupported`] when a newer version wrote a
/// state.
pub(super) fn load(store: &Store) -> Result<ScrubState> {
    let mut newest = ScrubState::new(store.config.store);
    for (_, state) in stored(store)? {
        let Some(mut state) = state else { continue };
        if state.generation >= newest.generation {
            std::mem::swap(&mut newest, &mut state);
        }
        newest.merge(&state);
    }
    Ok(newest)
}

/// Returns every stored state with its name; `None` for a state that no member has an intact copy
/// of.
fn stored(store: &Store) -> Result<Vec<(ExtentName, Option<ScrubState>)>> {
    let mut states = Vec::new();
    for id in store.list(ExtentKind::Scrub)?.into_keys() {
        let name = ExtentName::In(ExtentKind::Scrub, id);
        let read = store.read_object(name, |bytes| {
            let state = ScrubState::decode(bytes)?;
            store.verify(name, bytes)?;
            if state.store != store.config.store {
                return Err(Error::new(
                    Kind::Corrupt,
                    "this file has the scrub state of another store",
                ));
            }
            Ok(state)
        });
        match read {
            Ok(state) => states.push((name, Some(state))),
            Err(error) if error.kind() == Kind::Unsupported => return Err(error),
            Err(_) => states.push((name, None)),
        }
    }
    Ok(states)
}

/// The progress of a scrub.
pub(super) struct Progress<'a> {
    state: &'a mut ScrubState,
    /// If false, because a member is absent, a share is visited but does not count as verified.
    counts: bool,
    advanced: bool,
}

impl<'a> Progress<'a> {
    pub(super) fn new(state: &'a mut ScrubState, counts: bool) -> Self {
        if !counts {
            state.open = ScrubShare::default();
        }
        Progress { state, counts, advanced: false }
    }

    /// Returns the positions in `sets` in one round, beginning with the first set after the cursor.
    pub(super) fn order(&self, sets: &[Item]) -> Vec<usize> {
        let first = sets.partition_point(|item| item.set <= self.state.cursor);
        (first..sets.len()).chain(0..first).collect()
    }

    /// Records that the set at this position was verified, and with it the sets before it in the
    /// order.
    pub(super) fn verified(&mut self, sets: &[Item], at: usize, now: i64) {
        let share = |at: usize| sets[at].set.0[0];
        let is_first = at == 0 || share(at - 1) != share(at);
        let is_last = at + 1 == sets.len() || share(at + 1) != share(at);
        let state = &mut *self.state;
        if is_first && self.counts {
            state.open = ScrubShare { began_seconds: now, sets: 0, bytes: 0 };
        }
        state.open.sets += 1;
        state.open.bytes += sets[at].bytes;
        state.cursor = sets[at].set;
        if is_last {
            let verified = std::mem::take(&mut state.open);
            if verified.began_seconds != 0 {
                state.shares[usize::from(share(at))] = verified;
            }
        }
        self.advanced = true;
    }

    /// Writes the state to every present member, then removes the states that it replaces.
    pub(super) fn save(&self, store: &Store, monitor: &Monitor) -> Result<()> {
        if !self.advanced {
            return Ok(());
        }
        let replaced = stored(store)?;
        let mut state = self.state.clone();
        replaced.iter().filter_map(|(_, old)| old.as_ref()).for_each(|old| state.merge(old));
        // A member may have forged the last possible generation.
        state.generation = state.generation.saturating_add(1);
        let name = ExtentName::In(ExtentKind::Scrub, store.new_name()?);
        let (bytes, mut written, mut failed) = (store.vouch(name, state.encode()), 0, None);
        for (_, member) in store.present() {
            match member.put(name, &bytes) {
                Ok(()) => written += 1,
                Err(error) => {
                    monitor.warning(member.place(), error.duplicate());
                    failed = Some(error);
                }
            }
        }
        if let (0, Some(error)) = (written, failed) {
            return Err(error.advice("the progress of the scrub could not be saved"));
        }
        for (old, _) in replaced {
            for (_, member) in store.present() {
                // A copy that cannot be removed now is replaced by the next scrub.
                if let Err(error) = member.delete(old) {
                    monitor.warning(member.place(), error);
                }
            }
        }
        Ok(())
    }
}
