//! Takes of others: manifests, journals and files in which anything stands, read by every verb that
//! reads takes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinstripe_base::monitor::Counter;
use pinstripe_base::sync::Stop;
use pinstripe_io::device::MemoryDevice;
use pinstripe_testing::chosen_seeds;
use serde_json::Value;

use super::*;
use crate::engine::EngineSettings;
use crate::input::parse_input;
use crate::play::{PlayPlan, PlaySink, play};
use crate::recorder::tests::plan;
use crate::recorder::{RunningTake, TakePlan, TakeStatus, record};
use crate::recover::recover;
use crate::take::{FileBehind, Journal, MANIFEST, ProgressRun, TakeState};

const FRAMES: u64 = 20_000;

/// Numbers at the edges of what a field can have.
const NUMBERS: [u64; 9] = [0, 1, 3, 255, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 62, u64::MAX];
const TEXTS: [&str; 7] = [
    "",
    "..",
    "../sentinel",
    "/etc/hostname",
    "take.json",
    "take.journal",
    "01-test-1@000000000000-0.wav",
];

/// Random numbers that a seed decides.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A take of two streams and several files, with a mark.
fn sound_take(parent: &Path) -> PathBuf {
    let plan = plan("sound");
    let engine = EngineSettings { segment_bytes: Some(25_000), ..plan.engine };
    let plan = TakePlan { engine, ..plan };
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::create(parent, "sound", None).unwrap());
    let text = format!("test:streams=2,frames={FRAMES},pace=free,format=s24");
    let inputs = vec![parse_input(&text).unwrap().open(false).unwrap()];
    let folders = || Ok(vec![Arc::clone(&folder)]);
    let mut mark = |take: &Arc<RunningTake>, _: &TakeStatus| {
        take.mark("here").unwrap();
    };
    record(&plan, inputs, &folders, (&stop, &monitor), &mut mark).unwrap();
    parent.join("sound")
}

fn copy_of(take: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(take).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Everything that reads a take, one after the other; what an error says is its own affair.
fn read_by_all(take: &Path) {
    let (monitor, stop) = (Monitor::default(), Stop::new().unwrap());
    let _ = verify(take, &monitor);
    for from in [Duration::ZERO, Duration::from_millis(10)] {
        let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
        let plan = PlayPlan {
            from,
            most: Some(Duration::from_millis(100)),
            ring_bytes: 64 << 10,
            streams: Vec::new(),
        };
        let _ = play(take, &plan, PlaySink::Pipe(null), (&stop, &monitor));
    }
    let recovered = recover(take, &monitor);
    // What was put in order is a take that the others read.
    if recovered.is_ok_and(|it| !it.was_complete) {
        let found = verify(take, &Monitor::default()).unwrap();
        assert_eq!(found.manifest.state, TakeState::Recovered);
    }
}

/// Where the values of a tree are that hold no others.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            (0..).zip(items).for_each(|(number, it)| leaves(it, &format!("{at}/{number}"), found));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, it)| leaves(it, &format!("{at}/{name}"), found));
        }
        _ => found.push(at.to_owned()),
    }
}

fn mutate_manifest(take: &Path, chance: &mut Chance) {
    let mut manifest: Value =
        serde_json::from_slice(&fs::read(take.join(MANIFEST)).unwrap()).unwrap();
    if chance.below(2) == 0 {
        manifest["state"] = "recording".into();
    }
    let mut places = Vec::new();
    leaves(&manifest, "", &mut places);
    for _ in 0..1 + chance.below(3) {
        let value = manifest.pointer_mut(&places[chance.below(places.len())]).unwrap();
        *value = match value {
            Value::Number(_) => chance.of(&NUMBERS).into(),
            Value::String(_) => chance.of(&TEXTS).into(),
            Value::Bool(is) => (!*is).into(),
            _ => Value::Null,
        };
    }
    fs::write(take.join(MANIFEST), manifest.to_string()).unwrap();
}

