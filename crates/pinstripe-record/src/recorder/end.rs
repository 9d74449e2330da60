//! Ends a take: writes the manifest, and reports losses.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::{counted, format_count};

use super::status::{RunningTake, TakeStatus};
use super::{TakeOutcome, TakePlan};
use crate::engine::SharedTake;
use crate::take::{Manifest, RecordedFile, TakeFigures, TakeState};

/// The most streams whose losses are reported one by one.
const NAMED: usize = 8;

/// Writes the manifest and reports losses.
pub fn end(
    plan: &TakePlan,
    take: &RunningTake,
    mut manifest: Manifest,
    times: (Duration, Duration, Duration),
) -> Result<TakeOutcome> {
    let shared = &take.shared;
    let last = take.status();
    if shared.beginning().is_none() {
        discard(take);
        return Ok(outcome(take, (manifest, TakeFigures::default(), Vec::new()), last, times));
    }
    manifest.state = TakeState::Complete;
    if plan.armed.is_some() {
        remove_empty(take);
    }
    manifest.pieces = pieces(take);
    if !manifest.origins.is_empty() {
        // An input that began after the order has reported its origin only now.
        manifest.origins = take.origins();
    }
    manifest.gaps = shared.gaps();
    manifest.marks = shared.marks();
    let figures = figures(&take.shared, &last);
    manifest.figures = Some(figures.clone());
    report_losses(take, &last, &manifest);
    let undurable = report_undurable(take);
    report_removed(take, &manifest);
    let mut refusals = shared.refusals();
    refusals.extend(shared.directories.iter().filter_map(|it| it.folder.refusal()));
    let is_one_left = shared.directories.iter().any(|it| !it.has_failed());
    // A directory that was given up costs nothing if its streams continued in another one.
    let is_whole = shared.cut_streams.load(Ordering::Acquire) == 0 && is_one_left;
    for directory in &shared.directories {
        let saved = manifest.save(&*directory.folder);
        match (saved, directory.failure()) {
            (_, Some(error)) if is_whole && !undurable.contains(&directory.number) => {
                shared.monitor.degraded(directory.folder.path(), error);
            }
            (_, Some(error)) => shared.monitor.loss(directory.folder.path(), error),
            (Err(error), None) => shared.monitor.loss(directory.folder.path(), error),
            (Ok(()), None) => {}
        }
    }
    Ok(outcome(take, (manifest, figures, refusals), last, times))
}

fn outcome(
    take: &RunningTake,
    (manifest, figures, refusals): (Manifest, TakeFigures, Vec<String>),
    last: TakeStatus,
    (starting, stopping, input_cpu): (Duration, Duration, Duration),
) -> TakeOutcome {
    TakeOutcome {
        manifest,
        figures,
        refusals,
        is_locked: take.is_locked,
        last,
        starting,
        stopping,
        input_cpu,
        writes: take.writes(),
    }
}

/// Removes all files of an armed take that never began.
fn discard(take: &RunningTake) {
    for directory in &take.shared.directories {
        if let Some(error) = directory.failure() {
            take.shared.monitor.warning(directory.folder.path(), error);
        }
        if let Err(error) = directory.folder.discard() {
            take.shared.monitor.warning(directory.folder.path(), error);
        }
    }
}

/// Removes files that were created ahead for streams that recorded nothing.
fn remove_empty(take: &RunningTake) {
    for directory in &take.shared.directories {
        for piece in directory.pieces().iter().filter(|it| it.is_empty()) {
            if let Err(error) = directory.folder.remove(&piece.name) {
                take.shared.monitor.warning(directory.folder.path(), error);
            }
        }
    }
}

fn pieces(take: &RunningTake) -> Vec<RecordedFile> {
    let mut pieces = Vec::new();
    for directory in &take.shared.directories {
        let all = directory.pieces();
        let kept = all.iter().filter(|it| it.written_bytes() > 0 || take.armed.is_none());
        pieces.extend(kept.map(|piece| RecordedFile {
            piece: piece.number,
            stream: piece.stream,
            copy: piece.copy,
            directory: directory.number,
            file: piece.name.clone(),
            start_frame: piece.start_frame(),
            frames: piece.frames(piece.vouched_bytes()),
            payload_at: piece.payload_at,
            trimmed: piece.trimmed(),
            cut: piece.cut().map(str::to_owned),
        }));
    }
    pieces.sort_by_key(|it| (it.stream, it.copy, it.start_frame, it.piece));
    pieces
}

