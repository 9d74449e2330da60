//! Recovers one file of an interrupted take, according to the journal.

use std::ops::Range;
use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;

use super::RUN_MAX_BYTES;
use super::content::{JournalContent, JournalFile};
use crate::engine::{close_file, cues_within, trimmed_run};
use crate::header::{Cue, FileKind, HeadFacts};
use crate::limits::PRE_ROLL_MAX_SECONDS;
use crate::sample::StreamShape;
use crate::take::{
    Manifest, RecordedFile, RecordedGap, Summed, TakeFile, TakeFolder, open_payload,
};

/// The outcome for one recovered file.
pub(super) struct Settled {
    pub pieces: Vec<RecordedFile>,
    /// Frames of the pre-roll that the journal does not vouch for; they are replaced by silence.
    pub gap: Option<RecordedGap>,
    pub frames: u64,
}

/// Reduces one file to what the journal vouches for: of its first piece, and of the second piece if
/// there is one.
pub(super) fn settle(
    folder: &dyn TakeFolder,
    manifest: &Manifest,
    (found, behind): (&JournalFile, Option<&JournalFile>),
    content: &JournalContent,
    monitor: &Monitor,
) -> Result<Settled> {
    let first = &found.piece;
    let facts = manifest.head_facts(first.stream, first.start_frame).ok_or_else(|| {
        Error::new(Kind::Corrupt, "this file does not belong to a stream of this take")
    })?;
    let frame_bytes = facts.shape.frame_bytes();
    let front = behind.map(|it| front_bytes(first, &it.piece, &facts.shape)).transpose()?;
    let file = open_payload(folder, manifest, first.stream, (&first.file, true))?;
    let path = folder.path().join(&first.file);
    let is_closed = |whole: u64| {
        let frames = first.start_frame..first.start_frame.saturating_add(whole / frame_bytes);
        let cues = cues_within(&content.gaps, &content.marks, first.stream, frames);
        behind.is_none() && is_closed(&file, &facts, whole, &cues)
    };
    let (mut piece, mut end) = found.settled(&file, frame_bytes, &is_closed, (&path, monitor))?;
    let (mut pieces, mut gap) = (Vec::new(), None);
    if let (Some(behind), Some(front)) = (behind, front) {
        let (second, frames) = behind.settled(&file, frame_bytes, &|_| false, (&path, monitor))?;
        if frames > 0 && end < front {
            gap = Some(fill_front(&file, &mut piece, end..front, &facts.shape)?);
            let what = "a part of the pre-roll was not yet durable, so it was replaced by silence";
            let error = Error::new(Kind::Io, what).expected(front / frame_bytes, piece.frames);
            monitor.loss(&path, error);
        }
        if frames > 0 {
            end = front + frames;
        }
        pieces.push(second);
    }
    pieces.insert(0, piece);
    if !pieces.iter().all(|it| manifest.can_have(it)) {
        return Err(Error::new(Kind::Corrupt, "a file of a take cannot have this name"));
    }
    let from = pieces[0].start_frame;
    let frames = from..from.saturating_add(end / frame_bytes);
    let stream = pieces[0].stream;
    let gaps: Vec<_> = content.gaps.iter().chain(&gap).cloned().collect();
    let cues = cues_within(&gaps, &content.marks, stream, frames.clone());
    close_file(&file, &facts, end, &cues)?;
    Ok(Settled { pieces, gap, frames: frames.end - frames.start })
}

/// The number of payload bytes between the beginnings of two pieces of one file.
fn front_bytes(front: &RecordedFile, behind: &RecordedFile, shape: &StreamShape) -> Result<u64> {
    let most = shape.byte_rate().saturating_mul(PRE_ROLL_MAX_SECONDS + 1);
    let bytes = behind.payload_at.checked_sub(front.payload_at).filter(|it| *it <= most);
    let is_behind = |it: &u64| {
        let frames = it / shape.frame_bytes();
        it.is_multiple_of(shape.frame_bytes())
            && front.start_frame.checked_add(frames) == Some(behind.start_frame)
            && (front.stream, &front.file) == (behind.stream, &behind.file)
    };
    bytes.filter(is_behind).ok_or_else(|| {
        Error::new(Kind::Corrupt, "the journal records a pre-roll that cannot belong to its file")
    })
}

