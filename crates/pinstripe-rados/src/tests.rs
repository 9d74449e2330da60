#![allow(clippy::disallowed_methods, reason = "tests: a cluster is told by the environment")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::error::{Kind, Result};
use pinstripe_member::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, Member, Replace, check_conformance,
};

use crate::cluster::WhenFull;
use crate::library::Library;
use crate::member::RadosMember;

use crate::{Cluster, Pool};

const DEADLINE: Duration = Duration::from_secs(30);

/// The configuration of the cluster that PINSTRIPE_CEPH_CONF names.
fn conf(test: &str) -> Option<PathBuf> {
    let conf = std::env::var_os("PINSTRIPE_CEPH_CONF").map(PathBuf::from);
    if conf.is_none() {
        pinstripe_testing::skipped(test, "PINSTRIPE_CEPH_CONF names no cluster (its ceph.conf)");
    }
    conf
}

/// A namespace of the pool `data` of that cluster.
fn pool(test: &str) -> Option<Pool> {
    let cluster = Cluster::connect(&conf(test)?, "client.admin", DEADLINE).unwrap();
    Some(cluster.pool("data", &format!("{test}.{}", std::process::id())).unwrap())
}

/// A pool that is removed in the end.
struct OwnPool {
    conf: PathBuf,
    name: String,
}

impl OwnPool {
    fn new(conf: PathBuf, name: String) -> Self {
        let pool = OwnPool { conf, name };
        pool.ceph(&["osd", "pool", "create", &pool.name, "4"]);
        pool
    }

