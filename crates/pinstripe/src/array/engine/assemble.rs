//! Making an array, and finding it again on its members, after a power cut too.

use std::sync::{Arc, Mutex, RwLock};

use super::flush::Flusher;
use super::log::Log;
use super::{Array, lock};
use crate::array::cache::Cache;
use crate::array::geometry::{ArrayGeometry, Layout, Level};
use crate::array::member::Member;
use crate::array::plan::{Planner, Rules};
use crate::device::SharedDevice;
use crate::error::{Error, Kind, Result};
use crate::format::array::BLOCK_BYTES;
use crate::format::array::sector::{CONTENT_BYTES, SECTOR_BYTES};
use crate::format::array::sums::{PAGE_BYTES, pages};
use crate::format::array::superblock::{
    Areas, Consistency, DATA_ALIGN_BYTES, PLACES, SUPERBLOCK_BYTES, Slot, Superblock, Work,
};
use crate::id::{ArrayId, MemberId, random};

/// What an array is made with.
#[derive(Debug, Clone)]
pub struct Making {
    /// For people.
    pub name: String,
    /// The level.
    pub level: Level,
    /// How rows lie.
    pub layout: Layout,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of the log of each member.
    pub log_bytes: u64,
    /// When, in seconds since 1970.
    pub now_seconds: i64,
}

/// Makes an array of devices, each of which is a slot, in this order. Whatever stood on them is gone.
///
/// # Errors
/// Those of [`ArrayGeometry::new`] and of the devices; [`Kind::Usage`] when one is too small.
pub fn create(making: &Making, devices: Vec<SharedDevice>) -> Result<Flusher> {
    let lengths = devices.iter().map(|device| device.len()).collect::<Result<Vec<_>>>()?;
    let shortest = lengths.into_iter().min().unwrap_or(0);
    let (areas, data_bytes) = lay_out(shortest, making.log_bytes, making.chunk_bytes)?;
    let geometry = ArrayGeometry::new(
        making.level,
        devices.len(),
        making.chunk_bytes,
        making.layout,
        data_bytes,
    )?;
    let owns = devices.iter().map(|_| random().map(MemberId)).collect::<Result<Vec<_>>>()?;
    let superblock = Superblock {
        array: ArrayId(random()?),
        member: owns[0],
        slot: 0,
        generation: 1,
        name: making.name.clone(),
        made_seconds: making.now_seconds,
        level: making.level.number() as u8,
        layout: making.layout.number(),
        chunk_bytes: making.chunk_bytes as u32,
        data_bytes,
        consistency: Consistency::Log,
        areas,
        log: (0, 1),
        work: Work::None,
        granule: 0,
        is_clean: false,
        slots: owns.iter().map(|own| Slot::Present(*own)).collect(),
    };
    let mut members = Vec::with_capacity(devices.len());
    for (slot, device) in devices.into_iter().enumerate() {
        let own = Superblock { slot: slot as u16, ..superblock.clone() };
        // What is left of an older array must never be found again: neither its other superblock nor a
        // record of its log at the place of the first one.
        device.write_at(PLACES[0], &[0; SUPERBLOCK_BYTES])?;
        device.write_at(PLACES[1], &[0; SUPERBLOCK_BYTES])?;
        device.write_at(areas.log_at, &[0; BLOCK_BYTES as usize])?;
        let member = Member::fresh(device, &own);
        member.write_tables()?;
        member.sync()?;
        members.push(Some(Arc::new(member)));
    }
    let array = Arc::new(Array::of(geometry, members, superblock));
    array.agree(|_| {})?;
    Ok(Flusher::new(array))
}

/// Where things stand on members of so many bytes, and how much of each is data.
fn lay_out(bytes: u64, log_bytes: u64, chunk_bytes: u64) -> Result<(Areas, u64)> {
    let at = |offset: u64, bytes: u64| (offset + bytes).next_multiple_of(BLOCK_BYTES);
    let regions_at = at(PLACES[1], SUPERBLOCK_BYTES as u64);
    // Tables for all of it: a little more than what is left for data needs.
    let table_pages = pages(bytes / BLOCK_BYTES);
    let region_sectors = table_pages.div_ceil(CONTENT_BYTES as u64);
    let bad_blocks_at = at(regions_at, region_sectors * SECTOR_BYTES as u64);
    let log_at = at(bad_blocks_at, BLOCK_BYTES);
    let sums_at = at(log_at, log_bytes);
    let data_at = (sums_at + table_pages * PAGE_BYTES as u64).next_multiple_of(DATA_ALIGN_BYTES);
    let left = bytes.saturating_sub(data_at) / chunk_bytes * chunk_bytes;
    if left == 0 {
        return Err(Error::new(Kind::Usage, "a member is too small for an array")
            .expected(format!("more than {} bytes", data_at + chunk_bytes), bytes)
            .advice("choose larger members, or a smaller chunk"));
    }
    let areas = Areas { regions_at, bad_blocks_at, log_at, log_bytes, sums_at, data_at };
    Ok((areas, left))
}

