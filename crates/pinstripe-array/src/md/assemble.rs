//! Selects the members of an md array among devices, and decides whether they may be used.

use std::ops::Range;
use std::path::PathBuf;

use super::write::Writing;
use super::{MdArray, MdMember};
use crate::format::md::{
    BAD_BLOCKS_BYTES_MAX, FEATURE_BAD_BLOCKS, FEATURE_CLUSTERED, FEATURE_JOURNAL,
    FEATURE_MULTIPLE_PPLS, FEATURE_PPL, FEATURE_RECOVERY, FEATURE_REPLACEMENT, FEATURE_RESHAPE,
    MdSuperblock, MdVersion, Role, SECTOR_BYTES, bad_blocks,
};
use crate::geometry::{ArrayGeometry, Layout, Level};
use crate::set::SET_MAX;
use crate::signature::md_superblock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::KIB;
use pinstripe_io::device::SharedDevice;

/// The unit of reads from md's mirrors, which have no chunks.
const MIRROR_CHUNK_BYTES: u64 = 64 * KIB;

/// Options for opening.
#[derive(Debug, Clone, Copy, Default)]
pub struct MdAssembleOptions {
    /// The time in seconds since 1970, for the superblocks; with it the array is also opened for
    /// writing, which only a complete and clean set allows.
    pub write: Option<u64>,
    /// Also reads arrays that md would not start: dirty and degraded arrays, and arrays with a
    /// journal, which is ignored. Leaves out devices that are not members of the array.
    pub force: bool,
}

/// A device that is not part of the assembled array.
#[derive(Debug)]
pub struct MdLeftOut {
    /// The device.
    pub place: PathBuf,
    /// The reason, for people.
    pub why: String,
}

/// An array, and the devices that were not used.
pub struct MdAssembly {
    /// The array.
    pub array: MdArray,
    /// Devices that were given and are not members of the assembled array.
    pub left_out: Vec<MdLeftOut>,
}

/// The advice about a device that does not belong to the same array as the others.
const LEAVE_OUT: &str =
    "leave out this device, or run 'pinstripe array assemble NAME DEVICE... --force' to ignore it";

/// Finds an md array on devices in any order.
///
/// # Errors
/// Fails with [`Kind::WrongMember`] for a device of another array and for two devices with the same
/// member; with [`Kind::Unsupported`] for a set in the middle of a reshape, one that several
/// machines share, and level 0 on members of unequal size; with [`Kind::Refused`] for a set whose
/// content could be wrong, unless forced, and for writing to a set that is not complete and clean;
/// with [`Kind::TooManyLosses`] when too few members are present; with the errors of
/// [`MdSuperblock::decode`] and of the devices.
pub fn assemble(devices: Vec<SharedDevice>, options: MdAssembleOptions) -> Result<MdAssembly> {
    let mut found = Vec::with_capacity(devices.len());
    let mut strangers = Vec::new();
    for device in devices {
        match md_superblock(&*device) {
            Ok(superblock) => found.push((device, superblock)),
            Err(error) if error.kind() == Kind::NotFound && options.force => {
                let why = "the device has no md superblock".to_owned();
                strangers.push(MdLeftOut { place: device.place().to_path_buf(), why });
            }
            Err(error) if options.force && error.kind() != Kind::Unsupported => {
                let why = crate::member::reason_of(&error);
                strangers.push(MdLeftOut { place: device.place().to_path_buf(), why });
            }
            Err(error) if error.kind() == Kind::NotFound => return Err(error.advice(LEAVE_OUT)),
            Err(error) => return Err(error),
        }
    }
    let newest = found.iter().map(|(_, it)| it).max_by_key(|it| it.state.events).cloned();
    let newest = newest.ok_or_else(|| {
        Error::new(Kind::Usage, "none of the given devices is a member of an md array")
    })?;
    let place = found[0].0.place().to_path_buf();
    check_features(&newest, options).map_err(|error| error.at(&place))?;
    let mut set = MembersByRole::new(&newest, strangers, options.force)?;
    for (device, superblock) in found {
        set.take(device, superblock)?;
    }
    let MembersByRole { members, left_out, .. } = set;
    let geometry = geometry(&newest, &members)?;
    let mut array = MdArray {
        geometry,
        members,
        parity_bytes: parity_bytes(&newest, options),
        superblock: newest,
        place,
        writing: None,
    };
    array.check_members(options)?;
    if let Some(now_seconds) = options.write {
        array.check_writable()?;
        array.writing = Some(Writing::new(now_seconds));
    }
    Ok(MdAssembly { array, left_out })
}

