//! The places of the bytes of a split's frames, and the cost of a damaged one.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use pinstripe_split::{
    Frame, FrameKind, Log, LogSets, OutputHead, PAGE_BYTES, PAGES_BYTES, SET_ROWS, Tag,
    set_geometry,
};
use pinstripe_stripe::SetLayout;

use super::made::{Made, scale};

/// The frames of a log up to its manifest: where each stands, and what it is. Without the fill of
/// an index page, which is never read.
fn frames(log: &[u8], tag: Tag) -> Vec<(Range<usize>, Frame)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(Ok(frame)) =
        log.get(at..).and_then(|rest| rest.first_chunk()).map(|head| Frame::decode(head, tag))
    {
        let end = at + frame.log_bytes() as usize;
        if frame.kind == FrameKind::Manifest {
            break;
        }
        let is_behind_index = |(_, last): &(_, Frame)| last.kind == FrameKind::Index;
        if frame.kind != FrameKind::Pad || !found.last().is_some_and(is_behind_index) {
            found.push((at..end, frame));
        }
        at = end;
    }
    found
}

/// What a flipped byte of a frame costs; `None` for that of an index, which costs nothing by itself
/// but leaves no more than one frame after the other to find batches by.
fn cost(frames: &[(Range<usize>, Frame)], at: usize) -> Option<Range<u64>> {
    let (_, frame) = frames.iter().find(|(place, _)| place.contains(&at))?;
    match frame.kind {
        FrameKind::Index => None,
        FrameKind::Data | FrameKind::Beside | FrameKind::Zeros | FrameKind::Hole => {
            Some(frame.offset..frame.offset + frame.raw_bytes)
        }
        _ => Some(0..0),
    }
}

impl Made {
    /// An output's head and the frames of its own log, up to the manifest.
    fn log_of(&self, number: usize) -> (OutputHead, Vec<(Range<usize>, Frame)>) {
        let log = fs::read(self.log_path(number)).unwrap();
        let head = OutputHead::decode(&log[..PAGE_BYTES]).unwrap();
        let frames = frames(&log[PAGES_BYTES as usize..], head.tag());
        (head, frames)
    }

    /// A byte of an output's log: in which file, where, and what it costs.
    pub fn in_log(&self, number: usize, place: u64) -> Option<(PathBuf, usize, Range<u64>)> {
        let (_, frames) = self.log_of(number);
        let at = scale(place, frames.last()?.0.end)?;
        Some((self.log_path(number), PAGES_BYTES as usize + at, cost(&frames, at)?))
    }

    /// A byte of a plain output, which costs the block that it is in; in zeros it costs nothing.
    pub fn in_plain(&self, number: usize, place: u64) -> Option<(PathBuf, usize, Range<u64>)> {
        let path = self.path(number);
        let (head, frames) = self.log_of(number);
        let at = scale(place, fs::metadata(&path).unwrap().len() as usize)?;
        let blocks = frames.iter().filter(|(_, frame)| frame.kind == FrameKind::Beside);
        let mut ranges = blocks.map(|(_, frame)| frame.offset..frame.offset + frame.raw_bytes);
        let block = ranges.find(|it| it.contains(&(head.first_byte + at as u64)));
        Some((path, at, block.unwrap_or(0..0)))
    }
}

/// A striped log, as it is before it is hurt.
pub struct Striped {
    sets: LogSets,
    log_bytes: u64,
    frames: Vec<(Range<usize>, Frame)>,
}

impl Striped {
    pub fn of(made: &Made) -> Striped {
        let reader = made.reader().unwrap();
        let (head, log) = (reader.head(), reader.striped().unwrap().unwrap());
        let mut bytes = Vec::new();
        log.read(0, log.len() as usize, &mut bytes).unwrap();
        Striped {
            sets: LogSets::new(head.split, set_geometry(head).unwrap()),
            log_bytes: log.len(),
            frames: frames(&bytes, head.tag()),
        }
    }

    pub fn rows(&self) -> u64 {
        self.log_bytes.div_ceil(self.sets.geometry().row_bytes())
    }

    /// A byte of some strips of a row, by a bit for each position: where these bytes are, by
    /// output, and what those of data cost when nothing heals them. `None` when one is an index's.
    #[allow(clippy::type_complexity)] // Said in words above.
    pub fn hit(
        &self,
        row: u64,
        which: u8,
        at: u64,
    ) -> Option<(Vec<(usize, usize)>, Vec<Range<u64>>)> {
        let (set, row) = (row / SET_ROWS, row % SET_ROWS);
        let start = set * self.sets.log_bytes();
        let bytes = (self.log_bytes - start).min(self.sets.log_bytes());
        let geometry = self.sets.geometry();
        let layout = SetLayout::new(geometry, self.sets.id(set), bytes).unwrap();
        let shape = layout.row_shape(row);
        let (mut places, mut costs) = (Vec::new(), Vec::new());
        for position in (0..geometry.members()).filter(|it| which >> it & 1 == 1) {
            let Some(within) = scale(at, shape.strip_len(position) as usize) else { continue };
            if position < geometry.data() {
                let logical = start + shape.strip_logical(position).start;
                costs.push(cost(&self.frames, logical as usize + within)?);
            }
            let place = self.sets.extent_at(set) + layout.strip_offset(row) + within as u64;
            places.push((layout.permutation(row).slot(position), place as usize));
        }
        Some((places, costs))
    }
}
