//! gc on a real store: what goes, what stays, and that writers, the dead and the absent are safe.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe::forget::ForgetChoice;
use pinstripe::gc::GcOutcome;
use pinstripe::index::Index;
use pinstripe::{ChunkReader, PackReader, Store, TreeReader, forget, gc, sessions};
use pinstripe_base::error::Kind;
use pinstripe_member::entry::Content;
use pinstripe_member::session::Work;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{DiskStep, ExtentKind, ExtentName, PowerCut, Steps};
use pinstripe_testing::every;

use pinstripe_sim::{
    Image, Ledger, NoWait, Site, assert_whole, backup, check, limits, noise, remove_tree, repair,
    small_tree,
};
use pinstripe_sim::{Tree, look};

pub fn options() -> gc::GcOptions {
    let wait = Duration::from_millis(300);
    gc::GcOptions {
        max_waste: 0.1,
        dry_run: false,
        wait,
        limits: limits(),
        detector: Arc::default(),
    }
}

#[track_caller]
fn collect(store: &Store) -> GcOutcome {
    let ledger = Ledger::new();
    let outcome = gc::run(store, &options(), &ledger.monitor).unwrap();
    ledger.assert_clean();
    outcome
}

pub fn forget_one(store: &Store, snapshot: &Snapshot) {
    let names = [snapshot.id.to_string()];
    let options = forget::ForgetOptions {
        allow_empty: true,
        ..forget::ForgetOptions::new(ForgetChoice::Named(&names))
    };
    forget::run(store, &options, &Ledger::new().monitor).unwrap();
}

pub fn names(store: &Store, kind: ExtentKind) -> BTreeSet<[u8; 16]> {
    store.list(kind).unwrap().into_keys().collect()
}

/// Two snapshots of different content, and a third that shares a part of each.
pub fn three(site: &Site) -> [(Snapshot, Tree); 3] {
    let source = site.source();
    let save = || (site.save(), look(&source));
    small_tree(&source, 1);
    fs::write(source.join("one"), noise(91, 300_000)).unwrap();
    let first = save();
    fs::remove_file(source.join("one")).unwrap();
    fs::write(source.join("two"), noise(92, 300_000)).unwrap();
    let second = save();
    small_tree(&source, 3);
    let third = save();
    [first, second, third]
}

#[test]
fn a_store_in_which_nothing_was_forgotten_stays_as_it_is() {
    let site = Site::new(4, 1);
    let [_, _, (last, tree)] = three(&site);
    let before = names(&site.store(), ExtentKind::Packs);
    let dry = gc::GcOptions { dry_run: true, max_waste: 1.0, ..options() };
    let image = site.image();
    let would = gc::run(&site.store(), &dry, &Ledger::new().monitor).unwrap();
    assert!(site.image() == image);
    assert_eq!((would.kept_snapshots, would.deleted_packs), (3, 0));
    assert_eq!(collect(&site.store()).deleted_packs, 0);
    assert_eq!(names(&site.store(), ExtentKind::Packs), before);
    for kind in [ExtentKind::Sessions, ExtentKind::Gc] {
        assert!(names(&site.store(), kind).is_empty());
    }
    assert_whole(&site.store());
    site.assert_restores(&site.store(), &last, &tree);
}

#[test]
fn what_only_forgotten_snapshots_need_is_deleted() {
    for sealed in [true, false] {
        let site = if sealed { Site::new(4, 1) } else { Site::clear(4, 1) };
        let [(first, _), (second, tree2), (third, tree3)] = three(&site);
        let store = site.store();
        forget_one(&store, &first);
        let before = bytes(&store);
        let dry = gc::GcOptions { dry_run: true, ..options() };
        let would = gc::run(&store, &dry, &Ledger::new().monitor).unwrap();
        let done = collect(&store);
        assert_eq!(done.deleted_snapshots, 1);
        assert_eq!(
            (would.deleted_packs, would.repacked_packs, would.deleted_bytes),
            (done.deleted_packs, done.repacked_packs, done.deleted_bytes)
        );
        assert!(done.deleted_packs >= done.repacked_packs && done.repacked_packs >= 1);
        assert!(done.waste_bytes * 10 <= done.kept_bytes);
        let after = bytes(&store);
        assert!(after + 250_000 < before, "{before} to {after}");
        let store = site.store();
        assert_whole(&store);
        site.assert_restores(&store, &second, &tree2);
        site.assert_restores(&store, &third, &tree3);
        assert!(!names(&store, ExtentKind::Snapshots).contains(&first.id.0));
        let late = forget::undelete(&store, &first.id.to_string(), &Ledger::new().monitor);
        assert_eq!(late.unwrap_err().kind(), Kind::NotFound);
        // The index speaks of nothing that is gone: a backup takes everything over unread.
        let ledger = Ledger::new();
        backup(&store, &site.source(), &ledger).unwrap();
        ledger.assert_clean();
        // The next gc removes the tombstone.
        assert_eq!(names(&store, ExtentKind::Gc).len(), 1);
        collect(&site.store());
        assert!(names(&store, ExtentKind::Gc).is_empty());
        assert!(names(&store, ExtentKind::Forgotten).is_empty());
        assert_whole(&site.store());
    }
}

