//! What a host keeps of stores in buckets: it saves requests, is never needed, and is never believed
//! to say what a bucket still has.

use std::fs;
use std::path::{Path, PathBuf};

use pinstripe_testing::Proxy;

use crate::buckets::Cloud;
use crate::stand::Stand;

/// A store in a bucket behind a proxy that counts.
struct Counted {
    cloud: Cloud,
    proxy: Proxy,
    store: String,
}

impl Counted {
    fn new(test: &str, init: &str) -> Option<Counted> {
        let cloud = Cloud::at(Stand::apart(), test, 1)?;
        let proxy = Proxy::start(cloud.servers[0].port());
        let mut counted = Counted { cloud, proxy, store: String::new() };
        counted.store = counted.make_store(init, "host");
        Some(counted)
    }

    fn make_store(&self, init: &str, prefix: &str) -> String {
        let store = self.cloud.servers[0].place_at(self.proxy.port(), prefix);
        self.cloud.done(&format!("init {init} --member {store}"));
        store
    }

    /// Runs a line on the store: what it printed, and the requests that it made.
    fn ask(&self, line: &str) -> (String, Vec<String>) {
        self.ask_of(&self.store, line)
    }

    fn ask_of(&self, store: &str, line: &str) -> (String, Vec<String>) {
        self.proxy.take_log();
        let out = self.cloud.done(&format!("{line} --store {store}"));
        (out, self.proxy.take_log())
    }

    /// The directories of what is kept, one for each store.
    fn kept(&self) -> Vec<PathBuf> {
        let dir = self.cloud.stand.path("home/.cache/pinstripe");
        let stores = fs::read_dir(dir).into_iter().flatten().flatten();
        stores.map(|store| store.path().join("sealed")).collect()
    }

    fn files(&self) -> Vec<PathBuf> {
        let dirs = self.kept().into_iter().flat_map(|dir| fs::read_dir(dir).unwrap());
        dirs.map(|file| file.unwrap().path()).collect()
    }
}

#[test]
fn a_warm_listing_takes_few_requests() {
    let test = "a_warm_listing_takes_few_requests";
    for (init, spare) in [("--encryption none", 0), ("--key-file key", 2)] {
        let Some(counted) = Counted::new(test, init) else { return };
        let key = if spare == 0 { "" } else { " --key-file key" };
        let ls = |line: &str| counted.ask(&format!("{line}{key}"));
        pinstripe_testing::await_tick();
        ls("backup src");
        let (cold_out, cold) = ls("ls latest --cache-size 0");
        // The host that made the backup has its tree, its index and its snapshot.
        let (first_out, first) = ls("ls latest");
        let (warm_out, warm) = ls("ls latest");
        assert_eq!((&cold_out, &cold_out), (&first_out, &warm_out));
        assert_eq!(first.len(), warm.len(), "{}", first.join("\n"));
        // The label, the keys, the prefix; the runs once more. With a key file the slots and the ring.
        assert!(warm.len() <= 4 + spare, "{}", warm.join("\n"));
        assert!(warm.len() + 2 < cold.len(), "{} and {}", warm.len(), cold.len());
        let asks_packs = |log: &[String]| log.iter().any(|line| line.contains("/packs/"));
        assert!(asks_packs(&cold) && !asks_packs(&warm), "{}", warm.join("\n"));
        // Label, prefix, keys and runs; session, prefix; label and runs; snapshot, end of the session.
        // The steps of deletion twice, since a plain store tells by them what a member brought back; and
        // the label once more after the snapshot, since the only member may have been replaced.
        let unchanged = counted.cloud.stand.steady(|number| {
            let store = counted.make_store(init, &format!("unchanged{number}"));
            let backup = || counted.ask_of(&store, &format!("backup src{key}")).1;
            backup();
            backup()
        });
        assert!(unchanged.len() <= 13 + spare, "{}", unchanged.join("\n"));
        assert!(!asks_packs(&unchanged), "{}", unchanged.join("\n"));
        // A new snapshot is found: what there is says the bucket.
        fs::write(counted.cloud.stand.path("src/new file"), "new").unwrap();
        ls("backup src");
        assert!(ls("ls latest").0.contains("new file"));
        assert!(counted.files().len() >= 2);
        let home = counted.cloud.stand.path("home/.cache");
        assert!(spare == 0 || !contains(&home, b"new file"), "it is sealed as in the bucket");
    }
}