/// Refuses features under which the places of data differ from those of the geometry.
fn check_features(newest: &MdSuperblock, options: MdAssembleOptions) -> Result<()> {
    let unsupported = |what: &str, advice: &str| {
        Err(Error::new(Kind::Unsupported, what).advice(advice.to_owned()))
    };
    if newest.has(FEATURE_RESHAPE) {
        return unsupported(
            "the array is in the middle of a reshape",
            "let md finish the reshape: run 'mdadm --assemble', and watch /proc/mdstat until the \
             reshape is done",
        );
    }
    if newest.has(FEATURE_CLUSTERED) {
        return unsupported(
            "several machines share this md array",
            "stop the array on all machines, and change its bitmap: 'mdadm --grow \
             --bitmap=internal'",
        );
    }
    if newest.has(FEATURE_JOURNAL) && !options.force {
        return Err(Error::new(
            Kind::Refused,
            "the array has a journal, which may contain data that the members lack",
        )
        .advice(
            "'pinstripe array assemble NAME DEVICE... --force' reads only the data on the \
                 members",
        ));
    }
    Ok(())
}

/// Members by role, and the devices that are not members.
struct MembersByRole<'s> {
    newest: &'s MdSuperblock,
    members: Vec<Option<MdMember>>,
    left_out: Vec<MdLeftOut>,
    /// Whether members of other arrays are left out instead of refused.
    force: bool,
}

impl<'s> MembersByRole<'s> {
    fn new(newest: &'s MdSuperblock, left_out: Vec<MdLeftOut>, force: bool) -> Result<Self> {
        let count = newest.array.members as usize;
        if count > SET_MAX {
            return Err(Error::new(
                Kind::Unsupported,
                "an array with this many members is not supported",
            )
            .expected(format!("at most {SET_MAX}"), count));
        }
        let members = (0..count).map(|_| None).collect();
        Ok(MembersByRole { newest, members, left_out, force })
    }

    fn take(&mut self, device: SharedDevice, superblock: MdSuperblock) -> Result<()> {
        let newest = self.newest;
        let wrong = |what: String| Error::new(Kind::WrongMember, what).at(device.place());
        let is_stranger = superblock.array.set_uuid != newest.array.set_uuid;
        if is_stranger && !self.force {
            return Err(wrong(format!(
                "this device is a member of the array '{}', but the device with the newest \
                 superblock is a member of '{}'",
                superblock.name(),
                newest.name()
            ))
            .advice(LEAVE_OUT));
        }
        let mut leave = |why: String| {
            let place = device.place().to_path_buf();
            self.left_out.push(MdLeftOut { place, why });
            Ok(())
        };
        if is_stranger {
            return leave(format!(
                "the device is a member of another array: '{}'",
                superblock.name()
            ));
        }
        let events = superblock.state.events;
        // md itself may have stopped between one member's superblock and the next one's.
        if events + 1 < newest.state.events {
            let newest = newest.state.events;
            return leave(format!(
                "the member is old: its event count is {events}, and the event count of the newest \
                 member is {newest}"
            ));
        }
        let role = match newest.role_of(superblock.device.number) {
            Role::Member(role) => usize::from(role),
            Role::Faulty => return leave("it failed".to_owned()),
            Role::Journal => return leave("the device is the journal".to_owned()),
            Role::Spare => return leave("the device is a spare".to_owned()),
        };
        let is_replacement = superblock.has(FEATURE_REPLACEMENT);
        let Some(slot) = self.members.get_mut(role) else {
            return Err(wrong(format!(
                "the device has role {role}, which does not exist in this array"
            )));
        };
        match slot {
            Some(_) if is_replacement => {
                leave(format!("the device is a replacement for member {role}"))
            }
            Some(there) if there.superblock.has(FEATURE_REPLACEMENT) => {
                let place = there.device.place().to_path_buf();
                let why = format!("the device is a replacement for member {role}");
                self.left_out.push(MdLeftOut { place, why });
                *slot = Some(MdMember::open(device, superblock)?);
                Ok(())
            }
            Some(_) => Err(wrong(format!("two of the given devices are member {role}"))),
            None => {
                *slot = Some(MdMember::open(device, superblock)?);
                Ok(())
            }
        }
    }
}

impl MdMember {
    fn open(device: SharedDevice, superblock: MdSuperblock) -> Result<Self> {
        let own = &superblock.device;
        let data_at = own.data_offset_sectors * SECTOR_BYTES;
        let data_bytes = own.data_sectors * SECTOR_BYTES;
        let (is, wanted) = (device.len()?, data_at + used_bytes(&superblock).min(data_bytes));
        if is < wanted {
            return Err(Error::new(
                Kind::Corrupt,
                "the device is shorter than its superblock says",
            )
            .at(device.place())
            .expected(format!("{wanted} bytes"), is));
        }
        let mut unreadable = read_bad_blocks(&device, &superblock)?;
        if superblock.has(FEATURE_RECOVERY) {
            unreadable.push(own.recovery_sectors.saturating_mul(SECTOR_BYTES)..u64::MAX);
        }
        Ok(MdMember { device, superblock, data_at, unreadable })
    }
}

/// Bytes of each member's data that the array uses.
fn used_bytes(superblock: &MdSuperblock) -> u64 {
    let array = &superblock.array;
    let sectors = match array.level {
        0 => superblock.device.data_sectors,
        _ => array.size_sectors,
    };
    sectors.saturating_mul(SECTOR_BYTES)
}

