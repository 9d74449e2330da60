//! A prefix of any bucket as a source of an overlay: objects are files, and common prefixes of keys
//! up to a slash are directories.
//!
//! Invariants: bytes are returned only if their answer also names the requested content (length,
//! ETag, time). Nothing is ever written. An endless listing is abandoned. An object hides a prefix
//! with the same name. Keys that cannot be paths (an empty name, "." or "..", control characters)
//! are not shown.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::path::Path as Key;
use object_store::{GetRange, ObjectMeta};
use pinstripe_base::checksum::checksum;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::check_relative;
use pinstripe_io::file_tree::FileKind;
use pinstripe_overlay::{ContentVersion, ListedName, RangeSource, SourceEntry};
use tokio::runtime::Runtime;

use crate::fault::Fault;
use crate::listing::PAGE;
use crate::place::BucketPlace;
use crate::session::{ObjectMark, Session};

/// The most entries of a directory; no usable directory has more.
const ENTRIES_MAX: usize = 10_000_000;
/// The longest name of a file.
const NAME_MAX_BYTES: usize = 255;
/// The device number that all objects have.
const DEVICE: u64 = 0;

/// Objects below a prefix.
pub struct BucketSource {
    session: Arc<Session>,
    runtime: Arc<Runtime>,
    place: BucketPlace,
    path: PathBuf,
    owner: (u32, u32),
}

impl BucketSource {
    /// Checks that the prefix has objects.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if the prefix has no objects; with the errors of the endpoint.
    pub(crate) fn open(
        session: Arc<Session>,
        runtime: Arc<Runtime>,
        place: BucketPlace,
        owner: (u32, u32),
    ) -> Result<Self> {
        let path = place.path();
        let source = BucketSource { session, runtime, place, path, owner };
        match source.has_prefix("") {
            Ok(true) => Ok(source),
            Ok(false) => Err(Error::new(
                Kind::NotFound,
                "the key of no object begins with this prefix",
            )
            .at(&source.path)
            .advice(
                "give a bucket, or a prefix of keys in a bucket, in the form s3://BUCKET/PREFIX",
            )),
            Err(fault) => Err(source.failed(&fault, "list", "")),
        }
    }

    /// The prefix of all keys below a path; it ends with a slash, or is empty.
    fn prefix_of(&self, path: &str) -> String {
        let parts = [self.place.prefix(), path].into_iter().filter(|part| !part.is_empty());
        parts.map(|part| format!("{part}/")).collect()
    }

    fn key_of(&self, path: &str) -> Result<Key> {
        let key = format!("{}{path}", self.prefix_of(""));
        Key::parse(key).map_err(|_| self.nothing(path))
    }

    fn failed(&self, fault: &Fault, act: &str, path: &str) -> Error {
        match fault {
            Fault::Missing => self.nothing(path),
            fault => self.session.error(fault, act, self.path.join(path)),
        }
    }

    fn nothing(&self, path: &str) -> Error {
        Error::new(Kind::NotFound, "this object does not exist").at(self.path.join(path))
    }

    fn changed(&self, path: &str) -> Error {
        Error::new(Kind::Changed, "the object has changed").at(self.path.join(path))
    }

    fn has_prefix(&self, path: &str) -> Result<bool, Fault> {
        let prefix = self.prefix_of(path);
        let listed = self.session.list_below(&prefix, None, 1);
        let found = self.runtime.block_on(listed)?.result;
        Ok(!found.objects.is_empty() || !found.common_prefixes.is_empty())
    }

    fn file(&self, path: &str, meta: &ObjectMeta) -> SourceEntry {
        let mark = ObjectMark::from_meta(meta);
        SourceEntry {
            kind: FileKind::File,
            mode: 0o444,
            data_bytes: meta.size,
            links: 1,
            mtime: (mark.modified, 0),
            ctime: (mark.modified, 0),
            version: version(meta.size, &mark),
            ..self.directory(path)
        }
    }

    fn directory(&self, path: &str) -> SourceEntry {
        let mut inode = [0; 8];
        inode.copy_from_slice(&checksum(path.as_bytes())[..8]);
        SourceEntry {
            kind: FileKind::Directory,
            identity: (DEVICE, u64::from_le_bytes(inode)),
            mode: 0o555,
            owner: self.owner,
            data_bytes: 0,
            links: 2,
            rdev: (0, 0),
            mtime: (0, 0),
            ctime: (0, 0),
            version: ContentVersion::default(),
        }
    }

    /// The entries directly below a prefix.
    fn entries(&self, path: &str) -> Result<Vec<ListedName>> {
        let prefix = self.prefix_of(path);
        let below = |name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}/{name}"),
        };
        let mut entries: Vec<ListedName> = Vec::new();
        let mut token = None;
        loop {
            let page = self.session.list_below(&prefix, token, PAGE);
            let page = self.runtime.block_on(page).map_err(|it| self.failed(&it, "list", path))?;
            for meta in &page.result.objects {
                let Some(name) = name_below(&meta.location, &prefix) else { continue };
                entries.push((name.as_bytes().into(), Some(self.file(&below(name), meta))));
            }
            for directory in &page.result.common_prefixes {
                let Some(name) = name_below(directory, &prefix) else { continue };
                entries.push((name.as_bytes().into(), Some(self.directory(&below(name)))));
            }
            token = page.page_token;
            if token.is_none() {
                break;
            }
            if entries.len() > ENTRIES_MAX {
                let what = "the endpoint sends a listing that does not end";
                return Err(Error::new(Kind::Unsupported, what).at(self.path.join(path)));
            }
        }
        // The object hides a directory of the same name, as in `stat`.
        let is_directory =
            |it: &ListedName| it.1.as_ref().is_some_and(|entry| entry.kind == FileKind::Directory);
        entries.sort_by(|a, b| (&a.0, is_directory(a)).cmp(&(&b.0, is_directory(b))));
        entries.dedup_by(|a, b| a.0 == b.0);
        Ok(entries)
    }
}

