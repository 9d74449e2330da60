//! Writes a pack again over the remaining members.
//!
//! Invariants: the new pack has the same records at the same offsets; every byte was verified by
//! the checksums of the old pack's strips. The old pack is not changed.

use super::Publisher;
use crate::store::index::{SealedPack, index_record};
use crate::store::newcomers;
use pinstripe_base::error::Result;
use pinstripe_base::id::SetId;
use pinstripe_member::ExtentName;
use pinstripe_member::stripe_set::SetKind;
use pinstripe_stripe::SetWriter;

/// The number of bytes of a pack that are copied at a time.
const COPY_BYTES: u64 = 4 << 20;

/// Copies the records of a sealed pack into a new one, over the members that get sets now, and
/// returns the new pack. The new pack is durable after the next barrier.
///
/// # Errors
/// Fails when the old pack cannot be read from its members, when too few members are left, or when
/// the system provides no randomness to name the pack.
pub(super) fn relay(publisher: &Publisher<'_>, pack: &SealedPack) -> Result<SealedPack> {
    let (writers, store) = (publisher.writers, publisher.store);
    let old = pack.index.set;
    // Extents may have moved to members that joined since, also while the pack is read.
    let open = || {
        store.meet_newcomers()?;
        store.open_to_check(ExtentName::pack(old), old)
    };
    let mut reader = open()?;
    let mut index = pack.index.clone();
    index.set = SetId(store.new_name()?);
    publisher.index.expect_own(index.set);
    let name = ExtentName::pack(index.set);
    let set_members = writers.begin(name)?;
    let mut sink = writers.sink(name, &set_members);
    let mut writer =
        SetWriter::new(store.config.store, index.set, SetKind::Pack, set_members.geometry);
    // Its own index is behind the records, and names the old pack.
    let end = reader.index().start;
    let mut bytes = Vec::new();
    while writer.position() < end {
        let start = writer.position();
        bytes.clear();
        let range = start..end.min(start + COPY_BYTES);
        if let Err(error) = reader.read_verified(range.clone(), &mut bytes) {
            if !newcomers::may_have_moved(&error) {
                return Err(error);
            }
            bytes.clear();
            reader = open()?;
            reader.read_verified(range, &mut bytes)?;
        }
        writer.append(&bytes, &mut sink)?;
    }
    writer.append(&index_record(&index, publisher.sealer)?, &mut sink)?;
    let all = writer.position();
    writer.finish(end..all, &mut sink)?;
    writers.seal(name, &set_members);
    Ok(SealedPack { index, geometry: set_members.geometry })
}
