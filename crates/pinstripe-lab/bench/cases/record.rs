//! The recorder: many streams through small rings, alone and beside a storm of writes, and a naive
//! writer beside it in the same run.
//!
//! The naive writer is what a first version of a recorder does: one thread takes 1 MiB of each stream
//! in turn from rings of that size and writes it; in a second variant it also syncs each file once a
//! second. Its rings are arithmetic, so it has neither locks nor memory traffic to pay for.
//! The content of every recorded take is verified.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_base::units::parse_size;
use pinstripe_record::engine::EngineSettings;
use pinstripe_record::header::{FileKind, LocalTime};
use pinstripe_record::input::{RecordInput, TestInput};
use pinstripe_record::recorder::{TakePlan, record};
use pinstripe_record::sample::{SampleFormat, StreamShape};
use pinstripe_record::take::{DiskFolder, TakeFolder};
use pinstripe_record::verify::verify;
use pinstripe_record::writes::WritePolicy;

use super::{count, pairs};
use crate::Result;
use crate::table::{Align, Cell, Table};

pub const ABOUT: &str = "the recorder and a naive writer, alone and beside a storm: --work DIR, \
    --streams N, --rate HZ, --ring SIZE, --chunk SIZE, --writes buffered|direct, --seconds N, --rounds N";

/// What the storm writes before it begins again at the front.
const STORM_BYTES: u64 = 4 << 30;
/// In the second storm: after so many bytes it waits until they are durable.
const STORM_SYNC_BYTES: u64 = 512 << 20;
const GUST: usize = 1 << 20;
const NAIVE_BYTES: u64 = 1 << 20;

struct Settings {
    work: PathBuf,
    streams: usize,
    rate: u32,
    ring: u64,
    chunk: u64,
    writes: WritePolicy,
    seconds: u64,
    rounds: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Storm {
    None,
    Flat,
    Syncing,
}

/// Measures.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let known =
        ["--work", "--streams", "--rate", "--ring", "--chunk", "--seconds", "--rounds", "--writes"];
    let mut settings = Settings {
        work: std::env::temp_dir(),
        streams: 256,
        rate: 96_000,
        ring: 128 << 10,
        chunk: 32 << 10,
        writes: WritePolicy::Buffered,
        seconds: 20,
        rounds: 1,
    };
    let size = |value: &str| parse_size(value).map_err(|error| error.to_string());
    for (name, value) in pairs(args, &known)? {
        match name {
            "--work" => settings.work = value.into(),
            "--streams" => settings.streams = count(name, value)? as usize,
            "--rate" => settings.rate = count(name, value)? as u32,
            "--ring" => settings.ring = size(value)?,
            "--chunk" => settings.chunk = size(value)?,
            "--writes" => settings.writes = writes(value)?,
            "--rounds" => settings.rounds = count(name, value)?,
            _ => settings.seconds = count(name, value)?,
        }
    }
    let note = format!(
        "{} streams of 24 bit at {} Hz for {} s each, in {}. A storm writes as fast as the disk takes it; \
         the syncing one makes 512 MiB durable at a time. Lag: age of the oldest sample that no \
         journal vouches for. CPU seconds per GB of payload.",
        settings.streams,
        settings.rate,
        settings.seconds,
        settings.work.display(),
    );
    let mut table = Table::new("Recorder", &note, &COLUMNS);
    for _ in 0..settings.rounds {
        for storm in [Storm::None, Storm::Flat, Storm::Syncing] {
            recorder(&settings, storm, &mut table)?;
            naive(&settings, storm, false, &mut table)?;
            naive(&settings, storm, true, &mut table)?;
        }
    }
    Ok(vec![table])
}

fn writes(text: &str) -> Result<WritePolicy> {
    match text {
        "buffered" => Ok(WritePolicy::Buffered),
        "direct" => Ok(WritePolicy::Direct),
        _ => Err(format!("--writes buffered or direct, not '{text}'")),
    }
}

const COLUMNS: [(&str, Align); 15] = [
    ("writer", Align::Left),
    ("storm", Align::Left),
    ("ring KiB", Align::Right),
    ("overruns", Align::Right),
    ("lost frames", Align::Right),
    ("ring worst %", Align::Right),
    ("longest write ms", Align::Right),
    ("lag worst s", Align::Right),
    ("slowest commit ms", Align::Right),
    ("of it syncs ms", Align::Right),
    ("CPU inputs", Align::Right),
    ("CPU writer", Align::Right),
    ("CPU commits", Align::Right),
    ("storm MB/s", Align::Right),
    ("content", Align::Left),
];

