//! Assembles an array from its members, also after a power cut.

use std::path::PathBuf;
use std::sync::Arc;

use super::Array;
use super::flusher::Flusher;
use super::grow::finish_moving;
use super::members::failed_slot;
use super::replay::replay;
use crate::format::BLOCK_BYTES;
use crate::format::superblock::{
    Consistency, PLACES, SPARE, SUPERBLOCK_BYTES, Slot, Superblock, Work,
};
use crate::geometry::{ArrayGeometry, Layout, Level, Shape};
use crate::member::{ArrayMember, reason_of};
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::MemberId;
use pinstripe_io::device::SharedDevice;

/// How an array is assembled.
#[derive(Debug, Clone, Copy, Default)]
pub struct AssembleOptions {
    /// Leaves out devices that cannot be used, and trusts parity and maps of regions that may be
    /// stale.
    pub force: bool,
}

/// Leaves out unusable devices, and trusts parity and maps of regions that may be stale.
pub struct Assembly {
    /// The flusher that runs the array.
    pub flusher: Flusher,
    /// Devices that were named on the call and are not used.
    pub left_out: Vec<LeftOut>,
    /// Slots without a member.
    pub absent: MemberSet,
    /// Whether the array was stopped cleanly.
    pub was_clean: bool,
    /// Records found in the log.
    pub records: usize,
}

/// A device that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The path.
    pub path: PathBuf,
    /// The reason, for people.
    pub why: String,
    /// Another member has this device's slot, so the array does not need the device.
    pub is_replaced: bool,
}

/// A device with the newer of its superblocks.
struct FoundDevice {
    device: SharedDevice,
    own: Superblock,
}

/// Assembles an array from devices in any order. A member whose device is not given is absent.
///
/// # Errors
/// - [`Kind::WrongMember`] for a device of another array, or two devices with the same member;
/// - [`Kind::Corrupt`] for one without a sound superblock or shorter than it says, unless forced;
/// - [`Kind::Unsupported`] for one of a newer version;
/// - [`Kind::TooManyLosses`] when too few are present;
/// - [`Kind::Refused`] when members went different ways, or, unless forced, when parity that may be
///   stale would have to replace an absent member;
/// - those of the devices.
pub fn assemble(devices: Vec<SharedDevice>, options: &AssembleOptions) -> Result<Assembly> {
    let mut left_out = Vec::new();
    let found = find(devices, options, &mut left_out)?;
    let newest = newest(&found)?;
    let was_clean = newest.is_clean;
    let (members, spares) = assign_slots(found, &newest, options, &mut left_out);
    let shape = shape_of(&newest)?;
    let absent = members.iter().enumerate().filter(|(_, it)| it.is_none()).map(|(slot, _)| slot);
    let absent: MemberSet = absent.collect();
    let superblock = with_replacement_settled(without(newest, absent), &members);
    let array = Array::of(shape, members, spares, superblock.clone());
    if !shape.survives(array.absent()) {
        return Err(too_few(&array, &left_out));
    }
    let is_stale = superblock.consistency != Consistency::Log && !was_clean;
    if is_stale
        && !array.absent().is_empty()
        && shape.geometry().level().parity() > 0
        && !options.force
    {
        let what = "members are absent, and the parity from which their data would be rebuilt may \
                    be stale";
        return Err(Error::new(Kind::Refused, what).advice(
            "attach the absent members, or use --force; with --force, data that was being written \
             when the array stopped may be wrong",
        ));
    }
    array.note_changes(&superblock);
    let is_unsure = array.mark_unsure(was_clean);
    array.live.lock().trusts_stale_parity = options.force;
    let mut flusher = Flusher::new(Arc::new(array));
    // Tables may be written from here on, so a stop without order has to be visible first.
    flusher.logged.array.update_superblocks(|superblock| superblock.is_clean = false)?;
    finish_moving(&mut flusher.logged)?;
    let records = replay(&mut flusher.logged)?;
    flusher.long.resume(&flusher.logged.array, is_unsure)?;
    Ok(Assembly { flusher, left_out, absent, was_clean, records })
}

