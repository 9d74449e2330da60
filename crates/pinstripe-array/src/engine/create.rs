//! Creating an array.

use std::path::Path;
use std::sync::Arc;

use super::Array;
use super::flusher::Flusher;
use super::heal::BadBlockList;
use super::members::Members;
use super::status::{Errors, Live};
use crate::cache::Cache;
use crate::format::BLOCK_BYTES;
use crate::format::regions::SECTOR_REGIONS;
use crate::format::sector::SECTOR_BYTES;
use crate::format::sums::{PAGE_BYTES, pages};
use crate::format::superblock::{
    Areas, Consistency, DATA_ALIGN_BYTES, PLACES, SPARE, SUPERBLOCK_BYTES, Slot, Superblock, Work,
};
use crate::geometry::{ArrayGeometry, Layout, Level, Shape};
use crate::member::ArrayMember;
use crate::ranked::{Rank, RankedMutex, RankedRwLock};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ArrayId, MemberId, random};
use pinstripe_io::device::SharedDevice;

/// The parameters of a new array.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// For people.
    pub name: String,
    /// The level.
    pub level: Level,
    /// How rows are laid out.
    pub layout: Layout,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of the log of each member.
    pub log_bytes: u64,
    /// The policy that keeps parity consistent across a power cut.
    pub consistency: Consistency,
    /// The time, in seconds since 1970.
    pub now_seconds: i64,
}

/// Creates an array of devices, one per slot, in this order. The former content of the devices is
/// lost.
///
/// # Errors
/// Fails with the errors of [`create_with`].
pub fn create(create_options: &CreateOptions, devices: Vec<SharedDevice>) -> Result<Flusher> {
    create_with(create_options, devices.into_iter().map(Some).collect(), Vec::new())
}

/// Creates an array of devices by slot, where `None` leaves a slot without a member, and of spares.
/// The former content of the devices is lost. The array uses as many bytes of each member as the
/// shortest member has.
///
/// # Errors
/// Fails with the errors of [`ArrayGeometry::new`] and of the devices; with [`Kind::Usage`] when a
/// device is too small, or when more members are missing than the array can do without.
pub(crate) fn create_with(
    create_options: &CreateOptions,
    slots: Vec<Option<SharedDevice>>,
    spares: Vec<SharedDevice>,
) -> Result<Flusher> {
    let devices = slots.iter().flatten().chain(&spares);
    let lengths = devices.map(|device| Ok((device.len()?, device.place())));
    let lengths = lengths.collect::<Result<Vec<_>>>()?;
    let (shortest, place) = lengths.into_iter().min().unwrap_or((0, Path::new("")));
    let (areas, data_bytes) =
        member_layout(create_options, shortest).map_err(|error| error.at(place))?;
    let geometry = geometry_with(create_options, slots.len(), data_bytes)?;
    let absent = slots.iter().enumerate().filter(|(_, it)| it.is_none()).map(|(slot, _)| slot);
    let absent: crate::set::MemberSet = absent.collect();
    if !geometry.survives(absent) {
        let what = format!(
            "a {} array cannot be created with this many missing devices",
            create_options.level
        );
        return Err(Error::new(Kind::Usage, what).advice("give more devices"));
    }
    let superblock = Superblock {
        array: ArrayId(random()?),
        member: MemberId([0; 16]),
        slot: 0,
        generation: 1,
        name: create_options.name.clone(),
        made_seconds: create_options.now_seconds,
        level: create_options.level.number() as u8,
        layout: create_options.layout.number(),
        chunk_bytes: create_options.chunk_bytes as u32,
        data_bytes,
        consistency: create_options.consistency,
        areas,
        log: (0, 1),
        work: Work::None,
        scrub: None,
        noted_since: 0,
        granule: 0,
        is_clean: false,
        regions_check: 0,
        slots: vec![Slot::Missing; slots.len()],
    };
    let mut members = Vec::with_capacity(slots.len());
    for (slot, device) in slots.into_iter().enumerate() {
        let member = device.map(|it| fresh(it, &superblock, slot as u16)).transpose()?;
        members.push(member);
    }
    let spares: Vec<_> =
        spares.into_iter().map(|it| fresh(it, &superblock, SPARE)).collect::<Result<_>>()?;
    let slot = |member: &Option<Arc<ArrayMember>>| {
        member.as_ref().map_or(Slot::Missing, |member| Slot::Present(member.id()))
    };
    let superblock = Superblock { slots: members.iter().map(slot).collect(), ..superblock };
    let array = Arc::new(Array::of(Shape::from_geometry(geometry), members, spares, superblock));
    array.update_superblocks(|_| {})?;
    Ok(Flusher::new(array))
}

/// Checks whether [`create`] would accept this many members of this size, before they exist.
///
/// # Errors
/// Fails with the errors of [`ArrayGeometry::new`]; with [`Kind::Usage`] when a member is too
/// small.
pub fn check_create(create_options: &CreateOptions, members: usize, bytes: u64) -> Result<()> {
    let (_, data_bytes) = member_layout(create_options, bytes)?;
    geometry_with(create_options, members, data_bytes).map(drop)
}

/// The areas of members of this size, and the number of bytes for data on each member.
fn member_layout(create_options: &CreateOptions, bytes: u64) -> Result<(Areas, u64)> {
    // An empty chunk is refused together with the other invalid chunk sizes.
    lay_out(bytes, create_options.log_bytes, create_options.chunk_bytes.max(1))
}

fn geometry_with(
    create_options: &CreateOptions,
    members: usize,
    data_bytes: u64,
) -> Result<ArrayGeometry> {
    let CreateOptions { level, layout, chunk_bytes, .. } = *create_options;
    ArrayGeometry::new(level, members, chunk_bytes, layout, data_bytes)
}

