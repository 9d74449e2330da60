//! Measures how many streams can be recorded at a given rate and with a given ring while another
//! writer is busy.

mod figures;
mod options;
mod search;
mod tables;
mod ways;

use std::fs::File;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Access, Policy};
use pinstripe_record::WritePolicy;
use pinstripe_stats::Better;
use rustix::fs::FallocateFlags;

use self::figures::latency;
use self::options::OPTIONS;
use self::tables::tables;
use self::ways::{Way, ways};
use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::io::Target;
use crate::io::recorder::{
    EngineTake, Recorded, Recording, SchedulingClass, check, record, refuse_unfit,
};
use crate::result::{Measured, Metric, Note, Parameter};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};

/// The case.
pub static CASE: Case = Case {
    name: "record-probe",
    about: "Record many streams at a fixed rate while other writes load the disk, and count lost \
            data and stalls",
    help: "\
Each stream produces data at a fixed rate, like sound or video, even if the disk cannot write it in time. A \
clock determines how much data is produced, so every stall of the disk becomes visible as data that had to \
wait. The threads of --writers serve the streams in turn, and write a chunk of a stream as soon as the chunk \
is complete; one more thread syncs all files every --sync-every seconds. A variant runs without other writes \
('idle'), or while a thread of pinstripe writes 1 MiB blocks to the disk as fast as possible ('storm').

The result is the backlog: the largest amount of data, in KiB, that waited in the ring buffer of one stream. \
The table also shows overruns (the size of --ring was too small), stalls of more than 100 ms, the durable \
lag (the greatest age of a byte that a power cut would have lost), and the ring buffer size that each stream \
needs:
  ring size = chunk + rate x (round + 2 x longest write), rounded up to a power of two
A round is the time in which a writer writes one chunk of each of its streams. After each run, all streams \
are read and compared with the recorded data; the time for this is not measured.",
    examples: "\
  pinstripe lab run record-probe --dir /srv/audio
  pinstripe lab run record-probe --streams 256 --rate 288K --ring 128K --run-time 20
  pinstripe lab run record-probe --find-most 1024 --ring 128K --under storm --run-time 10
  pinstripe lab run record-probe --policies direct --io-class normal,rt --under storm
  pinstripe lab run record-probe --streams 8 --rate 50M --chunk 4M --ring 64M --policies direct",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

/// The number of longest writes that are listed for each run.
const LISTED: usize = 5;

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let recording = Recording {
        rate: values.size("rate"),
        chunk_bytes: values.size("chunk") as usize,
        ring_bytes: values.size("ring"),
        time: shared::seconds(values, "run-time")?,
        writers: values.count("writers") as usize,
        sync_every: Some(shared::seconds(values, "sync-every")?).filter(|it| !it.is_zero()),
        storm_bytes: values.size("storm-size"),
        storm_sync_bytes: values.size("storm-sync"),
        class: SchedulingClass::Normal,
        seed: setting.seed,
    };
    if recording.rate == 0 || recording.chunk_bytes == 0 {
        return Err(Error::new(
            Kind::Usage,
            "the rate and the chunk size of a stream must be greater than 0",
        ));
    }
    if recording.ring_bytes < recording.chunk_bytes as u64 {
        return Err(Error::new(Kind::Usage, "a ring must hold at least one chunk")
            .advice("increase --ring, or reduce --chunk"));
    }
    let dir = shared::one_directory(setting)?;
    let (ways, notes) = ways(values)?;
    if ways.iter().any(|it| it.of_recorder().is_some()) {
        let most = if values.has("find-most") { values.count("find-most") } else { 0 };
        refuse_unfit(&recording, values.count("streams").max(most))?;
    }
    Ok(Box::new(RecordProbe {
        parameters: shared::parameters(OPTIONS, values),
        dir,
        folder: None,
        ways,
        notes,
        streams: values.count("streams"),
        find_most: values.has("find-most").then(|| values.count("find-most")),
        is_reserved: values.has("preallocate"),
        seed: setting.seed,
        recording,
        targets: Vec::new(),
        chunks: Vec::new(),
        take: None,
        storm: None,
    }))
}

