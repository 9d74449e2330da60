//! A served array while its members fail, go and come.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::serving::{Loop, Served, good, has, nbd, run, with_pool};
use crate::stand::{Stand, assert_ends, noise, skipped};

/// Copies the array out, which begins with what `image` holds. Returns how long it is.
fn copied(stand: &Stand) -> usize {
    let back = stand.path("back");
    let _ = fs::remove_file(&back);
    run("nbdcopy", &[&nbd(stand), back.to_str().unwrap()]);
    let (back, image) = (fs::read(&back).unwrap(), fs::read(stand.path("image")).unwrap());
    assert!(back[..image.len()] == image, "what was read is not what was written");
    back.len()
}

/// A pool that is served, and has an image as its first bytes; none, and the test is told to be
/// skipped, without a client.
fn served_image(test: &str, image: Vec<u8>) -> Option<(Stand, Served)> {
    if !has("nbdcopy") {
        pinstripe_testing::not_installed(test, "nbdcopy");
        return None;
    }
    let stand = with_pool(24 << 20);
    let path = stand.path("image");
    fs::write(&path, image).unwrap();
    let served = Served::by_nbd(&stand);
    run("nbdcopy", &["--flush", path.to_str().unwrap(), &nbd(&stand)]);
    Some((stand, served))
}

#[test]
fn clients_keep_their_bytes_while_members_come_and_go() {
    const TEST: &str = "clients_keep_their_bytes_while_members_come_and_go";
    let Some((stand, served)) = served_image(TEST, noise(7, 20 << 20)) else { return };
    copied(&stand);
    assert!(good(&stand, "array status").contains("pool : active raid5"));
    good(&stand, "array manage pool --fail b");
    assert!(good(&stand, "array status").contains("[U_U]"));
    copied(&stand);
    good(&stand, "array manage pool --remove b --add d");
    assert!(good(&stand, "array status pool").contains("[3/3] [UUU]"));
    copied(&stand);
    // b is old now: with it in the place of a, nothing may be wrong.
    good(&stand, "array manage pool --fail a --remove a --add b");
    good(&stand, "array wait pool");
    copied(&stand);
    good(&stand, "array scrub pool");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    assert!(good(&stand, "array detail pool").contains("State : clean\n"));
    good(&stand, "array assemble pool");
    let served = Served::by_nbd(&stand);
    copied(&stand);
    served.signal(Signal::TERM);
    assert_eq!(served.ended(), 0);
}

#[test]
fn wait_and_stop_end_beside_a_rebuild_that_no_process_serves() {
    const TEST: &str = "wait_and_stop_end_beside_a_rebuild";
    let Some((stand, served)) = served_image(TEST, noise(8, 20 << 20)) else { return };
    good(&stand, "array manage pool --fail b");
    // So slowly that the kill comes first.
    good(&stand, "array set pool sync_speed_max=1M");
    good(&stand, "array manage pool --add d --no-wait");
    let waiting =
        stand.command("array wait pool").stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let waiting = waiting.unwrap();
    served.signal(Signal::KILL);
    served.ended();
    let waited = waiting.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&waited.stderr);
    // It may have begun before the kill or after it.
    match waited.status.code() {
        Some(1) => assert!(told.contains("the process that serves the array has ended"), "{told}"),
        code => assert_eq!(code, Some(18), "{told}"),
    }
    let pending =
        "the work 'recover' on the array is not finished, but no process serves the array";
    for _ in 0..2 {
        assert_ends(&stand.run("array wait pool"), 18, pending);
        let stopped = good(&stand, "array stop pool");
        assert!(
            stopped.contains("the array is not served, so there is nothing to stop"),
            "{stopped}"
        );
    }
    assert_eq!(stand.run("array stop pool --force --json").summary()["was_served"], false);
    good(&stand, "array stop --scan");
    assert!(good(&stand, "array status").contains("[U_U]"), "nothing was finished meanwhile");
    good(&stand, "array set pool sync_speed_max=max");
    let served = Served::by_nbd(&stand);
    good(&stand, "array wait pool");
    assert!(good(&stand, "array status").contains("[UUU]"));
    copied(&stand);
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    assert!(good(&stand, "array wait pool").contains("the array is not served"));
}

