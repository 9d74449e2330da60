//! Determines which directories of a take are available, and which frames are in none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::units::{counted, format_count};

use crate::take::{
    DiskFolder, JOURNAL, JournalReader, Manifest, RecordedFile, TakeFolder, TakeState,
};

/// The most streams that messages name one by one.
const NAMED: usize = 8;

/// Returns the available directories of a take; the first is the directory that the user named.
pub(crate) fn all_folders(
    named: Arc<dyn TakeFolder>,
    manifest: &Manifest,
    monitor: &Monitor,
) -> Vec<Arc<dyn TakeFolder>> {
    let mut folders = vec![Arc::clone(&named)];
    if manifest.directories.len() < 2 {
        return folders;
    }
    let own = likely_number_of(&*named, manifest);
    for (number, path) in (0_u32..).zip(&manifest.directories) {
        if own == Some(number) {
            continue;
        }
        let other = DiskFolder::open(path).and_then(|folder| {
            let found = Manifest::load(&folder)?;
            let is_same = found.id == manifest.id;
            let wrong = || Error::new(Kind::WrongMember, "another take").at(path);
            if is_same { Ok(folder) } else { Err(wrong()) }
        });
        match other {
            Ok(folder) => folders.push(Arc::new(folder)),
            Err(error) if error.kind() == Kind::NotFound => {
                let what = "a directory of this take is missing";
                let error = Error::new(Kind::NotFound, what).advice(
                    "attach the disk of this directory at the same path as during the recording",
                );
                monitor.warning(path, error);
            }
            Err(error) => monitor.warning(path, error),
        }
    }
    folders
}

/// The number of a directory in the manifest of its take.
///
/// # Errors
/// The errors of the journal.
pub fn number_of(folder: &dyn TakeFolder, id: &str) -> Result<u32> {
    let file = folder.open(JOURNAL, false)?;
    JournalReader::new(&file)?.begin(id)
}

/// The number of a directory whose journal may be damaged, too: it is found if the directory is the
/// only one of the take, or by its path.
pub(crate) fn likely_number_of(folder: &dyn TakeFolder, manifest: &Manifest) -> Option<u32> {
    let known = number_of(folder, &manifest.id).ok();
    let is_here = |it: &PathBuf| it == folder.path() || manifest.directories.len() == 1;
    let likely = || manifest.directories.iter().position(is_here);
    known.or_else(|| likely().map(|it| it as u32))
}

/// The manifest that describes the files of a directory: its own manifest, unless only another one
/// records how the files ended.
pub(crate) fn own_manifest(folder: &dyn TakeFolder, named: &Manifest) -> Manifest {
    match Manifest::load(folder).ok().filter(|it| it.id == named.id) {
        Some(own) if own.is_settled() || !named.is_settled() => own,
        Some(own) => match likely_number_of(folder, &own) {
            Some(number) if named.pieces.iter().any(|it| it.directory == number) => named.clone(),
            _ => own,
        },
        None => named.clone(),
    }
}

/// Which directories of a take are present, by number.
pub(crate) struct DirectoriesThere {
    numbers: Vec<u32>,
    /// The paths of the missing directories.
    absent: Vec<PathBuf>,
}

impl DirectoriesThere {
    /// The available directories of a take.
    pub(crate) fn from_folders(folders: &[Arc<dyn TakeFolder>], manifest: &Manifest) -> Self {
        let number = |it: &Arc<dyn TakeFolder>| likely_number_of(&**it, manifest);
        let numbers: Vec<u32> = folders.iter().filter_map(number).collect();
        let absent = (0..).zip(&manifest.directories).filter(|(it, _)| !numbers.contains(it));
        let absent = absent.map(|(_, path)| path.clone()).collect();
        DirectoriesThere { numbers, absent }
    }

    /// Whether a directory is present.
    pub fn has(&self, number: u32) -> bool {
        self.numbers.contains(&number)
    }

