//! `join`, `verify`, `inspect`: read back what `split` wrote.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::format::SplitLayout;
use crate::outputs::log::StripedLog;
use crate::outputs::{Reader, RemoteOutputs, SplitOutput, beside_path, no_remote};
use crate::pipeline::join::{JoinJob, Target};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::hex;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::device::{Access, FileDevice, Policy, SharedDevice};
use pinstripe_io::fault::{FaultyDevice, Plan};
use pinstripe_io::paths;
use pinstripe_io::pool::each;
use pinstripe_member::is_remote;

pub use crate::pipeline::join::JoinOutcome as Joined;

/// Opens a split from its outputs in any order. Missing outputs are only warnings, since parity may
/// replace them. `faults` are injected on purpose, by the position of an output in `paths`.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when all outputs are missing, or with the errors of
/// [`Reader::open`].
pub fn open(
    paths: &[PathBuf],
    remote: Option<&dyn RemoteOutputs>,
    faults: &Plan,
    monitor: &Monitor,
) -> Result<Reader> {
    let mut devices = Vec::with_capacity(paths.len());
    for (number, path) in paths.iter().enumerate() {
        match open_one(path, remote, &faults.for_member(number as u32)) {
            Ok(pair) => devices.push(pair),
            Err(error) if error.kind() == Kind::NotFound => monitor.warning(path, error),
            Err(error) => return Err(error),
        }
    }
    if let (true, Some(first)) = (devices.is_empty(), paths.first()) {
        let what = "there is nothing to read: no named output exists";
        return Err(Error::new(Kind::NotFound, what).at(first));
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
            "some of the {} outputs are missing: {}",
            reader.head().outputs,
            numbers.join(", ")
        );
        let error = Error::new(Kind::NotFound, what);
        let advice = "give all existing outputs; with parity P, up to P outputs may be missing";
        monitor.warning("the split", error.advice(advice));
    }
    Ok(reader)
}

/// Returns the description of the split in one output.
///
/// # Errors
/// Fails with the errors of [`SplitOutput::open`], or with [`Kind::NotFound`] when the output is
/// missing.
pub fn inspect(path: &Path, remote: Option<&dyn RemoteOutputs>) -> Result<SplitOutput> {
    let (device, plain) = open_one(path, remote, &Plan::default())?;
    SplitOutput::open(device, plain)
}

/// Opens the device with the log and, if the log is in a separate file, the device with the plain
/// bytes.
fn open_one(
    path: &Path,
    remote: Option<&dyn RemoteOutputs>,
    faults: &Plan,
) -> Result<(SharedDevice, Option<SharedDevice>)> {
    if is_remote(path) {
        let device = remote.ok_or_else(|| no_remote(path))?.output(path)?;
        if device.len()? == 0 {
            return Err(Error::new(Kind::NotFound, "this output does not exist").at(path));
        }
        return Ok(match faults.faults.is_empty() {
            true => (device, None),
            false => (Arc::new(FaultyDevice::new(device, faults.clone())), None),
        });
    }
    let open = |path: &Path| -> Result<SharedDevice> {
        let file = FileDevice::open(path, Access::Read, Policy::Buffered)?;
        match faults.faults.is_empty() {
            true => Ok(Arc::new(file)),
            false => Ok(Arc::new(FaultyDevice::new(file, faults.clone()))),
        }
    };
    let (device, beside) = (open(path)?, beside_path(path));
    if !paths::exists(&beside) {
        return Ok((device, None));
    }
    // An output that has its own log may have a file of that name in its directory; and a plain
    // output may once have been an output of another split.
    let log = open(&beside)?;
    let head =
        |device: &SharedDevice| SplitOutput::open(device.clone(), None).and_then(|it| it.head);
    let is_plain = head(&log).is_ok_and(|head| head.layout == SplitLayout::Plain);
    match !is_plain && head(&device).is_ok() {
        true => Ok((device, None)),
        false => Ok((log, Some(device))),
    }
}

/// Refuses a split that is unfinished or has lost too many outputs, unless `best_effort` accepts
/// what exists.
///
/// # Errors
/// Fails with [`Kind::Refused`], with the progress of the unfinished split, or with the errors of
/// [`Reader::require_enough`].
pub fn require_complete(reader: &Reader, best_effort: bool) -> Result<()> {
    if best_effort {
        return Ok(());
    }
    if reader.manifest().is_some() {
        return reader.require_enough();
    }
    let there: u64 = reader.batches().iter().map(|it| it.place.raw_bytes).sum();
    let of = reader.head().source_bytes.map_or_else(String::new, |bytes| format!(" of {bytes}"));
    Err(Error::new(
        Kind::Refused,
        format!("the split is incomplete; the outputs contain {there}{of} bytes"),
    )
    .advice(
        "continue the split with 'pinstripe split --resume', or join the present bytes with \
             --best-effort",
    ))
}

