//! Inputs of which the first samples come later than the take begins.

use std::time::Instant;

use super::tests::{Folders, on_disk, plan, verified};
use super::*;
use crate::input::parse_input;
use crate::play::{PlayPlan, PlaySink, play};
use crate::sample::{SampleFormat, StreamShape};
use crate::take::{JOURNAL, RecordedStream};

const SHAPE: StreamShape = StreamShape { format: SampleFormat::S16, channels: 1, rate: 48_000 };

/// Two streams that give nothing for a while, and then so many frames at once.
struct LateInput {
    wait: Duration,
    frames: usize,
    came_at: std::sync::mpsc::Sender<Instant>,
}

impl RecordInput for LateInput {
    fn streams(&self) -> Vec<RecordedStream> {
        let stream = |name: &str| RecordedStream {
            name: name.to_owned(),
            shape: SHAPE,
            source: "late".to_owned(),
            test: None,
        };
        vec![stream("left"), stream("right")]
    }

    fn is_patient(&self) -> bool {
        false
    }

    fn run(&mut self, feed: &mut InputFeed<'_>) -> Result<()> {
        feed.halt.wait(self.wait);
        self.came_at.send(pinstripe_base::clock::monotonic()).unwrap();
        let block = vec![1; 2 * self.frames];
        feed.producers[0].push(&block);
        // The second one is a little later, as on a busy machine: both begin with the same frame.
        std::thread::sleep(Duration::from_millis(30));
        feed.producers[1].push(&block);
        Ok(())
    }
}

fn recorded(
    (plan, folders): (&TakePlan, &Folders),
    (wait, frames): (u64, usize),
    watch: &mut dyn FnMut(&Arc<RunningTake>, &TakeStatus),
) -> (TakeOutcome, Instant) {
    let (came_at, came) = std::sync::mpsc::channel();
    let late = LateInput { wait: Duration::from_millis(wait), frames, came_at };
    let test = parse_input("test:streams=1,rate=48000,format=s16").unwrap().open(false).unwrap();
    let inputs: Vec<Box<dyn RecordInput>> = vec![test, Box::new(late)];
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let made = || Ok(folders.clone());
    let outcome = record(plan, inputs, &made, (&stop, &monitor), watch).unwrap();
    (outcome, came.recv().unwrap())
}

/// Frames from midnight, as the head of a file tells.
fn time_reference(path: &std::path::Path) -> u64 {
    let head = std::fs::read(path).unwrap();
    let at = head.windows(4).position(|it| it == b"bext").unwrap() + 8 + 338;
    u64::from_le_bytes(head[at..at + 8].try_into().unwrap())
}

#[test]
fn an_input_that_comes_late_begins_where_its_first_samples_lie() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let most = Some(Duration::from_millis(700));
    let plan = TakePlan { most, ring_bytes: 1 << 20, ..plan("t") };
    let mut began = None;
    let (outcome, came) = recorded((&plan, &folders), (400, 4800), &mut |_, _| {
        began.get_or_insert_with(Instant::now);
    });
    let pieces = &outcome.manifest.pieces;
    let starts: Vec<u64> = pieces.iter().map(|it| it.start_frame).collect();
    // The moment of the first samples, without their length.
    let since = came.duration_since(began.unwrap()).as_secs_f64() - 0.1;
    assert!((starts[1] as f64 / 48e3 - since).abs() < 0.05, "{starts:?} {since}");
    assert_eq!((starts[0], starts[2]), (0, starts[1]));
    let frames: Vec<u64> = pieces.iter().map(|it| it.frames).collect();
    assert_eq!(frames, [33_600, 4800, 4800]);
    let take = dir.path().join("t");
    let first = time_reference(&take.join("01-test-1.wav"));
    assert_eq!(first % 48_000, 0);
    assert_eq!(time_reference(&take.join("02-left.wav")), first + starts[1]);
    assert_eq!(time_reference(&take.join("03-right.wav")), first + starts[1]);
    assert_eq!(verified(&folders).1, 0);
    // As a recovery would have it.
    let journal = folders[0].open(JOURNAL, false).unwrap();
    let content = crate::recover::read_journal(&journal, &outcome.manifest).unwrap();
    let mut told: Vec<_> =
        content.pieces.values().map(|it| (it.piece.stream, it.piece.start_frame)).collect();
    told.sort();
    assert_eq!(told, [(0, 0), (1, starts[1]), (2, starts[1])]);
    drop(folders);
    // Played, it is silent up to there.
    let out = dir.path().join("out.raw");
    let plan = PlayPlan { from: Duration::ZERO, most: None, ring_bytes: 1 << 16, streams: vec![1] };
    let stop = Stop::new().unwrap();
    play(&take, &plan, PlaySink::Path(out.clone()), (&stop, &Monitor::default())).unwrap();
    let played = std::fs::read(out).unwrap();
    assert_eq!(played.iter().position(|it| *it != 0), Some(2 * starts[1] as usize));
    assert_eq!(played.len(), 2 * (starts[1] as usize + 4800));
}

#[test]
fn an_input_that_comes_late_ends_with_the_take() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let most = Some(Duration::from_millis(500));
    let plan = TakePlan { most, ring_bytes: 1 << 20, ..plan("t") };
    // More than what is left of the take.
    let (outcome, _) = recorded((&plan, &folders), (450, 9600), &mut |_, _| {});
    let ends: Vec<u64> =
        outcome.manifest.pieces.iter().map(|it| it.start_frame + it.frames).collect();
    assert_eq!(ends[0], 24_000);
    assert!(ends[1] <= 24_000 && ends[1] == ends[2], "{ends:?}");
}

#[test]
fn an_input_that_comes_after_the_order_begins_where_its_first_samples_lie() {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let pre_roll = Duration::from_millis(40);
    let most = Some(Duration::from_millis(900));
    let plan = TakePlan { most, armed: Some(pre_roll), ring_bytes: 1 << 20, ..plan("t") };
    let mut ordered = None;
    let (outcome, came) = recorded((&plan, &folders), (600, 4800), &mut |take, status| {
        if status.phase == TakePhase::Armed {
            let stream = &take.shared.streams[0];
            while stream.ring.made_bytes() < 2 * 4800 {
                std::thread::sleep(Duration::from_millis(2));
            }
            ordered = Some(Instant::now());
            take.start().unwrap();
        }
    });
    let pieces = &outcome.manifest.pieces;
    let late: Vec<_> = pieces.iter().filter(|it| it.stream > 0).collect();
    let start = late[0].start_frame;
    let since = came.duration_since(ordered.unwrap()).as_secs_f64() + 0.04 - 0.1;
    assert!((start as f64 / 48e3 - since).abs() < 0.05, "{late:?} {since}");
    assert_eq!(
        late.iter().map(|it| (it.start_frame, it.frames)).collect::<Vec<_>>(),
        [(start, 4800); 2]
    );
    let origins = &outcome.manifest.origins;
    assert!(origins[0] > 0 && origins[1..] == [-(start as i64); 2], "{origins:?}");
    let (found, losses) = verified(&folders);
    assert_eq!((losses, found.wrong_frames), (0, 0));
}