/// Reads all superblocks, and checks that they belong to one array and that no member occurs twice.
fn find(
    devices: Vec<SharedDevice>,
    options: &AssembleOptions,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<FoundDevice>> {
    let mut found: Vec<FoundDevice> = Vec::with_capacity(devices.len());
    for device in devices {
        let own = match examine_member(&device) {
            Ok(own) => own,
            Err(error) if options.force && error.kind() != Kind::Unsupported => {
                left_out.push(LeftOut {
                    path: device.place().to_owned(),
                    why: reason_of(&error),
                    is_replaced: false,
                });
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(other) = found.first().filter(|other| other.own.array != own.array) {
            let what = "this is a member of another array";
            return Err(Error::new(Kind::WrongMember, what)
                .at(device.place())
                .expected(name_of(&other.own), name_of(&own))
                .advice("give only devices that are members of the same array"));
        }
        if let Some(other) = found.iter().find(|other| other.own.member == own.member) {
            let what = format!(
                "this device has the superblock of the same member as {}",
                other.device.place().display()
            );
            return Err(Error::new(Kind::WrongMember, what)
                .at(device.place())
                .advice("give only one of the two devices, because the other one is a copy"));
        }
        found.push(FoundDevice { device, own });
    }
    Ok(found)
}

fn name_of(superblock: &Superblock) -> String {
    format!("'{}', {}", superblock.name, superblock.array)
}

/// The superblock of a device that is as long as the superblock says.
///
/// # Errors
/// Fails with the errors of [`examine`]; with [`Kind::Corrupt`] for a shorter device.
pub(crate) fn examine_member(device: &SharedDevice) -> Result<Superblock> {
    let own = examine(device)?;
    own.check_length(device.len()?).map_err(|error| error.at(device.place()))?;
    Ok(own)
}

/// The newest superblock, if all superblocks of the newest generation agree.
fn newest(found: &[FoundDevice]) -> Result<Superblock> {
    let newest = found.iter().max_by_key(|it| it.own.generation);
    let newest =
        newest.ok_or_else(|| Error::new(Kind::Usage, "no member of an array was found"))?;
    let common = |it: &FoundDevice| {
        let no_member = MemberId([0; 16]);
        let areas = newest.own.areas;
        Superblock { member: no_member, slot: 0, areas, regions_check: 0, ..it.own.clone() }
    };
    let as_new = |it: &&FoundDevice| it.own.generation == newest.own.generation;
    match found.iter().filter(as_new).find(|it| common(it) != common(newest)) {
        None => Ok(newest.own.clone()),
        Some(other) => {
            let place = newest.device.place().display();
            let what = format!(
                "the states of this member and of {place} differ, because each of the two members \
                 was used without the other"
            );
            Err(Error::new(Kind::Refused, what).at(other.device.place()).advice(
                "assemble the array without one of the two members, then add that member again",
            ))
        }
    }
}

/// Members by slot, and spares.
type Assigned = (Vec<Option<Arc<ArrayMember>>>, Vec<Arc<ArrayMember>>);

/// Gives members their slots. Members with old data or a map of regions that cannot be trusted are
/// left out.
fn assign_slots(
    found: Vec<FoundDevice>,
    newest: &Superblock,
    options: &AssembleOptions,
    left_out: &mut Vec<LeftOut>,
) -> Assigned {
    let mut members: Vec<Option<Arc<ArrayMember>>> = vec![None; newest.slots.len()];
    let (mut spares, mut replacement) = (Vec::new(), None);
    for FoundDevice { device, mut own } in found {
        // A stop in order writes no table between its last two generations.
        own.is_clean |= newest.is_clean;
        // The map of regions reaches as far on every member that has the generation before.
        own.data_bytes = newest.data_bytes;
        let is_it = |slot: &Slot| match slot {
            Slot::Present(id) | Slot::Rebuilding(id) => *id == own.member,
            Slot::Missing | Slot::Failed(_) => false,
        };
        let is_new = own.generation.saturating_add(1) >= newest.generation;
        if let Work::Replace { slot, with, done_bytes } = newest.work
            && with == own.member
            && is_new
        {
            if let Some(member) = open(device, Superblock { slot, ..own }, options, left_out) {
                member.set_filled(Some(done_bytes));
                replacement = Some((usize::from(slot), member));
            }
            continue;
        }
        match newest.slots.iter().position(is_it) {
            Some(slot) if is_new => {
                let own = Superblock { slot: slot as u16, ..own };
                members[slot] = open(device, own, options, left_out);
                if let (Slot::Rebuilding(_), Some(member)) = (newest.slots[slot], &members[slot]) {
                    member.set_filled(Some(filled(newest, slot)));
                }
            }
            // It takes no superblocks while it moves into a slot, and nothing else tells it from an old
            // copy of a spare that has long been a member: it is filled from the beginning.
            _ if own.slot == SPARE => spares.push(Arc::new(ArrayMember::fresh(device, &own))),
            _ => {
                let is_replaced = is_replaced(&own, newest);
                let why = match is_replaced {
                    true => "another device has taken the slot of this member".to_owned(),
                    false => old(&own, newest),
                };
                left_out.push(LeftOut { path: device.place().to_owned(), why, is_replaced });
            }
        }
    }
    if let Some((slot, replacement)) = replacement {
        match &members[slot] {
            Some(member) => _ = member.replacement().set(Some(replacement)),
            // The member to be replaced is absent: its replacement takes the slot.
            None => members[slot] = Some(replacement),
        }
    }
    (members, spares)
}

/// Opens a member, if its map of regions can be trusted.
fn open(
    device: SharedDevice,
    own: Superblock,
    options: &AssembleOptions,
    left_out: &mut Vec<LeftOut>,
) -> Option<Arc<ArrayMember>> {
    let path = device.place().to_owned();
    match ArrayMember::open(device, &own, options.force) {
        Ok(member) => Some(Arc::new(member)),
        Err(error) => {
            let advice = error.advice_text().map(|advice| format!("; {advice}"));
            let why = format!("{}{}", reason_of(&error), advice.unwrap_or_default());
            left_out.push(LeftOut { path, why, is_replaced: false });
            None
        }
    }
}

/// The superblock after an interrupted replacement is settled: the new device has taken the slot,
/// or is missing and cannot take it.
fn with_replacement_settled(
    mut superblock: Superblock,
    members: &[Option<Arc<ArrayMember>>],
) -> Superblock {
    let Work::Replace { slot, with, done_bytes } = superblock.work else { return superblock };
    let member = members[usize::from(slot)].as_ref();
    if member.is_some_and(|member| member.id() == with) {
        superblock.slots[usize::from(slot)] = Slot::Rebuilding(with);
        superblock.work = Work::Rebuild { slot, done_bytes, only_behind: false };
    } else if member.and_then(|member| member.replacement().member()).is_none() {
        superblock.work = Work::None;
    }
    superblock
}

/// The number of bytes of a slot's data that a rebuild has filled so far.
fn filled(superblock: &Superblock, wanted: usize) -> u64 {
    match superblock.work {
        Work::Rebuild { slot, done_bytes, .. } if usize::from(slot) == wanted => done_bytes,
        _ => 0,
    }
}

/// Whether every slot has another member than this one, so that the array does not need this
/// member.
fn is_replaced(own: &Superblock, newest: &Superblock) -> bool {
    let is_taken = |slot: &Slot| match slot {
        Slot::Present(id) | Slot::Rebuilding(id) => *id != own.member,
        Slot::Missing | Slot::Failed(_) => false,
    };
    newest.slots.iter().all(is_taken)
}

fn old(own: &Superblock, newest: &Superblock) -> String {
    let behind = pinstripe_base::units::counted(
        newest.generation - own.generation,
        "generation",
        "generations",
    );
    if went_its_own_way(own, newest) {
        return format!(
            "this member was used without the other members, and its superblock is {behind} older \
             than the newest superblock"
        );
    }
    format!(
        "the data of this member is old: its superblock is {behind} older than the newest \
         superblock; add the member again to bring it up to date"
    )
}

/// Whether a member that was away has marked members as failed that are present in this array.
pub(super) fn went_its_own_way(own: &Superblock, newest: &Superblock) -> bool {
    let gave_up = |(theirs, ours): (&Slot, &Slot)| {
        matches!(theirs, Slot::Failed(_)) && matches!(ours, Slot::Present(_) | Slot::Rebuilding(_))
    };
    own.slots.iter().zip(&newest.slots).any(gave_up)
}

/// The superblock after these slots were found empty.
fn without(mut superblock: Superblock, absent: MemberSet) -> Superblock {
    for slot in absent.iter() {
        let was = superblock.slots[slot];
        superblock.slots[slot] = failed_slot(was, &superblock.work);
        if let Slot::Rebuilding(_) = was {
            superblock.work = Work::None;
        }
    }
    superblock
}

fn too_few(array: &Array, left_out: &[LeftOut]) -> Error {
    let members = array.geometry().members();
    let names = left_out.iter().map(|it| format!("{}: {}", it.path.display(), it.why));
    let advice = match left_out.is_empty() {
        true => "also give the devices of the other members of the array".to_owned(),
        false => format!("devices that were not used: {}", names.collect::<Vec<_>>().join("; ")),
    };
    Error::new(Kind::TooManyLosses, "too few members are present")
        .expected(
            format!("enough of the {members} members to rebuild all data"),
            members - array.absent().len(),
        )
        .advice(advice)
}

/// The placement of rows in the array of a superblock.
///
/// # Errors
/// Fails with the errors of [`ArrayGeometry::new`]; with [`Kind::Corrupt`] for an array that grew
/// beyond its end.
pub fn shape_of(superblock: &Superblock) -> Result<Shape> {
    let level = Level::from_number(superblock.level.into())?;
    let layout = Layout::from_number(level, superblock.layout)?;
    let (chunk_bytes, data_bytes) = (superblock.chunk_bytes.into(), superblock.data_bytes);
    let cut = |members| ArrayGeometry::new(level, members, chunk_bytes, layout, data_bytes);
    let geometry = cut(superblock.slots.len())?;
    let Work::Grow { stretches, columns, journal } = superblock.work else {
        return Ok(Shape::from_geometry(geometry));
    };
    let shape = Shape::growing(cut(superblock.slots.len() - 1)?, geometry)?;
    let (_, all) = shape.stretches().expect("it grows");
    let blocks = BLOCK_BYTES as u32;
    let is_sound = stretches <= all
        && columns.checked_add(journal).is_some_and(|end| end <= geometry.chunk_bytes())
        && (columns == 0 && journal == 0 || stretches < all)
        && columns.is_multiple_of(blocks)
        && journal.is_multiple_of(blocks);
    match is_sound {
        true => Ok(shape.moved_to(stretches)),
        false => Err(Error::new(
            Kind::Corrupt,
            "the superblock records a reshape position beyond the end of the array",
        )),
    }
}

/// The superblock of a device: the newer of its two copies.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] if the device is not a member, or both copies are damaged; with
/// [`Kind::Unsupported`] for a newer version; with the errors of the device.
pub fn examine(device: &SharedDevice) -> Result<Superblock> {
    let read = |place: &u64| {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(*place, &mut bytes)?;
        Superblock::decode(&bytes)
    };
    let both: Vec<Result<Superblock>> = PLACES.iter().map(read).collect();
    // A copy of a newer version is never ignored in favour of an older copy.
    if let Some(Err(newer)) =
        both.iter().find(|it| it.as_ref().is_err_and(|error| error.kind() == Kind::Unsupported))
    {
        return Err(newer.duplicate().at(device.place()));
    }
    let newest = both.iter().flatten().max_by_key(|it| it.generation).cloned();
    newest.ok_or_else(|| {
        let error = both.into_iter().find_map(Result::err).expect("neither was read");
        error.at(device.place())
    })
}

/// The superblock of a device; `None` if the device is not a member of any array.
pub fn probe(device: &SharedDevice) -> Option<Superblock> {
    examine(device).ok()
}
