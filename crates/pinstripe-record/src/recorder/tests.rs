use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pinstripe_base::monitor::Counter;
use pinstripe_io::device::{Device, MemoryDevice};
use pinstripe_io::fault::{FaultyDevice, Plan};

use super::*;
use crate::input::parse_input;
use crate::sample::{SampleFormat, StreamShape};
use crate::take::{DiskFolder, TakeFile, TakeState};
use crate::verify::{VerifyOutcome, verify_in};
use crate::writes::WritePolicy;

pub fn plan(take: &str) -> TakePlan {
    TakePlan {
        take: take.to_owned(),
        kind: FileKind::Wav,
        scene: "one".to_owned(),
        tape: String::new(),
        started: LocalTime { seconds: 1_700_000_000, nanos: 0 },
        started_seconds: 1_700_000_000,
        ring_bytes: 64 << 10,
        engine: EngineSettings {
            chunk_bytes: 8 << 10,
            commit_every: Duration::from_millis(20),
            is_realtime: false,
            writes: WritePolicy::Buffered,
            segment_seconds: None,
            segment_bytes: None,
        },
        is_mirrored: false,
        most: None,
        armed: None,
        beside: None,
    }
}

/// Rings of 120 ms of two streams, and no commit before the end: its heads would be among the writes
/// that a fault counts.
pub fn short_ring(plan: TakePlan) -> TakePlan {
    let commit_every = Duration::from_secs(60);
    let engine = EngineSettings { chunk_bytes: 4 << 10, commit_every, ..plan.engine };
    TakePlan { ring_bytes: 16 << 10, engine, ..plan }
}

pub fn inputs(texts: &[&str]) -> Vec<Box<dyn RecordInput>> {
    texts.iter().map(|it| parse_input(it).unwrap().open(false).unwrap()).collect()
}

pub type Folders = Vec<Arc<dyn TakeFolder>>;

pub fn on_disk(dirs: &[&Path], take: &str, faults: Option<&str>) -> Folders {
    let plan = faults.map(|it| it.parse::<Plan>().unwrap());
    let folder = |(number, dir): (usize, &&Path)| {
        // Faults are of the first directory.
        let plan = plan.clone().filter(|_| number == 0);
        Arc::new(DiskFolder::create(dir, take, plan).unwrap()) as Arc<dyn TakeFolder>
    };
    dirs.iter().enumerate().map(folder).collect()
}

fn take(plan: &TakePlan, texts: &[&str], folders: &Folders) -> (TakeOutcome, Arc<Monitor>) {
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let made = || Ok(folders.clone());
    let told = record(plan, inputs(texts), &made, (&stop, &monitor), &mut |_, _| {});
    (told.unwrap(), monitor)
}

/// A take of these inputs in a directory, for tests of what is done with takes.
pub fn take_of(dir: &Path, name: &str, inputs: Vec<Box<dyn RecordInput>>) -> TakeOutcome {
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let folders = on_disk(&[dir], name, None);
    let made = || Ok(folders.clone());
    let told = record(&plan(name), inputs, &made, (&stop, &monitor), &mut |_, _| {}).unwrap();
    assert_eq!(monitor.get(Counter::Losses), 0);
    told
}

/// Verifies with new descriptors, as another program would.
pub fn verified(folders: &Folders) -> (VerifyOutcome, u64) {
    let manifest = Manifest::load(&*folders[0]).unwrap();
    let monitor = Monitor::default();
    let outcome = verify_in(folders, manifest, &monitor).unwrap();
    (outcome, monitor.get(Counter::Losses))
}

/// Whether this system has no libFLAC.
pub fn lacks_flac(test: &str) -> bool {
    let shape = StreamShape { format: SampleFormat::S24, channels: 1, rate: 48_000 };
    let lacks = crate::flac::check_flac(&shape).is_err();
    if lacks {
        pinstripe_testing::not_installed(test, "libFLAC");
    }
    lacks
}

