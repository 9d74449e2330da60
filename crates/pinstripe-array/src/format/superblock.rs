//! The superblock of a member: its array, its slot, and the state of all other members.
//!
//! ```text
//! magic 8 | version 2 | level 1 | policy 1 | layout 4 | array 16 | member 16 | generation 8 | features 8
//! | made at 8, seconds | name length 1, name 63
//! | slots 2 | slot 2 | chunk bytes 4 | data bytes 8
//! | areas: regions at 8, bad blocks at 8, log at 8, log bytes 8, checksums at 8, data at 8
//! | log: position 8, sequence 8
//! | work 1, slot 2, flags 1, columns 4, done (bytes, rows or stretches) 8, member 16 or journal 4, zero 12
//! | granule 4 | clean 1, zero 3
//! | per slot: state 1, member 16
//! | zeros | noted since 8 | scrub 1, zero 7, rows 8
//! | checksum of the map of regions 4 | CRC-32C 4, of all else, in the last bytes of 4 KiB
//! ```
//!
//! Older versions left zeros where "noted since" and the scrub stand, and recorded a scrub as work 3.
//!
//! The generation counts the states on which members must agree: a member without the newest
//! generation was away, and its data may be old. md calls this number events.
//!
//! Invariant: a superblock that decodes is consistent: its areas follow one another, and its slot
//! exists.

use std::ops::Range;

use super::{BLOCK_BYTES, crc32c};
use pinstripe_base::byte_enum;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ArrayId, MemberId};
use pinstripe_base::wire::{Reader, Writer};

/// The first bytes of a superblock.
pub const MAGIC: &[u8; 8] = b"PSarray\n";
const VERSION: u16 = 1;
/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = BLOCK_BYTES as usize;
/// The places of the two superblocks, which are written in turn: the lowest bit of the generation
/// selects the place.
pub const PLACES: [u64; 2] = [0, 64 << 10];
/// Data begins at a multiple of this.
pub(crate) const DATA_ALIGN_BYTES: u64 = 1 << 20;
/// The most slots.
pub(crate) const SLOTS_MAX: usize = 64;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;
/// The slot number of a spare, which waits to replace a member.
pub const SPARE: u16 = u16::MAX;
/// The place of the two last fields: the generation since which changes are noted, and the scrub in
/// progress.
const TAIL: Range<usize> = SUPERBLOCK_BYTES - 32..SUPERBLOCK_BYTES - 8;
const REGIONS_CHECK: Range<usize> = SUPERBLOCK_BYTES - 8..SUPERBLOCK_BYTES - 4;
const CHECK: Range<usize> = SUPERBLOCK_BYTES - 4..SUPERBLOCK_BYTES;

byte_enum! {
    /// How parity survives a power cut.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Consistency {
        /// No policy: after a power cut, all parity is resynced.
        None = 0,
        /// A bitmap of the regions that are being written; after a power cut, these are resynced.
        Bitmap = 1,
        /// A log of the writes that are about to be made; after a power cut, no resync is needed.
        Log = 2,
    }
}

/// The state of one slot, on which all members agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The slot never had a member, or its member was removed.
    Missing,
    /// The member has the expected content.
    Present(MemberId),
    /// The member failed or was found missing, so its data is old.
    Failed(MemberId),
    /// The member is being filled.
    Rebuilding(MemberId),
}

/// The places of a member's areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Areas {
    /// The area with the states of regions.
    pub regions_at: u64,
    /// The area with the list of bad blocks.
    pub bad_blocks_at: u64,
    /// The log.
    pub log_at: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// The area with the table of checksums.
    pub sums_at: u64,
    /// Data.
    pub data_at: u64,
}

/// Long work that continues after an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// No work is in progress.
    None,
    /// The member of a slot is filled.
    Rebuild {
        /// The slot.
        slot: u16,
        /// Bytes of the member's data that are done.
        done_bytes: u64,
        /// The member was away, and lacks only what was written meanwhile.
        only_behind: bool,
    },
    /// The member of a slot is copied to another one that is to take its place.
    Replace {
        /// The slot.
        slot: u16,
        /// The other one.
        with: MemberId,
        /// Bytes of the member's data that are done.
        done_bytes: u64,
    },
    /// All data is moved to its place in an array with one member more, which is the member of the
    /// last slot.
    Grow {
        /// The number of stretches that are done (see `array::geometry::Shape`).
        stretches: u64,
        /// The bytes at the start of each chunk that are moved of the next stretch, if that stretch
        /// is moved in place.
        columns: u32,
        /// Bytes of each chunk, after `columns`, whose valid copy is in the journal.
        journal: u32,
    },
}

