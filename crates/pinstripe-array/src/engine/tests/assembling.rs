//! What is found on devices, and what is not taken for a member.

use super::*;
use crate::engine::assemble::examine;
use crate::format::superblock::PLACES;
use pinstripe_io::device::Device;

fn error_of(devices: Vec<SharedDevice>) -> pinstripe_base::error::Error {
    assemble(devices).err().expect("it is refused")
}

fn forced(devices: Vec<SharedDevice>) -> Assembly {
    super::super::assemble(devices, &AssembleOptions { force: true }).unwrap()
}

fn two_arrays() -> [Vec<Arc<MemoryDevice>>; 2] {
    [(); 2].map(|()| {
        let disks = disks(4);
        create(&create_options(Level::Raid5), shared(&disks)).unwrap().stop().unwrap();
        disks
    })
}

#[test]
fn a_member_of_another_array_is_refused() {
    let [one, other] = two_arrays();
    let mixed = [shared(&one[..3]), shared(&other[3..])].concat();
    let error = error_of(mixed);
    assert_eq!(error.kind(), Kind::WrongMember);
    assert!(error.to_string().contains("'test'"), "{error}");
}

#[test]
fn a_copy_of_a_member_is_refused() {
    let [one, _] = two_arrays();
    let mut bytes = vec![0; MEMBER_BYTES as usize];
    one[0].read_at(0, &mut bytes).unwrap();
    let copy = Arc::new(MemoryDevice::new("copy"));
    copy.write_at(0, &bytes).unwrap();
    let error = error_of([shared(&one), vec![copy]].concat());
    assert_eq!(error.kind(), Kind::WrongMember);
    assert!(error.to_string().contains("disk0"), "{error}");
}

#[test]
fn a_device_that_cannot_be_used_is_left_out_only_when_that_is_forced() {
    let [one, _] = two_arrays();
    PLACES.iter().for_each(|place| one[2].write_at(*place + 70, &[9]).unwrap());
    assert_eq!(error_of(shared(&one)).kind(), Kind::Corrupt);
    let assembly = forced(shared(&one));
    assert_eq!(assembly.left_out.len(), 1);
    assert!(assembly.absent.has(2) && assembly.was_clean);
    drop(assembly);

    let [one, _] = two_arrays();
    one[1].set_len(MEMBER_BYTES - (1 << 20)).unwrap();
    let error = error_of(shared(&one));
    assert!(error.to_string().contains("shorter"), "{error}");
    assert_eq!(forced(shared(&one)).left_out.len(), 1);
}

#[test]
fn one_superblock_is_enough() {
    let [one, _] = two_arrays();
    let newest = examine(&shared(&one)[0]).unwrap();
    one[0].write_at(newest.place() + 70, &[9]).unwrap();
    let older = examine(&shared(&one)[0]).unwrap();
    assert_eq!(older.generation + 1, newest.generation);
    assert!(assemble(shared(&one)).unwrap().array().absent().is_empty());
    assert!(probe(&(disks(1).remove(0) as SharedDevice)).is_none());
}

#[test]
fn an_old_member_is_left_out_and_said_to_be() {
    let [one, _] = two_arrays();
    let mut flusher = assemble(shared(&one)).unwrap();
    flusher.fail(3).unwrap();
    flusher.stop().unwrap();
    let assembly = super::super::assemble(shared(&one), &AssembleOptions::default()).unwrap();
    assert!(assembly.left_out[0].why.contains("generations older"), "{:?}", assembly.left_out);
    assert!(assembly.absent.has(3));
    let error = error_of(shared(&one[2..]));
    assert_eq!(error.kind(), Kind::TooManyLosses);
    assert!(error.advice_text().unwrap().contains("disk3"), "{error}");
}

#[test]
fn members_that_went_different_ways_are_not_put_together() {
    let disks = disks(2);
    create(&create_options(Level::Raid1), shared(&disks)).unwrap().stop().unwrap();
    for half in [0, 1] {
        assemble(shared(&disks[half..=half])).unwrap().stop().unwrap();
    }
    assert_eq!(error_of(shared(&disks)).kind(), Kind::Refused);
    // One of them went further: its data counts, and the other one gets all of it.
    assemble(shared(&disks[..1])).unwrap().stop().unwrap();
    let options = AssembleOptions::default();
    let Assembly { mut flusher, left_out, .. } =
        super::super::assemble(shared(&disks), &options).unwrap();
    assert!(left_out[0].why.contains("without the other members"), "{left_out:?}");
    assert_eq!(flusher.add(disks[1].clone()).unwrap(), AddedAs::Rebuilding { slot: 1 });
}

#[test]
fn an_array_begins_with_slots_missing_and_uses_the_shortest_member() {
    let disks = disks(3);
    let short = disks[1].len().unwrap() - (256 << 10);
    disks[1].set_len(short).unwrap();
    let slots = |devices: Vec<SharedDevice>| -> Vec<_> {
        devices.into_iter().map(Some).chain([None]).collect()
    };
    let error = create_with(&create_options(Level::Raid0), slots(shared(&disks)), Vec::new());
    assert_eq!(error.err().unwrap().kind(), Kind::Usage);
    let mut flusher =
        create_with(&create_options(Level::Raid5), slots(shared(&disks)), Vec::new()).unwrap();
    let status = flusher.array().status();
    assert_eq!(status.slots[3].state, SlotState::Missing);
    assert!(status.member_bytes <= short);
    let mut model = vec![0; 512 << 10];
    let mut dice = Dice(3);
    (0..20).for_each(|_| write(flusher.array(), &mut model, &mut dice));
    flusher.sync().unwrap();
    check(flusher.array(), &model, "with a slot missing");
}
