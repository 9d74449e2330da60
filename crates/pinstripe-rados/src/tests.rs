#![allow(clippy::disallowed_methods, reason = "tests: a cluster is told by the environment")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::Kind;

use crate::library::Library;
use crate::{Cluster, Pool};

const DEADLINE: Duration = Duration::from_secs(30);

/// A namespace of the pool `data` of the cluster that PINSTRIPE_CEPH_CONF names.
fn pool(test: &str) -> Option<Pool> {
    let Some(conf) = std::env::var_os("PINSTRIPE_CEPH_CONF").map(PathBuf::from) else {
        pinstripe_testing::skipped(test, "PINSTRIPE_CEPH_CONF names no cluster (its ceph.conf)");
        return None;
    };
    let cluster = Cluster::connect(&conf, "client.admin", DEADLINE).unwrap();
    Some(cluster.pool("data", &format!("{test}.{}", std::process::id())).unwrap())
}

fn has_library(test: &str) -> bool {
    match Library::get() {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), Kind::Unsupported);
            pinstripe_testing::skipped(test, &error.to_string());
            false
        }
    }
}

#[test]
fn a_system_without_the_library_is_told_which_package_has_it() {
    let missing = Library::open(c"libnothing-of-ceph.so.2").err().unwrap();
    assert_eq!(missing.kind(), Kind::Unsupported);
    assert!(missing.advice_text().unwrap().contains("librados2"), "{missing}");
    // A library, but not that one.
    let other = Library::open(c"libc.so.6").err().unwrap();
    assert_eq!(other.kind(), Kind::Unsupported);
    assert!(other.what().contains("rados_create2"), "{other}");
}

#[test]
fn a_configuration_that_is_not_there_and_one_of_nobody_end_in_time() {
    let test = "a_configuration_that_is_not_there_and_one_of_nobody_end_in_time";
    if !has_library(test) {
        return;
    }
    let stand = tempfile::tempdir().unwrap();
    let conf = stand.path().join("ceph.conf");
    let connect = || Cluster::connect(&conf, "client.admin", Duration::from_secs(1)).err().unwrap();
    assert_eq!(connect().kind(), Kind::NotFound);
    let text = "[global]\nmon host = v2:127.0.0.1:1\nauth client required = none\n\
                log to stderr = false\nerr to stderr = false\n";
    std::fs::write(&conf, text).unwrap();
    let refused = connect();
    assert!(matches!(refused.kind(), Kind::Unanswered | Kind::Io), "{refused}");
    assert!(refused.to_string().contains("ceph.conf"), "{refused}");
    let unclean = Cluster::connect(&conf, "client\0", DEADLINE).err().unwrap();
    assert_eq!(unclean.kind(), Kind::Usage);
}

#[test]
fn objects_are_written_read_and_removed() {
    let Some(pool) = pool("objects_are_written_read_and_removed") else { return };
    let content: Vec<u8> = (0..5_000_000u32).map(|at| ((at * 31) >> 5) as u8).collect();
    pool.replace("a", &content).unwrap();
    assert_eq!(pool.size("a").unwrap(), 5_000_000);
    let mut read = vec![0; 1000];
    assert_eq!(pool.read("a", 4_000_000, &mut read).unwrap(), 1000);
    assert!(read == content[4_000_000..4_001_000]);
    assert_eq!(pool.read("a", 4_999_990, &mut read).unwrap(), 10, "as far as there is");
    pool.write("a", 4_000_000, b"changed").unwrap();
    pool.read("a", 4_000_000, &mut read[..7]).unwrap();
    assert_eq!(&read[..7], b"changed");
    pool.remove("a").unwrap();
    pool.remove("a").expect("gone already");
    for gone in [pool.read("a", 0, &mut read).map(drop), pool.size("a").map(drop)] {
        assert_eq!(gone.unwrap_err().kind(), Kind::NotFound);
    }
    let long = vec![0; (64 << 20) + 1];
    assert_eq!(pool.replace("a", &long).unwrap_err().kind(), Kind::Usage);
    let missing = pool_of(&pool, "no-such-pool");
    assert_eq!(missing, Some(Kind::NotFound));
}

fn pool_of(pool: &Pool, name: &str) -> Option<Kind> {
    pool.cluster().pool(name, "").err().map(|error| error.kind())
}

#[test]
fn of_several_who_make_an_object_one_succeeds() {
    let Some(pool) = pool("of_several_who_make_an_object_one_succeeds") else { return };
    let pool = Arc::new(pool);
    for round in 0..20 {
        let name = format!("round {round}");
        let made = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..8u8)
                .map(|racer| {
                    let (pool, name) = (&pool, &name);
                    scope.spawn(move || (racer, pool.create(name, &[racer; 100])))
                })
                .collect();
            racers.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
        });
        let winners: Vec<u8> = made.iter().filter(|it| it.1.is_ok()).map(|it| it.0).collect();
        assert_eq!(winners.len(), 1, "{name}");
        for (_, lost) in made.iter().filter(|it| it.1.is_err()) {
            assert_eq!(lost.as_ref().unwrap_err().kind(), Kind::Exists);
        }
        let mut read = [0; 100];
        pool.read(&name, 0, &mut read).unwrap();
        assert_eq!(read, [winners[0]; 100]);
        pool.remove(&name).unwrap();
    }
}
