//! Takes that were cut off on disks, of which some come back later than others, or never.

use std::fs;
use std::path::{Path, PathBuf};

use pinstripe_base::monitor::Counter;
use pinstripe_base::sync::Stop;

use super::*;
use crate::play::{PlayOutcome, PlayPlan, PlaySink, play};
use crate::recorder::tests::{Folders, inputs, on_disk, plan};
use crate::recorder::{RunningTake, TakePlan, TakeStatus, record};
use crate::verify::verify;

/// Frames of 15 bytes: hardly any commit ends with a whole one.
const TEXT: &str = "test:streams=2,channels=5,rate=48000,format=s24";

/// Copies what a process that is killed now would leave: the journal first, which vouches for less than
/// there is in the files by then.
fn copy_as_it_is(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let all = fs::read_dir(from).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<_> = all.collect();
    names.sort_by_key(|it| it != JOURNAL);
    for name in names {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

/// Directories a and b with a take that was killed after a second.
fn killed(dir: &Path, plan: &TakePlan) -> [PathBuf; 2] {
    let parents = ["a", "b"].map(|it| dir.join(it));
    parents.iter().for_each(|it| fs::create_dir(it).unwrap());
    let takes = ["a", "b"].map(|it| dir.join(it).join("t"));
    let kept = ["a", "b"].map(|it| dir.join("kept").join(it));
    let folders: Folders = on_disk(&[&parents[0], &parents[1]], "t", None);
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let mut looks = 0;
    let mut watch = |take: &Arc<RunningTake>, _: &TakeStatus| {
        looks += 1;
        if looks == 2 {
            takes.iter().zip(&kept).for_each(|(from, to)| copy_as_it_is(from, to));
            take.stop.set();
        }
    };
    let made = || Ok(folders.clone());
    record(plan, inputs(&[TEXT]), &made, (&stop, &monitor), &mut watch).unwrap();
    for (take, kept) in takes.iter().zip(&kept) {
        fs::remove_dir_all(take).unwrap();
        fs::rename(kept, take).unwrap();
    }
    takes
}

/// Does something with a take, and says how many losses and warnings came of it.
fn told<T>(what: impl FnOnce(&Monitor) -> T) -> (T, u64, u64) {
    let monitor = Monitor::default();
    let done = what(&monitor);
    (done, monitor.get(Counter::Losses), monitor.get(Counter::Warnings))
}

fn samples(take: &Path) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = fs::read_dir(take).unwrap().map(|it| it.unwrap().path()).collect();
    names.retain(|it| it.extension().is_some_and(|it| it == "wav"));
    names.sort();
    names.iter().map(|it| fs::read(it).unwrap()).collect()
}

fn played(take: &Path, from: Duration) -> Result<PlayOutcome> {
    let plan = PlayPlan { from, most: None, ring_bytes: 64 << 10, streams: Vec::new() };
    let out = PlaySink::Path(take.with_extension("raw"));
    play(take, &plan, out, (&Stop::new().unwrap(), &Monitor::default()))
}

#[test]
fn a_directory_that_comes_back_is_put_in_order_and_the_other_one_stays_as_it_is() {
    for is_mirrored in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = killed(dir.path(), &TakePlan { is_mirrored, ..plan("t") });
        let away = dir.path().join("away");
        fs::rename(&b, &away).unwrap();
        let (first, losses, _) = told(|it| recover(&a, it).unwrap());
        // What stands in no directory that is there is named, unless there is another copy.
        assert_eq!(losses, u64::from(!is_mirrored));
        assert_eq!(first.files.len(), if is_mirrored { 2 } else { 1 });
        assert!(
            first.manifest.pieces.iter().any(|it| it.trimmed.is_some()),
            "else this shows nothing: {:?}",
            first.manifest.pieces
        );
        let before = samples(&a);
        let (verified, losses, _) = told(|it| verify(&a, it).unwrap());
        assert_eq!((losses > 0, verified.is_lost), (!is_mirrored, !is_mirrored));
        assert!(verified.is_repairable && verified.damaged_bytes == 0);
        fs::rename(&away, &b).unwrap();
        // By either name: it is known that one of them is not in order.
        let named = if is_mirrored { &b } else { &a };
        let (second, losses, _) = told(|it| recover(named, it).unwrap());
        assert_eq!((losses, second.was_complete), (0, false), "{is_mirrored}");
        assert!(samples(&a) == before, "what is in order is not touched");
        let pieces = &second.manifest.pieces;
        assert_eq!(pieces.len(), if is_mirrored { 4 } else { 2 });
        assert_eq!(Manifest::load(&DiskFolder::open(&a).unwrap()).unwrap(), second.manifest);
        assert_eq!(Manifest::load(&DiskFolder::open(&b).unwrap()).unwrap(), second.manifest);
        let (verified, losses, warnings) = told(|it| verify(&a, it).unwrap());
        assert_eq!((losses, warnings, verified.wrong_frames), (0, 0, 0));
        assert!(!verified.is_repairable && !verified.is_lost);
        assert!(told(|it| recover(&b, it).unwrap()).0.was_complete);
    }
}

