//! Takes that are armed first: begun, split, armed and disarmed while they go on.

use std::process::Command;
use std::sync::mpsc;
use std::time::Instant;

use pinstripe_base::monitor::Counter;
use pinstripe_io::fault::Power;

use super::cut_tests::CutFolder;
use super::tests::{Folders, inputs, lacks_flac, on_disk, plan, short_ring, verified};
use super::*;
use crate::recover::recover_in;
use crate::take::{DiskFolder, RecordedFile};
use crate::verify::verify_in;

/// What is done with a take while it goes on.
type Told<'a> = &'a (dyn Fn(&RunningTake) + Sync);

/// Records while `told` says what to do, and stops it then unless it has a time.
fn recorded(plan: &TakePlan, texts: &[&str], folders: &Folders, told: Told<'_>) -> TakeOutcome {
    try_recorded(plan, texts, folders, told).unwrap()
}

fn try_recorded(
    plan: &TakePlan,
    texts: &[&str],
    folders: &Folders,
    told: Told<'_>,
) -> Result<TakeOutcome> {
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let made = || Ok(folders.clone());
    let (tell, running) = mpsc::channel::<Arc<RunningTake>>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let Ok(take) = running.recv() else { return };
            let _end = EndsTake(&take);
            told(&take);
        });
        let mut watch = move |take: &Arc<RunningTake>, _: &TakeStatus| {
            // From the second time on the other thread has it.
            let _ = tell.send(Arc::clone(take));
        };
        record(plan, inputs(texts), &made, (&stop, &monitor), &mut watch)
    })
}

/// Stops a take without a time of its own when its test has told it all, and any take when an
/// assertion fails there: without an end the test would hang instead.
struct EndsTake<'a>(&'a RunningTake);

impl Drop for EndsTake<'_> {
    fn drop(&mut self) {
        if self.0.most.is_none() || std::thread::panicking() {
            self.0.stop.set();
        }
    }
}

