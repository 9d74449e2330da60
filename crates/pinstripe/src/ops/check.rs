//! `check`: is everything there that the snapshots need, and is it as it was written?
//!
//! Three questions, from the bottom up: does every member have its small objects and extents, is
//! every strip sound (with `read_data`), does every snapshot find all of its chunks? Damage that
//! parity or another copy can mend is a warning; what is lost is a loss, with the snapshots and
//! paths that it hurts.

use std::collections::HashSet;
use std::ops::Range;

use crate::codec::Decoder;
use crate::error::{Error, Kind, Result};
use crate::format::entry::{Content, Entry, decode_page, read_chunks};
use crate::format::keys::Keys;
use crate::format::label::Label;
use crate::format::snapshot::Snapshot;
use crate::format::tree::decode_node;
use crate::format::wire::Reader;
use crate::id::{ChunkId, SetId, SnapshotId};
use crate::member::{ExtentName, Room};
use crate::monitor::{Counter, Monitor};
use crate::pipeline::each::each;
use crate::pipeline::limits::Limits;
use crate::store::packs::{Catalogued, ChunkReader, PackReader, missing_chunk};
use crate::store::{Store, index, keys_name, read_small, snapshots};
use crate::stripe::{SetReader, Verification};

/// Paths named per hurt snapshot; the rest is counted.
const PATHS_NAMED: usize = 20;

/// How thorough to be.
pub struct Options {
    /// Read every strip and decode every record.
    pub read_data: bool,
    /// Threads.
    pub limits: Limits,
}

/// What was found.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Outcome {
    /// Snapshots examined.
    pub snapshots: u64,
    /// Packs examined.
    pub packs: u64,
    /// Damaged or missing parts that `repair` can write anew.
    pub repairable: u64,
    /// Damaged parts that nothing can bring back.
    pub lost: u64,
    /// Chunks that no sound record holds.
    pub lost_chunks: u64,
    /// Snapshots that lost something.
    pub hurt_snapshots: u64,
    /// Paths in them that cannot be restored whole.
    pub hurt_paths: u64,
}

/// Checks the store.
///
/// # Errors
/// Only what keeps the check from running; damage is in the outcome and in the ledger.
pub fn run(store: &Store, options: &Options, monitor: &Monitor) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    absent_members(store, monitor, &mut outcome);
    small_objects(store, monitor, &mut outcome)?;
    let snapshots = snapshots::load(store, monitor)?;
    outcome.snapshots = snapshots.len() as u64;
    let catalogued = index::load(store, monitor)?;
    let bad = stripe_sets(store, options, monitor, &mut outcome)?;
    let lost = lost_chunks(&catalogued, &bad);
    outcome.lost_chunks = lost.len() as u64;
    let packs = PackReader::new(store, monitor);
    let mut trees = Trees {
        chunks: ChunkReader::new(&packs, &catalogued),
        catalogued: &catalogued,
        lost,
        sound: HashSet::new(),
    };
    for snapshot in &snapshots {
        trees.check(snapshot, monitor, &mut outcome);
    }
    Ok(outcome)
}

fn absent_members(store: &Store, monitor: &Monitor, outcome: &mut Outcome) {
    for number in store.absent() {
        let seat = &store.seats[number];
        let error = Error::new(Kind::NotFound, format!("member {number} is absent")).advice(
            format!("attach it again, or rebuild it: pinstripe repair --member {number} --to DIR"),
        );
        monitor.warning(&seat.place, error);
        outcome.repairable += 1;
    }
}

