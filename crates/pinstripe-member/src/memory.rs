//! A member in memory, for tests and the lab: it behaves like other members, without a disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::{BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, Member, Replace};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// A member that keeps its extents in memory; they are lost when it is dropped.
pub struct MemoryMember {
    shelf: Arc<MemoryShelf>,
}

struct MemoryShelf {
    place: PathBuf,
    extents: Mutex<BTreeMap<ExtentName, Arc<[u8]>>>,
}

struct MemoryWriter {
    shelf: Arc<MemoryShelf>,
    name: ExtentName,
    replace: Replace,
    bytes: Vec<u8>,
}

impl MemoryMember {
    /// Makes an empty member; `name` is its place in messages.
    pub fn new(name: impl Into<PathBuf>) -> Self {
        let extents = Mutex::default();
        MemoryMember { shelf: Arc::new(MemoryShelf { place: name.into(), extents }) }
    }

    /// Returns the bytes of a sealed extent.
    pub fn bytes(&self, name: ExtentName) -> Option<Arc<[u8]>> {
        self.shelf.extents().get(&name).cloned()
    }

    /// Stores bytes under a name, replacing existing ones: for tests that damage objects.
    pub fn overwrite(&self, name: ExtentName, bytes: impl Into<Arc<[u8]>>) {
        self.shelf.extents().insert(name, bytes.into());
    }
}

impl MemoryShelf {
    fn extents(&self) -> MutexGuard<'_, BTreeMap<ExtentName, Arc<[u8]>>> {
        lock(&self.extents)
    }

    fn get(&self, name: ExtentName) -> Result<Arc<[u8]>> {
        self.extents().get(&name).cloned().ok_or_else(|| {
            Error::new(Kind::NotFound, "this extent does not exist").at(self.path_of(name))
        })
    }

    fn put(&self, name: ExtentName, bytes: Arc<[u8]>, replace: Replace) -> Result<()> {
        let mut extents = self.extents();
        if replace == Replace::Never && extents.contains_key(&name) {
            return Err(Error::new(Kind::Exists, "exists already").at(self.path_of(name)));
        }
        extents.insert(name, bytes);
        Ok(())
    }

    fn path_of(&self, name: ExtentName) -> PathBuf {
        self.place.join(name.path())
    }
}

impl Member for MemoryMember {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        let shelf = self.shelf.clone();
        Ok(Box::new(MemoryWriter { shelf, name, replace, bytes: Vec::new() }))
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        self.shelf.put(name, bytes.into(), Replace::Never)
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = self.shelf.get(name)?;
        let from = usize::try_from(offset).ok();
        let range = from.and_then(|from| Some(from..from.checked_add(buf.len())?));
        match range.and_then(|range| bytes.get(range)) {
            Some(run) => buf.copy_from_slice(run),
            None if buf.is_empty() => {}
            None => {
                let end = u128::from(offset) + buf.len() as u128;
                return Err(Error::corrupt("the extent is too short", self.shelf.path_of(name))
                    .expected(format!("an extent of {end} bytes or more"), bytes.len()));
            }
        }
        Ok(())
    }

    fn read_at_hand(&self, _: ExtentName, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        Ok(self.shelf.get(name)?.len() as u64)
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        let extents = self.shelf.extents();
        let in_room = ExtentName::In(kind, [0; 16])..=ExtentName::In(kind, [255; 16]);
        let listed = extents.range(in_room).filter_map(|(name, bytes)| match name {
            ExtentName::In(_, id) => Some((*id, bytes.len() as u64)),
            ExtentName::Label => None,
        });
        Ok(listed.collect())
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        self.shelf.extents().remove(&name);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn sweep(&self) -> Result<u64> {
        Ok(0) // An unsealed extent is only in its writer.
    }

    fn caps(&self) -> Caps {
        Caps { device: None, free_bytes: None, is_full: false, is_append_only: false, far: None }
    }

    fn place(&self) -> &Path {
        &self.shelf.place
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        None
    }
}

impl ExtentWriter for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(self: Box<Self>) -> Result<()> {
        self.shelf.put(self.name, self.bytes.into(), self.replace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_rules_of_the_seam() {
        crate::conformance::run(&|| Box::new(MemoryMember::new("memory")));
    }

    #[test]
    fn damage_is_made_from_outside() {
        let member = MemoryMember::new("m0");
        let name = ExtentName::In(ExtentKind::Keys, [1; 16]);
        member.put(name, b"abc").unwrap();
        member.overwrite(name, *b"abX");
        assert_eq!(member.bytes(name).as_deref(), Some(&b"abX"[..]));
        assert_eq!(member.bytes(ExtentName::Label), None);
    }
}
