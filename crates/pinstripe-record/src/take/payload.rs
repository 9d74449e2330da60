//! Opens the payload of a file, whatever format the file has.

use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};

use super::folder::{TakeFile, TakeFolder};
use super::manifest::Manifest;
use crate::flac::FlacReader;
use crate::header::FileKind;

/// Opens a file of a stream so that its payload reads as the recorded samples. If `is_written`, the
/// head and the length can be written, too.
///
/// # Errors
/// [`Kind::Corrupt`] for a stream that the take does not have; [`Kind::Unsupported`] without
/// libFLAC; the errors of the folder.
pub(crate) fn open_payload(
    folder: &dyn TakeFolder,
    manifest: &Manifest,
    stream: u32,
    (name, is_written): (&str, bool),
) -> Result<TakeFile> {
    let facts = manifest.head_facts(stream, 0);
    let facts = facts.ok_or_else(|| {
        Error::new(Kind::Corrupt, "this file does not belong to a stream of this take")
    })?;
    let file = folder.open(name, is_written)?;
    match facts.kind {
        FileKind::Flac => {
            let reader = FlacReader::new(file.shared(), facts.shape, facts.payload_at())?;
            Ok(TakeFile::of_device(Arc::new(reader)))
        }
        _ => Ok(file),
    }
}
