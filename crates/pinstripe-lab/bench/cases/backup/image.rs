//! One huge file, such as a disk image: how it is made, and its table.
//!
//! The image is the same in each run on one machine: slabs of 64 MiB. Each slab has 40 MiB of
//! concatenated files of /usr in path order (starting again after the last one), 12 MiB of zeros
//! and 12 MiB of incompressible data.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use pinstripe_base::units::{MIB, format_size};
use pinstripe_lab::Table;
use pinstripe_stats::Summary;

use super::limits::Limit;
use super::{Costs, Phase, costs_of, mib};
use crate::Result;
use crate::child::Cost;
use crate::content::{Files, Noise};
use crate::targets::{Target, compare_row, comparison, plain_row};
use crate::tools;

const FILES_FROM: &str = "/usr";
/// Bytes of files, of zeros and of noise in each slab.
const SLAB: [u64; 3] = [40 * MIB, 12 * MIB, 12 * MIB];
/// The share of the slowest stage's rate that a backup of the image is to reach.
const SHARE: f64 = 0.8;

/// Makes the image below `work` unless it is there in full, and returns its path.
pub fn make(work: &Path, bytes: u64) -> Result<PathBuf> {
    let path = work.join(format!("image-{bytes}"));
    if path.metadata().is_ok_and(|metadata| metadata.len() == bytes) {
        return Ok(path);
    }
    eprintln!("making an image of {}", format_size(bytes));
    let half = path.with_extension("half");
    let told = |error| format!("cannot make {}: {error}", half.display());
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&half).map_err(told)?);
    let mut files = Files::below(Path::new(FILES_FROM))?;
    fill(&mut out, &mut files, SLAB, bytes)
        .and_then(|()| out.flush())
        .and_then(|()| fs::rename(&half, &path))
        .map_err(told)?;
    Ok(path)
}

fn fill(out: &mut dyn Write, files: &mut Files, slab: [u64; 3], bytes: u64) -> io::Result<()> {
    let [file_bytes, zero_bytes, random_bytes] = slab;
    let mut random = Noise(0);
    let mut left = bytes;
    while left > 0 {
        let before = left;
        left -= io::copy(&mut files.by_ref().take(file_bytes.min(left)), out)?;
        left -= io::copy(&mut io::repeat(0).take(zero_bytes.min(left)), out)?;
        left -= io::copy(&mut random.by_ref().take(random_bytes.min(left)), out)?;
        assert!(left < before, "zeros and random bytes never end");
    }
    Ok(())
}

/// The backup of the image, compared with each stage alone.
pub(super) fn table(costs: &Costs, bytes: u64, limits: &[Limit]) -> Result<Table> {
    let note = format!(
        "{}: slabs of 64 MiB, of which 40 MiB are files of {FILES_FROM}, 12 MiB zeros and 12 MiB \
         pseudo-random. A stage's own rate is that of all cores doing nothing else.",
        format_size(bytes)
    );
    let mut table = comparison("Backup of one huge file", note);
    let theirs = costs_of(costs, Phase::Image, tools::RESTIC)?;
    let ours = costs_of(costs, Phase::Image, tools::PINSTRIPE)?;
    let medians = |pick: &dyn Fn(&Cost) -> f64| {
        [theirs, ours].map(|costs| {
            let samples: Vec<f64> = costs.iter().map(pick).collect();
            Summary::from_samples(&samples).map_or(f64::NAN, |summary| summary.median)
        })
    };
    let wall = medians(&|cost| cost.wall_s);
    let cpu = medians(&|cost| cost.cpu_s);
    let memory = medians(&|cost| mib(cost.memory_bytes as f64));
    let memory_limit = Target::AtMost(super::MEMORY_LIMIT_MIB);
    compare_row(&mut table, "wall s".into(), wall, 2, Target::None);
    compare_row(&mut table, "CPU s".into(), cpu, 2, Target::None);
    compare_row(&mut table, "peak MiB".into(), memory, 0, memory_limit);
    let busy = medians(&|cost| cost.cpu_s / cost.wall_s);
    plain_row(&mut table, "cores busy".into(), busy, 2, Target::None);
    let rates = wall.map(|wall_s| bytes as f64 / 1e6 / wall_s);
    plain_row(&mut table, "MB/s".into(), rates, 0, Target::None);
    let (mut slowest, mut seconds_per_mb) = (f64::INFINITY, 0.0);
    for limit in limits {
        let rate = limit.bytes_per_second / 1e6;
        let what = format!("{} alone, MB/s", limit.stage);
        plain_row(&mut table, what, [f64::NAN, rate], 0, Target::None);
        slowest = slowest.min(rate);
        seconds_per_mb += 1.0 / rate;
    }
    // They share the cores: this is what all of them together leave room for.
    let together = "all of these on the same cores, MB/s".into();
    plain_row(&mut table, together, [f64::NAN, 1.0 / seconds_per_mb], 0, Target::None);
    let share = [f64::NAN, rates[1] / slowest];
    let what = "share of the slowest stage".into();
    plain_row(&mut table, what, share, 2, Target::AtLeast(SHARE));
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_has_its_size_and_its_parts() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("a"), "alpha").unwrap();
        fs::write(place.path().join("b"), "beta").unwrap();
        let make = || {
            let mut files = Files::below(place.path()).unwrap();
            let mut image = Vec::new();
            fill(&mut image, &mut files, [18, 5, 7], 61).unwrap();
            image
        };
        let image = make();
        assert_eq!(image.len(), 61);
        assert_eq!(&image[..23], b"alphabetaalphabeta\0\0\0\0\0");
        assert_eq!(&image[30..53], &image[..23]);
        assert_ne!(image[23..30], image[53..60]);
        assert!(image == make(), "two images differ");
    }

    #[test]
    fn without_files_the_image_is_zeros_and_noise() {
        let place = tempfile::tempdir().unwrap();
        let mut files = Files::below(place.path()).unwrap();
        let mut image = Vec::new();
        fill(&mut image, &mut files, [18, 5, 7], 30).unwrap();
        assert_eq!(image.len(), 30);
        assert!(image.starts_with(&[0; 5]));
    }
}
