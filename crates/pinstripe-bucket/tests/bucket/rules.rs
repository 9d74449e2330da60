//! The rules of the seam, and the probe.

use pinstripe::member::RemoteMembers;
use pinstripe::member::conformance;
use pinstripe_base::error::Kind;

use crate::support::Site;

#[test]
fn keeps_the_rules_of_the_seam() {
    let Some(site) = Site::new("keeps_the_rules_of_the_seam") else { return };
    conformance::run(&|| Box::new(site.open(&site.fresh_place()).unwrap()));
}

#[test]
fn a_sound_endpoint_passes_the_probe_and_keeps_nothing_of_it() {
    let Some(site) = Site::new("a_sound_endpoint_passes_the_probe") else { return };
    let place = site.fresh_place();
    let report = site.buckets.probe(&place).unwrap();
    assert_eq!(report.missing(), None, "{report:?}");
    assert_eq!(report.abilities[0].seen, "30 of 30 races had one winner");
    site.buckets.create(&place).unwrap();
}

#[test]
fn a_prefix_that_is_not_empty_is_refused() {
    let Some(site) = Site::new("a_prefix_that_is_not_empty_is_refused") else { return };
    let place = site.fresh_place();
    let file = site.server.file("p0/notes");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, "mine").unwrap();
    let error = site.buckets.create(&place).err().unwrap();
    assert_eq!(error.kind(), Kind::Refused);
    assert!(error.to_string().contains("p0/notes"), "{error}");
}
