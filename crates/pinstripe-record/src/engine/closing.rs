//! The end of a file: its length, tail and final head, while it is recorded or recovered.

use pinstripe_base::error::Result;

use crate::header::{Cue, HeadFacts};
use crate::take::{Summed, TakeFile, TrimmedRun};

/// The run of a payload from `at` to its end at `whole`, read back.
///
/// # Errors
/// As reported by the system.
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
    let Summed { bytes, sum } = Summed::of(&bytes);
    Ok(Some(TrimmedRun { at, bytes, sum }))
}

/// Gives a file its final length, tail and head, and makes them durable.
///
/// The length comes first, for it frees what was reserved; a disk that is full even then has no
/// room for cues, and the file is intact without.
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