#[test]
fn how_far_a_take_goes_is_told_by_its_samples_and_not_by_the_clock_of_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let [a, _] = killed(dir.path(), &plan("t"));
    for _ in 0..2 {
        // The second time there is nothing to do.
        let outcome = recover(&a, &Monitor::default()).unwrap();
        let frames = outcome.files.iter().map(|it| it.frames).max();
        let frames =
            frames.unwrap_or(outcome.manifest.pieces.iter().map(|it| it.frames).max().unwrap());
        assert_eq!(outcome.longest, Duration::from_secs_f64(frames as f64 / 48_000.0));
    }
}

#[test]
fn a_recovery_that_was_cut_off_is_done_again_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = killed(dir.path(), &plan("t"));
    let before = [&a, &b].map(|it| fs::read(it.join("take.json")).unwrap());
    let (first, losses, _) = told(|it| recover(&a, it).unwrap());
    assert_eq!(losses, 0);
    // Files are in order, and no manifest says so yet.
    for (take, text) in [&a, &b].iter().zip(before) {
        fs::write(take.join("take.json"), text).unwrap();
    }
    let files = [samples(&a), samples(&b)];
    let (second, losses, _) = told(|it| recover(&a, it).unwrap());
    assert_eq!((losses, &second.manifest.pieces), (0, &first.manifest.pieces));
    assert!([samples(&a), samples(&b)] == files);
}

#[test]
fn a_file_that_was_made_ahead_and_is_in_no_journal_is_removed_and_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let [a, _] = killed(dir.path(), &plan("t"));
    for name in ["01-test-1@000000096000-7.wav", "notes.txt", "01-test-1-edited.wav"] {
        fs::write(a.join(name), [0; 9000]).unwrap();
    }
    let (outcome, losses, _) = told(|it| recover(&a, it).unwrap());
    assert_eq!((losses, outcome.removed), (0, vec![a.join("01-test-1@000000096000-7.wav")]));
    assert!(a.join("notes.txt").exists() && a.join("01-test-1-edited.wav").exists());
    assert_eq!(outcome.files.len(), 2);
}

/// Behind a place where the journal is damaged it tells of nothing more, and what it told of is no stray.
#[test]
fn a_file_with_samples_that_no_journal_tells_of_stays() {
    let dir = tempfile::tempdir().unwrap();
    let [a, _] = killed(dir.path(), &plan("t"));
    let name = "01-test-1@000000096000-7.wav";
    let mut samples = vec![0; 9000];
    samples[8999] = 1;
    fs::write(a.join(name), &samples).unwrap();
    let (outcome, losses, warnings) = told(|it| recover(&a, it).unwrap());
    assert_eq!((losses, outcome.removed), (0, Vec::new()));
    assert!(warnings >= 1 && fs::read(a.join(name)).unwrap() == samples);
}