impl Storm {
    fn name(self) -> &'static str {
        match self {
            Storm::None => "none",
            Storm::Flat => "flat out",
            Storm::Syncing => "syncing",
        }
    }

    /// Writes over and over a file beside the take while `work` goes on; what came of that, and the
    /// rate of the storm.
    fn beside<T>(self, work: &Path, job: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        let (over, written) = (AtomicBool::new(self == Storm::None), AtomicU64::new(0));
        let path = work.join("storm");
        let began = Instant::now();
        let done = std::thread::scope(|scope| {
            let storm = scope.spawn(|| self.blow(&path, &over, &written));
            let done = job();
            over.store(true, Ordering::Relaxed);
            storm
                .join()
                .map_err(|_| "the storm panicked".to_owned())?
                .map_err(|it| it.to_string())?;
            done
        });
        let rate = written.into_inner() as f64 / began.elapsed().as_secs_f64() / 1e6;
        let _ = fs::remove_file(&path);
        rustix::fs::sync();
        done.map(|it| (it, rate))
    }

    fn blow(self, path: &Path, over: &AtomicBool, written: &AtomicU64) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        let file = File::create(path)?;
        let gust = vec![0x5a; GUST];
        let mut at = 0;
        while !over.load(Ordering::Relaxed) {
            file.write_all_at(&gust, at % STORM_BYTES)?;
            at += GUST as u64;
            written.store(at, Ordering::Relaxed);
            if self == Storm::Syncing && at.is_multiple_of(STORM_SYNC_BYTES) {
                file.sync_data()?;
            }
        }
        Ok(())
    }
}

fn shape(settings: &Settings) -> StreamShape {
    StreamShape { format: SampleFormat::S24, channels: 1, rate: settings.rate }
}

fn recorder(settings: &Settings, storm: Storm, table: &mut Table) -> Result<()> {
    let plan = TakePlan {
        take: "bench-take".to_owned(),
        kind: FileKind::Wav,
        scene: String::new(),
        tape: String::new(),
        started: LocalTime { seconds: 0 },
        started_seconds: 0,
        ring_bytes: settings.ring,
        engine: EngineSettings {
            chunk_bytes: settings.chunk,
            commit_every: Duration::from_secs(1),
            is_realtime: true,
            writes: settings.writes,
            segment_seconds: None,
            segment_bytes: None,
        },
        is_mirrored: false,
        most: Some(Duration::from_secs(settings.seconds)),
        armed: None,
        beside: None,
    };
    let path = settings.work.join(&plan.take);
    let monitor = Arc::new(Monitor::default());
    let stop = Stop::new().map_err(|error| error.to_string())?;
    let input = || -> Vec<Box<dyn RecordInput>> {
        vec![Box::new(TestInput::of(shape(settings), settings.streams))]
    };
    let folders = || {
        let folder = DiskFolder::create(&settings.work, &plan.take, None)?;
        Ok(vec![Arc::new(folder.with_writes(settings.writes)) as Arc<dyn TakeFolder>])
    };
    let (outcome, storm_rate) = storm.beside(&settings.work, || {
        let told = record(&plan, input(), &folders, (&stop, &monitor), &mut |_, _| {});
        told.map_err(|error| error.to_string())
    })?;
    let verified = verify(&path, &Monitor::default()).map_err(|error| error.to_string())?;
    fs::remove_dir_all(&path).map_err(|error| error.to_string())?;
    let figures = &outcome.figures;
    let per_gb = |seconds: f64| Cell::Number(seconds / (figures.written_bytes as f64 / 1e9), 2);
    let is_right = verified.damaged_bytes == 0 && verified.wrong_frames == 0;
    table.row([
        format!("pinstripe record, {}", settings.writes).into(),
        storm.name().into(),
        (settings.ring >> 10).into(),
        figures.overruns.into(),
        figures.lost_frames.into(),
        Cell::Number(figures.ring_worst_percent, 0),
        Cell::Number(figures.longest_write_ms, 1),
        Cell::Number(figures.durable_lag_worst_ms / 1e3, 2),
        Cell::Number(figures.slowest_commit.ms, 0),
        Cell::Number(figures.slowest_commit.sync_ms, 0),
        per_gb(outcome.input_cpu.as_secs_f64()),
        per_gb(outcome.last.writer_cpu_seconds),
        per_gb(outcome.last.commit_cpu_seconds),
        Cell::Number(storm_rate, 0),
        if is_right { "right" } else { "WRONG" }.into(),
    ]);
    Ok(())
}

