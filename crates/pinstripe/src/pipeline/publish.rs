//! Publishing: an index run makes sealed packs known to all other users of the store.
//!
//! Invariants: a run is written after all packs in it are durable. A pack that lost an extent while
//! it was open is written again over the remaining members before a run lists it ([`relay`]), so
//! that nothing refers to a pack with too little parity. A claim is released only when the index
//! has the run. So a chunk is always either claimed or in the index, and memory is bounded for a
//! backup of any length. An index run of an interrupted backup is harmless: its packs are complete,
//! and their chunks are in the index.

mod relay;

use std::sync::Mutex;

use crate::store::Store;
use crate::store::index::{Index, SealedPack, lay_run};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::lock;
use pinstripe_member::ExtentName;
use pinstripe_stripe::{Claims, Sealer};

use super::limits::PUBLISH_CHUNKS;
use super::member_writers::MemberWriters;
use relay::relay;

/// Receives sealed packs and writes index runs.
pub struct Publisher<'a> {
    /// The store.
    pub store: &'a Store,
    /// The index.
    pub index: &'a Index<'a>,
    /// Seals everything that this run writes.
    pub sealer: &'a Sealer,
    /// The chunks that this run stores.
    pub claims: &'a Claims,
    /// The members to which index runs are written.
    pub writers: &'a MemberWriters<'a>,
    /// The ledger.
    pub monitor: &'a Monitor,
    /// The number of unpublished packs at which an index run is written, unless the packs have
    /// [`PUBLISH_CHUNKS`] chunks earlier.
    pub publish_packs: usize,
    sealed: Mutex<Vec<SealedPack>>,
}

/// The number of attempts to merge packs that others left unlisted, if other writers are faster.
const LOOSE_TRIES: usize = 16;

impl<'a> Publisher<'a> {
    /// Makes a publisher that writes an index run for every `publish_packs` packs, or for many
    /// chunks.
    pub fn new(
        store: &'a Store,
        index: &'a Index<'a>,
        sealer: &'a Sealer,
        claims: &'a Claims,
        writers: &'a MemberWriters<'a>,
        monitor: &'a Monitor,
        publish_packs: usize,
    ) -> Self {
        let sealed = Mutex::default();
        Publisher { store, index, sealer, claims, writers, monitor, publish_packs, sealed }
    }

    /// Receives a pack that the member writers are sealing.
    ///
    /// # Errors
    /// Fails with the errors of [`publish`](Self::publish), when that is due.
    pub fn take(&self, pack: SealedPack) -> Result<()> {
        let due = {
            let mut sealed = lock(&self.sealed);
            sealed.push(pack);
            let chunks: usize = sealed.iter().map(SealedPack::chunks).sum();
            if chunks < PUBLISH_CHUNKS && sealed.len() < self.publish_packs {
                return Ok(());
            }
            std::mem::take(&mut *sealed)
        };
        let (set, due) = self.write(due)?;
        if let Some(set) = set {
            self.index.refresh()?;
            if self.index.has_run(set) {
                let records = due.iter().flat_map(|pack| &pack.index.records);
                records.flat_map(|record| &record.chunks).for_each(|c| self.claims.release(&c.id));
                self.claims.shrink();
            }
        }
        Ok(())
    }

    /// Durably writes an index run for all packs received so far, the packs first, and another run
    /// for packs of other writers that no run lists.
    ///
    /// # Errors
    /// Fails with the run's fatal error.
    pub fn publish(&self) -> Result<()> {
        let mut sealed = lock(&self.sealed);
        let due = std::mem::take(&mut *sealed);
        drop(sealed);
        let mut loose = self.index.plan_loose();
        self.write(due)?;
        // Everything that this run may have relied on is in a run then, as well protected as its
        // own. If another writer was first, what it left is merged in the next round.
        for _ in 0..LOOSE_TRIES {
            let Some(merge) = loose else { return Ok(()) };
            if self.index.merge(merge, &|| false)?.is_some() {
                return Ok(());
            }
            loose = self.index.plan_loose();
        }
        Err(Error::new(
            Kind::Busy,
            "other backups merged the index runs that this backup relies on, again and again",
        )
        .advice("earlier snapshots are unaffected; run this command again"))
    }

    /// Writes an index run for these packs; returns its name, and the packs as the index run lists
    /// them.
    fn write(&self, packs: Vec<SealedPack>) -> Result<(Option<SetId>, Vec<SealedPack>)> {
        self.writers.barrier()?;
        let packs = self.lay_short_again(packs)?;
        if packs.iter().all(|pack| pack.index.records.is_empty()) {
            return Ok((None, packs));
        }
        // Packs that a run names may be relied on, so all of their extents have to be there.
        self.store.confirm_takers()?;
        self.count_races(&packs)?;
        let set = SetId(self.store.new_name()?);
        let name = ExtentName::index(set);
        let set_members = self.writers.begin(name)?;
        let mut sink = self.writers.sink(name, &set_members);
        lay_run(self.store, set, set_members.geometry, &packs, self.sealer, &mut sink)?;
        self.writers.seal(name, &set_members);
        self.writers.barrier()?;
        Ok((Some(set), packs))
    }

    /// Writes again those packs that lost an extent while they were open, until all have all their
    /// extents. Packs remain as they are if too few members are left for another set. Everything is
    /// durable on return.
    fn lay_short_again(&self, mut packs: Vec<SealedPack>) -> Result<Vec<SealedPack>> {
        let is_short = |pack: &SealedPack| self.writers.is_short(ExtentName::pack(pack.index.set));
        // Each further round takes another member that failed meanwhile.
        while packs.iter().any(is_short) && self.writers.can_begin() {
            let mut replaced = Vec::new();
            for pack in packs.iter_mut().filter(|pack| is_short(pack)) {
                replaced.push(pack.index.set);
                *pack = relay(self, pack)?;
            }
            self.writers.barrier()?;
            // Nothing refers to them, and what they held is durable elsewhere.
            replaced.into_iter().for_each(|set| self.writers.delete(ExtentName::pack(set)));
        }
        Ok(packs)
    }

    /// Counts chunks that other writers have stored at the same time.
    fn count_races(&self, packs: &[SealedPack]) -> Result<()> {
        self.index.refresh()?;
        let records = packs.iter().flat_map(|pack| &pack.index.records);
        let ids = records.flat_map(|record| &record.chunks).map(|chunk| &chunk.id);
        self.monitor.add(Counter::DuplicateChunks, self.index.raced(ids)?);
        Ok(())
    }
}
