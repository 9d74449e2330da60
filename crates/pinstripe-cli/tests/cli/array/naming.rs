//! Which device is meant, and when work is done: acts that come while a device is on its way into a
//! slot.

use std::fs;
use std::process::Stdio;

use super::serving::{Served, good, has, nbd, run};
use crate::stand::{Stand, noise};

/// An array that is full of data, and served; work on it is slow.
fn slow(test: &str, members: &str, options: &str) -> Option<(Stand, Served)> {
    if !has("nbdcopy") {
        pinstripe_testing::not_installed(test, "nbdcopy");
        return None;
    }
    let stand = Stand::in_memory();
    let create = "array create pool -c 64 --log-size 4M --size 16M --quiet";
    good(&stand, &format!("{create} {members}"));
    fs::write(stand.path("image"), noise(1, 8 << 20)).unwrap();
    let served = Served::start(&stand, &format!("--nbd unix:{{}}/nbd {options}"));
    run("nbdcopy", &["--flush", stand.path("image").to_str().unwrap(), &nbd(&stand)]);
    good(&stand, "array set pool sync_speed_max=1M");
    Some((stand, served))
}

/// The image is what is read.
fn check(stand: &Stand) {
    run("nbdcopy", &[&nbd(stand), stand.path("out").to_str().unwrap()]);
    let (out, image) =
        (fs::read(stand.path("out")).unwrap(), fs::read(stand.path("image")).unwrap());
    assert!(out[..image.len()] == image);
}

#[test]
fn the_device_that_a_replace_fills_is_shown_and_can_be_failed() {
    const TEST: &str = "the_device_that_a_replace_fills_is_shown_and_can_be_failed";
    for members in ["-l 0 -n 2 a b", "-l 5 -n 3 a b c"] {
        let Some((stand, served)) = slow(TEST, members, "") else { return };
        good(&stand, "array manage pool --replace a --with e --size 16M --no-wait");
        assert!(good(&stand, "array status pool").contains("/e[0](R)"));
        assert!(good(&stand, "array detail pool").contains("spare rebuilding"));
        assert!(good(&stand, "array detail pool --json").contains("\"replacement\":\"/"));
        let removed = stand.run("array manage pool --remove e");
        assert!(
            removed.code == 14 && removed.err.contains("mark the device as failed (--fail)"),
            "{}",
            removed.err
        );
        let again = stand.run("array manage pool --add e");
        assert!(again.err.contains("is already a replacement of this array"), "{}", again.err);
        let said = good(&stand, "array manage pool --fail e --no-wait");
        assert!(said.contains("is cancelled"), "{said}");
        let status = good(&stand, "array status pool");
        assert!(status.contains("/a[0]") && !status.contains("recovery"), "{status}");
        good(&stand, "array manage pool --remove e");
        check(&stand);
        good(&stand, "array stop pool");
        assert_eq!(served.ended(), 0);
        let served = Served::by_nbd(&stand);
        assert!(!good(&stand, "array status pool").contains('_'));
        check(&stand);
        good(&stand, "array stop pool");
        served.ended();
    }
}

#[test]
fn a_member_that_was_replaced_is_not_in_use_and_failing_it_hits_no_other_one() {
    const TEST: &str = "a_member_that_was_replaced_is_not_in_use";
    let Some((stand, served)) = slow(TEST, "-l 1 -n 2 a b", "") else { return };
    good(&stand, "array set pool sync_speed_max=max");
    good(&stand, "array manage pool --replace a --with e --size 16M");
    let said = good(&stand, "array manage pool --fail a");
    assert!(said.contains("is not in use") && said.contains("[UU]"), "{said}");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
}

/// With disks that flush slowly, a spare takes its time until it is in a slot.
#[test]
fn a_spare_that_has_not_begun_is_waited_for() {
    const TEST: &str = "a_spare_that_has_not_begun_is_waited_for";
    let members = "-l 6 -n 4 -x 2 a b c d e f";
    let Some((stand, served)) = slow(TEST, members, "--fault op=sync,delay=20ms") else { return };
    good(&stand, "array set pool sync_speed_max=max");
    good(&stand, "array manage pool --fail a --fail b");
    good(&stand, "array detail --test pool");
    good(&stand, "array manage pool --remove a --remove b --add a --add b");
    good(&stand, "array manage pool --fail e --remove e --no-wait");
    good(&stand, "array wait pool");
    good(&stand, "array detail --test pool");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    // The array is not served: the verb fills the spare before it ends.
    good(&stand, "array manage pool --fail c --fault op=sync,delay=20ms");
    good(&stand, "array detail --test pool");
}

#[test]
fn a_scrub_that_somebody_else_cancels_ends_with_an_error() {
    const TEST: &str = "a_scrub_that_somebody_else_cancels_ends_with_an_error";
    let Some((stand, served)) = slow(TEST, "-l 5 -n 3 a b c", "") else { return };
    for line in ["array scrub pool", "array scrub pool --repair --json"] {
        let mut scrub = stand.command(line);
        let scrub = scrub.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = (0..1000).any(|_| {
            let status = good(&stand, "array status pool");
            status.contains("check =") || status.contains("repair =")
        });
        assert!(begun, "the scrub never begins");
        good(&stand, "array set pool sync_action=idle");
        let cancelled = scrub.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&cancelled.stderr).into_owned();
        assert_eq!(cancelled.status.code(), Some(1), "{said}");
        assert!(said.contains("was cancelled when"), "{said}");
    }
    // Beside a rebuild it is kept, also over a stop.
    good(&stand, "array manage pool --fail b --remove b --add e --size 16M --no-wait");
    good(&stand, "array scrub pool --no-wait");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    let served = Served::by_nbd(&stand);
    good(&stand, "array set pool sync_speed_max=max");
    good(&stand, "array wait pool");
    let detail = good(&stand, "array detail pool --json");
    assert!(detail.contains("\"kind\":\"check\""), "{detail}");
    good(&stand, "array stop pool");
    served.ended();
}