/// The process that serves the array is stopped, so it accepts connections and does not answer.
#[test]
fn verbs_end_beside_a_process_that_does_not_answer() {
    let stand = with_pool(24 << 20);
    let served = Served::by_nbd(&stand);
    served.signal(Signal::STOP);
    for verb in ["wait", "detail"] {
        let ran = stand.run(&format!("array {verb} pool --member-timeout 250ms"));
        assert_ends(&ran, 1, "the process that serves the array did not answer in time");
    }
    served.signal(Signal::CONT);
    good(&stand, "array wait pool");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
}

#[test]
fn an_array_grows_under_its_clients_and_after_a_kill() {
    const TEST: &str = "an_array_grows_under_its_clients_and_after_a_kill";
    let Some((stand, served)) = served_image(TEST, noise(3, 30 << 20)) else { return };
    let before = copied(&stand);
    // So slowly that it can be seen.
    good(&stand, "array set pool sync_speed_max=2M");
    for (line, code) in [
        ("array grow pool", 14),
        ("array grow pool --raid-devices 5 --add d", 2),
        ("array grow pool --add b", 1),
        ("array grow other --add d", 11),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
    }
    let grown = good(&stand, "array grow pool -n 4 --add d --no-wait");
    assert!(grown.contains("from 3 to 4 members") && grown.contains("reshape = "), "{grown}");
    assert_eq!(stand.run("array scrub pool").code, 18, "it grows");
    assert!(good(&stand, "array detail pool").contains(", reshaping\n"));
    assert_eq!(copied(&stand), before);
    served.signal(Signal::KILL);
    served.ended();
    assert!(good(&stand, "array status").contains("reshape = "));
    good(&stand, "array assemble pool");
    good(&stand, "array set pool sync_speed_max=max");
    let served = Served::by_nbd(&stand);
    good(&stand, "array wait pool");
    assert_eq!(copied(&stand), before / 2 * 3);
    let detail = good(&stand, "array detail pool");
    assert!(detail.contains("Raid Devices : 4\n"), "{detail}");
    assert!(good(&stand, "array status").contains("[4/4] [UUUU]"));
    good(&stand, "array manage pool --fail a");
    copied(&stand);
    good(&stand, "array manage pool --remove a --add a");
    good(&stand, "array wait pool");
    good(&stand, "array scrub pool");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
}

#[test]
fn an_array_changes_its_level_and_comes_to_use_larger_members_under_its_clients() {
    const TEST: &str =
        "an_array_changes_its_level_and_comes_to_use_larger_members_under_its_clients";
    let Some((stand, served)) = served_image(TEST, noise(3, 30 << 20)) else { return };
    let before = copied(&stand);
    for (line, code) in [
        ("array grow pool --level 0", 13),
        ("array grow pool --level 5", 2),
        ("array grow pool --level 7", 2),
        ("array grow pool --level 6", 14),
        ("array grow pool --level 6 --raid-devices 4", 2),
        ("array grow pool --level 6 --size max", 2),
        ("array grow pool --size 1G", 2),
        ("array grow pool --size max", 14),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
    }
    let said = good(&stand, "array grow pool --level 6 --add e --size 24M");
    assert!(said.contains("the level of the array changed to raid6; it was raid5"), "{said}");
    let detail = good(&stand, "array detail pool");
    assert!(detail.contains("Raid Level : raid6\n") && detail.contains("left-symmetric-6"));
    good(&stand, "array manage pool --fail a --fail b");
    assert_eq!(copied(&stand), before);
    for (old, new) in [("a", "f"), ("b", "g")] {
        good(&stand, &format!("array manage pool --remove {old} --add {new} --size 40M"));
        good(&stand, "array wait pool");
    }
    good(&stand, "array grow pool --level 5");
    assert!(good(&stand, "array detail pool").contains("Raid Level : raid5\n"));
    assert_eq!(stand.run("array grow pool --size max").code, 14, "c is small");
    // The spare is small, too.
    good(&stand, "array manage pool --remove e --replace c --with h --size 40M");
    good(&stand, "array wait pool");
    let said = good(&stand, "array grow pool --size max");
    assert!(said.contains("; it was "), "{said}");
    assert!(copied(&stand) > before * 3 / 2);
    good(&stand, "array scrub pool");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    good(&stand, "array assemble pool");
    good(&stand, "array scrub pool");
}

