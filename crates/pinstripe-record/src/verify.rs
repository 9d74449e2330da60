//! Compares every byte of a take with the checksums of its journal, and also compares test streams
//! with their expected content.

mod content;
mod copies;
mod disputed;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};

use crate::directories::{all_folders, own_manifest};
use crate::recover::{EVENTS_MAX, RUN_MAX_BYTES};
use crate::take::{
    DiskFolder, JOURNAL, JournalEvent, JournalReader, JournalRecord, Manifest, RecordedFile,
    RecordedGap, Summed, TakeFile, TakeFolder, TrimmedRun, is_plain_name, open_payload,
};
use content::TestContent;
use copies::Copies;

/// The most damaged places that are reported one by one for each file.
const NAMED: u64 = 3;

/// The most damaged places of one file that are recorded separately; beyond this number, the data
/// between them counts as damaged.
const DAMAGED_MAX: usize = 10_000;

/// The most files that are open at the same time.
const OPEN_MAX: usize = 512;

/// The outcome.
#[derive(Debug)]
pub struct VerifyOutcome {
    /// The manifest.
    pub manifest: Manifest,
    /// Files that were read.
    pub files: u64,
    /// Payload bytes whose checksums match.
    pub sound_bytes: u64,
    /// Payload bytes that are damaged or missing.
    pub damaged_bytes: u64,
    /// Frames of test streams that differ from the expected content.
    pub wrong_frames: u64,
    /// Frames of test streams that match the expected content, including silence for lost samples.
    pub right_frames: u64,
    /// Frames of test streams that are silence because samples were lost.
    pub silent_frames: u64,
    /// Whether damaged or missing data has another, intact copy.
    pub is_repairable: bool,
    /// Whether data is lost, because no copy of it is intact and available.
    pub is_lost: bool,
}

/// Whether a directory contains a take.
pub fn is_take(path: &Path) -> bool {
    DiskFolder::open(path).is_ok()
}

/// Verifies the take in this directory. Damage is a loss in the ledger.
///
/// # Errors
/// [`Kind::NotFound`] if there is no take, [`Kind::Busy`] while it is being recorded; otherwise the
/// errors of the directory.
pub fn verify(path: &Path, monitor: &Monitor) -> Result<VerifyOutcome> {
    let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::open(path)?);
    let manifest = Manifest::load(&*folder)?;
    let folders = all_folders(folder, &manifest, monitor);
    verify_in(&folders, manifest, monitor)
}

/// Verifies a take whose files are in these directories.
///
/// # Errors
/// The errors of [`verify`].
pub(crate) fn verify_in(
    folders: &[Arc<dyn TakeFolder>],
    manifest: Manifest,
    monitor: &Monitor,
) -> Result<VerifyOutcome> {
    let mut outcome = VerifyOutcome {
        manifest,
        files: 0,
        sound_bytes: 0,
        damaged_bytes: 0,
        wrong_frames: 0,
        right_frames: 0,
        silent_frames: 0,
        is_repairable: false,
        is_lost: false,
    };
    let mut copies = Copies::default();
    for folder in folders {
        let journal = folder.open(JOURNAL, false)?;
        journal.lock(true)?;
        let own = own_manifest(&**folder, &outcome.manifest);
        if !own.is_settled() {
            let error = Error::new(Kind::Changed, "the recording of this take was cut off")
                .advice("run 'pinstripe recover' on the take to complete its durable data");
            monitor.warning(folder.path(), error);
        }
        let mut files = Files {
            folder: &**folder,
            told: ManifestIndex::from_manifest(&own),
            open: BTreeMap::new(),
            order: VecDeque::new(),
            copies: &mut copies,
            monitor,
        };
        let mut reader = JournalReader::new(&journal)?;
        let number = reader.begin(&outcome.manifest.id)?;
        while let Some(record) = reader.next_record()? {
            match record {
                JournalRecord::Event(JournalEvent::File {
                    piece,
                    stream,
                    file,
                    start_frame,
                    behind,
                    ..
                }) => {
                    let place = (start_frame, behind.map(|it| it.payload_at));
                    files.begin(&outcome.manifest, (piece, stream), &file, place);
                }
                JournalRecord::Event(_) => {}
                JournalRecord::Progress { runs, .. } => {
                    for run in runs {
                        files.check(run.piece, &run.runs, &mut outcome)?;
                    }
                }
            }
        }
        outcome.files += files.count(own.is_settled());
        files.compare(&own, number);
        files.report_frames(&outcome.manifest);
    }
    (outcome.is_repairable, outcome.is_lost) = copies.report(folders, &outcome.manifest, monitor);
    Ok(outcome)
}

