//! The packer: finished records in, stripe sets out.

use crossbeam_channel::{Receiver, Sender};

use super::fleet::{Barrier, Fleet};
use super::limits::PACK_BYTES;
use super::publish::Publisher;
use super::spare::Spare;
use crate::error::Result;
use crate::format::pack_index::{IndexedRecord, PackIndex};
use crate::format::record::RecordHead;
use crate::format::stripe_set::{Geometry, SetKind};
use crate::id::{SetId, random};
use crate::member::ExtentName;
use crate::store::index::{SealedPack, index_record};
use crate::stripe::SetWriter;

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

/// Lays records into packs until the queue closes, and hands each sealed pack to `publisher`.
/// Buffers of compressed bytes go back to `spare`.
///
/// # Errors
/// When the system has no randomness to name a pack; those of the publisher.
pub fn run(fed: &Receiver<ToPacker>, publisher: &Publisher<'_>, spare: &Spare) -> Result<()> {
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
                        pack.seal(publisher)?;
                    }
                    // Nobody waits any more when the run is over.
                    let _ = ticket.durable.send(publisher.fleet.begin_barrier());
                }
                continue;
            }
        };
        let pack = match &mut open {
            Some(pack) => pack,
            None => open.insert(OpenPack::begin(publisher)?),
        };
        let FinishedRecord { head, bytes } = record;
        pack.add(head, &bytes, publisher.fleet)?;
        spare.give(bytes);
        if pack.writer.position() >= PACK_BYTES
            && let Some(pack) = open.take()
        {
            pack.seal(publisher)?;
        }
    }
    open.map_or(Ok(()), |pack| pack.seal(publisher))
}

struct OpenPack {
    index: PackIndex,
    geometry: Geometry,
    writer: SetWriter,
}

impl OpenPack {
    fn begin(publisher: &Publisher<'_>) -> Result<Self> {
        let set = SetId(random()?);
        publisher.index.expect_own(set);
        publisher.fleet.begin(ExtentName::pack(set));
        let store = publisher.store;
        let geometry = store.geometry()?;
        let writer = SetWriter::new(store.config.store, set, SetKind::Pack, geometry);
        let index = PackIndex { set, records: Vec::new() };
        Ok(OpenPack { index, geometry, writer })
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

    fn seal(mut self, publisher: &Publisher<'_>) -> Result<()> {
        let name = ExtentName::pack(self.index.set);
        let mut sink = publisher.fleet.sink(name);
        let start = self.writer.position();
        self.writer.append(&index_record(&self.index, publisher.sealer)?, &mut sink)?;
        let end = self.writer.position();
        self.writer.finish(start..end, &mut sink)?;
        publisher.fleet.seal(name);
        publisher.take(SealedPack { index: self.index, geometry: self.geometry })
    }
}
