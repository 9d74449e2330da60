//! The third pass of a restore, on request: compares what was written with what was backed up.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use crossbeam_channel::bounded;

use super::planner::Offsets;
use super::{ChosenReader, RestorePlan};
use crate::source::SourceFile;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;
use pinstripe_member::record::ChunkRow;

/// Bytes that are read at once where a file should have holes.
const ZEROS_BYTES: usize = 64 << 10;

const DIFFERS: &str = "the disk of the target may be failing: restore to another one";

/// Reads every restored file again and compares it with the ids of its chunks.
///
/// # Errors
/// Errors of single files are in the ledger and do not make it fail.
pub fn verify(
    plan: &RestorePlan<'_>,
    tree: &mut ChosenReader<'_>,
    target: BorrowedFd<'_>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (files, queue) = bounded::<(Entry, Vec<ChunkRow>)>(plan.limits.jobs_queued);
        for _ in 0..plan.limits.workers {
            let queue = queue.clone();
            scope.spawn(move || {
                let mut buffer = Vec::new();
                for (entry, rows) in queue {
                    let path = plan.target_path(&entry);
                    if let Err(error) = verify_file(plan, &entry, &rows, target, path, &mut buffer)
                    {
                        plan.lose(path, error);
                    }
                }
            });
        }
        drop(queue);
        loop {
            match tree.next_entry() {
                Ok(Some(entry)) if entry.meta.kind == FileKind::File => {
                    let Ok(rows) = tree.content(&entry.content) else { continue };
                    if files.send((entry, rows)).is_err() {
                        break;
                    }
                }
                Ok(Some(_)) | Err(_) => {}
                Ok(None) => break,
            }
        }
    });
    Ok(())
}

fn verify_file(
    plan: &RestorePlan<'_>,
    entry: &Entry,
    rows: &[ChunkRow],
    target: BorrowedFd<'_>,
    path: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let file = SourceFile::open(target, path)?;
    if file.stat().size_bytes != entry.size {
        return Err(Error::new(
            Kind::Corrupt,
            "the length of the restored file differs from the backup",
        )
        .expected(entry.size, file.stat().size_bytes));
    }
    let mut offsets = Offsets::new(entry);
    for row in rows {
        let offset = offsets.next(row.raw_bytes)?;
        buffer.resize(row.raw_bytes as usize, 0);
        let read = file.read_at(offset, buffer)?;
        if read < buffer.len() || plan.keys.chunk_id(buffer) != row.id {
            return Err(Error::new(
                Kind::Corrupt,
                format!("the restored file differs from the backup at byte {offset} or later"),
            )
            .advice(DIFFERS));
        }
        plan.monitor.add(Counter::CheckedBytes, u64::from(row.raw_bytes));
    }
    verify_holes(&file, entry.data_extents(), buffer)
}

/// Fails if the file has anything but zeros outside of `data`, which are ascending ranges. Holes of
/// the file are skipped without reading.
fn verify_holes(file: &SourceFile, data: Vec<Range<u64>>, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.resize(ZEROS_BYTES, 0);
    let mut data = data.into_iter().peekable();
    for found in file.data_extents()? {
        let mut at = found.start;
        while at < found.end {
            while data.next_if(|range| range.end <= at).is_some() {}
            let next = data.peek().cloned().unwrap_or(u64::MAX..u64::MAX);
            let end = next.start.min(found.end);
            if at >= end {
                at = next.end;
                continue;
            }
            let length = (end - at).min(ZEROS_BYTES as u64) as usize;
            let read = file.read_at(at, &mut buffer[..length])?;
            if read < length || buffer[..length].iter().any(|byte| *byte != 0) {
                let what =
                    format!("the restored bytes from {at} on are not zeros, unlike the backup");
                return Err(Error::new(Kind::Corrupt, what).advice(DIFFERS));
            }
            at += length as u64;
        }
    }
    Ok(())
}
