//! Begins a take: creates rings, directories and files, and makes all of this durable before the
//! first sample arrives.

#![allow(
    clippy::disallowed_methods,
    reason = "this module creates the files of a take in several threads"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::hex;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::{Stop, into_inner, lock};
use pinstripe_base::units::{format_count, format_size};

use super::status::{InputClock, RunningTake};
use super::{DirectoryCopies, TakePlan, check};
use crate::drift::ClockDrift;
use crate::engine::{
    Gate, RollArea, SharedStream, SharedTake, StreamCopy, StreamFile, TakeDirectory, keep_head_room,
};
use crate::flac::check_flac;
use crate::header::FileKind;
use crate::input::RecordInput;
use crate::limits::{ARENA_MAX_BYTES, STREAMS_MAX, SYNCS_IN_FLIGHT};
use crate::locks::{RankedMutex, RecordLock};
use crate::meter::Meter;
use crate::ring::{Arena, InputBeginning, Ring, RingConsumer, RingProducer, TakeZero};
use crate::sample::{SampleFormat, frames_in};
use crate::take::{Manifest, RecordedStream, TakeFolder, TakeState};

/// A take whose threads can be started.
pub struct Begun {
    pub take: Arc<RunningTake>,
    pub copies: DirectoryCopies,
    pub producers: Vec<RingProducer>,
    pub manifest: Manifest,
    pub starting: Duration,
}

/// The facts known about the input of a stream.
#[derive(Clone, Copy)]
struct StreamOrigin {
    /// The number.
    input: usize,
    is_patient: bool,
    begins_with_take: bool,
}

/// Returns the memory that the rings of this number of streams need.
///
/// # Errors
/// [`Kind::Refused`] for more streams or more memory than a take may have.
pub fn memory_of(streams: usize, ring_bytes: u64) -> Result<u64> {
    let bytes = ring_bytes.saturating_mul(streams as u64);
    if streams > STREAMS_MAX || bytes > ARENA_MAX_BYTES {
        let what = format!(
            "{} streams with ring buffers of {} would need {} of locked memory",
            format_count(streams as u64),
            format_size(ring_bytes),
            format_size(bytes),
        );
        let (most, found) = match streams > STREAMS_MAX {
            true => {
                let most = format!("at most {} streams", format_count(STREAMS_MAX as u64));
                (most, format_count(streams as u64))
            }
            false => (
                format!("at most {} of locked memory", format_size(ARENA_MAX_BYTES)),
                format_size(bytes),
            ),
        };
        return Err(Error::new(Kind::Refused, what).expected(most, found).advice(
            "record fewer streams, use smaller ring buffers (--ring), or use one file for all \
             channels of an input (--poly)",
        ));
    }
    Ok(bytes)
}

/// Creates everything that a take needs.
pub fn begin(
    plan: &TakePlan,
    inputs: &[Box<dyn RecordInput>],
    folders: &dyn Fn() -> Result<Vec<Arc<dyn TakeFolder>>>,
    monitor: &Arc<Monitor>,
) -> Result<Begun> {
    let began = clock::monotonic();
    check(plan)?;
    let mut streams = Vec::new();
    let mut origins = Vec::new();
    for (number, input) in inputs.iter().enumerate() {
        let more = input.streams();
        let origin = StreamOrigin {
            input: number,
            is_patient: input.is_patient(),
            begins_with_take: input.begins_with_take(),
        };
        origins.resize(origins.len() + more.len(), origin);
        streams.extend(more);
    }
    if streams.is_empty() {
        return Err(Error::new(Kind::Usage, "no input has a stream to record"));
    }
    let memory = memory_of(streams.len(), plan.ring_bytes)?;
    if plan.kind == FileKind::Flac {
        let samples = streams.iter().filter(|it| it.shape.format != SampleFormat::Raw);
        samples.map(|it| &it.shape).try_for_each(check_flac)?;
    }
    let arena = Arc::new(Arena::new(memory as usize)?);
    let folders = folders()?;
    let made = make(plan, (streams, &origins), &arena, (&folders, monitor));
    if made.is_err() {
        // The directories were made just now, and nothing was recorded in them.
        folders.iter().for_each(|it| drop(it.discard()));
    }
    let (mut shared, copies, producers, manifest) = made?;
    let starting = clock::since(began);
    shared.began = clock::monotonic();
    if plan.armed.is_none() && plan.beside.is_none() {
        // During a played take, all inputs are counted from their own first frames.
        shared.zero.get_or_init(|| TakeZero { at: shared.began, pre_roll: Duration::ZERO });
    }
    let take = Arc::new(RunningTake {
        shared: Arc::new(shared),
        name: plan.take.clone(),
        armed: plan.armed,
        most: plan.most,
        common_start: OnceLock::new(),
        zone_seconds: plan.started.seconds - plan.started_seconds,
        stop: Stop::new()?,
        started: Stop::new()?,
        held_back: Arc::default(),
        is_locked: arena.is_locked(),
        warned_minutes: AtomicU64::new(u64::MAX),
        has_alarmed: false.into(),
        clocks: RankedMutex::new(RecordLock::Clocks, clocks(inputs)),
        has_drifted: false.into(),
    });
    Ok(Begun { take, copies, producers, manifest, starting })
}