/// Labels, keys and snapshot objects: whole on every member?
fn small_objects(store: &Store, monitor: &Monitor, outcome: &mut Outcome) -> Result<()> {
    let mut names = vec![ExtentName::Label, keys_name(&store.config)];
    let ids = store.list(Room::Snapshots)?.into_keys();
    names.extend(ids.map(|id| ExtentName::snapshot(SnapshotId(id))));
    for (number, member) in store.present() {
        if let Some(error) = Room::ALL.into_iter().find_map(|room| member.list(room).err()) {
            monitor.warning(member.place(), error.advice("the disk may be failing: replace it"));
            outcome.repairable += 1;
        }
        for &name in &names {
            let sound =
                read_small(&**member, name).and_then(|bytes| judge(store, number, name, &bytes));
            if let Err(error) = sound {
                let error = error.advice("run 'pinstripe repair' to copy it from another member");
                monitor.warning(member.place().join(name.path()), error);
                outcome.repairable += 1;
            }
        }
    }
    Ok(())
}

/// Whether the bytes of a small object are what member `number` should have under this name.
///
/// # Errors
/// What is wrong with them.
pub fn judge(store: &Store, number: usize, name: ExtentName, bytes: &[u8]) -> Result<()> {
    let wrong = |what| Err(Error::new(Kind::Corrupt, what));
    match name {
        ExtentName::Label => {
            let label = Label::decode(bytes)?;
            if label.config != store.config || usize::from(label.member) != number {
                return wrong("the label is not this member's");
            }
        }
        ExtentName::In(Room::Keys, _) => {
            if Keys::decode(bytes)? != store.keys {
                return wrong("these are not the store's keys");
            }
        }
        ExtentName::In(_, id) => {
            let snapshot = Snapshot::decode(bytes)?;
            if snapshot.id.0 != id || snapshot.store != store.config.store {
                return wrong("this snapshot has another name");
            }
        }
    }
    Ok(())
}

/// What of one pack cannot be read.
pub struct BadPack {
    set: SetId,
    lost: Vec<Range<u64>>,
}

/// Checks every stripe set; returns what is lost of the packs.
fn stripe_sets(
    store: &Store,
    options: &Options,
    monitor: &Monitor,
    outcome: &mut Outcome,
) -> Result<Vec<BadPack>> {
    let indexed = indexed_sets(store);
    let mut bad = Vec::new();
    for room in [Room::Packs, Room::Index] {
        let mut sets = index::sets_in(store, room)?;
        if room == Room::Packs {
            for set in &indexed {
                sets.entry(*set).or_default();
            }
        }
        let sets: Vec<_> = sets.into_iter().collect();
        let results = each(options.limits.workers, &sets, |(set, members)| {
            let leftover = room == Room::Packs
                && members.len() < usize::from(store.config.data)
                && !indexed.contains(set);
            if leftover {
                return Ok(None);
            }
            Ok(Some(examine(store, room, *set, options, monitor)))
        })?;
        for ((set, _), result) in sets.into_iter().zip(results) {
            let name = ExtentName::In(room, set.0);
            let Some(examined) = result else {
                let leftover = Error::new(
                    Kind::NotFound,
                    "left over from a backup that was cut off; nothing needs it",
                );
                monitor.warning(name.path(), leftover);
                continue;
            };
            outcome.packs += u64::from(room == Room::Packs);
            let lost = tally(store, name, examined, monitor, outcome);
            if room == Room::Packs && !lost.is_empty() {
                bad.push(BadPack { set, lost });
            }
        }
    }
    Ok(bad)
}

/// Packs that some readable index run speaks of.
pub fn indexed_sets(store: &Store) -> HashSet<SetId> {
    let runs = index::sets_in(store, Room::Index).unwrap_or_default();
    let packs = runs.into_keys().filter_map(|run| index::read_run(store, run).ok()).flatten();
    packs.map(|pack| pack.set).collect()
}

struct Examined {
    verification: Verification,
    /// Records that do not decode though their strips are as written.
    records: Vec<(Range<u64>, Error)>,
    describe: Vec<String>,
}

