//! The packer: turns finished records into stripe sets.
//!
//! In stores without parity, a packer writes the records of tree pages into two packs: a lost page
//! would lose all names below it (decision 0028).

use crossbeam_channel::{Receiver, Sender};

use super::member_writers::{Barrier, SetMembers};
use super::publish::Publisher;
use super::scratch_pool::ScratchPool;
use crate::store::index::{SealedPack, index_record};
use crate::store::packs::kept_as;
use crate::store::page_copies;
use pinstripe_base::error::Result;
use pinstripe_base::id::SetId;
use pinstripe_member::ExtentName;
use pinstripe_member::pack_index::{IndexedRecord, PackIndex};
use pinstripe_member::record::{RecordHead, RecordKind};
use pinstripe_member::stripe_set::SetKind;
use pinstripe_stripe::SetWriter;

/// A record ready to be written into a pack.
pub struct FinishedRecord {
    /// The head.
    pub head: RecordHead,
    /// The stored bytes: head, table, compressed bytes, sealed or not.
    pub bytes: Vec<u8>,
}

/// How a packer's records are placed on members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Laying {
    /// In packs that are striped over all members.
    Striped,
    /// In this many packs at a time, each complete on one member, and on different members if there
    /// are enough.
    Whole {
        /// The number of packs that get each record.
        copies: usize,
    },
}

impl Laying {
    /// Returns the placement for pages of trees and content lists, in a store with this parity.
    pub(crate) fn of_pages(parity: u8) -> Laying {
        match page_copies(parity) {
            1 => Laying::Striped,
            copies => Laying::Whole { copies },
        }
    }
}

/// The input of a packer.
pub enum ToPacker {
    /// A record to be written into a pack.
    Record(FinishedRecord),
    /// A request to make all records durable that were sent so far.
    Seal(SealTicket),
    /// Says that a feeder has ended and holds back nothing any more.
    Left {
        /// The last round for which the feeder sent a ticket; 0 if there was none.
        answered: u64,
    },
}

/// Asks a packer to seal its open pack, once each of its feeders has either sent a ticket after
/// everything that must be sealed, or has ended. Only one round of tickets is open at a time.
pub struct SealTicket {
    /// The number of the round, counted from 1.
    pub round: u64,
    /// The number of feeders, including those that have ended.
    pub feeders: usize,
    /// Receives the barrier after which everything is durable; dropped if there will be no barrier.
    pub durable: Sender<Barrier>,
}

/// Writes records into packs until the queue closes, and passes each sealed pack to `publisher`.
/// Buffers of compressed bytes are returned to `pool`.
///
/// # Errors
/// Fails when the system provides no randomness to name a pack or too few members are left, or with
/// the errors of the publisher.
pub fn run(
    fed: &Receiver<ToPacker>,
    publisher: &Publisher<'_>,
    laying: Laying,
    pool: &ScratchPool,
) -> Result<()> {
    let mut open: Vec<OpenPack> = Vec::new();
    let seal = |open: &mut Vec<OpenPack>| open.drain(..).try_for_each(|pack| pack.seal(publisher));
    let mut rounds = Rounds::default();
    for fed in fed {
        let record = match fed {
            ToPacker::Record(record) => record,
            answer => {
                if let Some(durable) = rounds.take(answer) {
                    seal(&mut open)?;
                    // The receiver is gone when the run has ended.
                    let _ = durable.send(publisher.writers.begin_barrier());
                }
                continue;
            }
        };
        if open.is_empty() {
            open = OpenPack::begin(publisher, laying)?;
        }
        let FinishedRecord { head, bytes } = record;
        if let Some((last, others)) = open.split_last_mut() {
            for pack in others {
                pack.add(head.clone(), &bytes, publisher)?;
            }
            last.add(head, &bytes, publisher)?;
        }
        pool.give(bytes);
        if open[0].writer.position() >= open[0].set_members.pack_bytes {
            seal(&mut open)?;
        }
    }
    seal(&mut open)
}

/// Counts the feeders' answers.
#[derive(Default)]
struct Rounds {
    /// The last ticket of the open round, and the number of its tickets so far.
    open: Option<SealTicket>,
    tickets: usize,
    /// For each feeder that has ended, the last round that it answered.
    left: Vec<u64>,
}

