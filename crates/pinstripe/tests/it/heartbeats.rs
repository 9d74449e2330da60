//! Writers of other hosts: those that are gone are ended by gc itself, those at work are not, and
//! one that was only slow loses its backup and nothing else.

use std::cell::Cell;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use pinstripe::{FailureDetector, Quorum, Store, TIMEOUT_DEFAULT, beat_while, gc, sessions};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::{SessionId, SnapshotId};
use pinstripe_member::heartbeat::Heartbeat;
use pinstripe_member::session::{Session, Work};
use pinstripe_member::{ExtentKind, ExtentName, PowerCut, Steps};

use crate::gc::{forget_one, gate, names, options, silent_session, three};
use pinstripe_sim::look;
use pinstripe_sim::{ELSEWHERE, Ledger, NoWait, Site, assert_whole, backup, noise};

thread_local! {
    static NOW_SECONDS: Cell<u64> = const { Cell::new(1000) };
}

fn clock() -> Duration {
    Duration::from_secs(NOW_SECONDS.get())
}

fn later(time: Duration) {
    NOW_SECONDS.set(NOW_SECONDS.get() + time.as_secs());
}

/// What a host knows of writers from one gc to the next.
fn detector() -> Arc<FailureDetector> {
    Arc::new(FailureDetector::new(TIMEOUT_DEFAULT, Vec::new(), clock))
}

fn collect(store: &Store, detector: &Arc<FailureDetector>) -> Result<gc::GcOutcome> {
    let options = gc::GcOptions { detector: Arc::clone(detector), ..options() };
    gc::run(store, &options, &Ledger::new().monitor)
}

/// Puts so many heartbeats, then stops as a process does that is killed.
fn beat(session: &sessions::OpenSession<'_>, store: &Store, times: usize) {
    let mut left = times;
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        beat_while(store, session, |_| {
            if left == 0 {
                // Without the panic it would end well and remove its last heartbeat.
                std::panic::resume_unwind(Box::new("killed"));
            }
            left -= 1;
            true
        });
    }));
    assert!(stopped.is_err());
}

#[test]
fn a_session_of_a_host_that_is_gone_is_ended_after_a_time() {
    let site = Site::new(3, 1);
    let [(first, _), (second, tree2), _] = three(&site);
    let elsewhere = site.open_elsewhere(0, Arc::new(NoWait)).unwrap();
    let gone = silent_session(&elsewhere);
    beat(&gone, &elsewhere, 2);
    std::mem::forget(gone);
    assert_eq!(names(&site.store(), ExtentKind::Heartbeats).len(), 1, "the newest is enough");
    let store = site.store();
    forget_one(&store, &first);
    let detector = detector();
    for _ in 0..2 {
        let error = collect(&site.store(), &detector).unwrap_err();
        assert_eq!(error.kind(), Kind::Busy, "{error}");
        let advice = error.advice_text().unwrap();
        assert!(advice.contains("no heartbeat for 120 min"), "{advice}");
        later(TIMEOUT_DEFAULT / 2 - Duration::from_secs(1));
    }
    later(Duration::from_secs(2));
    let done = collect(&site.store(), &detector).unwrap();
    assert_eq!((done.fenced_sessions, done.deleted_snapshots), (1, 1));
    for kind in [ExtentKind::Sessions, ExtentKind::Heartbeats] {
        assert!(names(&site.store(), kind).is_empty(), "{kind:?}");
    }
    assert!(detector.sightings().is_empty());
    assert_whole(&site.store());
    site.assert_restores(&site.store(), &second, &tree2);
}