#[test]
fn all_that_comes_is_in_the_files() {
    let dir = tempfile::tempdir().unwrap();
    for (number, (kind, format)) in [
        (FileKind::Wav, "s24"),
        (FileKind::Bw64, "f32"),
        (FileKind::Caf, "s16"),
        (FileKind::Raw, "s32"),
        (FileKind::Wav, "u8"),
        (FileKind::Flac, "s24"),
    ]
    .into_iter()
    .enumerate()
    {
        if kind == FileKind::Flac && lacks_flac("all_that_comes_is_in_the_files") {
            continue;
        }
        let name = format!("take-{number}");
        let folders = on_disk(&[dir.path()], &name, None);
        let plan = TakePlan { kind, ..plan(&name) };
        let input = format!("test:streams=5,channels=3,frames=54321,pace=free,format={format}");
        let (outcome, monitor) =
            take(&plan, &[&input, "test:streams=1,frames=7,pace=free"], &folders);
        assert_eq!(monitor.get(Counter::Losses), 0, "{kind}");
        assert_eq!(outcome.manifest.state, TakeState::Complete);
        let frames: Vec<u64> = outcome.manifest.pieces.iter().map(|it| it.frames).collect();
        assert_eq!(frames, [54321, 54321, 54321, 54321, 54321, 7]);
        let (verified, losses) = verified(&folders);
        assert_eq!((losses, verified.damaged_bytes, verified.wrong_frames), (0, 0, 0), "{kind}");
        assert_eq!((verified.right_frames, verified.files), (5 * 54321 + 7, 6), "{kind}");
    }
}

#[test]
fn a_clock_that_ends_in_time_gives_every_frame() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    // Rings that hold all of it: no machine is too slow for this.
    let plan =
        TakePlan { most: Some(Duration::from_millis(300)), ring_bytes: 1 << 20, ..plan("t") };
    let (outcome, monitor) = take(&plan, &["test:streams=4,rate=48000"], &folders);
    assert_eq!(monitor.get(Counter::Losses), 0);
    assert!(outcome.manifest.pieces.iter().all(|it| it.frames == 14_400), "{outcome:?}");
    let (verified, _) = verified(&folders);
    assert_eq!((verified.right_frames, verified.wrong_frames), (4 * 14_400, 0));
}

#[test]
fn a_disk_that_stalls_leaves_silence_of_the_right_length_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    // Of each file the eighth write takes 400 ms; the ring lasts 120.
    let faults = Some("op=write,after=7,times=1,delay=400ms");
    let folders = on_disk(&[dir.path()], "t", faults);
    let plan = TakePlan { most: Some(Duration::from_millis(1500)), ..short_ring(plan("t")) };
    let (outcome, monitor) = take(&plan, &["test:streams=2,rate=44100"], &folders);
    assert!(monitor.get(Counter::Losses) >= 1);
    assert!(outcome.figures.overruns > 0 && outcome.figures.lost_frames > 0);
    assert!(outcome.last.has_alarm && !outcome.manifest.gaps.is_empty());
    assert!(outcome.manifest.pieces.iter().all(|it| it.frames == 66_150), "{outcome:?}");
    let lost: u64 = outcome.manifest.gaps.iter().map(|it| it.frames).sum();
    assert_eq!(lost, outcome.figures.lost_frames);
    let (verified, _) = verified(&folders);
    assert_eq!((verified.right_frames, verified.wrong_frames), (2 * 66_150, 0));
    let cue = std::fs::read(dir.path().join("t/01-test-1.wav")).unwrap();
    assert!(cue.windows(5).any(|it| it == b"lost:"), "the file itself says so");
}

#[test]
fn segments_put_together_are_the_take() {
    segments(FileKind::Wav);
}