/// Options of `join`.
pub struct JoinOptions {
    /// The range of the source to join; by default all of it.
    pub range: Option<Range<u64>>,
    /// Write zeros for lost bytes, instead of failing.
    pub best_effort: bool,
    /// Threads.
    pub workers: usize,
}

/// Reads a split and writes its bytes to a target.
///
/// # Errors
/// Fails with the errors of [`require_complete`] and [`JoinJob::run`], or with [`Kind::Corrupt`]
/// when the bytes differ from the source although every checksum matches.
pub fn run(
    reader: &Reader,
    options: &JoinOptions,
    target: Target<'_>,
    monitor: &Monitor,
) -> Result<Joined> {
    require_complete(reader, options.best_effort)?;
    let range = options.range.clone().unwrap_or(0..reader.source_bytes());
    monitor.set_total(range.end.saturating_sub(range.start), 0);
    let job = JoinJob { reader, range, best_effort: options.best_effort, workers: options.workers };
    let joined = job.run(target, monitor)?;
    let told = reader.manifest().map(|manifest| manifest.blake3);
    if let (Some(told), Some(found)) = (told, joined.blake3)
        && told != found
    {
        return Err(Error::new(
            Kind::Corrupt,
            "the data that was read differs from the data that was split",
        )
        .expected(hex(&told), hex(&found)));
    }
    for lost in &joined.lost {
        let Range { start, end } = lost;
        let what = format!("bytes {start}..{end} are lost");
        monitor.loss(reader.head().source.as_str(), Error::new(Kind::TooManyLosses, what));
    }
    for Range { start, end } in &joined.changed {
        let what = format!("the bytes {start}..{end} differ from the source that was split");
        monitor.loss(reader.head().source.as_str(), Error::new(Kind::Corrupt, what));
    }
    Ok(joined)
}

/// The findings of a verification of a split.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    /// The result of joining everything.
    pub joined: Joined,
    /// Damaged parts of outputs that parity can rebuild.
    pub repairable: u64,
    /// Damaged parts that cannot be rebuilt.
    pub lost_parts: u64,
}

/// Reads every byte of every output and compares it with its checksums.
///
/// # Errors
/// Fails with the errors of [`run`], except that losses are part of the result.
pub fn verify(reader: &Reader, workers: usize, monitor: &Monitor) -> Result<Verified> {
    let options = JoinOptions { range: None, best_effort: true, workers };
    let mut verified =
        Verified { joined: run(reader, &options, Target::None, monitor)?, ..Verified::default() };
    let Some(log) = reader.striped()? else {
        for Range { start, end } in &verified.joined.hurt {
            let what = format!(
                "the outputs are damaged where they describe the bytes {start}..{end} of the \
                 source, but these bytes are intact"
            );
            let error = Error::new(Kind::Corrupt, what);
            monitor.warning(reader.head().source.as_str(), error.advice("split the source again"));
        }
        verified.repairable += verified.joined.hurt.len() as u64;
        return Ok(verified);
    };
    // Joining reads data; parity is read here.
    let sets: Vec<u64> = (0..log.sets()).collect();
    let damage = each(workers, &sets, |set| damage_of(reader, &log, *set, monitor))?;
    for DamagedPart { place, is_repairable, what } in damage.into_iter().flatten() {
        let error = Error::new(Kind::Corrupt, what);
        if is_repairable {
            verified.repairable += 1;
            let error = error.advice(
                "parity can replace the damaged part; to restore this output, split the source \
                 again, or copy the output again",
            );
            monitor.warning(place, error);
        } else {
            verified.lost_parts += 1;
            monitor.loss(place, error);
        }
    }
    Ok(verified)
}

/// A damaged part of an output of a split.
struct DamagedPart {
    place: PathBuf,
    is_repairable: bool,
    what: String,
}

/// Returns the damage to a stripe set on the present outputs.
fn damage_of(
    reader: &Reader,
    log: &StripedLog,
    number: u64,
    monitor: &Monitor,
) -> Result<Vec<DamagedPart>> {
    let set = match log.finished_set(number) {
        Ok(set) => set,
        Err(error) => {
            let place = PathBuf::from(&reader.head().source);
            let what = format!("the parity of stripe set {number} cannot be rebuilt: {error}");
            return Ok(vec![DamagedPart { place, is_repairable: false, what }]);
        }
    };
    let found = set.verify(&mut |bytes| monitor.add(Counter::CheckedBytes, bytes));
    let hurt = found.damage.into_iter().filter_map(|it| {
        let output = reader.outputs()[it.member?].as_ref()?;
        let what = format!("{}: {}", it.part, it.reason);
        Some(DamagedPart {
            place: output.place().to_path_buf(),
            is_repairable: it.repairable,
            what,
        })
    });
    Ok(hurt.collect())
}