#[test]
fn a_take_that_was_cut_off_is_played_as_far_as_its_journal_vouches_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = killed(dir.path(), &plan("t"));
    let before = played(&a, Duration::ZERO).unwrap();
    let recovered = recover(&b, &Monitor::default()).unwrap();
    let frames = recovered.manifest.pieces.iter().map(|it| it.frames).max().unwrap();
    assert_eq!((before.streams, before.frames), (2, frames));
    assert_eq!(played(&a, Duration::ZERO).unwrap().frames, frames);
    assert_eq!(played(&a, Duration::from_secs(60)).unwrap_err().kind(), Kind::Usage);
    // What is in order is played without its journal.
    fs::write(a.join(JOURNAL), "none").unwrap();
    assert_eq!(played(&a, Duration::ZERO).unwrap().frames, frames);
    // While it is recorded it is refused.
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let mut kinds = Vec::new();
    let mut watch = |take: &Arc<RunningTake>, _: &TakeStatus| {
        kinds.push(played(&dir.path().join("t"), Duration::ZERO).unwrap_err().kind());
        take.stop.set();
    };
    let made = || Ok(folders.clone());
    record(&plan("t"), inputs(&["test:"]), &made, (&stop, &monitor), &mut watch).unwrap();
    assert_eq!(kinds[0], Kind::Busy);
}

#[test]
fn where_a_copy_is_missing_or_damaged_the_other_one_is_verified_and_played() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = killed(dir.path(), &TakePlan { is_mirrored: true, ..plan("t") });
    let recovered = recover(&a, &Monitor::default()).unwrap();
    let wanted = {
        played(&a, Duration::ZERO).unwrap();
        fs::read(a.with_extension("raw")).unwrap()
    };
    // Copies end with the last commit of their directory each: the longer one stays.
    let frames = |copy: u32| {
        let mut pieces = recovered.manifest.pieces.iter();
        pieces.find(|it| (it.stream, it.copy) == (0, copy)).unwrap().frames
    };
    let (mut gone, mut other) = (a.join("01-test-1.wav"), b.join("01-test-1.mirror.wav"));
    if frames(0) > frames(1) {
        (gone, other) = (other, gone);
    }
    fs::remove_file(&gone).unwrap();
    let plan = PlayPlan { from: Duration::ZERO, most: None, ring_bytes: 64 << 10, streams: vec![] };
    let out = || PlaySink::Path(a.with_extension("raw"));
    let stop = Stop::new().unwrap();
    let (_, losses, warnings) = told(|it| play(&a, &plan, out(), (&stop, it)).unwrap());
    assert_eq!((losses, warnings), (0, 1));
    assert!(fs::read(a.with_extension("raw")).unwrap() == wanted);
    let (verified, losses, warnings) = told(|it| verify(&a, it).unwrap());
    assert_eq!((losses, warnings, verified.is_repairable, verified.is_lost), (0, 1, true, false));
    // The same place of the other copy is damaged, too, and then it is lost.
    let mut bytes = fs::read(&other).unwrap();
    bytes[4096 + 30_000] ^= 1;
    fs::write(&other, bytes).unwrap();
    let (verified, losses, _) = told(|it| verify(&a, it).unwrap());
    assert_eq!((losses > 0, verified.is_lost), (true, true));
    // Without a directory and without another copy of a stream nothing sounds, and that is said.
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = killed(dir.path(), &super::tests::plan("t"));
    recover(&a, &Monitor::default()).unwrap();
    fs::remove_dir_all(&b).unwrap();
    let out = PlaySink::Path(a.with_extension("raw"));
    let (_, losses, _) = told(|it| play(&a, &plan, out, (&stop, it)).unwrap());
    assert_eq!(losses, 1);
    assert!(told(|it| recover(&a, it).unwrap()).1 == 1, "each verb says so");
}