/// A journal whose checksums are right and whose content is not.
fn mutate_journal(take: &Path, chance: &mut Chance) {
    let manifest: Value = serde_json::from_slice(&fs::read(take.join(MANIFEST)).unwrap()).unwrap();
    let id = manifest["id"].as_str().unwrap_or("").to_owned();
    let device = Arc::new(MemoryDevice::new("journal"));
    let mut journal = Journal::new(TakeFile::of_device(Arc::clone(&device) as _));
    journal
        .add(JournalRecord::Event(JournalEvent::Begin { id, directory: chance.below(3) as u32 }));
    for _ in 0..chance.below(30) {
        let number = |chance: &mut Chance| match chance.below(2) {
            0 => chance.below(4) as u64,
            _ => chance.of(&NUMBERS),
        };
        let piece = number(chance) as u32;
        let record = match chance.below(4) {
            0 => JournalRecord::Event(JournalEvent::File {
                piece,
                stream: number(chance) as u32,
                copy: number(chance) as u32,
                file: chance.of(&TEXTS).to_owned(),
                start_frame: number(chance),
                behind: (chance.below(2) == 0).then(|| FileBehind {
                    front: number(chance) as u32,
                    payload_at: number(chance),
                }),
            }),
            1 => JournalRecord::Event(JournalEvent::Gap {
                stream: number(chance) as u32,
                frame: number(chance),
                frames: number(chance),
            }),
            2 => JournalRecord::Event(JournalEvent::Mark {
                text: chance.of(&TEXTS).to_owned(),
                frames: vec![number(chance); chance.below(4)],
            }),
            _ => {
                let run = |chance: &mut Chance| Summed {
                    bytes: number(chance) as u32,
                    sum: number(chance),
                };
                let runs = (0..chance.below(80)).map(|_| run(chance)).collect();
                let runs = vec![ProgressRun { piece, runs }];
                JournalRecord::Progress { nanos: number(chance), runs }
            }
        };
        journal.add(record);
    }
    journal.commit().unwrap();
    fs::write(take.join(JOURNAL), device.to_vec()).unwrap();
}

/// Bytes flipped, a tail cut off or added, in any file.
fn mutate_bytes(take: &Path, chance: &mut Chance) {
    let mut names: Vec<_> = fs::read_dir(take).unwrap().map(|it| it.unwrap().path()).collect();
    names.sort();
    let path = &names[chance.below(names.len())];
    let mut bytes = fs::read(path).unwrap();
    match chance.below(3) {
        0 => bytes.truncate(chance.below(bytes.len() + 1)),
        1 => bytes.extend(vec![chance.below(256) as u8; chance.below(10_000)]),
        _ => {
            for _ in 0..1 + chance.below(8) {
                let at = chance.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << chance.below(8);
                }
            }
        }
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn whatever_stands_in_a_take_no_verb_panics_or_leaves_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let sound = sound_take(dir.path());
    let take = dir.path().join("take");
    fs::write(dir.path().join("sentinel"), "not of the take").unwrap();
    for seed in chosen_seeds("PINSTRIPE_RECORD_SEEDS", 0..150) {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        copy_of(&sound, &take);
        match seed % 3 {
            0 => mutate_manifest(&take, &mut chance),
            1 => {
                mutate_manifest(&take, &mut chance);
                mutate_journal(&take, &mut chance);
            }
            _ => {
                if chance.below(2) == 0 {
                    let text = fs::read_to_string(take.join(MANIFEST)).unwrap();
                    let text = text.replace("\"complete\"", "\"recording\"");
                    fs::write(take.join(MANIFEST), text).unwrap();
                }
                mutate_bytes(&take, &mut chance);
            }
        }
        read_by_all(&take);
        let sentinel = fs::read_to_string(dir.path().join("sentinel")).unwrap();
        assert_eq!(sentinel, "not of the take", "seed {seed}");
    }
}

#[test]
fn what_is_no_plain_file_is_refused_and_never_followed() {
    let dir = tempfile::tempdir().unwrap();
    let sound = sound_take(dir.path());
    let (take, outside) = (dir.path().join("take"), dir.path().join("outside"));
    let recording = |take: &Path| {
        let text = fs::read_to_string(take.join(MANIFEST)).unwrap();
        fs::write(take.join(MANIFEST), text.replace("\"complete\"", "\"recording\"")).unwrap();
    };
    for name in ["01-test-1@000000000000-0.wav", JOURNAL, MANIFEST, "take.json.new"] {
        for kind in ["symlink", "fifo"] {
            copy_of(&sound, &take);
            recording(&take);
            let path = take.join(name);
            let bytes = fs::read(&path).unwrap_or_default();
            fs::write(&outside, &bytes).unwrap();
            let _ = fs::remove_file(&path);
            match kind {
                "symlink" => symlink(&outside, &path).unwrap(),
                _ => rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &path,
                    rustix::fs::FileType::Fifo,
                    rustix::fs::Mode::RWXU,
                    0,
                )
                .unwrap(),
            }
            let monitor = Monitor::default();
            let told = recover(&take, &monitor);
            let is_refused = told.is_err() || monitor.get(Counter::Losses) > 0;
            assert!(is_refused, "{name} as a {kind}: {told:?}");
            assert_eq!(fs::read(&outside).unwrap(), bytes, "{name} as a {kind}");
            let verified = verify(&take, &monitor);
            assert!(
                name == "take.json.new" || verified.is_err() || monitor.get(Counter::Losses) > 1
            );
        }
    }
}