fn bytes(store: &Store) -> u64 {
    let listed = store.present().flat_map(|(_, member)| member.list(ExtentKind::Packs).unwrap());
    listed.map(|(_, bytes)| bytes).sum()
}

#[test]
fn a_store_whose_every_snapshot_was_forgotten_becomes_empty_and_can_be_used_again() {
    let site = Site::new(3, 1);
    let all = three(&site);
    let store = site.store();
    all.iter().for_each(|(snapshot, _)| forget_one(&store, snapshot));
    let done = collect(&store);
    assert_eq!((done.deleted_snapshots, done.kept_snapshots), (3, 0));
    assert!(names(&site.store(), ExtentKind::Packs).is_empty());
    assert_whole(&site.store());
    let (again, tree) = (site.save(), look(&site.source()));
    site.assert_restores(&site.store(), &again, &tree);
}

#[test]
fn nothing_is_written_anew_when_waste_is_allowed() {
    let site = Site::new(3, 1);
    let [(first, _), ..] = three(&site);
    forget_one(&site.store(), &first);
    let waste = gc::GcOptions { max_waste: 1.0, ..options() };
    let done = gc::run(&site.store(), &waste, &Ledger::new().monitor).unwrap();
    assert_eq!((done.repacked_packs, done.deleted_snapshots), (0, 1));
    assert!(done.waste_bytes > 0);
    assert_whole(&site.store());
}

/// A backup's session that never answers.
pub fn silent_session(store: &Store) -> sessions::OpenSession<'_> {
    sessions::begin(store, Work::Backup, [77; 16], Vec::new()).unwrap()
}

#[test]
fn a_writer_that_says_nothing_is_waited_for_and_can_be_ended() {
    let site = Site::new(3, 1);
    let [(first, _), (second, tree2), _] = three(&site);
    let store = site.store();
    forget_one(&store, &first);
    let silent = silent_session(&store);
    let before = names(&store, ExtentKind::Packs);
    let error = gc::run(&site.store(), &options(), &Ledger::new().monitor).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    let id = silent.session.id.to_string();
    let advice = error.advice_text().unwrap();
    assert!(advice.contains(&format!("--fence {}", silent.session.id.short())), "{advice}");
    assert!(before.is_subset(&names(&store, ExtentKind::Packs)), "nothing was deleted");
    // What it put was taken back.
    assert!(names(&store, ExtentKind::Gc).is_empty());
    assert_eq!(gc::fence(&store, "ffff").unwrap_err().kind(), Kind::NotFound);
    gc::fence(&store, &id[..8]).unwrap();
    assert_eq!(collect(&site.store()).deleted_snapshots, 1);
    // A writer whose session was ended commits nothing.
    let name = ExtentName::In(ExtentKind::Snapshots, [77; 16]);
    assert!(store.present().all(|(_, member)| member.put(name, b"x").is_err()));
    drop(silent);
    assert_whole(&site.store());
    site.assert_restores(&site.store(), &second, &tree2);
}

#[test]
fn the_session_of_a_dead_process_is_in_nobodys_way() {
    let site = Site::new(3, 1);
    let [(first, _), ..] = three(&site);
    let store = site.store();
    forget_one(&store, &first);
    let dead = site.open_doomed(0, "", Arc::new(NoWait)).unwrap();
    std::mem::forget(silent_session(&dead));
    let done = collect(&store);
    assert_eq!((done.deleted_snapshots, done.ended_sessions), (1, 1));
    assert!(names(&store, ExtentKind::Sessions).is_empty());
}

