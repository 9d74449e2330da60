//! Reads a recording back and verifies it.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::AlignedBuf;

use super::{Recording, filled, mark};
use crate::io::Target;
use crate::run::Live;

/// Reads the data of each stream, from the disk if the target is a file, and compares it with what
/// was written. `chunks` contains the number of chunks of each stream.
///
/// # Errors
/// [`Kind::Corrupt`], with the stream and the byte, for data that differs from what was written;
/// the errors of the targets; an interrupt.
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
