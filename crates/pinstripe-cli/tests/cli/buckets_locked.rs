//! Buckets that keep versions, and locked objects: what a thief with the keys of a writer can do.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pinstripe_testing::{KEY_ID, KEY_SECRET, S3Server};

use crate::buckets::{Cloud, between, summary};

/// A signed request by curl: the status, and the body.
fn ask(server: &S3Server, method: &str, target: &str, more: &[&str]) -> (u16, String) {
    let mut command = Command::new("curl");
    command
        .args(["-s", "-m", "20", "-X", method, "-w", "\n%{http_code}"])
        .args(["--aws-sigv4", "aws:amz:us-east-1:s3", "-u", &format!("{KEY_ID}:{KEY_SECRET}")])
        .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(more)
        .arg(format!("http://127.0.0.1:{}{target}", server.port()));
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let (body, status) = output.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

fn done(server: &S3Server, method: &str, target: &str, more: &[&str]) -> String {
    let (status, body) = ask(server, method, target, more);
    assert!((200..300).contains(&status), "{method} {target}: {status} {body}");
    body
}

/// A cloud with a bucket that keeps versions, and locks if that is wanted.
fn versioned(test: &str, bucket: &str, locks: bool) -> Option<Cloud> {
    if Command::new("curl").arg("--version").output().is_err() {
        pinstripe_testing::not_installed(test, "curl");
        return None;
    }
    let cloud = Cloud::new(test, 1)?;
    let header = format!("x-amz-bucket-object-lock-enabled: {locks}");
    done(&cloud.servers[0], "PUT", &format!("/{bucket}"), &["-H", &header]);
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    done(&cloud.servers[0], "PUT", &format!("/{bucket}?versioning="), &["--data", enabled]);
    Some(cloud)
}

/// A second of the clock that nothing before this was in, and nothing after it will be.
fn moment() -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let next = |after: u64| {
        // Nothing but the clock says that its second is over.
        while now() <= after {
            std::thread::sleep(Duration::from_millis(20));
        }
        now()
    };
    let at = next(now());
    next(at);
    at
}

/// The keys and versions of all objects of a bucket.
fn versions(server: &S3Server, bucket: &str) -> Vec<(String, String)> {
    let listed = done(server, "GET", &format!("/{bucket}?versions="), &[]);
    let one = |entry: &str, name: &str| {
        between(entry, &format!("<{name}>"), &format!("</{name}>"))[0].to_owned()
    };
    let entries = between(&listed, "<Version>", "</Version>");
    entries.into_iter().map(|entry| (one(entry, "Key"), one(entry, "VersionId"))).collect()
}

fn delete_all(server: &S3Server, bucket: &str) {
    let listed = done(server, "GET", &format!("/{bucket}?list-type=2"), &[]);
    let keys = between(&listed, "<Key>", "</Key>");
    assert!(keys.len() > 4, "{listed}");
    for key in keys {
        done(server, "DELETE", &format!("/{bucket}/{key}"), &[]);
    }
}

#[test]
#[ignore = "with --all: it takes 8 s"]
fn a_store_is_read_as_it_was_before_a_thief_came() {
    let test = "a_store_is_read_as_it_was_before_a_thief_came";
    let Some(cloud) = versioned(test, "versioned", false) else { return };
    let server = &cloud.servers[0];
    let place = |name: &str| format!("s3+http://127.0.0.1:{}/versioned/{name}", server.port());
    let members = format!("--member {} --member {} --same-fate", place("a"), place("b"));
    cloud.done(&format!("init --key-file key --parity 1 {members}"));
    let store = format!("{} --key-file key", place("a"));
    cloud.done(&format!("backup src --store {store}"));
    let first = moment();
    let before = std::fs::read(cloud.stand.path("src/hello")).unwrap();
    std::fs::write(cloud.stand.path("src/hello"), "hello again\n").unwrap();
    cloud.done(&format!("backup src --store {store}"));
    cloud.done(&format!("forget --keep-last 1 --store {store}"));
    cloud.done(&format!("gc --wait 0 --max-waste 0% --store {store}"));
    let second = moment();
    // A search of what was is answered by a catalog of its own, and leaves the other as it is.
    let line = format!("find hello --store {store} --json");
    let now = summary(&cloud.done(&line));
    let then = summary(&cloud.done(&format!("{line} --at @{first}")));
    assert_eq!((&now["versions"], &then["versions"]), (&1.into(), &1.into()), "{now} {then}");
    let again = cloud.done(&format!("catalog status --store {store} --json"));
    assert_eq!(summary(&again)["gone_snapshots"], 0, "{again}");
    // He writes garbage over one pack of each member, and deletes all there is.
    let listed = done(server, "GET", "/versioned?list-type=2", &[]);
    for pack in between(&listed, "<Key>", "</Key>").iter().filter(|key| key.contains("/packs/")) {
        done(server, "PUT", &format!("/versioned/{pack}"), &["--data", "garbage"]);
    }
    delete_all(server, "versioned");
    assert_ne!(cloud.run(&format!("snapshots --store {store}")).code, 0);
    // As it was before he came, and before gc deleted the first snapshot.
    cloud.assert_restored(&format!("{store} --at @{second}"), "out");
    cloud.done(&format!("check --read-data --store {store} --at @{second}"));
    let listed = cloud.done(&format!("snapshots --store {store} --at @{first} --json"));
    assert_eq!(listed.matches("\"snapshot\":").count(), 1, "{listed}");
    cloud.done(&format!("restore latest --to first --store {store} --at @{first}"));
    let source = cloud.stand.path("src").canonicalize().unwrap();
    let restored = cloud.stand.path("first").join(source.strip_prefix("/").unwrap()).join("hello");
    assert_eq!(std::fs::read(restored).unwrap(), before);
    // Before there was anything, there is nothing; and what writes is refused.
    assert_ne!(cloud.run(&format!("snapshots --store {store} --at @1000")).code, 0);
    let backup = cloud.run(&format!("backup src --store {store} --at @{second}"));
    assert!(backup.code == 2 && backup.err.contains("--at"), "{}", backup.err);
    // None of that changed anything, here or there.
    assert_ne!(cloud.run(&format!("snapshots --store {store}")).code, 0);
    cloud.assert_restored(&format!("{store} --at @{second}"), "out2");
}

