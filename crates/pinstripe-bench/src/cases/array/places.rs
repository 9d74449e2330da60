//! Four members, in memory or as files, and an array on them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pinstripe::array::engine::{Making, create};
use pinstripe::array::geometry::{Layout, Level};
use pinstripe::device::{Access, Device, FileDevice, MemoryDevice, Policy, SharedDevice};
use pinstripe::fault::{FaultyDevice, Plan};
use pinstripe::format::array::superblock::Consistency;
use pinstripe::pipeline::array::{Volume, VolumeSettings};
use pinstripe::units::{KIB, MIB};

use super::Settings;
use crate::Result;

pub const MEMBERS: usize = 4;
pub const CHUNK_BYTES: u64 = 64 * KIB;
/// Of each member.
const LOG_BYTES: u64 = 64 * MIB;
/// Beside data and log: superblocks and tables.
const TABLE_BYTES: u64 = 8 * MIB;

/// What a slow member moves: as much as a good hard disk.
const SLOW: &str = "rate=250M";

/// Makes `count` devices at a place: "memory", "slow" (memory behind a brake), "shm" or "disk".
pub fn devices(settings: &Settings, place: &str, count: usize) -> Result<Vec<SharedDevice>> {
    let bytes = settings.member_bytes + LOG_BYTES + TABLE_BYTES;
    let directory = match place {
        "memory" => return (0..count).map(|number| memory(number, bytes)).collect(),
        "slow" => return (0..count).map(|number| slow(memory(number, bytes)?)).collect(),
        "shm" => &settings.shm,
        _ => &settings.bench.work,
    };
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    (0..count).map(|number| file(&directory.join(format!("member{number}")), bytes)).collect()
}

fn memory(number: usize, bytes: u64) -> Result<SharedDevice> {
    let device = MemoryDevice::with_limit(format!("member{number}"), bytes);
    device.set_len(bytes).map_err(text)?;
    Ok(Arc::new(device))
}

fn slow(device: SharedDevice) -> Result<SharedDevice> {
    Ok(Arc::new(FaultyDevice::new(device, SLOW.parse::<Plan>().map_err(text)?)))
}

fn file(path: &Path, bytes: u64) -> Result<SharedDevice> {
    let _ = fs::remove_file(path);
    let device = FileDevice::open(path, Access::CreateNew, Policy::Buffered).map_err(text)?;
    device.set_len(bytes).map_err(text)?;
    Ok(Arc::new(device))
}

/// Starts an array and writes all of it once.
pub fn start(devices: Vec<SharedDevice>, level: Level) -> Result<Volume> {
    let making = Making {
        name: "lab".to_owned(),
        level,
        layout: Layout::default_of(level),
        chunk_bytes: CHUNK_BYTES,
        log_bytes: LOG_BYTES,
        consistency: Consistency::Log,
        now_seconds: 0,
    };
    let flusher = create(&making, devices).map_err(text)?;
    let volume = Volume::start(flusher, VolumeSettings::default()).map_err(text)?;
    let noise = super::load::noise(1 << 20);
    let capacity = volume.len().map_err(text)?;
    let mut at = 0;
    while at < capacity {
        let bytes = (capacity - at).min(noise.len() as u64) as usize;
        volume.write_at(at, &noise[..bytes]).map_err(text)?;
        at += bytes as u64;
    }
    volume.sync().map_err(text)?;
    Ok(volume)
}

/// What a message says of an error of the library's.
pub fn text(error: pinstripe::error::Error) -> String {
    error.to_string()
}
