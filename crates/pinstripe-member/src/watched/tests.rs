use crate::BatchedMember;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::{MemoryMember, conformance};
use pinstripe_base::error::{Error, Kind};

/// A member that answers `len` only when it is told to.
struct Held {
    inner: MemoryMember,
    go: Mutex<Receiver<()>>,
}

impl Member for Held {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.inner.create(name, replace)
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        self.inner.put(name, bytes)
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, buf)
    }

    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        self.inner.read_at_hand(name, offset, buf)
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        let _ = self.go.lock().unwrap().recv();
        self.inner.len(name)
    }

    /// Takes as long as it is told to, and shows that it goes on.
    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        while self.go.lock().unwrap().recv_timeout(Duration::from_millis(20)).is_err() {
            goes_on();
        }
        self.inner.list(kind)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        self.inner.delete(name)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn sweep(&self) -> Result<u64> {
        self.inner.sweep()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn place(&self) -> &Path {
        self.inner.place()
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        None
    }
}

fn patience(millis: u64) -> (Deadlines, Arc<AtomicBool>, Arc<Mutex<Vec<Error>>>) {
    let (interrupted, told) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
    let tell = Arc::clone(&told);
    let patience =
        Deadlines::new(Duration::from_millis(millis), Arc::clone(&interrupted), move |_, error| {
            tell.lock().unwrap().push(error);
        });
    (patience, interrupted, told)
}

fn held(patience: Deadlines) -> (WatchedMember<Held>, Sender<()>) {
    let (go, wait) = channel();
    let inner = Held { inner: MemoryMember::new("held"), go: Mutex::new(wait) };
    (WatchedMember::new(inner, patience), go)
}

#[test]
fn it_is_a_member_like_any_other() {
    let day = 24 * 3600 * 1000;
    conformance::run(&|| Box::new(WatchedMember::new(MemoryMember::new("m"), patience(day).0)));
}

#[test]
fn one_that_does_not_answer_is_silent_from_then_on_and_told_once() {
    let (patience, _, told) = patience(100);
    let (member, go) = held(patience);
    let name = ExtentName::Label;
    member.put(name, b"label").unwrap();
    let mut writer =
        member.create(ExtentName::In(ExtentKind::Packs, [1; 16]), Replace::Never).unwrap();
    writer.append(b"some").unwrap();
    // Several wait at once; all are released.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(member.len(name).unwrap_err().kind(), Kind::Unanswered));
        }
    });
    // Even calls that could be answered are refused.
    let mut buf = [0; 5];
    assert_eq!(member.read_at(name, 0, &mut buf).unwrap_err().kind(), Kind::Unanswered);
    assert_eq!(writer.append(b"more").unwrap_err().kind(), Kind::Unanswered);
    assert_eq!(writer.seal().unwrap_err().kind(), Kind::Unanswered);
    assert_eq!(member.caps().free_bytes, None);
    assert_eq!(told.lock().unwrap().len(), 1);
    drop(go);
}

/// What happened to members: `true` for each that fell silent, `false` for each that returned.
fn reader(millis: u64) -> (Deadlines, Arc<Mutex<Vec<bool>>>) {
    let told = Arc::<Mutex<Vec<_>>>::default();
    let (silent, back) = (Arc::clone(&told), Arc::clone(&told));
    let patience = Deadlines::of_reader(
        Duration::from_millis(millis),
        Arc::default(),
        move |_, _| silent.lock().unwrap().push(true),
        move |_| back.lock().unwrap().push(false),
    );
    (patience, told)
}

#[test]
fn a_reader_asks_a_member_again_once_a_late_answer_has_come() {
    let (patience, told) = reader(100);
    let (member, go) = held(patience);
    member.put(ExtentName::Label, b"label").unwrap();
    let mut buf = [0; 5];
    let mut read = || member.read_at(ExtentName::Label, 0, &mut buf).map_err(|it| it.kind());
    for _ in 0..2 {
        told.lock().unwrap().clear();
        assert_eq!(member.len(ExtentName::Label).unwrap_err().kind(), Kind::Unanswered);
        assert_eq!(read(), Err(Kind::Unanswered));
        go.send(()).unwrap();
        let answered = std::time::Instant::now();
        while read().is_err() {
            assert!(answered.elapsed() < Duration::from_secs(60), "it is not asked again");
            std::thread::yield_now();
        }
        assert_eq!(*told.lock().unwrap(), [true, false]);
    }
}

