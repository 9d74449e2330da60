//! Files of the server's state: replaced completely and durably, readable only by their owner.

#![allow(clippy::disallowed_methods, reason = "the files of the server's state")]

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::replace::replace_private;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most bytes of a file of the state; a longer file was not written by this program.
const FILE_MAX_BYTES: u64 = 16 << 20;

/// Makes the directory of the state, if it is missing.
///
/// # Errors
/// Fails with the errors of the file system.
pub fn make_directory(dir: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Error::io("cannot make the directory", dir, error))
}

/// Reads a file; `None` if there is none.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for a file that is too long, or with the errors of the file system.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let failed = |error| Error::io("cannot read", path, error);
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(Error::corrupt("this file of the server's state is too long", path));
    }
    Ok(Some(bytes))
}

/// Reads a JSON file; `None` if there is none.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for a file with other content.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        Error::new(Kind::Corrupt, format!("this file of the server's state is damaged: {error}"))
            .at(path)
            .advice("restore it from a backup of the server's state")
    })
}

/// Replaces a file, durably.
///
/// # Errors
/// Fails with the errors of the file system; the old file is then unchanged.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    replace_private(path, bytes).map_err(|error| Error::io("cannot write", path, error))
}

/// Replaces a JSON file, durably.
///
/// # Errors
/// Fails with the errors of [`replace`].
pub fn replace_json(path: &Path, content: &impl Serialize) -> Result<()> {
    let mut bytes = serde_json::to_vec_pretty(content)
        .map_err(|error| Error::new(Kind::Io, format!("cannot encode: {error}")).at(path))?;
    bytes.push(b'\n');
    replace(path, &bytes)
}