#[test]
fn a_parent_of_somebody_at_work_stays() {
    let site = Site::new(3, 1);
    let [(first, tree1), ..] = three(&site);
    let store = site.store();
    let session = sessions::begin(&store, Work::Undelete, [5; 16], vec![first.id]).unwrap();
    forget_one(&store, &first);
    assert_eq!(collect(&store).deleted_snapshots, 0);
    session.end().unwrap();
    forget::undelete(&store, &first.id.to_string(), &Ledger::new().monitor).unwrap();
    assert_eq!(collect(&store).deleted_snapshots, 0);
    site.assert_restores(&site.store(), &first, &tree1);
}

#[test]
fn a_member_that_was_away_brings_nothing_back() {
    let site = Site::new(4, 1);
    let [(first, _), (second, tree2), (third, tree3)] = three(&site);
    let (member, aside) = (&site.members[3], site.path("aside"));
    fs::rename(member, &aside).unwrap();
    forget_one(&site.store(), &first);
    let ledger = Ledger::new();
    let done = gc::run(&site.store(), &options(), &ledger.monitor).unwrap();
    ledger.assert_no_losses();
    assert_eq!(done.deleted_snapshots, 1);
    assert_eq!(names(&site.store(), ExtentKind::Gc).len(), 1, "the tombstone waits for the member");
    collect_with(&site.store());
    assert_eq!(names(&site.store(), ExtentKind::Gc).len(), 1);
    fs::rename(&aside, member).unwrap();
    // It is not believed, wherever one looks from.
    for through in [0, 3] {
        let store = site.store_through(through);
        assert!(!names(&store, ExtentKind::Snapshots).contains(&first.id.0));
        let shown = pinstripe::snapshots::run(&store, &Ledger::new().monitor).unwrap();
        assert_eq!(shown.len(), 2);
        site.assert_restores(&store, &second, &tree2);
    }
    let mut store = site.store();
    let repaired = pinstripe_sim::repair(&mut store, &Ledger::new());
    assert_eq!(repaired.lost_extents, 0);
    let done = collect_with(&site.store());
    assert!(done.stale_objects > 0, "{done:?}");
    collect_with(&site.store());
    assert!(names(&site.store(), ExtentKind::Gc).is_empty());
    assert_whole(&site.store());
    site.assert_restores(&site.store_through(3), &third, &tree3);
}

/// As [`collect`], where warnings are in order.
pub fn collect_with(store: &Store) -> GcOutcome {
    let ledger = Ledger::new();
    let outcome = gc::run(store, &options(), &ledger.monitor).unwrap();
    ledger.assert_no_losses();
    outcome
}

#[test]
fn too_few_members_are_refused() {
    let site = Site::new(2, 1);
    small_tree(&site.source(), 1);
    let snapshot = site.save();
    remove_tree(&site.members[1]);
    let store = site.store();
    let error = gc::run(&store, &options(), &Ledger::new().monitor).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    let tree = look(&site.source());
    site.assert_restores(&store, &snapshot, &tree);
}

#[test]
fn a_snapshot_that_cannot_be_read_stops_everything() {
    let site = Site::new(3, 1);
    let [(first, _), (second, _), _] = three(&site);
    forget_one(&site.store(), &first);
    for member in &site.members {
        fs::write(member.join(ExtentName::snapshot(second.id).path()), b"not this").unwrap();
    }
    let image = names(&site.store(), ExtentKind::Packs);
    let error = gc::run(&site.store(), &options(), &Ledger::new().monitor).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    assert!(error.advice_text().unwrap().contains(&second.id.to_string()));
    assert_eq!(names(&site.store(), ExtentKind::Packs), image);
}

#[test]
fn the_copy_that_stays_is_read_before_the_other_one_goes() {
    // One chunk in two packs, and the copy in the better one is damaged beyond parity.
    let site = Site::new(3, 1);
    let source = site.source();
    let (first, old, hidden) = save_and_hide(&site);
    let tree = look(&source);
    fs::write(source.join("more"), noise(8, 900_000)).unwrap();
    let second = site.save();
    unhide(&site, hidden);
    let new: Vec<_> = names(&site.store(), ExtentKind::Packs).difference(&old).copied().collect();
    // All of the new packs' strips but the headers and trailers are noise now on two of three.
    for set in new {
        for member in &site.members[..2] {
            damage_strips(&member.join(ExtentName::In(ExtentKind::Packs, set).path()));
        }
    }
    forget_one(&site.store(), &second);
    let _ = gc::run(&site.store(), &options(), &Ledger::new().monitor);
    site.assert_restores(&site.store(), &first, &tree);
}

