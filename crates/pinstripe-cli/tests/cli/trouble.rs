//! Trouble that other backup programs had reports of: zones, files that change, lists of access,
//! long lists of paths, mounts in the sources, disks without a number.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use pinstripe_testing::{in_own_mounts, is_root, mount, unmount};
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::fakevmcore::obstacle;
use crate::mount::Mounted;
use crate::stand::{Ran, Stand, assert_ends, noise, set_home, skipped};

const ACL: &str = "system.posix_acl_access";

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn a_time_zone_may_be_a_name_and_an_unknown_one_is_reported() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src -q").code, 0);
    let minutes = |zone: &str| {
        let output = stand.command("snapshots").env("TZ", zone).output().unwrap();
        let text = text(&output);
        let time = text.split_whitespace().find(|word| word.matches(':').count() == 2).unwrap();
        let mut parts = time.split(':').map(|part| part.parse::<i32>().unwrap());
        (parts.next().unwrap() * 60 + parts.next().unwrap(), text)
    };
    let (utc, _) = minutes("UTC");
    let (kolkata, told) = minutes("Asia/Kolkata");
    assert_eq!((kolkata - utc).rem_euclid(24 * 60), 5 * 60 + 30);
    assert!(!told.contains("TZ"), "{told}");
    let (unknown, told) = minutes("Mars/Base");
    assert_eq!(unknown, utc);
    assert!(told.contains("Mars/Base: the time zone in the variable TZ is unknown"), "{told}");
}

/// Runs `write` again and again beside backups, until one of them was disturbed.
fn disturbed(stand: &Stand, mut write: impl FnMut() + Send) -> Ran {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                write();
            }
        });
        let backup = || stand.run("backup src --json");
        let is_disturbed = |ran: &Ran| ran.summary()["changed_while_read"] == 1;
        let ran = (0..100).map(|_| backup()).find(|ran| ran.code != 0 || is_disturbed(ran));
        stop.store(true, Ordering::Relaxed);
        ran.expect("a hundred backups were not disturbed")
    })
}

#[test]
fn a_file_that_changes_while_it_is_read_is_no_loss() {
    let stand = Stand::with_store();
    let path = stand.path("src/log");
    fs::write(&path, noise(2, 3_000_000)).unwrap();
    let mut log = File::options().append(true).open(&path).unwrap();
    let ran = disturbed(&stand, || {
        log.write_all(&noise(3, 20_000)).unwrap();
        log.set_len(log.metadata().unwrap().len() % 30_000_000 + 3_000_000).unwrap();
    });
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.summary()["losses"], 0);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(3_000_000).unwrap();
    let ran = disturbed(&stand, || {
        file.write_all_at(b"x", 1_000_000).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    });
    assert_ends(&ran, 0, "changed while it was being read");
    assert!(!stand.run("snapshots").out.contains("losses"));
}

