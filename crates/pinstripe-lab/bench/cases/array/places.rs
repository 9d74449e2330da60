//! Four members, in memory or as files, and an array on them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pinstripe_array::{Level, Volume};
use pinstripe_io::device::{Access, Device, FileDevice, MemoryDevice, Policy, SharedDevice};
use pinstripe_io::fault::{FaultyDevice, Plan};
use pinstripe_lab::{ARRAY_LOG_BYTES, ARRAY_TABLE_BYTES, Live, array_options};

use super::Settings;
use crate::Result;

pub const MEMBERS: usize = 4;

/// The rate of a slow member: that of a good hard disk.
const SLOW: &str = "rate=250M";

/// Makes `count` devices at a place: "memory", "slow" (memory behind a brake), "shm" or "disk".
pub fn devices(settings: &Settings, place: &str, count: usize) -> Result<Vec<SharedDevice>> {
    let bytes = settings.member_bytes + ARRAY_LOG_BYTES + ARRAY_TABLE_BYTES;
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
    Ok(Arc::new(device.with_direct_long_writes().map_err(text)?))
}

/// Starts an array and writes all of it once.
pub fn start(devices: Vec<SharedDevice>, level: Level) -> Result<Volume> {
    let live = Live::new(Default::default());
    pinstripe_lab::start_array(devices, &array_options(level), &live).map_err(text)
}

/// The message of an error of the library.
pub fn text(error: pinstripe_base::error::Error) -> String {
    error.to_string()
}
