//! Sources that pause in mid-take, or give little.

use super::tests::{lacks_flac, on_disk, plan};
use super::*;
use crate::sample::{SampleFormat, StreamShape};
use crate::take::RecordedStream;

const SHAPE: StreamShape = StreamShape { format: SampleFormat::S16, channels: 1, rate: 48_000 };

/// Gives so many bytes at once, and then nothing until the take ends.
struct PausingInput(usize);

impl RecordInput for PausingInput {
    fn streams(&self) -> Vec<RecordedStream> {
        let (name, source) = ("one".to_owned(), "pausing".to_owned());
        vec![RecordedStream { name, shape: SHAPE, source, test: None }]
    }

    fn is_patient(&self) -> bool {
        true
    }

    fn run(&mut self, feed: &mut InputFeed<'_>) -> Result<()> {
        let bytes: Vec<u8> = (0..self.0).map(|it| it as u8).collect();
        feed.producers[0].push(&bytes);
        while !feed.halt.wait(Duration::from_secs(60)) {}
        Ok(())
    }
}

/// Looks of one second each after which a test no longer waits for what must come.
const LOOKS: u32 = 20;

/// The payload bytes that the journal vouches for while the source pauses; waits for so many.
fn vouched_in_pause(plan: &TakePlan, bytes: usize, wanted: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let (mut looks, mut vouched) = (0, 0);
    let mut watch = |take: &Arc<RunningTake>, _: &TakeStatus| {
        vouched = take.shared.directories[0].pieces().iter().map(|it| it.vouched_bytes()).sum();
        looks += 1;
        if vouched >= wanted || looks == LOOKS {
            take.stop.set();
        }
    };
    let made = || Ok(folders.clone());
    let input: Vec<Box<dyn RecordInput>> = vec![Box::new(PausingInput(bytes))];
    record(plan, input, &made, (&stop, &monitor), &mut watch).unwrap();
    vouched
}

#[test]
#[ignore = "with --all: it waits for 8 s"]
fn what_came_before_a_pause_becomes_durable_in_it() {
    // Less than a chunk, some pages and a part of one, and a chunk with a little behind it.
    for bytes in [2, 5_002, 8 << 10, (8 << 10) + 6] {
        for writes in [crate::writes::WritePolicy::Buffered, crate::writes::WritePolicy::Direct] {
            let plan =
                TakePlan { engine: EngineSettings { writes, ..plan("t").engine }, ..plan("t") };
            let wanted = bytes as u64;
            assert_eq!(vouched_in_pause(&plan, bytes, wanted), wanted, "{writes}");
        }
    }
}

#[test]
fn of_flac_whole_blocks_become_durable_in_a_pause() {
    if lacks_flac("of_flac_whole_blocks_become_durable_in_a_pause") {
        return;
    }
    let plan = TakePlan { kind: FileKind::Flac, ..plan("t") };
    // Runs are vouched for as they were written: what was written at once needs all of its blocks.
    assert_eq!(vouched_in_pause(&plan, 40_000, 32_768), 32_768);
}
