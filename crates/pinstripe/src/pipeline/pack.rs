//! The packer: finished records in, stripe sets out.

use crossbeam_channel::{Receiver, Sender};

use super::fleet::{Barrier, Fleet};
use super::limits::PACK_BYTES;
use super::spare::Spare;
use crate::error::Result;
use crate::format::label::StoreConfig;
use crate::format::pack_index::{IndexedRecord, PackIndex};
use crate::format::record::RecordHead;
use crate::format::stripe_set::{Geometry, SetKind};
use crate::id::{SetId, random};
use crate::member::ExtentName;
use crate::seal::Sealer;
use crate::store::index::index_record;
use crate::stripe::{SetWriter, StripSink};

/// A record ready to be laid into a pack.
pub struct FinishedRecord {
    /// What it holds.
    pub head: RecordHead,
    /// All of it as it is stored: head, table, compressed bytes, sealed or not.
    pub bytes: Vec<u8>,
}

/// What a packer is fed.
pub enum ToPacker {
    /// To be laid into a pack.
    Record(FinishedRecord),
    /// To make durable what was fed so far.
    Seal(SealTicket),
}

/// Asks a packer to seal its open pack, once each of its feeders has put one into the queue behind
/// all that it wants sealed. One such round at a time.
pub struct SealTicket {
    /// How many feeders there are.
    pub feeders: usize,
    /// Where the packer says from when on all is durable; dropped when it never does.
    pub durable: Sender<Barrier>,
}

/// The geometry of a store's stripe sets.
///
/// # Errors
/// When the store's settings make no geometry.
fn geometry(config: &StoreConfig) -> Result<Geometry> {
    Geometry::new(config.data, config.parity, config.strip_bytes)
}

/// Lays records into packs until the queue closes, and names what each pack holds. Buffers of
/// records go back to `spare`.
///
/// # Errors
/// When the system has no randomness to name a pack.
pub fn run(
    fed: &Receiver<ToPacker>,
    fleet: &Fleet<'_>,
    config: &StoreConfig,
    sealer: &Sealer,
    spare: &Spare,
) -> Result<Vec<PackIndex>> {
    let mut sealed = Vec::new();
    let mut open: Option<OpenPack> = None;
    let mut tickets = 0;
    for fed in fed {
        let record = match fed {
            ToPacker::Record(record) => record,
            ToPacker::Seal(ticket) => {
                tickets += 1;
                if tickets == ticket.feeders {
                    tickets = 0;
                    if let Some(pack) = open.take() {
                        sealed.push(pack.seal(fleet, sealer)?);
                    }
                    // Nobody waits any more when the run is over.
                    let _ = ticket.durable.send(fleet.begin_barrier());
                }
                continue;
            }
        };
        let pack = match &mut open {
            Some(pack) => pack,
            None => open.insert(OpenPack::begin(fleet, config)?),
        };
        let FinishedRecord { head, bytes } = record;
        pack.add(head, &bytes, fleet)?;
        spare.give(bytes);
        if pack.writer.position() >= PACK_BYTES
            && let Some(pack) = open.take()
        {
            sealed.push(pack.seal(fleet, sealer)?);
        }
    }
    if let Some(pack) = open {
        sealed.push(pack.seal(fleet, sealer)?);
    }
    Ok(sealed)
}

struct OpenPack {
    index: PackIndex,
    writer: SetWriter,
}

impl OpenPack {
    fn begin(fleet: &Fleet<'_>, config: &StoreConfig) -> Result<Self> {
        let set = SetId(random()?);
        fleet.begin(ExtentName::pack(set));
        let writer = SetWriter::new(config.store, set, SetKind::Pack, geometry(config)?);
        Ok(OpenPack { index: PackIndex { set, records: Vec::new() }, writer })
    }

    fn add(&mut self, head: RecordHead, record: &[u8], fleet: &Fleet<'_>) -> Result<()> {
        let mut sink = fleet.sink(ExtentName::pack(self.index.set));
        let offset = self.writer.position();
        self.writer.append(record, &mut sink)?;
        let RecordHead { kind, raw_bytes, chunks, .. } = head;
        let bytes = record.len() as u32;
        self.index.records.push(IndexedRecord { offset, bytes, kind, raw_bytes, chunks });
        Ok(())
    }

    fn seal(mut self, fleet: &Fleet<'_>, sealer: &Sealer) -> Result<PackIndex> {
        let name = ExtentName::pack(self.index.set);
        let mut sink = fleet.sink(name);
        let start = self.writer.position();
        self.writer.append(&index_record(&self.index, sealer)?, &mut sink)?;
        let end = self.writer.position();
        self.writer.finish(start..end, &mut sink)?;
        fleet.seal(name);
        Ok(self.index)
    }
}

/// Writes an index run that speaks of `packs`.
///
/// # Errors
/// When the system has no randomness to name it.
pub fn write_run(
    packs: &[PackIndex],
    fleet: &Fleet<'_>,
    config: &StoreConfig,
    sealer: &Sealer,
) -> Result<()> {
    let set = SetId(random()?);
    let name = ExtentName::index(set);
    fleet.begin(name);
    lay_run(set, packs, config, sealer, &mut fleet.sink(name))?;
    fleet.seal(name);
    Ok(())
}

/// Lays an index run that speaks of `packs` over the members; the caller seals its extents.
///
/// # Errors
/// Those of the sink.
pub fn lay_run(
    set: SetId,
    packs: &[PackIndex],
    config: &StoreConfig,
    sealer: &Sealer,
    sink: &mut dyn StripSink,
) -> Result<()> {
    let mut writer = SetWriter::new(config.store, set, SetKind::IndexRun, geometry(config)?);
    for pack in packs {
        writer.append(&index_record(pack, sealer)?, sink)?;
    }
    let end = writer.position();
    writer.finish(0..end, sink).map(drop)
}