    /// The frames of each stream in the files that a manifest lists, for files whose directories
    /// are available.
    pub(crate) fn reported_frames<'a>(
        &'a self,
        manifest: &'a Manifest,
    ) -> impl Iterator<Item = (u32, Range<u64>)> + 'a {
        manifest.pieces.iter().filter(|it| self.has(it.directory)).map(frames_of_stream)
    }

    /// Whether all are.
    pub fn is_all(&self) -> bool {
        self.absent.is_empty()
    }

    /// Streams about which nothing is known, because all directories with their files are missing.
    /// The manifest of a completed take lists all files, and a take that never began has no frames.
    pub(crate) fn unknown_streams(
        &self,
        manifest: &Manifest,
        is_known: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let is_one_expected = match manifest.state {
            TakeState::Complete | TakeState::Armed => false,
            TakeState::Recording => true,
            TakeState::Recovered => !manifest.pieces.is_empty(),
        };
        let all = 0..manifest.streams.len() as u32;
        all.filter(|it| is_one_expected && !self.is_all() && !is_known(*it)).collect()
    }

    /// Reports streams without an available copy, and frames that are in no copy, as losses.
    pub(crate) fn report_absent(
        &self,
        manifest: &Manifest,
        (unknown, frames): (&[u32], &BTreeMap<u32, u64>),
        monitor: &Monitor,
    ) {
        let advice = match self.absent.is_empty() {
            true => "restore the stream's file from a copy, if one exists".to_owned(),
            false => {
                let paths: Vec<_> = self.absent.iter().map(|it| it.display().to_string()).collect();
                format!("attach the missing directories: {}", paths.join(", "))
            }
        };
        let known = frames.iter().map(|(stream, frames)| (*stream, Some(*frames)));
        let all: Vec<_> = unknown.iter().map(|it| (*it, None)).chain(known).collect();
        let told = all.into_iter().map(|(stream, frames)| {
            let what = match frames {
                Some(frames) => format!("{} frames of this stream are", format_count(frames)),
                None => "all frames of this stream are".to_owned(),
            };
            (stream, format!("{what} missing from all attached directories"))
        });
        let rest =
            |more: &str| format!("frames of {more} are also missing from all attached directories");
        report_each(manifest, told, (&rest, &advice), monitor);
    }
}

/// Reports streams with losses one by one; if there are many, one message reports the rest.
fn report_each(
    manifest: &Manifest,
    mut told: impl ExactSizeIterator<Item = (u32, String)>,
    (rest, advice): (&dyn Fn(&str) -> String, &str),
    monitor: &Monitor,
) {
    let loss = |name: &str, what: String| {
        monitor.loss(name, Error::new(Kind::NotFound, what).advice(advice));
    };
    for (stream, what) in told.by_ref().take(NAMED) {
        let name = manifest.streams.get(stream as usize).map_or("", |it| it.name.as_str());
        loss(name, what);
    }
    if told.len() > 0 {
        loss(&manifest.take, rest(&counted(told.len() as u64, "more stream", "more streams")));
    }
}

/// The frames of one file.
pub(crate) fn frames_of(piece: &RecordedFile) -> Range<u64> {
    piece.start_frame..piece.start_frame.saturating_add(piece.frames)
}

/// The frames of one file, with the number of its stream.
pub(crate) fn frames_of_stream(piece: &RecordedFile) -> (u32, Range<u64>) {
    (piece.stream, frames_of(piece))
}

/// The frames of one stream that should exist, and the frames that exist.
type WantedAndThere = (Vec<Range<u64>>, Vec<Range<u64>>);

/// For each stream, the number of frames in `wanted` that are not in `there`; streams that miss no
/// frames are left out.
pub(crate) fn missing_of(
    wanted: impl IntoIterator<Item = (u32, Range<u64>)>,
    there: impl IntoIterator<Item = (u32, Range<u64>)>,
) -> BTreeMap<u32, u64> {
    let mut by_stream: BTreeMap<u32, WantedAndThere> = BTreeMap::new();
    wanted
        .into_iter()
        .for_each(|(stream, range)| by_stream.entry(stream).or_default().0.push(range));
    there
        .into_iter()
        .for_each(|(stream, range)| by_stream.entry(stream).or_default().1.push(range));
    let missing = |(stream, (wanted, there)): (u32, WantedAndThere)| {
        let all = joined(wanted.into_iter().chain(there.iter().cloned()).collect());
        (stream, length(&all) - length(&joined(there)))
    };
    by_stream.into_iter().map(missing).filter(|(_, frames)| *frames > 0).collect()
}

/// For each stream, the number of frames between two of its files that are in neither file, if the
/// first file was cut off because its directory failed. A stream that was disarmed for a while has
/// no file for that time, but this is not a loss.
pub(crate) fn holes_of<'a>(
    pieces: impl IntoIterator<Item = &'a RecordedFile>,
    within: Range<u64>,
) -> BTreeMap<u32, u64> {
    let mut by_stream: BTreeMap<u32, (Vec<Range<u64>>, BTreeSet<u64>)> = BTreeMap::new();
    for piece in pieces {
        let (all, cut) = by_stream.entry(piece.stream).or_default();
        let frames = frames_of(piece);
        cut.extend(piece.cut.as_ref().map(|_| frames.end));
        all.push(frames);
    }
    let inside = |at: u64| at.clamp(within.start, within.end);
    let hole = |(stream, (all, cut)): (u32, (Vec<Range<u64>>, BTreeSet<u64>))| {
        let all = joined(all);
        let behind = |end: u64| all.iter().find(|it| it.end > end).filter(|it| it.start > end);
        let frames = cut.into_iter().filter_map(|it| Some(inside(behind(it)?.start) - inside(it)));
        (stream, frames.fold(0, u64::saturating_add))
    };
    by_stream.into_iter().map(hole).filter(|(_, frames)| *frames > 0).collect()
}