/// A scrub in progress. Other work may be in progress at the same time as a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Mismatches are repaired.
    pub repair: bool,
    /// The number of rows that are done.
    pub done_rows: u64,
}

/// A superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The array.
    pub array: ArrayId,
    /// This member.
    pub member: MemberId,
    /// The slot of this member, or [`SPARE`].
    pub slot: u16,
    /// The number of the state that the members agreed on; each change increases it.
    pub generation: u64,
    /// The array's name, for people.
    pub name: String,
    /// When the array was created, in seconds since 1970.
    pub made_seconds: i64,
    /// md's number of the level.
    pub level: u8,
    /// md's number of the layout.
    pub layout: u32,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Bytes of data that each member has.
    pub data_bytes: u64,
    /// The policy that closes the write hole.
    pub consistency: Consistency,
    /// The places of this member's areas.
    pub areas: Areas,
    /// The place in the log of the first record that may be needed, and the sequence number of that
    /// record.
    pub log: (u64, u64),
    /// The work in progress.
    pub work: Work,
    /// The scrub in progress.
    pub scrub: Option<ScrubProgress>,
    /// The generation since which every changed region is noted, while a slot has no complete
    /// member. A member that returns with an older generation lacks more than the notes name. The
    /// value is 0 if nothing is noted, or if a version of pinstripe without this field wrote the
    /// superblock.
    pub noted_since: u64,
    /// Bytes of the granule; 0 if it follows the size of the requests.
    pub granule: u32,
    /// Whether the array was stopped cleanly, with nothing in progress.
    pub is_clean: bool,
    /// CRC-32C of the checksums of all sectors in the last written version of this member's map of
    /// regions. If the array was stopped cleanly, the map on the member has this checksum.
    pub regions_check: u32,
    /// The state of each slot.
    pub slots: Vec<Slot>,
}

