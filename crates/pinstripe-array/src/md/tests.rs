//! Sets as md would make them, in memory: superblocks from `format/md`, bytes by the definition.

use std::sync::Arc;

use pinstripe_kernel::parity::gf256;

use super::*;
use crate::format::md::{
    self, FEATURE_BAD_BLOCKS, FEATURE_BITMAP, FEATURE_JOURNAL, FEATURE_MULTIPLE_PPLS,
    FEATURE_RECOVERY, FEATURE_REPLACEMENT, FEATURE_RESHAPE, MdState,
};
use crate::geometry::{Layout, Level};
use pinstripe_io::device::{Device, MemoryDevice};
use pinstripe_io::fault::{FaultyDevice, Plan};

const DATA_AT: u64 = 1 << 20;
const MEMBER_BYTES: u64 = 256 << 10;
const CHUNK: u64 = 16 << 10;

fn superblock(level: Level, layout: Layout, members: u32, number: u32) -> MdSuperblock {
    let sectors = MEMBER_BYTES / 512;
    MdSuperblock {
        array: md::MdArrayInfo {
            features: 0,
            set_uuid: [7; 16],
            set_name: [0; 32],
            created: 0,
            level: level.number(),
            layout: layout.number(),
            size_sectors: if level == Level::Raid0 { 0 } else { sectors },
            chunk_sectors: if level == Level::Raid1 { 0 } else { (CHUNK / 512) as u32 },
            members,
            log: [0; 4],
            reshape: md::MdReshape::default(),
        },
        device: md::MdDeviceInfo {
            data_offset_sectors: DATA_AT / 512,
            data_sectors: sectors,
            place: md::MdPlace::V1_2,
            recovery_sectors: 0,
            number,
            corrected_reads: 0,
            uuid: [number as u8; 16],
            flags: 0,
            bad_blocks_shift: 0,
            bad_blocks_sectors: 8,
            bad_blocks_offset_sectors: 0,
        },
        state: MdState { updated: 1, events: 20, resync_sectors: u64::MAX },
        roles: (0..members as u16).collect(),
    }
}

/// Devices of a set, its geometry, and what it holds.
struct Set {
    devices: Vec<Arc<MemoryDevice>>,
    superblocks: Vec<MdSuperblock>,
    model: Vec<u8>,
}

impl Set {
    fn new(level: Level, layout: Layout, members: usize) -> Self {
        let superblocks: Vec<_> =
            (0..members as u32).map(|n| superblock(level, layout, members as u32, n)).collect();
        let name = |n: usize| format!("disk{n}");
        let devices: Vec<_> = (0..members)
            .map(|n| Arc::new(MemoryDevice::with_limit(name(n), DATA_AT + MEMBER_BYTES)))
            .collect();
        let set = Set { devices, superblocks, model: Vec::new() };
        set.devices.iter().for_each(|it| it.set_len(DATA_AT + MEMBER_BYTES).unwrap());
        set.put_superblocks();
        set.filled(level, layout, members)
    }

    fn put_superblocks(&self) {
        for (device, superblock) in self.devices.iter().zip(&self.superblocks) {
            device.write_at(md::SUPERBLOCK_OFFSET, &superblock.encode()).unwrap();
        }
    }

    /// Puts bytes on the members shard by shard, parity by the definition.
    fn filled(mut self, level: Level, layout: Layout, members: usize) -> Self {
        let chunk = if level == Level::Raid1 { 64 << 10 } else { CHUNK };
        let geometry = ArrayGeometry::new(level, members, chunk, layout, MEMBER_BYTES).unwrap();
        let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        self.model = (0..geometry.capacity()).map(|at| byte(at / 3)).collect();
        for row in 0..geometry.rows() {
            let map = geometry.map(row);
            let len = map.len() as usize;
            let first = (row * geometry.row_bytes()) as usize;
            let data = |n: usize| &self.model[first + n * len..first + (n + 1) * len];
            for shard in 0..map.shards() {
                let bytes: Vec<u8> = match shard.checked_sub(map.data()) {
                    _ if map.mirrors() => data(0).to_vec(),
                    None => data(shard).to_vec(),
                    Some(parity) => (0..len)
                        .map(|at| {
                            let term = |n: usize| {
                                let power = if parity == 0 { 0 } else { map.coefficient(n) };
                                gf256::mul(gf256::exp(power), data(n)[at])
                            };
                            (0..map.data()).map(term).fold(0, |sum, term| sum ^ term)
                        })
                        .collect(),
                };
                let place = map.place(shard);
                self.devices[place.member].write_at(DATA_AT + place.start, &bytes).unwrap();
            }
        }
        self
    }