/// Reports the holes of streams as losses.
pub(crate) fn report_holes(manifest: &Manifest, holes: &BTreeMap<u32, u64>, monitor: &Monitor) {
    let what = "are missing from all files, because a directory failed during the recording";
    report_frames(
        manifest,
        holes,
        (
            what,
            "the files of this stream are complete; to keep their position in time, insert silence \
             of that length between the files",
        ),
        monitor,
    );
}

/// Reports lost frames of streams; the frames of many streams are reported together.
pub(crate) fn report_frames(
    manifest: &Manifest,
    frames: &BTreeMap<u32, u64>,
    (what, advice): (&str, &str),
    monitor: &Monitor,
) {
    let told = frames.iter().map(|(stream, frames)| {
        (*stream, format!("{} {what}", counted(*frames, "frame", "frames")))
    });
    let rest = |more: &str| format!("the same applies to {more}");
    report_each(manifest, told, (&rest, advice), monitor);
}

/// Returns the ranges in order; adjacent ranges are joined.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|it| !it.is_empty());
    ranges.sort_by_key(|it| it.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match out.last_mut().filter(|it| range.start <= it.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => out.push(range),
        }
    }
    out
}

fn length(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().fold(0, |sum, it| sum.saturating_add(it.end - it.start))
}

/// The error for a file whose first frame is not the same in its manifest and its journal.
pub(crate) fn disputed(file: &str, by_journal: u64, by_manifest: u64) -> Error {
    Error::new(
        Kind::Corrupt,
        format!(
            "take.json and the journal contradict each other about the first frame of '{file}'"
        ),
    )
    .expected(
        format!("frame {by_journal}, according to the journal"),
        format!("frame {by_manifest}"),
    )
    .advice(
        "restore take.json from a copy, or correct it according to the journal, which has the \
         checksums of the samples",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_missing_that_no_file_has() {
        let missing = |wanted: &[(u64, u64)], there: &[(u64, u64)]| {
            let of_stream = |it: &(u64, u64)| (3, it.0..it.1);
            let found = missing_of(wanted.iter().map(of_stream), there.iter().map(of_stream));
            found.get(&3).copied().unwrap_or(0)
        };
        assert_eq!(missing(&[(0, 100), (100, 200)], &[(0, 100)]), 100);
        assert_eq!(missing(&[(0, 200)], &[(0, 50), (40, 60), (150, 200)]), 90);
        assert_eq!(missing(&[(0, 100)], &[(0, 100), (100, 150)]), 0);
        assert_eq!(missing(&[(10, 10)], &[]), 0);
    }

    #[test]
    fn a_hole_is_where_a_file_was_cut_off_and_none_goes_on() {
        let holes = |files: &[(u64, u64, bool)], within: Range<u64>| {
            let piece = |(from, frames, is_cut): &(u64, u64, bool)| RecordedFile {
                piece: 0,
                stream: 3,
                copy: 0,
                directory: 0,
                file: "f".to_owned(),
                start_frame: *from,
                frames: *frames,
                payload_at: 0,
                trimmed: None,
                cut: is_cut.then(|| "full".to_owned()),
            };
            let pieces: Vec<_> = files.iter().map(piece).collect();
            holes_of(&pieces, within).get(&3).copied().unwrap_or(0)
        };
        let all = 0..u64::MAX;
        assert_eq!(holes(&[(0, 100, true), (160, 50, false)], all.clone()), 60);
        assert_eq!(holes(&[(0, 100, true), (160, 50, false)], 120..130), 10);
        assert_eq!(holes(&[(0, 100, true), (160, 50, false)], 170..180), 0);
        assert_eq!(holes(&[(0, 0, true), (20, 9, true), (40, 9, false)], all.clone()), 31);
        assert_eq!(holes(&[(0, 100, true), (0, 170, false), (160, 50, false)], all.clone()), 0);
        assert_eq!(holes(&[(0, 100, true), (100, 50, false)], all.clone()), 0);
        assert_eq!(holes(&[(0, 100, false), (160, 50, false)], all.clone()), 0, "was disarmed");
        assert_eq!(holes(&[(0, 100, true)], all), 0, "its end was told");
    }
}