#[test]
fn segments_of_flac_put_together_are_the_take_for_players_and_other_programs() {
    if lacks_flac("segments_of_flac_put_together_are_the_take") {
        return;
    }
    let (dir, manifest) = segments(FileKind::Flac);
    let shape = manifest.streams[1].shape;
    let mut content = vec![0; 3 * 150_000];
    crate::sample::fill_test(&shape, 1, 0, &mut content);
    // From the middle of a block, of the third file on.
    let plan = crate::play::PlayPlan {
        from: Duration::from_millis(2000),
        most: None,
        ring_bytes: 16 << 10,
        streams: vec![1],
    };
    let (out, stop) = (dir.path().join("out.raw"), Stop::new().unwrap());
    let sink = crate::play::PlaySink::Path(out.clone());
    let take = dir.path().join("t");
    crate::play::play(&take, &plan, sink, (&stop, &Monitor::default())).unwrap();
    assert!(std::fs::read(out).unwrap() == content[3 * 96_000..]);
    let mut joined = Vec::new();
    for piece in manifest.pieces.iter().filter(|it| it.stream == 1) {
        let path = take.join(&piece.file);
        let args =
            ["-v", "error", "-i", path.to_str().unwrap(), "-f", "s24le", "-c:a", "pcm_s24le", "-"];
        let Ok(output) = std::process::Command::new("ffmpeg").args(args).output() else {
            let test = "segments_of_flac_put_together_are_the_take";
            return pinstripe_testing::not_installed(test, "ffmpeg");
        };
        joined.extend(output.stdout);
    }
    assert!(joined == content, "{}", joined.len());
}

fn segments(kind: FileKind) -> (tempfile::TempDir, Manifest) {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let engine = EngineSettings { segment_bytes: Some(100_000), ..plan("t").engine };
    let (outcome, monitor) = take(
        &TakePlan { engine, kind, ..plan("t") },
        &["test:streams=2,frames=150000,pace=free,format=s24"],
        &folders,
    );
    assert_eq!(monitor.get(Counter::Losses), 0);
    let pieces: Vec<_> = outcome.manifest.pieces.iter().filter(|it| it.stream == 0).collect();
    assert_eq!(pieces.len(), 5);
    assert!(pieces.is_sorted_by_key(|it| &it.file), "a directory lists them in order");
    let mut next = 0;
    for piece in pieces {
        let length = std::fs::metadata(dir.path().join("t").join(&piece.file)).unwrap().len();
        assert!(length <= 100_000, "the whole file has as much as was said at most: {length}");
        assert_eq!(piece.start_frame, next);
        next += piece.frames;
    }
    assert_eq!(next, 150_000);
    let (verified, losses) = verified(&folders);
    assert_eq!((losses, verified.right_frames, verified.wrong_frames), (0, 300_000, 0));
    (dir, outcome.manifest)
}

#[test]
fn a_directory_that_fails_is_left_and_its_streams_go_on_in_another() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    [&a, &b].into_iter().for_each(|it| std::fs::create_dir(it).unwrap());
    let folders = on_disk(&[&a, &b], "t", Some("op=write,after=9,error=ENOSPC"));
    let (outcome, monitor) =
        take(&plan("t"), &["test:streams=4,frames=200000,pace=free,format=s24"], &folders);
    // A directory was given up, and no frame is missing.
    assert_eq!((monitor.get(Counter::Losses), monitor.get(Counter::DegradedMembers)), (0, 1));
    assert_eq!(outcome.last.failed_directories, 1);
    let ends: BTreeMap<u32, u64> =
        outcome.manifest.pieces.iter().map(|it| (it.stream, it.start_frame + it.frames)).collect();
    assert!(ends.values().all(|it| *it == 200_000), "{:?}", outcome.manifest.pieces);
    assert!(outcome.manifest.pieces.iter().any(|it| it.cut.is_some() && it.frames > 0));
    let (verified, _) = verified(&folders);
    assert_eq!((verified.right_frames, verified.wrong_frames), (800_000, 0));
}

