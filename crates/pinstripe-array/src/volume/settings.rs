//! The settings that can be changed while an array runs.

use std::time::Duration;

use crate::limits;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::{KIB, format_size};

/// The smallest limit of dirty bytes.
const CACHE_BYTES_MIN: u64 = 64 * KIB;

/// Settings of a running array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeSettings {
    /// The number of dirty bytes at which writers wait; from half of it on, rows are written
    /// regardless of their age.
    pub cache_bytes: u64,
    /// How long a row may gather writes.
    pub deadline: Duration,
    /// Bytes of each member per second that pending work may move while the array is in use.
    pub speed_limit_min: u64,
    /// Bytes of each member per second that pending work may move while the array is not in use.
    pub speed_limit_max: u64,
}

impl Default for VolumeSettings {
    fn default() -> Self {
        VolumeSettings {
            cache_bytes: limits::CACHE_BYTES,
            deadline: limits::DEADLINE,
            speed_limit_min: limits::SPEED_MIN,
            speed_limit_max: u64::MAX,
        }
    }
}

impl VolumeSettings {
    pub(super) fn check(&self) -> Result<()> {
        if self.cache_bytes < CACHE_BYTES_MIN {
            return Err(Error::new(Kind::Usage, "the cache of an array needs more memory")
                .expected(
                    format!("{} or more", format_size(CACHE_BYTES_MIN)),
                    format_size(self.cache_bytes),
                ));
        }
        if self.speed_limit_min == 0 || self.speed_limit_max < self.speed_limit_min {
            return Err(Error::new(Kind::Usage, "the speed limits of the array are impossible")
                .expected(
                    "0 < speed_limit_min <= speed_limit_max",
                    format!("{} and {}", self.speed_limit_min, self.speed_limit_max),
                ));
        }
        Ok(())
    }
}