#[test]
fn a_pack_that_cannot_be_read_goes_when_its_copies_stand_elsewhere() {
    let site = Site::new(3, 0);
    let (first, old, hidden) = save_and_hide(&site);
    let tree = look(&site.source());
    let second = site.save();
    unhide(&site, hidden);
    // All content stands twice, and one copy of it lost an extent; pages stand four times, unless
    // a directory above the source changed between the two.
    let hurt = hurt(&site, &old);
    let done = gc::run(&site.store(), &options(), &Ledger::new().monitor).unwrap();
    let going = if first.root.id == second.root.id { old.len() } else { hurt.len() };
    assert_eq!((done.deleted_packs, done.missing_chunks), (going as u64, 0));
    let now = names(&site.store(), ExtentKind::Packs);
    assert!(hurt.is_disjoint(&now), "{now:?}");
    assert_whole(&site.store());
    site.assert_restores(&site.store(), &first, &tree);
}

#[test]
fn a_pack_that_cannot_be_read_goes_when_its_copies_are_moved() {
    let site = Site::new(3, 0);
    let source = site.source();
    let (first, old, hidden) = save_and_hide(&site);
    fs::write(source.join("more"), noise(8, 900_000)).unwrap();
    let second = site.save();
    fs::remove_file(source.join("more")).unwrap();
    let (third, tree) = (site.save(), look(&source));
    unhide(&site, hidden);
    let hurt = hurt(&site, &old);
    [first, second].iter().for_each(|snapshot| forget_one(&site.store(), snapshot));
    let ledger = Ledger::new();
    let options = gc::GcOptions { max_waste: 0.0, ..options() };
    let done = gc::run(&site.store(), &options, &ledger.monitor).unwrap();
    ledger.assert_no_losses();
    assert!(done.repacked_packs > 0, "{done:?}");
    assert!(hurt.is_disjoint(&names(&site.store(), ExtentKind::Packs)));
    assert_whole(&site.store());
    site.assert_restores(&site.store(), &third, &tree);
}

#[test]
fn a_pack_that_cannot_be_read_stays_when_its_copies_are_damaged() {
    let site = Site::new(3, 0);
    let (_, old, hidden) = save_and_hide(&site);
    site.save();
    unhide(&site, hidden);
    let new: BTreeSet<_> =
        names(&site.store(), ExtentKind::Packs).difference(&old).copied().collect();
    let (old, new) = (striped(&site, &old), striped(&site, &new));
    for (member, sets) in [(0, &old), (1, &new)] {
        for set in sets.iter().copied() {
            let path = site.members[member].join(ExtentName::In(ExtentKind::Packs, set).path());
            if old.contains(&set) {
                fs::remove_file(&path).unwrap();
            } else {
                damage_strips(&path);
            }
        }
    }
    let _ = gc::run(&site.store(), &options(), &Ledger::new().monitor);
    // The extents that it still has may be needed: none was removed.
    assert!(old.is_subset(&names(&site.store(), ExtentKind::Packs)));
}

/// Those of some packs that lie over all members: content.
fn striped(site: &Site, packs: &BTreeSet<[u8; 16]>) -> BTreeSet<[u8; 16]> {
    let has = |id: &[u8; 16]| {
        let path = ExtentName::In(ExtentKind::Packs, *id).path();
        site.members.iter().all(|member| member.join(&path).exists())
    };
    packs.iter().copied().filter(has).collect()
}

/// Takes one extent of each of these that lie over all members; those are returned.
fn hurt(site: &Site, packs: &BTreeSet<[u8; 16]>) -> BTreeSet<[u8; 16]> {
    let hurt = striped(site, packs);
    for set in &hurt {
        let path = ExtentName::In(ExtentKind::Packs, *set).path();
        fs::remove_file(site.members[0].join(path)).unwrap();
    }
    hurt
}