#[test]
fn what_a_directory_that_failed_took_with_it_is_named_by_each_verb() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    [&a, &b].into_iter().for_each(|it| std::fs::create_dir(it).unwrap());
    let folders = on_disk(&[&a, &b], "t", Some("op=sync,after=2,error=EIO"));
    let input = "test:streams=2,frames=4000000,pace=free,format=s24";
    let (outcome, monitor) = take(&plan("t"), &[input], &folders);
    assert!(monitor.get(Counter::Losses) >= 1);
    let pieces: Vec<_> = outcome.manifest.pieces.iter().filter(|it| it.stream == 0).collect();
    assert!(pieces[0].cut.is_some() && pieces[0].frames < pieces[1].start_frame, "{pieces:?}");
    let (verified, losses) = verified(&folders);
    assert_eq!(
        (losses, verified.is_lost),
        (1, true),
        "its files are sound, and something is missing"
    );
    let path = a.join("t");
    let told = |verb: &dyn Fn(&Monitor)| {
        let monitor = Monitor::default();
        verb(&monitor);
        monitor.get(Counter::Losses)
    };
    drop(folders);
    assert_eq!(told(&|it| drop(crate::recover::recover(&path, it).unwrap())), 1);
    let plan = crate::play::PlayPlan {
        from: Duration::ZERO,
        most: None,
        ring_bytes: 64 << 10,
        streams: Vec::new(),
    };
    let (out, stop) = (dir.path().join("out.raw"), Stop::new().unwrap());
    let played = |it: &Monitor| {
        let sink = crate::play::PlaySink::Path(out.clone());
        assert!(crate::play::play(&path, &plan, sink, (&stop, it)).unwrap().frames > 0);
    };
    assert_eq!(told(&played), 1);
}

#[test]
fn a_mirror_loses_nothing_when_one_directory_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    [&a, &b].into_iter().for_each(|it| std::fs::create_dir(it).unwrap());
    let folders = on_disk(&[&a, &b], "t", Some("op=sync,after=2,error=EIO"));
    let plan = TakePlan { is_mirrored: true, ..plan("t") };
    let (outcome, monitor) =
        take(&plan, &["test:streams=3,frames=400000,pace=free,format=s24"], &folders);
    assert_eq!((monitor.get(Counter::Losses), monitor.get(Counter::DegradedMembers)), (0, 1));
    for stream in 0..3 {
        let whole = outcome
            .manifest
            .pieces
            .iter()
            .any(|it| it.stream == stream && it.directory == 1 && it.frames == 400_000);
        assert!(whole, "{:?}", outcome.manifest.pieces);
    }
    let manifest = Manifest::load(&*folders[1]).unwrap();
    let verified = verify_in(&folders[1..], manifest, &Monitor::default()).unwrap();
    assert_eq!((verified.right_frames, verified.wrong_frames), (1_200_000, 0));
}

#[test]
fn a_full_disk_ends_the_streams_whole() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", Some("op=write,after=9,error=ENOSPC"));
    let (outcome, monitor) = take(&plan("t"), &["test:streams=2,rate=192000"], &folders);
    assert!(monitor.get(Counter::Losses) >= 1, "and it ended by itself");
    let (verified, losses) = verified(&folders);
    assert_eq!((losses, verified.wrong_frames), (0, 0));
    let frames: u64 = outcome.manifest.pieces.iter().map(|it| it.frames).sum();
    assert_eq!(verified.right_frames, frames);
    assert!(frames > 0);
}

#[test]
fn a_directory_that_is_removed_ends_the_take() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let path = dir.path().join("t");
    let mut watch = |_: &Arc<RunningTake>, _: &TakeStatus| {
        let _ = std::fs::remove_dir_all(&path);
    };
    let made = || Ok(folders.clone());
    let inputs = inputs(&["test:streams=2"]);
    record(&plan("t"), inputs, &made, (&stop, &monitor), &mut watch).unwrap();
    assert!(monitor.get(Counter::Losses) >= 1);
}