/// Waits until an input has given so many frames, or the take is over.
fn wait_for(take: &RunningTake, stream: usize, frames: u64) {
    let stream = &take.shared.streams[stream];
    let began = Instant::now();
    let made = || stream.ring.made_bytes() / stream.facts.shape.frame_bytes();
    while made() < frames && !take.stop.is_set() {
        assert!(began.elapsed() < Duration::from_secs(60), "the input gives nothing");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn armed(take: &str, pre_roll: Duration) -> TakePlan {
    // Rings that hold all of it: no machine is too slow for this.
    TakePlan { armed: Some(pre_roll), ring_bytes: 1 << 20, ..plan(take) }
}

fn pieces_of(outcome: &TakeOutcome, stream: u32) -> Vec<&RecordedFile> {
    outcome.manifest.pieces.iter().filter(|it| it.stream == stream).collect()
}

fn ends(pieces: &[&RecordedFile]) -> Vec<(u64, u64)> {
    pieces.iter().map(|it| (it.start_frame, it.start_frame + it.frames)).collect()
}

#[test]
fn an_armed_take_begins_when_it_is_told_and_is_as_long_as_it_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let plan = TakePlan { most: Some(Duration::from_millis(250)), ..armed("t", Duration::ZERO) };
    let told = |take: &RunningTake| {
        wait_for(take, 0, 7000);
        let status = take.status();
        assert_eq!((status.phase, status.written_bytes), (TakePhase::Armed, 0));
        assert!(status.by_stream.iter().all(|it| it.frames == 0));
        assert_eq!(take.mark("too early").unwrap_err().kind(), Kind::Refused);
        assert_eq!(take.split().unwrap_err().kind(), Kind::Refused);
        take.start().unwrap();
        assert_eq!(take.phase(), TakePhase::Recording);
        assert_eq!(take.start().unwrap_err().kind(), Kind::Refused, "it has begun");
    };
    let outcome =
        recorded(&plan, &["test:streams=3,rate=48000", "test:rate=44100"], &folders, &told);
    let frames: Vec<u64> = outcome.manifest.pieces.iter().map(|it| it.frames).collect();
    assert_eq!(frames, [12_000, 12_000, 12_000, 11_025]);
    assert_eq!(outcome.manifest.state, TakeState::Complete);
    let origins = &outcome.manifest.origins;
    assert!(origins[0] >= 7000 && origins[..3] == [origins[0]; 3], "{origins:?}");
    let (verified, losses) = verified(&folders);
    assert_eq!((losses, verified.right_frames, verified.wrong_frames), (0, 47_025, 0));
}

#[test]
fn streams_are_recorded_where_they_are_armed_and_split_without_a_frame_lost() {
    armed_disarmed_and_split(FileKind::Wav);
}

#[test]
fn flac_is_recorded_where_it_is_armed_and_split_without_a_frame_lost() {
    if !lacks_flac("flac_is_recorded_where_it_is_armed_and_split_without_a_frame_lost") {
        armed_disarmed_and_split(FileKind::Flac);
    }
}

fn armed_disarmed_and_split(kind: FileKind) {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    [&a, &b].into_iter().for_each(|it| std::fs::create_dir(it).unwrap());
    let folders = on_disk(&[&a, &b], "t", None);
    let plan = TakePlan { is_mirrored: true, kind, ..armed("t", Duration::ZERO) };
    let told = |take: &RunningTake| {
        take.arm("test-3", false).unwrap();
        take.arm("4", false).unwrap();
        assert_eq!(take.arm("5", false).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(take.status().armed_streams, 2);
        take.start().unwrap();
        for frames in [10_000, 20_000] {
            wait_for(take, 0, frames);
            take.split().unwrap();
        }
        wait_for(take, 0, 25_000);
        take.arm("3", true).unwrap();
        take.arm("test-1", false).unwrap();
        wait_for(take, 0, 35_000);
        take.arm("test-1", true).unwrap();
        wait_for(take, 0, 40_000);
    };
    let outcome = recorded(&plan, &["test:streams=4,rate=48000"], &folders, &told);
    let (first, second) = (pieces_of(&outcome, 0), pieces_of(&outcome, 1));
    // Two splits make three files, of both copies; disarmed and armed again there is one more.
    let of_copy = |pieces: &[&RecordedFile], copy: u32| {
        let some: Vec<_> = pieces.iter().filter(|it| it.copy == copy).copied().collect();
        ends(&some)
    };
    assert_eq!(of_copy(&first, 0), of_copy(&first, 1), "both copies are cut alike");
    let (cut, whole) = (of_copy(&first, 0), of_copy(&second, 0));
    assert_eq!((cut.len(), whole.len()), (4, 3), "{cut:?} {whole:?}");
    assert_eq!(cut[..2], whole[..2], "all streams are split at one frame");
    assert!(whole.windows(2).all(|it| it[0].1 == it[1].0), "no frame is lost: {whole:?}");
    assert!(cut[2].1 < cut[3].0, "it was disarmed meanwhile: {cut:?}");
    let third = of_copy(&pieces_of(&outcome, 2), 0);
    assert_eq!(third.len(), 1);
    assert!(third[0].0 >= whole[1].1 && third[0].0 <= cut[2].1 && third[0].1 == whole[2].1);
    assert!(pieces_of(&outcome, 3).is_empty(), "a stream that was never armed has no file");
    let (verified, losses) = verified(&folders);
    let frames: u64 = outcome.manifest.pieces.iter().map(|it| it.frames).sum();
    assert_eq!((losses, verified.right_frames, verified.wrong_frames), (0, frames, 0));
    let names = std::fs::read_dir(a.join("t")).unwrap().count();
    assert_eq!(names, 2 + outcome.manifest.pieces.iter().filter(|it| it.directory == 0).count());
}

#[test]
fn what_an_armed_take_cannot_be_is_refused_before_anything_is_made() {
    let second = Some(Duration::from_secs(1));
    let beside = BesideTake { id: String::new(), path: "other".into(), first_frame: 0 };
    for (plan, part) in [
        (TakePlan { kind: FileKind::Flac, armed: second, ..plan("t") }, "cannot have a pre-roll"),
        (TakePlan { armed: Some(Duration::ZERO), beside: Some(beside), ..plan("t") }, "--play"),
        (
            TakePlan { armed: Some(Duration::from_secs(601)), ..plan("t") },
            "cannot have this length",
        ),
    ] {
        let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
        let made = || -> Result<Folders> { panic!("no directory is made") };
        let error = record(&plan, inputs(&["test:"]), &made, (&stop, &monitor), &mut |_, _| {});
        let error = error.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.kind(), Kind::Usage);
    }
}

#[test]
fn a_take_that_never_begins_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let told = |take: &RunningTake| {
        take.arm("all", false).unwrap();
        assert_eq!(take.start().unwrap_err().kind(), Kind::Refused, "no stream is armed");
        take.arm("all", true).unwrap();
    };
    let outcome = recorded(&armed("t", Duration::ZERO), &["test:streams=2"], &folders, &told);
    assert_eq!(outcome.manifest.state, TakeState::Armed);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// The payload that the head of a WAV file tells of.
fn told_bytes(path: &std::path::Path) -> u32 {
    let head = std::fs::read(path).unwrap();
    u32::from_le_bytes(head[4092..4096].try_into().unwrap())
}

#[test]
fn a_pre_roll_is_in_the_same_file_in_front_of_what_is_recorded_to_the_frame() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let most = Some(Duration::from_millis(300));
    let plan = TakePlan { most, ..armed("t", Duration::from_millis(200)) };
    let told = |take: &RunningTake| {
        // Around in its area more than twice.
        wait_for(take, 0, 24_000);
        wait_for(take, 2, 22_050);
        assert!(take.status().pre_roll_seconds == 0.2, "{:?}", take.status());
        take.start().unwrap();
    };
    let inputs = ["test:streams=2,rate=48000", "test:rate=44100,channels=2,format=s16"];
    let outcome = recorded(&plan, &inputs, &folders, &told);
    for (stream, frames, front, bytes) in
        [(0, 24_000, 9600, 3), (1, 24_000, 9600, 3), (2, 22_050, 8820, 4)]
    {
        let pieces = pieces_of(&outcome, stream);
        assert_eq!(ends(&pieces), [(0, front), (front, frames)], "{pieces:?}");
        assert_eq!(pieces[0].file, pieces[1].file);
        let path = dir.path().join("t").join(&pieces[0].file);
        assert_eq!(u64::from(told_bytes(&path)), frames * bytes, "its head has all of it");
        assert_eq!(outcome.manifest.marks[0].frames[stream as usize], front);
    }
    assert_eq!((outcome.manifest.marks[0].text.as_str(), outcome.figures.seconds), ("start", 0.5));
    assert!(outcome.manifest.origins[0] >= 24_000 - 9600, "{:?}", outcome.manifest.origins);
    let (verified, losses) = verified(&folders);
    assert_eq!((losses, verified.right_frames, verified.wrong_frames), (0, 70_050, 0));
    let names = std::fs::read_dir(dir.path().join("t")).unwrap().count();
    assert_eq!(names, 5, "three files, manifest and journal: nothing is left of what was kept");
}

