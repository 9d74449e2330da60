//! Scrub: finds and mends what repair would, some at a time, goes on where it stopped, and leaves
//! alone what others are writing.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use pinstripe::forget::{ForgetChoice, ForgetOptions};
use pinstripe::scrub::{Budget, Fate, Finding, ScrubOutcome};
use pinstripe::{Store, forget, gc, scrub};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::stripe_set::HEADER_BYTES;
use pinstripe_member::{ExtentKind, ExtentName, PowerCut, Steps};

use pinstripe_sim::{
    Image, Ledger, NoWait, STRIP_BYTES, Site, assert_whole, check, limits, noise, small_tree,
};
use pinstripe_sim::{Tree, look};

/// A store with several snapshots, and all its bytes.
struct Bench {
    site: Site,
    image: Image,
    last: (Snapshot, Tree),
}

impl Bench {
    fn new(members: usize, parity: u8) -> Self {
        let site = Site::new(members, parity);
        for seed in 1..6 {
            small_tree(&site.source(), seed);
            site.save();
        }
        let last = (site.save(), look(&site.source()));
        let image = site.image();
        Bench { site, image, last }
    }

    fn restore_image(&self) {
        self.site.put_image(&self.image);
    }

    #[track_caller]
    fn assert_as_before(&self) {
        let now = self.site.image();
        let is_state = |path: &PathBuf| path.to_string_lossy().contains("/scrub/");
        for path in self.image.0.keys().chain(now.0.keys()).filter(|path| !is_state(path)) {
            let same = self.image.0.get(path) == now.0.get(path);
            assert!(same, "{} is not what it was", path.display());
        }
    }

    /// Files of a kind on a member.
    fn files(&self, member: usize, kind: &str) -> Vec<PathBuf> {
        let place = self.site.members[member].join(kind);
        self.image.0.keys().filter(|path| path.starts_with(&place)).cloned().collect()
    }
}

fn options(budget: &str) -> scrub::ScrubOptions {
    let budget = if budget.is_empty() { Budget::default() } else { budget.parse().unwrap() };
    scrub::ScrubOptions { budget, rate: None, save_bytes: u64::MAX, limits: limits() }
}

fn try_scrub(
    store: &Store,
    options: &scrub::ScrubOptions,
    ledger: &Ledger,
) -> Result<(ScrubOutcome, Vec<Finding>)> {
    let findings = Mutex::new(Vec::new());
    let report = |finding: &Finding| findings.lock().unwrap().push(finding.clone());
    let outcome = scrub::run(store, options, &ledger.monitor, &report)?;
    Ok((outcome, findings.into_inner().unwrap()))
}

fn scrub(store: &Store, budget: &str, ledger: &Ledger) -> (ScrubOutcome, Vec<Finding>) {
    try_scrub(store, &options(budget), ledger).unwrap()
}

#[test]
fn a_sound_store_is_verified_whole_and_stays_as_it_is() {
    let bench = Bench::new(4, 1);
    let ledger = Ledger::new();
    let (outcome, findings) = scrub(&bench.site.store(), "", &ledger);
    ledger.assert_clean();
    assert!(findings.is_empty());
    assert!(outcome.sets == outcome.all_sets && outcome.sets > 10, "{outcome:?}");
    assert_eq!(outcome.verified_bytes, outcome.all_bytes);
    // Every byte of packs and index runs was read.
    let stored = |kind: &str| -> u64 {
        let files = (0..4).flat_map(|member| bench.files(member, kind));
        files.map(|path| bench.image.0[&path].len() as u64).sum()
    };
    assert_eq!(ledger.get(Counter::CheckedBytes), stored("packs") + stored("index"));
    assert_eq!(outcome.all_bytes, stored("packs") + stored("index"));
    bench.assert_as_before();
}

