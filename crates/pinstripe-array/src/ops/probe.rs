//! Finds out whether two devices share a spindle: from data of the system, and by measuring.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::probe::{ProbeEffort, Round, measure};
use pinstripe_base::error::Result;
use pinstripe_io::device::{Access, Device, FileDevice, Policy};
use pinstripe_io::disk::disk_of;

/// Two devices that share an arm keep about half of their rates when both are read; a value below
/// this is not chance.
const SHARED_BELOW: f64 = 0.7;
/// Two devices that share an arm never keep more than this.
const APART_ABOVE: f64 = 0.85;
/// With fewer rounds than this, no result is reported.
const ROUNDS_MIN: usize = 5;
/// A rate of random reads that is too high for an arm: the device is a cache or a solid-state disk.
const NO_ARM_READS: f64 = 5_000.0;

/// The findings about two devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probed {
    /// The devices.
    pub devices: [PathBuf; 2],
    /// The disk on which both devices are, according to the system.
    pub same_disk: Option<String>,
    /// The verdict of the measurement.
    pub verdict: Verdict,
    /// Reads per second of each device alone: the median of the rounds.
    pub alone_reads_per_second: [f64; 2],
    /// The part of a device's rate that is left while the other is read: the median of the rounds.
    pub kept: f64,
    /// The part of the rate that is left: lowest and highest value of the middle half of the
    /// rounds.
    pub kept_range: [f64; 2],
    /// The number of rounds that were measured.
    pub rounds: usize,
    /// Whether the read rate was too high for a device with an arm.
    pub has_no_arm: bool,
    /// Whether reads bypassed the page cache on both devices.
    pub is_direct: bool,
}

/// The verdict by measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The devices wait for each other.
    Shared,
    /// They do not.
    Apart,
    /// The rounds do not agree, or there are too few rounds.
    Unclear,
}

/// Compares two devices, which are only read.
///
/// # Errors
/// Fails with the errors of the devices.
pub fn probe(paths: [&Path; 2], effort: ProbeEffort, stop: &AtomicBool) -> Result<Probed> {
    let open = |path| FileDevice::open(path, Access::Read, Policy::Direct);
    let devices = [open(paths[0])?, open(paths[1])?];
    let rounds = measure([&devices[0], &devices[1]], effort, stop)?;
    let disks = paths.map(disk_of);
    let same_disk = match disks {
        [Some(one), Some(other)] if one == other => Some(one.to_string()),
        _ => None,
    };
    let alone = [0, 1].map(|number| median(rounds.iter().map(|round| round.alone[number])));
    let (verdict, kept, kept_range) = judge(&rounds);
    Ok(Probed {
        devices: paths.map(PathBuf::from),
        same_disk,
        verdict,
        alone_reads_per_second: alone,
        kept,
        kept_range,
        rounds: rounds.len(),
        has_no_arm: alone.iter().any(|&reads| reads > NO_ARM_READS),
        is_direct: devices
            .iter()
            .all(|device| device.policy().is_direct() && device.caps().device.is_some()),
    })
}

/// The verdict, the median of the part of the rate that is left, and the range of its middle half.
/// The verdict is certain only if the rounds agree: the middle half must be entirely on one side of
/// the limits.
fn judge(rounds: &[Round]) -> (Verdict, f64, [f64; 2]) {
    let mut kept: Vec<f64> = rounds.iter().map(Round::kept).collect();
    kept.sort_by(f64::total_cmp);
    if kept.is_empty() {
        return (Verdict::Unclear, 0.0, [0.0, 0.0]);
    }
    let quarter = kept.len() / 4;
    let range = [kept[quarter], kept[kept.len() - 1 - quarter]];
    let verdict = match range {
        _ if kept.len() < ROUNDS_MIN => Verdict::Unclear,
        [_, high] if high < SHARED_BELOW => Verdict::Shared,
        [low, _] if low > APART_ABOVE => Verdict::Apart,
        _ => Verdict::Unclear,
    };
    (verdict, kept[kept.len() / 2], range)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(kept: &[f64]) -> Vec<Round> {
        kept.iter().map(|it| Round { alone: [100.0; 2], both: [100.0 * it; 2] }).collect()
    }

    #[test]
    fn rounds_that_agree_decide() {
        for (kept, verdict) in [
            (&[0.5, 0.52, 0.48, 0.5, 0.51][..], Verdict::Shared),
            (&[0.97, 1.01, 0.99, 1.0, 0.95], Verdict::Apart),
            // One round that was disturbed changes nothing.
            (&[0.97, 1.01, 0.3, 1.0, 0.95], Verdict::Apart),
            (&[0.5, 0.52, 0.99, 0.5, 0.51], Verdict::Shared),
            (&[0.5, 0.9, 0.6, 1.0, 0.7], Verdict::Unclear),
            (&[0.77, 0.78, 0.8, 0.79, 0.81], Verdict::Unclear),
            (&[0.5, 0.5, 0.5], Verdict::Unclear),
            (&[], Verdict::Unclear),
        ] {
            assert_eq!(judge(&rounds(kept)).0, verdict, "{kept:?}");
        }
        let (_, kept, range) = judge(&rounds(&[0.5, 0.6, 0.1, 0.7, 0.9]));
        assert_eq!((kept, range), (0.6, [0.5, 0.7]));
    }
}