#[test]
fn a_take_that_begins_or_ends_early_has_what_there_was() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let told = |take: &RunningTake| {
        take.start().unwrap();
        // And is over at once: what is behind the front may be nothing.
    };
    let plan = armed("t", Duration::from_secs(5));
    let outcome = recorded(&plan, &["test:streams=3,rate=48000"], &folders, &told);
    assert_eq!(outcome.manifest.origins, [0, 0, 0], "all that came since it was armed");
    let (verified, losses) = verified(&folders);
    let frames: u64 = outcome.manifest.pieces.iter().map(|it| it.frames).sum();
    assert_eq!((losses, verified.right_frames, verified.wrong_frames), (0, frames, 0));
}

#[test]
fn an_input_that_came_late_has_a_shorter_pre_roll_and_stays_aligned() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let folders = on_disk(&[dir.path()], "t", None);
    let samples: Vec<u8> = (0..30_000_u32).flat_map(|it| (it as u16).to_le_bytes()).collect();
    let told = |take: &RunningTake| {
        wait_for(take, 0, 20_000);
        let mut pipe = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
        pipe.write_all(&samples[..8000]).unwrap();
        wait_for(take, 1, 4000);
        take.start().unwrap();
        pipe.write_all(&samples[8000..]).unwrap();
        wait_for(take, 1, 30_000);
    };
    let plan = TakePlan { kind: FileKind::Raw, ..armed("t", Duration::from_millis(250)) };
    let late = format!("pcm:{},rate=48000,channels=1,format=s16", fifo.display());
    let outcome = recorded(&plan, &["test:rate=48000", &late], &folders, &told);
    let pieces = pieces_of(&outcome, 1);
    assert_eq!(ends(&pieces), [(8000, 12_000), (12_000, 38_000)], "{pieces:?}");
    assert_eq!(outcome.manifest.origins[1], 4000 - 12_000);
    assert!(std::fs::read(dir.path().join("t").join(&pieces[0].file)).unwrap() == samples);
    assert_eq!(ends(&pieces_of(&outcome, 0))[0], (0, 12_000));
}