#[test]
fn what_cannot_be_read_is_not_counted_as_saved() {
    let stand = Stand::new();
    fs::create_dir_all(stand.path("home/s")).unwrap();
    for (name, content) in [("a", "11"), ("b", "222")] {
        fs::write(stand.path("home/s").join(name), content).unwrap();
    }
    fs::set_permissions(stand.path("home/s/b"), fs::Permissions::from_mode(0o0)).unwrap();
    let mut command = stand.command("backup home/s --json");
    if is_root() {
        for path in ["", "home", "home/s"] {
            fs::set_permissions(stand.path(path), fs::Permissions::from_mode(0o777)).unwrap();
        }
        std::os::unix::fs::chown(stand.path("home"), Some(65_534), None).unwrap();
        command.uid(65_534).gid(65_534);
    }
    let Ok(output) = command.output() else {
        return skipped("what_cannot_be_read", "another user cannot run the program");
    };
    let told = text(&output);
    assert_eq!(output.status.code(), Some(3), "{told}");
    for part in ["\"new_files\":1,", "\"new_bytes\":2,", "\"losses\":1"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn without_proc_directories_are_saved_and_the_rest_is_reported_once() {
    let name = "without_proc";
    let stand = Stand::with_store();
    let src = stand.path("src");
    setxattr(&src, "user.color", b"red", XattrFlags::empty()).unwrap();
    std::os::unix::fs::symlink("x", src.join("another link")).unwrap();
    let inner = stand.command("backup src");
    let script = "umount -l /proc && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(inner.get_program());
    command.args(inner.get_args()).current_dir(stand.path(""));
    set_home(&mut command, &stand.path("home"));
    let output = match command.output() {
        Ok(output) if is_root() => output,
        _ => return skipped(name, "only root may unmount /proc, with unshare"),
    };
    let told = text(&output);
    if told.contains("unshare") || told.contains("umount") {
        return skipped(name, &told);
    }
    assert_eq!(told.matches("/proc").count(), 2, "once, with advice: {told}");
    assert!(told.contains("mount -t proc proc /proc"), "{told}");
    let restored = stand.run(&format!("restore latest:{} --to r", src.display()));
    assert_eq!(restored.code, 0, "{}", restored.err);
    let mut value = [0; 8];
    assert_eq!(getxattr(stand.path("r"), "user.color", &mut value[..]), Ok(3));
}

/// Gives a file a list that grants user and group `id` to read and write; false if that does not
/// work here.
fn grant(file: &Path, id: u32) -> bool {
    let entries = [(1, 6, u32::MAX), (2, 6, id), (4, 4, u32::MAX), (8, 6, id)];
    let entries = entries.into_iter().chain([(16, 6, u32::MAX), (32, 0, u32::MAX)]);
    let mut list = vec![2, 0, 0, 0];
    for (tag, permissions, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(u16::to_le_bytes(permissions));
        list.extend(id.to_le_bytes());
    }
    setxattr(file, ACL, &list, XattrFlags::empty()).is_ok()
}

/// The users and groups that the list of a file names.
fn granted(file: &Path) -> Vec<u32> {
    let mut list = [0; 256];
    let length = getxattr(file, ACL, &mut list[..]).unwrap_or(4);
    let entries = list[4..length].chunks(8).filter(|entry| matches!(entry[0], 2 | 8));
    entries.map(|entry| u32::from_le_bytes(entry[4..].try_into().unwrap())).collect()
}

#[test]
fn owners_in_access_control_lists_are_mapped_and_dumped() {
    let stand = Stand::with_store();
    let src = stand.path("src");
    if !is_root() || !grant(&src.join("hello"), 1000) {
        return skipped("owners_in_access_control_lists", "no ACL can be set here");
    }
    std::os::unix::fs::chown(src.join("hello"), Some(1000), Some(1000)).unwrap();
    assert_eq!(stand.run("backup src -q").code, 0);
    let restore = |to: &str, options: &str| {
        let line = format!("restore latest:{} --to {to} {options}", src.display());
        let ran = stand.run(&line);
        assert_eq!(ran.code, 0, "{}", ran.err);
        stand.path(to).join("hello")
    };
    assert_eq!(granted(&restore("same", "")), [1000, 1000]);
    let mapped = restore("mapped", "--owner-map 1000:2000 --group-map 1000:3000");
    assert_eq!(granted(&mapped), [2000, 3000]);
    assert_eq!(fs::metadata(&mapped).unwrap().uid(), 2000);
    let plain = restore("plain", "--no-owner");
    assert_eq!(granted(&plain), [0; 0]);
    assert_eq!(fs::metadata(&plain).unwrap().mode() & 0o777, 0o640, "as without the list");
    let dump = stand.command("dump latest").output().unwrap().stdout;
    let wanted: &[u8] = b"SCHILY.acl.access=user::rw-,user:1000:rw-,group::r--,group:1000:rw-,\
                          mask::rw-,other::---\n";
    assert!(dump.windows(wanted.len()).any(|part| part == wanted), "GNU tar --acls needs this");
}

#[test]
fn a_hole_that_became_zeros_is_no_difference() {
    let stand = Stand::with_store();
    let path = stand.path("src/image");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let write = |zeros: bool, last: &[u8]| {
        let _ = fs::remove_file(&path);
        let mut file = File::create(&path).unwrap();
        file.write_all(b"first").unwrap();
        if zeros {
            file.write_all(&vec![0; 3_000_000]).unwrap();
        }
        file.seek(SeekFrom::Start(3_000_005)).unwrap();
        file.write_all(last).unwrap();
        file.set_modified(time).unwrap();
        let ran = stand.run("backup src/image --json");
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.summary()["snapshot"].as_str().unwrap().to_owned()
    };
    let ids = [write(false, b"last"), write(true, b"last"), write(false, b"lost")];
    let diff = |old: usize, new: usize| stand.run(&format!("diff {} {}", ids[old], ids[new])).out;
    assert!(!diff(0, 1).contains("/image"), "{}", diff(0, 1));
    assert!(!diff(1, 0).contains("/image"), "{}", diff(1, 0));
    assert!(diff(1, 2).contains("M "), "{}", diff(1, 2));
}

#[test]
fn a_long_list_of_paths_is_cut_where_it_is_shown() {
    let stand = Stand::with_store();
    let src = stand.path("src");
    let name = |number: u32| format!("a-file-with-a-name-of-quite-ordinary-length-{number:05}");
    let list: Vec<_> = (0..1500).map(|number| src.join(name(number))).collect();
    let mut lines = Vec::new();
    for path in &list {
        fs::write(path, "").unwrap();
        lines.extend([path.as_os_str().as_encoded_bytes(), b"\n"].concat());
    }
    fs::write(stand.path("list"), lines).unwrap();
    assert_eq!(stand.run("backup --files-from list -q").code, 0);
    let shown = stand.run("snapshots");
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(shown.out.contains(" and 1,490 more"), "{}", shown.out);
    let all = stand.run("snapshots --json").events_of("snapshot");
    assert_eq!(all[0]["sources"].as_array().unwrap().len(), 1500);
    let forget = stand.run("forget --keep-last 1");
    assert_eq!(forget.code, 0, "{}", forget.err);
}

#[test]
fn a_mount_of_snapshots_is_left_out_unless_it_is_named() {
    if let Some(obstacle) = obstacle() {
        return skipped("a_mount_of_snapshots_is_left_out", obstacle);
    }
    let stand = Stand::with_store();
    for host in ["a/b", "a_b"] {
        fs::write(stand.path("src/hello"), host).unwrap();
        assert_eq!(stand.run(&format!("backup --store m0 src -q --tag x/y --host {host}")).code, 0);
    }
    let mounted = Mounted::of(&stand, "mount src/shown --store m0", "src/shown");
    let names = |path: &str| fs::read_dir(mounted.place.join(path)).unwrap().count();
    assert_eq!((names("hosts"), names("tags/x%2Fy"), names("ids")), (2, 2, 2));
    for host in ["a%2Fb", "a_b"] {
        let file = format!("hosts/{host}/latest{}/hello", stand.path("src").display());
        let content = fs::read_to_string(mounted.place.join(file)).unwrap();
        assert_eq!(content.replace('/', "%2F"), host);
    }
    let ran = stand.run("backup --store m0 src");
    assert_ends(&ran, 0, "src/shown is not backed up, because snapshots are mounted there");
    assert!(!stand.run("ls --store m0 latest").out.contains("shown/"));
    let named = stand.run("backup --store m0 src src/shown/latest");
    assert_eq!(named.code, 0, "{}", named.err);
    assert!(stand.run("ls --store m0 latest").out.contains("shown/latest"));
    assert_eq!(mounted.end(), 0);
}

#[test]
fn a_time_that_the_target_does_not_keep_is_named() {
    let stand = Stand::with_store();
    let target = Stand::apart();
    let far = SystemTime::UNIX_EPOCH + Duration::from_secs(20_000_000_000);
    let probe = File::create(target.path("probe")).unwrap();
    let source = File::options().write(true).open(stand.path("src/sub/empty")).unwrap();
    let keeps = |file: &File| {
        file.set_modified(far).is_ok() && file.metadata().unwrap().mtime() > 19_999_999_999
    };
    if !keeps(&source) || keeps(&probe) {
        return skipped(
            "a_time_that_the_target_does_not_keep",
            "needs tmpfs, and ext4 for the target",
        );
    }
    assert_eq!(stand.run("backup src -q").code, 0);
    let ran = stand.run(&format!("restore latest --to {}", target.path("r").display()));
    assert!(
        ran.err.contains("the file system does not keep this entry's modification time"),
        "{}",
        ran.err
    );
}

#[test]
fn file_systems_without_a_device_are_different_disks() {
    let name = "file_systems_without_a_device_are_different_disks";
    in_own_mounts(name, || {
        let stand = Stand::new();
        let places = ["a", "b"].map(|place| stand.path(place));
        for place in &places {
            fs::create_dir(place).unwrap();
            if !mount("tmpfs", "size=50m", Path::new("none"), place) {
                return skipped(name, "tmpfs cannot be mounted here");
            }
        }
        let init = |first: &str, second: &str| {
            let members = format!("--member {first} --member {second}");
            stand.run(&format!("init --encryption none --parity 1 {members}"))
        };
        assert_ends(&init("a/x", "a/y"), 14, "is on the same disk (tmpfs)");
        let two = init("a/s", "b/s");
        assert_eq!(two.code, 0, "{}", two.err);
        places.iter().for_each(|place| unmount(place));
    });
}