    fn shared(&self) -> Vec<SharedDevice> {
        self.devices.iter().map(|it| Arc::clone(it) as SharedDevice).collect()
    }

    fn without(&self, gone: &[usize]) -> Vec<SharedDevice> {
        let there = self.shared().into_iter().enumerate();
        there.filter(|(n, _)| !gone.contains(n)).map(|(_, device)| device).collect()
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        let read = |it: &Arc<MemoryDevice>| {
            let mut bytes = vec![0; (DATA_AT + MEMBER_BYTES) as usize];
            it.read_at(0, &mut bytes).unwrap();
            bytes
        };
        self.devices.iter().map(read).collect()
    }
}

const READ: MdAssembleOptions = MdAssembleOptions { write: None, force: false };
const WRITE: MdAssembleOptions = MdAssembleOptions { write: Some(99), force: false };
const FORCE: MdAssembleOptions = MdAssembleOptions { write: None, force: true };

fn parity_set() -> Set {
    Set::new(Level::Raid5, Layout::default_of(Level::Raid5), 4)
}

fn content(array: &MdArray) -> Result<Vec<u8>> {
    let mut bytes = vec![0; array.len()? as usize];
    array.read_at(0, &mut bytes)?;
    Ok(bytes)
}

fn refusal(devices: Vec<SharedDevice>, options: MdAssembleOptions) -> (Kind, String) {
    match assemble(devices, options) {
        Ok(_) => panic!("it was assembled"),
        Err(error) => (error.kind(), error.to_string()),
    }
}

/// Every level and some layouts: level, layout, members, how many may be lost.
fn sets() -> Vec<(Level, Layout, usize, usize)> {
    let rows = [
        (Level::Raid0, "", 3, 0),
        (Level::Raid1, "", 3, 2),
        (Level::Raid4, "", 3, 1),
        (Level::Raid5, "la", 4, 1),
        (Level::Raid5, "ra", 3, 1),
        (Level::Raid5, "ls", 5, 1),
        (Level::Raid5, "rs", 4, 1),
        (Level::Raid5, "parity-first", 3, 1),
        (Level::Raid5, "parity-last", 4, 1),
        (Level::Raid6, "ls", 5, 2),
        (Level::Raid6, "la-6", 4, 2),
        (Level::Raid6, "ddf-N-continue", 5, 2),
        (Level::Raid10, "n2", 4, 1),
        (Level::Raid10, "f2", 3, 1),
        (Level::Raid10, "o2", 5, 1),
    ];
    let layout = |level: Level, text: &str| match text {
        "" => Layout::default_of(level),
        text => Layout::parse(level, text).unwrap(),
    };
    rows.map(|(level, text, members, lost)| (level, layout(level, text), members, lost)).into()
}

#[test]
fn all_levels_are_read_whole_and_with_members_missing() {
    for (level, layout, members, lost) in sets() {
        let set = Set::new(level, layout, members);
        let before = set.bytes();
        for gone in 0..=lost {
            for first in 0..members {
                let gone: Vec<_> = (0..gone).map(|n| (first + n) % members).collect();
                let mut devices = set.without(&gone);
                devices.reverse();
                let found = assemble(devices, READ).unwrap();
                let what = format!("{level} {layout} of {members} without {gone:?}");
                assert!(content(&found.array).unwrap() == set.model, "{what}");
            }
        }
        assert!(set.bytes() == before, "{level} {layout}: reading changed a member");
        if lost + 1 < members {
            let (kind, _) = refusal(set.without(&(0..=lost).collect::<Vec<_>>()), READ);
            assert_eq!(kind, Kind::TooManyLosses, "{level} {layout}");
        }
    }
}

