use super::*;
use crate::{MemoryMember, conformance};
use pinstripe_base::error::Kind;

fn with(plan: &str) -> FaultMember<MemoryMember> {
    FaultMember::new(MemoryMember::new("m"), plan.parse().unwrap())
}

fn pack(number: u8) -> ExtentName {
    ExtentName::In(Room::Packs, [number; 16])
}

fn write(member: &dyn Member, name: ExtentName, parts: &[&[u8]]) -> Result<()> {
    let mut writer = member.create(name, Replace::Never)?;
    parts.iter().try_for_each(|part| writer.append(part))?;
    writer.seal()
}

fn bytes(member: &FaultMember<MemoryMember>, name: ExtentName) -> Vec<u8> {
    member.inner().bytes(name).unwrap().to_vec()
}

#[test]
fn without_faults_it_is_the_inner_member() {
    conformance::run(&|| Box::new(with("")));
}

#[test]
fn a_shared_member_can_be_wrapped() {
    let shared: crate::SharedMember = Arc::new(MemoryMember::new("m"));
    conformance::run(&|| {
        let fresh: crate::SharedMember = Arc::new(MemoryMember::new("m"));
        Box::new(FaultMember::new(fresh, Plan::default()))
    });
    let faulty = FaultMember::new(shared.clone(), "op=put,flip=1".parse().unwrap());
    faulty.put(pack(1), &[0; 9]).unwrap();
    let mut found = [0; 9];
    shared.read_at(pack(1), 0, &mut found).unwrap();
    assert_eq!(wrong_bits(&found), 1);
}

#[test]
fn a_plan_that_does_not_match_changes_nothing() {
    // No check makes a million calls.
    conformance::run(&|| Box::new(with("op=any,after=1000000,error=EIO;chance=0,delay=1s")));
}

#[test]
fn an_error_strikes_the_call_it_is_planned_for() {
    let member = with("op=append,room=packs,after=2,times=1,error=EIO");
    member.put(ExtentName::Label, b"").unwrap();
    write(&member, ExtentName::In(Room::Index, [1; 16]), &[b"a", b"b", b"c"]).unwrap();
    let error = write(&member, pack(1), &[b"a", b"b", b"c"]).unwrap_err();
    assert_eq!((error.kind(), error.raw_os_error()), (Kind::Io, Some(libc::EIO)));
    assert!(error.place().unwrap().ends_with(pack(1).path()), "{error}");
    assert!(member.list(Room::Packs).unwrap().is_empty(), "the writer was dropped unsealed");
    write(&member, pack(1), &[b"a", b"b", b"c"]).unwrap();
    let appends = member.statistics().of(Operation::Append);
    assert_eq!((appends.calls, appends.bytes, appends.struck), (9, 9, 1));
}

#[test]
fn every_operation_can_fail() {
    for (operation, name) in Operation::ALL {
        let member = with(&format!("op={name},error=ENOSPC"));
        let behind = pack(9);
        member.inner().put(behind, b"there").unwrap();
        let result = match operation {
            Operation::Create | Operation::Append | Operation::Seal => {
                write(&member, pack(1), &[b"x"])
            }
            Operation::Put => member.put(pack(1), b"x"),
            Operation::Read => member.read_at(behind, 0, &mut [0]),
            Operation::Len => member.len(behind).map(drop),
            Operation::List => member.list(Room::Packs).map(drop),
            Operation::Delete => member.delete(behind),
            Operation::Sync => member.sync(),
            Operation::Write | Operation::SetLen | Operation::Discard => continue, // Of devices.
        };
        assert_eq!(result.unwrap_err().kind(), Kind::NoSpace, "{name}");
        assert_eq!(member.statistics().of(operation).struck, 1, "{name}");
        assert_eq!(member.inner().list(Room::Packs).unwrap(), [([9; 16], 5)], "{name}");
    }
}

#[test]
fn torn_and_lost_report_success() {
    let member = with("op=append,after=1,times=1,torn=2");
    write(&member, pack(1), &[b"one ", b"two ", b"three"]).unwrap();
    assert_eq!(bytes(&member, pack(1)), b"one twthree");
    let member = with("after=1,times=1,lost=yes");
    write(&member, pack(1), &[b"one ", b"two ", b"three"]).unwrap();
    assert_eq!(bytes(&member, pack(1)), b"one three");
    let member = with("op=put,lost=yes");
    member.put(pack(1), b"gone").unwrap();
    assert!(member.inner().bytes(pack(1)).is_none());
    let member = with("op=put,torn=1K");
    member.put(pack(1), b"shorter than that").unwrap();
    assert_eq!(bytes(&member, pack(1)), b"shorter than that");
}

fn wrong_bits(found: &[u8]) -> u32 {
    found.iter().map(|byte| byte.count_ones()).sum()
}

#[test]
fn bits_flip_in_what_is_written_or_read() {
    let member = with("op=append,flip=1,seed=7");
    write(&member, pack(1), &[&[0; 100], &[0; 100]]).unwrap();
    let first = bytes(&member, pack(1));
    assert_eq!((first.len(), wrong_bits(&first)), (200, 2));
    let again = with("op=append,flip=1,seed=7");
    write(&again, pack(1), &[&[0; 100], &[0; 100]]).unwrap();
    assert_eq!(bytes(&again, pack(1)), first, "the same seed, the same bits");

    let member = with("op=read,after=1,times=1,flip=1");
    member.put(pack(1), &[0; 100]).unwrap();
    for expected in [0, 1, 0] {
        let mut found = [0; 100];
        member.read_at(pack(1), 0, &mut found).unwrap();
        assert_eq!(wrong_bits(&found), expected);
    }
    assert_eq!(wrong_bits(&bytes(&member, pack(1))), 0, "what is stored stays as it is");
    with("flip=3").put(pack(1), b"").unwrap();
}

#[test]
fn a_short_read_is_damage() {
    let member = with("op=read,short=3");
    member.put(pack(1), b"0123456789").unwrap();
    let mut buf = [b'-'; 6];
    assert_eq!(member.read_at(pack(1), 0, &mut buf).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(&buf, b"012---");
    member.read_at(pack(1), 7, &mut buf[..3]).unwrap();
    assert_eq!(&buf[..3], b"789");
}

#[test]
fn chance_strikes_now_and_then() {
    let member = with("op=len,chance=0.25,seed=5,error=EIO");
    member.put(pack(1), b"").unwrap();
    let failed = (0..1000).filter(|_| member.len(pack(1)).is_err()).count();
    assert!((150..350).contains(&failed), "{failed}");
    assert_eq!(member.statistics().of(Operation::Len).struck, failed as u64);
}

#[test]
fn delays_let_the_call_through() {
    let member = with("delay=1us;rate=1T");
    write(&member, pack(1), &[b"x"]).unwrap();
    assert_eq!(bytes(&member, pack(1)), b"x");
    assert_eq!(member.statistics().of(Operation::Append).struck, 1);
}
