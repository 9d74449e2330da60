//! What the tests of this room stand on: members in memory that can be hurt, and a set on them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::error::{Error, Kind, Result};
use crate::format::stripe_set::SetKind;
use crate::id::{SetId, StoreId};
use crate::member::{Caps, ExtentName, ExtentWriter, Member, Replace, Room, SharedMember};

pub const STORE: StoreId = StoreId([0x51; 16]);
pub const SET: SetId = SetId(*b"a set of strips.");

/// The least that the reader asks of a member; what it never asks is refused.
pub struct MemoryMember {
    place: PathBuf,
    extents: Mutex<HashMap<ExtentName, Vec<u8>>>,
    /// Every read fails with EIO.
    pub broken: AtomicBool,
}

impl MemoryMember {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<ExtentName, Vec<u8>>) -> T) -> T {
        act(&mut self.extents.lock().expect("no test panics while it holds the lock"))
    }

    fn refuse<T>(&self) -> Result<T> {
        Err(Error::new(Kind::Refused, "not a matter of this test").at(&self.place))
    }

    fn extent<T>(&self, name: ExtentName, read: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Error::io(
                "cannot read",
                &self.place,
                std::io::Error::from_raw_os_error(5),
            ));
        }
        self.with(|extents| match extents.get(&name) {
            Some(bytes) => read(bytes),
            None => Err(Error::new(Kind::NotFound, "no such extent").at(&self.place)),
        })
    }
}

impl Member for MemoryMember {
    fn create(&self, _: ExtentName, _: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.refuse()
    }

    fn put(&self, _: ExtentName, _: &[u8]) -> Result<()> {
        self.refuse()
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.extent(name, |bytes| {
            let found = bytes.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
            buf.copy_from_slice(found.ok_or_else(|| Error::corrupt("short", &self.place))?);
            Ok(())
        })
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        self.extent(name, |bytes| Ok(bytes.len() as u64))
    }

    fn list(&self, _: Room) -> Result<Vec<([u8; 16], u64)>> {
        self.refuse()
    }

    fn delete(&self, _: ExtentName) -> Result<()> {
        self.refuse()
    }

    fn sync(&self) -> Result<()> {
        self.refuse()
    }

    fn caps(&self) -> Caps {
        Caps { device: None, free_bytes: None }
    }

    fn place(&self) -> &Path {
        &self.place
    }
}

/// Gathers extents; hands out dirty buffers, as a sink that recycles would.
#[derive(Default)]
pub struct Extents(pub Vec<Vec<u8>>);

impl StripSink for Extents {
    fn append(&mut self, member: usize, bytes: Vec<u8>) -> Result<()> {
        self.0.resize(self.0.len().max(member + 1), Vec::new());
        self.0[member].extend_from_slice(&bytes);
        Ok(())
    }

    fn buffer(&mut self, capacity: usize) -> Vec<u8> {
        vec![0xdd; capacity.min(10)]
    }
}

/// An extent writer whose bytes stay visible.
#[derive(Default)]
pub struct Rewritten(pub Vec<u8>);

impl ExtentWriter for Rewritten {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A finished set on members in memory.
pub struct Fixture {
    pub content: Vec<u8>,
    pub layout: Layout,
    pub summary: Summary,
    /// The extents as they were written.
    pub extents: Vec<Vec<u8>>,
    pub members: Vec<Arc<MemoryMember>>,
}

impl Fixture {
    pub fn new(data: u8, parity: u8, bytes: usize) -> Self {
        Self::appended(Geometry::new(data, parity, 4096).unwrap(), bytes, &[usize::MAX])
    }

    /// Content is appended in portions of these lengths, over and over.
    pub fn appended(geometry: Geometry, bytes: usize, portions: &[usize]) -> Self {
        let mut content = vec![0; bytes];
        blake3::Hasher::new().finalize_xof().fill(&mut content);
        let mut sink = Extents::default();
        let mut writer = SetWriter::new(STORE, SET, SetKind::Pack, geometry);
        let mut left = content.as_slice();
        for &portion in portions.iter().cycle() {
            assert_eq!(writer.position(), (bytes - left.len()) as u64);
            if left.is_empty() {
                break;
            }
            let (now, later) = left.split_at(portion.min(left.len()));
            writer.append(now, &mut sink).unwrap();
            left = later;
        }
        let index = bytes as u64 / 2..bytes as u64;
        let summary = writer.finish(index, &mut sink).unwrap();
        let members = sink.0.iter().enumerate().map(|(number, extent)| {
            Arc::new(MemoryMember {
                place: format!("/disk{number}").into(),
                extents: Mutex::new([(Self::name(), extent.clone())].into()),
                broken: AtomicBool::new(false),
            })
        });
        Fixture {
            content,
            layout: Layout::new(geometry, SET, bytes as u64).unwrap(),
            summary,
            members: members.collect(),
            extents: sink.0,
        }
    }

    pub fn name() -> ExtentName {
        ExtentName::pack(SET)
    }

    pub fn shared(&self, missing: &[usize]) -> Vec<Option<SharedMember>> {
        let there = |(number, member): (usize, &Arc<MemoryMember>)| {
            (!missing.contains(&number)).then(|| member.clone() as SharedMember)
        };
        self.members.iter().enumerate().map(there).collect()
    }

    pub fn try_open(&self) -> Result<SetReader> {
        SetReader::open(&self.shared(&[]), Self::name(), STORE, SET)
    }

    pub fn open(&self) -> SetReader {
        self.try_open().unwrap()
    }

    pub fn open_without(&self, missing: &[usize]) -> SetReader {
        SetReader::open(&self.shared(missing), Self::name(), STORE, SET).unwrap()
    }

    /// Changes a member's extent.
    pub fn hurt(&self, member: usize, change: impl FnOnce(&mut Vec<u8>)) {
        self.members[member].with(|extents| change(extents.get_mut(&Self::name()).unwrap()));
    }

    /// Flips a bit of a member's extent.
    pub fn flip(&self, member: usize, at: u64) {
        self.hurt(member, |extent| extent[at as usize] ^= 0x10);
    }

    /// Takes a member's extent away.
    pub fn remove(&self, member: usize) {
        self.members[member].with(|extents| extents.clear());
    }

    /// Makes every extent as it was written.
    pub fn mend(&self) {
        for (member, extent) in self.members.iter().zip(&self.extents) {
            member.with(|extents| extents.insert(Self::name(), extent.clone()));
        }
    }

    /// Whole content through `read`, held against what was appended.
    pub fn assert_reads(&self, set: &SetReader) -> ReadReport {
        let mut out = b"before".to_vec();
        let report = set.read(0..self.content.len() as u64, &mut out).unwrap();
        assert!(out == [b"before", self.content.as_slice()].concat(), "read other bytes");
        report
    }
}