#[test]
fn marks_stand_in_file_and_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let mut watch = |take: &Arc<RunningTake>, _: &TakeStatus| {
        take.mark("refrain & more").unwrap();
        take.split().unwrap();
        take.stop.set();
    };
    let made = || Ok(folders.clone());
    let inputs = inputs(&["test:streams=2"]);
    let outcome = record(&plan("t"), inputs, &made, (&stop, &monitor), &mut watch).unwrap();
    assert_eq!(outcome.manifest.marks[0].text, "refrain & more");
    assert_eq!(outcome.manifest.marks[0].frames.len(), 2);
    let bytes = std::fs::read(dir.path().join("t/02-test-2.wav")).unwrap();
    assert!(bytes.windows(14).any(|it| it == b"refrain & more"));
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let never = || -> Result<Folders> { panic!("nothing is made") };
    let kind = |plan: &TakePlan, text: &str| {
        record(plan, inputs(&[text]), &never, (&stop, &monitor), &mut |_, _| {}).unwrap_err()
    };
    let many = kind(&plan("t"), "test:streams=10000");
    assert_eq!(many.kind(), Kind::Refused);
    assert!(memory_of(10_000, 128 << 10).unwrap_err().to_string().contains("1.2 GiB"), "{many}");
    let odd = TakePlan { ring_bytes: 100_000, ..plan("t") };
    assert_eq!(kind(&odd, "test:").kind(), Kind::Usage);
    let narrow = TakePlan { ring_bytes: 8 << 10, ..plan("t") };
    assert_eq!(kind(&narrow, "test:").kind(), Kind::Usage);
    let dir = tempfile::tempdir().unwrap();
    let made = DiskFolder::create(dir.path(), "t", None).unwrap();
    let there = DiskFolder::create(dir.path(), "t", None).map(drop).unwrap_err();
    assert_eq!(there.kind(), Kind::Exists);
    drop(made);
    assert!(!dir.path().join("t").exists(), "a take without a file leaves no directory");
}

#[test]
fn what_is_not_right_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    take(&plan("t"), &["test:streams=2,frames=50000,pace=free"], &folders);
    let path: PathBuf = dir.path().join("t/01-test-1.wav");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[70_000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (found, losses) = verified(&folders);
    assert!(losses == 1 && found.damaged_bytes > 0 && found.sound_bytes > found.damaged_bytes);
    std::fs::write(&path, &bytes[..60_000]).unwrap();
    let (found, losses) = verified(&folders);
    assert!(losses >= 1 && found.damaged_bytes > 0);
    let device = FaultyDevice::new(MemoryDevice::new("x"), Plan::default());
    assert!(device.read_at(0, &mut [0]).is_err(), "the faults are those of devices");
}

#[test]
fn a_take_past_the_page_cache_has_all_that_came() {
    let dir = tempfile::tempdir().unwrap();
    let folder = DiskFolder::create(dir.path(), "t", None).unwrap();
    let folders: Folders = vec![Arc::new(folder.with_writes(WritePolicy::Direct))];
    let engine = EngineSettings {
        writes: WritePolicy::Direct,
        segment_bytes: Some(300_001),
        ..plan("t").engine
    };
    // More streams than writers; heads of one page, and raw files without any.
    let texts = ["test:streams=11,frames=54321,pace=free,format=s24", "test:frames=7,pace=free"];
    for kind in [FileKind::Wav, FileKind::Raw] {
        let plan = TakePlan { engine: engine.clone(), kind, ..plan("t") };
        let folders = match kind {
            FileKind::Wav => folders.clone(),
            _ => {
                let folder = DiskFolder::create(dir.path(), "raw", None).unwrap();
                vec![Arc::new(folder.with_writes(WritePolicy::Direct)) as Arc<dyn TakeFolder>]
            }
        };
        let (outcome, monitor) = take(&plan, &texts, &folders);
        assert_eq!(monitor.get(Counter::Losses), 0, "{kind}");
        // Where the file system of the tests refuses it, the take says so.
        assert_eq!(outcome.refusals.is_empty(), folders[0].refusal().is_none());
        let (verified, losses) = verified(&folders);
        assert_eq!((losses, verified.damaged_bytes, verified.wrong_frames), (0, 0, 0), "{kind}");
        assert_eq!(verified.right_frames, 11 * 54321 + 7, "{kind}");
    }
}