#[test]
fn what_happens_is_told_as_it_happens() {
    let stand = with_pool(16 << 20);
    let served = Served::by_nbd(&stand);
    let mut command = stand.command("array events pool --json");
    let mut listener = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    let mut event = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(event()["event"], "listening");
    good(&stand, "array manage pool --fail b");
    let failed = event();
    assert_eq!((&failed["what"], &failed["slot"]), (&"Fail".into(), &1.into()));
    assert!(failed["device"].as_str().unwrap().ends_with("/b"), "{failed}");
    assert_eq!(event()["what"], "DegradedArray");
    good(&stand, "array manage pool --add d");
    let back = std::iter::from_fn(|| Some(event())).find(|it| it["what"] == "SpareActive");
    assert_eq!(back.unwrap()["slot"], 1);
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    assert_eq!(listener.wait().unwrap().code(), Some(0));
}

#[test]
fn an_array_that_nobody_serves_is_worked_on_here() {
    let stand = with_pool(16 << 20);
    let shown = |line: &str| good(&stand, line);
    assert!(shown("array manage pool --fail b").contains("[U_U]"));
    let added = shown("array manage pool --remove b --add d");
    assert!(added.contains("[UUU]") && added.contains("/d[1]"), "{added}");
    shown("array scrub pool");
    shown("array manage pool --replace {}/d --with b --force");
    let replaced = shown("array status");
    assert!(replaced.contains("/b[1]") && replaced.contains("[UUU]"), "{replaced}");
}

/// A device of one array was given to another one: the first one goes on without it.
#[test]
fn a_device_that_went_to_another_array_is_left_out() {
    let stand = with_pool(16 << 20);
    good(&stand, "array create other -l 1 -n 2 --size 16M --quiet e f");
    good(&stand, "array manage other --fail e --remove e --add b --force");
    let shown = stand.run("array manage pool --add e --force");
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(
        shown.err.contains("this device now belongs to another array: 'other'"),
        "{}",
        shown.err
    );
    assert!(shown.out.contains("[UUU]") && shown.out.contains("/e[1]"), "{}", shown.out);
    good(&stand, "array scrub pool");
    good(&stand, "array scrub other");
}

#[test]
fn a_scrub_names_the_member_that_lies_and_mends_it() {
    const TEST: &str = "a_scrub_names_the_member_that_lies_and_mends_it";
    if !has("nbdcopy") {
        return pinstripe_testing::not_installed(TEST, "nbdcopy");
    }
    let stand = with_pool(16 << 20);
    let image = noise(1, 4 << 20);
    fs::write(stand.path("image"), &image).unwrap();
    let served = Served::by_nbd(&stand);
    run("nbdcopy", &["--flush", stand.path("image").to_str().unwrap(), &nbd(&stand)]);
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    // A block of the image on b is changed behind the array's back.
    let mut member = fs::read(stand.path("b")).unwrap();
    let places = image.chunks(4096).filter_map(|block| {
        member.chunks(4096).position(|it| it == block).map(|block| block * 4096)
    });
    let place = places.max().expect("b has a block of the image");
    member[place + 100] ^= 1;
    fs::write(stand.path("b"), &member).unwrap();
    let found = stand.run("array scrub pool --json");
    assert_eq!(found.code, 10, "{}", found.err);
    let mismatches = found.events_of("mismatch");
    assert_eq!(mismatches.len(), 1, "{}", found.out);
    assert_eq!((&mismatches[0]["slot"], &mismatches[0]["is_mended"]), (&1.into(), &false.into()));
    assert!(mismatches[0]["device"].as_str().unwrap().ends_with("/b"), "{}", found.out);
    assert_eq!(stand.run("array scrub pool --json").events_of("mismatch").len(), 1);
    let mended = good(&stand, "array scrub pool --repair");
    assert!(mended.contains("/b (slot 1) at byte") && mended.contains(", repaired"), "{mended}");
    assert_eq!(good(&stand, "array scrub pool --json").matches("mismatch\"").count(), 0);
    member[place + 100] ^= 1;
    let now = fs::read(stand.path("b")).unwrap();
    assert!(now[place..place + 4096] == member[place..place + 4096]);
}

