//! The place of the store: `--store`, then `PINSTRIPE_STORE`, then the config file, then the
//! default place.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};

use super::known_stores::KnownStores;
use crate::args::Common;
use crate::config::{Config, StoreEntry};
use crate::xdg;

/// The environment variable that names members of the store.
const VARIABLE: &str = "PINSTRIPE_STORE";

/// The store that the user named, in this order: on the command line, by `preferred` (a name in the
/// config file), in the environment, or as the default in the config file.
///
/// # Errors
/// Fails when the config file does not have the name that was given or preferred.
pub fn named(
    common: &Common,
    preferred: Option<&str>,
    config: &Config,
    memory: &KnownStores,
) -> Result<Option<StoreEntry>> {
    if !common.store.is_empty() {
        return resolved(&common.store, config).map(Some);
    }
    if let Some(name) = preferred {
        return config.store(name).cloned().map(Some);
    }
    if let Some(given) = xdg::set(VARIABLE) {
        let is_one = |whole: &Path| {
            let name = whole.to_str().unwrap_or_default();
            whole.exists() || config.stores.contains_key(name) || memory.at(whole).is_some()
        };
        return resolved(&list(&given, is_one), config).map(Some);
    }
    config.default_store.as_deref().map(|name| config.store(name).cloned()).transpose()
}

/// Splits a list of places in the form of `PATH`: `:` separates two places, `\:` is a colon in a
/// path, and the colon in `://` does not separate. A text that is a single place according to
/// `is_one` is not split.
fn list(text: &OsStr, is_one: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    if is_one(Path::new(text)) {
        return vec![PathBuf::from(text)];
    }
    let mut places = vec![Vec::new()];
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let place = places.last_mut().expect("there is always one");
        match byte {
            b'\\' if rest.first() == Some(&b':') => {
                place.push(b':');
                rest = &rest[1..];
            }
            b':' if !rest.starts_with(b"//") && !is_before_port(place, rest) => {
                places.push(Vec::new());
            }
            _ => place.push(byte),
        }
    }
    places.retain(|place| !place.is_empty());
    places.into_iter().map(|place| PathBuf::from(OsString::from_vec(place))).collect()
}

/// Whether a colon separates a host from its port, as in `s3+http://host:9000/bucket`.
fn is_before_port(place: &[u8], rest: &[u8]) -> bool {
    let text = String::from_utf8_lossy(place);
    let is_in_host = text.split_once("://").is_some_and(|(_, host)| !host.contains('/'));
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    is_in_host && digits > 0 && rest.get(digits) == Some(&b'/')
}

/// The store that the given words name, each by a name or by a place of one of its members.
fn resolved(given: &[PathBuf], config: &Config) -> Result<StoreEntry> {
    let mut whole = StoreEntry::default();
    for word in given {
        let StoreEntry { members, retention, .. } = resolved_one(word, config)?;
        whole.members.extend(members);
        if whole.retention.is_empty() {
            whole.retention = retention;
        }
    }
    Ok(whole)
}

/// A word without a slash is the name of a store if the config file has that name; anything else is
/// a directory. If the config file has names, an unknown word that is not a directory is taken for
/// a mistyped name.
fn resolved_one(given: &Path, config: &Config) -> Result<StoreEntry> {
    let name = given.to_str().filter(|text| !text.contains('/'));
    match name {
        Some(name)
            if config.stores.contains_key(name) || !config.stores.is_empty() && !given.exists() =>
        {
            config.store(name).cloned()
        }
        _ => Ok(StoreEntry { members: vec![given.to_owned()], ..StoreEntry::default() }),
    }
}

/// The default place of a store, if a store is or was there.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is no default store.
pub fn existing(memory: &KnownStores) -> Result<Vec<PathBuf>> {
    let place = xdg::default_store()?;
    if !is_store(&place) && memory.at(&place).is_none() {
        return Err(Error::new(
            Kind::NotFound,
            "no store was given, and the default store does not exist yet",
        )
        .at(place)
        .advice(
            "give any member of a store with --store DIR or PINSTRIPE_STORE; to create a store, \
             run 'pinstripe init --member DIR'; to create the default store, run 'pinstripe backup \
             PATH'",
        ));
    }
    Ok(vec![place])
}

/// Whether a place has the label of a member; only the library can tell whether the store is
/// complete.
pub fn is_store(place: &Path) -> bool {
    place.join("pinstripe.member").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_divided_as_path_is() {
        let divided = |text: &str| -> Vec<String> {
            let places = list(OsStr::new(text), |whole| whole == Path::new("/odd:name"));
            places.iter().map(|place| place.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(divided("/a"), ["/a"]);
        assert_eq!(divided("/a:/b:c"), ["/a", "/b", "c"]);
        assert_eq!(divided(":/a::/b:"), ["/a", "/b"], "an empty one is no place");
        assert_eq!(divided("/odd:name"), ["/odd:name"], "what is one place is not divided");
        assert_eq!(divided(r"/other\:name:/b"), ["/other:name", "/b"]);
        assert_eq!(divided(r"/back\slash"), [r"/back\slash"]);
        assert_eq!(divided("s3://bucket/a:/b"), ["s3://bucket/a", "/b"]);
        let port = "s3+http://127.0.0.1:9000/bucket/a";
        assert_eq!(divided(&format!("{port}:/b")), [port, "/b"]);
        assert!(divided(":").is_empty());
    }
}
