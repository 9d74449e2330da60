//! The places that the environment names, in variables and in the directories of the XDG base
//! directory specification.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use pinstripe::CATALOG_FILE;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;

/// The path of the default store, in the user's data directory according to the XDG base directory
/// specification.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is neither `XDG_DATA_HOME` nor `HOME`.
pub fn default_store() -> Result<PathBuf> {
    let data = xdg("XDG_DATA_HOME", ".local/share").ok_or_else(|| {
        Error::new(Kind::NotFound, "no store was given, and HOME is not set")
            .advice("give any member directory of the store with --store DIR")
    })?;
    Ok(data.join("pinstripe/store"))
}

/// The default path of a store's catalog, in the user's cache directory, since a catalog can be
/// rebuilt.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is neither `XDG_CACHE_HOME` nor `HOME`.
pub fn catalog(store: StoreId) -> Result<PathBuf> {
    let cache = xdg("XDG_CACHE_HOME", ".cache").ok_or_else(|| {
        Error::new(Kind::NotFound, "the path of the catalog is unknown, because HOME is not set")
            .advice("give a file for the catalog with --catalog FILE")
    })?;
    Ok(cache.join("pinstripe").join(store.to_string()).join(CATALOG_FILE))
}

/// The directory of this host's cache of a store in buckets, in the user's cache directory, if
/// there is one.
#[cfg(feature = "s3")]
pub fn sealed_cache(store: StoreId) -> Option<PathBuf> {
    let cache = xdg("XDG_CACHE_HOME", ".cache")?;
    Some(cache.join("pinstripe").join(store.to_string()).join("sealed"))
}

/// A directory of the XDG specification; as the specification demands, relative paths are ignored.
fn xdg(variable: &str, below_home: &str) -> Option<PathBuf> {
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)))
}

/// The directory for state that outlives a run and is not data: below `XDG_STATE_HOME`, according
/// to the XDG base directory specification.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is neither `XDG_STATE_HOME` nor `HOME`.
pub fn state() -> Result<PathBuf> {
    let state = xdg("XDG_STATE_HOME", ".local/state").ok_or_else(|| {
        Error::new(Kind::NotFound, "neither XDG_STATE_HOME nor HOME is set")
            .advice("give a file with --log FILE")
    })?;
    Ok(state.join("pinstripe"))
}

/// The directory for state that outlives a run and is shared with services: for root a system
/// directory, for other users that of [`state`].
///
/// # Errors
/// Fails without a home.
pub fn lasting() -> Result<PathBuf> {
    match absolute("XDG_STATE_HOME") {
        None if rustix::process::geteuid().is_root() => Ok(PathBuf::from("/var/lib/pinstripe")),
        _ => state(),
    }
}

/// The directory for sockets: for root a system directory, for other users their own.
///
/// # Errors
/// Fails without a home.
pub fn runtime() -> Result<PathBuf> {
    match absolute("XDG_RUNTIME_DIR") {
        Some(runtime) => Ok(runtime.join("pinstripe")),
        None if rustix::process::geteuid().is_root() && absolute("XDG_STATE_HOME").is_none() => {
            Ok(PathBuf::from("/run/pinstripe"))
        }
        None => Ok(lasting()?.join("run")),
    }
}

/// The user's configuration directory, if the environment names one.
pub fn config_dir() -> Option<PathBuf> {
    absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))
}

/// An absolute path from an environment variable; as the XDG specification demands, relative paths
/// are ignored.
fn absolute(name: &str) -> Option<PathBuf> {
    set(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The value of an environment variable, if it is not empty.
pub fn set(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| value != OsStr::new(""))
}
