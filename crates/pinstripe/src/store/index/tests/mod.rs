//! The index over members in a temporary directory: what is found, merged, and survives damage.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

use super::*;
use crate::ops::init;
use pinstripe_base::id::ChunkId;
use pinstripe_io::fault::Plan;
use pinstripe_member::index_run::{PAGE_ROWS, Row, RunPack, SEGMENT_PAGES};
use pinstripe_member::pack_index::{IndexedRecord, PackIndex};
use pinstripe_member::record::{ChunkRow, RecordKind};
use pinstripe_member::stripe_set::{Geometry, HEADER_BYTES, SetKind};
use pinstripe_member::{ExtentKind, ExtentName, ExtentWriter, Replace};
use pinstripe_stripe::{Sealer, SetWriter, StripSink};

mod cut_off;
mod damage;
mod swapped;

/// A store that seals nothing.
struct Site {
    _around: tempfile::TempDir,
    store: Store,
}

struct Extents(Vec<Box<dyn ExtentWriter>>);

impl StripSink for Extents {
    fn append(&mut self, member: usize, bytes: Vec<u8>) -> Result<()> {
        self.0[member].append(&bytes)
    }
}

fn id(number: u32) -> ChunkId {
    ChunkId(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

fn set(number: u8) -> SetId {
    SetId([number; 16])
}

impl Site {
    fn new() -> Self {
        Site::over(4)
    }

    fn over(members: usize) -> Self {
        let around = tempfile::tempdir().unwrap();
        let members: Vec<_> = (0..members).map(|n| around.path().join(format!("m{n}"))).collect();
        let place = members[0].clone();
        init::run(&init::InitOptions::plain(members, 1)).unwrap();
        Site { store: Store::open(&place, &Plan::default()).unwrap(), _around: around }
    }

    fn index<'a>(&'a self, monitor: &'a Monitor) -> Index<'a> {
        Index::load(&self.store, monitor).unwrap()
    }

    fn write(
        &self,
        name: ExtentName,
        kind: SetKind,
        lay: impl FnOnce(&mut SetWriter, &mut Extents) -> Range<u64>,
    ) {
        let ExtentName::In(_, set) = name else { unreachable!("sets are in rooms") };
        let create = |(_, member): (_, &pinstripe_member::SharedMember)| {
            member.create(name, Replace::Never).unwrap()
        };
        let mut extents = Extents(self.store.present().map(create).collect());
        let geometry = self.store.geometry().unwrap();
        let mut writer = SetWriter::new(self.store.config.store, SetId(set), kind, geometry);
        let index = lay(&mut writer, &mut extents);
        writer.finish(index, &mut extents).unwrap();
        extents.0.into_iter().for_each(|extent| extent.seal().unwrap());
    }

    /// A pack with these chunks, ten in each record.
    fn pack(&self, set: SetId, chunks: Range<u32>) -> SealedPack {
        self.pack_of(set, &chunks.collect::<Vec<_>>())
    }

    fn pack_of(&self, set: SetId, chunks: &[u32]) -> SealedPack {
        let sealer = Sealer::none();
        let mut index = PackIndex { set, records: Vec::new() };
        self.write(ExtentName::pack(set), SetKind::Pack, |writer, extents| {
            for numbers in chunks.chunks(10) {
                let row = |number: &u32| ChunkRow { id: id(*number), raw_bytes: 4 };
                let rows: Vec<_> = numbers.iter().map(row).collect();
                let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                let (kind, raw_bytes) = (RecordKind::Data, raw.len() as u32);
                let record = sealer.record(kind, 0, &rows, raw_bytes, &raw).unwrap();
                let (offset, bytes) = (writer.position(), record.len() as u32);
                writer.append(&record, extents).unwrap();
                let record = IndexedRecord { offset, bytes, kind, raw_bytes, chunks: rows };
                index.records.push(record);
            }
            let start = writer.position();
            writer.append(&index_record(&index, &sealer).unwrap(), extents).unwrap();
            start..writer.position()
        });
        SealedPack { index, geometry: self.store.geometry().unwrap() }
    }

    fn run(&self, packs: &[SealedPack]) -> SetId {
        let sealer = Sealer::none();
        write_run(&self.store, |set, geometry, sink| {
            lay_run(&self.store, set, geometry, packs, &sealer, sink)
        })
        .unwrap()
        .0
    }

    /// A run of the first format.
    fn old_run(&self, set: SetId, packs: &[SealedPack]) {
        self.write(ExtentName::index(set), SetKind::IndexRun, |writer, extents| {
            for pack in packs {
                let record = index_record(&pack.index, &Sealer::none()).unwrap();
                writer.append(&record, extents).unwrap();
            }
            0..writer.position()
        });
    }

    fn remove(&self, name: ExtentName) {
        self.store.present().for_each(|(_, member)| member.delete(name).unwrap());
    }

    /// Damages every strip that begins in a range of each member's extent.
    fn spoil(&self, name: ExtentName, range: Range<usize>) {
        for (_, member) in self.store.present() {
            let path = member.place().join(name.path());
            let mut bytes = fs::read(&path).unwrap();
            range.clone().step_by(100).for_each(|at| bytes[HEADER_BYTES + at] ^= 0xff);
            fs::write(&path, bytes).unwrap();
        }
    }

    fn runs(&self) -> Vec<SetId> {
        sets_in(&self.store, ExtentKind::Index).unwrap().into_keys().collect()
    }
}

#[track_caller]
fn assert_finds(index: &Index<'_>, chunks: Range<u32>) {
    for number in chunks {
        let place = index.find(&id(number)).unwrap();
        assert!(place.is_some_and(|place| place.raw_bytes == 4), "chunk {number}");
        assert!(index.may_have(&id(number)), "chunk {number}");
    }
}

#[test]
fn chunks_are_found_with_and_without_a_run() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let packs = [site.pack(set(1), 0..700), site.pack(set(2), 700..2000)];
    let index = site.index(&monitor);
    assert_eq!((index.parts(), index.rows()), ((0, 1), 2000));
    assert_finds(&index, 0..2000);
    let run = site.run(&packs);
    index.refresh().unwrap();
    assert!(index.has_run(run) && index.parts() == (1, 0));
    assert_finds(&index, 0..2000);
    let strangers = (2000..12_000).filter(|n| index.may_have(&id(*n))).count();
    assert!(strangers < 100, "{strangers}");
    assert!((2000..3000).all(|n| index.find(&id(n)).unwrap().is_none()));
    let place = index.find(&id(725)).unwrap().unwrap();
    let record = packs[1].index.records[2].offset;
    assert_eq!((place.record.offset, place.raw_offset), (record, 20));
    assert_eq!(index.set_of(place.record.pack), Some(set(2)));
    assert_eq!(monitor.get(pinstripe_base::monitor::Counter::Warnings), 0);
}

#[test]
fn four_runs_become_one_and_whoever_has_the_old_ones_goes_on() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let make = |n: u8| site.run(&[site.pack(set(n), u32::from(n) * 500..u32::from(n) * 500 + 500)]);
    for number in 0..3 {
        make(number);
    }
    let index = site.index(&monitor);
    assert!(index.plan_merge().is_none());
    make(3);
    index.refresh().unwrap();
    let other = site.index(&monitor);
    let merge = index.plan_merge().unwrap();
    assert_eq!(merge.rows(), 2000);
    let merged = index.merge(merge, &|| false).unwrap().unwrap();
    assert_eq!((site.runs(), index.parts()), (vec![merged], (1, 0)));
    assert_finds(&index, 0..2000);
    assert_finds(&other, 0..2000);
    other.refresh().unwrap();
    assert!(other.has_run(merged) && other.parts() == (1, 0));
    assert_eq!(monitor.get(pinstripe_base::monitor::Counter::Warnings), 0);
}

