use std::sync::Mutex;

use super::*;
use crate::{
    MemoryMember, PlannedStep, ServerOfMember, TimedMember, conformance, each_whole, span_of,
};
use pinstripe_base::error::Kind;

fn with(plan: &str) -> FaultMember<MemoryMember> {
    FaultMember::new(MemoryMember::new("m"), plan.parse().unwrap())
}

fn pack(number: u8) -> ExtentName {
    ExtentName::In(ExtentKind::Packs, [number; 16])
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
    write(&member, ExtentName::In(ExtentKind::Index, [1; 16]), &[b"a", b"b", b"c"]).unwrap();
    let error = write(&member, pack(1), &[b"a", b"b", b"c"]).unwrap_err();
    assert_eq!((error.kind(), error.raw_os_error()), (Kind::Io, Some(libc::EIO)));
    assert!(error.place().unwrap().ends_with(pack(1).path()), "{error}");
    assert!(member.list(ExtentKind::Packs).unwrap().is_empty(), "the writer was dropped unsealed");
    write(&member, pack(1), &[b"a", b"b", b"c"]).unwrap();
    let appends = member.statistics().counts(Operation::Append);
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
            Operation::List => member.list(ExtentKind::Packs).map(drop),
            Operation::Delete => member.delete(behind),
            Operation::Sync => member.sync(),
            Operation::Write | Operation::SetLen | Operation::Discard => continue, // Of devices.
        };
        assert_eq!(result.unwrap_err().kind(), Kind::NoSpace, "{name}");
        assert_eq!(member.statistics().counts(operation).struck, 1, "{name}");
        assert_eq!(member.inner().list(ExtentKind::Packs).unwrap(), [([9; 16], 5)], "{name}");
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
    assert_eq!(member.statistics().counts(Operation::Len).struck, failed as u64);
}

#[test]
fn delays_let_the_call_through() {
    let member = with("delay=1us;rate=1T");
    write(&member, pack(1), &[b"x"]).unwrap();
    assert_eq!(bytes(&member, pack(1)), b"x");
    assert_eq!(member.statistics().counts(Operation::Append).struck, 1);
}

/// A member that writes down each call, and has batched calls if it `is_far`.
struct Recorded {
    inner: MemoryMember,
    is_far: bool,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Recorded {
    fn note(&self, call: &str) {
        self.calls.lock().unwrap().push(call.to_owned());
    }
}

impl Member for Recorded {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.note("create");
        self.inner.create(name, replace)
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        self.note("put");
        self.inner.put(name, bytes)
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.note("read_at");
        self.inner.read_at(name, offset, buf)
    }

    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        self.note("read_at_hand");
        self.inner.read_at_hand(name, offset, buf)
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        self.note("len");
        self.inner.len(name)
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        self.note("list");
        self.inner.list(kind)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        self.note("delete");
        self.inner.delete(name)
    }

    fn sync(&self) -> Result<()> {
        self.note("sync");
        self.inner.sync()
    }

    fn sweep(&self) -> Result<u64> {
        self.note("sweep");
        self.inner.sweep()
    }

    fn caps(&self) -> Caps {
        self.note("caps");
        self.inner.caps()
    }

    fn place(&self) -> &Path {
        self.inner.place()
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        self.is_far.then_some(self)
    }
}

impl BatchedMember for Recorded {
    fn put_ahead(&self, _: ExtentName, _: &[u8]) {
        self.note("put_ahead");
    }

    fn plan(&self, _: &[PlannedStep], _: usize) {
        self.note("plan");
    }

