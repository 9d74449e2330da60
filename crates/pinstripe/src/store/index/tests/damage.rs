//! Runs and packs that are damaged, cut off or half gone.

use std::fs;

use super::*;
use pinstripe_base::error::{Error, Kind};
use pinstripe_base::monitor::Counter;

#[test]
fn a_run_damaged_beyond_parity_costs_nothing() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let packs = [site.pack(set(1), 0..2000)];
    let run = site.run(&packs);
    let index = site.index(&monitor);
    site.spoil(ExtentName::index(run), 0..4096);
    assert_finds(&index, 0..2000);
    assert_eq!(monitor.get(Counter::Warnings), 1);
    assert!(!index.has_run(run));
    // Repair writes it anew, and remembers that something may have been forgotten.
    let mended = site.index(&monitor).repair().unwrap();
    assert_eq!(mended, Mended { written: 1, removed: 1 });
    let index = site.index(&monitor);
    assert_eq!((index.parts(), site.runs().contains(&run)), ((1, 0), false));
    assert_ne!(index.losses_mark(), 0);
    assert_finds(&index, 0..2000);
    assert_eq!(index.repair().unwrap(), Mended { written: 0, removed: 0 });
}

/// As another writer's run is while its members take it one by one, or give it up.
#[test]
fn a_run_on_its_way_is_passed_over_in_silence_and_looked_at_again() {
    let site = Site::new();
    let run = ExtentName::index(site.run(&[site.pack(set(1), 0..100)]));
    let paths: Vec<_> = site.store.present().map(|(_, m)| m.place().join(run.path())).collect();
    let whole: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    // Two members have nothing of it, and what the others have is not enough whatever row it is.
    let shortest = whole.iter().map(Vec::len).min().unwrap();
    site.spoil(run, 0..shortest - HEADER_BYTES);
    for path in &paths[..2] {
        fs::rename(path, path.with_extension("away")).unwrap();
    }
    let monitor = Monitor::default();
    let index = site.index(&monitor);
    assert_eq!(index.parts(), (0, 1));
    assert_finds(&index, 0..100);
    for path in &paths[..2] {
        fs::rename(path.with_extension("away"), path).unwrap();
    }
    paths.iter().zip(whole).for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    index.refresh().unwrap();
    assert_eq!(index.parts(), (1, 0));
    assert_finds(&index, 0..100);
    assert_eq!(monitor.get(Counter::Warnings), 0);
}

#[test]
fn a_pack_whose_index_is_gone_is_read_record_by_record() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let pack = site.pack(set(1), 0..1500);
    let end = pack.index.records.last().map(|r| r.offset + u64::from(r.bytes)).unwrap();
    // A row that lies within the index, damaged on all members.
    let row = (end / (3 * 4096) + 1) as usize * 4096;
    site.spoil(ExtentName::pack(set(1)), row..row + 64);
    assert!(read_pack_index(&site.store, set(1)).is_err());
    let (found, passed_over) = pack_from_records(&site.store, set(1)).unwrap();
    assert_eq!((found.index.records.len(), passed_over), (150, 0));
    assert_eq!(found, pack);
    assert_finds(&site.index(&monitor), 0..1500);
}

#[test]
fn records_beside_a_damaged_one_are_found() {
    let site = Site::new();
    let pack = site.pack(set(1), 0..1500);
    site.spoil(ExtentName::pack(set(1)), 4096..4200);
    let (found, passed_over) = pack_from_records(&site.store, set(1)).unwrap();
    let lost = pack.index.records.len() - found.index.records.len();
    assert!(lost > 0 && lost <= 8 && passed_over > 0, "{lost} records, {passed_over} bytes");
    assert!(found.index.records.iter().all(|record| pack.index.records.contains(record)));
}

