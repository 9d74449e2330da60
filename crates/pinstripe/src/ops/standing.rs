//! Whether an object or a pack that cannot be read is still wanted. A collector may have deleted it
//! since the verb read the index: then it is not lost.
//!
//! Invariant: the steps of deletion, the marks and the index are read after the read that failed. If
//! they do not decide, the object or the pack counts as wanted.
//!
//! Not in this module: the reports of a verb.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};

use crate::store::index::{is_leftover, sets_in, sets_spoken_of};
use crate::store::objects::Quorum;
use crate::store::{Store, deletion, forgotten};
use pinstripe_base::error::Result;
use pinstripe_base::id::{SetId, SnapshotId};
use pinstripe_base::sync::lock;
use pinstripe_member::{ExtentKind, ExtentName};

/// Times that the index is read again because runs came or went meanwhile.
const LOOKS_MAX: usize = 8;

/// How a pack belongs to the store at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The pack is deleted or being deleted.
    Gone,
    /// No index run names the pack: it may be left from an interrupted backup.
    Unnamed,
    /// An index run names the pack, or it cannot be excluded that one does.
    Named,
}

/// The index as it was read last; it is read again only when other runs exist.
#[derive(Default)]
pub(in crate::ops) struct Standings(Mutex<Option<Arc<Listed>>>);

/// The packs that index runs list.
struct Listed {
    runs: BTreeSet<SetId>,
    packs: HashSet<SetId>,
    /// No run came or went while the runs were read.
    is_settled: bool,
    /// Every run could be read.
    is_whole: bool,
}

impl Standings {
    /// Decides about a pack that could not be read completely; `was_named` says whether an index run
    /// named it before.
    ///
    /// # Errors
    /// Fails with the errors of [`Store::list`] and [`Store::objects`].
    pub(super) fn of_pack(&self, store: &Store, set: SetId, was_named: bool) -> Result<Standing> {
        let name = ExtentName::pack(set);
        if deletion::is_going(store, name)? {
            return Ok(Standing::Gone);
        }
        if was_named {
            let listed = self.listed(store)?;
            if listed.packs.contains(&set) || !(listed.is_settled && listed.is_whole) {
                return Ok(Standing::Named);
            }
        }
        Ok(match is_leftover(store, set, &store.may_have(name)) {
            true => Standing::Gone,
            false => Standing::Unnamed,
        })
    }

    fn listed(&self, store: &Store) -> Result<Arc<Listed>> {
        let runs = || -> Result<BTreeSet<SetId>> {
            // Prefetched answers may be older than the read that failed.
            store.prefetch(&[]);
            Ok(sets_in(store, ExtentKind::Index)?.into_keys().collect())
        };
        let (mut before, mut looks) = (runs()?, 0);
        let known = lock(&self.0).clone();
        if let Some(known) = known.filter(|known| known.is_settled && known.runs == before) {
            return Ok(known);
        }
        loop {
            let spoken = sets_spoken_of(store)?;
            let is_whole = spoken.iter().all(|(_, packs)| packs.is_ok());
            let packs = spoken.into_iter().filter_map(|(_, packs)| packs.ok()).flatten();
            let packs = packs.filter(|pack| !pack.is_lost).map(|pack| pack.set).collect();
            let after = runs()?;
            looks += 1;
            let is_settled = after == before;
            if is_settled || looks == LOOKS_MAX {
                let listed = Arc::new(Listed { runs: after, packs, is_settled, is_whole });
                *lock(&self.0) = Some(Arc::clone(&listed));
                return Ok(listed);
            }
            before = after;
        }
    }
}

/// Whether a small object without an intact copy is still wanted: a snapshot that is neither
/// forgotten nor deleted, a mark or a tombstone that still exists.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub(super) fn is_object_wanted(store: &Store, name: ExtentName) -> Result<bool> {
    let ExtentName::In(kind, id) = name else { return Ok(true) };
    store.prefetch(&[]);
    Ok(match kind {
        ExtentKind::Snapshots => {
            !forgotten::load(store, Quorum::Backup)?.is_forgotten(SnapshotId(id))
                && !deletion::dead(store, kind)?.contains(&id)
        }
        ExtentKind::Forgotten => forgotten::names(store)?.contains(&name),
        ExtentKind::Gc => deletion::tombstone_names(store)?.contains(&name),
        _ => true,
    })
}
