//! Computes the expected content of test streams.

use std::sync::Arc;

use crate::sample::{StreamShape, fill_test};
use crate::take::RecordedGap;

/// The expected content of a test stream.
pub(super) struct TestContent {
    pub shape: StreamShape,
    pub number: u64,
    pub start_frame: u64,
    /// The number of frames that the input had delivered before the take began.
    pub origin: i64,
    pub gaps: Arc<[RecordedGap]>,
}

/// Counts of checked frames of a test stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TestFrames {
    /// Frames that match the expected content, or are silence because samples were lost.
    pub right: u64,
    /// Frames that are silence because samples were lost.
    pub silent: u64,
    /// Frames that differ from the expected content.
    pub wrong: u64,
}

impl TestContent {
    /// Counts the frames that end within these bytes of the payload, which begin at offset `at`.
    pub fn count(&self, at: u64, bytes: &[u8]) -> TestFrames {
        let size = self.shape.frame_bytes();
        let (first, end) = (at / size, (at + bytes.len() as u64).div_ceil(size));
        let mut made = vec![0; ((end - first) * size) as usize];
        let from = self.start_frame.saturating_add(first).saturating_add_signed(self.origin);
        fill_test(&self.shape, self.number, from, &mut made);
        let skip = at % size;
        let mut counted = TestFrames::default();
        for frame in first..end {
            let from = ((frame - first) * size).max(skip);
            let to = ((frame - first + 1) * size).min(skip + bytes.len() as u64);
            let found = &bytes[(from - skip) as usize..(to - skip) as usize];
            let is_lost = self.is_lost(self.start_frame.saturating_add(frame));
            let is_right = match is_lost {
                true => found.iter().all(|it| *it == self.shape.format.silence()),
                false => found == &made[from as usize..to as usize],
            };
            // A frame in two runs counts where it ends.
            if to == (frame - first + 1) * size || !is_right {
                *(if is_right { &mut counted.right } else { &mut counted.wrong }) += 1;
                counted.silent += u64::from(is_right && is_lost);
            }
        }
        counted
    }

    fn is_lost(&self, frame: u64) -> bool {
        let before = self.gaps.partition_point(|it| it.frame <= frame);
        before.checked_sub(1).is_some_and(|it| {
            let gap = &self.gaps[it];
            frame < gap.frame.saturating_add(gap.frames)
        })
    }
}