#[test]
fn a_stream_without_a_sample_since_the_order_has_its_pre_roll() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    [&a, &b].into_iter().for_each(|it| std::fs::create_dir(it).unwrap());
    let folders = on_disk(&[&a, &b], "t", None);
    let samples: Vec<u8> = (0..20_000_u32).flat_map(|it| (it as u16).to_le_bytes()).collect();
    let told = |take: &RunningTake| {
        let mut pipe = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
        pipe.write_all(&samples).unwrap();
        wait_for(take, 0, 20_000);
        take.start().unwrap();
    };
    let plan = TakePlan {
        kind: FileKind::Raw,
        is_mirrored: true,
        ..armed("t", Duration::from_millis(250))
    };
    let input = format!("pcm:{},rate=48000,channels=1,format=s16", fifo.display());
    let outcome = recorded(&plan, &[&input], &folders, &told);
    let pieces = pieces_of(&outcome, 0);
    assert_eq!(ends(&pieces), [(0, 12_000); 2], "{pieces:?}");
    for (piece, folder) in pieces.iter().zip([&a, &b]) {
        let kept = std::fs::read(folder.join("t").join(&piece.file)).unwrap();
        assert!(kept == samples[2 * 8000..], "{}", piece.file);
    }
    let (verified, losses) = verified(&folders);
    assert_eq!((losses, verified.wrong_frames), (0, 0));
}

#[test]
fn losses_in_the_pre_roll_are_losses_of_the_take_and_those_before_are_not() {
    for (pre_roll, most, is_lost) in [(2000, 200, true), (100, 100, false)] {
        let dir = tempfile::tempdir().unwrap();
        // The twelfth write of what is kept takes 400 ms; the ring lasts 120.
        let faults = Some("op=write,after=11,times=1,delay=400ms");
        let folders = on_disk(&[dir.path()], "t", faults);
        let plan = TakePlan {
            most: Some(Duration::from_millis(most)),
            ..short_ring(armed("t", Duration::from_millis(pre_roll)))
        };
        let told = |take: &RunningTake| {
            wait_for(take, 1, 60_000);
            assert!(take.status().overruns > 0, "it was seen while it was armed");
            take.start().unwrap();
        };
        let outcome = recorded(&plan, &["test:streams=2,rate=44100"], &folders, &told);
        let lost: u64 = outcome.manifest.gaps.iter().map(|it| it.frames).sum();
        assert_eq!(lost > 0, is_lost, "{:?}", outcome.manifest.gaps);
        assert_eq!(lost, outcome.figures.lost_frames);
        let frames: u64 = outcome.manifest.pieces.iter().map(|it| it.frames).sum();
        let (verified, losses) = verified(&folders);
        assert_eq!((losses, verified.right_frames, verified.wrong_frames), (0, frames, 0));
    }
}

#[test]
#[ignore = "with --all: it waits for 20 s"]
fn killed_before_the_pre_roll_is_in_its_files_a_take_has_silence_there_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    // What is kept is read back slowly.
    let folders = on_disk(&[dir.path()], "t", Some("op=read,times=1,delay=4s"));
    let image = dir.path().join("image");
    std::fs::create_dir(&image).unwrap();
    let told = |take: &RunningTake| {
        wait_for(take, 0, 12_000);
        let ordered = Instant::now();
        take.start().unwrap();
        let vouched = |take: &RunningTake| {
            let pieces = take.shared.directories[0].pieces();
            let behind = pieces.iter().filter(|it| it.behind().is_some());
            behind.filter(|it| it.vouched_bytes() > 30_000).count()
        };
        let began = Instant::now();
        while vouched(take) < 2 {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing is vouched for");
            std::thread::sleep(Duration::from_millis(2));
        }
        // What came before the order is durable last.
        let since = ordered.elapsed().as_secs_f64() * 1e3;
        let lag = take.status().durable_lag_ms;
        assert!(lag > since + 150.0, "{lag} ms behind, {since} after the order");
        // The journal first: what it vouches for must be in the copies of the files.
        let mut names: Vec<_> = std::fs::read_dir(dir.path().join("t"))
            .unwrap()
            .map(|it| it.unwrap().file_name())
            .collect();
        names.sort_by_key(|it| it != crate::take::JOURNAL);
        for name in names {
            std::fs::copy(dir.path().join("t").join(&name), image.join(&name)).unwrap();
        }
    };
    let plan = armed("t", Duration::from_millis(200));
    let outcome = recorded(&plan, &["test:streams=2,rate=48000"], &folders, &told);
    assert!(outcome.manifest.gaps.is_empty(), "{:?}", outcome.manifest.gaps);
    let (whole, losses) = verified(&folders);
    assert_eq!((losses, whole.wrong_frames, whole.files), (0, 0, 2));
    assert_eq!(outcome.figures.written_bytes, 3 * whole.right_frames);
    // The directory as it was meanwhile.
    assert_eq!(told_bytes(&image.join("01-test-1.wav")), 0, "a head tells of no hole");
    let killed: Folders = vec![Arc::new(DiskFolder::open(&image).unwrap())];
    let monitor = Monitor::default();
    let manifest = Manifest::load(&*killed[0]).unwrap();
    let recovered = recover_in(&killed, manifest, &monitor).unwrap();
    assert_eq!(monitor.get(Counter::Losses), 2);
    let gaps: Vec<_> = recovered.manifest.gaps.iter().map(|it| (it.frame, it.frames)).collect();
    assert_eq!(gaps, [(0, 9600), (0, 9600)]);
    assert!(recovered.files.iter().all(|it| it.frames >= 19_600), "{:?}", recovered.files);
    assert_eq!(u64::from(told_bytes(&recovered.files[0].path)), 3 * recovered.files[0].frames);
    let bytes = std::fs::read(&recovered.files[0].path).unwrap();
    assert!(bytes[4096..][..3 * 9600].iter().all(|it| *it == 0), "no sample is invented");
    assert!(!image.join(crate::take::PRE_ROLL).exists());
    let (verified, losses) = verified(&killed);
    assert_eq!((losses, verified.wrong_frames), (0, 0));
    assert!(verified.right_frames >= 20_000);
}

