//! Finds the finished part of an interrupted split, from which the split can be resumed.
//!
//! Invariants: everything in a log before its last index was durable when that index was written;
//! everything after it is read and verified before it counts. In a striped log only complete sets
//! count: after the last index, those whose strips, including parity, are all intact.

use std::ops::Range;

use super::log::{OwnLog, Sets, StripedLog};
use super::output::SplitOutput;
use super::scan::{Scan, scan};
use super::tree_hash::UnitHash;
use super::unit::{RawSidecar, UnitReader, UnitSource, buffer};
use crate::format::{ALIGN_BYTES, BatchExtent, BatchPlace, Head, PAGES_BYTES, SplitLayout};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::SharedDevice;
use pinstripe_stripe::Geometry;

/// The finished part of a log.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogProgress {
    /// The position in the log at which writing continues.
    pub log_bytes: u64,
    /// The batches in the log that no index lists yet.
    pub rows: Vec<BatchPlace>,
    /// The last index.
    pub last_index: Option<u64>,
    /// The number of batches that indexes list.
    pub indexed: u64,
}

/// The finished part of a split.
#[derive(Default)]
pub(crate) struct Resumed {
    /// By log.
    pub begun: Vec<LogProgress>,
    /// The units' contributions to the hash, by unit.
    pub parts: Vec<(u64, UnitHash)>,
    /// The finished ranges of the source, ascending and not adjacent.
    pub done: Vec<Range<u64>>,
}

/// Examines the outputs of an interrupted split, which must all be present and in order, and
/// truncates each after its durable part.
///
/// # Errors
/// Fails with [`Kind::Exists`] when the split is complete, with [`Kind::TooManyLosses`] when a
/// batch before the last index cannot be read, or with the errors of the devices.
pub fn resume(outputs: &[SplitOutput], head: &Head) -> Result<Resumed> {
    if outputs.iter().any(|output| matches!(output.end, Ok(Some(_)))) {
        return Err(Error::new(Kind::Exists, "the split is already complete")
            .at(outputs[0].place())
            .advice("join the outputs, or start the split from the beginning with --force"));
    }
    let mut resumed = Resumed::default();
    match head.layout {
        SplitLayout::Stripes => striped(outputs, head, &mut resumed)?,
        _ => {
            for output in outputs {
                let log = OwnLog {
                    device: output.device.clone(),
                    bytes: output.bytes.saturating_sub(PAGES_BYTES),
                };
                let first_byte = output.head.as_ref().map_or(0, |head| head.first_byte);
                let sidecar = output.plain.as_ref().map(|device| RawSidecar { device, first_byte });
                let found = scan(&log, head.tag())?;
                let source = UnitSource { log: &log, tag: head.tag(), sidecar: sidecar.as_ref() };
                let begun = take(source, head, &found, found.end, &mut resumed)?;
                cut(&output.device, PAGES_BYTES + begun.log_bytes)?;
                resumed.begun.push(begun);
            }
        }
    }
    resumed.done.sort_by_key(|range| range.start);
    let mut done: Vec<Range<u64>> = Vec::with_capacity(resumed.done.len());
    for range in std::mem::take(&mut resumed.done) {
        match done.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => done.push(range),
        }
    }
    resumed.done = done;
    Ok(resumed)
}

