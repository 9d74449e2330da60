//! Forgetting by rules and by name, and taking that back, on a real store.

use pinstripe::forget::{ForgetChoice, ForgetOptions, Verdict};
use pinstripe::{Store, forget, sessions};
use pinstripe_base::error::Kind;
use pinstripe_base::id::{CondemnationId, SessionId};
use pinstripe_member::forgotten::Mark;
use pinstripe_member::gc::{DeletionStep, GcObject, Lists};
use pinstripe_member::session::Work;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_stripe::{KeepReason, Policy};

use pinstripe_sim::look;
use pinstripe_sim::{Ledger, Site, assert_whole, small_tree};

fn site_with(snapshots: u64) -> (Site, Vec<Snapshot>) {
    let site = Site::new(3, 1);
    let saved = (0..snapshots).map(|seed| {
        small_tree(&site.source(), seed);
        site.save()
    });
    let saved = saved.collect();
    (site, saved)
}

fn options(choice: ForgetChoice<'_>) -> ForgetOptions<'_> {
    ForgetOptions::new(choice)
}

fn by_rule(policy: &Policy) -> ForgetChoice<'_> {
    ForgetChoice::Policy { policy, offset_at: &|_| 0, now: (i64::MAX, 0) }
}

fn judged(store: &Store, options: &ForgetOptions<'_>) -> Vec<Verdict> {
    forget::run(store, options, &Ledger::new().monitor).unwrap().verdicts
}

fn shown(store: &Store) -> Vec<Snapshot> {
    pinstripe::snapshots::run(store, &Ledger::new().monitor).unwrap()
}

fn forget_one(store: &Store, snapshot: &Snapshot) {
    let names = [snapshot.id.to_string()];
    forget::run(store, &options(ForgetChoice::Named(&names)), &Ledger::new().monitor).unwrap();
}

#[test]
fn what_is_forgotten_is_not_shown_and_comes_back() {
    let (site, saved) = site_with(3);
    let tree = look(&site.source());
    let store = site.store();
    let policy = Policy { last: Some(1), ..Policy::default() };
    let verdicts = judged(&store, &options(by_rule(&policy)));
    let stays: Vec<_> = verdicts.iter().map(|it| it.reasons.clone()).collect();
    assert_eq!(stays, [vec![], vec![], vec![KeepReason::Last]]);
    assert_eq!(shown(&store), saved[2..]);
    assert_whole(&store);
    // Again: nothing is left to do.
    let verdicts = judged(&store, &options(by_rule(&policy)));
    assert_eq!(verdicts.len(), 1);

    let ledger = Ledger::new();
    let back = forget::undelete(&store, &saved[1].id.to_string(), &ledger.monitor).unwrap();
    assert_eq!(back, saved[1]);
    assert_eq!(shown(&store), saved[1..]);
    let again = forget::undelete(&store, &saved[1].id.to_string(), &ledger.monitor).unwrap_err();
    assert_eq!(again.kind(), Kind::NotFound);
    assert!(again.to_string().contains("is not forgotten"), "{again}");
    let latest = forget::undelete(&store, "latest", &ledger.monitor).unwrap();
    assert_eq!(latest, saved[0]);
    // And forgotten once more: marks are counted up.
    forget_one(&store, &saved[0]);
    assert_eq!(shown(&store), saved[1..]);
    for (_, member) in store.present() {
        assert_eq!(member.list(ExtentKind::Sessions).unwrap(), []);
        assert_eq!(member.list(ExtentKind::Forgotten).unwrap().len(), 2 + 3);
    }
    site.assert_restores(&store, &saved[2], &tree);
}

#[test]
fn a_dry_run_marks_nothing() {
    let (site, saved) = site_with(2);
    let before = site.image();
    let store = site.store();
    let policy = Policy { last: Some(1), ..Policy::default() };
    let dry = ForgetOptions { dry_run: true, ..options(by_rule(&policy)) };
    let verdicts = judged(&store, &dry);
    assert_eq!(verdicts.iter().filter(|it| it.stays()).count(), 1);
    assert!(site.image() == before);
    assert_eq!(shown(&store), saved);
}

#[test]
fn nothing_left_is_refused() {
    let (site, saved) = site_with(2);
    let store = site.store();
    let monitor = Ledger::new().monitor;
    let tags = Policy { tags: vec!["nobody has this".to_owned()], ..Policy::default() };
    let refused = forget::run(&store, &options(by_rule(&tags)), &monitor);
    assert_eq!(refused.err().unwrap().kind(), Kind::Refused);
    let names = saved.iter().map(|it| it.id.to_string()).collect::<Vec<_>>();
    let refused = forget::run(&store, &options(ForgetChoice::Named(&names)), &monitor);
    assert_eq!(refused.err().unwrap().kind(), Kind::Refused);
    let none = Policy::default();
    let usage = forget::run(&store, &options(by_rule(&none)), &monitor);
    assert_eq!(usage.err().unwrap().kind(), Kind::Usage);
    let unknown = ["0123456789".to_owned()];
    let unknown = forget::run(&store, &options(ForgetChoice::Named(&unknown)), &monitor);
    assert_eq!(unknown.err().unwrap().kind(), Kind::NotFound);
    assert_eq!(shown(&store), saved);
    let all = ForgetOptions { allow_empty: true, ..options(by_rule(&tags)) };
    forget::run(&store, &all, &monitor).unwrap();
    assert_eq!(shown(&store), []);
}

#[test]
fn a_forgotten_snapshot_is_no_parent() {
    let (site, saved) = site_with(2);
    forget_one(&site.store(), &saved[1]);
    let next = site.save();
    assert_eq!(next.parent, Some(saved[0].id));
}

