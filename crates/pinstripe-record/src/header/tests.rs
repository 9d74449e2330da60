use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::sample::{SampleFormat, fill_test};

fn facts(kind: FileKind, format: SampleFormat, channels: u16) -> HeadFacts {
    HeadFacts {
        kind,
        shape: StreamShape { format, channels, rate: 96_000 },
        name: "piano <left> & \"right\"".to_owned(),
        take: "take 1".to_owned(),
        scene: "s1".to_owned(),
        tape: "t1".to_owned(),
        // 2023-11-14 17:00:01.
        started: LocalTime { seconds: 1_699_981_201, nanos: 0 },
        start_frame: 0,
        index: 0,
        total: 2,
        uid: "00112233445566778899aabbccddeeff".to_owned(),
    }
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (seconds, date, time) in [
        (0, "1970-01-01", "00:00:00"),
        (951_825_599, "2000-02-29", "11:59:59"),
        (1_699_981_201, "2023-11-14", "17:00:01"),
        (-1, "1969-12-31", "23:59:59"),
        (4_107_542_400, "2100-03-01", "00:00:00"),
    ] {
        let local = LocalTime { seconds, nanos: 0 };
        assert_eq!((local.date().as_str(), local.time().as_str()), (date, time));
    }
}

/// Date, time and the frames since midnight are those of the file's first frame.
#[test]
fn a_later_file_has_its_own_time() {
    let mut facts = facts(FileKind::Wav, SampleFormat::S16, 1);
    facts.start_frame = 96_000 * 3600 + 48_000;
    assert_eq!(facts.file_began().time(), "18:00:01");
    assert_eq!(facts.since_midnight(), (18 * 3600 + 1) * 96_000 + 48_000);
    // Seven hours later it is past midnight.
    facts.start_frame = 96_000 * 7 * 3600;
    assert_eq!(
        (facts.file_began().date(), facts.file_began().time()),
        ("2023-11-15".into(), "00:00:01".into())
    );
    assert_eq!(facts.since_midnight(), 96_000);
}

/// A take that began within a second: half a second later it is the next one.
#[test]
fn the_time_of_day_is_that_of_the_frame() {
    let mut facts = facts(FileKind::Wav, SampleFormat::S16, 1);
    facts.started.nanos = 750_000_000;
    assert_eq!(facts.file_began().time(), "17:00:01");
    assert_eq!(facts.since_midnight(), (17 * 3600 + 1) * 96_000 + 72_000);
    facts.start_frame = 48_000;
    assert_eq!(facts.file_began().time(), "17:00:02");
    assert_eq!(facts.since_midnight(), (17 * 3600 + 2) * 96_000 + 24_000);
    let before = LocalTime { seconds: -1, nanos: 999_999_999 };
    assert_eq!(LocalTime::from_nanos(before.to_nanos()), before);
}

/// Bytes of a chunk of a RIFF file, found as readers find it: from one to the next.
fn found(head: &[u8], id: &[u8; 4]) -> Option<Vec<u8>> {
    let mut at = 12;
    while let Some(here) = head.get(at..at + 8) {
        let length = u32::from_le_bytes(here[4..8].try_into().unwrap()) as usize;
        let body = at + 8..(at + 8 + length).min(head.len());
        if &here[..4] == id {
            return Some(head[body].to_vec());
        }
        at += 8 + length.next_multiple_of(2);
    }
    None
}

