//! The rules of the seam by the protocols of Google and Azure, at places that the developer names:
//! PINSTRIPE_AZ_PLACE as `az+http://HOST:PORT/ACCOUNT/CONTAINER/PREFIX`, which AZURE_STORAGE_ACCOUNT_KEY
//! opens, and PINSTRIPE_GS_PLACE as `gs://BUCKET/PREFIX`, which GOOGLE_APPLICATION_CREDENTIALS opens. In
//! place of the latter PINSTRIPE_FAKE_GCS may have the address of a fake-gcs-server.

use std::path::Path;
use std::sync::Arc;

use pinstripe_base::id::StoreId;
use pinstripe_bucket::{BucketSource, Provider};
use pinstripe_member::envelope::Object;
use pinstripe_member::{
    ExtentKind, ExtentName, Member, PrefetchHint, RemoteMembers, SealedCache, envelope,
};
use pinstripe_overlay::RangeSource;

use crate::named::{NamedEndpoint, set};
#[cfg(feature = "gcp")]
use crate::xml_front;

/// The place in buckets of Google that was named.
#[cfg(feature = "gcp")]
fn google() -> Option<String> {
    static FRONT: std::sync::OnceLock<u16> = std::sync::OnceLock::new();
    let fake = set("PINSTRIPE_FAKE_GCS").map(|server| {
        let port = FRONT.get_or_init(|| xml_front::start(&server));
        format!("gs+http://127.0.0.1:{port}/{}/tests", xml_front::BUCKET)
    });
    fake.or_else(|| set("PINSTRIPE_GS_PLACE"))
}

#[cfg(not(feature = "gcp"))]
fn google() -> Option<String> {
    None
}

/// Runs a test at each provider that this was built for.
fn at_each(test: &str, run: impl Fn(&NamedEndpoint, Provider)) {
    let at = |provider, place: Option<String>, variable: &str, key: &str| {
        let Some(place) = place else {
            let reason = format!("{variable} names no place at {provider:?}");
            return pinstripe_testing::skipped(&format!("{test} of {provider:?}"), &reason);
        };
        let credentials = set(key).map(|value| (key.to_ascii_lowercase(), value));
        run(&NamedEndpoint::at(test, &place, credentials.into_iter().collect()), provider);
    };
    if cfg!(feature = "gcp") {
        let key = "GOOGLE_APPLICATION_CREDENTIALS";
        at(Provider::Google, google(), "PINSTRIPE_GS_PLACE", key);
    }
    if cfg!(feature = "azure") {
        let (variable, key) = ("PINSTRIPE_AZ_PLACE", "AZURE_STORAGE_ACCOUNT_KEY");
        at(Provider::Azure, set(variable), variable, key);
    }
}

#[test]
#[ignore = "with --all: it needs a provider that the developer names"]
fn a_provider_keeps_the_rules_of_the_seam() {
    at_each("rules", |named, _| named.keeps_the_rules_of_the_seam());
}

#[test]
#[ignore = "with --all: it needs a provider that the developer names"]
fn a_provider_passes_the_probe_and_keeps_nothing_of_it() {
    at_each("probe", |named, provider| {
        named.passes_the_probe_and_keeps_nothing_of_it(provider != Provider::Azure);
    });
}

#[test]
#[ignore = "with --all: it needs a provider that the developer names"]
fn a_provider_keeps_long_extents_whole_and_does_not_write_over_them() {
    at_each("parts", |named, _| named.keeps_long_extents_whole_and_does_not_write_over_them());
}

/// The first file below a path, and what is read of it by the version that the listing had.
fn first_file(source: &BucketSource, below: &str) -> Vec<u8> {
    let (name, entry) = source.list(below.as_bytes()).unwrap().remove(0);
    let name = std::str::from_utf8(&name).unwrap();
    let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
    let entry = entry.unwrap();
    if entry.data_bytes == 0 {
        return first_file(source, &path);
    }
    let stat = source.stat(path.as_bytes()).unwrap();
    assert_eq!(stat.version, entry.version);
    let mut out = Vec::new();
    source.read(path.as_bytes(), &entry.version, 2..entry.data_bytes, &mut out).unwrap();
    out
}

/// A listing and the answer that bytes come in may write the same entity tag differently.
#[test]
#[ignore = "with --all: it needs a provider that the developer names"]
fn a_provider_shows_the_content_that_it_listed() {
    at_each("overlay", |named, _| {
        let place = named.fresh_place();
        named
            .open(&place)
            .put(ExtentName::In(ExtentKind::Sessions, [3; 16]), b"a session")
            .unwrap();
        let source = named.buckets.source(&place, (1, 2)).unwrap();
        assert_eq!(first_file(&source, ""), b"session");
    });
}

/// The member at a place in a run of its own that has a cache, and the GETs of reading an object.
fn read_again(named: &NamedEndpoint, place: &Path, dir: &Path, name: ExtentName) -> (Vec<u8>, u64) {
    let cache = SealedCache::open(dir, 16 << 20, StoreId([1; 16]), |_, error| panic!("{error}"));
    let buckets = named.other_buckets();
    buckets.keep_in(Arc::new(cache.unwrap()));
    let member = buckets.open(place).unwrap();
    member.prefetch(&[
        PrefetchHint::new(ExtentKind::Snapshots, 1),
        PrefetchHint::new(ExtentKind::Forgotten, 1),
    ]);
    let read = member.read_whole(&[name], 1 << 20).remove(0).unwrap();
    (read, buckets.requests().gets)
}

#[test]
#[ignore = "with --all: it needs a provider that the developer names"]
fn a_provider_is_not_asked_again_for_what_is_kept() {
    at_each("kept", |named, provider| {
        let (place, dir) = (named.fresh_place(), tempfile::tempdir().unwrap());
        let name = ExtentName::In(ExtentKind::Forgotten, [5; 16]);
        let object = envelope::close(Object::Forgotten, &[5; 30]);
        named.open(&place).put(name, &object).unwrap();
        for gets in [1, 0] {
            let read = read_again(named, &place, dir.path(), name);
            assert_eq!(read, (object.clone(), gets), "{provider:?}");
        }
    });
}