#[test]
fn a_member_that_fails_is_left_out_and_nothing_is_lost() {
    const TEST: &str = "a_member_that_fails_is_left_out_and_nothing_is_lost";
    if !has("nbdcopy") {
        return pinstripe_testing::not_installed(TEST, "nbdcopy");
    }
    for fault in ["op=write,member=1,after=40,error=EIO", "op=sync,member=1,after=5,error=EIO"] {
        let stand = with_pool(16 << 20);
        let image = stand.path("image");
        fs::write(&image, noise(2, 8 << 20)).unwrap();
        let served = Served::start(&stand, &format!("--nbd unix:{{}}/nbd --fault {fault}"));
        run("nbdcopy", &["--flush", image.to_str().unwrap(), &nbd(&stand)]);
        assert!(good(&stand, "array status").contains("[U_U]"), "{fault}");
        served.signal(Signal::KILL);
        served.ended();
        good(&stand, "array assemble pool");
        let served = Served::by_nbd(&stand);
        let back = stand.path("back");
        run("nbdcopy", &[&nbd(&stand), back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap()[..8 << 20] == fs::read(&image).unwrap(), "{fault}");
        // The disk is mended: it gets what it lacks.
        good(&stand, "array manage pool --re-add b");
        assert!(good(&stand, "array status").contains("[UUU]"));
        good(&stand, "array scrub pool");
        good(&stand, "array stop pool");
        assert_eq!(served.ended(), 0);
    }
}

#[test]
fn without_a_log_parity_is_made_true_after_a_kill() {
    const TEST: &str = "without_a_log_parity_is_made_true_after_a_kill";
    if !has("nbdcopy") {
        return pinstripe_testing::not_installed(TEST, "nbdcopy");
    }
    for policy in ["bitmap", "none"] {
        let stand = crate::stand::Stand::in_memory();
        let create = "array create pool -l 5 -n 3 -c 64 --size 16M a b c --quiet -k";
        good(&stand, &format!("{create} {policy}"));
        let image = stand.path("image");
        fs::write(&image, noise(2, 8 << 20)).unwrap();
        let served = Served::by_nbd(&stand);
        run("nbdcopy", &["--flush", image.to_str().unwrap(), &nbd(&stand)]);
        served.signal(Signal::KILL);
        served.ended();
        let shown = good(&stand, "array detail pool");
        assert!(shown.contains("not closed properly"), "{shown}");
        // A member less, and it is unknown whether parity matches its data.
        fs::rename(stand.path("c"), stand.path("away")).unwrap();
        assert_eq!(stand.run("array assemble pool").code, 14, "{policy}");
        fs::rename(stand.path("away"), stand.path("c")).unwrap();
        good(&stand, "array assemble pool");
        let served = Served::by_nbd(&stand);
        good(&stand, "array wait pool");
        good(&stand, "array scrub pool");
        let back = stand.path("back");
        run("nbdcopy", &[&nbd(&stand), back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap()[..8 << 20] == fs::read(&image).unwrap(), "{policy}");
        good(&stand, "array stop pool");
        assert_eq!(served.ended(), 0);
        assert!(good(&stand, "array detail pool").contains("State : clean\n"), "{policy}");
    }
}

#[test]
fn a_spare_takes_the_slot_that_is_missing() {
    let stand = crate::stand::Stand::in_memory();
    let create = "array create pool -l 6 -n 4 -x 1 --size 16M -c 64 a b missing d spare --quiet";
    assert_eq!(stand.run(create).code, 0);
    assert!(good(&stand, "array status").contains("[4/3] [UU_U]"));
    let shown = good(&stand, "array detail pool");
    assert!(shown.contains("Spare Devices : 1") && shown.contains("/spare"), "{shown}");
    let served = Served::by_nbd(&stand);
    good(&stand, "array wait pool");
    // It may have been over before the first look, or not have begun.
    for _ in 0..600 {
        if good(&stand, "array status").contains("[4/4] [UUUU]") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let shown = good(&stand, "array status");
    assert!(shown.contains("[4/4] [UUUU]") && shown.contains("/spare[2]"), "{shown}");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    for (line, code) in [
        ("array create new -l 5 -n 3 --size 16M e missing missing", 2),
        ("array create new -l 5 -n 2 -x 1 --size 16M e f missing", 2),
    ] {
        assert_eq!(stand.run(line).code, code, "{line}");
    }
}

/// A file system on a file of an array that is shown by FUSE: used, by dbench too, while members
/// fail and are replaced, and sound.
fn file_system_on_the_file(test: &str, make: &[&str], check: &[&str], member_bytes: u64) {
    let can_mount = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    if !can_mount || fs::File::options().write(true).open("/dev/fuse").is_err() {
        return skipped(test, "root, /dev/fuse and loop devices are needed");
    }
    if !has(make[0]) || !has(check[0]) || !has("dbench") {
        return pinstripe_testing::not_installed(test, "dbench or a program of the file system");
    }
    let stand = with_pool(member_bytes);
    let (fuse, mount) = (stand.path("fuse"), stand.path("mount"));
    fs::create_dir(&fuse).unwrap();
    fs::create_dir(&mount).unwrap();
    let served = Served::start(&stand, "--fuse fuse");
    let Some(disk) = Loop::of(&fuse.join("pool")) else {
        return skipped(test, "no loop device can be had");
    };
    run(make[0], &[&make[1..], &[&disk.0]].concat());
    run("mount", &[&disk.0, mount.to_str().unwrap()]);
    let mounted = Mounted(mount.clone());
    let mut load = Command::new("dbench");
    load.args(["-t", "4", "-D"]).arg(&mount).arg("1").stdout(Stdio::null());
    let mut load = load.spawn().unwrap();
    for round in 0..6 {
        let act = [
            "array status",
            "array manage pool --fail b",
            "array manage pool --remove b --add d",
            "array manage pool --fail c",
            "array manage pool --remove c --add b",
            "array scrub pool",
        ][round];
        let directory = mount.join(format!("{round}"));
        fs::create_dir(&directory).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for file in 0..20 {
                    let bytes = noise(file, 1 + 40_000 * file as usize);
                    fs::write(directory.join(file.to_string()), bytes).unwrap();
                }
                run("sync", &["-f", directory.to_str().unwrap()]);
            });
            good(&stand, act);
        });
    }
    assert!(load.wait().unwrap().success(), "dbench");
    drop(mounted);
    run(check[0], &[&check[1..], &[&disk.0]].concat());
    run("mount", &[&disk.0, mount.to_str().unwrap()]);
    let mounted = Mounted(mount.clone());
    for round in 0..6 {
        for file in 0..20 {
            let read = fs::read(mount.join(format!("{round}/{file}"))).unwrap();
            assert!(read == noise(file, 1 + 40_000 * file as usize), "{round}/{file}");
        }
    }
    drop(mounted);
    drop(disk);
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
}