#[test]
fn a_run_of_whose_packs_others_speak_is_passed_over_and_removed() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let packs = [site.pack(set(1), 0..10), site.pack(set(2), 10..20)];
    site.run(&packs[..1]);
    let both = site.run(&packs);
    let index = site.index(&monitor);
    assert_eq!((index.parts(), index.rows()), ((1, 0), 20));
    index.remove_redundant().unwrap();
    assert_eq!(site.runs(), [both]);
}

#[test]
fn a_run_of_the_first_format_is_read_and_replaced() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let packs = [site.pack(set(1), 0..100), site.pack(set(2), 100..200)];
    site.old_run(set(9), &packs);
    let index = site.index(&monitor);
    assert_eq!(index.parts(), (0, 1));
    assert_finds(&index, 0..200);
    index.merge(index.plan_loose().unwrap(), &|| false).unwrap().unwrap();
    assert_eq!(index.parts(), (1, 0));
    assert!(!site.runs().contains(&set(9)));
    assert_finds(&index, 0..200);
    assert!(index.plan_loose().is_none());
}

#[test]
fn a_condemned_pack_is_read_but_not_relied_upon() {
    let (site, monitor) = (Site::new(), Monitor::default());
    site.run(&[site.pack(set(1), 0..100)]);
    let index = site.index(&monitor);
    // One that the index meets later is condemned as well.
    index.set_condemned(&[set(1), set(2)], true);
    site.run(&[site.pack(set(2), 100..200)]);
    index.refresh().unwrap();
    assert_finds(&index, 0..200);
    assert!([5, 105].iter().all(|n| !index.rely_on(&id(*n)).unwrap()));
    assert!(index.relied_on(&[set(1), set(2)]).is_empty());
    index.set_condemned(&[set(2)], false);
    assert!(index.rely_on(&id(105)).unwrap() && !index.rely_on(&id(5)).unwrap());
    assert_eq!(index.relied_on(&[set(1), set(2), set(3)]), [set(2)]);
    index.expect_own(set(3));
    assert_eq!(index.relied_on(&[set(1), set(2), set(3)]), [set(2), set(3)]);
    assert!(!index.rely_on(&id(900)).unwrap());
}