#[test]
fn a_writer_that_puts_heartbeats_is_never_ended() {
    let site = Site::new(3, 1);
    let [(first, _), ..] = three(&site);
    let elsewhere = site.open_elsewhere(0, Arc::new(NoWait)).unwrap();
    let writer = silent_session(&elsewhere);
    forget_one(&site.store(), &first);
    let detector = detector();
    let mut looks = 0;
    beat_while(&elsewhere, &writer, |_| {
        // Each time it was away for longer than the timeout, and put one in the end.
        later(2 * TIMEOUT_DEFAULT);
        looks += 1;
        let error = collect(&site.store(), &detector).unwrap_err();
        assert_eq!(error.kind(), Kind::Busy, "look {looks}: {error}");
        assert!(writer.stands(), "look {looks}");
        looks < 4
    });
    assert_eq!(looks, 4);
    assert!(
        names(&site.store(), ExtentKind::Heartbeats).is_empty(),
        "its end removes the last one"
    );
    writer.end().unwrap();
    assert_eq!(collect(&site.store(), &detector).unwrap().fenced_sessions, 0);
}

#[test]
fn a_slow_host_that_was_ended_makes_no_snapshot_and_harms_none() {
    let site = Site::new(3, 1);
    let [(first, _), (second, tree2), (third, tree3)] = three(&site);
    fs::write(site.source().join("new"), noise(94, 200_000)).unwrap();
    let (steps, met, goes) = gate(ExtentKind::Snapshots);
    let slow = site.open_elsewhere(0, steps).unwrap();
    let detector = detector();
    let saved = std::thread::scope(|scope| {
        let writer = scope.spawn(|| backup(&slow, &site.source(), &Ledger::new()));
        // All of it is on the members but for the snapshot.
        met.recv_timeout(Duration::from_secs(60)).unwrap();
        // What it stored is in no snapshot, and it may not have answered yet.
        match collect(&site.store(), &detector) {
            Ok(done) => assert_eq!(done.fenced_sessions, 0),
            Err(error) => assert_eq!(error.kind(), Kind::Busy),
        }
        forget_one(&site.store(), &first);
        later(TIMEOUT_DEFAULT);
        let done = collect(&site.store(), &detector).unwrap();
        assert_eq!((done.fenced_sessions, done.deleted_snapshots), (1, 1));
        goes.send(()).unwrap();
        writer.join().unwrap()
    });
    assert_eq!(saved.unwrap_err().kind(), Kind::Busy);
    let store = site.store();
    let listed = pinstripe::snapshots::run(&store, &Ledger::new().monitor).unwrap();
    let listed: Vec<SnapshotId> = listed.iter().map(|it| it.id).collect();
    assert_eq!(listed, [second.id, third.id]);
    // The next run of that host is like any other.
    let tree = look(&site.source());
    let again = site.open_elsewhere(0, Arc::new(NoWait)).unwrap();
    let saved = backup(&again, &site.source(), &Ledger::new()).unwrap();
    collect(&site.store(), &detector).unwrap();
    assert_whole(&site.store());
    for (snapshot, tree) in [(&second, &tree2), (&third, &tree3), (&saved, &tree)] {
        site.assert_restores(&site.store(), snapshot, tree);
    }
}

/// Cut off at any step, also past its point of no return: the next gc goes on from there once the
/// host counts as gone.
#[test]
fn a_gc_of_a_host_that_is_gone_is_gone_on_with() {
    let site = Site::new(3, 1);
    let [(first, _), (second, tree2), (third, tree3)] = three(&site);
    forget_one(&site.store(), &first);
    let image = site.image();
    let (mut cut_off, mut was_deleting) = (0, 0);
    for after in (20..600).step_by(11) {
        site.put_image(&image);
        let steps: Arc<dyn Steps> = Arc::new(PowerCut::new(after));
        let gone = site.open_elsewhere(0, steps).and_then(|it| collect(&it, &detector()));
        if gone.is_ok() {
            break;
        }
        let left = names(&site.store(), ExtentKind::Sessions).len();
        cut_off += left;
        let detector = detector();
        let _ = collect(&site.store(), &detector);
        was_deleting += usize::from(names(&site.store(), ExtentKind::Gc).len() > 1);
        later(TIMEOUT_DEFAULT);
        let done = collect(&site.store(), &detector).unwrap();
        assert_eq!((done.fenced_sessions, done.kept_snapshots), (left as u64, 2), "after {after}");
        let known = names(&site.store(), ExtentKind::Snapshots);
        assert!(!known.contains(&first.id.0), "after {after}");
        assert_whole(&site.store());
        site.assert_restores(&site.store(), &second, &tree2);
        site.assert_restores(&site.store(), &third, &tree3);
    }
    assert!(cut_off > 5 && was_deleting > 0, "{cut_off}, {was_deleting}");
}

