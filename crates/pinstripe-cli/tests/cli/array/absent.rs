//! Devices at registered paths that are no members, fail or do not answer; and arrays of one name.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::serving::{Served, good, with_pool};
use crate::stand::Stand;

const MEMBER_BYTES: u64 = 16 << 20;
/// Far above what a served array needs for its end, and far below a hang.
const SOON: Duration = Duration::from_secs(60);

/// Puts a file of this content and length in the place of member `b`.
fn put(stand: &Stand, content: &[u8], bytes: u64) {
    fs::remove_file(stand.path("b")).unwrap();
    fs::write(stand.path("b"), content).unwrap();
    fs::File::options().write(true).open(stand.path("b")).unwrap().set_len(bytes).unwrap();
}

/// Serves the array without `b`, and checks that `b` is named.
fn is_served_without_b(stand: &Stand, options: &str, why: &str) {
    let shown = stand.run(&format!("array assemble pool {options}"));
    assert!(
        shown.err.contains("/b: this device counts as absent: ") && shown.err.contains(why),
        "{why}: {}",
        shown.err
    );
    let served = Served::start(stand, &format!("--nbd unix:{{}}/nbd {options}"));
    assert!(good(stand, "array status").contains("[U_U]"), "{why}");
    good(stand, "array stop pool");
    assert_eq!(served.ended(), 0, "{why}");
}

#[test]
fn a_device_that_is_no_member_counts_as_absent_and_can_be_added() {
    for (content, bytes, force, why) in [
        (&b""[..], MEMBER_BYTES, "", "not a member"),
        (b"XFSB", MEMBER_BYTES, "--force", "not a member"),
        (b"", 0, "", "ends before this range"),
    ] {
        let stand = with_pool(MEMBER_BYTES);
        put(&stand, content, bytes);
        is_served_without_b(&stand, "", why);
        if bytes == 0 {
            put(&stand, content, MEMBER_BYTES);
        }
        good(&stand, &format!("array manage pool --add b {force}"));
        assert!(good(&stand, "array status").contains("[UUU]"), "{why}");
        good(&stand, "array scrub pool");
    }
}

#[test]
fn a_device_that_is_cut_short_dead_or_a_directory_counts_as_absent() {
    let stand = with_pool(MEMBER_BYTES);
    is_served_without_b(&stand, "--fault op=read,member=1,error=EIO", "Input/output error");
    let stand = with_pool(MEMBER_BYTES);
    fs::File::options().write(true).open(stand.path("b")).unwrap().set_len(8 << 20).unwrap();
    assert!(good(&stand, "array status").contains("[U_U]"));
    is_served_without_b(&stand, "", "shorter");
    let stand = with_pool(MEMBER_BYTES);
    fs::remove_file(stand.path("b")).unwrap();
    fs::create_dir(stand.path("b")).unwrap();
    is_served_without_b(&stand, "", "is a directory");
    let stand = with_pool(MEMBER_BYTES);
    fs::remove_file(stand.path("b")).unwrap();
    symlink("c", stand.path("b")).unwrap();
    let served = Served::by_nbd(&stand);
    assert!(good(&stand, "array status").contains("[U_U]"), "one device by two paths");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
}

/// A device that carries nothing of the array is not left out where it was named for it.
#[test]
fn a_device_that_is_named_has_to_be_a_member() {
    let stand = with_pool(MEMBER_BYTES);
    put(&stand, b"", MEMBER_BYTES);
    assert_eq!(stand.run("array assemble pool a b c").code, 1);
    assert_eq!(stand.run("array assemble pool a b c --force").code, 0);
}

