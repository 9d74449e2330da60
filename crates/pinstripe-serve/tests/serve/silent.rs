//! Members of a server that do not answer: the other members answer independently of them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pinstripe_base::error::{Kind, Result};
use pinstripe_member::{
    Caps, Deadlines, ExtentKind, ExtentName, Member, Places, PrefetchHint, Replace, SharedMember,
    WatchedMember,
};
use pinstripe_serve::TokenRole;

use crate::roles::name;
use crate::seam::pass;
use crate::setup::{PATIENCE, StoreFixture, members_within, start, volume};

/// No test waits longer for calls that are expected to meet.
const MEETING: Duration = Duration::from_secs(20);

/// Calls of several members that wait for each other.
#[derive(Default)]
struct Meeting {
    /// Calls that are inside, and the most that ever were.
    inside: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Meeting {
    /// Waits until `all` calls are inside at once; gives up when they do not meet.
    fn meet(&self, all: usize) {
        let mut inside = self.inside.lock().unwrap();
        inside.0 += 1;
        inside.1 = inside.1.max(inside.0);
        self.changed.notify_all();
        let is_alone = |it: &mut (usize, usize)| it.1 < all;
        let (mut inside, _) = self.changed.wait_timeout_while(inside, MEETING, is_alone).unwrap();
        inside.0 -= 1;
    }

    fn most(&self) -> usize {
        self.inside.lock().unwrap().1
    }
}

/// What happens to calls of a member before the member gets them.
#[derive(Default)]
struct Gate {
    hangs: AtomicBool,
    /// Listings and lengths wait until this number of members has one.
    meeting: Option<(Arc<Meeting>, usize)>,
    calls: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some((meeting, all)) = &self.meeting {
            meeting.meet(*all);
        }
    }
}

/// A member whose listings and lengths pass a gate.
struct Gated(SharedMember, Arc<Gate>);

impl Member for Gated {
    pass! {
        create(name: ExtentName, replace: Replace) -> Result<Box<dyn pinstripe_member::ExtentWriter>>;
        put(name: ExtentName, bytes: &[u8]) -> Result<()>;
        read_at(name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()>;
        read_at_hand(name: ExtentName, offset: u64, buf: &mut [u8]) -> bool;
        delete(name: ExtentName) -> Result<()>;
        sync() -> Result<()>;
        sweep() -> Result<u64>;
        caps() -> Caps;
        place() -> &Path;
        batched() -> Option<&dyn pinstripe_member::BatchedMember>;
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        // The server itself reads the label from time to time.
        if name != ExtentName::Label {
            self.1.pass();
        }
        self.0.len(name)
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        if kind != ExtentKind::Scrub {
            self.1.pass();
        }
        self.0.list(kind)
    }
}

/// A server of three members with deadlines, and their gates.
struct Three {
    server: StoreFixture,
    gates: Vec<Arc<Gate>>,
}

impl Three {
    fn new(deadline: Duration, gate: impl Fn() -> Gate) -> Three {
        let state = tempfile::tempdir().unwrap();
        let interrupted = Arc::new(AtomicBool::new(false));
        let deadlines = Deadlines::of_reader(deadline, interrupted, |_, _| (), |_| ());
        let gates: Vec<_> = (0..3).map(|_| Arc::new(gate())).collect();
        let member = |(number, gate): (usize, &Arc<Gate>)| {
            let place = state.path().join(format!("member{number}"));
            let member = Places::default().create(&place).unwrap().member;
            let gated = Gated(member, Arc::clone(gate));
            Arc::new(WatchedMember::new(gated, deadlines.clone())) as SharedMember
        };
        let members = gates.iter().enumerate().map(member).collect();
        let server = start(state, volume(true, members), "127.0.0.1:0".parse().unwrap());
        Three { server, gates }
    }

    fn clients_within(&self, patience: Duration) -> Vec<SharedMember> {
        members_within(&self.server.token("desk", TokenRole::Admin).1, 3, patience)
    }

    fn clients(&self) -> Vec<SharedMember> {
        self.clients_within(PATIENCE)
    }
}

impl Drop for Three {
    fn drop(&mut self) {
        self.gates.iter().for_each(|gate| gate.hangs.store(false, Ordering::SeqCst));
    }
}

fn meeting() -> (Arc<Meeting>, Three) {
    let meeting = Arc::new(Meeting::default());
    let gate = || Gate { meeting: Some((Arc::clone(&meeting), 3)), ..Gate::default() };
    let three = Three::new(2 * MEETING, gate);
    (meeting, three)
}

fn prefetch(clients: &[SharedMember]) {
    let hint = PrefetchHint::new(ExtentKind::Gc, 1);
    clients.iter().for_each(|client| client.prefetch(&[hint]));
}

#[test]
fn a_look_calls_all_members_at_once() {
    let (meeting, three) = meeting();
    let clients = three.clients();
    prefetch(&clients);
    assert_eq!(clients[0].list(ExtentKind::Gc).unwrap(), []);
    assert_eq!(meeting.most(), 3);
}

/// Whether the object is new is a question to all members.
#[test]
fn a_new_object_asks_all_members_at_once() {
    let (meeting, three) = meeting();
    let object = pinstripe_member::envelope::close(
        pinstripe_member::envelope::Object::Forgotten,
        b"content",
    );
    three.clients()[0].put(name(ExtentKind::Forgotten, 1), &object).unwrap();
    assert_eq!(meeting.most(), 3);
}

/// The others are answered in the request that meets the silent member, and a member that is known to
/// be silent gets no further call.
#[test]
fn a_silent_member_delays_no_answer_of_others_and_is_called_no_more() {
    let three = Three::new(Duration::from_millis(500), Gate::default);
    // A host that sends no request again.
    let clients = three.clients_within(Duration::ZERO);
    three.gates[1].hangs.store(true, Ordering::SeqCst);
    let look = || {
        let before = three.server.requests();
        prefetch(&clients);
        for at in [0, 2] {
            assert_eq!(clients[at].list(ExtentKind::Gc).unwrap(), []);
        }
        assert_eq!(three.server.requests() - before, 1, "the answer has both members");
    };
    look();
    assert_eq!(clients[1].list(ExtentKind::Gc).unwrap_err().kind(), Kind::Unanswered);
    let calls = three.gates[1].calls.load(Ordering::SeqCst);
    for _ in 0..5 {
        look();
        assert_eq!(clients[1].list(ExtentKind::Gc).unwrap_err().kind(), Kind::Unanswered);
    }
    assert_eq!(three.gates[1].calls.load(Ordering::SeqCst), calls);
    // It is used again when it answers.
    three.gates[1].hangs.store(false, Ordering::SeqCst);
    let mut tries = 0..1000;
    while clients[1].list(ExtentKind::Gc).is_err() {
        assert!(tries.next().is_some(), "the member that answers again is not used");
        std::thread::sleep(Duration::from_millis(10));
    }
}