fn striped(outputs: &[SplitOutput], head: &Head, resumed: &mut Resumed) -> Result<()> {
    let geometry = Geometry::new(head.outputs - head.parity, head.parity, head.strip_bytes)?;
    let sets = Sets::new(head.split, geometry);
    let devices: Vec<Option<SharedDevice>> =
        outputs.iter().map(|output| Some(output.device.clone())).collect();
    let extent = sets.extent_at(1) - sets.extent_at(0);
    let there = |output: &SplitOutput| output.bytes.saturating_sub(PAGES_BYTES) / extent;
    let all = outputs.iter().map(there).min().unwrap_or(0);
    let log = StripedLog::new(sets, devices, Some(all * sets.log_bytes()))?;
    let found = scan(&log, head.tag())?;
    // The sets in front of that of an index were durable when it was written. Behind it the power
    // may have taken anything, and parity that is not intact would be no help later.
    let indexed = found.indexes.last().map_or(0, |index| index.start / sets.log_bytes());
    let is_sound = |set: &u64| {
        log.finished_set(*set).is_ok_and(|set| set.verify(&mut |_| {}).damage.is_empty())
    };
    let whole = (indexed..all).find(|set| !is_sound(set)).unwrap_or(all);
    // It continues at the beginning of a set in any case.
    let mut set = whole;
    let begun = loop {
        let end = set * sets.log_bytes();
        let mut counted = Resumed::default();
        let source = UnitSource { log: &log, tag: head.tag(), sidecar: None };
        let begun = take(source, head, &found, end, &mut counted)?;
        if begun.log_bytes == end {
            (resumed.done, resumed.parts) = (counted.done, counted.parts);
            break begun;
        }
        set = begun.log_bytes / sets.log_bytes();
    };
    for output in outputs {
        cut(&output.device, sets.extent_at(set))?;
    }
    resumed.begun.push(begun);
    Ok(())
}

/// Counts those batches of a log that end at `end` or before.
fn take(
    source: UnitSource<'_>,
    head: &Head,
    found: &Scan,
    end: u64,
    resumed: &mut Resumed,
) -> Result<LogProgress> {
    let last_index = found.indexes.iter().rfind(|index| index.end <= end).map(|it| it.start);
    let mut begun = LogProgress { log_bytes: end, last_index, ..LogProgress::default() };
    let (mut units, mut raw) = (UnitReader::default(), buffer(head));
    for (place, batch) in &found.batches {
        if place.position + place.log_bytes > end {
            break;
        }
        let is_indexed = last_index.is_some_and(|position| place.position < position);
        if !is_indexed {
            let unit = units.read(source, place, &mut raw)?;
            if !unit.lost.is_empty() {
                begun.log_bytes = place.position;
                break;
            }
            begun.rows.push(*place);
        } else {
            begun.indexed += 1;
        }
        count(source, head, place, batch, resumed)?;
    }
    Ok(begun)
}

/// Truncates a log. A disk cannot be truncated: it gets a page without a frame at that place
/// instead.
fn cut(device: &SharedDevice, bytes: u64) -> Result<()> {
    match device.set_len(bytes) {
        Err(error) if error.kind() == Kind::Unsupported && bytes < device.len()? => {
            let end = device.len()?.min(bytes + ALIGN_BYTES);
            device.write_at(bytes, &vec![0; (end - bytes) as usize])
        }
        Err(error) if error.kind() == Kind::Unsupported => Ok(()),
        done => done,
    }
}

/// Counts a batch as finished: its range, and its contribution to the hash.
fn count(
    source: UnitSource<'_>,
    head: &Head,
    place: &BatchPlace,
    batch: &BatchExtent,
    resumed: &mut Resumed,
) -> Result<()> {
    let (start, end) = (place.offset, place.offset + place.raw_bytes);
    let unit = u64::from(head.unit_bytes());
    resumed.done.push(start..end);
    if let (Some(value), true) = (batch.chaining_value, start > 0) {
        resumed.parts.push((start / unit, UnitHash::known(value, None)));
        return Ok(());
    }
    // A hole has no value of its own, and the first unit may be all that there is.
    let mut raw = buffer(head);
    let found = UnitReader::default().read(source, place, &mut raw)?;
    if !found.lost.is_empty() {
        return Err(Error::new(
            Kind::TooManyLosses,
            "a part of the outputs that was already durable cannot be read",
        )
        .advice("start the split from the beginning with --force"));
    }
    let zeros = vec![0; if raw.is_empty() { unit.min(end - start) as usize } else { 0 }];
    for offset in (start..end).step_by(unit as usize) {
        let range = (offset - start) as usize..(end.min(offset + unit) - start) as usize;
        let bytes = if raw.is_empty() { &zeros[..range.len()] } else { &raw[range] };
        resumed.parts.push((offset / unit, UnitHash::from_bytes(offset, bytes)));
    }
    Ok(())
}