/// A run that was redundant lists something alone once a merge has forgotten it.
#[test]
fn a_redundant_run_goes_though_it_names_a_pack_that_is_gone() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let packs = [site.pack(set(1), 0..10), site.pack(set(2), 10..20), site.pack(set(3), 20..30)];
    site.run(&packs[..2]);
    site.run(&packs);
    site.remove(ExtentName::pack(set(1)));
    site.index(&monitor).repair().unwrap();
    assert_eq!(site.runs().len(), 1);
    assert_eq!(site.index(&monitor).repair().unwrap(), Mended::default());
    assert_finds(&site.index(&monitor), 10..30);
}

/// What a cut-off merge left of a run that remembers losses: whatever one member has of it, it is
/// none, and that something was forgotten with it is remembered.
#[test]
fn a_run_that_members_lack_their_part_of_is_made_anew() {
    let (site, monitor) = (Site::new(), Monitor::default());
    site.run(&[site.pack(set(1), 0..10), site.pack(set(2), 10..20)]);
    site.remove(ExtentName::pack(set(1)));
    assert_eq!(site.index(&monitor).repair().unwrap().written, 1);
    let run = site.runs()[0];
    for (_, member) in site.store.present().skip(1) {
        member.delete(ExtentName::index(run)).unwrap();
    }
    let index = site.index(&monitor);
    assert_eq!((index.parts(), index.repair().unwrap().written), ((0, 1), 1));
    assert!(!site.runs().contains(&run));
    let index = site.index(&monitor);
    assert!(index.plan_loose().is_none() && index.losses_mark() != 0);
    assert_finds(&index, 10..20);
}

#[test]
fn a_merge_leaves_out_a_run_that_cannot_be_read() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let bad = site.run(&[site.pack(set(1), 0..2000)]);
    let good = site.run(&[site.pack(set(2), 2000..2010)]);
    let index = site.index(&monitor);
    site.spoil(ExtentName::index(bad), 0..4096);
    let merge = index.plan_full_merge().unwrap();
    assert!(index.merge(merge, &|| false).unwrap().is_none());
    assert!(site.runs().contains(&good), "nothing was written that replaces it");
    // What its pack says of itself is merged in its place.
    let merged = index.merge(index.plan_full_merge().unwrap(), &|| false).unwrap().unwrap();
    assert_finds(&index, 0..2010);
    assert_eq!(monitor.get(Counter::Warnings), 1);
    // It was not merged, so it is there until a mend finds that it is redundant.
    site.index(&monitor).repair().unwrap();
    assert_eq!(site.runs(), [merged]);
}

/// Not an error of the runs: the merge must not blame another writer, nor try again.
#[test]
fn a_merge_that_too_few_members_can_take_says_so() {
    let (site, monitor) = (Site::over(2), Monitor::default());
    let places: Vec<_> = site.store.present().map(|(_, it)| it.place().to_owned()).collect();
    fs::rename(&places[1], places[1].with_extension("away")).unwrap();
    let store = Store::open(&places[0], &Plan::default()).unwrap();
    let index = Index::load(&store, &monitor).unwrap();
    let merge = Merge { remember: vec![set(9)], ..Merge::default() };
    let error = index.merge(merge, &|| false).unwrap_err();
    assert_eq!(error.kind(), Kind::TooManyLosses);
    assert_eq!(index.repair().unwrap(), Mended::default());
}

/// As `check` does beside a pack that is lost.
#[test]
fn all_rows_are_shown_though_a_run_cannot_be_read() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let bad = site.run(&[site.pack(set(1), 0..2000)]);
    site.run(&[site.pack(set(2), 2000..2010)]);
    let index = site.index(&monitor);
    site.spoil(ExtentName::index(bad), 0..4096);
    let count = |rows: &Rows<'_>| {
        let mut count = 0;
        rows.for_each(&mut |_, _, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    };
    assert_eq!(index.over_rows(count).unwrap(), 2010);
    let error = index.over_rows(|_| Err::<(), _>(Error::new(Kind::Usage, "its own"))).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
}