#[test]
fn all_damage_of_one_member_is_found_named_and_mended() {
    let bench = Bench::new(4, 1);
    let mut packs = bench.files(2, "packs");
    packs.sort_by_key(|path| bench.image.0[path].len());
    let (pack, gone) = (packs.pop().unwrap(), packs.pop().unwrap());
    let bytes = &bench.image.0[&pack];
    let mut flipped = bytes.clone();
    // One bit in the strip of the row 1.
    let at = HEADER_BYTES + STRIP_BYTES as usize + 17;
    assert!(bytes.len() > at + 4096, "a pack with several rows");
    flipped[at] ^= 4;
    fs::write(&pack, flipped).unwrap();
    fs::remove_file(&gone).unwrap();
    let run = bench.files(2, "index")[0].clone();
    fs::write(&run, b"short").unwrap();
    let snapshot = bench.files(2, "snapshots")[0].clone();
    fs::write(&snapshot, b"no snapshot").unwrap();
    fs::write(&bench.files(2, "keys")[0], b"no keys").unwrap();
    fs::write(bench.site.members[2].join("pinstripe.member"), b"no label").unwrap();

    let ledger = Ledger::new();
    let (outcome, findings) = scrub(&bench.site.store(), "", &ledger);
    ledger.assert_no_losses();
    assert!(findings.iter().all(|found| found.fate == Fate::Mended && found.member == Some(2)));
    assert_eq!((outcome.mended_extents, outcome.mended_objects), (3, 3), "{findings:#?}");
    assert_eq!((outcome.repairable, outcome.lost), (0, 0));
    let below = |path: &PathBuf| {
        path.strip_prefix(&bench.site.members[2]).unwrap().to_string_lossy().into_owned()
    };
    let of = |path: &PathBuf| -> Vec<&Finding> {
        findings.iter().filter(|found| found.object == below(path)).collect()
    };
    let strip = of(&pack);
    assert_eq!((strip.len(), strip[0].part, strip[0].row), (1, "strip", Some(1)));
    assert_eq!(strip[0].offset, Some((HEADER_BYTES as u64) + STRIP_BYTES));
    assert_eq!((of(&gone)[0].part, of(&gone)[0].row), ("extent", None));
    assert_eq!(of(&snapshot)[0].part, "object");
    assert!(of(&run).iter().any(|found| found.part == "trailer"));
    bench.assert_as_before();
    assert_whole(&bench.site.store());

    let (again, findings) = scrub(&bench.site.store(), "", &Ledger::new());
    assert!(findings.is_empty() && again.mended_extents == 0);
}