#[test]
#[ignore = "with --all: it makes a file system on a loop device"]
fn ext4_is_sound_on_a_file_of_an_array() {
    let test = "ext4_is_sound_on_a_file_of_an_array";
    file_system_on_the_file(test, &["mkfs.ext4", "-q"], &["fsck.ext4", "-f", "-n"], 64 << 20);
}

#[test]
#[ignore = "with --all: it makes a file system on a loop device"]
fn xfs_is_sound_on_a_file_of_an_array() {
    let test = "xfs_is_sound_on_a_file_of_an_array";
    file_system_on_the_file(test, &["mkfs.xfs", "-q"], &["xfs_repair", "-n"], 190 << 20);
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn fio_finds_every_byte_while_members_are_replaced() {
    const TEST: &str = "fio_finds_every_byte_while_members_are_replaced";
    let engines = Command::new("fio").arg("--enghelp").output();
    if !engines.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("nbd")) {
        return skipped(TEST, "fio is missing, or has no nbd engine");
    }
    let stand = with_pool(24 << 20);
    let served = Served::by_nbd(&stand);
    let mut fio = Command::new("fio");
    fio.current_dir(stand.path("")).args([
        "--name=verify",
        "--ioengine=nbd",
        &format!("--uri={}", nbd(&stand)),
        "--rw=randrw",
        "--bsrange=4k-128k",
        "--size=16m",
        "--io_size=96m",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_backlog=64",
        "--verify_fatal=1",
        "--randseed=5",
        "--output=fio.out",
    ]);
    let mut fio = fio.spawn().unwrap();
    for line in [
        "array manage pool --fail b",
        "array manage pool --remove b --add d",
        "array manage pool --replace a --with b --force",
        "array scrub pool",
    ] {
        good(&stand, line);
    }
    let ended = fio.wait().unwrap();
    let said = fs::read_to_string(stand.path("fio.out")).unwrap_or_default();
    assert!(ended.success(), "{said}");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
}