/// The name of a key directly below a prefix, if it is valid as a file name.
fn name_below<'a>(key: &'a Key, prefix: &str) -> Option<&'a str> {
    let name = key.as_ref().strip_prefix(prefix)?;
    let is_name = !name.is_empty() && !name.contains('/') && name.len() <= NAME_MAX_BYTES;
    is_name.then_some(name)
}

fn version(size: u64, mark: &ObjectMark) -> ContentVersion {
    let mut tag = [0; 32];
    tag[..16].copy_from_slice(&checksum(mark.e_tag.as_bytes()));
    tag[16..24].copy_from_slice(&mark.modified.to_le_bytes());
    ContentVersion { size, tag }
}

/// Converts a path to a part of a key; no object has a name that is not UTF-8.
fn text(path: &[u8]) -> Result<&str> {
    if !path.is_empty() {
        check_relative(path)?;
    }
    let missing = |_| Error::new(Kind::NotFound, "no object can have this name");
    std::str::from_utf8(path).map_err(missing)
}

impl RangeSource for BucketSource {
    fn stat(&self, path: &[u8]) -> Result<SourceEntry> {
        let path = text(path)?;
        if path.is_empty() {
            return Ok(self.directory(path));
        }
        match self.runtime.block_on(self.session.head(&self.key_of(path)?)) {
            Ok(meta) => Ok(self.file(path, &meta)),
            Err(Fault::Missing) => match self.has_prefix(path) {
                Ok(true) => Ok(self.directory(path)),
                Ok(false) => Err(self.nothing(path)),
                Err(fault) => Err(self.failed(&fault, "list", path)),
            },
            Err(fault) => Err(self.failed(&fault, "look at", path)),
        }
    }

    fn list(&self, path: &[u8]) -> Result<Vec<ListedName>> {
        let name = text(path)?;
        let entries = self.entries(name)?;
        if entries.is_empty() && !name.is_empty() && self.stat(path)?.kind == FileKind::File {
            let what = "this is an object, not a prefix";
            return Err(Error::new(Kind::Usage, what).at(self.path.join(name)));
        }
        Ok(entries)
    }

    fn read(
        &self,
        path: &[u8],
        wanted: &ContentVersion,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let path = text(path)?;
        if range.end > wanted.size {
            return Err(self.changed(path));
        }
        let bytes = range.end.saturating_sub(range.start);
        if bytes == 0 {
            return Ok(());
        }
        let key = self.key_of(path)?;
        let got = self.session.get(&key, Some(GetRange::Bounded(range)), bytes);
        let got = match self.runtime.block_on(got) {
            Ok(got) => got,
            Err(Fault::Missing) => return Err(self.changed(path)),
            // The range is beyond the object's present end; endpoints report that in several ways.
            Err(fault @ (Fault::Odd(_) | Fault::Refused(_))) => {
                let now = self.runtime.block_on(self.session.head(&key));
                let is_same =
                    now.is_ok_and(|it| version(it.size, &ObjectMark::from_meta(&it)) == *wanted);
                return Err(match is_same {
                    true => self.failed(&fault, "read", path),
                    false => self.changed(path),
                });
            }
            Err(fault) => return Err(self.failed(&fault, "read", path)),
        };
        if version(got.object_bytes, &got.mark) != *wanted || got.bytes.len() as u64 != bytes {
            return Err(self.changed(path));
        }
        out.extend_from_slice(&got.bytes);
        Ok(())
    }

    fn target(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.stat(path)?;
        let place = self.path.join(text(path)?);
        Err(Error::new(Kind::Usage, "this is not a symbolic link").at(place))
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        text(path)?;
        Ok(Vec::new()) // Objects have none; whether it is there was asked before.
    }

    fn totals(&self) -> Result<(u64, u64)> {
        Ok((0, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_stands_directly_below() {
        let key = |text: &str| Key::parse(text).unwrap();
        assert_eq!(name_below(&key("p/a"), "p/"), Some("a"));
        assert_eq!(name_below(&key("p/a"), ""), None, "it stands below p");
        assert_eq!(name_below(&key("p"), "p/"), None, "the mark of the directory itself");
        assert_eq!(name_below(&key("q/a"), "p/"), None, "a stranger");
        assert_eq!(name_below(&key(&format!("p/{}", "a".repeat(256))), "p/"), None);
    }

    #[test]
    fn versions_differ_by_length_tag_and_time() {
        let mark = |e_tag: &str, modified| ObjectMark { e_tag: e_tag.to_owned(), modified };
        let one = version(1, &mark("\"a\"", 5));
        for other in [(2, "\"a\"", 5), (1, "\"b\"", 5), (1, "\"a\"", 6)] {
            assert_ne!(version(other.0, &mark(other.1, other.2)), one);
        }
    }
}