#[test]
fn what_parity_cannot_give_is_named_and_the_rest_is_mended() {
    let bench = Bench::new(3, 1);
    let pack = bench.files(0, "packs")[0].clone();
    let name = pack.strip_prefix(&bench.site.members[0]).unwrap().to_path_buf();
    for member in [0, 1] {
        let path = bench.site.members[member].join(&name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[HEADER_BYTES + 5] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    let other = bench.files(1, "packs").into_iter().find(|path| !path.ends_with(&name)).unwrap();
    fs::remove_file(&other).unwrap();
    let ledger = Ledger::new();
    let (outcome, findings) = scrub(&bench.site.store(), "", &ledger);
    assert!(outcome.lost > 0 && outcome.mended_extents == 1, "{outcome:?}");
    assert!(!ledger.losses().is_empty());
    assert!(findings.iter().any(|found| found.fate == Fate::Lost && found.part == "set"));
    assert_eq!(fs::read(&other).unwrap(), bench.image.0[&other]);
}

#[test]
fn runs_with_a_budget_go_round_and_miss_nothing() {
    let bench = Bench::new(4, 1);
    // Every pack has damage, so that each finding tells which were verified.
    for path in bench.files(1, "packs") {
        let mut bytes = fs::read(&path).unwrap();
        bytes[HEADER_BYTES + 9] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let all: BTreeSet<_> = bench.files(1, "packs").into_iter().collect();
    let mut mended = BTreeSet::new();
    let (mut runs, mut sizes) = (0, BTreeSet::new());
    while mended.len() < all.len() {
        let (outcome, findings) = scrub(&bench.site.store(), "20%", &Ledger::new());
        assert!(outcome.sets < outcome.all_sets, "{outcome:?}");
        assert!(5 * outcome.verified_bytes >= outcome.all_bytes);
        let found = findings.iter().map(|found| found.place.join(&found.object));
        for path in found {
            assert!(mended.insert(path), "verified twice before all were verified once");
        }
        let states: Vec<_> = fs::read_dir(bench.site.members[3].join("scrub")).unwrap().collect();
        assert_eq!(states.len(), 1, "the old state is removed");
        sizes.insert(states[0].as_ref().unwrap().metadata().unwrap().len());
        runs += 1;
        assert!(runs <= 6, "{mended:?}");
    }
    assert_eq!(mended, all);
    assert!(runs > 2 && sizes.len() == 1, "{runs} {sizes:?}");
    bench.assert_as_before();
}

#[test]
fn the_status_tells_what_was_verified_when() {
    let bench = Bench::new(4, 1);
    let status = |now: i64| {
        let store = bench.site.store();
        scrub::status(&store, now, &Ledger::new().monitor).unwrap()
    };
    let now = pinstripe_base::clock::now().0;
    let sets = |status: &scrub::ScrubStatus| -> Vec<u64> {
        status.bands.iter().map(|band| band.sets).collect()
    };
    let before = status(now);
    let all: u64 = sets(&before).iter().sum();
    assert_eq!(sets(&before), [0, 0, 0, 0, 0, 0, all]);
    assert_eq!(before.oldest_seconds, None);

    scrub(&bench.site.store(), "30%", &Ledger::new());
    let part = sets(&status(now));
    assert!(part[0] > 0 && part[6] > 0 && part[0] + part[6] == all, "{part:?}");
    scrub(&bench.site.store(), "", &Ledger::new());
    assert_eq!(sets(&status(now)), [all, 0, 0, 0, 0, 0, 0]);
    assert_eq!(sets(&status(now + 40 * 86_400)), [0, 0, 0, all, 0, 0, 0]);
    assert_eq!(sets(&status(now + 4000 * 86_400)), [0, 0, 0, 0, 0, all, 0]);
    assert!(status(now).oldest_seconds.is_some_and(|seconds| seconds >= now));

    // What came later was never verified, even where it fell into a share that was.
    fs::write(bench.site.source().join("new"), noise(77, 30_000)).unwrap();
    bench.site.save();
    let later = sets(&status(now));
    assert!(later[6] >= 3 && later[0] == all, "{later:?}");
}

#[test]
fn a_share_counts_as_verified_only_with_all_members() {
    let bench = Bench::new(4, 1);
    let away = bench.site.path("away");
    fs::rename(&bench.site.members[3], &away).unwrap();
    let ledger = Ledger::new();
    let (outcome, findings) = scrub(&bench.site.store(), "", &ledger);
    ledger.assert_no_losses();
    assert_eq!((outcome.sets, outcome.repairable), (outcome.all_sets, 1));
    assert_eq!((findings.len(), findings[0].part), (1, "member"));
    fs::rename(&away, &bench.site.members[3]).unwrap();
    let status = scrub::status(&bench.site.store(), 0, &Ledger::new().monitor).unwrap();
    assert_eq!(status.bands[6].sets, outcome.all_sets);
}

#[test]
fn what_a_writer_at_work_has_not_sealed_yet_is_left_alone() {
    let bench = Bench::new(4, 1);
    let pack = bench.files(0, "packs")[0].clone();
    // No run lists any pack: all of them may belong to a writer that is not done.
    for member in 0..4 {
        bench.files(member, "index").iter().for_each(|run| fs::remove_file(run).unwrap());
    }
    fs::remove_file(&pack).unwrap();
    let damaged = bench.files(2, "packs")[1].clone();
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[HEADER_BYTES + 9] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let store = bench.site.store();
    let session = ExtentName::In(ExtentKind::Sessions, [3; 16]);
    store.present().for_each(|(_, member)| member.put(session, b"a writer").unwrap());
    let (outcome, _) = scrub(&store, "", &Ledger::new());
    assert!(!pack.exists(), "it was not ours to write");
    // What was sealed may be mended all the same.
    assert_eq!((outcome.mended_extents, outcome.repairable, outcome.lost), (1, 0, 0));
    assert_eq!(fs::read(&damaged).unwrap(), bench.image.0[&damaged]);
    store.present().for_each(|(_, member)| member.delete(session).unwrap());
    let (outcome, _) = scrub(&store, "", &Ledger::new());
    assert_eq!(outcome.mended_extents, 1);
    assert_eq!(fs::read(&pack).unwrap(), bench.image.0[&pack]);
}

#[test]
fn no_key_is_needed() {
    let bench = Bench::new(4, 1);
    let pack = bench.files(3, "packs")[0].clone();
    fs::write(&pack, b"no pack").unwrap();
    fs::remove_file(&bench.files(1, "snapshots")[0]).unwrap();
    let store = bench.site.locked_store();
    let ledger = Ledger::new();
    let (outcome, _) = scrub(&store, "", &ledger);
    ledger.assert_no_losses();
    assert_eq!((outcome.mended_extents, outcome.mended_objects), (1, 1), "{:#?}", ledger.seen());
    bench.assert_as_before();
}

/// It was passed over in silence, and check said otherwise.
#[test]
fn a_damaged_mark_is_named_and_left_to_repair() {
    let mut bench = Bench::new(3, 1);
    crate::gc::forget_one(&bench.site.store(), &bench.last.0);
    bench.image = bench.site.image();
    let marks = bench.files(1, "forgotten");
    fs::write(&marks[0], b"not a mark").unwrap();
    let (outcome, findings) = scrub(&bench.site.store(), "100%", &Ledger::new());
    assert_eq!((outcome.repairable, findings.len()), (1, 1), "{findings:?}");
    assert_eq!(fs::read(&marks[0]).unwrap(), b"not a mark");
    pinstripe_sim::repair(&mut bench.site.store(), &Ledger::new());
    let (outcome, _) = scrub(&bench.site.store(), "100%", &Ledger::new());
    assert_eq!(outcome.repairable, 0);
}

#[test]
fn a_damaged_state_costs_nothing_but_time() {
    let bench = Bench::new(4, 1);
    scrub(&bench.site.store(), "30%", &Ledger::new());
    for member in &bench.site.members {
        for entry in fs::read_dir(member.join("scrub")).unwrap() {
            fs::write(entry.unwrap().path(), b"no state").unwrap();
        }
    }
    let (outcome, _) = scrub(&bench.site.store(), "", &Ledger::new());
    assert_eq!(outcome.sets, outcome.all_sets);
    for member in &bench.site.members {
        assert_eq!(fs::read_dir(member.join("scrub")).unwrap().count(), 1);
    }
    let ledger = Ledger::new();
    check(&bench.site.store(), true, &ledger);
    ledger.assert_clean();
}

#[test]
fn a_scrub_cut_off_at_any_step_loses_nothing_and_the_next_one_ends_it() {
    let bench = Bench::new(3, 1);
    let hurt = || {
        bench.restore_image();
        for (turn, path) in bench.files(1, "packs").iter().enumerate() {
            match turn % 3 {
                0 => fs::remove_file(path).unwrap(),
                1 => fs::write(path, &bench.image.0[path][..4200]).unwrap(),
                _ => {}
            }
        }
        bench.files(1, "snapshots").iter().for_each(|path| fs::write(path, b"x").unwrap());
    };
    let run = |steps: Arc<dyn Steps>| {
        let store = bench.site.open(0, "", steps).unwrap();
        let options = scrub::ScrubOptions { save_bytes: 1, ..options("") };
        try_scrub(&store, &options, &Ledger::new())
    };
    hurt();
    let counter = Arc::new(PowerCut::new(u64::MAX));
    run(Arc::clone(&counter) as Arc<dyn Steps>).unwrap();
    let steps = counter.steps_done();
    assert!(steps > 60, "{steps}");
    for cut in (0..steps).step_by(5) {
        hurt();
        let power = Arc::new(PowerCut::new(cut));
        let _ = run(Arc::clone(&power) as Arc<dyn Steps>);
        power.after_power_cut(cut * 31).unwrap();
        let ledger = Ledger::new();
        let outcome = check(&bench.site.store(), true, &ledger);
        ledger.assert_no_losses();
        assert_eq!((outcome.lost, outcome.hurt_paths), (0, 0), "cut {cut}");
        let (_, findings) = run(Arc::new(NoWait)).unwrap();
        assert!(findings.iter().all(|found| found.fate == Fate::Mended), "cut {cut}");
        assert_whole(&bench.site.store());
    }
    let (snapshot, tree) = &bench.last;
    bench.site.assert_restores(&bench.site.store(), snapshot, tree);
}

#[test]
fn a_member_that_cannot_be_written_is_named_and_the_rest_goes_on() {
    let bench = Bench::new(4, 1);
    let packs = [bench.files(1, "packs")[0].clone(), bench.files(2, "packs")[1].clone()];
    packs.iter().for_each(|path| fs::remove_file(path).unwrap());
    let store = bench.site.store_with_faults("op=create,member=1,error=ENOSPC");
    let ledger = Ledger::new();
    let (outcome, _) = scrub(&store, "", &ledger);
    ledger.assert_no_losses();
    assert_eq!((outcome.mended_extents, outcome.repairable), (1, 1), "{:#?}", ledger.seen());
    assert!(!packs[0].exists() && packs[1].exists());
}

/// Forgets all snapshots but the last one, and deletes them and the records of the deletion.
fn delete_all_but_the_last(bench: &Bench) {
    let (site, ledger) = (&bench.site, Ledger::new());
    let listed = pinstripe::snapshots::run(&site.store(), &ledger.monitor).unwrap();
    let names: Vec<_> = listed.iter().map(|it| it.id).filter(|id| *id != bench.last.0.id).collect();
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let choice = ForgetChoice::Named(&names);
    let options = ForgetOptions::new(choice);
    forget::run(&site.store(), &options, &ledger.monitor).unwrap();
    for _ in 0..3 {
        let options = gc::GcOptions {
            max_waste: 0.0,
            dry_run: false,
            wait: Duration::ZERO,
            limits: limits(),
            detector: Arc::default(),
        };
        gc::run(&site.store(), &options, &ledger.monitor).unwrap();
    }
}

/// A member keeps its extents of packs that a gc deletes during the scrub, as a disk that fails: no step
/// of the deletion is left, so only the index shows that no snapshot needs the packs.
#[test]
fn packs_that_are_deleted_during_a_scrub_are_not_lost() {
    let bench = Bench::new(3, 1);
    let store = bench.site.store();
    let (ledger, once) = (Ledger::new(), Once::new());
    let mut packs = bench.files(2, "packs");
    packs.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    let mut damaged = bench.image.0[&packs[0]].clone();
    damaged[HEADER_BYTES + 5] ^= 1;
    fs::write(&packs[0], damaged).unwrap();
    let report = |_: &Finding| {
        once.call_once(|| {
            delete_all_but_the_last(&bench);
            let deleted: Vec<_> = packs.iter().filter(|path| !path.exists()).collect();
            assert!(deleted.len() > 1, "{deleted:?}");
            deleted.iter().for_each(|path| fs::write(path, &bench.image.0[*path]).unwrap());
        });
    };
    let outcome = scrub::run(&store, &options(""), &ledger.monitor, &report).unwrap();
    assert!(once.is_completed());
    ledger.assert_no_losses();
    assert_eq!(outcome.lost, 0);
}
