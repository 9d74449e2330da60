//! Where the store is: `--store`, then `PINSTRIPE_STORE`, then what the config file says, then the
//! default place.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use pinstripe::catalog::FILE_NAME;
use pinstripe::error::{Error, Kind, Result};
use pinstripe::id::StoreId;

use crate::args::Common;
use crate::config::{Config, StoreEntry};

/// The environment variable that names a member.
const VARIABLE: &str = "PINSTRIPE_STORE";

/// The store that the user named: on the command line, for this one use of it (`preferred`, a
/// name in the config file), in the environment, or in the config file as the default.
///
/// # Errors
/// When the config file does not have the name that was given or preferred.
pub fn named(
    common: &Common,
    preferred: Option<&str>,
    config: &Config,
) -> Result<Option<StoreEntry>> {
    if let Some(given) = &common.store {
        return resolved(given, config).map(Some);
    }
    if let Some(name) = preferred {
        return config.store(name).cloned().map(Some);
    }
    if let Some(given) = set(VARIABLE) {
        return resolved(Path::new(&given), config).map(Some);
    }
    config.default_store.as_deref().map(|name| config.store(name).cloned()).transpose()
}

/// A word without a slash is a name where the config file has it; anything else is a directory. A
/// word that is neither was meant to be a name, if the config file has any.
fn resolved(given: &Path, config: &Config) -> Result<StoreEntry> {
    let name = given.to_str().filter(|text| !text.contains('/'));
    match name {
        Some(name)
            if config.stores.contains_key(name) || !config.stores.is_empty() && !given.exists() =>
        {
            config.store(name).cloned()
        }
        _ => Ok(StoreEntry { member: given.to_owned(), ..StoreEntry::default() }),
    }
}

/// The default store: in the user's data directory, as the XDG base directory specification has it.
///
/// # Errors
/// [`Kind::NotFound`] when there is neither `XDG_DATA_HOME` nor `HOME`.
pub fn default_place() -> Result<PathBuf> {
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
            .advice("name a file for it with --catalog FILE")
    })?;
    Ok(cache.join("pinstripe").join(store.to_string()).join(FILE_NAME))
}

/// A directory of the XDG specification, which has relative paths ignored.
fn xdg(variable: &str, below_home: &str) -> Option<PathBuf> {
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)))
}

/// Where what outlives a run and is no data is kept: below `XDG_STATE_HOME`, as the XDG base
/// directory specification has it.
///
/// # Errors
/// [`Kind::NotFound`] when there is neither `XDG_STATE_HOME` nor `HOME`.
pub fn state() -> Result<PathBuf> {
    let state = xdg("XDG_STATE_HOME", ".local/state").ok_or_else(|| {
        Error::new(Kind::NotFound, "there is neither XDG_STATE_HOME nor HOME")
            .advice("name a file with --log FILE")
    })?;
    Ok(state.join("pinstripe"))
}

/// The store to read: the named one, or the default one where it exists.
///
/// # Errors
/// [`Kind::NotFound`] when there is neither.
pub fn existing(common: &Common, config: &Config) -> Result<PathBuf> {
    if let Some(named) = named(common, None, config)? {
        return Ok(named.member);
    }
    let place = default_place()?;
    if !is_store(&place) {
        return Err(Error::new(
            Kind::NotFound,
            "no store was named, and there is no default one yet",
        )
        .at(place)
        .advice(
            "name any member of a store with --store DIR or PINSTRIPE_STORE; to make one: \
             'pinstripe init --member DIR', or 'pinstripe backup PATH' for the default one",
        ));
    }
    Ok(place)
}

/// Whether something was begun here that only the library can judge.
pub fn is_store(place: &Path) -> bool {
    place.join("pinstripe.member").exists()
}

/// The user's configuration directory, where there is one.
pub fn config_dir() -> Option<PathBuf> {
    absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))
}

/// A path from the environment; the XDG specification has relative ones ignored.
fn absolute(name: &str) -> Option<PathBuf> {
    set(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// An environment variable that is not empty.
pub fn set(name: &str) -> Option<std::ffi::OsString> {
    env::var_os(name).filter(|value| value != OsStr::new(""))
}
