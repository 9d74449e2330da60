//! Buckets at their quota: what may still be done, and what frees space.

use std::path::{Path, PathBuf};

use pinstripe_testing::{Fate, Proxy, noise};

use crate::buckets::Cloud;

/// A bucket with a quota, and places in it.
struct Limited {
    cloud: Cloud,
    proxy: Proxy,
}

/// The bytes of all files below a directory.
fn used_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => used_bytes(&entry.path()),
            Ok(_) => entry.metadata().map_or(0, |it| it.len()),
            Err(_) => 0,
        })
        .sum()
}

impl Limited {
    fn new(test: &str) -> Option<Limited> {
        let cloud = Cloud::new(test, 1)?;
        let proxy = Proxy::start(cloud.servers[0].port());
        Some(Limited { cloud, proxy })
    }

    fn place(&self, prefix: &str) -> String {
        self.cloud.servers[0].place_at(self.proxy.port(), prefix)
    }

    fn bucket(&self) -> PathBuf {
        self.cloud.servers[0].file("")
    }

    /// From now on the bucket takes no more than it has; with a status and an error code, as
    /// different providers answer.
    fn fill(&self, status: u16, code: &'static str) {
        let bucket = self.bucket();
        let most = used_bytes(&bucket);
        self.proxy.rule(move |asked| {
            let is_more = asked.method == "PUT" && used_bytes(&bucket) + asked.body_bytes > most;
            match is_more {
                true => Fate::Answer(status, format!("<Error><Code>{code}</Code></Error>")),
                false => Fate::Pass,
            }
        });
    }

    fn reserve(&self, prefix: &str) -> usize {
        let dir = self.bucket().join(prefix).join("pinstripe.reserve");
        std::fs::read_dir(dir).map_or(0, Iterator::count)
    }

    fn change(&self, seed: u64) {
        std::fs::write(self.cloud.stand.path("src/sub/noise"), noise(seed, 700_000)).unwrap();
    }

    /// Runs a line that is to end with this code, and returns what it printed.
    fn ends(&self, code: i32, line: &str) -> String {
        self.cloud.ends(code, line)
    }
}

#[test]
fn a_bucket_at_its_quota_is_forgotten_in_and_collected() {
    let test = "a_bucket_at_its_quota_is_forgotten_in_and_collected";
    let Some(limited) = Limited::new(test) else { return };
    let store = limited.place("host");
    limited.ends(0, &format!("init --encryption none --member {store}"));
    assert_eq!(limited.reserve("host"), 16);
    let at = format!("--store {store}");
    for (seed, (status, code)) in [(403, "QuotaExceeded"), (507, "")].into_iter().enumerate() {
        limited.change(10 * seed as u64 + 2);
        limited.ends(0, &format!("backup src {at}"));
        limited.change(10 * seed as u64 + 3);
        limited.ends(0, &format!("backup src {at}"));
        limited.fill(status, code);
        limited.change(10 * seed as u64 + 4);
        let full = limited.ends(1, &format!("backup src {at}"));
        assert!(full.contains("have the quota raised"), "{full}");
        let before = used_bytes(&limited.bucket());
        limited.ends(0, &format!("forget --keep-last 1 {at}"));
        assert!(limited.reserve("host") < 16, "its space was needed");
        limited.ends(0, &format!("gc --wait 0 {at}"));
        let freed = before - used_bytes(&limited.bucket());
        assert!(freed > 600_000, "{freed}");
        assert_eq!(limited.reserve("host"), 16, "it is complete again");
        limited.ends(0, &format!("check --read-data {at}"));
        limited.proxy.rule(|_| Fate::Pass);
        limited.ends(0, &format!("backup src {at}"));
        limited.cloud.assert_restored(&store, &format!("out{seed}"));
    }
    // The reserve is used up: the message says what to do.
    std::fs::remove_dir_all(limited.bucket().join("host/pinstripe.reserve")).unwrap();
    limited.fill(403, "QuotaExceeded");
    let full = limited.ends(1, &format!("forget --keep-last 1 {at}"));
    assert!(full.contains("have the quota raised"), "{full}");
}

#[test]
fn repair_at_the_quota_says_what_it_could_not_write_and_does_it_later() {
    let test = "repair_at_the_quota_says_what_it_could_not_write";
    let Some(limited) = Limited::new(test) else { return };
    let places = ["one", "two", "three"].map(|prefix| limited.place(prefix));
    let members = places.map(|place| format!("--member {place}")).join(" ");
    limited.ends(0, &format!("init --encryption none --parity 1 --same-fate {members}"));
    let at = format!("--store {}", limited.place("one"));
    limited.ends(0, &format!("backup src {at}"));
    limited.change(2);
    limited.ends(0, &format!("backup src {at}"));
    let lost = limited.bucket().join("two/packs");
    std::fs::remove_dir_all(&lost).unwrap();
    limited.fill(403, "QuotaExceeded");
    let told = limited.cloud.run(&format!("repair {at}"));
    assert_eq!(told.code, 10, "{}{}", told.out, told.err);
    assert!(told.err.contains("have the quota raised"), "{}", told.err);
    limited.ends(0, &format!("forget --keep-last 1 {at}"));
    limited.ends(0, &format!("gc --wait 0 {at}"));
    limited.ends(0, &format!("repair {at}"));
    limited.ends(0, &format!("check --read-data {at}"));
    limited.cloud.assert_restored(&limited.place("one"), "out");
}
