//! Leavings of a writer that dies while it seals a run or a pack, and packs that lack an extent.
//!
//! Set ids are chosen so that the strip with a run's head, the last one of its only row, is on the
//! member that was sealed first: then the half-sealed run opens though its pages are nowhere.

use std::fs;

use super::*;
use pinstripe_base::monitor::Counter;
use pinstripe_stripe::{Permutation, SetReader};

/// Data strips of a row over four members with parity 1.
const DATA: usize = 3;

/// A set id of which row 0 has its last data strip in slot 0, and the strip before it in slot 3.
fn head_first() -> SetId {
    let is_so = |set: &SetId| {
        let row = Permutation::new(*set, 0, 4);
        (row.slot(DATA - 1), row.slot(DATA - 2)) == (0, 3)
    };
    (0..=255).map(|n| SetId([n; 16])).find(is_so).expect("one of 256 has this row")
}

impl Site {
    /// A run with a chosen id, as a writer leaves it that died when so many members had sealed it.
    fn run_cut_off(&self, set: SetId, packs: &[SealedPack], sealed: usize) {
        let (name, geometry) = (ExtentName::index(set), self.store.geometry().unwrap());
        let create = |(_, member): (_, &pinstripe_member::SharedMember)| {
            member.create(name, Replace::Never).unwrap()
        };
        let mut extents = Extents(self.store.present().map(create).collect());
        lay_run(&self.store, set, geometry, packs, &Sealer::none(), &mut extents).unwrap();
        extents.0.into_iter().take(sealed).for_each(|extent| extent.seal().unwrap());
    }

    /// Removes the extents of a set from all members but the first so many.
    fn thin(&self, name: ExtentName, left: usize) {
        self.store.present().skip(left).for_each(|(_, member)| member.delete(name).unwrap());
    }
}

/// Four packs, each in a run of its own.
fn four_runs(site: &Site) -> (Vec<SealedPack>, Vec<SetId>) {
    let packs: Vec<_> =
        (1..5).map(|n| site.pack(set(n), u32::from(n) * 10..u32::from(n) * 10 + 10)).collect();
    let runs = packs.iter().map(|pack| site.run(std::slice::from_ref(pack))).collect();
    (packs, runs)
}

#[test]
fn a_run_whose_writer_died_while_it_sealed_it_takes_the_place_of_no_other() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let (packs, mut runs) = four_runs(&site);
    let cut = head_first();
    site.run_cut_off(cut, &packs, 1);
    // Its head can be read, and its pages cannot: that is what it takes.
    let name = ExtentName::index(cut);
    let store = &site.store;
    let reader = SetReader::open(&store.members(), name, store.config.store, cut).unwrap();
    assert!(reader.read(reader.index(), &mut Vec::new()).is_ok());
    assert!(reader.read(0..reader.index().start, &mut Vec::new()).is_err());
    // One pack lacks an extent, within parity: it counts because a run lists it.
    site.store.present().last().unwrap().1.delete(ExtentName::pack(set(2))).unwrap();
    let index = site.index(&monitor);
    assert_eq!((index.parts(), index.has_run(cut)), ((4, 0), false));
    index.remove_redundant().unwrap();
    runs.push(cut);
    runs.sort_unstable();
    assert_eq!(site.runs(), runs);
    let index = site.index(&monitor);
    assert_finds(&index, 10..50);
    assert!((10..50).all(|n| index.rely_on(&id(n)).unwrap()));
    assert_eq!((monitor.get(Counter::Warnings), index.losses_mark()), (0, 0));
    // Repair takes it away.
    assert_eq!(site.index(&monitor).repair().unwrap().removed, 1);
    assert!(!site.runs().contains(&cut));
    assert_finds(&site.index(&monitor), 10..50);
}

/// It can be read, as long as nothing else happens to it.
#[test]
fn runs_stay_while_the_one_that_says_the_same_lacks_an_extent() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let (packs, runs) = four_runs(&site);
    site.run_cut_off(head_first(), &packs, DATA);
    let index = site.index(&monitor);
    index.remove_redundant().unwrap();
    assert!(runs.iter().all(|run| site.runs().contains(run)));
    // One more extent of it goes.
    site.thin(ExtentName::index(head_first()), DATA - 1);
    assert_finds(&site.index(&monitor), 10..50);
    let index = site.index(&monitor);
    assert!(runs.iter().all(|run| index.has_run(*run)));
    assert_eq!(monitor.get(Counter::Warnings), 0);
}

