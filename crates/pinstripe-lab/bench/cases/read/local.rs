//! An overlay of a local directory, where it can only lose: how much.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use pinstripe_base::units::{GIB, MIB};
use pinstripe_lab::{Align, Cell, Table};

use super::Settings;
use super::place::{MountedAt, Reads, cool};
use crate::Result;
use crate::child;
use crate::content::Noise;

const SIZE: u64 = GIB;

pub(super) fn table(settings: &Settings) -> Result<Table> {
    let note = "MB/s of one reader of a file of 1 GiB. Cold: the kernel was told to forget the file, \
                and the overlay is new. Warm: read once before by the same overlay. With a cache: a new \
                overlay, the source's file forgotten, all of it in the cache on the same disk. Passed \
                through: the kernel reads by itself (--passthrough, Linux 6.9, root).";
    let columns = [
        ("reads", Align::Left),
        ("bare", Align::Right),
        ("overlay", Align::Right),
        ("share", Align::Right),
        ("target", Align::Left),
        ("verdict", Align::Left),
    ];
    let mut table = Table::new("Overlay of a local directory", note, &columns);
    let file = make(settings)?;
    let in_order = Reads::stride(MIB, MIB, SIZE / MIB, false);
    let random = Reads::random(4096, 2000, SIZE);
    // Warm, 2000 of them take some milliseconds.
    let many = Reads::random(4096, 200_000, SIZE);
    for (name, reads, heat, wanted) in [
        ("in order, cold", &in_order, Heat::Cold, Some(0.9)),
        ("random 4 KiB, cold", &random, Heat::Cold, Some(0.5)),
        ("in order, warm", &in_order, Heat::Warm, None),
        ("random 4 KiB, warm", &many, Heat::Warm, None),
        ("in order, from the cache", &in_order, Heat::Cached, None),
        ("random 4 KiB, cold, passed through", &random, Heat::ColdPassed, None),
        ("in order, warm, passed through", &in_order, Heat::WarmPassed, Some(0.9)),
        ("random 4 KiB, warm, passed through", &many, Heat::WarmPassed, Some(0.9)),
    ] {
        let bare = bare(&file, reads, heat)?;
        let overlay = overlaid(settings, &file, reads, heat)?;
        eprintln!("{name}: bare {bare:.1} MB/s, overlay {overlay:.1} MB/s");
        let (share, target) = (overlay / bare, wanted.map(|share| format!(">= {share} x bare")));
        let verdict = match wanted {
            None => "",
            Some(wanted) if share >= wanted => "reached",
            Some(_) => "not reached",
        };
        table.row([
            name.into(),
            Cell::Number(bare, 1),
            Cell::Number(overlay, 1),
            Cell::Number(share, 2),
            target.unwrap_or_default().into(),
            verdict.into(),
        ]);
    }
    Ok(table)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Heat {
    Cold,
    Warm,
    Cached,
    ColdPassed,
    WarmPassed,
}

impl Heat {
    fn is_warm(self) -> bool {
        matches!(self, Heat::Warm | Heat::WarmPassed)
    }
}

fn bare(file: &Path, reads: &Reads, heat: Heat) -> Result<f64> {
    if heat.is_warm() {
        warm(file)?;
        reads.rate(file, &|_, _| true)?;
    } else {
        cool(file)?;
    }
    reads.rate(file, &|_, _| true)
}

fn overlaid(settings: &Settings, file: &Path, reads: &Reads, heat: Heat) -> Result<f64> {
    let work = &settings.bench.work;
    let mount = |has_cache: bool| {
        let pinstripe = settings.bench.pinstripe()?;
        let fast = MountedAt::new(work, "fast")?;
        let mut overlay = pinstripe.bare("overlay");
        overlay.arg(file.parent().unwrap_or(work)).arg(&fast.0);
        if matches!(heat, Heat::ColdPassed | Heat::WarmPassed) {
            overlay.arg("--passthrough");
        }
        if has_cache {
            overlay.arg("--cache").arg(format!("{},2G", work.join("cache").display()));
        }
        child::run(&mut overlay, &pinstripe.logs, "overlay")?;
        Ok::<_, String>(fast)
    };
    let shown = |fast: &MountedAt| fast.0.join(file.file_name().unwrap_or_default());
    let read = |fast: &MountedAt| reads.rate(&shown(fast), &|_, _| true);
    if heat == Heat::Cached {
        let fast = mount(true)?;
        read(&fast)?;
    }
    cool(file)?;
    let fast = mount(heat == Heat::Cached)?;
    if heat.is_warm() {
        warm(&shown(&fast))?;
        read(&fast)?;
    }
    read(&fast)
}

/// Has the kernel keep all of a file.
fn warm(file: &Path) -> Result<()> {
    Reads::stride(MIB, MIB, SIZE / MIB, false).rate(file, &|_, _| true).map(drop)
}

/// A file that holds noise, made once.
fn make(settings: &Settings) -> Result<PathBuf> {
    let path = settings.bench.work.join("local/noise");
    let told = |error: std::io::Error| format!("cannot make {}: {error}", path.display());
    if path.metadata().is_ok_and(|metadata| metadata.len() == SIZE) {
        return Ok(path);
    }
    std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(told)?;
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(told)?);
    std::io::copy(&mut Noise(1).take(SIZE), &mut out).map_err(told)?;
    out.flush().map_err(told)?;
    Ok(path)
}
