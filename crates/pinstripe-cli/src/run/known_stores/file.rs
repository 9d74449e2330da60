//! The files with the stores that this host remembers: validated when read, replaced completely
//! when written.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use pinstripe_base::error::Error;
use pinstripe_base::id::{StoreId, hex};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::replace::replace_private;
use serde::{Deserialize, Serialize};

use super::record::KnownStore;

/// The most bytes of a file about a remembered store; a longer file was not written by this
/// program.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// The version of the format; it changes when an older version could misread a file.
const VERSION: u32 = 1;

/// The content of a file, as it is stored.
#[derive(Serialize, Deserialize)]
struct StoreFile {
    version: u32,
    #[serde(flatten)]
    store: KnownStore,
}

/// Reads the records of all remembered stores.
pub fn read_all(dir: &Path, monitor: &Monitor) -> Vec<KnownStore> {
    let Ok(listed) = fs::read_dir(dir) else { return Vec::new() };
    let mut stores = Vec::new();
    for entry in listed.flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
        if !is_id(id) {
            continue;
        }
        let path = entry.path();
        match read(&path) {
            Ok(store) => stores.push(KnownStore { id: id.to_owned(), ..store }),
            // Replaced or removed by another process since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let what = format!(
                    "the file in which this host remembers store {} cannot be read; a new file is \
                     created",
                    &id[..8]
                );
                monitor.warning(&path, Error::io(what, &path, error));
                // Out of the way, so that it is said once; if that fails, it is said again.
                let _ = fs::rename(&path, dir.join(format!("{id}.damaged")));
            }
        }
    }
    // The order of a directory is chance.
    stores.sort_by(|a, b| a.id.cmp(&b.id));
    stores
}

fn read(path: &Path) -> io::Result<KnownStore> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(wrong("the file is too long".to_owned()));
    }
    let whole: StoreFile =
        serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    if whole.version != VERSION {
        return Err(wrong(format!("the file has version {} instead of {VERSION}", whole.version)));
    }
    Ok(whole.store)
}

/// Replaces the record of one store, durably.
pub fn write(dir: &Path, store: &KnownStore) -> io::Result<()> {
    let content = StoreFile { version: VERSION, store: store.clone() };
    replace(&dir.join(file_name(&store.id)), &content)
}

/// Replaces a file of this host's state, durably: a reader sees the old or the new content. Makes the
/// directory if it is missing. Only the owner can read either.
///
/// # Errors
/// Fails with the errors of the file system; the old file stays then.
pub fn replace(file: &Path, content: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(content)?;
    text.push(b'\n');
    replace_private(file, &text)
}

/// The name of the file of a store, from the store's id.
pub fn file_name(id: &str) -> String {
    format!("{id}.json")
}

/// Whether a text is the id of a store.
fn is_id(text: &str) -> bool {
    StoreId::from_hex(text).is_some_and(|id| hex(&id.0) == text)
}