#[test]
fn a_file_that_is_longer_than_any_is_none_of_a_take() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = fs::read(sound_take(dir.path()).join(MANIFEST)).unwrap();
    assert!(Manifest::decode(&bytes).is_ok());
    for field in ["start_frame", "frames", "payload_at"] {
        for number in [u64::MAX, i64::MAX as u64 + 1, u64::MAX / 3] {
            let mut manifest: Value = serde_json::from_slice(&bytes).unwrap();
            manifest["pieces"][1][field] = number.into();
            let told = Manifest::decode(manifest.to_string().as_bytes());
            // A third of all bytes is beyond the longest file only when it is counted in frames.
            let is_refused = field != "payload_at" || number > i64::MAX as u64;
            assert_eq!(told.is_err(), is_refused, "{field} {number}");
        }
    }
}

/// A journal of many files of a stream with many gaps: memory and time are those of the lists and
/// not of their product.
#[test]
fn many_files_and_many_gaps_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let take = sound_take(dir.path());
    let mut manifest = Manifest::decode(&fs::read(take.join(MANIFEST)).unwrap()).unwrap();
    let gap = |frame| RecordedGap { stream: 0, frame, frames: 1, at_seconds: 0.0 };
    manifest.gaps = (0..100_000).rev().map(gap).collect();
    // Of one that was cut off the journal tells the files.
    manifest.state = crate::take::TakeState::Recording;
    fs::write(take.join(MANIFEST), manifest.encode()).unwrap();
    let mut journal = Journal::new(TakeFile::of_device(Arc::new(
        pinstripe_io::device::FileDevice::open(
            take.join(JOURNAL),
            pinstripe_io::device::Access::Write,
            pinstripe_io::device::Policy::Buffered,
        )
        .unwrap(),
    )));
    let id = manifest.id.clone();
    journal.add(JournalRecord::Event(JournalEvent::Begin { id, directory: 0 }));
    for piece in 0..20_000 {
        let file = format!("{piece}.wav");
        let event =
            JournalEvent::File { piece, stream: 0, copy: 0, file, start_frame: 0, behind: None };
        journal.add(JournalRecord::Event(event));
    }
    journal.commit().unwrap();
    File::open(take.join(JOURNAL)).unwrap().sync_all().unwrap();
    let found = verify(&take, &Monitor::default()).unwrap();
    assert_eq!(found.files, 20_000);
}

/// A take of which the manifest says something else of one file that does not begin the take.
fn changed_take(parent: &Path, change: impl Fn(&mut RecordedFile)) -> PathBuf {
    let path = sound_take(parent);
    let mut manifest = Manifest::load(&DiskFolder::open(&path).unwrap()).unwrap();
    let last = manifest.pieces.iter_mut().filter(|it| it.stream == 0 && it.start_frame > 0).last();
    change(last.unwrap());
    fs::write(path.join(MANIFEST), manifest.encode()).unwrap();
    path
}

/// Losses that are named by a verb.
fn losses(verb: impl FnOnce(&Monitor)) -> u64 {
    let monitor = Monitor::default();
    verb(&monitor);
    monitor.get(Counter::Losses)
}

#[test]
fn where_a_manifest_says_something_else_than_the_journal_that_is_named_and_not_played() {
    let dir = tempfile::tempdir().unwrap();
    let path = changed_take(dir.path(), |it| it.start_frame = 1 << 32);
    assert_eq!(losses(|it| assert!(verify(&path, it).unwrap().is_lost)), 1);
    let plan = PlayPlan { from: Duration::ZERO, most: None, ring_bytes: 64 << 10, streams: vec![] };
    let sink = || PlaySink::Path(dir.path().join("out"));
    let stop = Stop::new().unwrap();
    let told = losses(|it| {
        let played = play(&path, &plan, sink(), (&stop, it)).unwrap();
        assert_eq!(played.frames, FRAMES, "and not the silence of hours");
    });
    assert_eq!(told, 1);
}

#[test]
fn frames_for_which_no_journal_vouches_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = changed_take(dir.path(), |it| it.frames += 1000);
    assert_eq!(losses(|it| assert!(verify(&path, it).unwrap().is_lost)), 1);
}