/// Finds an array on devices in any order. Members that are not among them are absent.
///
/// # Errors
/// [`Kind::WrongMember`] for a device of another array, or a slot that is there twice;
/// [`Kind::TooManyLosses`] when too few are there; those of the devices.
pub fn assemble(devices: Vec<SharedDevice>) -> Result<Flusher> {
    let mut found = Vec::with_capacity(devices.len());
    for device in devices {
        let superblock = read_superblock(&device)?;
        found.push((device, superblock));
    }
    let newest = found.iter().map(|(_, it)| it).max_by_key(|it| it.generation).cloned();
    let newest = newest.ok_or_else(|| Error::new(Kind::Usage, "no member is named"))?;
    let mut members: Vec<Option<Arc<Member>>> = vec![None; newest.slots.len()];
    for (device, own) in found {
        let wrong = |what: &str| Error::new(Kind::WrongMember, what).at(device.place());
        if own.array != newest.array {
            return Err(wrong("this is a member of another array"));
        }
        let Some(slot) = newest.slots.get(usize::from(own.slot)) else { continue };
        // What the newest superblock does not call present was away, and is old.
        if *slot != Slot::Present(own.member) {
            continue;
        }
        let place = &mut members[usize::from(own.slot)];
        if place.is_some() {
            return Err(wrong("this slot of the array is there twice"));
        }
        *place = Some(Arc::new(Member::open(Arc::clone(&device), &own)?));
    }
    let level = Level::from_number(newest.level.into())?;
    let layout = Layout::from_number(level, newest.layout)?;
    let geometry = ArrayGeometry::new(
        level,
        newest.slots.len(),
        newest.chunk_bytes.into(),
        layout,
        newest.data_bytes,
    )?;
    let array = Array::of(geometry, members, newest);
    if !geometry.survives(array.absent()) {
        return Err(Error::new(Kind::TooManyLosses, "too few members are there").expected(
            format!("enough of {}", geometry.members()),
            geometry.members() - array.absent().len(),
        ));
    }
    let mut flusher = Flusher::new(Arc::new(array));
    flusher.replay()?;
    let absent = flusher.array.absent();
    flusher.array.agree(|superblock| {
        superblock.is_clean = false;
        for slot in absent.iter() {
            if let Slot::Present(member) = superblock.slots[slot] {
                superblock.slots[slot] = Slot::Failed(member);
            }
        }
    })?;
    Ok(flusher)
}

/// The newer of a member's two superblocks.
fn read_superblock(device: &SharedDevice) -> Result<Superblock> {
    let read = |place: &u64| {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(*place, &mut bytes)?;
        Superblock::decode(&bytes)
    };
    let both: Vec<Result<Superblock>> = PLACES.iter().map(read).collect();
    let newest = both.iter().flatten().max_by_key(|it| it.generation).cloned();
    newest.ok_or_else(|| {
        let error = both.into_iter().find_map(Result::err).expect("neither was read");
        error.at(device.place())
    })
}

impl Array {
    fn of(
        geometry: ArrayGeometry,
        members: Vec<Option<Arc<Member>>>,
        superblock: Superblock,
    ) -> Self {
        Array {
            members: RwLock::new(members),
            superblock: Mutex::new(superblock),
            cache: Mutex::new(Cache::new(geometry.data(), geometry.row_bytes())),
            geometry,
        }
    }
}

impl Flusher {
    fn new(array: Arc<Array>) -> Self {
        let superblock = lock(&array.superblock).clone();
        let log = Log {
            array: superblock.array,
            position: superblock.log.0,
            sequence: superblock.log.1,
            area_bytes: superblock.areas.log_bytes,
            used_bytes: 0,
        };
        Flusher { array, log, planner: Planner::default(), rules: Rules::default() }
    }
}
