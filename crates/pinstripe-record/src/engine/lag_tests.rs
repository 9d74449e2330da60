//! The durable lag by a clock of the test's own: what it counts, and from when on.

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

fn piece(lane: &Lane) -> (Arc<Piece>, RingProducer) {
    let arena = Arc::new(Arena::new(1 << 17).unwrap());
    let (ring, producer) = Ring::new(&arena, 0, 1 << 17, 1, 1).unwrap();
    let facts = HeadFacts {
        kind: FileKind::Wav,
        shape: StreamShape { format: SampleFormat::U8, channels: 1, rate: RATE },
        name: "one".to_owned(),
        take: "t".to_owned(),
        scene: String::new(),
        tape: String::new(),
        started: LocalTime { seconds: 0 },
        start_frame: 0,
        index: 0,
        total: 1,
        uid: String::new(),
    };
    let name = "one.wav".to_owned();
    let (encoders, started) = (Arc::default(), Arc::default());
    let piece =
        Piece::create(lane, &encoders, (0, 0, 0), (name, facts), (ring, started), Duration::ZERO);
    let piece = piece.unwrap();
    (Arc::new(piece), producer)
}

#[test]
fn the_lag_is_the_age_of_the_oldest_sample_that_the_journal_does_not_vouch_for() {
    let dir = tempfile::tempdir().unwrap();
    let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::create(dir.path(), "t", None).unwrap());
    let lane = Lane::new(0, Arc::clone(&folder), "id").unwrap();
    let (piece, mut producer) = piece(&lane);
    lane.add(&piece);
    assert_eq!(lane.lag(2 * SECOND), 2 * SECOND, "nothing is durable yet");
    // Ten seconds came, nine were written, and made durable at that moment.
    let bytes = vec![1; 10 * RATE as usize];
    producer.push(&bytes);
    piece.write(&bytes[..9 * RATE as usize]).unwrap();
    piece.sync(10 * SECOND).unwrap();
    assert_eq!(lane.lag(10 * SECOND), 10 * SECOND, "durable, but the journal does not say so");
    let (runs, covers) = piece.take_synced();
    piece.vouch(runs.iter().map(|it| u64::from(it.bytes)).sum(), covers);
    assert_eq!(piece.vouched_bytes(), 9 * u64::from(RATE));
    assert_eq!(lane.lag(10 * SECOND), SECOND, "the tenth second is in the ring");
    assert_eq!(lane.lag(12 * SECOND), 3 * SECOND, "and grows older");
    // Written is not durable.
    piece.write(&bytes[9 * RATE as usize..]).unwrap();
    assert_eq!(lane.lag(12 * SECOND), 3 * SECOND);
    // A stream that ended leaves nothing that waits, once all of it is vouched for.
    piece.end(None);
    piece.sync(13 * SECOND).unwrap();
    let (runs, covers) = piece.take_synced();
    piece.vouch(runs.iter().map(|it| u64::from(it.bytes)).sum(), covers);
    piece.close(&[]).unwrap();
    assert_eq!(lane.lag(20 * SECOND), Duration::ZERO);
}
