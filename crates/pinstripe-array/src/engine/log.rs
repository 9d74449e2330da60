//! The records of the log, one after the other, at the same positions on all members.

use std::sync::{Arc, Mutex};

use super::Array;
use crate::executor::{Executor, TaskKind};
use crate::format::BLOCK_BYTES;
use crate::format::log::{LogPiece, PayloadCheck, RecordHeader};
use crate::format::superblock::Superblock;
use crate::member::ArrayMember;
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ArrayId;
use pinstripe_base::sync::lock;

/// The position of the next record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Log {
    pub array: ArrayId,
    pub position: u64,
    pub sequence: u64,
    /// Bytes of the log area on each member.
    pub area_bytes: u64,
    /// Bytes since the last checkpoint.
    pub used_bytes: u64,
    /// Whether the last record says that everything before it is durable.
    pub is_marked: bool,
}

impl Log {
    /// The log that the superblock describes, with no record since the last checkpoint.
    pub(crate) fn from_superblock(superblock: &Superblock) -> Self {
        Log {
            array: superblock.array,
            position: superblock.log.0,
            sequence: superblock.log.1,
            area_bytes: superblock.areas.log_bytes,
            used_bytes: 0,
            is_marked: false,
        }
    }

    /// The head of the next record, and whether a checkpoint has to come before it.
    pub fn next(&self, kept: Vec<PayloadCheck>, pieces: Vec<LogPiece>) -> (RecordHeader, bool) {
        let mut head =
            RecordHeader { array: self.array, sequence: self.sequence, position: 0, kept, pieces };
        let fits = self.position + head.span() <= self.area_bytes;
        head.position = if fits { self.position } else { 0 };
        let skipped = if fits { 0 } else { self.area_bytes - self.position };
        // With at most half of the log between two checkpoints, no record overwrites one still
        // needed.
        let is_full = self.used_bytes + skipped + head.span() > self.area_bytes / 2;
        (head, is_full && self.used_bytes > 0)
    }

    /// Writes a record on all members that are present; durable when this returns. Each buffer in
    /// `records`, by slot, has room for the head, followed by the payload of that member. Returns
    /// the slots of members that failed.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a record that is longer than half of the log.
    pub fn append(
        &mut self,
        array: &Array,
        head: &RecordHeader,
        records: &mut [Vec<u8>],
        executor: &dyn Executor,
    ) -> Result<MemberSet> {
        if head.span() > self.area_bytes / 2 {
            return Err(Error::new(
                Kind::Usage,
                "a batch of array rows is too large for the array's log",
            ));
        }
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        for record in records.iter_mut() {
            record[..bytes.len()].copy_from_slice(&bytes);
            record.resize(record.len().next_multiple_of(BLOCK_BYTES as usize), 0);
        }
        let members = array.members();
        let failed = Mutex::new(MemberSet::EMPTY);
        executor.each(TaskKind::Log, members.len(), &|slot| {
            let Some(member) = &members[slot] else { return };
            let written = member.write_log(head.position, &records[slot]);
            if written.and_then(|()| member.sync()).is_err() {
                let mut failed = lock(&failed);
                *failed = failed.with(slot);
            }
        });
        self.passed(head);
        let failed = *lock(&failed);
        Ok(failed)
    }

    /// Moves the position to the end of a record that was written.
    pub fn passed(&mut self, head: &RecordHeader) {
        let skipped = if head.position == 0 && self.position > 0 {
            self.area_bytes - self.position
        } else {
            0
        };
        self.position = head.position + head.span();
        self.used_bytes += skipped + head.span();
        self.sequence += 1;
        self.is_marked = false;
    }

    /// Reads the next record, if there is one, from any member that has it.
    pub(crate) fn read_next(
        &mut self,
        members: &[Option<Arc<ArrayMember>>],
    ) -> Option<RecordHeader> {
        // A record that did not fit after the last one is at the beginning.
        for position in [self.position, 0] {
            let mut heads = members.iter().flatten().map(|it| self.read_at(it, position));
            if let Some(head) = heads.find_map(|head| head) {
                self.position = position + head.span();
                self.sequence += 1;
                return Some(head);
            }
        }
        None
    }

    /// Whether every present member has the complete record.
    pub fn is_whole(&self, head: &RecordHeader, members: &[Option<Arc<ArrayMember>>]) -> bool {
        let of = Log { sequence: head.sequence, ..*self };
        let has = |(slot, member): (usize, &Arc<ArrayMember>)| {
            of.read_at(member, head.position).as_ref() == Some(head)
                && read_payload(head, slot, member).is_some()
        };
        let there = members.iter().enumerate();
        there.filter_map(|(slot, member)| Some((slot, member.as_ref()?))).all(has)
    }

    fn read_at(&self, member: &ArrayMember, position: u64) -> Option<RecordHeader> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        if position + BLOCK_BYTES > self.area_bytes {
            return None;
        }
        member.read_log(position, &mut bytes).ok()?;
        let length = RecordHeader::length(bytes.first_chunk()?)?;
        if position + u64::from(length) > self.area_bytes {
            return None;
        }
        bytes.resize(length as usize, 0);
        member.read_log(position, &mut bytes).ok()?;
        RecordHeader::decode(&bytes, self.array, self.sequence, position).ok()
    }
}

/// The payload of a member for a record, or `None` if it is incomplete.
fn read_payload(head: &RecordHeader, slot: usize, member: &ArrayMember) -> Option<Vec<u8>> {
    let kept = head.kept.get(slot)?;
    let mut bytes = vec![0; kept.bytes as usize];
    member.read_log(head.position + head.head_bytes(), &mut bytes).ok()?;
    kept.suits(&bytes).then_some(bytes)
}

/// The payload that each member kept of a record, handed out piece by piece.
pub(super) struct Payloads {
    bytes: Vec<Option<Vec<u8>>>,
    used: Vec<usize>,
}

impl Payloads {
    /// Reads the payloads of all members, by slot.
    pub fn read(head: &RecordHeader, members: &[Option<Arc<ArrayMember>>]) -> Self {
        let payload = |slot: usize| read_payload(head, slot, members.get(slot)?.as_ref()?);
        let bytes: Vec<_> = (0..head.kept.len()).map(payload).collect();
        Payloads { used: vec![0; bytes.len()], bytes }
    }

    /// Returns the next bytes of a member's payload, or `None` if the member is absent or its
    /// payload is incomplete.
    pub fn take(&mut self, slot: usize, bytes: usize) -> Option<Vec<u8>> {
        let range = self.used[slot]..self.used[slot] + bytes;
        self.used[slot] = range.end;
        self.bytes[slot].as_ref()?.get(range).map(<[u8]>::to_vec)
    }
}