/// Makes noise of an extent's strips, but not of its header and its trailer.
fn damage_strips(path: &std::path::Path) {
    let mut bytes = fs::read(path).unwrap();
    let end = bytes.len().min(150_000);
    bytes[4096..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
    fs::write(path, bytes).unwrap();
}

type Hidden = Vec<(std::path::PathBuf, Vec<u8>)>;

/// Saves one file, and hides its packs: what is saved next is stored once more, as when two writers
/// race, for the index knows nothing of the first copy.
fn save_and_hide(site: &Site) -> (Snapshot, BTreeSet<[u8; 16]>, Hidden) {
    fs::write(site.source().join("shared"), noise(7, 100_000)).unwrap();
    let first = site.save();
    let packs = names(&site.store(), ExtentKind::Packs);
    let hidden = hide(site, &packs);
    (first, packs, hidden)
}

/// Takes packs, and every index run, off the members.
fn hide(site: &Site, packs: &BTreeSet<[u8; 16]>) -> Hidden {
    let mut hidden = Vec::new();
    let mut take = |path: std::path::PathBuf| {
        hidden.push((path.clone(), fs::read(&path).unwrap()));
        fs::remove_file(&path).unwrap();
    };
    let runs = names(&site.store(), ExtentKind::Index);
    for member in &site.members {
        let of_packs =
            packs.iter().map(|id| member.join(ExtentName::In(ExtentKind::Packs, *id).path()));
        // Packs of pages lie on one member where there is no parity.
        of_packs.filter(|path| path.exists()).for_each(&mut take);
        runs.iter().for_each(|id| take(member.join(ExtentName::In(ExtentKind::Index, *id).path())));
    }
    // Nothing of the first snapshot is to be taken over.
    for member in &site.members {
        for entry in fs::read_dir(member.join(ExtentKind::Snapshots.dir())).unwrap() {
            take(entry.unwrap().path());
        }
    }
    hidden
}

fn unhide(_: &Site, hidden: Hidden) {
    hidden.into_iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
}

/// A store with a forgotten snapshot, to be put back for each cut.
struct Bench {
    site: Site,
    image: Image,
    forgotten: (Snapshot, Tree),
    kept: Vec<(Snapshot, Tree)>,
}

impl Bench {
    fn new() -> Self {
        let site = Site::new(3, 1);
        let source = site.source();
        let save = |seed, len| {
            fs::write(source.join("changes"), noise(seed, len)).unwrap();
            (site.save(), look(&source))
        };
        fs::write(source.join("stays"), noise(1, 9000)).unwrap();
        let forgotten = save(2, 40_000);
        let kept = vec![save(3, 5000), save(4, 7000)];
        forget_one(&site.store(), &forgotten.0);
        let image = site.image();
        Bench { site, image, forgotten, kept }
    }

    fn run(&self, steps: Arc<dyn Steps>) -> pinstripe_base::error::Result<GcOutcome> {
        let store = self.site.open_doomed(0, "", steps)?;
        gc::run(&store, &options(), &Ledger::new().monitor)
    }

    #[track_caller]
    fn assert_sound(&self, restore: bool, cut: u64) {
        let ledger = Ledger::new();
        let store = self.site.store();
        let outcome = check(&store, true, &ledger);
        ledger.assert_no_losses();
        assert_eq!((outcome.lost, outcome.hurt_paths), (0, 0), "cut {cut}");
        for (snapshot, tree) in self.kept.iter().filter(|_| restore) {
            self.site.assert_restores(&store, snapshot, tree);
        }
    }

    /// Every third time the user wants the snapshot back after all; whether that was in time.
    fn undelete(&self, cut: u64) -> Option<bool> {
        if !cut.is_multiple_of(3) {
            return None;
        }
        let name = self.forgotten.0.id.to_string();
        match forget::undelete(&self.site.store(), &name, &Ledger::new().monitor) {
            Ok(_) => Some(true),
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "cut {cut}: {error}");
                Some(false)
            }
        }
    }
}

#[test]
fn a_gc_cut_off_at_any_step_goes_on() {
    let bench = Bench::new();
    let counter = Arc::new(PowerCut::new(u64::MAX));
    let whole = bench.run(Arc::clone(&counter) as Arc<dyn Steps>).unwrap();
    assert!(whole.deleted_packs > 0 && whole.repacked_packs > 0);
    let steps = counter.steps_done();
    assert!(steps > 100, "{steps}");
    let (mut back, mut late) = (0, 0);
    for cut in (0..steps).step_by(every(5)) {
        bench.site.put_image(&bench.image);
        let power = Arc::new(PowerCut::new(cut));
        let _ = bench.run(Arc::clone(&power) as Arc<dyn Steps>);
        power.after_power_cut(cut * 7919).unwrap();
        bench.assert_sound(cut % 10 == 0, cut);
        let undeleted = bench.undelete(cut);
        let ledger = Ledger::new();
        let done = gc::run(&bench.site.store(), &options(), &ledger.monitor).unwrap();
        ledger.assert_no_losses();
        let store = bench.site.store();
        assert_eq!(done.kept_snapshots, 2 + u64::from(undeleted == Some(true)), "cut {cut}");
        if undeleted == Some(true) {
            back += 1;
            let (snapshot, tree) = &bench.forgotten;
            bench.site.assert_restores(&store, snapshot, tree);
        } else {
            late += u64::from(undeleted.is_some());
            assert!(!names(&store, ExtentKind::Snapshots).contains(&bench.forgotten.0.id.0));
        }
        collect_with(&store);
        let store = bench.site.store();
        assert!(names(&store, ExtentKind::Sessions).is_empty(), "cut {cut}");
        bench.assert_sound(cut % 10 == 0, cut);
        assert_whole(&store);
    }
    assert!(back > 0 && late > 0, "{back} came back, {late} were late");
}