struct CheckedFile {
    name: String,
    stream: u32,
    /// The open file; `None` while it is closed.
    file: Option<TakeFile>,
    /// Whether the file could not be opened.
    is_missing: bool,
    length: u64,
    payload_at: u64,
    at: u64,
    /// The end of the file's payload, and the rest of the run that contains the end. `None` for an
    /// interrupted take, for which the end is unknown.
    end: Option<(u64, Option<TrimmedRun>)>,
    damages: u64,
    /// The ranges of frames of the file that contain a damaged byte, in order.
    damaged: Vec<Range<u64>>,
    start_frame: u64,
    content: Option<TestContent>,
}

/// The contents of a manifest, indexed for lookups, so that its lists are traversed only once,
/// however many files there are.
struct ManifestIndex {
    /// The gaps of each stream, in the order of their frames.
    gaps: Vec<Arc<[RecordedGap]>>,
    /// The end of the payload of each file.
    ends: BTreeMap<u32, (u64, Option<TrimmedRun>)>,
}

impl ManifestIndex {
    fn from_manifest(manifest: &Manifest) -> Self {
        let mut gaps = vec![Vec::new(); manifest.streams.len()];
        for gap in &manifest.gaps {
            if let Some(of_stream) = gaps.get_mut(gap.stream as usize) {
                of_stream.push(gap.clone());
            }
        }
        let frame_bytes = |it: &RecordedFile| {
            manifest.streams.get(it.stream as usize).map_or(1, |it| it.shape.frame_bytes())
        };
        let end = |it: &RecordedFile| (it.frames.saturating_mul(frame_bytes(it)), it.trimmed);
        let mut ends = BTreeMap::new();
        for piece in &manifest.pieces {
            ends.entry(piece.piece).or_insert_with(|| end(piece));
        }
        let sorted = |mut it: Vec<RecordedGap>| {
            it.sort_by_key(|gap| gap.frame);
            it.into()
        };
        ManifestIndex { gaps: gaps.into_iter().map(sorted).collect(), ends }
    }
}

struct Files<'a> {
    folder: &'a dyn TakeFolder,
    told: ManifestIndex,
    open: BTreeMap<u32, CheckedFile>,
    /// The open files, in the order in which they were opened.
    order: VecDeque<u32>,
    copies: &'a mut Copies,
    monitor: &'a Monitor,
}

impl Files<'_> {
    /// The number of files of this directory. The journal also lists files that were created ahead
    /// for a stream and removed because they were empty; the manifest of a finished take does not
    /// list them.
    fn count(&self, has_ended: bool) -> u64 {
        let is_left = |piece: &u32| !has_ended || self.told.ends.contains_key(piece);
        let left = self.open.iter().filter(|(piece, _)| is_left(piece));
        // A pre-roll and what follows it share a file.
        left.map(|(_, file)| &file.name).collect::<BTreeSet<_>>().len() as u64
    }

    /// Reports which frames exist, and which of them are intact.
    fn report_frames(&mut self, manifest: &Manifest) {
        for file in self.open.values() {
            let size = manifest.streams[file.stream as usize].shape.frame_bytes();
            let (all, sound) = file.frames(size);
            self.copies.note_file(file.stream, all, sound);
        }
    }

    fn begin(
        &mut self,
        manifest: &Manifest,
        (piece, number): (u32, u32),
        name: &str,
        (start, payload_at): (u64, Option<u64>),
    ) {
        let Some(facts) = manifest.head_facts(number, start) else { return };
        let is_enough = self.open.len() >= EVENTS_MAX;
        // If it is announced again before any data, its first frame has changed.
        let is_known = self.open.get(&piece).is_some_and(|it| it.at > 0);
        if !is_plain_name(name) || is_known || is_enough {
            return;
        }
        let stream = &manifest.streams[number as usize];
        let gaps = Arc::clone(&self.told.gaps[number as usize]);
        let content = stream.test.map(|test| TestContent {
            shape: stream.shape,
            number: test,
            start_frame: start,
            origin: manifest.origins.get(number as usize).copied().unwrap_or(0),
            gaps,
        });
        let file = CheckedFile {
            name: name.to_owned(),
            stream: number,
            file: None,
            is_missing: false,
            length: 0,
            payload_at: payload_at.unwrap_or_else(|| facts.payload_at()),
            at: 0,
            end: self.told.ends.get(&piece).copied(),
            damages: 0,
            damaged: Vec::new(),
            start_frame: start,
            content,
        };
        self.open.insert(piece, file);
    }

    /// Opens a file unless it is open; if too many files are open, another one is closed.
    fn reopen(&mut self, piece: u32, manifest: &Manifest) {
        let Some(file) = self.open.get_mut(&piece) else { return };
        if file.file.is_some() || file.is_missing {
            return;
        }
        let opened = open_payload(self.folder, manifest, file.stream, (&file.name, false));
        match opened.and_then(|opened| Ok((opened.device().len()?, opened))) {
            Ok((length, opened)) => (file.length, file.file) = (length, Some(opened)),
            Err(error) => {
                file.is_missing = true;
                let path = self.folder.path().join(&file.name);
                self.copies.note_damage(file.stream, path, error);
                return;
            }
        }
        self.order.push_back(piece);
        if self.order.len() > OPEN_MAX
            && let Some(first) = self.order.pop_front()
            && let Some(first) = self.open.get_mut(&first)
        {
            first.file = None;
        }
    }

    fn check(&mut self, piece: u32, runs: &[Summed], outcome: &mut VerifyOutcome) -> Result<()> {
        self.reopen(piece, &outcome.manifest);
        let Some(file) = self.open.get_mut(&piece) else { return Ok(()) };
        let mut bytes = Vec::new();
        for whole in runs {
            let at = file.at;
            file.at = file.at.saturating_add(whole.bytes.into());
            let mut is_sound = file.holds(at, *whole, &mut bytes);
            if !is_sound && file.ends_within(at, *whole) {
                let Some(rest) = file.left_of(at) else { continue };
                is_sound = file.holds(at, rest, &mut bytes);
            }
            let count = bytes.len() as u64;
            if !is_sound {
                outcome.damaged_bytes += u64::from(whole.bytes);
                let size = outcome.manifest.streams[file.stream as usize].shape.frame_bytes();
                file.note_damage(at, whole.bytes, size);
                if let Some(error) = file.named_damage(at, whole.bytes) {
                    let path = self.folder.path().join(&file.name);
                    self.copies.note_damage(file.stream, path, error);
                }
                continue;
            }
            outcome.sound_bytes += count;
            self.monitor.add(Counter::CheckedBytes, count);
            if let Some(content) = &file.content {
                let counted = content.count(at, &bytes);
                outcome.right_frames += counted.right;
                outcome.silent_frames += counted.silent;
                outcome.wrong_frames += counted.wrong;
            }
        }
        Ok(())
    }
}