/// What the naive writer came to.
#[derive(Default)]
struct Naive {
    overruns: u64,
    lost_bytes: u64,
    peak_bytes: u64,
    longest: Duration,
    lag: Duration,
    written_bytes: u64,
    cpu: f64,
}

fn naive(settings: &Settings, storm: Storm, syncs: bool, table: &mut Table) -> Result<()> {
    let dir = settings.work.join("bench-naive");
    let (found, storm_rate) = storm.beside(&settings.work, || {
        write_naively(settings, &dir, syncs).map_err(|error| error.to_string())
    })?;
    fs::remove_dir_all(&dir).map_err(|error| error.to_string())?;
    let lag = match syncs {
        true => Cell::Number(found.lag.as_secs_f64(), 2),
        false => "never durable".into(),
    };
    table.row([
        if syncs { "naive, fsync each second" } else { "naive, no fsync" }.into(),
        storm.name().into(),
        (NAIVE_BYTES >> 10).into(),
        found.overruns.into(),
        (found.lost_bytes / 3).into(),
        Cell::Number(100.0 * found.peak_bytes as f64 / NAIVE_BYTES as f64, 0),
        Cell::Number(found.longest.as_secs_f64() * 1e3, 1),
        lag,
        "-".into(),
        "-".into(),
        "-".into(),
        Cell::Number(found.cpu / (found.written_bytes as f64 / 1e9), 2),
        "-".into(),
        Cell::Number(storm_rate, 0),
        "not looked at".into(),
    ]);
    Ok(())
}

fn write_naively(settings: &Settings, dir: &Path, syncs: bool) -> std::io::Result<Naive> {
    const BLOCK: u64 = 64 << 10;
    fs::create_dir_all(dir)?;
    let rate = shape(settings).byte_rate() as f64;
    let mut files = (0..settings.streams)
        .map(|it| File::create(dir.join(it.to_string())))
        .collect::<std::io::Result<Vec<_>>>()?;
    let block = vec![1; BLOCK as usize];
    let mut found = Naive::default();
    let mut taken = vec![0_u64; files.len()];
    let cpu = pinstripe_record::realtime::thread_time();
    let (began, mut next_sync) = (Instant::now(), 1.0);
    let mut durable = vec![0_u64; files.len()];
    while began.elapsed().as_secs() < settings.seconds {
        let mut is_idle = true;
        for (file, taken) in files.iter_mut().zip(&mut taken) {
            let waiting = ((began.elapsed().as_secs_f64() * rate) as u64).saturating_sub(*taken);
            found.peak_bytes = found.peak_bytes.max(waiting);
            if waiting > NAIVE_BYTES {
                found.overruns += 1;
                found.lost_bytes += waiting - NAIVE_BYTES;
                *taken += waiting - NAIVE_BYTES;
            }
            if waiting >= BLOCK {
                is_idle = false;
                let write = Instant::now();
                file.write_all(&block)?;
                found.longest = found.longest.max(write.elapsed());
                *taken += BLOCK;
                found.written_bytes += BLOCK;
            }
        }
        if syncs && began.elapsed().as_secs_f64() >= next_sync {
            for ((file, taken), durable) in files.iter().zip(&taken).zip(&mut durable) {
                file.sync_data()?;
                let age = began.elapsed().as_secs_f64() - *durable as f64 / rate;
                found.lag = found.lag.max(Duration::from_secs_f64(age.max(0.0)));
                *durable = *taken;
            }
            next_sync = began.elapsed().as_secs_f64().max(next_sync + 1.0);
        }
        if is_idle {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    found.cpu = (pinstripe_record::realtime::thread_time() - cpu).as_secs_f64();
    Ok(found)
}
