//! `join`, `verify`, `inspect`: what `split` wrote, read back.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::device::{Access, FileDevice, Policy, SharedDevice};
use crate::error::{Error, Kind, Result};
use crate::monitor::{Counter, Monitor};
use crate::pipeline::each::each;
use crate::pipeline::join::{Job, Target};
use crate::split::{Output, Reader, beside_path};

pub use crate::pipeline::join::Outcome as Joined;

/// Opens a split from its outputs in any order. Those that are not there are warnings: parity may
/// do without them.
///
/// # Errors
/// As [`Reader::open`].
pub fn open(paths: &[PathBuf], monitor: &Monitor) -> Result<Reader> {
    let mut devices = Vec::with_capacity(paths.len());
    for path in paths {
        match open_one(path) {
            Ok(pair) => devices.push(pair),
            Err(error) if error.kind() == Kind::NotFound => monitor.warning(path, error),
            Err(error) => return Err(error),
        }
    }
    let reader = Reader::open(devices)?;
    for error in reader.troubles() {
        let place = error.place().map(Path::to_path_buf).unwrap_or_default();
        monitor.warning(place, error.duplicate());
    }
    let missing = reader.missing();
    if !missing.is_empty() {
        let numbers: Vec<String> = missing.iter().map(usize::to_string).collect();
        let what = format!(
            "of {} outputs these are missing: {}",
            reader.head().outputs,
            numbers.join(", ")
        );
        let error = Error::new(Kind::NotFound, what);
        let advice =
            "name all outputs that there are; parity gives back as many as it was asked for";
        monitor.warning("the split", error.advice(advice));
    }
    Ok(reader)
}

/// What one output says of itself.
///
/// # Errors
/// As [`Output::open`]; [`Kind::NotFound`] when it is not there.
pub fn look(path: &Path) -> Result<Output> {
    let (device, plain) = open_one(path)?;
    Output::open(device, plain)
}

/// The device with the log, and the one with the bytes where the log stands beside it.
fn open_one(path: &Path) -> Result<(SharedDevice, Option<SharedDevice>)> {
    let open = |path: &Path| -> Result<SharedDevice> {
        Ok(Arc::new(FileDevice::open(path, Access::Read, Policy::Buffered)?))
    };
    let beside = beside_path(path);
    if !beside.exists() {
        return Ok((open(path)?, None));
    }
    let device = open(path)?;
    // A file of that name may stand beside an output that has its own log.
    match Output::open(device.clone(), None) {
        Ok(output) if output.head.is_ok() => Ok((device, None)),
        _ => Ok((open(&beside)?, Some(device))),
    }
}

/// Refuses a split that never came to its end, unless somebody wants what there is.
///
/// # Errors
/// [`Kind::Refused`], with how far it came.
pub fn require_complete(reader: &Reader, best_effort: bool) -> Result<()> {
    if reader.manifest().is_some() || best_effort {
        return Ok(());
    }
    let there: u64 = reader.batches().iter().map(|it| it.place.raw_bytes).sum();
    let of = reader.head().source_bytes.map_or_else(String::new, |bytes| format!(" of {bytes}"));
    Err(Error::new(Kind::Refused, format!("the split is incomplete: {there}{of} bytes are there"))
        .advice("go on with it: pinstripe split --resume; or take what there is: --best-effort"))
}

/// How to join.
pub struct Options {
    /// Which part of the source; all of it when not said.
    pub range: Option<Range<u64>>,
    /// Zeros for what is lost, instead of an end.
    pub best_effort: bool,
    /// Threads.
    pub workers: usize,
}

/// Reads a split and gives it to a target.
///
/// # Errors
/// As [`require_complete`] and [`Job::run`]; [`Kind::Corrupt`] when all was read and is not what was
/// split, though every checksum holds.
pub fn run(
    reader: &Reader,
    options: &Options,
    target: Target<'_>,
    monitor: &Monitor,
) -> Result<Joined> {
    require_complete(reader, options.best_effort)?;
    let range = options.range.clone().unwrap_or(0..reader.source_bytes());
    monitor.expect(range.end.saturating_sub(range.start), 0);
    let job = Job { reader, range, best_effort: options.best_effort, workers: options.workers };
    let joined = job.run(target, monitor)?;
    let told = reader.manifest().map(|manifest| manifest.blake3);
    if let (Some(told), Some(found)) = (told, joined.blake3)
        && told != found
    {
        return Err(Error::new(Kind::Corrupt, "what was read is not what was split")
            .expected(hex(&told), hex(&found)));
    }
    for lost in &joined.lost {
        let Range { start, end } = lost;
        let what = format!("bytes {start}..{end} are lost");
        monitor.loss(reader.head().source.as_str(), Error::new(Kind::TooManyLosses, what));
    }
    Ok(joined)
}

/// Hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What verifying found.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    /// As of a join of everything.
    pub joined: Joined,
    /// Parts of outputs that are damaged and that parity gives back.
    pub repairable: u64,
    /// Those that nothing gives back.
    pub lost_parts: u64,
}

/// Reads every byte of every output and holds it against its checksums.
///
/// # Errors
/// As [`run`], but losses are in the outcome.
pub fn verify(reader: &Reader, workers: usize, monitor: &Monitor) -> Result<Verified> {
    let options = Options { range: None, best_effort: true, workers };
    let mut verified =
        Verified { joined: run(reader, &options, Target::None, monitor)?, ..Verified::default() };
    let Some(log) = reader.striped()? else { return Ok(verified) };
    // Joining reads data; parity is read here.
    let sets: Vec<u64> = (0..log.sets()).collect();
    let damage = each(workers, &sets, |set| {
        let reader = log.set(*set)?;
        let found = reader.verify(&mut |bytes| monitor.add(Counter::CheckedBytes, bytes));
        Ok(found
            .damage
            .into_iter()
            .map(|it| (it.member, it.repairable, it.part.to_string(), it.reason.to_string()))
            .collect::<Vec<_>>())
    })?;
    for (member, repairable, part, reason) in damage.into_iter().flatten() {
        let Some(output) = member.and_then(|number| reader.outputs()[number].as_ref()) else {
            continue;
        };
        let error = Error::new(Kind::Corrupt, format!("{part}: {reason}"));
        if repairable {
            verified.repairable += 1;
            monitor.warning(
                output.place(),
                error.advice("parity gives it back; split or copy it anew"),
            );
        } else {
            verified.lost_parts += 1;
            monitor.loss(output.place(), error);
        }
    }
    Ok(verified)
}