/// Creates rings, journals and files in existing directories.
fn make(
    plan: &TakePlan,
    (streams, origins): (Vec<RecordedStream>, &[StreamOrigin]),
    arena: &Arc<Arena>,
    (folders, monitor): (&[Arc<dyn TakeFolder>], &Arc<Monitor>),
) -> Result<(SharedTake, DirectoryCopies, Vec<RingProducer>, Manifest)> {
    let manifest = manifest(plan, streams, folders)?;
    let directories = (0..).zip(folders).map(|(number, folder)| {
        TakeDirectory::new(number, Arc::clone(folder), &manifest.id).map(Arc::new)
    });
    let directories = directories.collect::<Result<Vec<_>>>()?;
    let copies = 1 + usize::from(plan.is_mirrored);
    let zero = Arc::default();
    let (desks, producers) = rings(plan, &manifest, (origins, &zero), arena, copies)?;
    let shared = (plan.started, zero);
    let mut shared =
        SharedTake::new(plan.engine.clone(), directories, desks, Arc::clone(monitor), shared)?;
    if plan.armed.is_none() {
        shared.begin_at_once();
    }
    shared.copies_left = AtomicUsize::new(shared.streams.len() * copies);
    let pieces = make_files(&shared, copies)?;
    let mut copies = hand_out(&shared, pieces, copies);
    for (directory, copies) in shared.directories.iter().zip(&mut copies) {
        keep_pre_roll(plan, directory, copies)?;
    }
    begin_journals(&manifest, &shared)?;
    Ok((shared, copies, producers, manifest))
}

/// The clocks of inputs that have one, each with the number of its first stream.
fn clocks(inputs: &[Box<dyn RecordInput>]) -> Vec<InputClock> {
    let (mut clocks, mut first) = (Vec::new(), 0);
    for input in inputs {
        let streams = input.streams();
        if let Some(stream) = streams.first().filter(|_| !input.is_patient()) {
            clocks.push(InputClock {
                source: stream.source.clone(),
                stream: first,
                drift: ClockDrift::new(stream.shape.rate),
            });
        }
        first += streams.len();
    }
    clocks
}

fn manifest(
    plan: &TakePlan,
    streams: Vec<RecordedStream>,
    folders: &[Arc<dyn TakeFolder>],
) -> Result<Manifest> {
    if folders.is_empty() || (plan.is_mirrored && folders.len() < 2) {
        return Err(Error::new(Kind::Usage, "too few directories were given")
            .expected("one directory, or two for a mirror", folders.len()));
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| {
        Error::new(Kind::Io, format!("the system did not supply random bytes for an id: {error}"))
    })?;
    Ok(Manifest {
        version: Manifest::version(),
        id: hex(&id),
        take: plan.take.clone(),
        state: if plan.armed.is_some() { TakeState::Armed } else { TakeState::Recording },
        started: plan.started,
        started_seconds: plan.started_seconds,
        scene: plan.scene.clone(),
        tape: plan.tape.clone(),
        kind: plan.kind,
        directories: folders.iter().map(|it| it.path().to_path_buf()).collect(),
        is_mirrored: plan.is_mirrored,
        ring_bytes: plan.ring_bytes,
        chunk_bytes: plan.engine.chunk_bytes,
        streams,
        origins: Vec::new(),
        pieces: Vec::new(),
        gaps: Vec::new(),
        marks: Vec::new(),
        beside: plan.beside.clone(),
        figures: None,
    })
}

