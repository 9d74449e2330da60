//! The register: the devices of each array by the array's name, in one small file for each array in
//! the user's state directory.
//!
//! The array itself is described by its members; `assemble` writes a lost register again.
//!
//! Invariants: a file is complete or unchanged; a name is one component of a path and nothing else.

#![allow(
    clippy::disallowed_methods,
    reason = "this module reads and writes the register, which is a directory of small files"
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::format::superblock::NAME_BYTES_MAX;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ArrayId;

const VERSION: u32 = 1;
const SUFFIX: &str = ".json";

/// The directories of registered arrays and of the sockets of their servers.
#[derive(Debug, Clone)]
pub struct Register {
    /// The directory of entries.
    state: PathBuf,
    /// The directory of control sockets.
    runtime: PathBuf,
}

/// The entry of one array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    version: u32,
    /// The name.
    pub name: String,
    /// The id of the array, as hex digits.
    pub array: String,
    /// The kind of superblock on the array's devices.
    #[serde(default)]
    pub metadata: Metadata,
    /// Whether the array is an md array that was assembled by force, and is read that way.
    #[serde(default)]
    pub force: bool,
    /// The devices, spares included, in no particular order.
    pub devices: Vec<PathBuf>,
    /// The last generation of the array's superblocks that this host saw: if the members found are
    /// of an earlier one, newer members are absent.
    #[serde(default)]
    pub generation: u64,
    /// Knobs that the members do not store, by md's names.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// The kinds of superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metadata {
    /// Ours.
    #[default]
    Pinstripe,
    /// The superblock of Linux md, any version.
    Md,
}

impl Entry {
    /// The entry of an array on some devices. The paths of the devices are made absolute.
    ///
    /// # Errors
    /// Fails when the current directory does not exist any more.
    pub fn new(name: &str, array: ArrayId, devices: &[PathBuf]) -> Result<Self> {
        let absolute = devices.iter().map(|it| absolute(it)).collect::<Result<_>>()?;
        Ok(Entry {
            version: VERSION,
            name: name.to_owned(),
            array: array.to_string(),
            metadata: Metadata::Pinstripe,
            force: false,
            devices: absolute,
            generation: 0,
            settings: BTreeMap::new(),
        })
    }
}

/// Makes a path absolute, so that it means the same in every directory. Symlinks are not resolved:
/// paths by id are symlinks, and must be kept.
///
/// # Errors
/// Fails when the current directory does not exist any more.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Error::io("this path cannot be made absolute", path, error))
}

/// Whether two paths lead to the same device, or did before the device disappeared.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path| super::devices::identity(path).ok();
    one == other
        || matches!((identity(one), identity(other)), (Some(one), Some(other)) if one == other)
}

/// Checks that a name can be part of a path, a superblock and an export.
///
/// # Errors
/// Fails with [`Kind::Usage`].
pub fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_sound = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with(['.', '-'])
        && name.chars().all(is_plain);
    if is_sound {
        return Ok(());
    }
    let error = Error::new(Kind::Usage, format!("'{name}' is not a valid array name"));
    // mdadm names an array by the device node that the kernel makes for it.
    let node = name.strip_prefix("/dev/md/").or_else(|| name.strip_prefix("/dev/"));
    if let Some(node) = node.filter(|node| check_name(node).is_ok()) {
        return Err(error.advice(format!(
            "an array of pinstripe has no device node: use its name, '{node}'; programs access the \
             array by NBD or as a file: see 'pinstripe array serve --help'"
        )));
    }
    Err(error.advice(format!(
        "use at most {NAME_BYTES_MAX} letters, digits, '.', '_' and '-', and begin the name with a \
         letter, a digit or '_'"
    )))
}

impl Register {
    /// A register with its entries below one directory and its sockets below the other; both are
    /// created when needed.
    pub fn new(state: impl Into<PathBuf>, runtime: impl Into<PathBuf>) -> Self {
        Register { state: state.into(), runtime: runtime.into() }
    }