impl CheckedFile {
    /// Returns the message for damage, for the first damaged places of each file. Files that could
    /// not be opened are not included, because they were reported before.
    fn named_damage(&mut self, at: u64, bytes: u32) -> Option<Error> {
        self.damages += 1;
        (self.damages <= NAMED && !self.is_missing).then(|| {
            let what = format!(
                "{bytes} bytes of samples, beginning at offset {at}, differ from the recorded bytes"
            );
            Error::corrupt(what, &self.name)
        })
    }

    fn note_damage(&mut self, at: u64, bytes: u32, frame_bytes: u64) {
        let end = at.saturating_add(bytes.into()).div_ceil(frame_bytes);
        let from = at / frame_bytes;
        let is_full = self.damaged.len() >= DAMAGED_MAX;
        match self.damaged.last_mut().filter(|it| is_full || it.end >= from) {
            Some(last) => last.end = end,
            None => self.damaged.push(from..end),
        }
    }

    /// Returns the range of the stream's frames in the file, and the intact ranges among them.
    fn frames(&self, frame_bytes: u64) -> (Range<u64>, Vec<Range<u64>>) {
        let bytes = self.end.map_or(self.at, |(end, _)| end.min(self.at));
        let (end, mut from) = (bytes.div_ceil(frame_bytes), 0);
        let mut sound = Vec::new();
        for damaged in &self.damaged {
            sound.push(from..damaged.start.min(end));
            from = damaged.end;
        }
        sound.push(from..end.max(from));
        let in_stream = |it: Range<u64>| {
            self.start_frame.saturating_add(it.start)..self.start_frame.saturating_add(it.end)
        };
        (in_stream(0..end), sound.into_iter().map(in_stream).collect())
    }

    /// Reads a run; returns whether its checksum matches.
    fn holds(&self, at: u64, run: Summed, bytes: &mut Vec<u8>) -> bool {
        let Some(file) = &self.file else { return false };
        let is_there =
            self.payload_at.saturating_add(at).saturating_add(run.bytes.into()) <= self.length;
        if !is_there || run.bytes > RUN_MAX_BYTES {
            return false;
        }
        bytes.resize(run.bytes as usize, 0);
        file.device().read_at(self.payload_at + at, bytes).is_ok()
            && Summed::from_bytes(bytes) == run
    }

    /// Whether the file ends before the end of this run.
    fn ends_within(&self, at: u64, run: Summed) -> bool {
        self.end.is_some_and(|(end, _)| at.saturating_add(run.bytes.into()) > end)
    }

    /// Returns the rest of the last run, if the run begins at this offset.
    fn left_of(&self, at: u64) -> Option<Summed> {
        let trimmed = self.end.and_then(|(_, trimmed)| trimmed).filter(|it| it.at == at)?;
        Some(Summed { bytes: trimmed.bytes, sum: trimmed.sum })
    }
}

#[cfg(test)]
mod hostile_tests;
