//! A prefix of a bucket as the source of an overlay.

use object_store::ObjectStoreExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use pinstripe_base::error::Kind;
use pinstripe_bucket::BucketSource;
use pinstripe_overlay::{RangeSource, SourceFixture, check_conformance};
use pinstripe_testing::{BUCKET, Fate, KEY_ID, KEY_SECRET};

use crate::support::Site;

/// Objects that another program makes.
struct Objects<'a> {
    site: &'a Site,
    place: std::path::PathBuf,
    client: AmazonS3,
    runtime: tokio::runtime::Runtime,
}

impl<'a> Objects<'a> {
    fn new(site: &'a Site) -> Self {
        let client = AmazonS3Builder::new()
            .with_bucket_name(BUCKET)
            .with_endpoint(format!("http://127.0.0.1:{}", site.server.port()))
            .with_allow_http(true)
            .with_access_key_id(KEY_ID)
            .with_secret_access_key(KEY_SECRET)
            .build()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Objects { site, place: site.fresh_place(), client, runtime }
    }

    fn key(&self, path: &str) -> Key {
        let place = self.place.to_str().unwrap();
        Key::from(format!("{}/{path}", place.rsplit('/').next().unwrap()))
    }
}

impl SourceFixture for Objects<'_> {
    type Source = BucketSource;

    fn open(&self) -> BucketSource {
        self.site.buckets.source(&self.place, (1, 2)).unwrap()
    }

    fn write(&self, path: &str, content: &[u8]) {
        let key = self.key(path);
        self.runtime.block_on(self.client.put(&key, content.to_vec().into())).unwrap();
    }

    fn remove(&self, path: &str) {
        self.runtime.block_on(self.client.delete(&self.key(path))).unwrap();
    }

    fn link(&self, _: &str, _: &str) -> bool {
        false
    }
}

#[test]
fn a_bucket_is_a_source() {
    let Some(site) = Site::new("a_bucket_is_a_source") else { return };
    check_conformance(&|| Objects::new(&site));
}

#[test]
fn a_place_without_objects_is_said_to_be_empty() {
    let Some(site) = Site::new("a_place_without_objects_is_said_to_be_empty") else { return };
    let error = site.buckets.source(&site.fresh_place(), (0, 0)).err().unwrap();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("the key of no object begins with this prefix"), "{error}");
}

/// A long listing has pages; of an object and a prefix of one name the object is shown.
#[test]
fn a_directory_of_many_objects_is_listed_whole() {
    let Some(site) = Site::new("a_directory_of_many_objects_is_listed_whole") else { return };
    let objects = Objects::new(&site);
    let dir = site.server.file("p0/many");
    std::fs::create_dir_all(&dir).unwrap();
    (0..2100).for_each(|number| std::fs::write(dir.join(format!("{number}")), "x").unwrap());
    let source = SourceFixture::open(&objects);
    let listed = source.list(b"many").unwrap();
    assert_eq!(listed.len(), 2100);
    assert!(listed.iter().all(|(_, entry)| entry.as_ref().unwrap().owner == (1, 2)));
    site.proxy.take_log();
    assert_eq!(source.stat(b"many/7").unwrap().version.size, 1);
    assert_eq!(site.proxy.take_log().len(), 1);
}

/// Answers that are cut off are asked for again; what is no object is an error.
#[test]
fn a_lying_endpoint_gives_no_wrong_bytes() {
    let Some(site) = Site::new("a_lying_endpoint_gives_no_wrong_bytes") else { return };
    let objects = Objects::new(&site);
    SourceFixture::write(&objects, "file", &[7; 100_000]);
    let source = SourceFixture::open(&objects);
    let version = source.stat(b"file").unwrap().version;
    let mut out = Vec::new();
    site.proxy.rule(|asked| match asked.number % 3 {
        0 => Fate::Truncate(1000),
        1 => Fate::DropAnswer,
        _ => Fate::Pass,
    });
    for _ in 0..3 {
        out.clear();
        source.read(b"file", &version, 0..50_000, &mut out).unwrap();
        assert!(out == [7; 50_000]);
    }
    out.clear();
    // What answers so is no endpoint of S3, or not of this object.
    site.proxy.rule(|_| Fate::Answer(200, "<html>Log in</html>".to_owned()));
    assert!(source.read(b"file", &version, 0..50_000, &mut out).is_err());
    assert!(source.list(b"").is_err());
    assert!(out.is_empty());
    site.proxy.rule(|_| Fate::Pass);
    source.read(b"file", &version, 0..50_000, &mut out).unwrap();
    assert_eq!(out, [7; 50_000]);
}