/// Writes silence before the vouched payload, if the journal does not vouch for the pre-roll there.
fn fill_front(
    file: &TakeFile,
    piece: &mut RecordedFile,
    missing: Range<u64>,
    shape: &StreamShape,
) -> Result<RecordedGap> {
    let silence = vec![shape.format.silence(); 1 << 16];
    let mut at = missing.start;
    while at < missing.end {
        let run = (missing.end - at).min(silence.len() as u64);
        file.device().write_at(piece.payload_at + at, &silence[..run as usize])?;
        at += run;
    }
    let frame = piece.start_frame + missing.start / shape.frame_bytes();
    Ok(RecordedGap {
        stream: piece.stream,
        frame,
        frames: (missing.end - missing.start) / shape.frame_bytes(),
        at_seconds: frame as f64 / f64::from(shape.rate),
    })
}

impl JournalFile {
    /// Returns the piece, limited to the part that the journal vouches for and that is undamaged,
    /// and the length of that part in bytes of complete frames. `is_closed` is whether the file
    /// already ends there.
    fn settled(
        &self,
        file: &TakeFile,
        frame_bytes: u64,
        is_closed: &dyn Fn(u64) -> bool,
        (path, monitor): (&Path, &Monitor),
    ) -> Result<(RecordedFile, u64)> {
        let mut piece = self.piece.clone();
        let there = file.device().len()?.saturating_sub(piece.payload_at);
        let mut sound = sound_bytes(file, self, there)?;
        let whole = self.bytes - self.bytes % frame_bytes;
        let ends_within = |(at, _): &(u64, Summed)| sound == *at && *at <= whole;
        if whole < self.bytes && self.last.back().is_some_and(ends_within) && is_closed(whole) {
            // An earlier recovery found all of it sound and cut the rest of the last frame off, and was
            // ended before it could say so: the checksum of the last run is that of more than is left.
            sound = self.bytes;
        }
        if sound < self.bytes {
            let error =
                Error::new(Kind::Corrupt, "the end of the data that was durable is damaged")
                    .expected(self.bytes, sound)
                    .advice(
                        "the disk lost data that it had reported as durable; the data before the \
                         damage is kept",
                    );
            monitor.loss(path, error);
        }
        piece.frames = sound / frame_bytes;
        let whole = piece.frames * frame_bytes;
        let crossing = self
            .last
            .iter()
            .find(|(at, run)| *at < whole && at.saturating_add(run.bytes.into()) > whole);
        if let Some((at, _)) = crossing {
            piece.trimmed = trimmed_run(file, piece.payload_at, *at, whole)?;
        }
        Ok((piece, whole))
    }
}

/// Whether a file already has the length, head and tail that it would get by closing it with
/// `whole` bytes of payload. The result is false for FLAC, whose samples do not correspond to
/// bytes.
fn is_closed(file: &TakeFile, facts: &HeadFacts, whole: u64, cues: &[Cue]) -> bool {
    if facts.kind == FileKind::Flac {
        return false;
    }
    let (head, tail) = facts.complete(whole, cues);
    let end = (head.len() as u64).saturating_add(whole);
    let has = |at: u64, expected: &[u8]| {
        let mut found = vec![0; expected.len()];
        file.device().read_at(at, &mut found).is_ok() && found == expected
    };
    let is_as_long = file.device().len().is_ok_and(|it| it == end + tail.len() as u64);
    is_as_long && has(0, &head) && has(end, &tail)
}

/// The length of the payload before the first of the last runs whose content differs from what was
/// written.
fn sound_bytes(file: &TakeFile, found: &JournalFile, there: u64) -> Result<u64> {
    for (at, run) in &found.last {
        let end = at.saturating_add(run.bytes.into());
        if end > there {
            return Ok(there.min(*at));
        }
        if run.bytes > RUN_MAX_BYTES {
            return Ok(*at);
        }
        let mut bytes = vec![0; run.bytes as usize];
        match file.device().read_at(found.piece.payload_at + at, &mut bytes) {
            // A block that cannot be decoded is as lost as a missing one.
            Err(error) if error.kind() == Kind::Corrupt => return Ok(*at),
            read => read?,
        }
        if Summed::from_bytes(&bytes) != *run {
            return Ok(*at);
        }
    }
    Ok(found.bytes)
}