#[test]
fn a_member_that_was_away_brings_no_mark_back() {
    let (site, saved) = site_with(2);
    forget_one(&site.store(), &saved[0]);
    let (here, away) = (site.members[1].clone(), site.path("away"));
    std::fs::rename(&here, &away).unwrap();
    let store = site.store();
    forget::undelete(&store, &saved[0].id.to_string(), &Ledger::new().monitor).unwrap();
    drop(store);
    std::fs::rename(&away, &here).unwrap();
    assert_eq!(shown(&site.store()), saved, "the older mark on that member says nothing new");
}

#[test]
fn a_damaged_mark_never_makes_a_snapshot_that_is_wanted_a_forgotten_one() {
    let (site, saved) = site_with(2);
    let store = site.store();
    forget_one(&store, &saved[0]);
    forget::undelete(&store, &saved[0].id.to_string(), &Ledger::new().monitor).unwrap();
    let file = |member: usize, generation| {
        let mark = Mark { store: store.config.store, snapshot: saved[0].id, generation };
        site.members[member].join(ExtentName::In(ExtentKind::Forgotten, mark.name()).path())
    };
    let hurt = |member, generation| {
        let mut bytes = std::fs::read(file(member, generation)).unwrap();
        bytes[40] ^= 1;
        std::fs::write(file(member, generation), bytes).unwrap();
    };
    // One sound copy says what holds, whichever member has it.
    hurt(0, 2);
    assert_eq!(shown(&site.store()), saved);
    // Without any, its name still says that the mark was taken back.
    (1..3).for_each(|member| hurt(member, 2));
    assert_eq!(shown(&site.store()), saved);
    forget_one(&site.store(), &saved[0]);
    assert_eq!(shown(&site.store()), saved[1..]);
    hurt(0, 3);
    assert_eq!(shown(&site.store()), saved[1..]);
    // It can no longer be known whether the last one was a mark: a snapshot too many is no loss.
    (1..3).for_each(|member| hurt(member, 3));
    assert_eq!(shown(&site.store()), saved);
    // A damaged mark does not block the next one.
    forget_one(&site.store(), &saved[0]);
    assert_eq!(shown(&site.store()), saved[1..]);
}

#[test]
fn what_gc_is_deleting_does_not_come_back() {
    let (site, saved) = site_with(2);
    let store = site.store();
    forget_one(&store, &saved[0]);
    let lists = Lists { snapshots: vec![(saved[0].id, 1)], ..Lists::default() };
    let put = |step| {
        let object = GcObject {
            store: store.config.store,
            condemnation: CondemnationId([7; 16]),
            by: SessionId([8; 16]),
            step,
        };
        let name = ExtentName::In(ExtentKind::Gc, object.name());
        for (_, member) in store.present() {
            member.put(name, &store.vouch(name, object.encode())).unwrap();
        }
        name
    };
    let name = saved[0].id.to_string();
    put(DeletionStep::Condemned(lists.clone()));
    let reaping = put(DeletionStep::Reaping(lists.clone()));
    let late = forget::undelete(&store, &name, &Ledger::new().monitor).unwrap_err();
    assert_eq!(late.kind(), Kind::NotFound);
    assert!(late.to_string().contains("being deleted"), "{late}");
    for (_, member) in store.present() {
        member.delete(reaping).unwrap();
        assert_eq!(member.list(ExtentKind::Sessions).unwrap(), [], "a session that failed is gone");
    }
    forget::undelete(&store, &name, &Ledger::new().monitor).unwrap();
    put(DeletionStep::Tombstone(lists));
    assert_eq!(shown(&store), saved[1..], "what is deleted is not believed when it turns up");
}

#[test]
fn a_session_that_was_ended_from_outside_commits_nothing() {
    let (site, saved) = site_with(2);
    let store = site.store();
    forget_one(&store, &saved[0]);
    let mark = Mark { store: store.config.store, snapshot: saved[0].id, generation: 2 };
    let parents = vec![saved[0].id];
    let open = sessions::begin(&store, Work::Undelete, mark.name(), parents).unwrap();
    assert!(open.stands());
    sessions::fence(&store, &open.session).unwrap();
    assert!(!open.stands());
    let late = pinstripe::forgotten::put(&store, &mark).unwrap_err();
    assert_eq!(late.kind(), Kind::Exists);
    drop(open);
    // The next one goes on behind the void.
    assert_eq!(shown(&store), saved[1..]);
    forget::undelete(&store, &saved[0].id.to_string(), &Ledger::new().monitor).unwrap();
    assert_eq!(shown(&store), saved);
    // Damaged behind a void, it still keeps the snapshot.
    let name = ExtentName::In(ExtentKind::Forgotten, Mark { generation: 4, ..mark }.name());
    let image = site.image();
    for member in &site.members {
        std::fs::write(member.join(name.path()), "damaged").unwrap();
    }
    assert_eq!(shown(&site.store()), saved);
    drop(store);
    site.put_image(&image);
    assert_whole(&site.store());
}

/// One damaged copy of a mark hid the sound ones: a snapshot that had been brought back counted as
/// forgotten, and gc took it.
#[test]
fn one_sound_copy_of_a_mark_is_enough() {
    let (site, saved) = site_with(2);
    let store = site.store();
    forget_one(&store, &saved[0]);
    forget::undelete(&store, &saved[0].id.to_string(), &Ledger::new().monitor).unwrap();
    for generation in [1, 2] {
        let mark = Mark { store: store.config.store, snapshot: saved[0].id, generation };
        let name = ExtentName::In(ExtentKind::Forgotten, mark.name());
        for member in &site.members[..2] {
            std::fs::write(member.join(name.path()), b"not this").unwrap();
        }
    }
    assert_eq!(shown(&site.store()), saved);
    assert_eq!(crate::gc::collect_with(&site.store()).kept_snapshots, 2);
}