fn examine(
    store: &Store,
    room: Room,
    set: SetId,
    options: &Options,
    monitor: &Monitor,
) -> Result<Examined> {
    let name = ExtentName::In(room, set.0);
    let reader = SetReader::open(&store.members(), name, store.config.store, set)?;
    let verification = if options.read_data {
        reader.verify(&mut |bytes| monitor.add(Counter::CheckedBytes, bytes))
    } else {
        reader.verify_ends_only()
    };
    monitor.add(Counter::CheckedPacks, 1);
    let records = match (room, options.read_data) {
        (Room::Packs, true) => undecodable(store, set, &verification, monitor),
        _ => Vec::new(),
    };
    let describe = (verification.damage.iter())
        .map(|damage| reader.describe(damage.member, damage.part, &damage.reason))
        .collect();
    Ok(Examined { verification, records, describe })
}

/// Decodes every record of a pack and holds each chunk against its id.
fn undecodable(
    store: &Store,
    set: SetId,
    verification: &Verification,
    monitor: &Monitor,
) -> Vec<(Range<u64>, Error)> {
    let index = match index::read_pack_index(store, set) {
        Ok(index) => index,
        Err(error) => return vec![(0..0, error)],
    };
    let packs = PackReader::new(store, monitor);
    let (mut decoder, mut raw) = (Decoder::new(), Vec::new());
    let mut bad = Vec::new();
    for record in &index.records {
        let range = record.offset..record.offset + u64::from(record.bytes);
        if verification.lost_ranges.iter().any(|lost| overlaps(lost, &range)) {
            continue;
        }
        let decoded = packs.fetch(set, record.offset, record.bytes).and_then(|fetched| {
            let head = &fetched.head;
            decoder.decode(head.codec, fetched.stored(), head.raw_bytes as usize, &mut raw)?;
            let mut at = 0;
            for chunk in &head.chunks {
                let end = at + chunk.raw_bytes as usize;
                if store.keys.chunk_id(&raw[at..end]) != chunk.id {
                    return Err(Error::new(
                        Kind::Corrupt,
                        format!("chunk {} is not what its id says", chunk.id),
                    ));
                }
                at = end;
            }
            Ok(())
        });
        if let Err(error) = decoded {
            bad.push((range, error));
        }
    }
    bad
}

fn overlaps(left: &Range<u64>, right: &Range<u64>) -> bool {
    left.start < right.end && right.start < left.end
}

/// Reports what was found about one set; returns what of it is lost.
fn tally(
    store: &Store,
    name: ExtentName,
    examined: Result<Examined>,
    monitor: &Monitor,
    outcome: &mut Outcome,
) -> Vec<Range<u64>> {
    let derived = matches!(name, ExtentName::In(Room::Index, _));
    let everything = || std::iter::once(0..u64::MAX).collect();
    let examined = match examined {
        Ok(examined) => examined,
        Err(error) if derived => {
            let error = error.advice("nothing is lost: run 'pinstripe repair' to make it anew");
            monitor.warning(name.path(), error);
            outcome.repairable += 1;
            return Vec::new();
        }
        Err(error) => {
            monitor.loss(name.path(), error);
            outcome.lost += 1;
            return everything();
        }
    };
    for (damage, text) in examined.verification.damage.iter().zip(examined.describe) {
        // An absent member was reported once; it has no extent of any set.
        if store.seats[damage.member].member.is_none() {
            continue;
        }
        let error = Error::new(Kind::Corrupt, text);
        if damage.repairable || derived {
            monitor.warning(name.path(), error.advice("run 'pinstripe repair'"));
            outcome.repairable += 1;
        } else {
            monitor.loss(name.path(), error);
            outcome.lost += 1;
        }
    }
    let mut lost = examined.verification.lost_ranges;
    for (range, error) in examined.records {
        monitor.loss(name.path(), error);
        outcome.lost += 1;
        lost.push(range);
    }
    lost
}

