//! The user's own data as a source: a sample of a file, or of all files below a directory, is held
//! in memory, so that the measurement does not include reading it.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_split::{ByteSource, Extent, Identity};

use crate::run::Live;

/// The number of bytes taken from one place of the source at a time; it is longer than any block.
const PIECE_BYTES: u64 = 1 << 20;
/// The most bytes of a source that are held in memory; a longer source is sampled, and the sample
/// is repeated.
pub const KEPT_BYTES: u64 = 256 << 20;

/// A run of bytes in memory, repeated until it has the requested length.
#[derive(Debug, Clone)]
pub(crate) struct SampleSource {
    place: PathBuf,
    kept: Arc<Vec<u8>>,
    length: u64,
}

impl SampleSource {
    /// Takes pieces, spread evenly, of a file or of all files below a directory in the order of
    /// their names. Symlinks are not followed.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the source is empty; errors as the system reports them; an interrupt.
    pub fn take(place: &Path, length: u64, live: &Live) -> Result<SampleSource> {
        let files = files(place, live)?;
        let all: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        let wanted = all.min(length).min(KEPT_BYTES);
        if wanted == 0 {
            return Err(
                Error::new(Kind::Usage, "the sample has no bytes to try codecs on").at(place)
            );
        }
        let pieces = wanted.div_ceil(PIECE_BYTES);
        let mut kept = Vec::with_capacity(wanted as usize);
        for number in 0..pieces {
            live.check()?;
            // The offset in the concatenation of all files that corresponds to this piece's number
            // among the pieces.
            let from = u128::from(number) * u128::from(all) / u128::from(pieces);
            let bytes = PIECE_BYTES.min(wanted - kept.len() as u64);
            read_run(&files, from as u64, bytes, &mut kept)?;
        }
        Ok(SampleSource { place: place.to_path_buf(), kept: Arc::new(kept), length })
    }
}

/// Regular files with their lengths, by name within each directory.
fn files(place: &Path, live: &Live) -> Result<Vec<(PathBuf, u64)>> {
    let failed = |error| Error::io("cannot be read", place, error);
    if fs::metadata(place).map_err(failed)?.is_file() {
        let bytes = fs::metadata(place).map_err(failed)?.len();
        return Ok(vec![(place.to_path_buf(), bytes)]);
    }
    let mut found = Vec::new();
    let mut open = vec![place.to_path_buf()];
    while let Some(dir) = open.pop() {
        live.check()?;
        let failed = |error| Error::io("cannot be read", &dir, error);
        let entries = fs::read_dir(&dir).map_err(failed)?;
        let mut entries = entries.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let kind = entry.metadata().map_err(failed)?;
            match kind.is_dir() {
                true => open.push(entry.path()),
                false if kind.is_file() && kind.len() > 0 => found.push((entry.path(), kind.len())),
                false => {}
            }
        }
    }
    Ok(found)
}

/// Appends `bytes` bytes of the concatenation of all files, from `from` on; fewer if a file became
/// shorter.
fn read_run(files: &[(PathBuf, u64)], from: u64, bytes: u64, kept: &mut Vec<u8>) -> Result<()> {
    let (mut skip, mut left) = (from, bytes);
    for (path, length) in files {
        if left == 0 {
            break;
        }
        if skip >= *length {
            skip -= length;
            continue;
        }
        let failed = |error| Error::io("cannot be read", path, error);
        let file = File::open(path).map_err(failed)?;
        let mut buffer = vec![0; left.min(length - skip) as usize];
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], skip + done as u64).map_err(failed)? {
                0 => break,
                count => done += count,
            }
        }
        kept.extend_from_slice(&buffer[..done]);
        left -= buffer.len() as u64;
        skip = 0;
    }
    Ok(())
}

impl ByteSource for SampleSource {
    fn length(&self) -> Option<u64> {
        Some(self.length)
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn identity(&self) -> Option<Identity> {
        None
    }

    fn extent(&self, _: u64) -> Result<Extent> {
        Ok(Extent { end: self.length, is_hole: false })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let wanted = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < wanted {
            let at = ((offset + done as u64) % self.kept.len() as u64) as usize;
            let count = (self.kept.len() - at).min(wanted - done);
            buffer[done..done + count].copy_from_slice(&self.kept[at..at + count]);
            done += count;
        }
        Ok(done)
    }

    fn readahead(&self, _: Range<u64>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(sample: &SampleSource) -> Vec<u8> {
        let mut buffer = vec![0; sample.length as usize + 7];
        let count = sample.read_at(0, &mut buffer).unwrap();
        buffer.truncate(count);
        buffer
    }

    #[test]
    fn a_directory_is_all_its_files_one_after_the_other_again_and_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("deep")).unwrap();
        for (name, text) in [("a", "one"), ("b", "two"), ("deep/c", "three"), ("empty", "")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("/etc", dir.path().join("link")).unwrap();
        let live = Live::new(Default::default());
        let sample = SampleSource::take(dir.path(), 25, &live).unwrap();
        assert_eq!(all(&sample), b"onetwothreeonetwothreeone");
        assert_eq!(sample.read_at(24, &mut [0; 9]).unwrap(), 1);
        let sample = SampleSource::take(&dir.path().join("b"), 2, &live).unwrap();
        assert_eq!(all(&sample), b"tw");
        let none = SampleSource::take(&dir.path().join("empty"), 2, &live);
        assert_eq!(none.unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn pieces_are_spread_over_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long");
        let long: Vec<u8> = (0..8_u8).flat_map(|it| vec![it; PIECE_BYTES as usize]).collect();
        fs::write(&path, &long).unwrap();
        let sample =
            SampleSource::take(&path, 2 * PIECE_BYTES, &Live::new(Default::default())).unwrap();
        let found = all(&sample);
        assert_eq!((found[0], found[PIECE_BYTES as usize]), (0, 4));
    }
}