    /// Names of all arrays, in order.
    ///
    /// # Errors
    /// Fails when the directory cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.state) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| Error::io("cannot read", &self.state, error))?,
        };
        let name = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let name = name.strip_suffix(SUFFIX)?.to_owned();
            check_name(&name).is_ok().then_some(name)
        };
        let mut names: Vec<_> = entries.flatten().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// The entry of an array.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] for an unknown name; with [`Kind::Corrupt`] for a damaged
    /// entry; with [`Kind::Unsupported`] for an entry of a newer version.
    pub fn read(&self, name: &str) -> Result<Entry> {
        check_name(name)?;
        let path = self.file(name);
        let text = fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(Kind::NotFound, format!("no array is named '{name}'")).advice(
                    "'pinstripe array status' lists the names; to register an array, run \
                     'pinstripe array assemble NAME DEVICE...'",
                )
            }
            _ => Error::io("cannot read", &path, error),
        })?;
        let damaged = |error: serde_json::Error| {
            Error::corrupt(format!("the registration of the array cannot be read: {error}"), &path)
                .advice("register the array again with 'pinstripe array assemble NAME DEVICE...'")
        };
        let entry: Entry = serde_json::from_slice(&text).map_err(damaged)?;
        if entry.version != VERSION {
            return Err(Error::new(
                Kind::Unsupported,
                "the registration was written by a newer version of pinstripe",
            )
            .at(&path)
            .expected(VERSION, entry.version)
            .advice("use that version of pinstripe, or assemble the array again"));
        }
        Ok(entry)
    }

    /// Whether a name is taken.
    pub fn has(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    /// Registers an array; replaces an earlier entry.
    ///
    /// # Errors
    /// Fails with the errors of the system; with [`Kind::Usage`] for a path that is not UTF-8.
    pub fn write(&self, entry: &Entry) -> Result<()> {
        let odd = entry.devices.iter().find(|it| it.to_str().is_none());
        if let Some(odd) = odd {
            return Err(Error::new(Kind::Usage, "the path of a device must be UTF-8")
                .at(odd)
                .advice("give the path of a symlink to the device, and let that path be UTF-8"));
        }
        let text = serde_json::to_vec_pretty(entry).expect("an entry is plain text");
        make_directory(&self.state)?;
        let path = self.file(&entry.name);
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        let put = || -> std::io::Result<()> {
            let mut file = File::create(&fresh)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(&self.state)?.sync_all()
        };
        put().map_err(|error| {
            let _ = fs::remove_file(&fresh);
            Error::io("cannot write", &path, error)
        })
    }

    /// Forgets an array; its members are not changed.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("cannot remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// The path of the control socket of an array's server.
    ///
    /// # Errors
    /// Fails when the directory cannot be created; with [`Kind::Usage`] for a bad name.
    pub fn socket(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        make_directory(&self.runtime)?;
        Ok(self.runtime.join(format!("{name}.sock")))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}{SUFFIX}"))
    }
}

/// Creates a directory that only the user can enter: write access to a control socket is control of
/// the array.
fn make_directory(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Error::io("cannot create the directory", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(dir: &Path) -> Register {
        Register::new(dir.join("state/arrays"), dir.join("run"))
    }

    #[test]
    fn an_entry_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let register = register(dir.path());
        assert_eq!(register.names().unwrap(), Vec::<String>::new());
        assert_eq!(register.read("pool").unwrap_err().kind(), Kind::NotFound);
        let devices = ["/dev/a", "b"].map(PathBuf::from);
        let mut entry = Entry::new("pool", ArrayId([7; 16]), &devices).unwrap();
        assert!(entry.devices[1].is_absolute());
        register.write(&entry).unwrap();
        entry.settings.insert("rmw_level".into(), "2".into());
        register.write(&entry).unwrap();
        assert_eq!(register.read("pool").unwrap(), entry);
        register.write(&Entry { name: "a".into(), ..entry.clone() }).unwrap();
        assert_eq!(register.names().unwrap(), ["a", "pool"]);
        register.remove("pool").unwrap();
        register.remove("pool").unwrap();
        assert_eq!(register.names().unwrap(), ["a"]);
        assert_eq!(fs::read_dir(dir.path().join("state/arrays")).unwrap().count(), 1);
    }

    #[test]
    fn names_cannot_lead_elsewhere() {
        for name in ["", ".", "..", "a/b", "../a", "-x", ".x", "a b", "ä", &"n".repeat(64)] {
            assert_eq!(check_name(name).unwrap_err().kind(), Kind::Usage, "{name}");
        }
        for name in ["a", "md0", "pool.1_x-y", &"n".repeat(63)] {
            check_name(name).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let register = register(dir.path());
        let entry = Entry::new("pool", ArrayId([7; 16]), &[]).unwrap();
        register.write(&Entry { version: 9, ..entry }).unwrap();
        assert_eq!(register.read("pool").unwrap_err().kind(), Kind::Unsupported);
        fs::write(register.file("pool"), "{").unwrap();
        let error = register.read("pool").unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.advice_text().is_some());
    }
}