#[test]
fn a_chunk_that_was_stored_twice_is_read_from_either_place() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let first = site.run(&[site.pack(set(1), 0..100)]);
    let index = site.index(&monitor);
    let second = site.run(&[site.pack(set(2), 50..150)]);
    index.refresh().unwrap();
    assert_eq!(index.raced((0..100).map(id).collect::<Vec<_>>().iter()).unwrap(), 50);
    assert_eq!(index.places(&id(75)).unwrap().len(), 2);
    let merged = index.merge(index.plan_full_merge().unwrap(), &|| false).unwrap().unwrap();
    assert!(![first, second].contains(&merged));
    assert_eq!((index.places(&id(75)).unwrap().len(), index.duplicates()), (2, 50));
    site.remove(ExtentName::pack(set(1)));
    let index = site.index(&monitor);
    assert_finds(&index, 50..150);
    assert!(index.find(&id(5)).unwrap().is_none());
    assert_eq!(index.lost_packs(), [set(1)]);
}

#[test]
fn what_is_lost_is_remembered_until_deletion_says_that_it_was_meant() {
    let (site, monitor) = (Site::new(), Monitor::default());
    site.run(&[site.pack(set(1), 0..100), site.pack(set(2), 100..200)]);
    assert_eq!(site.index(&monitor).losses_mark(), 0);
    site.remove(ExtentName::pack(set(1)));
    let mark = site.index(&monitor).losses_mark();
    assert_ne!(mark, 0);
    assert_eq!(site.index(&monitor).repair().unwrap().written, 1);
    let index = site.index(&monitor);
    assert_eq!((index.losses_mark(), index.rows()), (mark, 100));
    assert_eq!(index.repair().unwrap().written, 0);
    index.set_reaped(&[set(1)]);
    assert_eq!(index.losses_mark(), 0);
    index.merge(index.plan_full_merge().unwrap(), &|| false).unwrap().unwrap();
    assert_eq!(site.index(&monitor).losses_mark(), 0);
}

#[test]
fn rows_have_ordinals_that_every_question_agrees_on() {
    let (site, monitor) = (Site::new(), Monitor::default());
    site.run(&[site.pack(set(1), 0..1000)]);
    site.run(&[site.pack(set(2), 500..2000)]);
    site.pack(set(3), 1900..2100);
    let index = site.index(&monitor);
    let rows = index.frozen();
    assert_eq!(rows.count(), 1000 + 1500 + 200);
    let (mut seen, mut last) = (HashMap::new(), None);
    rows.for_each(&mut |ordinal, id, place| {
        assert!(last <= Some(*id));
        last = Some(*id);
        assert!(ordinal < rows.count() && rows.pack(place.record.pack).is_some());
        assert!(seen.insert(ordinal, (*id, place)).is_none());
        Ok(())
    })
    .unwrap();
    assert_eq!(seen.len() as u64, rows.count());
    let mut ids: Vec<_> = (0..2100).map(id).collect();
    ids.sort();
    let mut asked = 0;
    rows.find_many(&ids, &mut |which, ordinal, place| {
        assert_eq!(seen[&ordinal], (ids[which], place));
        asked += 1;
    })
    .unwrap();
    assert_eq!(asked, rows.count());
}

/// 20 MB for a terabyte in chunks of 64 KiB are 1.31 bytes for each.
#[test]
fn a_run_takes_less_than_one_and_a_third_bytes_of_memory_per_chunk() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let chunks = (2 * SEGMENT_PAGES * PAGE_ROWS + 1000) as u32;
    let per_pack = 1024;
    let mut rows: Vec<Row> = (0..chunks)
        .map(|n| Row {
            id: id(n),
            pack: n / per_pack,
            offset: 0,
            bytes: 100,
            raw_offset: 0,
            raw_bytes: 4,
        })
        .collect();
    rows.sort_by_key(|row| row.id);
    let pack = |n: u32| {
        let mut name = [7; 16];
        name[..4].copy_from_slice(&n.to_le_bytes());
        RunPack { set: SetId(name), data: 3, parity: 1, is_lost: false, bytes: 64 << 20 }
    };
    let packs: Vec<_> = (0..chunks.div_ceil(per_pack)).map(pack).collect();
    let sealer = Sealer::none();
    let long_strips = Geometry::new(3, 1, 65536).unwrap();
    write_run(&site.store, |set, _, sink| {
        let mut writer = RunWriter::new(&site.store, set, long_strips, &sealer, sink);
        rows.iter().try_for_each(|row| writer.push(*row))?;
        writer.finish(&packs)
    })
    .unwrap();
    let index = site.index(&monitor);
    assert_eq!(index.rows(), u64::from(chunks));
    let per_chunk = index.memory_bytes() as f64 / f64::from(chunks);
    assert!(per_chunk < 1.3, "{per_chunk}");
    assert!((0..chunks).step_by(97).all(|n| index.may_have(&id(n))));
}