#[test]
fn a_member_that_does_not_answer_is_waited_for_until_its_deadline() {
    for operation in ["read", "len", "write", "sync"] {
        let stand = with_pool(MEMBER_BYTES);
        let began = Instant::now();
        let hang = format!("--nbd unix:{{}}/nbd --fault op={operation},member=1,hang=yes");
        let served = Served::start(&stand, &format!("{hang} --member-timeout 300ms"));
        // A member is written to before anybody can connect.
        assert!(good(&stand, "array status").contains("[U_U]"), "{operation}");
        served.signal(Signal::TERM);
        assert_eq!(served.ended(), 0, "{operation}");
        assert!(began.elapsed() < SOON, "{operation}");
        good(&stand, "array manage pool --add b");
        good(&stand, "array scrub pool");
    }
}

/// The deadline is an hour away: `manage --fail` fails the member before it.
#[test]
fn a_member_that_does_not_answer_can_be_failed_and_the_array_stopped() {
    let stand = with_pool(MEMBER_BYTES);
    let began = Instant::now();
    let hang = "--nbd unix:{}/nbd --fault op=sync,member=1,after=20,hang=yes";
    let served = Served::start(&stand, &format!("{hang} --member-timeout 1h"));
    // Each change of the superblock takes a sync, until one hangs.
    let change = || {
        let line = "array set pool stripe_size=8192 --quiet";
        let mut child = stand.command(line).stdout(Stdio::null()).spawn().unwrap();
        for _ in 0..40 {
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(child)
    };
    let mut hung = (0..40).find_map(|_| change()).expect("one hangs");
    good(&stand, "array manage pool --fail b --no-wait");
    assert!(hung.wait().unwrap().success());
    let detail = good(&stand, "array detail pool");
    assert!(detail.contains("does not answer"), "{detail}");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    assert!(began.elapsed() < SOON);
}

#[test]
fn why_a_member_failed_is_told() {
    let stand = with_pool(MEMBER_BYTES);
    let full = "--nbd unix:{}/nbd --fault op=write,member=1,after=8,error=ENOSPC";
    let mut served = Served::start(&stand, full);
    (0..8).for_each(|_| drop(good(&stand, "array set pool stripe_size=8192")));
    let detail = good(&stand, "array detail pool");
    assert!(detail.contains("failed: slot 1, ") && detail.contains("No space left"), "{detail}");
    let json = good(&stand, "array detail pool --json");
    assert!(json.contains("\"reason\":\"simulated fault: No space left"), "{json}");
    good(&stand, "array stop pool");
    // An event of the server, which reports it on standard error without --json.
    served.until("problem");
    assert_eq!(served.ended(), 0);
}

#[test]
fn a_new_device_that_fails_is_named_with_the_reason() {
    for act in ["manage pool --replace a --with d", "grow pool --add d"] {
        let stand = with_pool(MEMBER_BYTES);
        let fault = "--fault op=write,member=3,after=5,error=ENOSPC";
        let ran = stand.run(&format!("array {act} {fault}"));
        assert_eq!(ran.code, 1, "{act}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains("No space left") && ran.err.contains("/d"), "{act}: {}", ran.err);
    }
}

#[test]
fn two_arrays_of_one_name_are_told_apart() {
    let stand = Stand::in_memory();
    for (one, other) in [("a", "b"), ("e", "f")] {
        good(&stand, &format!("array create pool -l 1 -n 2 --size 16M {one} {other} --quiet"));
        good(&stand, "array forget pool --quiet");
    }
    let all = "array assemble --scan --device a --device b --device e --device f";
    let scanned = stand.run(all);
    assert_ne!(scanned.code, 0);
    assert!(
        scanned.err.contains("another array is registered with the name 'pool'"),
        "{}",
        scanned.err
    );
    assert!(good(&stand, "array status").contains("/a"));
    for line in ["array assemble pool e f", "array assemble pool e f --force"] {
        let refused = stand.run(line);
        assert_eq!(refused.code, 1, "{line}: {}", refused.err);
        assert!(refused.err.contains("array forget pool"), "{}", refused.err);
        assert!(good(&stand, "array status").contains("/a"), "{line}");
    }
    good(&stand, "array assemble other e f");
    let both = good(&stand, "array status");
    assert!(both.contains("/a") && both.contains("/e"), "{both}");
}