/// Backups, forgetting and two gcs on one store, each with a store object of its own, as separate
/// processes have it.
#[test]
fn backups_and_gcs_at_once_lose_nothing() {
    const WRITERS: u64 = 3;
    const ROUNDS: u64 = 4;
    let site = Site::new(3, 1);
    let done = AtomicU64::new(0);
    let write = |writer: u64| {
        let source = site.path(&format!("source-{writer}"));
        fs::create_dir_all(&source).unwrap();
        let mut saved = Vec::new();
        for round in 0..ROUNDS {
            // Old content comes back in other rounds and from other writers: what is condemned is
            // wanted again.
            for file in 0..4 {
                let seed = 100 + (writer + round * 2 + file) % 7;
                fs::write(source.join(format!("f{file}")), noise(seed, 50_000)).unwrap();
            }
            let ledger = Ledger::new();
            let snapshot = backup(&site.store(), &source, &ledger).unwrap();
            ledger.assert_no_losses();
            saved.push((snapshot, source.clone(), look(&source)));
            if round % 2 == 1 {
                forget_one(&site.store(), &saved.remove(0).0);
            }
        }
        done.fetch_add(1, Ordering::SeqCst);
        saved
    };
    let collect = || {
        let (mut deleted, wait) = (0, Duration::from_secs(60));
        while done.load(Ordering::SeqCst) < WRITERS {
            let options = gc::GcOptions { wait, ..options() };
            match gc::run(&site.store(), &options, &Ledger::new().monitor) {
                Ok(outcome) => deleted += outcome.deleted_packs,
                Err(error) => assert_eq!(error.kind(), Kind::Busy, "{error}"),
            }
        }
        deleted
    };
    let (saved, deleted) = std::thread::scope(|scope| {
        let collectors = [scope.spawn(collect), scope.spawn(collect)];
        let write = &write;
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || write(n))).collect();
        let saved: Vec<_> = writers.into_iter().flat_map(|it| it.join().unwrap()).collect();
        (saved, collectors.map(|it| it.join().unwrap()))
    });
    assert!(deleted.iter().sum::<u64>() > 0, "of no use when nothing is deleted");
    assert_eq!(saved.len() as u64, WRITERS * (ROUNDS - ROUNDS / 2));
    let store = site.store();
    for (snapshot, source, tree) in &saved {
        let (ledger, to) = (Ledger::new(), site.target());
        let name = snapshot.id.to_string();
        pinstripe_sim::restore(&store, &name, source, &to, &ledger).unwrap();
        ledger.assert_no_losses();
        pinstripe_sim::assert_same(tree, &look(&to));
        remove_tree(&to);
    }
    collect_with(&store);
    assert_whole(&site.store());
}

#[test]
fn whoever_reads_while_gc_runs_finds_what_was_moved() {
    let site = Site::new(3, 1);
    let [(first, _), (second, _), _] = three(&site);
    let (reading, ledger) = (site.store(), Ledger::new());
    let index = Index::load(&reading, &ledger.monitor).unwrap();
    let packs = PackReader::new(&reading, &ledger.monitor);
    let before = names(&reading, ExtentKind::Packs);
    // Some readers are open already.
    ChunkReader::new(&packs, &index).read(&second.root.id).unwrap();
    forget_one(&site.store(), &first);
    let all = gc::GcOptions { max_waste: 0.0, ..options() };
    let done = gc::run(&site.store(), &all, &Ledger::new().monitor).unwrap();
    assert!(done.repacked_packs > 0 && before.len() as u64 > done.repacked_packs);
    let mut tree = TreeReader::new(ChunkReader::new(&packs, &index), &second.root, b"").unwrap();
    let mut chunks = ChunkReader::new(&packs, &index);
    let mut read = 0;
    while let Some(entry) = tree.next_entry().unwrap() {
        let Content::Chunks(rows) = &entry.content else { continue };
        for row in rows {
            assert_eq!(chunks.read(&row.id).unwrap().len(), row.raw_bytes as usize);
            read += 1;
        }
    }
    assert!(read > 10, "{read}");
    ledger.assert_clean();
}

