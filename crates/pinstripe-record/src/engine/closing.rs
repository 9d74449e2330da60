//! Completes a file: its final length, tail and head, while it is recorded or recovered.

use pinstripe_base::error::Result;

use crate::header::{Cue, HeadFacts};
use crate::take::{Summed, TakeFile, TrimmedRun};

/// Reads back the run of a payload from `at` to its end at `whole`.
///
/// # Errors
/// Returns errors as the system reports them.
pub(crate) fn trimmed_run(
    file: &TakeFile,
    payload_at: u64,
    at: u64,
    whole: u64,
) -> Result<Option<TrimmedRun>> {
    if at >= whole {
        return Ok(None);
    }
    let mut bytes = vec![0; (whole - at) as usize];
    file.device().read_at(payload_at + at, &mut bytes)?;
    let Summed { bytes, sum } = Summed::from_bytes(&bytes);
    Ok(Some(TrimmedRun { at, bytes, sum }))
}

/// Writes a file's final length, tail and head, and makes them durable.
///
/// The length is set first, because this frees reserved space. If the disk is full even then, there
/// is no space for cues, and the file is valid without them.
pub(crate) fn close_file(
    file: &TakeFile,
    facts: &HeadFacts,
    payload: u64,
    cues: &[Cue],
) -> Result<()> {
    let at = facts.payload_at();
    file.device().set_len(at + payload)?;
    let (head, tail) = facts.complete(payload, cues);
    let has_tail = tail.is_empty() || file.device().write_at(at + payload, &tail).is_ok();
    // The head must not cover the tail until the tail is durable.
    file.device().sync()?;
    if has_tail {
        file.device().write_at(0, &head)?;
    } else {
        file.device().set_len(at + payload)?;
        file.device().write_at(0, &facts.head(payload))?;
    }
    file.device().sync()
}
