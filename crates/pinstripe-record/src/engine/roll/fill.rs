//! Fills fronts with the samples that arrived before the order to start.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use pinstripe_base::error::{Error, Kind, Result};

use super::{AHEAD_BYTES, BEHIND_BYTES, Front, RUN_BYTES};
use crate::engine::directory::TakeDirectory;
use crate::engine::shared::SharedTake;

impl Front {
    /// Reports that the rest of the front could not be copied and is silence.
    fn report_missing(&mut self, shared: &SharedTake, directory: &TakeDirectory) {
        let piece = &self.piece;
        let frames = piece.frames(self.left_bytes());
        let frame = piece.start_frame() + piece.frames(piece.written_bytes());
        shared.note_gap(directory, piece.stream, frame, frames);
        let what = format!(
            "{frames} frames of the pre-roll of '{}' were replaced by silence",
            piece.facts.name
        );
        let error = Error::new(Kind::Io, what)
            .advice("these frames could not be read from the pre-roll, or could not be written");
        shared.monitor.loss(directory.folder.path(), error);
        self.area = None;
    }
}

/// Fills fronts until no more are added.
pub(in crate::engine) fn fill_fronts(shared: &SharedTake, directory: &TakeDirectory) {
    let (mut behind, mut behind_bytes) = (VecDeque::new(), 0);
    while let Some(mut front) = directory.fronts.next() {
        if let Err(error) = fill(shared, directory, &mut front) {
            directory.fail(error);
        }
        let is_cut = front.left_bytes() > 0;
        if is_cut && front.area.is_some() {
            front.report_missing(shared, directory);
        }
        let why = directory.failure().filter(|_| is_cut);
        front.piece.end(why.map(|it| it.to_string()));
        behind_bytes += front.piece.written_bytes();
        behind.push_back(front.piece);
        while behind_bytes > BEHIND_BYTES {
            let Some(oldest) = behind.pop_front() else { break };
            oldest.finish_writeback();
            behind_bytes -= oldest.written_bytes();
        }
    }
}

fn fill(shared: &SharedTake, directory: &TakeDirectory, front: &mut Front) -> Result<()> {
    let silence = front.piece.facts.shape.format.silence();
    let mut buffer = vec![silence; RUN_BYTES as usize];
    if front.area.is_none() {
        front.report_missing(shared, directory);
    }
    let (mut ahead, mut behind) = (0, 0);
    while front.left_bytes() > 0 && !directory.has_failed() {
        let run = &mut buffer[..front.left_bytes().min(RUN_BYTES) as usize];
        let place = front.places.start + front.piece.written_bytes();
        let read = front.area.as_ref().map(|it| it.get(place, run));
        if let Some(Err(error)) = read {
            shared.monitor.warning(directory.folder.path(), error);
            front.report_missing(shared, directory);
        }
        if front.area.is_none() {
            run.fill(silence);
        }
        front.piece.write(run)?;
        directory.figures.written_bytes.fetch_add(run.len() as u64, Ordering::Relaxed);
        ahead += run.len() as u64;
        behind += run.len() as u64;
        if ahead >= AHEAD_BYTES || front.left_bytes() == 0 {
            front.piece.start_writeback();
            ahead = 0;
        }
        if behind >= BEHIND_BYTES {
            front.piece.finish_writeback();
            behind = 0;
        }
    }
    Ok(())
}