#[test]
fn what_is_written_is_read_by_the_definition_again() {
    for (level, layout, members, lost) in sets() {
        let mut set = Set::new(level, layout, members);
        let array = assemble(set.shared(), WRITE).unwrap().array;
        for (at, len) in [(0, 1), (511, 5000), (70_000, 100_000), (set.model.len() - 9, 9)] {
            let bytes: Vec<u8> = (0..len).map(|n| (n as u8).wrapping_mul(31)).collect();
            array.write_at(at as u64, &bytes).unwrap();
            set.model[at..at + len].copy_from_slice(&bytes);
            assert!(content(&array).unwrap() == set.model, "{level} {layout}");
        }
        array.finish().unwrap();
        for first in 0..members {
            let gone: Vec<_> = (0..lost).map(|n| (first + n) % members).collect();
            let array = assemble(set.without(&gone), READ).unwrap().array;
            let what = format!("{level} {layout} without {gone:?}");
            assert!(content(&array).unwrap() == set.model, "{what}");
            assert!(array.superblock().is_clean() && array.superblock().state.events == 22);
        }
    }
}

#[test]
fn a_set_is_dirty_from_the_first_write_until_it_is_finished() {
    let set = parity_set();
    let array = assemble(set.shared(), WRITE).unwrap().array;
    let before = set.bytes();
    let state = || assemble(set.shared(), READ).unwrap().array.superblock().state.clone();
    assert!(before == set.bytes() && state().resync_sectors == u64::MAX);
    array.write_at(5, &[1, 2, 3]).unwrap();
    assert_eq!(state(), MdState { updated: 99, events: 21, resync_sectors: 0 });
    let (kind, what) = refusal(set.without(&[2]), READ);
    assert!(kind == Kind::Refused && what.contains("dirty and degraded"), "{what}");
    assert!(assemble(set.without(&[2]), FORCE).is_ok());
    array.finish().unwrap();
    assert_eq!(state(), MdState { updated: 99, events: 22, resync_sectors: u64::MAX });
}

#[test]
fn a_failed_write_leaves_the_set_dirty() {
    let set = parity_set();
    let mut devices = set.shared();
    // The superblock is the first write, data the second.
    let plan: Plan = "op=write,after=1,error=EIO".parse().unwrap();
    devices[1] = Arc::new(FaultyDevice::new(Arc::clone(&devices[1]), plan));
    let array = assemble(devices, WRITE).unwrap().array;
    let bytes = vec![1; 3 * CHUNK as usize];
    assert_eq!(array.write_at(0, &bytes).unwrap_err().kind(), Kind::Io);
    let again = array.write_at(0, &bytes).unwrap_err();
    assert!(
        again
            .to_string()
            .contains("the array is read-only, because a member failed during a write"),
        "{again}"
    );
    array.finish().unwrap();
    let state = assemble(set.shared(), READ).unwrap().array.superblock().state.clone();
    assert_eq!(state.resync_sectors, 0);
}

#[test]
fn the_bitmap_is_dated_with_the_superblock() {
    let mut set = parity_set();
    for superblock in &mut set.superblocks {
        superblock.array.features = FEATURE_BITMAP;
        superblock.array.log = 8_i32.to_le_bytes();
    }
    set.put_superblocks();
    let at = md::SUPERBLOCK_OFFSET + 8 * 512;
    let mut bitmap = vec![0; 512];
    bitmap[..4].copy_from_slice(b"bitm");
    bitmap[24..32].copy_from_slice(&20_u64.to_le_bytes());
    set.devices.iter().for_each(|it| it.write_at(at, &bitmap).unwrap());
    // On one member it is no bitmap: left alone.
    set.devices[3].write_at(at, &[0; 4]).unwrap();
    let array = assemble(set.shared(), WRITE).unwrap().array;
    array.write_at(0, &[1]).unwrap();
    array.finish().unwrap();
    let events = |n: usize| {
        let mut bytes = [0; 40];
        set.devices[n].read_at(at, &mut bytes).unwrap();
        [24, 32].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
    };
    assert_eq!([events(0), events(3)], [[22, 22], [20, 0]]);
}