fn figures(shared: &SharedTake, last: &TakeStatus) -> TakeFigures {
    let seconds =
        shared.streams.iter().zip(&last.by_stream).map(|(stream, status)| {
            status.frames as f64 / f64::from(stream.facts.shape.rate.max(1))
        });
    TakeFigures {
        seconds: seconds.fold(0.0, f64::max),
        written_bytes: last.written_bytes,
        overruns: last.overruns,
        lost_frames: last.lost_frames,
        ring_worst_percent: last.ring_worst_percent,
        longest_write_ms: last.longest_write_ms,
        durable_lag_worst_ms: last.durable_lag_worst_ms,
        held_back_worst_ms: last.held_back_worst_ms,
        slowest_sync: last.slowest_sync.clone(),
        slowest_commit: last.slowest_commit.clone(),
    }
}

/// The advice about lost frames: the disk was slow, or the recorder did not run.
fn lost_advice(last: &TakeStatus) -> String {
    let places = "take.json lists the positions of the lost frames";
    if last.longest_absence_ms <= last.longest_write_ms {
        return format!("{places}; larger ring buffers (--ring) bridge longer stalls of the disk");
    }
    format!(
        "{places}; the disk was not the cause: the recorder did not run for {:.1} s, because it \
         was stopped or the CPUs were busy",
        last.longest_absence_ms / 1e3
    )
}

/// Reports streams that lost frames; many streams are reported together.
fn report_losses(take: &RunningTake, last: &TakeStatus, manifest: &Manifest) {
    let hurt: Vec<_> = last.by_stream.iter().filter(|it| it.lost_frames > 0).collect();
    let advice = lost_advice(last);
    let tell = |name: &str, overruns: u64, frames: u64| {
        let what = format!(
            "{} frames were lost in {} of a ring buffer, and replaced by silence",
            format_count(frames),
            counted(overruns, "overrun", "overruns"),
        );
        let error = Error::new(Kind::Io, what).advice(advice.as_str());
        take.shared.monitor.loss(name, error);
    };
    if last.missing_frames > 0 {
        let what = format!(
            "the sources of the streams did not send {} frames, which were replaced by silence",
            format_count(last.missing_frames)
        );
        let error = Error::new(Kind::Io, what)
            .advice("take.json lists the positions of the missing frames");
        take.shared.monitor.loss(&last.take, error);
    }
    if hurt.len() <= NAMED {
        hurt.iter().for_each(|it| tell(&it.name, it.overruns, it.lost_frames));
    } else {
        let name = format!("{} of {} streams", hurt.len(), manifest.streams.len());
        tell(&name, last.overruns, last.lost_frames);
    }
}

/// Reports files that are no longer in their directory; their data is lost when they are closed.
fn report_removed(take: &RunningTake, manifest: &Manifest) {
    for directory in take.shared.directories.iter().filter(|it| !it.has_failed()) {
        let there: BTreeSet<String> = directory.folder.names().into_iter().collect();
        if there.is_empty() {
            // A directory that cannot be listed shows nothing.
            continue;
        }
        let here = manifest.pieces.iter().filter(|it| it.directory == directory.number);
        let removed: Vec<&RecordedFile> = here.filter(|it| !there.contains(&it.file)).collect();
        let Some(first) = removed.first() else { continue };
        let files = counted(removed.len() as u64, "file", "files");
        let what = format!(
            "{files} of the take, for example '{}', were removed during the recording",
            first.file
        );
        let error = Error::new(Kind::NotFound, what);
        let is_copied = |it: &&RecordedFile| take.shared.streams[it.stream as usize].is_mirrored;
        match removed.iter().all(is_copied) {
            true => take.shared.monitor.degraded(directory.folder.path(), error),
            false => take.shared.monitor.loss(directory.folder.path(), error),
        }
    }
}

/// Reports data that was written to a directory that failed later, if the data is not known to be
/// durable there. Returns the numbers of the directories with such data.
fn report_undurable(take: &RunningTake) -> Vec<u32> {
    let mut undurable = Vec::new();
    for directory in take.shared.directories.iter().filter(|it| it.has_failed()) {
        let pieces = directory.pieces();
        let missing = pieces.iter().filter(|piece| {
            let stream = &take.shared.streams[piece.stream as usize];
            !stream.is_mirrored && piece.vouched_bytes() < piece.written_bytes()
        });
        let (count, lost) = missing.fold((0, 0), |(count, lost), piece| {
            let written = piece.frames(piece.written_bytes());
            (count + 1, lost + written - piece.frames(piece.vouched_bytes()))
        });
        if count > 0 {
            let what = format!(
                "{} frames of {} were written before this directory failed, and are not durable",
                format_count(lost),
                counted(count, "stream", "streams"),
            );
            take.shared.monitor.loss(directory.folder.path(), Error::new(Kind::Io, what));
            undurable.push(directory.number);
        }
    }
    undurable
}