fn rings(
    plan: &TakePlan,
    manifest: &Manifest,
    (origins, zero): (&[StreamOrigin], &Arc<OnceLock<TakeZero>>),
    arena: &Arc<Arena>,
    copies: usize,
) -> Result<(Vec<SharedStream>, Vec<RingProducer>)> {
    let (mut desks, mut producers) = (Vec::new(), Vec::new());
    let mut beginnings: BTreeMap<usize, Arc<InputBeginning>> = BTreeMap::new();
    for (number, stream) in (0_u32..).zip(&manifest.streams) {
        let offset = number as usize * plan.ring_bytes as usize;
        let bytes = stream.shape.frame_bytes();
        let (ring, mut producer) = Ring::new(arena, offset, plan.ring_bytes, bytes, copies)?;
        let by_time = plan.engine.segment_seconds.map(|it| it * f64::from(stream.shape.rate));
        let facts = manifest.head_facts(number, 0).expect("a stream of this manifest");
        let by_size = plan.engine.segment_bytes.map(|it| facts.frames_within(it));
        let segment = by_time.map_or(u64::MAX, |it| it as u64).min(by_size.unwrap_or(u64::MAX));
        if plan.armed.is_some() {
            ring.set_origin(i64::MAX);
        }
        let StreamOrigin { input, is_patient, begins_with_take } = origins[number as usize];
        let beginning = beginnings.entry(input).or_insert_with(|| {
            let of = (stream.shape.rate, begins_with_take);
            Arc::new(InputBeginning::new(zero, plan.most, of))
        });
        producer.begin_by(beginning);
        desks.push(SharedStream {
            ring,
            facts,
            input,
            gate: Gate::new(plan.armed.is_some()),
            before: RankedMutex::new(RecordLock::Before, Default::default()),
            segment_frames: segment.max(1),
            is_patient,
            is_mirrored: plan.is_mirrored,
            copies: AtomicUsize::new(copies),
            meter: Meter::default(),
        });
        producers.push(producer);
    }
    Ok((desks, producers))
}

/// Creates the files of all streams, ordered by stream and copy, and makes their heads durable.
fn make_files(shared: &SharedTake, copies: usize) -> Result<Vec<Arc<StreamFile>>> {
    let count = shared.streams.len() * copies;
    let made: Mutex<Vec<Option<Arc<StreamFile>>>> = Mutex::new(vec![None; count]);
    let first_error = Mutex::new(None);
    let next = AtomicUsize::new(0);
    let make = |number: usize| -> Result<()> {
        let (stream, copy) = (number / copies, number % copies);
        let directory = &shared.directories[(stream + copy) % shared.directories.len()];
        let ids = (stream as u32, copy as u32);
        let piece = shared.new_piece(directory, ids, 0)?;
        piece.make_durable()?;
        piece.set_idle(shared.beginning().is_none());
        lock(&made)[number] = Some(piece);
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..SYNCS_IN_FLIGHT.min(count) {
            scope.spawn(|| {
                while lock(&first_error).is_none() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    if let Err(error) = make(number) {
                        lock(&first_error).get_or_insert(error);
                    }
                }
            });
        }
    });
    match into_inner(first_error) {
        Some(error) => Err(error),
        None => Ok(into_inner(made).into_iter().flatten().collect()),
    }
}

/// The manifest is created last, so a directory with a manifest also has a journal. Space for the
/// final manifest is reserved.
fn begin_journals(manifest: &Manifest, shared: &SharedTake) -> Result<()> {
    shared.manifest_bytes.store(manifest.encode().len() as u64, Ordering::Relaxed);
    shared.directories.iter().try_for_each(|directory| {
        directory.commit()?;
        directory.sync_names()?;
        manifest.save(&*directory.folder)?;
        keep_head_room(shared, directory)
    })
}

/// Gives each copy an area on the disk for the pre-roll: the samples that arrive before an armed
/// take begins.
fn keep_pre_roll(
    plan: &TakePlan,
    directory: &TakeDirectory,
    copies: &mut [StreamCopy],
) -> Result<()> {
    let Some(pre_roll) = plan.armed.filter(|it| !it.is_zero()) else { return Ok(()) };
    let length = |it: &StreamCopy| {
        let shape = &it.piece.facts.shape;
        frames_in(pre_roll, shape.rate).max(1) * shape.frame_bytes()
    };
    let lengths: Vec<u64> = copies.iter().map(length).collect();
    let areas = RollArea::create(&directory.folder, &lengths)?;
    copies.iter_mut().zip(areas).for_each(|(copy, area)| copy.roll = Some(area));
    Ok(())
}

/// Passes each copy to the writer of its directory.
fn hand_out(shared: &SharedTake, pieces: Vec<Arc<StreamFile>>, copies: usize) -> DirectoryCopies {
    let mut directories: DirectoryCopies = shared.directories.iter().map(|_| Vec::new()).collect();
    for piece in pieces {
        let (stream, copy) = (piece.stream as usize, piece.copy as usize);
        let ring = Arc::clone(&shared.streams[stream].ring);
        debug_assert!(copy < copies);
        directories[(stream + copy) % shared.directories.len()].push(StreamCopy {
            stream: piece.stream,
            copy: piece.copy,
            consumer: RingConsumer::new(ring, copy),
            piece,
            at: 0,
            span: None,
            roll: None,
            gap_done: 0,
            gap_recorded: 0,
            partial: Vec::new(),
        });
    }
    directories
}
