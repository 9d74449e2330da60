//! The places that the environment names: variables, and the directories of the XDG base directory
//! specification.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use pinstripe::CATALOG_FILE;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;

/// The default store: in the user's data directory, as the XDG base directory specification has it.
///
/// # Errors
/// [`Kind::NotFound`] when there is neither `XDG_DATA_HOME` nor `HOME`.
pub fn default_store() -> Result<PathBuf> {
    let data = xdg("XDG_DATA_HOME", ".local/share").ok_or_else(|| {
        Error::new(Kind::NotFound, "no store was named, and HOME is not set")
            .advice("name any member directory of the store with --store DIR")
    })?;
    Ok(data.join("pinstripe/store"))
}

/// The catalog of a store where none was named: in the user's cache, since it can be made again.
///
/// # Errors
/// [`Kind::NotFound`] when there is neither `XDG_CACHE_HOME` nor `HOME`.
pub fn catalog(store: StoreId) -> Result<PathBuf> {
    let cache = xdg("XDG_CACHE_HOME", ".cache").ok_or_else(|| {
        Error::new(Kind::NotFound, "there is no place for the catalog: HOME is not set")
            .advice("name a file for the catalog with --catalog FILE")
    })?;
    Ok(cache.join("pinstripe").join(store.to_string()).join(CATALOG_FILE))
}

/// What this host keeps of a store in buckets: in the user's cache, if there is one.
#[cfg(feature = "s3")]
pub fn sealed_cache(store: StoreId) -> Option<PathBuf> {
    let cache = xdg("XDG_CACHE_HOME", ".cache")?;
    Some(cache.join("pinstripe").join(store.to_string()).join("sealed"))
}

/// A directory of the XDG specification, which has relative paths ignored.
fn xdg(variable: &str, below_home: &str) -> Option<PathBuf> {
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)))
}

/// The directory for state that outlives a run and is not data: below `XDG_STATE_HOME`, as in the
/// XDG base directory specification.
///
/// # Errors
/// [`Kind::NotFound`] when there is neither `XDG_STATE_HOME` nor `HOME`.
pub fn state() -> Result<PathBuf> {
    let state = xdg("XDG_STATE_HOME", ".local/state").ok_or_else(|| {
        Error::new(Kind::NotFound, "neither XDG_STATE_HOME nor HOME is set")
            .advice("name a file with --log FILE")
    })?;
    Ok(state.join("pinstripe"))
}

/// The directory for what outlives a run and that services share: for root the system's, for others
/// their own, as of [`state`].
///
/// # Errors
/// Without a home.
pub fn lasting() -> Result<PathBuf> {
    match absolute("XDG_STATE_HOME") {
        None if rustix::process::geteuid().is_root() => Ok(PathBuf::from("/var/lib/pinstripe")),
        _ => state(),
    }
}

/// The directory for sockets: for root the system's, for others their own.
///
/// # Errors
/// Without a home.
pub fn runtime() -> Result<PathBuf> {
    match absolute("XDG_RUNTIME_DIR") {
        Some(runtime) => Ok(runtime.join("pinstripe")),
        None if rustix::process::geteuid().is_root() && absolute("XDG_STATE_HOME").is_none() => {
            Ok(PathBuf::from("/run/pinstripe"))
        }
        None => Ok(lasting()?.join("run")),
    }
}

/// The user's configuration directory, if there is one.
pub fn config_dir() -> Option<PathBuf> {
    absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))
}

/// A path from the environment; the XDG specification has relative ones ignored.
fn absolute(name: &str) -> Option<PathBuf> {
    set(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// An environment variable that is not empty.
pub fn set(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| value != OsStr::new(""))
}
