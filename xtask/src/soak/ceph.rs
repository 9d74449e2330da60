//! `cargo xtask soak ceph` starts a Ceph cluster on the loopback interface
//! (`contrib/ceph/start.sh`), and runs the tests that `cargo xtask test --all` skips without one:
//! members in pools, the lab on a pool, and members in a bucket of Ceph's gateway.
//!
//! Invariants: a test that reports itself as skipped is a failure here. Only daemons that this
//! cluster started are ended.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::packages;
use crate::workspace::{Result, Workspace, cargo, succeeds, works};

/// The Debian packages with the daemons and tools.
const PACKAGES: [&str; 6] = ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph-common", "radosgw", "curl"];

/// The script that starts the cluster.
const START: &str = "contrib/ceph/start.sh";

/// A place in the bucket that the script creates.
const S3_PLACE: &str = "s3+http://127.0.0.1:27480/tests/suite";

/// The arguments of `cargo test` before and behind `--` for each group of tests.
const GROUPS: [(&[&str], &[&str]); 4] = [
    (&["pinstripe-rados"], &[]),
    (&["pinstripe-cli", "--test", "cli"], &["pools::"]),
    (&["pinstripe-lab", "--lib"], &["a_pool_of_a_real_cluster"]),
    (&["pinstripe-bucket", "--test", "bucket"], &["named::"]),
];

/// The time that daemons have to end before the next signal.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Runs the tests; returns false if one failed or was skipped.
pub fn run() -> Result<bool> {
    let workspace = Workspace::load()?;
    let why = packages::install(&PACKAGES);
    if !works(Command::new("ceph-osd").arg("--version")) {
        return Err(format!("Ceph is not installed: {why}"));
    }
    let folder = workspace.target.join("xtask").join("ceph");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let began = Instant::now();
    let is_good = {
        let cluster = Cluster(&folder);
        let mut start = Command::new("sh");
        start.arg(workspace.root.join(START)).arg(cluster.0);
        if !succeeds(&mut start)? {
            return Err(format!("the cluster did not start: see the logs in {}", folder.display()));
        }
        println!("ceph: the cluster runs after {} s", began.elapsed().as_secs());
        run_tests(&workspace.root, cluster.0)?
    };
    println!("ceph: {} s in total", began.elapsed().as_secs());
    let _ = fs::remove_dir_all(&folder);
    Ok(is_good)
}

/// Runs all groups of tests on the cluster in a directory.
fn run_tests(root: &Path, folder: &Path) -> Result<bool> {
    let log = folder.join("skipped.log");
    let mut is_good = true;
    for (package, tests) in GROUPS {
        let mut test = cargo();
        test.args(["test", "--package"]).args(package);
        test.args(["--", "--include-ignored"]).args(tests);
        test.env("PINSTRIPE_CEPH_CONF", folder.join("ceph.conf"));
        test.env("PINSTRIPE_S3_PLACE", S3_PLACE).env("PINSTRIPE_SKIP_LOG", &log);
        test.env("AWS_ACCESS_KEY_ID", "tests").env("AWS_SECRET_ACCESS_KEY", "onlyForTests");
        is_good &= succeeds(test.current_dir(root))?;
    }
    let skipped = fs::read_to_string(&log).unwrap_or_default();
    skipped.lines().for_each(|line| println!("skipped: {line}"));
    Ok(is_good && skipped.is_empty())
}

/// The directory of a cluster, whose daemons are ended when this value is dropped.
struct Cluster<'a>(&'a Path);

impl Cluster<'_> {
    /// The ids of the daemons that are running: their command line names a file of this directory.
    fn daemons(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0).into_iter().flatten().flatten();
        let files = entries.map(|it| it.path());
        let files = files.filter(|it| it.extension().is_some_and(|it| it == "pid"));
        let ids = files.filter_map(|it| Some(fs::read_to_string(it).ok()?.trim().to_owned()));
        let folder = self.0.to_string_lossy().into_owned();
        let is_ours = |id: &String| {
            fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|it| it.contains(&folder))
        };
        ids.filter(is_ours).collect()
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        for signal in ["-TERM", "-KILL"] {
            let daemons = self.daemons();
            if !daemons.is_empty() {
                works(Command::new("kill").arg(signal).args(&daemons));
            }
            // The daemons are not children of this process, so it is not woken when they end.
            let until = Instant::now() + ENDS_WITHIN;
            while !self.daemons().is_empty() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}