#[test]
fn sessions_that_promise_no_heartbeats_and_claims_stay() {
    let site = Site::new(3, 1);
    let [(first, _), ..] = three(&site);
    let store = site.store();
    let session = |work, id: u8| Session {
        store: store.config.store,
        id: SessionId([id; 16]),
        work,
        commit: [id; 16],
        parents: Vec::new(),
        process: ELSEWHERE,
    };
    let put = |session: &Session| {
        let name = sessions::name_of(session.id);
        store.put_all(name, &session.encode(), Quorum::Backup).unwrap();
    };
    put(&session(Work::Backup, 7));
    put(&session(Work::Rebalance, 8));
    forget_one(&store, &first);
    let detector = detector();
    for _ in 0..3 {
        let error = collect(&site.store(), &detector).unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
        assert!(!error.advice_text().unwrap().contains("heartbeat"));
        later(100 * TIMEOUT_DEFAULT);
    }
    store.delete_all(sessions::name_of(SessionId([7; 16]))).unwrap();
    let done = collect(&site.store(), &detector).unwrap();
    assert_eq!((done.fenced_sessions, done.deleted_snapshots), (0, 1));
    assert_eq!(names(&site.store(), ExtentKind::Sessions).len(), 1, "the claim");
}

/// A member makes up heartbeats or hides them: the worst of it is a gc that waits.
#[test]
fn made_up_heartbeats_end_no_session() {
    let site = Site::new(3, 1);
    let [(first, _), ..] = three(&site);
    let elsewhere = site.open_elsewhere(0, Arc::new(NoWait)).unwrap();
    let gone = silent_session(&elsewhere);
    let id = gone.session.id;
    beat(&gone, &elsewhere, 1);
    forget_one(&site.store(), &first);
    let liar = |count: u64, bytes: &[u8]| {
        let beat =
            Heartbeat { store: elsewhere.config.store, session: id, count, every_seconds: 1 };
        let (_, member) = elsewhere.present().next().unwrap();
        let name = ExtentName::In(ExtentKind::Heartbeats, beat.name());
        let bytes = if bytes.is_empty() { beat.encode() } else { bytes.to_vec() };
        member.put(name, &bytes).unwrap();
    };
    // A few that nobody made with the keys are passed over: the session's own count stands.
    liar(u64::MAX, b"");
    liar(7, b"junk");
    let detector = detector();
    assert!(collect(&site.store(), &detector).is_err());
    assert_eq!(detector.sightings()[0].count, 1);
    // So many that they hide it: nothing can be told.
    (1000..1020).for_each(|count| liar(count, b"junk"));
    later(2 * TIMEOUT_DEFAULT);
    assert!(collect(&site.store(), &detector).is_err());
    assert!(gone.stands());
    // With the session they all go.
    gone.end().unwrap();
    collect(&site.store(), &detector).unwrap();
    assert!(names(&site.store(), ExtentKind::Heartbeats).is_empty());
}

#[test]
fn a_member_that_is_away_keeps_a_silent_session_standing() {
    let site = Site::new(3, 1);
    let [(first, _), ..] = three(&site);
    let elsewhere = site.open_elsewhere(0, Arc::new(NoWait)).unwrap();
    std::mem::forget(silent_session(&elsewhere));
    forget_one(&site.store(), &first);
    let (member, aside) = (&site.members[2], site.path("aside"));
    fs::rename(member, &aside).unwrap();
    let detector = detector();
    for _ in 0..3 {
        // Its writer may put the snapshot on the member that is not seen from here.
        assert_eq!(collect(&site.store(), &detector).unwrap_err().kind(), Kind::Busy);
        later(TIMEOUT_DEFAULT);
    }
    fs::rename(&aside, member).unwrap();
    assert_eq!(collect(&site.store(), &detector).unwrap().fenced_sessions, 1);
}