/// The bad blocks of a member, as ranges of its data.
fn read_bad_blocks(device: &SharedDevice, superblock: &MdSuperblock) -> Result<Vec<Range<u64>>> {
    let own = &superblock.device;
    if !superblock.has(FEATURE_BAD_BLOCKS) {
        return Ok(Vec::new());
    }
    let sector =
        own.place.sector.checked_add_signed(own.bad_blocks_offset_sectors.into()).ok_or_else(
            || Error::corrupt("the member has an impossible list of bad blocks", device.place()),
        )?;
    let bytes =
        (usize::from(own.bad_blocks_sectors) * SECTOR_BYTES as usize).min(BAD_BLOCKS_BYTES_MAX);
    let mut list = vec![0; bytes];
    device.read_at(sector * SECTOR_BYTES, &mut list)?;
    let data = own.data_offset_sectors;
    let within = |it: Range<u64>| {
        let bytes = |sector: u64| sector.saturating_sub(data).saturating_mul(SECTOR_BYTES);
        bytes(it.start)..bytes(it.end)
    };
    let mut bad: Vec<_> = bad_blocks(&list, own.bad_blocks_shift).map(within).collect();
    bad.retain(|it| it.start < it.end);
    bad.sort_by_key(|it| it.start);
    Ok(bad)
}

fn geometry(newest: &MdSuperblock, members: &[Option<MdMember>]) -> Result<ArrayGeometry> {
    let level = Level::from_number(newest.array.level)?;
    let layout = Layout::from_number(level, newest.array.layout)?;
    let chunk_bytes = match level {
        Level::Raid1 => MIRROR_CHUNK_BYTES,
        _ => u64::from(newest.array.chunk_sectors) * SECTOR_BYTES,
    };
    let member_bytes = match level {
        Level::Raid0 => equal_bytes(members, chunk_bytes)?,
        _ => used_bytes(newest),
    };
    ArrayGeometry::new(level, members.len(), chunk_bytes, layout, member_bytes)
}

/// The bytes of each member of a level 0, in whole chunks.
fn equal_bytes(members: &[Option<MdMember>], chunk_bytes: u64) -> Result<u64> {
    let bytes = |member: &MdMember| {
        used_bytes(&member.superblock).checked_div(chunk_bytes).unwrap_or(0) * chunk_bytes
    };
    let mut there = members.iter().flatten();
    let first = there.next().map_or(0, bytes);
    match there.find(|member| bytes(member) != first) {
        None => Ok(first),
        Some(other) => {
            let what = "level 0 on members of unequal size is not supported";
            Err(Error::new(Kind::Unsupported, what)
                .at(other.device.place())
                .expected(format!("{first} bytes, the size of the other members"), bytes(other)))
        }
    }
}

/// The number of bytes of each member up to which parity is right.
fn parity_bytes(newest: &MdSuperblock, options: MdAssembleOptions) -> u64 {
    match newest.is_clean() || options.force {
        true => u64::MAX,
        false => newest.state.resync_sectors.saturating_mul(SECTOR_BYTES),
    }
}

impl MdArray {
    /// Checks that the present members suffice and may be trusted.
    fn check_members(&self, options: MdAssembleOptions) -> Result<()> {
        let absent = self.absent();
        if !self.geometry.survives(absent) {
            let (all, there) = (self.members.len(), self.members.len() - absent.len());
            return Err(Error::new(Kind::TooManyLosses, "too few members are present")
                .at(&self.place)
                .expected(format!("enough of the {all} members to rebuild all data"), there));
        }
        let is_dirty = !self.superblock.is_clean();
        if is_dirty && !absent.is_empty() && self.geometry.level().parity() > 0 && !options.force {
            let what =
                "the array is dirty and degraded, so missing data may be rebuilt incorrectly";
            return Err(Error::new(Kind::Refused, what).at(&self.place).advice(
                "attach all members; 'pinstripe array assemble NAME DEVICE... --force' reads the \
                 array anyway",
            ));
        }
        Ok(())
    }

    /// Refuses to write a set after which md could not tell which content is right.
    fn check_writable(&self) -> Result<()> {
        let has = |feature: u32| self.superblock.has(feature);
        let members = || self.members.iter().flatten();
        let why = match () {
            () if !self.absent().is_empty() => "the array is not complete",
            () if !self.superblock.is_clean() => "the array is not clean",
            () if members().any(|it| !it.unreadable.is_empty()) => {
                "a member has bad blocks or is being recovered"
            }
            () if self.superblock.device.place.version == MdVersion::V0_90 => {
                "the array has metadata 0.90"
            }
            () if has(FEATURE_JOURNAL) => "the array has a journal",
            () if has(FEATURE_PPL | FEATURE_MULTIPLE_PPLS) => {
                "the array has a partial parity log (PPL)"
            }
            () => return Ok(()),
        };
        Err(Error::new(Kind::Refused, format!("pinstripe cannot write to this md array: {why}"))
            .at(&self.place)
            .advice("the array can be read; to write to the array, assemble it with mdadm"))
    }
}
