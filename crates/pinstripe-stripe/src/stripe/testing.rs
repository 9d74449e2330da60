//! Fixtures for the tests of this module: members in memory that can be damaged, and a set on them.

use std::sync::Arc;

use super::writer::Summary;
use super::*;
use pinstripe_base::error::Result;
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_member::stripe_set::SetKind;
use pinstripe_member::{ExtentName, Member, MemoryMember, Replace, SharedMember};

pub const STORE: StoreId = StoreId([0x51; 16]);
pub const SET: SetId = SetId(*b"a set of strips.");

/// A sink that collects extents; it hands out dirty buffers, as a sink that reuses buffers would.
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

/// Returns a member's extent as `rebuild_extent` makes it.
pub fn rewritten(set: &SetReader, member: usize) -> Result<Vec<u8>> {
    let target = MemoryMember::new("target");
    let mut writer = target.create(Fixture::name(), Replace::Never)?;
    set.rebuild_extent(member, writer.as_mut())?;
    writer.seal()?;
    Ok(target.bytes(Fixture::name()).expect("it was sealed").to_vec())
}

/// Returns the findings of a verification in a form that tests can compare.
pub fn damage_of(found: &Verification) -> Vec<(usize, ExtentPart, bool)> {
    found.damage.iter().map(|damage| (damage.slot, damage.part, damage.repairable)).collect()
}

/// A finished set on members in memory.
pub struct Fixture {
    pub content: Vec<u8>,
    pub layout: SetLayout,
    pub summary: Summary,
    /// The extents as they were written.
    pub extents: Vec<Vec<u8>>,
    pub members: Vec<Arc<MemoryMember>>,
}

impl Fixture {
    pub fn new(data: u8, parity: u8, bytes: usize) -> Self {
        Self::appended(Geometry::new(data, parity, 4096).unwrap(), bytes, &[usize::MAX])
    }

    /// Makes a fixture whose content is appended in pieces of these lengths, in rotation.
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
        let members = (0..geometry.members())
            .map(|number| Arc::new(MemoryMember::new(format!("/disk{number}"))))
            .collect();
        let fixture = Fixture {
            content,
            layout: SetLayout::new(geometry, SET, bytes as u64).unwrap(),
            summary,
            members,
            extents: sink.0,
        };
        fixture.mend();
        fixture
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

    /// Modifies a member's extent.
    pub fn hurt(&self, member: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let mut extent = self.members[member].bytes(Self::name()).unwrap().to_vec();
        change(&mut extent);
        self.members[member].overwrite(Self::name(), extent);
    }

    /// Flips a bit of a member's extent.
    pub fn flip(&self, member: usize, at: u64) {
        self.hurt(member, |extent| extent[at as usize] ^= 0x10);
    }

    /// Removes a member's extent.
    pub fn remove(&self, member: usize) {
        self.members[member].delete(Self::name()).unwrap();
    }

    /// Restores every extent to its original bytes.
    pub fn mend(&self) {
        for (member, extent) in self.members.iter().zip(&self.extents) {
            member.overwrite(Self::name(), extent.clone());
        }
    }

    /// Reads the complete content with `read` and compares it with what was appended.
    pub fn assert_reads(&self, set: &SetReader) -> ReadReport {
        let mut out = b"before".to_vec();
        let report = set.read(0..self.content.len() as u64, &mut out).unwrap();
        assert!(out == [b"before", self.content.as_slice()].concat(), "read other bytes");
        report
    }
}