impl Superblock {
    /// The bytes.
    ///
    /// # Panics
    /// Panics in debug builds if there are too many slots or the name is too long.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        debug_assert!(self.slots.len() <= SLOTS_MAX && self.name.len() <= NAME_BYTES_MAX);
        let mut out = Vec::with_capacity(SUPERBLOCK_BYTES);
        let mut w = Writer::new(&mut out);
        w.raw(MAGIC).u16(VERSION).u8(self.level).u8(self.consistency as u8).u32(self.layout);
        w.raw(&self.array.0).raw(&self.member.0).u64(self.generation).u64(0);
        w.i64(self.made_seconds).u8(self.name.len() as u8).raw(self.name.as_bytes());
        w.zeros(NAME_BYTES_MAX - self.name.len());
        w.u16(self.slots.len() as u16).u16(self.slot).u32(self.chunk_bytes).u64(self.data_bytes);
        let it = &self.areas;
        w.u64(it.regions_at).u64(it.bad_blocks_at).u64(it.log_at);
        w.u64(it.log_bytes).u64(it.sums_at).u64(it.data_at).u64(self.log.0).u64(self.log.1);
        let no_member = MemberId([0; 16]);
        let (work, slot, flags, columns, done, with) = match self.work {
            Work::None => (0, 0, false, 0, 0, no_member),
            Work::Rebuild { slot, done_bytes, only_behind } => {
                (1, slot, only_behind, 0, done_bytes, no_member)
            }
            Work::Replace { slot, with, done_bytes } => (2, slot, false, 0, done_bytes, with),
            Work::Grow { stretches, columns, journal } => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&journal.to_le_bytes());
                (4, 0, false, columns, stretches, MemberId(bytes))
            }
        };
        w.u8(work).u16(slot).u8(flags.into()).u32(columns).u64(done).raw(&with.0);
        w.u32(self.granule).u8(self.is_clean.into()).zeros(3);
        for slot in &self.slots {
            let (state, member) = match slot {
                Slot::Missing => (0, MemberId([0; 16])),
                Slot::Present(member) => (1, *member),
                Slot::Failed(member) => (2, *member),
                Slot::Rebuilding(member) => (3, *member),
            };
            w.u8(state).raw(&member.0);
        }
        let mut block = [0; SUPERBLOCK_BYTES];
        block[..out.len()].copy_from_slice(&out);
        let mut tail = Vec::with_capacity(TAIL.len());
        let scrub = self.scrub.map_or((0, 0), |it| (1 + u8::from(it.repair), it.done_rows));
        Writer::new(&mut tail).u64(self.noted_since).u8(scrub.0).zeros(7).u64(scrub.1);
        block[TAIL].copy_from_slice(&tail);
        block[REGIONS_CHECK].copy_from_slice(&self.regions_check.to_le_bytes());
        let check = crc32c(&block[..CHECK.start]);
        block[CHECK].copy_from_slice(&check.to_le_bytes());
        block
    }

    /// Reads the bytes back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] if the bytes are not a superblock, or are damaged; with
    /// [`Kind::Unsupported`] for a newer version, or unknown features.
    pub fn decode(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Self> {
        // Magic, checksum, version: this order tells a foreign block from a damaged one, and blames
        // a newer version only for a block that is undamaged.
        let mut r = Reader::new(&bytes[..CHECK.start], "superblock");
        if &r.array()? != MAGIC {
            return Err(r.corrupt("this is not a member of a pinstripe array"));
        }
        expect_check(bytes, &r)?;
        let version = r.u16()?;
        let (level, consistency, layout) = (r.u8()?, r.u8()?, r.u32()?);
        let (array, member, generation) = (ArrayId(r.array()?), MemberId(r.array()?), r.u64()?);
        let features = r.u64()?;
        // Before any other field is interpreted: a newer version may give them another meaning.
        if version != VERSION || features != 0 {
            let what = "the array was made by a newer version of pinstripe";
            return Err(Error::new(Kind::Unsupported, what)
                .expected(
                    format!("version {VERSION}"),
                    format!("{version}, features {features:#x}"),
                )
                .advice("assemble the array with that version of pinstripe, or with a newer one"));
        }
        let consistency = Consistency::from_byte(consistency)
            .ok_or_else(|| r.corrupt("the superblock has an unknown consistency policy"))?;
        let made_seconds = r.i64()?;
        let name = name(&mut r)?;
        let (count, slot) = (usize::from(r.u16()?), r.u16()?);
        if count > SLOTS_MAX || (slot != SPARE && usize::from(slot) >= count) {
            return Err(r.corrupt("the superblock has the number of a slot that does not exist"));
        }
        let (chunk_bytes, data_bytes) = (r.u32()?, r.u64()?);
        let areas = Areas::decode(&mut r)?;
        let log = (r.u64()?, r.u64()?);
        let (work, old_scrub) = work(&mut r, count)?;
        let (granule, clean) = (r.u32()?, r.u8()?);
        r.take(3)?;
        if clean > 1 || (granule != 0 && !granule.is_power_of_two()) {
            return Err(r.corrupt("unknown flags"));
        }
        let slots = (0..count).map(|_| slot_of(&mut r)).collect::<Result<Vec<_>>>()?;
        let (noted_since, scrub) = tail(bytes)?;
        let regions_check = bytes[REGIONS_CHECK].try_into().expect("four bytes");
        Ok(Superblock {
            array,
            member,
            slot,
            generation,
            name,
            made_seconds,
            level,
            layout,
            chunk_bytes,
            data_bytes,
            consistency,
            areas,
            log,
            work,
            scrub: scrub.or(old_scrub),
            noted_since,
            granule,
            is_clean: clean == 1,
            regions_check: u32::from_le_bytes(regions_check),
            slots,
        })
    }

    /// Whether a member is away or being filled, so that the others note the regions that it lacks.
    pub(crate) fn is_any_away(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Failed(_) | Slot::Rebuilding(_)))
    }

    /// Whether the notes of the other members name all regions that a member with this superblock
    /// lacks. `newest` is the superblock of the array, in which the member's slot is marked as
    /// failed. A copy of the member from before the notes began lacks more regions, and so does a
    /// member that was never complete in this slot.
    pub(crate) fn lacks_only_noted(&self, newest: &Superblock) -> bool {
        let own = self.slots.get(usize::from(self.slot));
        newest.noted_since > 0
            && self.generation >= newest.noted_since
            && own == Some(&Slot::Present(self.member))
            && newest.slots.get(usize::from(self.slot)) == Some(&Slot::Failed(self.member))
    }

    /// Checks that a device of this length has all of the member.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`].
    pub(crate) fn check_length(&self, device_bytes: u64) -> Result<()> {
        let needed = self.areas.data_at.saturating_add(self.data_bytes);
        match device_bytes >= needed {
            true => Ok(()),
            false => {
                Err(Error::new(Kind::Corrupt, "the device is shorter than its superblock requires")
                    .expected(format!("a length of {needed} bytes or more"), device_bytes)
                    .advice(
                        "restore the full length of the device, or add it again as a new device",
                    ))
            }
        }
    }

    /// The place to which this superblock is to be written.
    pub fn place(&self) -> u64 {
        PLACES[(self.generation % 2) as usize]
    }
}