#[test]
fn the_slowest_sync_is_told_with_its_file_and_the_stage_of_its_commit() {
    let dir = tempfile::tempdir().unwrap();
    // The third sync of each file takes 300 ms: one is its head, one its first commit.
    let faults = Some("op=sync,after=2,times=1,delay=300ms");
    let folders = on_disk(&[dir.path()], "t", faults);
    let plan =
        TakePlan { most: Some(Duration::from_millis(400)), ring_bytes: 1 << 20, ..plan("t") };
    let (outcome, monitor) = take(&plan, &["test:streams=2,rate=44100"], &folders);
    assert_eq!(monitor.get(Counter::Losses), 0);
    let (sync, commit) = (&outcome.figures.slowest_sync, &outcome.figures.slowest_commit);
    assert!(sync.ms >= 300.0 && sync.file.ends_with(".wav"), "{sync:?}");
    assert!(commit.sync_ms >= 300.0 && commit.ms >= commit.sync_ms, "{commit:?}");
    let saved = Manifest::load(&*folders[0]).unwrap().figures.unwrap();
    assert_eq!(saved.slowest_sync.file, sync.file, "it stands in the manifest");
}

/// A directory in which one file is slow.
struct OneSlow {
    folder: DiskFolder,
    slow: &'static str,
    faults: Plan,
}

impl TakeFolder for OneSlow {
    fn create(&self, name: &str) -> Result<TakeFile> {
        if !name.starts_with(self.slow) {
            return self.folder.create(name);
        }
        let device = FaultyDevice::new(MemoryDevice::new(name), self.faults.clone());
        Ok(TakeFile::of_device(Arc::new(device)))
    }

    fn open(&self, name: &str, is_written: bool) -> Result<TakeFile> {
        self.folder.open(name, is_written)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.folder.replace(name, bytes)
    }

    fn read(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        self.folder.read(name, most)
    }

    fn sync_names(&self) -> Result<()> {
        self.folder.sync_names()
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn refusal(&self) -> Option<String> {
        None
    }
}

#[test]
fn a_file_whose_sync_takes_long_does_not_keep_the_journal_from_vouching_for_others() {
    let dir = tempfile::tempdir().unwrap();
    // Its third sync, in the second commit, takes three seconds.
    let faults = "op=sync,after=2,times=1,delay=3s".parse::<Plan>().unwrap();
    let folder = DiskFolder::create(dir.path(), "t", None).unwrap();
    let folders: Folders = vec![Arc::new(OneSlow { folder, slow: "02-", faults })];
    let engine = EngineSettings { commit_every: Duration::from_millis(500), ..plan("t").engine };
    let most = Some(Duration::from_millis(3500));
    let plan = TakePlan { engine, most, ring_bytes: 1 << 20, ..plan("t") };
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let made = || Ok(folders.clone());
    let mut ahead = Duration::ZERO;
    let mut watch = |take: &Arc<RunningTake>, _: &TakeStatus| {
        // Files are made by several threads, in any order.
        let mut pieces = take.shared.directories[0].pieces();
        pieces.sort_by_key(|it| it.stream);
        let covered: Vec<_> = pieces.iter().map(|it| it.covered(take.shared.now())).collect();
        ahead = ahead.max(covered[0].saturating_sub(covered[1]));
    };
    let told = record(&plan, inputs(&["test:streams=2"]), &made, (&stop, &monitor), &mut watch);
    assert_eq!(monitor.get(Counter::Losses), 0);
    assert_eq!(told.unwrap().figures.slowest_sync.file, "02-test-2.wav");
    // Vouched for together they differ by a chunk, 57 ms.
    assert!(ahead >= Duration::from_millis(250), "{ahead:?}");
}