impl Rounds {
    /// Takes an answer; if it is the last one of its round, returns the sender for the barrier.
    fn take(&mut self, answer: ToPacker) -> Option<Sender<Barrier>> {
        match answer {
            ToPacker::Record(_) => {}
            ToPacker::Seal(ticket) => {
                self.open = Some(ticket);
                self.tickets += 1;
            }
            ToPacker::Left { answered } => self.left.push(answered),
        }
        let open = self.open.as_ref()?;
        let left = self.left.iter().filter(|answered| **answered < open.round).count();
        if self.tickets + left < open.feeders {
            return None;
        }
        self.tickets = 0;
        self.open.take().map(|ticket| ticket.durable)
    }
}

struct OpenPack {
    set_members: SetMembers,
    index: PackIndex,
    writer: SetWriter,
}

impl OpenPack {
    /// Begins the packs that will get the next record.
    fn begin(publisher: &Publisher<'_>, laying: Laying) -> Result<Vec<Self>> {
        let (writers, set) = (publisher.writers, SetId(publisher.store.new_name()?));
        let Laying::Whole { copies } = laying else {
            return Ok(vec![Self::begin_with(publisher, set, |name| writers.begin(name))?]);
        };
        // The first name draws the members.
        let turn = usize::from(u16::from_le_bytes([set.0[0], set.0[1]]));
        let begin = |copy| {
            let set = if copy == 0 { set } else { SetId(publisher.store.new_name()?) };
            Self::begin_with(publisher, set, |name| writers.begin_on_one(name, turn + copy))
        };
        (0..copies).map(begin).collect()
    }

    fn begin_with(
        publisher: &Publisher<'_>,
        set: SetId,
        set_members: impl FnOnce(ExtentName) -> Result<SetMembers>,
    ) -> Result<Self> {
        publisher.index.expect_own(set);
        let set_members = set_members(ExtentName::pack(set))?;
        let store = publisher.store.config.store;
        let writer = SetWriter::new(store, set, SetKind::Pack, set_members.geometry);
        let index = PackIndex { set, records: Vec::new() };
        Ok(OpenPack { set_members, index, writer })
    }

    fn add(&mut self, head: RecordHead, record: &[u8], publisher: &Publisher<'_>) -> Result<()> {
        let set = self.index.set;
        let mut sink = publisher.writers.sink(ExtentName::pack(set), &self.set_members);
        let offset = self.writer.position();
        self.writer.append(record, &mut sink)?;
        let RecordHead { kind, raw_bytes, chunks, .. } = head;
        let bytes = record.len() as u32;
        // The next backup of this host reads the whole tree.
        if kind == RecordKind::Tree
            && let Some(kept) = publisher.store.kept()
        {
            kept.put(kept_as(set, offset, bytes), record);
        }
        self.index.records.push(IndexedRecord { offset, bytes, kind, raw_bytes, chunks });
        Ok(())
    }

    fn seal(mut self, publisher: &Publisher<'_>) -> Result<()> {
        let name = ExtentName::pack(self.index.set);
        let mut sink = publisher.writers.sink(name, &self.set_members);
        let start = self.writer.position();
        self.writer.append(&index_record(&self.index, publisher.sealer)?, &mut sink)?;
        let end = self.writer.position();
        self.writer.finish(start..end, &mut sink)?;
        publisher.writers.seal(name, &self.set_members);
        publisher.take(SealedPack { index: self.index, geometry: self.set_members.geometry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: fn(u64) -> ToPacker = |answered| ToPacker::Left { answered };

    fn ticket(round: u64) -> ToPacker {
        let durable = crossbeam_channel::bounded(1).0;
        ToPacker::Seal(SealTicket { round, feeders: 3, durable })
    }

    /// Whether each answer was the last one of its round.
    fn ends(answers: impl IntoIterator<Item = ToPacker>) -> Vec<bool> {
        let mut rounds = Rounds::default();
        answers.into_iter().map(|answer| rounds.take(answer).is_some()).collect()
    }

    #[test]
    fn a_round_ends_when_each_feeder_has_answered_or_left() {
        let plain = [ticket(1), ticket(1), ticket(1), ticket(2), ticket(2), ticket(2)];
        assert_eq!(ends(plain), [false, false, true, false, false, true]);
        // One leaves before a round, one within it, unanswered; both count in the next one too.
        let leaving = [LEFT(0), ticket(1), LEFT(0), ticket(2)];
        assert_eq!(ends(leaving), [false, false, true, true]);
        // One that answered and then left counts once in that round.
        let answered = [ticket(1), LEFT(1), ticket(1), ticket(1), ticket(2), ticket(2)];
        assert_eq!(ends(answered), [false, false, false, true, false, true]);
        // Without a call there is no answer.
        assert_eq!(ends([LEFT(0), LEFT(0), LEFT(0)]), [false; 3]);
    }
}