fn contains(dir: &Path, text: &[u8]) -> bool {
    fs::read_dir(dir).unwrap().flatten().any(|entry| match entry.file_type().unwrap().is_dir() {
        true => contains(&entry.path(), text),
        false => fs::read(entry.path()).unwrap().windows(text.len()).any(|part| part == text),
    })
}

#[test]
fn what_is_kept_is_never_needed() {
    let Some(counted) = Counted::new("what_is_kept_is_never_needed", "--encryption none") else {
        return;
    };
    counted.ask("backup src");
    let (listed, _) = counted.ask("ls latest");
    let check = |what: &str| {
        assert_eq!(counted.ask("ls latest").0, listed, "{what}");
        assert_eq!(counted.ask("ls latest").0, listed, "{what}, again");
    };
    for file in counted.files() {
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, bytes.iter().map(|byte| byte ^ 0x11).collect::<Vec<_>>()).unwrap();
    }
    check("damaged");
    let dir = counted.kept().remove(0);
    fs::remove_dir_all(&dir).unwrap();
    check("removed");
    // Another store's, with files of its own.
    let other = counted.cloud.place(0, "other");
    counted.cloud.done(&format!("init --encryption none --member {other}"));
    fs::write(counted.cloud.stand.path("src/other"), "of the other store").unwrap();
    counted.cloud.done(&format!("backup src --store {other}"));
    counted.cloud.done(&format!("ls latest --store {other}"));
    let others = counted.kept().into_iter().find(|kept| *kept != dir).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(others, &dir).unwrap();
    check("another store's");
    // A file where the directory should be.
    fs::remove_dir_all(&dir).unwrap();
    fs::write(&dir, "in the way").unwrap();
    let out = counted.cloud.run(&format!("ls latest --store {}", counted.store));
    assert_eq!((out.code, &out.out), (0, &listed), "{}", out.err);
    assert!(out.err.contains("without a cache: "), "{}", out.err);
    fs::remove_file(&dir).unwrap();
    // By the config file, and not at all.
    fs::write(counted.cloud.stand.path("none.toml"), "cache-size = '0'\n").unwrap();
    assert_eq!(counted.ask("ls latest --config none.toml").0, listed);
    assert!(!dir.exists());
    fs::write(counted.cloud.stand.path("bad.toml"), "cache-size = '1M'\n").unwrap();
    let bad = counted.cloud.run("snapshots --config bad.toml");
    assert!(bad.code == 2 && bad.err.contains("bad.toml:1"), "{}", bad.err);
}

/// Several runs at once, and the directory removed while they run.
#[test]
fn many_runs_share_what_is_kept() {
    let Some(counted) = Counted::new("many_runs_share_what_is_kept", "--encryption none") else {
        return;
    };
    counted.ask("backup src");
    let (listed, _) = counted.ask("ls latest --cache-size 0");
    let line = format!("ls latest --store {}", counted.store);
    let dir = counted.cloud.stand.path("home/.cache");
    for _ in 0..3 {
        let piped = || {
            let mut command = counted.cloud.command(&line);
            command.stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let runs: Vec<_> = (0..4).map(|_| piped()).collect();
        let _ = fs::remove_dir_all(&dir);
        for run in runs {
            let output = run.wait_with_output().unwrap();
            assert!(output.status.success());
            assert_eq!(String::from_utf8(output.stdout).unwrap(), listed);
        }
    }
}

/// Trees and index are kept, and the pack is gone: who judges looks at the bucket.
#[test]
fn what_is_kept_says_nothing_of_what_the_bucket_has() {
    let test = "what_is_kept_says_nothing_of_what_the_bucket_has";
    let Some(counted) = Counted::new(test, "--encryption none") else { return };
    counted.ask("backup src");
    counted.ask("ls latest");
    fs::remove_dir_all(counted.cloud.servers[0].file("host/packs")).unwrap();
    let check = counted.cloud.run(&format!("check --store {}", counted.store));
    assert_ne!(check.code, 0, "{}", check.out);
    let restore = counted.cloud.run(&format!("restore latest --to lost --store {}", counted.store));
    assert_ne!(restore.code, 0, "{}", restore.out);
    // All is stored anew, and what was lost of the snapshot before is said.
    let backup = counted.cloud.run(&format!("backup src --store {}", counted.store));
    assert!(backup.code == 3 && backup.err.contains("is lost"), "{}", backup.err);
    counted.cloud.assert_restored(&counted.store, "out");
}
