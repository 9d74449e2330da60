//! A whole take of somebody else, read by every verb that reads takes: a manifest of which any part was
//! replaced, a journal whose checksums are right and whose content is anything, and a file. Nothing
//! panics, memory stays bounded, and what `recover` puts in order is a take that `verify` reads.
#![no_main]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_io::device::MemoryDevice;
use pinstripe_record::{
    JOURNAL_FILE, Journal, JournalEvent, JournalRecord, MANIFEST_FILE, PieceBehind, PlayPlan,
    PlaySink, ProgressRun, Summed, TakeFile, TakeState, play, recover, verify,
};

const NAMES: [&str; 6] = ["a.wav", "b.wav", "../a.wav", "", "take.json", "take.journal"];

const SOUND: &str = r#"{"version":1,"id":"ab","take":"t","state":"recording","started":{"seconds":1700000000},
"started_seconds":1700000000,"scene":"","tape":"","kind":"wav","directories":["/nowhere"],"is_mirrored":false,
"ring_bytes":65536,"chunk_bytes":8192,"streams":[{"name":"a","shape":{"format":"s24","channels":1,"rate":48000},
"source":"test:","test":0},{"name":"b","shape":{"format":"raw","channels":1,"rate":1000},"source":"raw:"}],
"pieces":[{"piece":0,"stream":0,"copy":0,"directory":0,"file":"a.wav","start_frame":0,"frames":99,"payload_at":4096}],
"gaps":[{"stream":0,"frame":7,"frames":9,"at_seconds":0.1}],"marks":[{"text":"m","frames":[1,2]}]}"#;

type Input<'a> = (
    // Where in the manifest something else stands, and what.
    Vec<(u16, u8, String)>,
    // Files that the journal tells of: number, stream, copy, name, first frame, and the piece that
    // stands in front with the place behind it.
    Vec<(u8, u32, u32, u8, u64, Option<(u32, u64)>)>,
    // What became durable: file, and runs of payload.
    Vec<(u8, Vec<(u32, Option<u64>)>)>,
    // Gaps, and marks.
    Vec<(u32, u64, u64)>,
    Vec<(String, Vec<u64>)>,
    &'a [u8],
);

fuzz_target!(|input: Input<'_>| {
    let (edits, files, progress, gaps, marks, payload) = input;
    let mut manifest = SOUND.as_bytes().to_vec();
    for (at, length, text) in edits {
        // Edits may have left nothing of it.
        let at = usize::from(at) % manifest.len().max(1);
        let end = (at + usize::from(length)).min(manifest.len());
        manifest.splice(at..end, text.bytes());
    }
    let device = Arc::new(MemoryDevice::new("journal"));
    let mut journal = Journal::new(TakeFile::of_device(Arc::clone(&device) as _));
    journal.add(JournalRecord::Event(JournalEvent::Begin { id: "ab".to_owned(), directory: 0 }));
    for (piece, stream, copy, name, start_frame, behind) in files {
        let file = NAMES[usize::from(name) % NAMES.len()].to_owned();
        let piece = u32::from(piece);
        let behind = behind.map(|(front, payload_at)| PieceBehind { front, payload_at });
        let event = JournalEvent::Piece { piece, stream, copy, file, start_frame, behind };
        journal.add(JournalRecord::Event(event));
    }
    for (piece, runs) in progress {
        // Without a checksum of its own a run has that of the payload, so that some are right.
        let run = |(bytes, sum): (u32, Option<u64>)| match sum {
            Some(sum) => Summed { bytes, sum },
            None => Summed::of(&payload[..payload.len().min(bytes as usize)]),
        };
        let runs = runs.into_iter().map(run).collect();
        let runs = vec![ProgressRun { piece: piece.into(), runs }];
        journal.add(JournalRecord::Progress { nanos: 1, runs });
    }
    for (stream, frame, frames) in gaps {
        journal.add(JournalRecord::Event(JournalEvent::Gap { stream, frame, frames }));
    }
    for (text, frames) in marks {
        journal.add(JournalRecord::Event(JournalEvent::Mark { text, frames }));
    }
    journal.commit().expect("memory takes it");

    let parent =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a place");
    let take = parent.path().join("take");
    fs::create_dir(&take).expect("a directory");
    fs::write(take.join(MANIFEST_FILE), manifest).expect("a file");
    fs::write(take.join(JOURNAL_FILE), device.to_vec()).expect("a file");
    let file = [&[0; 4096][..], payload].concat();
    fs::write(take.join("a.wav"), &file).expect("a file");
    fs::write(take.join("b.wav"), payload).expect("a file");
    fs::write(parent.path().join("a.wav"), "of somebody else").expect("a file");

    let (monitor, stop) = (Monitor::default(), Stop::new().expect("a descriptor"));
    let _ = verify(&take, &monitor);
    let null = fs::OpenOptions::new().write(true).open("/dev/null").expect("it is there");
    let plan = PlayPlan {
        from: Duration::ZERO,
        most: Some(Duration::from_millis(20)),
        ring_bytes: 1 << 16,
        streams: Vec::new(),
    };
    let _ = play(&take, &plan, PlaySink::Pipe(null), (&stop, &monitor));
    if recover(&take, &monitor).is_ok_and(|it| !it.was_complete) {
        let found = verify(&take, &Monitor::default()).expect("it was put in order");
        assert_eq!(found.manifest.state, TakeState::Recovered);
    }
    let other = fs::read(parent.path().join("a.wav")).expect("it is still there");
    assert_eq!(other, b"of somebody else");
});
