//! Stores over directories and a bucket; places of other providers.

use std::fs;

use pinstripe_testing::Proxy;

use crate::buckets::{Cloud, summary};

/// Three directories hold enough of each row: the bucket is written, and read when something is lost.
#[test]
fn a_far_member_is_asked_for_content_when_near_ones_do_not_suffice() {
    let test = "a_far_member_is_asked_for_content_when_near_ones_do_not_suffice";
    let Some(cloud) = Cloud::new(test, 1) else { return };
    let proxy = Proxy::start(cloud.servers[0].port());
    let far = cloud.servers[0].place_at(proxy.port(), "far");
    // The bucket is asked first for what is put, and last for what is read.
    cloud.done(&format!(
        "init --encryption none --parity 1 --strip-size 4K --chunk-size 16K --same-disk \
         --member {far} --member m0 --member m1 --member m2"
    ));
    cloud.done("backup src --store m0");
    assert!(
        proxy.take_log().iter().any(|line| line.starts_with("PUT") && line.contains("/packs/"))
    );
    let out = cloud.done("restore latest --to out --store m0 --json");
    let log = proxy.take_log();
    let of_packs = |log: &[String]| {
        let is_read = |line: &&String| line.starts_with("GET") && line.contains("far/packs/");
        log.iter().filter(is_read).count()
    };
    assert_eq!(of_packs(&log), 0, "{}", log.join("\n"));
    let restored = summary(&out);
    assert!(restored["spared_strips"].as_u64().unwrap() > 10, "{restored}");
    assert_eq!(restored["rebuilt_strips"], 0, "{restored}");
    // What the far one was asked for is counted: it was listed.
    let gets = restored["request_gets"].as_u64().unwrap();
    let lists = restored["request_lists"].as_u64().unwrap();
    assert_eq!(gets + lists, log.len() as u64, "{restored}");
    cloud.assert_restored("m0", "out2");
    // One of the near ones is gone: then it is needed.
    fs::rename(cloud.stand.path("m1"), cloud.stand.path("away")).unwrap();
    proxy.take_log();
    cloud.assert_restored("m0", "out3");
    assert!(of_packs(&proxy.take_log()) > 0);
    fs::rename(cloud.stand.path("away"), cloud.stand.path("m1")).unwrap();
    // Who judges the members reads the far one as well.
    cloud.done("check --read-data --store m0");
    assert!(of_packs(&proxy.take_log()) > 0);
}

#[test]
fn places_of_other_providers_are_known_or_said_to_be_left_out() {
    let stand = crate::stand::Stand::new();
    for (place, feature, is_built) in [
        ("gs://bucket/host", "gs", cfg!(feature = "gs")),
        ("az://account1/container/host", "az", cfg!(feature = "az")),
    ] {
        let init = stand.run(&format!("init --encryption none --member {place}"));
        assert_ne!(init.code, 0);
        let expected = match is_built {
            true => "there are no credentials for this endpoint".to_owned(),
            false => format!("built without the feature '{feature}'"),
        };
        assert!(init.err.contains(&expected), "{}", init.err);
        assert!(init.err.contains(place), "{}", init.err);
    }
    let odd = stand.run("init --encryption none --member az://UPPER/container");
    assert!(odd.code == 2 && odd.err.contains("storage account"), "{}", odd.err);
}