struct RecordProbe {
    parameters: Vec<Parameter>,
    dir: PathBuf,
    folder: Option<Folder>,
    ways: Vec<Way>,
    notes: Vec<String>,
    streams: u64,
    /// The upper limit of a search for the greatest number of streams; `None` if no search is made.
    find_most: Option<u64>,
    /// Whether space is reserved before the recording.
    is_reserved: bool,
    seed: u64,
    recording: Recording,
    targets: Vec<Target>,
    /// The recording of the last run: its chunks, by stream.
    chunks: Vec<u64>,
    /// The recording of the last run, if the recorder's own engine made it.
    take: Option<EngineTake>,
    storm: Option<Target>,
}

impl RecordProbe {
    /// The most bytes that a stream can reach.
    fn bytes_of_each(&self) -> u64 {
        let bytes = (self.recording.time.as_secs_f64() + 1.0) * self.recording.rate as f64;
        bytes as u64 + self.recording.chunk_bytes as u64
    }

    fn bytes(&self) -> u64 {
        let streams = self.find_most.unwrap_or(self.streams).max(self.streams);
        self.bytes_of_each() * streams + self.recording.storm_bytes
    }

    /// Opens this many new streams, and closes all others.
    fn open(&mut self, streams: u64, way: Way) -> Result<()> {
        let old: Vec<PathBuf> =
            self.targets.drain(..).map(|it| it.device().place().to_path_buf()).collect();
        shared::remove_files(&old)?;
        self.take.take().map_or(Ok(()), EngineTake::remove)?;
        if way.of_recorder().is_some() {
            return self.settle_storm();
        }
        let policy: Policy = way.policy.parse()?;
        let folder = self.folder.as_ref().expect("it was made before the first run");
        for path in folder.files("stream", streams) {
            // The list is what is removed: it has the file as soon as there is one.
            self.targets.push(Target::open(&path, Access::Create, policy)?);
            if self.is_reserved {
                reserve(&path, self.bytes_of_each())?;
            }
        }
        self.settle_storm()
    }

    /// Waits until the writes of the previous storm are on the disk.
    fn settle_storm(&self) -> Result<()> {
        self.storm.iter().try_for_each(|it| it.sync(false).map(drop))
    }

    fn record(&mut self, way: Way, streams: u64, live: &Live) -> Result<Recorded> {
        self.recording.class = way.class();
        let storm = self.storm.as_ref().filter(|_| way.under == "storm");
        if let Some(writes) = way.of_recorder() {
            let folder = self.folder.as_ref().expect("it was made before the first run");
            let asked = (streams as usize, writes);
            let made = EngineTake::record(&folder.path(""), &self.recording, asked, storm, live);
            let (take, recorded) = made?;
            self.take = Some(take);
            return Ok(recorded);
        }
        let recorded = record(&self.recording, &self.targets, storm, live)?;
        self.chunks.clone_from(&recorded.chunks);
        Ok(recorded)
    }

    fn check_streams(&self, live: &Live) -> Result<()> {
        match &self.take {
            Some(take) => take.check(),
            None => check(&self.recording, &self.targets, &self.chunks, live),
        }
    }

    /// Searches for the greatest number of streams. Returns the outcome of the best try, if any.
    fn search(&mut self, way: Way, most: u64, live: &Live) -> Result<Outcome> {
        let (mut best, mut outcome) = (None, Outcome::default());
        let start = self.streams;
        let found = search::most(start, most, |streams| {
            live.check()?;
            self.open(streams, way)?;
            let recorded = self.record(way, streams, live)?;
            self.check_streams(live)?;
            outcome.measured.operations += recorded.write_count();
            outcome.measured.written_bytes += recorded.written_bytes;
            outcome.beside_read_bytes += recorded.written_bytes;
            outcome.beside_written_bytes += recorded.storm_bytes;
            outcome.syncs += recorded.syncs.count();
            let fits = recorded.overruns == 0;
            if fits {
                best = Some((streams, recorded));
            }
            Ok(fits)
        })?;
        if let Some((streams, recorded)) = best {
            outcome.measured.figures = self.figures(&recorded, streams);
            outcome.measured.latency = latency(&recorded);
        }
        outcome.measured.figures.insert("tries".to_owned(), found.tries as f64);
        let over = found.over.map(|it| ("overran_at".to_owned(), it as f64));
        outcome.measured.figures.extend(over);
        outcome.measured.value = found.most as f64;
        Ok(outcome)
    }