fn lost_chunks(catalogued: &Catalogued, bad: &[BadPack]) -> HashSet<ChunkId> {
    let mut lost = HashSet::new();
    for pack in bad {
        let Some(number) = catalogued.packs.iter().position(|known| known.set == pack.set) else {
            continue;
        };
        let records: HashSet<u32> = (catalogued.packs[number].records.iter().enumerate())
            .filter(|(_, (offset, bytes))| {
                let range = *offset..offset + u64::from(*bytes);
                pack.lost.iter().any(|lost| overlaps(lost, &range))
            })
            .map(|(record, _)| record as u32)
            .collect();
        catalogued.chunks.for_each(|id, place| {
            if place.pack as usize == number && records.contains(&place.record) {
                lost.insert(*id);
            }
        });
    }
    lost
}

/// Follows snapshots down to their chunks; subtrees that were found sound are not entered again.
struct Trees<'a> {
    chunks: ChunkReader<'a>,
    catalogued: &'a Catalogued,
    lost: HashSet<ChunkId>,
    sound: HashSet<ChunkId>,
}

/// What is wrong in one snapshot.
#[derive(Default)]
struct Hurt {
    paths: u64,
    named: Vec<(Vec<u8>, Error)>,
}

impl Hurt {
    fn note(&mut self, path: &[u8], error: Error) {
        self.paths += 1;
        if self.named.len() < PATHS_NAMED {
            self.named.push((path.to_vec(), error));
        }
    }
}

impl Trees<'_> {
    fn check(&mut self, snapshot: &Snapshot, monitor: &Monitor, outcome: &mut Outcome) {
        let mut hurt = Hurt::default();
        self.node(&snapshot.root.id, snapshot.root.height, b"", &mut hurt);
        if hurt.paths == 0 {
            return;
        }
        outcome.hurt_snapshots += 1;
        outcome.hurt_paths += hurt.paths;
        let short = snapshot.id.short();
        let unnamed = hurt.paths - hurt.named.len() as u64;
        for (path, error) in hurt.named {
            let path = crate::beneath::shown(&path).display().to_string();
            monitor.loss(format!("snapshot {short}: /{path}"), error);
        }
        if unnamed > 0 {
            let error = Error::new(Kind::Corrupt, format!("{unnamed} more paths are hurt"));
            monitor.loss(format!("snapshot {short}"), error);
        }
    }

    fn node(&mut self, id: &ChunkId, height: u8, first_path: &[u8], hurt: &mut Hurt) {
        if self.sound.contains(id) {
            return;
        }
        let before = hurt.paths;
        if let Err(error) = self.enter(id, height, hurt) {
            hurt.note(first_path, error.advice("all entries from here to the next page are hurt"));
        }
        if hurt.paths == before {
            self.sound.insert(*id);
        }
    }

    fn enter(&mut self, id: &ChunkId, height: u8, hurt: &mut Hurt) -> Result<()> {
        self.present(id)?;
        let bytes = self.chunks.read(id)?;
        if height > 0 {
            for child in decode_node(&bytes)? {
                self.node(&child.id, height - 1, &child.first_path, hurt);
            }
            return Ok(());
        }
        for entry in decode_page(&bytes)? {
            if let Err(error) = self.content(&entry) {
                hurt.note(&entry.path, error);
            }
        }
        Ok(())
    }

    fn content(&mut self, entry: &Entry) -> Result<()> {
        match &entry.content {
            Content::Chunks(rows) => rows.iter().try_for_each(|row| self.present(&row.id)),
            Content::Lists(lists) => lists.iter().try_for_each(|list| {
                self.present(&list.id)?;
                let bytes = self.chunks.read(&list.id)?;
                let rows = read_chunks(&mut Reader::new(&bytes, "content list"))?;
                rows.iter().try_for_each(|row| self.present(&row.id))
            }),
        }
    }

    fn present(&self, id: &ChunkId) -> Result<()> {
        if self.lost.contains(id) {
            return Err(Error::new(Kind::TooManyLosses, format!("chunk {} is lost", id.short())));
        }
        self.catalogued.chunks.get(id).map(drop).ok_or_else(|| missing_chunk(id))
    }
}