/// Makes a device into a new member. The new member has everything but a superblock. The member's
/// tables cover the entire device, so that the array can use all of it once the other members are
/// as large.
///
/// # Errors
/// Fails with [`Kind::Usage`] when the device is too small; with the errors of the device.
pub(super) fn fresh(
    device: SharedDevice,
    common: &Superblock,
    slot: u16,
) -> Result<Arc<ArrayMember>> {
    let areas = fits(&device, common)?.ok_or_else(|| too_small(&device, common))?;
    let own = Superblock { slot, member: MemberId(random()?), areas, ..common.clone() };
    // Neither a superblock nor a log record of an older array may ever be found again.
    erase(&device)?;
    device.write_at(own.areas.log_at, &[0; BLOCK_BYTES as usize])?;
    initialize(device, &own)
}

/// Changes a member that is being created so that it is for another slot. The member has everything
/// but the superblock that names its slot.
pub(super) fn for_slot(
    member: &ArrayMember,
    common: &Superblock,
    slot: u16,
) -> Result<Arc<ArrayMember>> {
    let (member_id, areas) = (member.id(), member.areas());
    let own = Superblock { slot, member: member_id, areas, ..common.clone() };
    initialize(Arc::clone(member.device()), &own)
}

fn initialize(device: SharedDevice, own: &Superblock) -> Result<Arc<ArrayMember>> {
    let member = ArrayMember::fresh(device, own);
    member.write_tables()?;
    Ok(Arc::new(member))
}

/// Erases both superblocks of a device, which is then no longer a member.
///
/// # Errors
/// Fails with the errors of the device.
pub(crate) fn erase(device: &SharedDevice) -> Result<()> {
    device.write_at(PLACES[0], &[0; SUPERBLOCK_BYTES])?;
    device.write_at(PLACES[1], &[0; SUPERBLOCK_BYTES])?;
    device.sync()
}

/// The areas that a device gets as a member of an array; `None` if the device is too small.
///
/// # Errors
/// Fails with the errors of the device.
pub(super) fn fits(device: &SharedDevice, common: &Superblock) -> Result<Option<Areas>> {
    let (len, areas) = (device.len()?, common.areas);
    match lay_out(len, areas.log_bytes, common.chunk_bytes.into()) {
        Ok((own, left)) if left >= common.data_bytes => return Ok(Some(own)),
        _ => {}
    }
    // Tables for all of it may take just what data needs: then they end where the others' do.
    Ok((len >= areas.data_at.saturating_add(common.data_bytes)).then_some(areas))
}

/// Checks that a device is large enough to become a member of an array.
///
/// # Errors
/// Fails with [`Kind::Usage`] when the device is too small; with the errors of the device.
pub fn check_room(device: &SharedDevice, superblock: &Superblock) -> Result<()> {
    fits(device, superblock)?.map(drop).ok_or_else(|| too_small(device, superblock))
}

fn too_small(device: &SharedDevice, common: &Superblock) -> Error {
    let needed = common.areas.data_at.saturating_add(common.data_bytes);
    Error::new(Kind::Usage, "this device is too small for this array")
        .at(device.place())
        .expected(format!("a size of {needed} bytes or more"), device.len().unwrap_or(0))
        .advice("add a larger device")
}

/// The areas of members of this size, and the number of bytes for data on each member.
fn lay_out(bytes: u64, log_bytes: u64, chunk_bytes: u64) -> Result<(Areas, u64)> {
    let at = |offset: u64, bytes: u64| (offset + bytes).next_multiple_of(BLOCK_BYTES);
    let regions_at = at(PLACES[1], SUPERBLOCK_BYTES as u64);
    // Tables for twice the device, 0.2 % of it: it may get longer later.
    let table_pages = pages(bytes.saturating_mul(2) / BLOCK_BYTES);
    let region_sectors = table_pages.div_ceil(SECTOR_REGIONS as u64);
    let bad_blocks_at = at(regions_at, region_sectors * SECTOR_BYTES as u64);
    let log_at = at(bad_blocks_at, BLOCK_BYTES);
    let sums_at = at(log_at, log_bytes);
    let data_at = (sums_at + table_pages * PAGE_BYTES as u64).next_multiple_of(DATA_ALIGN_BYTES);
    let left = bytes.saturating_sub(data_at) / chunk_bytes * chunk_bytes;
    if left == 0 {
        return Err(Error::new(Kind::Usage, "a member is too small for an array")
            .expected(format!("a member of more than {} bytes", data_at + chunk_bytes), bytes)
            .advice("choose larger members, or a smaller chunk"));
    }
    let areas = Areas { regions_at, bad_blocks_at, log_at, log_bytes, sums_at, data_at };
    Ok((areas, left))
}

impl Array {
    pub(super) fn of(
        shape: Shape,
        members: Vec<Option<Arc<ArrayMember>>>,
        spares: Vec<Arc<ArrayMember>>,
        superblock: Superblock,
    ) -> Self {
        let live = Live { errors: vec![Errors::default(); members.len()], ..Live::default() };
        Array {
            members: Members::new(members, spares, superblock),
            cache: RankedMutex::new(Rank::Cache, Cache::new(shape)),
            live: RankedMutex::new(Rank::Status, live),
            bad_blocks: RankedMutex::new(Rank::BadBlocks, BadBlockList::default()),
            on_bad_block: Default::default(),
            drained_bytes: Default::default(),
            has_unsure: Default::default(),
            shape: RankedRwLock::new(Rank::Shape, shape),
            reshaped: Default::default(),
            relocation_lost: Default::default(),
        }
    }
}