#[test]
fn a_head_is_whole_pages_and_says_what_it_should() {
    for channels in [1, 2, 8, 64] {
        let facts = facts(FileKind::Wav, SampleFormat::S24, channels);
        let frame = facts.shape.frame_bytes();
        let head = facts.head(1000 * frame);
        assert_eq!(head.len() % 4096, 0);
        assert_eq!(head.len() as u64, facts.payload_at(), "the place of the payload never moves");
        assert_eq!(facts.head(0).len(), facts.head(1 << 40).len());
        assert_eq!(found(&head, b"data").unwrap(), b"");
        let bext = found(&head, b"bext").unwrap();
        assert_eq!(&bext[320..338], b"2023-11-1417:00:01");
        assert_eq!(u64::from_le_bytes(bext[338..346].try_into().unwrap()), 5_875_296_000);
        let ixml = String::from_utf8(found(&head, b"iXML").unwrap()).unwrap();
        assert!(ixml.contains("piano &lt;left&gt; &amp; &quot;right&quot;"), "{ixml}");
        assert!(ixml.contains("<AUDIO_BIT_DEPTH>24</AUDIO_BIT_DEPTH>"), "{ixml}");
        let uid = |ixml: &str| ixml[ixml.find("<FILE_UID>").unwrap()..][..70].to_owned();
        let later = HeadFacts { start_frame: 4_000_000, ..facts.clone() }.head(0);
        let later = String::from_utf8(found(&later, b"iXML").unwrap()).unwrap();
        assert_ne!(uid(&later), uid(&ixml), "each file of a stream has its own");
        let described = String::from_utf8_lossy(&bext[..256]).into_owned();
        let tracks = described.matches("sTRK").count();
        assert_eq!(tracks, usize::from(channels).min(tracks.max(5)), "{described}");
        let size = u32::from_le_bytes(head[4..8].try_into().unwrap());
        assert_eq!(u64::from(size), head.len() as u64 + 1000 * frame - 8);
    }
}

#[test]
fn a_long_file_is_rf64_by_its_first_page_alone() {
    let facts = facts(FileKind::Wav, SampleFormat::S24, 1);
    let (short, long) = (facts.head(3_000_000), facts.head(6_000_000_000));
    assert_eq!((&short[..4], &short[12..16]), (&b"RIFF"[..], &b"JUNK"[..]));
    assert_eq!((&long[..4], &long[12..16]), (&b"RF64"[..], &b"ds64"[..]));
    let number = |at: usize| u64::from_le_bytes(long[at..at + 8].try_into().unwrap());
    assert_eq!((number(20), number(28), number(36)), (6_000_004_088, 6_000_000_000, 2_000_000_000));
    assert_eq!(long[4092..4096], [0xff; 4]);
    let changed: Vec<usize> = (0..4096).filter(|at| short[*at] != long[*at]).collect();
    assert!(changed.iter().all(|at| *at < 48 || *at >= 4092), "{changed:?}");
    let other = HeadFacts { kind: FileKind::Bw64, ..facts };
    assert_eq!(&other.head(6_000_000_000)[..4], b"BW64");
}

/// A file as the recorder leaves it, with `payload` bytes of which only the ends are written.
fn write_file(path: &Path, facts: &HeadFacts, payload: u64, cues: &[Cue]) -> File {
    let (head, tail) = facts.complete(payload, cues);
    let file = File::create(path).unwrap();
    let end = head.len() as u64 + payload;
    file.set_len(end).unwrap();
    file.write_all_at(&head, 0).unwrap();
    let frame = facts.shape.frame_bytes();
    let some = (100 * frame).min(payload);
    let mut samples = vec![0; some as usize];
    fill_test(&facts.shape, 0, 0, &mut samples);
    file.write_all_at(&samples, head.len() as u64).unwrap();
    fill_test(&facts.shape, 0, (payload - some) / frame, &mut samples);
    file.write_all_at(&samples, end - some).unwrap();
    file.write_all_at(&tail, end).unwrap();
    file
}

/// What a program prints, if there is such a program.
fn told(program: &str, args: &[&str], path: &Path) -> Option<String> {
    let output = Command::new(program).args(args).arg(path).output().ok()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {}: {told}{complaints}", path.display());
    Some(told + &complaints)
}

/// An RF64 of 100,000 frames: the head of a long one, with other sizes.
fn shortened(dir: &Path, facts: &HeadFacts) -> std::path::PathBuf {
    let payload = 100_000 * facts.shape.frame_bytes();
    let mut head = facts.head(6_000_000_000);
    assert_eq!(&head[..4], b"RF64");
    let riff = head.len() as u64 - 8 + payload;
    for (at, size) in [(20, riff), (28, payload), (36, 100_000)] {
        head[at..at + 8].copy_from_slice(&size.to_le_bytes());
    }
    let path = dir.join("short-rf64.wav");
    let file = File::create(&path).unwrap();
    file.write_all_at(&head, 0).unwrap();
    file.set_len(head.len() as u64 + payload).unwrap();
    path
}

