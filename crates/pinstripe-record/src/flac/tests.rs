use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use pinstripe_io::device::{Device, FileDevice, MemoryDevice, SharedDevice};
use pinstripe_io::pool::WorkerPool;

use super::*;
use crate::header::{Cue, FileKind, HeadFacts, LocalTime};
use crate::sample::fill_test;

fn facts(format: SampleFormat, channels: u16, rate: u32) -> HeadFacts {
    HeadFacts {
        kind: FileKind::Flac,
        shape: StreamShape { format, channels, rate },
        name: "piano".to_owned(),
        take: "take 1".to_owned(),
        scene: "s1".to_owned(),
        tape: String::new(),
        started: LocalTime { seconds: 1_699_981_201, nanos: 0 },
        start_frame: 0,
        index: 0,
        total: 1,
        uid: "00112233445566778899aabbccddeeff".to_owned(),
    }
}

/// Whether this system has libFLAC.
fn has_library(test: &str) -> bool {
    let is_there = library::FlacLibrary::get().is_ok();
    if !is_there {
        pinstripe_testing::not_installed(test, "libFLAC");
    }
    is_there
}

fn payload(facts: &HeadFacts, frames: u64) -> Vec<u8> {
    let mut payload = vec![0; (frames * facts.shape.frame_bytes()) as usize];
    fill_test(&facts.shape, 3, 0, &mut payload);
    payload
}

/// Writes a payload in pieces that are no whole frames, as the recorder does; then ends the file.
fn written(file: SharedDevice, facts: &HeadFacts, payload: &[u8], cues: &[Cue]) {
    /// Ends the threads of a pool, where a check fails as well.
    struct Ended<'a>(&'a WorkerPool<'static>);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let pool = Arc::new(WorkerPool::default());
    std::thread::scope(|scope| {
        scope.spawn(|| pool.work(&|| {}));
        let _ended = Ended(&pool);
        let at = facts.payload_at();
        let writer = FlacWriter::new(file, facts.shape, at, &pool).unwrap();
        writer.write_at(0, &facts.head(0)).unwrap();
        let mut done = 0;
        for part in payload.chunks(10_007) {
            writer.write_at(at + done, part).unwrap();
            done += part.len() as u64;
            writer.sync().unwrap();
            let durable = writer.durable_bytes();
            assert!(durable <= done && durable.is_multiple_of(4096 * facts.shape.frame_bytes()));
        }
        writer.finish().unwrap();
        writer.sync().unwrap();
        assert_eq!(writer.durable_bytes(), payload.len() as u64);
        writer.set_len(at + payload.len() as u64).unwrap();
        writer.write_at(0, &facts.complete(payload.len() as u64, cues).0).unwrap();
        assert!(writer.write_at(at, &[0; 6]).is_err(), "only at its end");
    });
}

fn read_back(file: &SharedDevice, facts: &HeadFacts, from: u64, bytes: usize) -> Result<Vec<u8>> {
    let reader = FlacReader::new(SharedDevice::clone(file), facts.shape, facts.payload_at())?;
    let mut out = vec![0; bytes];
    reader.read_at(facts.payload_at() + from, &mut out).map(|()| out)
}

#[test]
fn samples_come_back_from_any_place_in_every_format() {
    if !has_library("samples_come_back_from_any_place") {
        return;
    }
    for (format, channels) in [
        (SampleFormat::S24, 1),
        (SampleFormat::S16, 2),
        (SampleFormat::U8, 1),
        (SampleFormat::S24, 8),
    ] {
        let facts = facts(format, channels, 96_000);
        let content = payload(&facts, 100_001);
        let file: SharedDevice = Arc::new(MemoryDevice::new("a.flac"));
        written(SharedDevice::clone(&file), &facts, &content, &[]);
        assert!(read_back(&file, &facts, 0, content.len()).unwrap() == content, "{format}");
        // One reader for all places, forward and back, in the middle of samples as well.
        let reader = FlacReader::new(Arc::clone(&file), facts.shape, facts.payload_at()).unwrap();
        for from in [content.len() - 100, 7, 50_001, 50_000, content.len() / 2, 0] {
            let mut part = vec![0; 100];
            reader.read_at(facts.payload_at() + from as u64, &mut part).unwrap();
            assert_eq!(part, content[from..from + 100], "{format} from {from}");
        }
        let beyond = read_back(&file, &facts, content.len() as u64 - 10, 20).unwrap_err();
        assert_eq!(beyond.kind(), Kind::Corrupt);
    }
}

