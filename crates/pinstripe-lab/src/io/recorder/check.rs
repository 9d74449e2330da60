//! Reading a recording again.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::AlignedBuf;

use super::{Recording, filled, mark};
use crate::io::Target;
use crate::run::Live;

/// Reads what each stream has, from the disk where it is a file, and holds it against what was
/// written. `chunks` says how many each has.
///
/// # Errors
/// [`Kind::Corrupt`] with stream and byte for what is not what was written; the errors of the
/// targets; an interrupt.
pub fn check(recording: &Recording, streams: &[Target], chunks: &[u64], live: &Live) -> Result<()> {
    let mut wanted = filled(recording);
    let mut found = AlignedBuf::new(recording.chunk_bytes);
    found.set_len(recording.chunk_bytes);
    for (stream, (target, count)) in streams.iter().zip(chunks).enumerate() {
        target.drop_cache()?;
        for chunk in 0..*count {
            live.check()?;
            let offset = chunk * recording.chunk_bytes as u64;
            target.device().read_at(offset, &mut found)?;
            mark(&mut wanted, recording, stream, chunk);
            if found[..] != wanted[..] {
                let pairs = found.iter().zip(wanted.iter());
                let byte = offset + pairs.take_while(|(a, b)| a == b).count() as u64;
                let what = format!("byte {byte} differs from the recorded data");
                return Err(Error::new(Kind::Corrupt, what).at(target.device().place()));
            }
            live.moved(found.len() as u64);
        }
    }
    Ok(())
}