#[test]
fn other_programs_read_every_kind_and_length() {
    let dir = tempfile::tempdir().unwrap();
    let cues =
        [Cue { frame: 5, text: "here".to_owned() }, Cue { frame: 9, text: "odd".to_owned() }];
    let mut was_read = [false, false];
    for (kind, format, channels, payload) in [
        (FileKind::Wav, SampleFormat::S24, 1, 300_003),
        (FileKind::Wav, SampleFormat::S16, 2, 400_000),
        (FileKind::Wav, SampleFormat::S32, 4, 1_600_000),
        (FileKind::Wav, SampleFormat::F32, 1, 400_000),
        (FileKind::Wav, SampleFormat::U8, 1, 100_001),
        // Sparse: the middle takes no room.
        (FileKind::Wav, SampleFormat::S24, 1, 4_299_999_999),
        (FileKind::Caf, SampleFormat::S24, 2, 600_000),
        (FileKind::Caf, SampleFormat::F32, 1, 400_000),
    ] {
        let facts = facts(kind, format, channels);
        let path =
            dir.path().join(format!("{kind}-{format}-{channels}-{payload}.{}", facts.extension()));
        write_file(&path, &facts, payload, &cues);
        let frames = payload / facts.shape.frame_bytes();
        // sox reads all of a file to find its end: of the long one its form, made short, will do.
        let path_of_sox = match payload > 1 << 32 {
            true => shortened(dir.path(), &facts),
            false => path.clone(),
        };
        let frames_of_sox = if payload > 1 << 32 { 100_000 } else { frames };
        if let Some(said) = told("soxi", &["-s"], &path_of_sox) {
            was_read[0] = true;
            assert_eq!(
                said.trim().lines().last(),
                Some(frames_of_sox.to_string().as_str()),
                "{}",
                path.display()
            );
            assert!(!said.contains("WARN"), "{said}");
        }
        let entries = "stream=sample_rate,channels,duration_ts:format_tags=time_reference";
        let args = ["-v", "warning", "-of", "default=nw=1", "-show_entries", entries];
        if let Some(said) = told("ffprobe", &args, &path) {
            was_read[1] = true;
            for part in [
                "sample_rate=96000",
                &format!("channels={channels}"),
                &format!("duration_ts={frames}"),
            ] {
                assert!(said.contains(part), "{part} in {}: {said}", path.display());
            }
            if kind == FileKind::Wav {
                assert!(said.contains("time_reference=5875296000"), "{said}");
            }
        }
    }
    if !was_read[0] {
        pinstripe_testing::not_installed("other_programs_read_every_kind_and_length", "soxi");
    }
    if !was_read[1] {
        pinstripe_testing::not_installed("other_programs_read_every_kind_and_length", "ffprobe");
    }
}

#[test]
fn other_programs_get_the_very_samples() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, format, codec) in [
        (FileKind::Wav, SampleFormat::S24, "pcm_s24le"),
        (FileKind::Bw64, SampleFormat::S32, "pcm_s32le"),
        (FileKind::Caf, SampleFormat::S16, "pcm_s16le"),
        (FileKind::Wav, SampleFormat::F32, "pcm_f32le"),
    ] {
        let facts = facts(kind, format, 2);
        let path = dir.path().join(format!("a.{}", facts.extension()));
        let payload = 100 * facts.shape.frame_bytes();
        write_file(&path, &facts, payload, &[]);
        let raw = format.to_string() + "le";
        let path = path.to_str().unwrap();
        let args = ["-v", "error", "-i", path, "-f", &raw, "-c:a", codec, "-"];
        let Ok(output) = Command::new("ffmpeg").args(args).output() else {
            return pinstripe_testing::not_installed(
                "other_programs_get_the_very_samples",
                "ffmpeg",
            );
        };
        let mut expected = vec![0; payload as usize];
        fill_test(&facts.shape, 0, 0, &mut expected);
        assert!(output.stdout == expected, "{kind} {format}");
    }
}