/// Holds a writer up where it puts its first object of a kind.
struct Gate {
    kind: ExtentKind,
    is_met: AtomicU64,
    met: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl Steps for Gate {
    fn take(
        &self,
        step: &DiskStep<'_>,
        act: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        if let DiskStep::Rename { to, .. } = step
            && to.components().any(|part| part.as_os_str() == self.kind.dir())
            && self.is_met.fetch_add(1, Ordering::SeqCst) == 0
        {
            let _ = self.met.lock().unwrap().send(());
            let _ = self.go.lock().unwrap().recv_timeout(Duration::from_secs(60));
        }
        NoWait.take(step, act)
    }
}

/// A writer whose first object of a kind waits for a word; the other end hears when it is there.
pub fn gate(kind: ExtentKind) -> (Arc<dyn Steps>, Receiver<()>, Sender<()>) {
    let ((met_by, met), (goes, go)) = (channel(), channel());
    let (is_met, met_by, go) = (AtomicU64::new(0), Mutex::new(met_by), Mutex::new(go));
    let gate = Gate { kind, is_met, met: met_by, go };
    (Arc::new(gate), met, goes)
}

/// One gc had moved chunks, and another one saw them in two packs; it counted on the old one. Then
/// the first deleted that, and was done before the second said anything: nothing that is condemned
/// told of it any more.
#[test]
fn what_another_gc_deleted_meanwhile_is_counted_on_no_more() {
    // Random names decide which of two copies it counts on.
    for _ in 0..8 {
        let site = Site::new(1, 0);
        let [(first, _), (second, tree2), (third, tree3)] = three(&site);
        forget_one(&site.store(), &first);
        let run = |steps: &Arc<dyn Steps>, max_waste: f64| {
            let store = site.open(0, "", Arc::clone(steps)).unwrap();
            gc::run(&store, &gc::GcOptions { max_waste, ..options() }, &Ledger::new().monitor)
        };
        let ((one, one_met, one_goes), (two, two_met, two_goes)) =
            (gate(ExtentKind::Gc), gate(ExtentKind::Gc));
        let long = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| run(&one, 0.0));
            one_met.recv_timeout(long).unwrap();
            // It leaves the waste in the old packs alone, or it would move what they have as well.
            let second = scope.spawn(|| run(&two, 1.0));
            two_met.recv_timeout(long).unwrap();
            one_goes.send(()).unwrap();
            assert!(first.join().unwrap().unwrap().deleted_packs > 0);
            two_goes.send(()).unwrap();
            second.join().unwrap().unwrap();
        });
        assert_whole(&site.store());
        site.assert_restores(&site.store(), &second, &tree2);
        site.assert_restores(&site.store(), &third, &tree3);
    }
}

/// With a member away, gc asks what dead writers may have left there. A backup was committed
/// between two looks at the snapshots, and the session that was over by the second was held against
/// the first.
#[test]
fn a_snapshot_committed_while_gc_looks_around_is_nobodys_leftover() {
    for looks in 0..4 {
        let site = Site::new(3, 1);
        let _ = three(&site);
        fs::rename(&site.members[2], site.path("aside")).unwrap();
        fs::write(site.source().join("new"), noise(93, 100_000)).unwrap();
        let tree = look(&site.source());
        let (writer, met, goes) = gate(ExtentKind::Snapshots);
        let slow = format!("op=list,member=0,room=snapshots,after={looks},times=1,delay=1s");
        let slow = site.open(0, &slow, Arc::new(NoWait)).unwrap();
        let writing = site.open(0, "", writer).unwrap();
        let (saved, done) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| backup(&writing, &site.source(), &Ledger::new()));
            met.recv_timeout(Duration::from_secs(60)).unwrap();
            let gc = scope.spawn(|| gc::run(&slow, &options(), &Ledger::new().monitor));
            std::thread::sleep(Duration::from_millis(500));
            goes.send(()).unwrap();
            (writer.join().unwrap().unwrap(), gc.join().unwrap())
        });
        assert_eq!(done.unwrap().deleted_snapshots, 0, "look {looks}");
        site.assert_restores(&site.store(), &saved, &tree);
    }
}