#[test]
fn what_is_locked_cannot_be_deleted_for_good() {
    let test = "what_is_locked_cannot_be_deleted_for_good";
    let Some(cloud) = versioned(test, "locked", true) else { return };
    let server = &cloud.servers[0];
    // A bucket without object lock, and a directory.
    let plain = cloud.place(0, "host");
    let refused = cloud.run(&format!("init --encryption none --retain 30d --member {plain}"));
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("has no object lock"), "{}", refused.err);
    cloud.done(&format!("init --encryption none --member {plain}"));
    let refused = cloud.run("init --encryption none --retain 30d --member m0");
    assert!(refused.code == 2 && refused.err.contains("--retain"), "{}", refused.err);
    let short = cloud.run(&format!("init --encryption none --retain 1s --member {plain}"));
    assert_eq!(short.code, 2, "{}", short.err);

    let store = format!("s3+http://127.0.0.1:{}/locked/host", server.port());
    cloud.done(&format!("init --encryption none --retain 2h --member {store}"));
    cloud.done(&format!("backup src --store {store}"));
    let members = cloud.done(&format!("members --store {store} --json"));
    assert!(members.contains("\"retain_seconds\":7200"), "{members}");
    assert!(members.contains("\"object-lock\""), "{members}");
    std::fs::write(cloud.stand.path("src/hello"), "hello again\n").unwrap();
    // Another run, which knows of the lock by the label only.
    cloud.done(&format!("backup src --store {store}"));
    for (key, version) in versions(server, "locked") {
        let is_lasting = ["/packs/", "/snapshots/", "/keys/", "pinstripe.member"];
        let is_lasting = is_lasting.iter().any(|part| key.contains(part));
        if is_lasting {
            let target = format!("/locked/{key}?versionId={version}");
            let (status, body) = ask(server, "DELETE", &target, &[]);
            assert_eq!(status, 403, "{key}: {body}");
            let bypass = ["-H", "x-amz-bypass-governance-retention: true"];
            assert_eq!(ask(server, "DELETE", &target, &bypass).0, 403, "{key}");
        }
    }
    cloud.done(&format!("forget --keep-last 1 --store {store}"));
    let gc = cloud.run(&format!("gc --wait 0 --max-waste 0% --store {store}"));
    assert_eq!(gc.code, 0, "{}", gc.err);
    assert!(gc.out.contains("stay in buckets as old versions"), "{}{}", gc.out, gc.err);
    let gc = summary(&cloud.done(&format!("gc --wait 0 --store {store} --json")));
    assert!(gc["request_hidden"].as_u64().unwrap() > 0, "{gc}");
    assert_eq!(gc["extended_objects"], 0, "half of the time has not passed");
    cloud.done(&format!("check --read-data --store {store}"));
    // All is hidden, and none of it is gone.
    let at = moment();
    delete_all(server, "locked");
    assert_ne!(cloud.run(&format!("snapshots --store {store}")).code, 0);
    cloud.assert_restored(&format!("{store} --at @{at}"), "out");
}