#[test]
fn a_file_is_cut_to_the_sample_and_ends_with_a_block_of_that_length() {
    if !has_library("a_file_is_cut_to_the_sample") {
        return;
    }
    for (format, channels, rate) in [(SampleFormat::S24, 2, 48_000), (SampleFormat::U8, 1, 44_111)]
    {
        let facts = facts(format, channels, rate);
        let content = payload(&facts, 50_000);
        let size = facts.shape.frame_bytes();
        for frames in [50_000, 49_999, 45_057, 45_056, 45_055, 4097, 4096, 1, 0] {
            let file: SharedDevice = Arc::new(MemoryDevice::new("a.flac"));
            written(SharedDevice::clone(&file), &facts, &content, &[]);
            // What a crash left behind the last whole frame.
            let end = file.len().unwrap();
            file.write_at(end, &[0xff, 0xf8, 0x59, 0x18, 3, 1, 4]).unwrap();
            let at = facts.payload_at();
            let reader = FlacReader::new(Arc::clone(&file), facts.shape, at).unwrap();
            reader.set_len(at + frames * size).unwrap();
            let kept = (frames * size) as usize;
            assert!(read_back(&file, &facts, 0, kept).unwrap() == content[..kept], "{frames}");
            assert!(read_back(&file, &facts, frames * size, 1).is_err(), "{frames}");
        }
        let file: SharedDevice = Arc::new(MemoryDevice::new("a.flac"));
        written(SharedDevice::clone(&file), &facts, &content, &[]);
        let reader = FlacReader::new(Arc::clone(&file), facts.shape, facts.payload_at()).unwrap();
        let told = reader.set_len(facts.payload_at() + 50_001 * size).unwrap_err();
        assert_eq!(told.kind(), Kind::Corrupt, "no sample is invented");
    }
}

/// What another program decodes, if there is such a program.
fn decoded(program: &str, args: &[&str], path: &Path) -> Option<Vec<u8>> {
    let path = path.to_str().unwrap();
    let args = args.iter().map(|it| it.replace("FILE", path));
    let output = Command::new(program).args(args).output().ok()?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {path}: {complaints}");
    Some(output.stdout)
}

#[test]
fn other_programs_decode_the_very_samples_and_find_their_checksum_right() {
    if !has_library("other_programs_decode_the_very_samples") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let cues = [Cue { frame: 48_000, text: "here".to_owned() }];
    let mut read = [false; 3];
    for (format, channels, frames) in [
        (SampleFormat::S24, 1, 100_001),
        (SampleFormat::S16, 2, 60_000),
        (SampleFormat::S24, 2, 4096),
    ] {
        let facts = facts(format, channels, 96_000);
        let content = payload(&facts, frames);
        for is_cut in [false, true] {
            let path = dir.path().join(format!("{format}-{channels}-{frames}-{is_cut}.flac"));
            let (access, policy) =
                (pinstripe_io::device::Access::Write, pinstripe_io::device::Policy::Buffered);
            std::fs::File::create(&path).unwrap();
            let file: SharedDevice = Arc::new(FileDevice::open(&path, access, policy).unwrap());
            written(Arc::clone(&file), &facts, &content, &cues);
            let mut wanted = &content[..];
            if is_cut {
                let bytes = (frames - 1234) * facts.shape.frame_bytes();
                let at = facts.payload_at();
                let reader = FlacReader::new(Arc::clone(&file), facts.shape, at).unwrap();
                reader.set_len(at + bytes).unwrap();
                reader.write_at(0, &facts.complete(bytes, &cues).0).unwrap();
                wanted = &content[..bytes as usize];
            }
            let bits = (8 * format.bytes()).to_string();
            let raw = format!("{format}le");
            let codec = format!("pcm_{raw}");
            let ffmpeg = ["-v", "error", "-i", "FILE", "-f", &raw, "-c:a", &codec, "-"];
            let sox = ["-D", "FILE", "-t", "raw", "-e", "signed", "-b", &bits, "-L", "-"];
            let flac = [
                "-d",
                "-c",
                "-s",
                "--force-raw-format",
                "--endian=little",
                "--sign=signed",
                "FILE",
            ];
            for (number, (program, args)) in
                [("ffmpeg", &ffmpeg[..]), ("sox", &sox[..]), ("flac", &flac[..])]
                    .into_iter()
                    .enumerate()
            {
                let Some(samples) = decoded(program, args, &path) else { continue };
                read[number] = true;
                assert!(samples == wanted, "{program} {} {}", path.display(), samples.len());
            }
            if decoded("flac", &["-t", "-s", "FILE"], &path).is_some() {
                let told =
                    Command::new("metaflac").arg("--show-md5sum").arg(&path).output().unwrap();
                let is_set = !told.stdout.starts_with(b"00000000");
                assert_eq!(is_set, !is_cut, "the checksum is of all samples, or not set");
                let args = ["--export-tags-to=-", "FILE"];
                let tags = decoded("metaflac", &args, &path).unwrap();
                let tags = String::from_utf8(tags).unwrap();
                for tag in ["TITLE=piano", "TIME_REFERENCE=5875296000", "CHAPTER001NAME=here"] {
                    assert!(tags.contains(tag), "{tag} in {tags}");
                }
            }
        }
    }
    for (program, was_read) in ["ffmpeg", "sox", "flac"].into_iter().zip(read) {
        if !was_read {
            pinstripe_testing::not_installed("other_programs_decode_the_very_samples", program);
        }
    }
}