/// A gc was killed while it deleted, and a member was away then. The next one, with all members,
/// took the deletion back, so that what was half gone could be brought back.
#[test]
fn a_deletion_that_was_begun_ends_though_a_member_was_away() {
    let bench = Bench::new();
    let (member, aside) = (bench.site.members[2].clone(), bench.site.path("aside"));
    let (snapshot, mut begun) = (&bench.forgotten.0, 0);
    for cut in (40..600).step_by(2) {
        bench.site.put_image(&bench.image);
        fs::rename(&member, &aside).unwrap();
        let power: Arc<dyn Steps> = Arc::new(PowerCut::new(cut));
        let is_done = bench.run(power).is_ok();
        fs::rename(&aside, &member).unwrap();
        if is_done {
            break;
        }
        let is_old_pack = |path: &&PathBuf| path.components().any(|it| it.as_os_str() == "packs");
        let mut old = bench.image.0.keys().filter(is_old_pack);
        if !old.any(|path| !path.exists()) {
            continue;
        }
        begun += 1;
        // Asked for before any process settles it, and after.
        for _ in 0..2 {
            let name = snapshot.id.to_string();
            let late = forget::undelete(&bench.site.store(), &name, &Ledger::new().monitor);
            assert_eq!(late.unwrap_err().kind(), Kind::NotFound, "cut {cut}");
            let done = gc::run(&bench.site.store(), &options(), &Ledger::new().monitor).unwrap();
            assert_eq!(done.kept_snapshots, 2, "cut {cut}");
        }
        bench.assert_sound(cut % 10 == 0, cut);
    }
    assert!(begun > 0, "of no use when nothing was begun");
}

#[test]
fn a_damaged_session_that_was_cut_off_is_in_nobodys_way() {
    let site = Site::new(3, 1);
    let [(first, _), ..] = three(&site);
    forget_one(&site.store(), &first);
    let put = |members: usize| {
        for member in &site.members[..members] {
            let path = member.join(ExtentName::In(ExtentKind::Sessions, [9; 16]).path());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"not a session").unwrap();
        }
    };
    // On so many members it may be that of a backup at work, and the absent one may have it sound.
    put(2);
    fs::rename(&site.members[2], site.path("away")).unwrap();
    let error = gc::run(&site.store(), &options(), &Ledger::new().monitor).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.advice_text().unwrap().contains("remove this file"), "{error:?}");
    fs::rename(site.path("away"), &site.members[2]).unwrap();
    let done = gc::run(&site.store(), &options(), &Ledger::new().monitor).unwrap();
    assert_eq!(done.deleted_snapshots, 1);
    assert!(names(&site.store(), ExtentKind::Sessions).is_empty());
    assert_whole(&site.store());
}

#[test]
fn a_run_of_which_too_much_is_gone_keeps_no_tombstone() {
    let site = Site::new(3, 1);
    let [(first, _), (second, tree), _] = three(&site);
    let store = site.store();
    let runs = names(&store, ExtentKind::Index);
    forget_one(&store, &first);
    let mut old = Vec::new();
    for member in &site.members {
        for id in &runs {
            let path = member.join(ExtentName::In(ExtentKind::Index, *id).path());
            let mut bytes = fs::read(&path).unwrap();
            // Its head is sound, its first page is not, whatever parity gives.
            bytes[4096..4296].iter_mut().for_each(|byte| *byte ^= 0x5a);
            old.push((path, bytes));
        }
    }
    collect(&store);
    // As if the merge that replaced these runs had been cut off.
    for (path, bytes) in &old {
        fs::write(path, bytes).unwrap();
    }
    collect_with(&site.store());
    collect_with(&site.store());
    assert!(names(&site.store(), ExtentKind::Gc).is_empty());
    // Runs that speak of what stays are not looked into.
    repair(&mut site.store(), &Ledger::new());
    assert_whole(&site.store());
    site.assert_restores(&site.store(), &second, &tree);
}

#[test]
fn a_snapshot_that_one_member_has_is_kept_when_that_one_goes_away() {
    let site = Site::new(4, 1);
    let [(first, _), (second, tree), _] = three(&site);
    forget_one(&site.store(), &first);
    // As when its writer died while it committed.
    let name = ExtentName::snapshot(second.id).path();
    site.members[1..].iter().for_each(|member| fs::remove_file(member.join(&name)).unwrap());
    collect(&site.store());
    assert!(site.members.iter().all(|member| member.join(&name).exists()));
    let (member, aside) = (&site.members[0], site.path("aside"));
    fs::rename(member, &aside).unwrap();
    let away = site.store_through(1);
    gc::run(&away, &options(), &Ledger::new().monitor).unwrap();
    fs::rename(&aside, member).unwrap();
    site.assert_restores(&site.store(), &second, &tree);
}