    fn list_next(&self, _: PrefetchHint, _: bool) {
        self.note("list_next");
    }

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        self.note("read_span");
        span_of(&self.inner, name, offset, bytes)
    }

    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        self.note(&format!("read_whole of {}", names.len()));
        each_whole(&self.inner, names, most_bytes)
    }

    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        self.note("names");
        Ok(self.inner.list(kind)?.into_iter().map(|(id, _)| id).collect())
    }

    fn prefetch(&self, _: &[PrefetchHint]) {
        self.note("prefetch");
    }

    fn open_ahead(&self, _: &[ExtentName]) {
        self.note("open_ahead");
    }

    fn keep_longer(&self, _: &[ExtentName]) -> Result<KeptLonger> {
        self.note("keep_longer");
        Ok(KeptLonger::default())
    }

    fn latency(&self) -> Option<Duration> {
        self.note("latency");
        Some(Duration::from_millis(80))
    }

    fn served(&self) -> Option<ServerOfMember> {
        None
    }
}

/// Calls everything that a member has once.
fn use_all(member: &dyn Member) {
    let name = |number| ExtentName::In(ExtentKind::Gc, [number; 16]);
    let mut writer = member.create(name(1), Replace::Never).unwrap();
    writer.append(b"first").unwrap();
    writer.seal().unwrap();
    member.plan(&[PlannedStep::Put(name(2), b"second".to_vec())], 1);
    member.list_next(PrefetchHint::new(ExtentKind::Gc, 1), true);
    member.put_ahead(name(2), b"second");
    member.put(name(2), b"second").unwrap();
    member.read_at(name(1), 1, &mut [0; 3]).unwrap();
    member.read_at_hand(name(1), 0, &mut [0; 5]);
    assert_eq!(member.read_span(name(2), 1, 3).unwrap(), b"eco");
    assert_eq!(member.len(name(1)).unwrap(), 5);
    member.open_ahead(&[name(1)]);
    member.prefetch(&[PrefetchHint::new(ExtentKind::Gc, 1)]);
    let whole = member.read_whole(&[name(1), name(2), name(3)], 100);
    assert_eq!(whole.iter().filter(|read| read.is_ok()).count(), 2);
    assert_eq!(member.list(ExtentKind::Gc).unwrap().len(), 2);
    assert_eq!(member.names(ExtentKind::Gc).unwrap().len(), 2);
    member.keep_longer(&[name(1)]).unwrap();
    member.delete(name(1)).unwrap();
    member.sync().unwrap();
    member.sweep().unwrap();
    member.caps();
    // By it readers choose among far members.
    let is_far = member.batched().is_some();
    assert_eq!(member.latency(), is_far.then_some(Duration::from_millis(80)));
}

/// So that tests with faults run the requests that production runs.
#[test]
fn an_empty_plan_makes_the_same_requests_as_none() {
    for is_far in [true, false] {
        let recorded = || {
            let calls = Arc::new(Mutex::new(Vec::new()));
            let inner = MemoryMember::new("memory");
            (Recorded { inner, is_far, calls: Arc::clone(&calls) }, calls)
        };
        let (bare, expected) = recorded();
        use_all(&bare);
        let (inner, found) = recorded();
        use_all(&FaultMember::new(inner, Plan::default()));
        assert_eq!(*found.lock().unwrap(), *expected.lock().unwrap(), "far: {is_far}");
        let (inner, found) = recorded();
        use_all(&TimedMember::new(Arc::new(inner)));
        assert_eq!(*found.lock().unwrap(), *expected.lock().unwrap(), "far: {is_far}");
    }
}

/// A plan that strikes reads strikes batched ones, too.
#[test]
fn a_plan_strikes_batched_reads() {
    let name = |number| ExtentName::In(ExtentKind::Packs, [number; 16]);
    let inner =
        Recorded { inner: MemoryMember::new("memory"), is_far: true, calls: Arc::default() };
    inner.put(name(1), b"first").unwrap();
    inner.put(name(2), b"second").unwrap();
    let plan: Plan = "op=read,after=1,times=1,error=EIO".parse().unwrap();
    let member = FaultMember::new(inner, plan);
    let member: &dyn Member = &member;
    let whole = member.read_whole(&[name(1), name(2)], 100);
    assert!(whole[0].is_ok() && whole[1].is_err(), "{whole:?}");
    assert!(member.read_span(name(1), 0, 5).is_ok());
}