#[test]
fn a_late_error_brings_no_member_back_and_no_late_answer_one_that_is_written_to() {
    let (patience, told) = reader(100);
    let (member, _go) = silent_after_a_late_error(patience);
    assert!(member.calls.is_silent());
    assert_eq!(*told.lock().unwrap(), [true]);

    let (patience, ..) = self::patience(100);
    let (member, go) = held(patience);
    member.put(ExtentName::Label, b"label").unwrap();
    assert_eq!(member.len(ExtentName::Label).unwrap_err().kind(), Kind::Unanswered);
    go.send(()).unwrap();
    wait_for_idle(&member);
    assert!(member.calls.is_silent());
}

/// The file system was away when the abandoned call was answered: there was no such extent.
#[test]
fn a_query_for_the_label_brings_a_member_back_after_a_late_error() {
    let (patience, told) = reader(100);
    let (member, go) = silent_after_a_late_error(patience);
    // The first query fails too, and the file system is back before the next.
    for round in 0..2 {
        let query = || member.len(ExtentName::Label).unwrap_err().kind();
        while Arc::strong_count(&member.inner) == 1 {
            assert_eq!(query(), Kind::Unanswered);
        }
        assert_eq!(query(), Kind::Unanswered);
        assert_eq!(Arc::strong_count(&member.inner), 2, "one query at a time");
        if round == 1 {
            member.inner.put(ExtentName::Label, b"label").unwrap();
        }
        go.send(()).unwrap();
        wait_for_idle(&member);
    }
    let answered = std::time::Instant::now();
    while told.lock().unwrap().len() < 2 {
        assert!(answered.elapsed() < Duration::from_secs(60), "the member stays silent");
        std::thread::yield_now();
    }
    assert!(!member.calls.is_silent());
    assert_eq!(*told.lock().unwrap(), [true, false]);
}

/// A server opens its store again while a member is silent, without this member.
#[test]
fn a_late_answer_brings_back_the_place_of_a_member_that_was_closed() {
    let (patience, told) = reader(100);
    let (member, go) = held(patience.clone());
    member.put(ExtentName::Label, b"label").unwrap();
    assert_eq!(member.len(ExtentName::Label).unwrap_err().kind(), Kind::Unanswered);
    let place = member.place().to_path_buf();
    drop(member);
    assert!(patience.is_silent(&place));
    go.send(()).unwrap();
    let answered = std::time::Instant::now();
    while patience.is_silent(&place) {
        assert!(answered.elapsed() < Duration::from_secs(20), "the place stays silent");
        std::thread::yield_now();
    }
    while told.lock().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    assert_eq!(*told.lock().unwrap(), [true, false]);
}

/// A member whose abandoned call has got its answer: there is no such extent.
fn silent_after_a_late_error(patience: Deadlines) -> (WatchedMember<Held>, Sender<()>) {
    let (member, go) = held(patience);
    assert_eq!(member.len(ExtentName::Label).unwrap_err().kind(), Kind::Unanswered);
    go.send(()).unwrap();
    wait_for_idle(&member);
    (member, go)
}

/// Waits until the call that was left behind has ended.
fn wait_for_idle(member: &WatchedMember<Held>) {
    while Arc::strong_count(&member.inner) > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn what_goes_on_may_take_as_long_as_it_likes() {
    let (patience, _, told) = patience(300);
    let (member, go) = held(patience);
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| member.list(ExtentKind::Packs));
        // Several times what is waited for an operation without a sign of life.
        std::thread::sleep(Duration::from_millis(900));
        go.send(()).unwrap();
        assert!(listing.join().unwrap().unwrap().is_empty());
    });
    assert!(told.lock().unwrap().is_empty());
}

#[test]
fn an_interrupt_ends_the_waiting() {
    let day = 24 * 3600 * 1000;
    let (patience, interrupted, told) = patience(day);
    let (member, go) = held(patience);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| member.len(ExtentName::Label));
        interrupted.store(true, Ordering::Relaxed);
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Unanswered);
    });
    assert_eq!(told.lock().unwrap().len(), 1);
    drop(go);
}

#[test]
fn a_panic_of_the_member_is_the_callers() {
    let (patience, ..) = patience(24 * 3600 * 1000);
    let calls = MemberCalls::new(Path::new("m"), patience);
    let call =
        std::panic::AssertUnwindSafe(|| calls.call(0, || -> Result<()> { panic!("as planned") }));
    let caught = std::panic::catch_unwind(call);
    assert!(caught.is_err());
    assert_eq!(calls.call(0, || Ok(7)).unwrap(), 7);
}
