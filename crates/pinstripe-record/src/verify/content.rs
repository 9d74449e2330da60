//! The content of test streams, computed again.

use std::sync::Arc;

use crate::sample::{StreamShape, fill_test};
use crate::take::RecordedGap;

/// The expected content of a test stream.
pub(super) struct TestContent {
    pub shape: StreamShape,
    pub number: u64,
    pub start_frame: u64,
    /// Frames that the input had given before the take began.
    pub origin: i64,
    pub gaps: Arc<[RecordedGap]>,
}

/// Frames of a test stream that were checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TestFrames {
    /// They are what they must be; silence, where samples were lost.
    pub right: u64,
    /// Those of them that are silence for that.
    pub silent: u64,
    /// They are something else.
    pub wrong: u64,
}

impl TestContent {
    /// Frames that end in these bytes of the payload, from `at` on.
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