/// A file that is being recorded: more is there than its head tells, zeros of the reservation too.
#[test]
fn a_file_that_goes_on_behind_its_head_is_read_up_to_there() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [FileKind::Wav, FileKind::Caf] {
        let facts = facts(kind, SampleFormat::S24, 1);
        let path = dir.path().join(format!("a.{}", facts.extension()));
        let file = write_file(&path, &facts, 300_000, &[]);
        file.write_all_at(&facts.head(150_000), 0).unwrap();
        file.set_len(4096 + 1_000_000).unwrap();
        let Some(said) = told("soxi", &["-s"], &path) else {
            return pinstripe_testing::not_installed("a_file_that_goes_on_behind_its_head", "soxi");
        };
        assert_eq!(said.trim().lines().last(), Some("50000"), "{kind}");
    }
}

/// Chunks of a CAF file, found as readers find them: from one to the next.
fn caf_chunks(bytes: &[u8]) -> Vec<(&[u8], &[u8])> {
    let (mut at, mut found) = (8, Vec::new());
    while let Some(head) = bytes.get(at..at + 12) {
        let length = u64::from_be_bytes(head[4..].try_into().unwrap()) as usize;
        found.push((&head[..4], &bytes[at + 12..at + 12 + length]));
        at += 12 + length;
    }
    assert_eq!(at, bytes.len());
    found
}

#[test]
fn a_caf_file_has_its_marks_and_what_it_is_of() {
    let facts = facts(FileKind::Caf, SampleFormat::S24, 1);
    let cues = [
        Cue { frame: 5, text: "here".to_owned() },
        Cue { frame: 9, text: "d\u{e9}part".to_owned() },
    ];
    let payload = vec![7; 300];
    let (head, tail) = facts.complete(300, &cues);
    assert_eq!(head.len() as u64, facts.payload_at());
    let file = [head, payload, tail].concat();
    let chunks = caf_chunks(&file);
    let ids: Vec<&[u8]> = chunks.iter().map(|it| it.0).collect();
    assert_eq!(ids, [b"desc", b"info", b"mark", b"strg", b"free", b"data"]);
    let info = String::from_utf8_lossy(chunks[1].1).into_owned();
    for part in ["title\0piano <left>", "scene=s1 tape=t1", "2023-11-14T17:00:01", "=5875296000\0"]
    {
        assert!(info.contains(part), "{part}: {info}");
    }
    let (markers, strings) = (chunks[2].1, chunks[3].1);
    assert_eq!((&markers[4..8], markers.len()), (&[0, 0, 0, 2][..], 8 + 2 * 28));
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    for (number, cue) in cues.iter().enumerate() {
        let marker = &markers[8 + 28 * number..][..28];
        assert_eq!(f64::from_be_bytes(marker[4..12].try_into().unwrap()), cue.frame as f64);
        let place = &strings[4 + 12 * number..][..12];
        assert_eq!(word(&place[..4]), word(&marker[12..16]));
        let at = 4 + 12 * cues.len() + word(&place[8..]) as usize;
        let text = strings[at..].split(|it| *it == 0).next().unwrap();
        assert_eq!(text, cue.text.as_bytes());
    }
    // More than the page has room for stand behind the samples.
    let many: Vec<Cue> = (0..500).map(|frame| Cue { frame, ..cues[0].clone() }).collect();
    let (head, tail) = facts.complete(300, &many);
    let file = [head, vec![7; 300], tail].concat();
    assert_eq!(caf_chunks(&file).iter().map(|it| it.0).nth(4), Some(&b"mark"[..]));
    // Texts of any length leave the head as long as it is.
    let long = "\u{e9}".repeat(5000);
    let long = HeadFacts { name: long.clone(), take: long.clone(), scene: long, ..facts };
    assert_eq!(long.head(0).len(), 4096);
}