#[test]
fn after_a_power_cut_an_armed_take_has_what_was_vouched_for() {
    let mut kept = 0;
    for seed in 0..24 {
        let power = Arc::new(Power::new(60 + 23 * seed));
        let folder = Arc::new(CutFolder::new(power));
        let folders: Folders = vec![Arc::clone(&folder) as _];
        let engine = EngineSettings { commit_every: Duration::from_millis(2), ..plan("t").engine };
        let most = Some(Duration::from_millis(100));
        let plan = TakePlan { engine, most, ..armed("t", Duration::from_millis(40)) };
        let told = |take: &RunningTake| {
            // Where the power goes before that, the take is over or never begins.
            wait_for(take, 0, 3000);
            let _ = take.start();
        };
        let _ = try_recorded(&plan, &["test:streams=3,rate=48000,format=s16"], &folders, &told);
        let after: Folders = vec![Arc::new(folder.after_cut(100 * seed))];
        let Ok(manifest) = Manifest::load(&*after[0]) else { continue };
        let Ok(outcome) = recover_in(&after, manifest, &Monitor::default()) else { continue };
        let (verified, losses) = verified(&after);
        assert_eq!((losses, verified.wrong_frames), (0, 0), "seed {seed}");
        let silent: u64 = outcome.manifest.gaps.iter().map(|it| it.frames).sum();
        let frames: u64 = outcome.files.iter().map(|it| it.frames).sum();
        assert!(verified.right_frames + silent >= frames, "seed {seed}");
        kept += verified.right_frames;
    }
    assert!(kept > 0, "some of these came late enough to keep something");
}

#[test]
fn a_directory_that_fails_while_a_take_is_armed_costs_its_pre_roll_and_a_mirror_none() {
    // The directory itself is no loss: what its streams lack is.
    for (is_mirrored, losses) in [(true, 0), (false, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        [&a, &b].into_iter().for_each(|it| std::fs::create_dir(it).unwrap());
        let folders = on_disk(&[&a, &b], "t", Some("op=write,after=15,error=EIO"));
        let most = Some(Duration::from_millis(150));
        let plan = TakePlan { is_mirrored, most, ..armed("t", Duration::from_millis(200)) };
        let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
        let made = || Ok(folders.clone());
        let mut watch = |take: &Arc<RunningTake>, status: &TakeStatus| {
            if status.failed_directories > 0 && status.phase == TakePhase::Armed {
                take.start().unwrap();
            }
        };
        let inputs = inputs(&["test:streams=4,rate=48000"]);
        let outcome = record(&plan, inputs, &made, (&stop, &monitor), &mut watch).unwrap();
        assert_eq!(monitor.get(Counter::Losses), losses, "{is_mirrored}");
        let silent: u64 = outcome.manifest.gaps.iter().map(|it| it.frames).sum();
        assert_eq!(silent, if is_mirrored { 0 } else { 2 * 9600 });
        let whole = |stream: u32| {
            let some = outcome.manifest.pieces.iter().filter(|it| it.stream == stream);
            some.map(|it| it.start_frame + it.frames).max()
        };
        assert!((0..4).all(|it| whole(it) == Some(16_800)), "{:?}", outcome.manifest.pieces);
        let manifest = Manifest::load(&*folders[1]).unwrap();
        let verified = verify_in(&folders[1..], manifest, &Monitor::default()).unwrap();
        assert_eq!((verified.right_frames, verified.wrong_frames), (4 * 16_800, 0));
    }
}