#[test]
fn a_run_that_lost_an_extent_since_makes_no_other_redundant_any_more() {
    let (site, monitor) = (Site::new(), Monitor::default());
    let (packs, runs) = four_runs(&site);
    let all = site.run(&packs);
    let index = site.index(&monitor);
    assert_eq!((index.parts(), index.has_run(all)), ((1, 0), true));
    site.thin(ExtentName::index(all), DATA);
    index.remove_redundant().unwrap();
    assert!(runs.iter().all(|run| site.runs().contains(run)));
    // Now it is the redundant one.
    let index = site.index(&monitor);
    assert_eq!((index.parts(), index.has_run(all)), ((4, 0), false));
    index.remove_redundant().unwrap();
    assert_eq!(site.runs().len(), 4);
    assert_finds(&site.index(&monitor), 10..50);
}

#[test]
fn a_pack_in_no_run_is_read_without_an_extent_and_not_relied_upon() {
    let (site, monitor) = (Site::new(), Monitor::default());
    site.pack(set(1), 0..100);
    let name = ExtentName::pack(set(1));
    let (_, last) = site.store.present().last().unwrap();
    let path = last.place().join(name.path());
    fs::rename(&path, path.with_extension("away")).unwrap();
    let index = site.index(&monitor);
    assert_finds(&index, 0..100);
    assert!((0..100).all(|n| !index.rely_on(&id(n)).unwrap()));
    // A backup does not put it into a run, and looks closely at what it takes over.
    assert!(index.plan_loose().is_none() && !index.has_loose());
    assert_ne!(index.losses_mark(), 0);
    // With all of its extents it is as good as any other.
    fs::rename(path.with_extension("away"), &path).unwrap();
    index.refresh_packs().unwrap();
    assert!((0..100).all(|n| index.rely_on(&id(n)).unwrap()));
    assert_eq!((index.losses_mark(), index.has_loose()), (0, true));
    index.merge(index.plan_loose().unwrap(), &|| false).unwrap().unwrap();
    // In a run it may lack one.
    last.delete(name).unwrap();
    let index = site.index(&monitor);
    assert!((0..100).all(|n| index.rely_on(&id(n)).unwrap()));
    assert_eq!((index.losses_mark(), monitor.get(Counter::Warnings)), (0, 0));
}

#[test]
fn a_pack_in_no_run_with_too_few_extents_is_none() {
    let (site, monitor) = (Site::new(), Monitor::default());
    site.pack(set(1), 0..100);
    site.thin(ExtentName::pack(set(1)), DATA - 1);
    let index = site.index(&monitor);
    assert!((0..100).all(|n| index.find(&id(n)).unwrap().is_none()));
    assert_eq!((index.losses_mark(), monitor.get(Counter::Warnings)), (0, 0));
    let members: Vec<usize> = (0..DATA - 1).collect();
    assert!(is_leftover(&site.store, set(1), &members));
    // Though nothing says how it was cut, since what is left of it is damaged.
    for (_, member) in site.store.present().take(DATA - 1) {
        let path = member.place().join(ExtentName::pack(set(1)).path());
        fs::write(&path, b"something else").unwrap();
    }
    assert!(is_leftover(&site.store, set(1), &members));
    assert!(!is_leftover(&site.store, set(1), &[0, 1, 2, 3]));
    assert_eq!(geometry_of(&site.store, ExtentName::pack(set(1)), &members), None);
}

/// Repair gives it its extents first; where no member can take one, gc lays it anew.
#[test]
fn a_pack_that_lacks_an_extent_is_put_into_no_run() {
    let (site, monitor) = (Site::new(), Monitor::default());
    site.pack(set(1), 0..100);
    site.thin(ExtentName::pack(set(1)), DATA);
    assert_eq!(site.index(&monitor).repair().unwrap(), Mended::default());
    assert!(site.index(&monitor).plan_full_merge().is_none() && site.runs().is_empty());
}

/// The geometry of a pack is known though no header of it is sound.
#[test]
fn a_trailer_says_how_a_set_is_cut_when_no_header_does() {
    let site = Site::new();
    site.pack(set(1), 0..100);
    let name = ExtentName::pack(set(1));
    for (_, member) in site.store.present() {
        let path = member.place().join(name.path());
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    assert_eq!(geometry_of(&site.store, name, &[0, 1, 2]), Some(site.store.geometry().unwrap()));
    assert!(!is_leftover(&site.store, set(1), &[0, 1, 2]));
}