/// A file that goes on: its head tells of whole blocks, more is there, the last of it not whole.
#[test]
fn a_file_that_goes_on_behind_its_head_is_read_up_to_there() {
    if !has_library("a_file_that_goes_on_behind_its_head") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let facts = facts(SampleFormat::S24, 1, 48_000);
    let content = payload(&facts, 60_000);
    let path = dir.path().join("a.flac");
    let file = MemoryDevice::new("a.flac");
    let file: SharedDevice = Arc::new(file);
    written(Arc::clone(&file), &facts, &content, &[]);
    let mut bytes = vec![0; file.len().unwrap() as usize - 1000];
    file.read_at(0, &mut bytes).unwrap();
    bytes[..facts.payload_at() as usize].copy_from_slice(&facts.head(3 * 30_000));
    std::fs::write(&path, &bytes).unwrap();
    let packed = u64::from_be_bytes(bytes[18..26].try_into().unwrap());
    assert_eq!(
        packed & ((1 << 36) - 1),
        7 * 4096,
        "a reader gives the whole block that it ends in"
    );
    let ffmpeg = ["-v", "quiet", "-i", "FILE", "-f", "s24le", "-c:a", "pcm_s24le", "-"];
    let sox = ["-V1", "-D", "FILE", "-t", "raw", "-e", "signed", "-b", "24", "-L", "-"];
    for (program, args) in [("ffmpeg", &ffmpeg[..]), ("sox", &sox[..])] {
        match decoded(program, args, &path) {
            // 30,000 frames are 7 whole blocks and a part of one.
            Some(samples) => {
                assert!(samples.len() >= 3 * 7 * 4096, "{program}: {}", samples.len());
                assert!(samples[..] == content[..samples.len()], "{program}");
            }
            None => {
                pinstripe_testing::not_installed("a_file_that_goes_on_behind_its_head", program)
            }
        }
    }
}

#[test]
fn what_flac_has_not_is_refused_and_hostile_files_are_errors() {
    let shape = |format, channels, rate| StreamShape { format, channels, rate };
    for bad in [
        shape(SampleFormat::F32, 1, 48_000),
        shape(SampleFormat::S32, 1, 48_000),
        shape(SampleFormat::S24, 9, 48_000),
        shape(SampleFormat::S24, 1, 1 << 20),
    ] {
        assert_eq!(check_flac(&bad).unwrap_err().kind(), Kind::Usage, "{bad:?}");
    }
    if !has_library("hostile_files_are_errors") {
        return;
    }
    let facts = facts(SampleFormat::S16, 2, 48_000);
    let good: SharedDevice = Arc::new(MemoryDevice::new("good"));
    written(Arc::clone(&good), &facts, &payload(&facts, 20_000), &[]);
    let other = HeadFacts { shape: shape(SampleFormat::S24, 1, 48_000), ..facts.clone() };
    assert_eq!(read_back(&good, &other, 0, 99).unwrap_err().kind(), Kind::Corrupt);
    let mut bytes = vec![0; good.len().unwrap() as usize];
    good.read_at(0, &mut bytes).unwrap();
    let mut random = 7_u64;
    for _ in 0..200 {
        let mut hurt = bytes.clone();
        for _ in 0..3 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (random >> 33) as usize % hurt.len();
            hurt[at] ^= (random >> 24) as u8;
        }
        hurt.truncate((random >> 40) as usize % bytes.len());
        let file: SharedDevice = Arc::new(MemoryDevice::new("hurt"));
        file.write_at(0, &hurt).unwrap();
        // Samples or an error, and neither a crash nor a loop without end.
        let _ = read_back(&file, &facts, 40_000, 1000);
        let reader = FlacReader::new(file, facts.shape, facts.payload_at()).unwrap();
        let _ = reader.set_len(facts.payload_at() + 4 * 12_345);
    }
}