impl Areas {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let areas = Areas {
            regions_at: r.u64()?,
            bad_blocks_at: r.u64()?,
            log_at: r.u64()?,
            log_bytes: r.u64()?,
            sums_at: r.u64()?,
            data_at: r.u64()?,
        };
        areas.check(r)?;
        Ok(areas)
    }

    /// Checks that the areas follow one another, each beginning at a block boundary.
    fn check(&self, r: &Reader<'_>) -> Result<()> {
        let behind_the_log = self.log_at.checked_add(self.log_bytes);
        let places = [
            PLACES[1] + BLOCK_BYTES,
            self.regions_at,
            self.bad_blocks_at,
            self.log_at,
            behind_the_log.unwrap_or(u64::MAX),
            self.sums_at,
            self.data_at,
        ];
        let is_sound = places.is_sorted()
            && places.iter().all(|place| place.is_multiple_of(BLOCK_BYTES))
            && self.data_at.is_multiple_of(DATA_ALIGN_BYTES);
        match is_sound {
            true => Ok(()),
            false => Err(r.corrupt("impossible areas")),
        }
    }
}

fn name(r: &mut Reader<'_>) -> Result<String> {
    let length = usize::from(r.u8()?);
    let bytes = r.take(NAME_BYTES_MAX)?;
    let name = bytes.get(..length).and_then(|name| std::str::from_utf8(name).ok());
    name.map(str::to_owned).ok_or_else(|| r.corrupt("the name of the array is not UTF-8"))
}

fn expect_check(bytes: &[u8; SUPERBLOCK_BYTES], r: &Reader<'_>) -> Result<()> {
    let stored = u32::from_le_bytes(bytes[CHECK].try_into().expect("four bytes"));
    let found = crc32c(&bytes[..CHECK.start]);
    if stored == found {
        return Ok(());
    }
    Err(r.corrupt("the checksum of the superblock does not match").expected(stored, found))
}

/// The generation since which changes are noted, and the scrub in progress.
fn tail(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<(u64, Option<ScrubProgress>)> {
    let mut r = Reader::new(&bytes[TAIL], "superblock");
    let (noted_since, kind) = (r.u64()?, r.u8()?);
    r.take(7)?;
    let done_rows = r.u64()?;
    match kind {
        0 => Ok((noted_since, None)),
        1 | 2 => Ok((noted_since, Some(ScrubProgress { repair: kind == 2, done_rows }))),
        _ => Err(r.corrupt("unknown work")),
    }
}

/// The work in progress. Older versions recorded a scrub as work in progress.
fn work(r: &mut Reader<'_>, slots: usize) -> Result<(Work, Option<ScrubProgress>)> {
    let (work, slot, flags) = (r.u8()?, r.u16()?, r.u8()?);
    let columns = r.u32()?;
    let (done, with) = (r.u64()?, MemberId(r.array()?));
    let is_slot = usize::from(slot) < slots;
    let work = match (work, flags) {
        (0, 0) => Work::None,
        (1, 0 | 1) if is_slot => Work::Rebuild { slot, done_bytes: done, only_behind: flags == 1 },
        (2, 0) if is_slot => Work::Replace { slot, with, done_bytes: done },
        (3, 0 | 1) => {
            let scrub = ScrubProgress { repair: flags == 1, done_rows: done };
            return Ok((Work::None, Some(scrub)));
        }
        (4, 0) if slots > 1 => {
            let journal = u32::from_le_bytes(*with.0.first_chunk().expect("16 bytes"));
            Work::Grow { stretches: done, columns, journal }
        }
        _ => return Err(r.corrupt("unknown work")),
    };
    Ok((work, None))
}

fn slot_of(r: &mut Reader<'_>) -> Result<Slot> {
    let (state, member) = (r.u8()?, MemberId(r.array()?));
    match state {
        0 => Ok(Slot::Missing),
        1 => Ok(Slot::Present(member)),
        2 => Ok(Slot::Failed(member)),
        3 => Ok(Slot::Rebuilding(member)),
        _ => Err(r.corrupt("the superblock has an unknown state of a slot")),
    }
}

#[cfg(test)]
mod tests;
