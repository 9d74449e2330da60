//! The durable lag by a clock of the test's own: what it counts, and from when on. Space ahead of a file.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::header::{FileKind, HeadFacts, LocalTime};
use crate::ring::{Arena, Ring, RingProducer};
use crate::sample::{SampleFormat, StreamShape};
use crate::take::{DiskFolder, TakeFolder};

const SECOND: Duration = Duration::from_secs(1);
/// Bytes of a second.
const RATE: u32 = 8_000;

fn piece(directory: &TakeDirectory) -> (Arc<StreamFile>, RingProducer) {
    let arena = Arc::new(Arena::new(1 << 17).unwrap());
    let (ring, producer) = Ring::new(&arena, 0, 1 << 17, 1, 1).unwrap();
    let facts = HeadFacts {
        kind: FileKind::Wav,
        shape: StreamShape { format: SampleFormat::U8, channels: 1, rate: RATE },
        name: "one".to_owned(),
        take: "t".to_owned(),
        scene: String::new(),
        tape: String::new(),
        started: LocalTime { seconds: 0, nanos: 0 },
        start_frame: 0,
        index: 0,
        total: 1,
        uid: String::new(),
    };
    let name = "one.wav".to_owned();
    let (encoders, started) = (Arc::default(), Arc::default());
    let piece = StreamFile::create(
        &*directory.folder,
        &encoders,
        (0, 0, 0),
        (name, facts),
        (ring, started),
    );
    (Arc::new(piece.unwrap()), producer)
}

fn vouch(piece: &StreamFile) {
    let runs = piece.take_synced();
    piece.vouch(runs.iter().map(|it| u64::from(it.bytes)).sum());
}

#[test]
fn the_lag_is_the_age_of_the_oldest_sample_that_the_journal_does_not_vouch_for() {
    let dir = tempfile::tempdir().unwrap();
    let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::create(dir.path(), "t", None).unwrap());
    let directory = TakeDirectory::new(0, Arc::clone(&folder), "id").unwrap();
    let (piece, mut producer) = piece(&directory);
    directory.add(&piece);
    // Ten seconds come, nine are written, and made durable at that moment.
    let bytes = vec![1; 10 * RATE as usize];
    for (second, bytes) in (1..).zip(bytes.chunks(RATE as usize)) {
        producer.push(bytes);
        piece.ring.note_time(second * SECOND);
        assert_eq!(directory.lag(second * SECOND), second * SECOND, "nothing is durable yet");
    }
    piece.write(&bytes[..9 * RATE as usize]).unwrap();
    piece.sync().unwrap();
    assert_eq!(directory.lag(10 * SECOND), 10 * SECOND, "durable, but the journal does not say so");
    vouch(&piece);
    assert_eq!(piece.vouched_bytes(), 9 * u64::from(RATE));
    assert_eq!(directory.lag(10 * SECOND), SECOND, "the tenth second is in the ring");
    assert_eq!(directory.lag(12 * SECOND), 3 * SECOND, "and grows older");
    // Written is not durable.
    piece.write(&bytes[9 * RATE as usize..]).unwrap();
    assert_eq!(directory.lag(12 * SECOND), 3 * SECOND);
    // A stream that ended leaves nothing that waits, once all of it is vouched for.
    piece.end(None);
    piece.sync().unwrap();
    vouch(&piece);
    piece.close(&[]).unwrap();
    assert_eq!(directory.lag(20 * SECOND), Duration::ZERO);
}

#[test]
fn samples_of_a_source_that_pauses_grow_older_until_they_are_vouched_for() {
    let dir = tempfile::tempdir().unwrap();
    let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::create(dir.path(), "t", None).unwrap());
    let directory = TakeDirectory::new(0, Arc::clone(&folder), "id").unwrap();
    let (piece, mut producer) = piece(&directory);
    directory.add(&piece);
    assert_eq!(directory.lag(3 * SECOND), Duration::ZERO, "nothing has come");
    // All at once, and nothing behind it: its age has nothing to do with its length.
    let bytes = vec![1; RATE as usize / 2];
    producer.push(&bytes);
    for second in 4..60 {
        piece.ring.note_time(second * SECOND);
        piece.sync().unwrap();
        vouch(&piece);
        assert_eq!(directory.lag(second * SECOND), (second - 3) * SECOND);
    }
    piece.write(&bytes).unwrap();
    piece.sync().unwrap();
    vouch(&piece);
    assert_eq!(directory.lag(70 * SECOND), Duration::ZERO, "all that came is durable");
    // One sample more.
    producer.push(&[1]);
    assert_eq!(directory.lag(71 * SECOND), SECOND);
}

#[test]
fn a_file_that_a_writer_makes_gets_its_space_from_the_next_commit() {
    let dir = tempfile::tempdir().unwrap();
    let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::create(dir.path(), "t", None).unwrap());
    let directory = TakeDirectory::new(0, Arc::clone(&folder), "id").unwrap();
    let (piece, _producer) = piece(&directory);
    assert_eq!(piece.ahead_bytes(), 0, "256 files at one frame would hold the writer up");
    piece.finish_writeback();
    // In memory that would take and clear it at once, while writes wait.
    let wanted = if piece.file.is_in_memory() { 0 } else { 1 << 20 };
    assert_eq!(piece.ahead_bytes(), wanted);
}