#[test]
fn what_cannot_be_read_comes_from_the_others() {
    let mut set = parity_set();
    // MdMember 0 has bad blocks, member 2 is recovered up to half; never both in one row.
    let bad = 64_u64;
    let own = &mut set.superblocks[0];
    own.array.features = FEATURE_BAD_BLOCKS;
    own.device.bad_blocks_offset_sectors = 16;
    let entry = |start: u64, len: u64| ((DATA_AT / 512 + start) << 10 | len).to_le_bytes();
    let list = [entry(3, 2), entry(bad, 4), [0xff; 8]].concat();
    set.devices[0].write_at(md::SUPERBLOCK_OFFSET + 16 * 512, &list).unwrap();
    let half = MEMBER_BYTES / 2;
    let own = &mut set.superblocks[2];
    own.array.features = FEATURE_RECOVERY;
    own.device.recovery_sectors = half / 512;
    set.put_superblocks();
    set.devices[0].write_at(DATA_AT + 3 * 512, &[0xee; 1024]).unwrap();
    set.devices[0].write_at(DATA_AT + bad * 512, &[0xee; 2048]).unwrap();
    set.devices[2].write_at(DATA_AT + half, &vec![0xee; half as usize]).unwrap();
    let array = assemble(set.shared(), READ).unwrap().array;
    assert!(content(&array).unwrap() == set.model);
    let (kind, what) = refusal(set.shared(), WRITE);
    assert!(kind == Kind::Refused && what.contains("bad blocks"), "{what}");
    // What reads with an error as well.
    let mut devices = set.shared();
    let plan: Plan = "op=read,after=5,error=EIO".parse().unwrap();
    devices[1] = Arc::new(FaultyDevice::new(Arc::clone(&devices[1]), plan));
    let array = assemble(devices, READ).unwrap().array;
    assert_eq!(content(&array).unwrap_err().kind(), Kind::TooManyLosses);
}

#[test]
fn a_place_of_another_version_may_be_unreadable() {
    let set = parity_set();
    let mut devices = set.shared();
    let plan: Plan = "op=read,after=1,times=3,error=EIO".parse().unwrap();
    devices[1] = Arc::new(FaultyDevice::new(Arc::clone(&devices[1]), plan));
    let array = assemble(devices, READ).unwrap().array;
    assert!(array.absent().is_empty() && content(&array).unwrap() == set.model);
}

#[test]
fn parity_that_was_never_synced_is_not_believed() {
    let mut set = parity_set();
    set.superblocks.iter_mut().for_each(|it| it.state.resync_sectors = MEMBER_BYTES / 2 / 512);
    set.put_superblocks();
    let mut devices = set.shared();
    let plan: Plan = "op=read,after=5,error=EIO".parse().unwrap();
    devices[1] = Arc::new(FaultyDevice::new(Arc::clone(&devices[1]), plan));
    let array = assemble(devices, READ).unwrap().array;
    let half = set.model.len() / 2;
    let mut bytes = vec![0; half];
    array.read_at(0, &mut bytes).unwrap();
    assert!(bytes == set.model[..half]);
    let error = array.read_at(half as u64, &mut bytes).unwrap_err();
    assert!(error.to_string().contains("never synced"), "{error}");
}

