//! Determines the severity of damage: it causes no loss if another copy of the same frames is
//! intact.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_base::error::Error;
use pinstripe_base::monitor::Monitor;

use crate::directories::{
    DirectoriesThere, frames_of_stream, holes_of, missing_of, report_frames, report_holes,
};
use crate::take::{Manifest, TakeFolder};

/// Damage that is to be reported.
struct Damage {
    stream: u32,
    path: PathBuf,
    error: Error,
}

/// The frames of all files, for each copy.
#[derive(Default)]
pub(super) struct Copies {
    damages: Vec<Damage>,
    /// Files for which the manifest and the journal disagree.
    disputed: Vec<Damage>,
    /// For each stream, the frames of its files according to the journals, and the intact ones
    /// among them.
    all: Vec<(u32, Range<u64>)>,
    sound: Vec<(u32, Range<u64>)>,
    /// The streams that any journal lists.
    known: BTreeSet<u32>,
}

impl Copies {
    pub(crate) fn note_damage(&mut self, stream: u32, path: PathBuf, error: Error) {
        self.damages.push(Damage { stream, path, error });
    }

    /// Records that the manifest and the journal disagree about a file; another copy cannot repair
    /// that.
    pub(crate) fn note_disputed(&mut self, stream: u32, path: PathBuf, error: Error) {
        self.disputed.push(Damage { stream, path, error });
    }

    pub(crate) fn note_file(&mut self, stream: u32, all: Range<u64>, sound: Vec<Range<u64>>) {
        self.known.insert(stream);
        self.all.push((stream, all));
        self.sound.extend(sound.into_iter().map(|it| (stream, it)));
    }

    /// Reports damage: as a loss if no other copy is intact, otherwise as a warning. Returns
    /// whether another copy can repair some of the damage, and whether some data is lost in all
    /// copies.
    pub fn report(
        self,
        folders: &[Arc<dyn TakeFolder>],
        manifest: &Manifest,
        monitor: &Monitor,
    ) -> (bool, bool) {
        let there = DirectoriesThere::from_folders(folders, manifest);
        let told = || manifest.pieces.iter().map(frames_of_stream);
        let found = there.reported_frames(manifest).chain(self.all.iter().cloned());
        let absent = missing_of(told(), found);
        let unknown = there.unknown_streams(manifest, |it| self.known.contains(&it));
        let unsound = missing_of(told().chain(self.all), self.sound);
        there.report_absent(manifest, (&unknown, &absent), monitor);
        let holes = holes_of(&manifest.pieces, 0..u64::MAX);
        report_holes(manifest, &holes, monitor);
        let is_disputed = !self.disputed.is_empty();
        let mut named: BTreeSet<u32> = absent.keys().chain(&unknown).copied().collect();
        named.extend(self.damages.iter().chain(&self.disputed).map(|it| it.stream));
        for Damage { path, error, .. } in self.disputed {
            monitor.loss(path, error);
        }
        let mut unvouched = unsound.clone();
        unvouched.retain(|stream, _| !named.contains(stream));
        let what = "of this stream are listed in take.json, but no journal has a checksum of them";
        report_frames(
            manifest,
            &unvouched,
            (
                what,
                "these samples cannot be verified, because the journal is damaged or take.json was \
                 changed",
            ),
            monitor,
        );
        let mut is_repairable = !there.is_all();
        for Damage { stream, path, error } in self.damages {
            if unsound.contains_key(&stream) {
                monitor.loss(path, error);
            } else {
                is_repairable = true;
                monitor.warning(path, error.advice("another copy of this file is intact"));
            }
        }
        let is_lost =
            is_disputed || !(unsound.is_empty() && unknown.is_empty() && holes.is_empty());
        (is_repairable, is_lost)
    }
}
