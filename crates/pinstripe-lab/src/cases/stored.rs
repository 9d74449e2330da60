//! A backup of the files that a case reads; the case then reads them from the backup.

use std::path::PathBuf;
use std::sync::Arc;

use pinstripe::backup::BackupOptions;
use pinstripe::{Limits, MEMORY_DEFAULT_BYTES, Store, backup};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::SharedDevice;
use pinstripe_io::fault::Plan;

use super::shared::Folder;
use crate::catalog;
use crate::io::{AheadDevice, Area, StoredFiles, Target};
use crate::run::Live;

/// The space that a backup of this number of bytes needs: the content does not compress, a quarter
/// of the stored bytes is parity, and packs are written in full.
pub fn needed_bytes(bytes: u64) -> u64 {
    bytes / 2 * 3 + (256 << 20)
}

/// Backs up files into a store in a folder, and opens the backup for reading with this amount of
/// memory. The fault plan is applied to each read of the store's members.
///
/// # Errors
/// Errors that end a backup; an interrupt.
pub fn back_up(
    folder: &Folder,
    paths: &[PathBuf],
    memory_bytes: u64,
    faults: &Plan,
    live: &Live,
) -> Result<StoredFiles> {
    let at = folder.path("store");
    let store = catalog::new_store(&at)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let limits = Limits::new(cores, catalog::MEMBERS, MEMORY_DEFAULT_BYTES);
    let options = BackupOptions::new(paths.to_vec(), b"lab", limits);
    let options = BackupOptions { stop: Arc::clone(live.stop()), ..options };
    backup::run(&store, options, &Monitor::default())?;
    drop(store);
    Ok(StoredFiles::new(Store::open(&at.join("m0"), faults)?, memory_bytes))
}

/// The read-ahead of pinstripe itself, without hints about future reads.
#[derive(Clone, Copy)]
pub(crate) enum ReadThrough<'a> {
    /// That of overlays.
    Overlay,
    /// The read-ahead of pinstripe's mounts, on a backup of the same files.
    Store(&'a StoredFiles),
}

/// Opens what clients read, `bytes` for each client, through a new read-ahead that has no history.
/// In an overlay, read-ahead fetches records of this length.
///
/// # Errors
/// The errors of opening the files.
pub(crate) fn read_through(
    way: ReadThrough<'_>,
    clients: &[Area],
    (record_bytes, bytes): (usize, u64),
) -> Result<Vec<Area>> {
    let targets = || clients.iter().flat_map(Area::targets);
    let devices = match way {
        ReadThrough::Overlay => targets()
            .map(|target| {
                let ahead = AheadDevice::new(target.shared(), record_bytes as u64)?;
                Ok(Arc::new(ahead) as SharedDevice)
            })
            .collect::<Result<Vec<_>>>()?,
        ReadThrough::Store(stored) => {
            let place = |target: &Target| target.device().place().to_path_buf();
            stored.open(&targets().map(place).collect::<Vec<_>>())?
        }
    };
    let area = |device| Area::new(vec![Target::new(device)], bytes);
    Ok(devices.into_iter().map(area).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;

    use super::super::{Case, Setting, Values, readahead, stride};
    use super::*;
    use crate::io::packs_of;
    use crate::run::VariantNo;

    /// Empties all packs of the store in the folder of a case.
    fn empty_packs(dir: &Path) {
        let folder = fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
        for member in fs::read_dir(folder.join("store")).unwrap() {
            for pack in packs_of(&member.unwrap().path()).unwrap() {
                File::options().write(true).open(pack).unwrap().set_len(0).unwrap();
            }
        }
    }

    #[test]
    fn what_is_read_through_a_store_comes_from_its_packs() {
        let cases: [(&Case, &[(&str, &str)]); 2] = [
            (&readahead::CASE, &[("file-size", "1M"), ("clients", "1")]),
            (&stride::CASE, &[("total-size", "4M")]),
        ];
        for (case, more) in cases {
            let given = [("record-size", "64K"), ("through", "store"), ("cache", "keep")];
            let values = Values::read(case.options, &[&given[..], more].concat()).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let setting = Setting { dirs: vec![dir.path().to_owned()], device: None, seed: 7 };
            let mut plan = (case.plan)(&setting, &values).unwrap();
            let live = Live::new(Arc::default());
            plan.prepare(&live).unwrap();
            let mut read = || {
                plan.ready(VariantNo(0), &live)?;
                plan.run(VariantNo(0), 0, &live)
            };
            read().unwrap();
            empty_packs(dir.path());
            assert!(read().is_err(), "{}: it was not read from there", case.name);
        }
    }
}