    fn notes_of(&self, way: Way) -> Vec<Note> {
        let chunk_bytes = self.recording.chunk_bytes;
        let is_refused = way.policy.starts_with("direct")
            && self.targets.iter().any(|it| it.is_direct(chunk_bytes) == Some(false));
        if let Some(writes) = way.of_recorder() {
            let is_refused = writes == WritePolicy::Direct
                && self.take.as_ref().is_some_and(|it| !it.is_direct());
            return is_refused.then_some(Note::NotDirect).into_iter().collect();
        }
        let waits = self.recording.sync_every.is_some() || way.policy.contains("sync");
        let is_accepted = (!waits).then_some(Note::AcceptedNotDurable);
        is_refused.then_some(Note::NotDirect).into_iter().chain(is_accepted).collect()
    }
}

/// Reserves this many bytes for a file, which then has this length.
fn reserve(path: &Path, bytes: u64) -> Result<()> {
    let failed = |error| Error::io("cannot reserve space for the file", path, error);
    let file = File::options().write(true).open(path).map_err(failed)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)
        .map_err(|errno| failed(errno.into()).advice("leave out --preallocate"))
}

impl Plan for RecordProbe {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let metric = match self.find_most {
            Some(_) => ("streams", "streams", Better::Higher),
            None => ("backlog", "KiB waiting", Better::Lower),
        };
        let spec = |Way { policy, under, class }: &Way| {
            let suffix = match *class {
                "normal" => String::new(),
                class => format!(", {class}"),
            };
            let many = match self.find_most {
                Some(most) => format!("the largest possible number of streams, up to {most}"),
                None => format!("{} streams", self.streams),
            };
            let (name, unit, better) = metric;
            VariantSpec {
                name: format!("{policy}, {under}{suffix}"),
                group: (*under).to_owned(),
                about: format!("{many} written {policy}, {under}{suffix}"),
                parameters: vec![
                    Parameter::new("policy", policy),
                    Parameter::new("under", under),
                    Parameter::new("io-class", class),
                ],
                metric: Metric { name: name.to_owned(), unit: unit.to_owned(), better },
                place: PlaceNo::FIRST,
            }
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.dir.clone()]
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn intents(&self) -> Vec<String> {
        vec![shared::intent(&self.dir, CASE.name, self.bytes())]
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        vec![(self.dir.clone(), self.bytes())]
    }

    fn prepare(&mut self, _: &Live) -> Result<()> {
        let folder = Folder::make(&self.dir, CASE.name, self.bytes())?;
        let storm = folder.path("storm");
        self.folder = Some(folder);
        self.storm = Some(Target::open(&storm, Access::Create, Policy::Buffered)?);
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        let streams = if self.find_most.is_some() { 0 } else { self.streams };
        self.open(streams, self.ways[variant.0])
    }

    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome> {
        let way = self.ways[variant.0];
        self.recording.seed = pinstripe_base::random::of_run(self.seed, number);
        if let Some(most) = self.find_most {
            let outcome = self.search(way, most, live)?;
            return Ok(Outcome { notes: self.notes_of(way), ..outcome });
        }
        let recorded = self.record(way, self.streams, live)?;
        Ok(Outcome {
            measured: Measured {
                value: recorded.peak_bytes as f64 / 1024.0,
                operations: recorded.write_count(),
                written_bytes: recorded.written_bytes,
                figures: self.figures(&recorded, self.streams),
                latency: latency(&recorded),
                ..Measured::default()
            },
            beside_written_bytes: recorded.storm_bytes,
            syncs: recorded.syncs.count(),
            notes: self.notes_of(way),
            ..Outcome::default()
        })
    }

    fn check(&mut self, _: VariantNo, live: &Live) -> Result<()> {
        match self.find_most {
            // Each try was checked when it was over.
            Some(_) => Ok(()),
            None => self.check_streams(live),
        }
    }

    fn clean(&mut self) -> Result<()> {
        self.targets.clear();
        self.take = None;
        self.storm = None;
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

#[cfg(test)]
mod tests;
