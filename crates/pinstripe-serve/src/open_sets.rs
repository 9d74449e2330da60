//! The stripe sets of a volume that are open for reading.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::sync::lock;
use pinstripe_member::{ExtentName, FetchedPart, RunPart, record};
use pinstripe_stripe::SetReader;

use crate::volume::ServedVolume;

/// The number of sets that stay open; each has 16 bytes per strip.
const OPEN_MAX: usize = 256;

/// The sets of a volume that are open for reading.
#[derive(Default)]
pub(crate) struct OpenSets(Mutex<HashMap<ExtentName, Arc<SetReader>>>);

impl OpenSets {
    /// Discards the open sets, because the volume has other members now.
    pub fn discard(&self) {
        lock(&self.0).clear();
    }

    fn open(&self, volume: &ServedVolume, name: ExtentName) -> Result<Arc<SetReader>> {
        if let Some(reader) = lock(&self.0).get(&name) {
            return Ok(Arc::clone(reader));
        }
        let ExtentName::In(_, id) = name else {
            return Err(Error::new(Kind::Usage, "a label is not a stripe set"));
        };
        let members = volume.by_number();
        let reader = Arc::new(SetReader::open(&members, name, volume.id, SetId(id))?);
        let mut open = lock(&self.0);
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(name, Arc::clone(&reader));
        Ok(reader)
    }

    /// Reads a part. A record that does not match its checksums is read again, with each strip
    /// compared with its checksum.
    pub fn fetch(&self, volume: &ServedVolume, part: &RunPart) -> Result<FetchedPart> {
        let read = || read_part(&*self.open(volume, part.name)?, part);
        read().or_else(|_| {
            // Extents may have moved since the set was opened.
            lock(&self.0).remove(&part.name);
            read()
        })
    }
}

fn read_part(reader: &SetReader, part: &RunPart) -> Result<FetchedPart> {
    let end = part.offset.checked_add(part.bytes.into());
    let beyond = || Error::new(Kind::Corrupt, "the range is beyond the end of the stripe set");
    let range = part.offset..end.ok_or_else(beyond)?;
    let mut bytes = Vec::with_capacity(part.bytes as usize);
    let mut report = reader.read(range.clone(), &mut bytes)?;
    // A part that is one record is checked; the host checks the records in longer parts.
    let is_record = record::whole_bytes(&bytes).is_ok_and(|length| length == bytes.len() as u64);
    if is_record && record::parse_clear(&bytes).is_err_and(|it| it.kind() == Kind::Corrupt) {
        bytes.clear();
        report = reader.read_verified(range, &mut bytes)?;
    }
    Ok(FetchedPart { bytes, rebuilt: report.rebuilt.len() as u64 })
}
