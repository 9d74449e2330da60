//! What a check survives.

use super::*;
use crate::ops::{init, repair};
use pinstripe_base::id::SetId;
use pinstripe_io::fault::Plan;
use pinstripe_member::Replace;
use pinstripe_member::stripe_set::{Geometry, SetKind};
use pinstripe_stripe::{SetWriter, StripSink};

/// Keeps the extents of the members that exist.
struct Extents(Vec<Vec<u8>>);

impl StripSink for Extents {
    fn append(&mut self, member: usize, bytes: Vec<u8>) -> Result<()> {
        self.0[member].extend_from_slice(&bytes);
        Ok(())
    }
}

#[test]
fn a_pack_over_more_members_than_the_store_has_is_survived() {
    let around = tempfile::tempdir().unwrap();
    let members = ["m0", "m1"].map(|name| around.path().join(name));
    init::run(&init::InitOptions::plain(members.to_vec(), 1)).unwrap();
    let mut store = Store::open(&members[0], &Plan::default()).unwrap();
    let set = SetId([7; 16]);
    let geometry = Geometry::new(3, 1, 4096).unwrap();
    let mut extents = Extents(vec![Vec::new(); 4]);
    let mut writer = SetWriter::new(store.config.store, set, SetKind::Pack, geometry);
    writer.append(&[1; 20_000], &mut extents).unwrap();
    writer.finish(0..0, &mut extents).unwrap();
    for (number, member) in store.present() {
        let mut extent = member.create(ExtentName::pack(set), Replace::Never).unwrap();
        extent.append(&extents.0[number]).unwrap();
        extent.seal().unwrap();
    }
    let limits = Limits::new(1, 2, 1);
    let monitor = Monitor::default();
    let outcome = run(&store, &CheckOptions { read_data: true, limits }, &monitor).unwrap();
    // No run names it, and too few extents are there: a leftover of an interrupted backup.
    assert_eq!((outcome.lost, outcome.packs), (0, 0), "{outcome:?}");
    repair::run(&mut store, limits, &monitor).unwrap();
}