#[test]
fn devices_that_are_no_members_are_left_out_or_refused() {
    let set = || parity_set();
    let changed = |change: &dyn Fn(&mut Vec<MdSuperblock>)| {
        let mut set = set();
        change(&mut set.superblocks);
        set.put_superblocks();
        set
    };
    let left_out = |set: &Set| {
        let found = assemble(set.shared(), READ).unwrap();
        assert!(content(&found.array).unwrap() == set.model);
        let [one] = &found.left_out[..] else { panic!("{:?}", found.left_out) };
        format!("{}: {}", one.place.display(), one.why)
    };
    let old = changed(&|it| it[1].state.events = 18);
    assert_eq!(
        left_out(&old),
        "disk1: the member is old: its event count is 18, and the event count of the newest member \
         is 20"
    );
    let failed = changed(&|it| it.iter_mut().for_each(|it| it.roles[3] = 0xfffe));
    assert_eq!(left_out(&failed), "disk3: it failed");
    let spare = changed(&|it| it.iter_mut().for_each(|it| it.roles[2] = 0xffff));
    assert_eq!(left_out(&spare), "disk2: the device is a spare");

    let foreign = changed(&|it| it[2].array.set_uuid = [8; 16]);
    assert_eq!(refusal(foreign.shared(), READ).0, Kind::WrongMember);
    let twice = changed(&|it| it[2].device.number = 1);
    let (kind, what) = refusal(twice.shared(), READ);
    assert!(kind == Kind::WrongMember && what.contains("two of the given devices"), "{what}");
    let damaged = set();
    damaged.devices[1].write_at(md::SUPERBLOCK_OFFSET + 100, &[1]).unwrap();
    assert_eq!(refusal(damaged.shared(), READ).0, Kind::Corrupt);
    let short = set();
    short.devices[2].set_len(DATA_AT + 100).unwrap();
    let (kind, what) = refusal(short.shared(), READ);
    assert!(kind == Kind::Corrupt && what.contains("disk2"), "{what}");
    assert_eq!(refusal(Vec::new(), READ).0, Kind::Usage);
}

#[test]
fn a_replacement_stands_behind_what_it_is_to_replace() {
    let mut set = parity_set();
    let mut replacement = set.superblocks[1].clone();
    replacement.array.features = FEATURE_REPLACEMENT | FEATURE_RECOVERY;
    replacement.device.number = 4;
    set.superblocks.push(replacement);
    set.superblocks.iter_mut().for_each(|it| it.roles.resize(5, 1));
    set.devices.push(Arc::new(MemoryDevice::with_limit("disk4", DATA_AT + MEMBER_BYTES)));
    set.devices[4].set_len(DATA_AT + MEMBER_BYTES).unwrap();
    set.put_superblocks();
    for turn in [false, true] {
        let mut devices = set.shared();
        if turn {
            devices.reverse();
        }
        let found = assemble(devices, READ).unwrap();
        assert!(content(&found.array).unwrap() == set.model);
        assert_eq!(found.left_out[0].place, Path::new("disk4"));
    }
    // Without the old one it is what there is, as far as it was recovered.
    let found = assemble(set.without(&[1]), READ).unwrap();
    assert!(found.left_out.is_empty() && content(&found.array).unwrap() == set.model);
}

#[test]
fn sets_in_a_state_of_their_own_are_refused() {
    let with = |change: &dyn Fn(&mut MdSuperblock)| {
        let mut set = parity_set();
        set.superblocks.iter_mut().for_each(change);
        set.put_superblocks();
        set
    };
    let reshape = with(&|it| it.array.features = FEATURE_RESHAPE);
    assert_eq!(refusal(reshape.shared(), FORCE).0, Kind::Unsupported);
    let journal = with(&|it| it.array.features = FEATURE_JOURNAL);
    assert_eq!(refusal(journal.shared(), READ).0, Kind::Refused);
    assert!(assemble(journal.shared(), FORCE).is_ok());
    let huge = with(&|it| it.array.members = u32::MAX);
    assert_eq!(refusal(huge.shared(), READ).0, Kind::Unsupported);

    let whole = parity_set();
    assert_eq!(refusal(whole.without(&[0]), WRITE).0, Kind::Refused);
    let dirty = with(&|it| it.state.resync_sectors = 0);
    assert_eq!(refusal(dirty.shared(), WRITE).0, Kind::Refused);
    let logged = with(&|it| it.array.features = FEATURE_MULTIPLE_PPLS);
    assert_eq!(refusal(logged.shared(), WRITE).0, Kind::Refused);
    let array = assemble(whole.shared(), READ).unwrap().array;
    assert_eq!(array.write_at(0, &[1]).unwrap_err().kind(), Kind::Refused);
}

#[test]
fn level_0_of_unequal_members_is_refused() {
    let mut set = Set::new(Level::Raid0, Layout::Fixed, 3);
    set.superblocks[1].device.data_sectors -= CHUNK / 512;
    set.put_superblocks();
    let (kind, what) = refusal(set.shared(), READ);
    assert!(kind == Kind::Unsupported && what.contains("unequal"), "{what}");
}