    /// Has Ceph's own tool do something.
    fn ceph(&self, args: &[&str]) {
        let done = Command::new("ceph").arg("-c").arg(&self.conf).args(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for OwnPool {
    fn drop(&mut self) {
        let sure = "--yes-i-really-really-mean-it";
        self.ceph(&["osd", "pool", "delete", &self.name, &self.name, sure]);
    }
}

#[test]
#[ignore = "with --all: it needs a Ceph"]
fn a_full_pool_says_so_and_objects_can_still_be_removed() {
    let Some(conf) = conf("a_full_pool_says_so") else { return };
    let own = OwnPool::new(conf.clone(), format!("full.{}", std::process::id()));
    let cluster = Cluster::connect(&conf, "client.admin", DEADLINE).unwrap();
    let pool = cluster.pool(&own.name, "").unwrap();
    own.ceph(&["osd", "pool", "set-quota", &own.name, "max_objects", "3"]);
    let end = Instant::now() + 2 * DEADLINE;
    // The cluster counts now and then, and until it has counted more goes in.
    let (refused, made) = (0..)
        .find_map(|number| {
            assert!(Instant::now() < end, "it is never full");
            std::thread::sleep(Duration::from_millis(100));
            pool.create(&format!("object {number}"), b"content", WhenFull::Fail)
                .err()
                .map(|error| (error, number))
        })
        .unwrap();
    assert_eq!(refused.kind(), Kind::NoSpace, "{refused}");
    assert!(made >= 3, "{made} objects");
    // The same one again: another may be of an OSD that has not heard of it yet.
    let again = pool.create(&format!("object {made}"), b"content", WhenFull::Fail);
    assert_eq!(again.unwrap_err().kind(), Kind::NoSpace);
    pool.create("a step of a deletion", b"content", WhenFull::Write).unwrap();
    (0..made).for_each(|number| pool.remove(&format!("object {number}")).unwrap());
    assert_eq!(pool.size("object 0").unwrap_err().kind(), Kind::NotFound);
}

fn has_library(test: &str) -> bool {
    match Library::get() {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), Kind::Unsupported);
            pinstripe_testing::not_installed(test, "librados");
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
#[ignore = "with --all: it needs a Ceph"]
fn objects_are_written_read_and_removed() {
    let Some(pool) = pool("objects_are_written_read_and_removed") else { return };
    let content: Vec<u8> = (0..5_000_000u32).map(|at| ((at * 31) >> 5) as u8).collect();
    pool.replace("a", &content, WhenFull::Fail).unwrap();
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
    let long = vec![0; (80 << 20) + 1];
    assert_eq!(pool.replace("a", &long, WhenFull::Fail).unwrap_err().kind(), Kind::Usage);
    let missing = pool_of(&pool, "no-such-pool");
    assert_eq!(missing, Some(Kind::NotFound));
}

fn pool_of(pool: &Pool, name: &str) -> Option<Kind> {
    pool.cluster().pool(name, "").err().map(|error| error.kind())
}

#[test]
#[ignore = "with --all: it needs a Ceph"]
fn of_several_who_make_an_object_one_succeeds() {
    let Some(pool) = pool("of_several_who_make_an_object_one_succeeds") else { return };
    let pool = Arc::new(pool);
    for round in 0..30 {
        let name = format!("round {round}");
        let made = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..8u8)
                .map(|racer| {
                    let (pool, name) = (&pool, &name);
                    scope.spawn(move || (racer, pool.create(name, &[racer; 100], WhenFull::Fail)))
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

/// A member in a namespace of its own in the pool `data`; what is left there is removed in the end.
struct Emptied {
    member: RadosMember,
    pools: Vec<Pool>,
}

impl Emptied {
    fn new(cluster: &Arc<Cluster>, namespace: &str) -> Self {
        let place = PathBuf::from(format!("rados://data/{namespace}"));
        let member = RadosMember::open(cluster, "data", namespace, &place).unwrap();
        let kinds = ExtentKind::ALL.map(|kind| format!("{namespace}/{}", kind.dir())).into_iter();
        let namespaces = kinds.chain([namespace.to_owned(), format!("{namespace}/parts")]);
        let pools = namespaces.map(|it| cluster.pool("data", &it).unwrap()).collect();
        Emptied { member, pools }
    }
}

impl Drop for Emptied {
    fn drop(&mut self) {
        for pool in &self.pools {
            let mut names = Vec::new();
            let _ = pool.list(&mut |name| {
                names.push(name.to_owned());
                true
            });
            names.iter().for_each(|name| drop(pool.remove(name)));
        }
    }
}

impl Member for Emptied {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.member.create(name, replace)
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        self.member.put(name, bytes)
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.member.read_at(name, offset, buf)
    }

    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        self.member.read_at_hand(name, offset, buf)
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        self.member.len(name)
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        self.member.list(kind)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        self.member.delete(name)
    }

    fn sync(&self) -> Result<()> {
        self.member.sync()
    }

    fn sweep(&self) -> Result<u64> {
        self.member.sweep()
    }

    fn caps(&self) -> Caps {
        self.member.caps()
    }

    fn place(&self) -> &Path {
        self.member.place()
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        self.member.batched()
    }
}

#[test]
#[ignore = "with --all: it needs a Ceph"]
fn a_member_in_a_pool_keeps_the_rules_of_the_seam() {
    let Some(pool) = pool("a_member_in_a_pool_keeps_the_rules") else { return };
    let next = AtomicU32::new(0);
    check_conformance(&|| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("suite.{}.{number}", std::process::id());
        Box::new(Emptied::new(pool.cluster(), &namespace))
    });
}

#[test]
#[ignore = "with --all: it needs a Ceph"]
fn a_namespace_that_has_something_is_refused() {
    let Some(pool) = pool("a_namespace_that_has_something_is_refused") else { return };
    let emptied = Emptied::new(pool.cluster(), &format!("taken.{}", std::process::id()));
    emptied.member.require_empty().unwrap();
    emptied.put(ExtentName::In(ExtentKind::Packs, [1; 16]), b"a pack").unwrap();
    assert_eq!(emptied.member.require_empty().unwrap_err().kind(), Kind::Refused);
    assert_eq!(pool.cluster().id().unwrap().len(), 36, "a UUID");
}

#[test]
#[ignore = "with --all: it needs a Ceph"]
fn long_extents_are_written_in_parts_and_leave_none_behind() {
    let Some(pool) = pool("long_extents_are_written_in_parts") else { return };
    let namespace = format!("long.{}", std::process::id());
    let emptied = Emptied::new(pool.cluster(), &namespace);
    let long: Vec<u8> = (0..100_000_000u32).map(|at| ((at * 37) >> 7) as u8).collect();
    // Short enough for one object, and with the bytes that a list of parts begins with.
    let odd = [&b"PINPARTS and what follows"[..], &long[..40 << 20]].concat();
    let parts = || {
        let mut parts = 0;
        emptied
            .pools
            .last()
            .unwrap()
            .list(&mut |_| {
                parts += 1;
                true
            })
            .unwrap();
        parts
    };
    for (id, bytes) in [([1; 16], &long), ([2; 16], &odd)] {
        let name = ExtentName::In(ExtentKind::Index, id);
        let mut writer = emptied.member.create(name, Replace::Never).unwrap();
        bytes.chunks(1 << 20).for_each(|piece| writer.append(piece).unwrap());
        writer.seal().unwrap();
        assert_eq!(emptied.member.len(name).unwrap(), bytes.len() as u64);
        for (offset, many) in [(0, 8), (5, 20), (bytes.len() - 9, 9), (0, bytes.len())] {
            let mut read = vec![0; many];
            emptied.member.read_at(name, offset as u64, &mut read).unwrap();
            assert!(read == bytes[offset..offset + many], "{offset}, {many}");
        }
        let mut beyond = [0; 10];
        let end = emptied.member.read_at(name, bytes.len() as u64 - 9, &mut beyond);
        assert_eq!(end.unwrap_err().kind(), Kind::Corrupt);
    }
    assert_eq!(parts(), 5);
    // As long as those of packs are, it is one object.
    let name = ExtentName::In(ExtentKind::Packs, [4; 16]);
    let mut writer = emptied.member.create(name, Replace::Never).unwrap();
    long[..66 << 20].chunks(1 << 20).for_each(|piece| writer.append(piece).unwrap());
    writer.seal().unwrap();
    assert_eq!((emptied.member.len(name).unwrap(), parts()), (66 << 20, 5));
    let mut dropped =
        emptied.member.create(ExtentName::In(ExtentKind::Index, [3; 16]), Replace::Never).unwrap();
    dropped.append(&long).unwrap();
    drop(dropped);
    assert_eq!(parts(), 5, "a writer that was dropped leaves none");
    emptied.member.delete(ExtentName::In(ExtentKind::Index, [1; 16])).unwrap();
    emptied.member.delete(ExtentName::In(ExtentKind::Index, [2; 16])).unwrap();
    assert_eq!(parts(), 0);
    assert!(emptied.member.list(ExtentKind::Index).unwrap().is_empty());
}
