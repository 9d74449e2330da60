//! `pinstripe mount` when something is wrong: members that do not answer, snapshots that go, places
//! that cannot be mounted on, thousands of open files, programs that write.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::fakevmcore::obstacle;
use crate::mount::{Background, Mounted, ok, where_mounts_work};
use crate::mount_readers::words;
use crate::silent::Hung;
use crate::stand::{Stand, noise, skipped};

/// The newest snapshot's copy of a path of the stand.
fn latest(mounted: &Mounted, stand: &Stand, name: &str) -> PathBuf {
    mounted.place.join("latest").join(stand.path(name).strip_prefix("/").unwrap())
}

fn mounted(stand: &Stand, options: &str) -> Mounted {
    Mounted::of(stand, &format!("mount mnt --store m0 {options}"), "mnt")
}

/// Mounts in the background with these options and a log; the number of the process comes with it.
fn in_background(stand: &Stand, options: &str) -> (Background, u64) {
    let background = Background::at(stand, "mnt");
    let ran = stand.run(&format!("mount mnt --store m0 --json --log log {options}"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let process = ran.events().last().unwrap()["process"].as_u64().unwrap();
    (background, process)
}

/// The large file of the stand, by the place in the background.
fn open_large(stand: &Stand) -> File {
    let below = stand.path("src/large");
    File::open(stand.path("mnt/latest").join(below.strip_prefix("/").unwrap())).unwrap()
}

#[test]
fn reads_that_members_do_not_answer_end() {
    let name = "reads_that_members_do_not_answer_end";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    let wanted = noise(3, 3 << 20);
    fs::write(stand.path("src/large"), &wanted).unwrap();
    ok(&stand, "backup --store m0 src");
    let silent = |members: &[u32]| {
        let fault = |member: &u32| format!("member={member},op=read,room=packs,hang=yes");
        let faults: Vec<String> = members.iter().map(fault).collect();
        format!("--timeout 1s --fault {}", faults.join(";"))
    };
    // One of them is what parity replaces.
    let one = mounted(&stand, &silent(&[2]));
    assert!(fs::read(latest(&one, &stand, "src/large")).unwrap() == wanted);
    assert_eq!(one.end(), 0);
    let two = mounted(&stand, &silent(&[1, 2]));
    let is_refused = |error: std::io::Error| {
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
    };
    is_refused(fs::read(latest(&two, &stand, "src/large")).unwrap_err());
    // Nor is a directory of which nothing can be read an empty one.
    is_refused(fs::read_dir(two.place.join("latest")).unwrap().next().unwrap().unwrap_err());
    // What else is asked is answered.
    assert_eq!(fs::read_dir(two.place.join("ids")).unwrap().count(), 1);
    two.end();
}

/// A mount goes on for weeks: a server that restarts is no reason to end it.
#[test]
fn members_that_answer_again_are_read_again() {
    let name = "members_that_answer_again_are_read_again";
    let Some(stand) = where_mounts_work(name, Stand::new) else { return };
    let hung = ["m1", "m2"].map(|at| Hung::mount(&stand, &format!("real-{at}"), at));
    let [Some(one), Some(other)] = &hung else { return };
    stand.make_tree();
    let wanted = noise(3, 8 << 20);
    fs::write(stand.path("src/large"), &wanted).unwrap();
    let members = "--member m0 --member m1 --member m2 --member m3 --parity 1";
    ok(&stand, &format!("init --encryption none {members} --same-disk"));
    ok(&stand, "backup --store m0 src");
    let (background, process) = in_background(&stand, "--timeout 1s");
    let file = open_large(&stand);
    let mut second = vec![0; 4 << 20];
    one.stop();
    other.stop();
    let refused = file.read_exact_at(&mut second, 4 << 20).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::IO.raw_os_error()), "{refused}");
    one.go_on();
    other.go_on();
    let log = || fs::read_to_string(stand.path("log")).unwrap();
    while log().matches(" answers again").count() < 2 {
        sleep(Duration::from_millis(10));
    }
    file.read_exact_at(&mut second, 4 << 20).unwrap();
    assert!(second == wanted[4 << 20..]);
    drop(file);
    background.end(process);
}

#[test]
fn members_that_vanish_are_told_with_one_line_for_each_pack() {
    let name = "members_that_vanish_are_told_with_one_line_for_each_pack";
    if let Some(obstacle) = obstacle() {
        return skipped(name, obstacle);
    }
    let stand = Stand::with_store();
    fs::write(stand.path("src/large"), words(3, 24 << 20)).unwrap();
    ok(&stand, "backup --store m0 src");
    let (background, process) = in_background(&stand, "");
    let file = open_large(&stand);
    for member in ["m1", "m2"] {
        fs::remove_dir_all(stand.path(member).join("packs")).unwrap();
    }
    let refused = (0..24_u64)
        .filter_map(|at| file.read_exact_at(&mut vec![0; 1 << 20], at << 20).err())
        .map(|error| assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}"))
        .count();
    assert!(refused >= 12, "{refused} of 24 reads were refused");
    drop(file);
    background.end(process);
    let log = fs::read_to_string(stand.path("log")).unwrap();
    let mut packs: Vec<_> =
        log.lines().filter_map(|line| line.split_once(" packs/")?.1.split(':').next()).collect();
    let lines = packs.len();
    packs.sort_unstable();
    packs.dedup();
    assert!(lines > 0 && packs.len() == lines, "{log}");
}

#[test]
fn a_file_of_a_snapshot_that_is_collected_has_right_bytes_or_none() {
    let name = "a_file_of_a_snapshot_that_is_collected_has_right_bytes_or_none";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    let wanted = words(9, 64 << 20);
    fs::write(stand.path("src/large"), &wanted).unwrap();
    ok(&stand, "backup --store m0 src");
    let mounted = mounted(&stand, "--memory 64M");
    let file = File::open(latest(&mounted, &stand, "src/large")).unwrap();
    let mut begin = vec![0; 1 << 20];
    file.read_exact_at(&mut begin, 0).unwrap();
    assert!(begin == wanted[..1 << 20]);
    // Another snapshot keeps half of it: some packs are written anew, others go.
    fs::write(stand.path("src/large"), &wanted[32 << 20..]).unwrap();
    ok(&stand, "backup --store m0 src");
    let first = stand.run("snapshots --store m0 --json").events_of("snapshot");
    let first = first[0]["snapshot"].as_str().or(first[0]["id"].as_str()).unwrap().to_owned();
    ok(&stand, &format!("forget --store m0 {first}"));
    for _ in 0..3 {
        ok(&stand, "gc --store m0");
    }
    let (mut right, mut refused) = (0, 0);
    for at in (0..wanted.len()).step_by(128 << 10) {
        let mut read = vec![0; 128 << 10];
        match file.read_exact_at(&mut read, at as u64) {
            Ok(()) => {
                assert!(read == wanted[at..][..read.len()], "wrong bytes at {at}");
                right += 1;
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
                refused += 1;
            }
        }
    }
    // The chunk at the begin of the kept half may be another one: at most 1 MiB is refused there.
    assert!(right >= 248 && right + refused == 512, "{right} right, {refused} refused");
    drop(file);
    assert_eq!(mounted.end(), 0);
}

#[test]
fn ten_thousand_files_are_open_at_once() {
    const FILES: usize = 10_000;
    if let Some(obstacle) = obstacle() {
        return skipped("ten_thousand_files_are_open_at_once", obstacle);
    }
    let limit = getrlimit(Resource::Nofile);
    let wanted = FILES as u64 + 1000;
    if limit.current.is_some_and(|now| now < wanted) {
        let more =
            Rlimit { current: Some(wanted), maximum: limit.maximum.map(|it| it.max(wanted)) };
        if setrlimit(Resource::Nofile, more).is_err() {
            return skipped("ten_thousand_files_are_open_at_once", "files cannot be as many");
        }
    }
    let stand = Stand::with_store();
    fs::create_dir(stand.path("src/many")).unwrap();
    for number in 0..FILES {
        fs::write(stand.path(&format!("src/many/{number}")), number.to_string()).unwrap();
    }
    ok(&stand, "backup --store m0 src");
    let mounted = mounted(&stand, "");
    let many = latest(&mounted, &stand, "src/many");
    let files: Vec<File> =
        (0..FILES).map(|number| File::open(many.join(number.to_string())).unwrap()).collect();
    for (number, mut file) in files.iter().enumerate().rev() {
        let mut read = String::new();
        file.read_to_string(&mut read).unwrap();
        assert_eq!(read, number.to_string());
    }
    let status = stand.run("mount status mnt --json").events();
    assert!(status[0]["files"].as_array().unwrap().len() <= 32, "{}", status[0]);
    drop(files);
    assert_eq!(mounted.end(), 0);
}

#[test]
fn whatever_writes_is_refused_as_read_only() {
    let name = "whatever_writes_is_refused_as_read_only";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    ok(&stand, "backup --store m0 src --tag weekly");
    let mounted = mounted(&stand, "");
    let src = latest(&mounted, &stand, "src");
    let refused = |what: &str, done: Result<(), Errno>| {
        assert_eq!(done, Err(Errno::ROFS), "{what}");
    };
    let of = |error: std::io::Error| Errno::from_io_error(&error).unwrap();
    let (file, new) = (src.join("hello"), src.join("new"));
    refused("write", File::options().write(true).open(&file).map(drop).map_err(of));
    refused("append", File::options().append(true).open(&file).map(drop).map_err(of));
    let cut = File::options().write(true).truncate(true).open(&file);
    refused("truncate", cut.map(drop).map_err(of));
    let mode = Mode::from_raw_mode(0o644);
    for directory in [
        src.clone(),
        mounted.place.clone(),
        mounted.place.join("ids"),
        mounted.place.join("hosts"),
        mounted.place.join("versions"),
        mounted.place.join("versions").join(stand.path("src").strip_prefix("/").unwrap()),
    ] {
        let new = directory.join("new");
        refused("create", File::create(&new).map(drop).map_err(of));
        refused("mkdir", rustix::fs::mkdir(&new, mode));
        refused("symlink", rustix::fs::symlink("target", &new));
        refused("mknod", rustix::fs::mknodat(CWD, &new, FileType::Fifo, mode, 0));
        refused("chmod", rustix::fs::chmod(&directory, mode));
    }
    refused("link", rustix::fs::link(&file, &new));
    refused("unlink", rustix::fs::unlink(&file));
    refused("rmdir", rustix::fs::rmdir(src.join("sub")));
    refused("rename", rustix::fs::rename(&file, &new));
    refused("rename of the top", rustix::fs::rename(mounted.place.join("latest"), &new));
    refused("chown", rustix::fs::chown(&file, rustix::process::geteuid().into(), None));
    let now = Timespec { tv_sec: 1, tv_nsec: 2 };
    let times = Timestamps { last_access: now, last_modification: now };
    refused("utimens", rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()));
    refused("setxattr", rustix::fs::setxattr(&file, "user.x", b"1", XattrFlags::empty()));
    refused("removexattr", rustix::fs::removexattr(&file, "user.x"));
    assert_eq!(fs::read(&file).unwrap(), b"hello\n");
    assert_eq!(mounted.end(), 0);
}

/// A user other than root, who may read what all may.
const NOBODY: u32 = 65_534;

#[test]
fn who_may_not_mount_hears_why() {
    let name = "who_may_not_mount_hears_why";
    if let Some(obstacle) = obstacle() {
        return skipped(name, obstacle);
    }
    if !pinstripe_testing::is_root() {
        return skipped(name, "only root can become another user");
    }
    let stand = Stand::with_store();
    ok(&stand, "backup --store m0 src");
    open_to_all(&stand.path("."));
    fs::create_dir(stand.path("theirs")).unwrap();
    fs::create_dir(stand.path("mine")).unwrap();
    fs::create_dir(stand.path("home-of-nobody")).unwrap();
    for theirs in ["mine", "home-of-nobody"] {
        std::os::unix::fs::chown(stand.path(theirs), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // In a namespace of its own, where anyone may open the device, as on most systems.
    fs::create_dir(stand.path("dev")).unwrap();
    let become_nobody = "mount -t tmpfs tmpfs dev && mknod -m 666 dev/fuse c 10 229 \
         && mount --bind dev/fuse /dev/fuse \
         && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let run = |place: &str, helper: Option<&str>| {
        let plain = stand.command(&format!("mount {place} --store m0 --foreground"));
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", become_nobody, "sh"]);
        command.arg(plain.get_program()).args(plain.get_args()).current_dir(stand.path("."));
        let home = stand.path("home-of-nobody");
        command.env("XDG_STATE_HOME", &home).env("XDG_RUNTIME_DIR", &home).env("HOME", &home);
        command.envs(helper.map(|helper| ("FUSERMOUNT_PATH", helper)));
        let output = command.stdout(Stdio::null()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (_, said) = run(".", None);
    if !said.contains("pinstripe: error") {
        return skipped(name, "no namespace can be made here");
    }
    let (code, said) = run("theirs", None);
    assert!(code != 0 && said.contains("theirs") && said.contains("write"), "{code} {said}");
    let (code, said) = run("mine", Some("/nowhere/fusermount3"));
    assert!(code != 0 && said.contains("fusermount3 (package fuse3)"), "{code} {said}");
    assert_eq!(fs::metadata(stand.path("mine")).unwrap().uid(), NOBODY);
}

/// Lets every user read a directory and all below it.
fn open_to_all(directory: &Path) {
    let mut open = vec![directory.to_path_buf()];
    while let Some(path) = open.pop() {
        let found = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            found => found.unwrap(),
        };
        if found.is_dir() {
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if found.is_file() {
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        }
    }
}

/// The mode of a file as `ls -l` shows it.
fn listed(directory: &Path, name: &str) -> String {
    let output = Command::new("ls").arg("-l").arg(directory).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let line = lines.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
    line.split(' ').next().unwrap().to_owned()
}

fn acl_of(file: &Path) -> String {
    let mut command = Command::new("getfacl");
    let output = command.args(["--omit-header", "--absolute-names"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn access_control_lists_are_told_of_the_files_that_have_them() {
    let name = "access_control_lists_are_told_of_the_files_that_have_them";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    ok(&stand, "backup --store m0 src");
    // As long as there is none, programs are told so at once.
    let none = mounted(&stand, "");
    let src = latest(&none, &stand, "src");
    let ask = |file: &Path| {
        rustix::fs::getxattr(file, "system.posix_acl_access", &mut [0_u8; 64][..]).unwrap_err()
    };
    assert_eq!(ask(&src.join("hello")), Errno::OPNOTSUPP);
    assert_eq!(listed(&src, "hello").len(), 10);
    assert_eq!(none.end(), 0);

    let set = Command::new("setfacl")
        .args(["-m", "u:65534:r--,g::---"])
        .arg(stand.path("src/hello"))
        .status();
    if !set.is_ok_and(|set| set.success()) {
        return skipped(name, "setfacl sets no ACL here");
    }
    ok(&stand, "backup --store m0 src");
    for options in ["", "--allow-other"] {
        let mounted = mounted(&stand, options);
        let src = latest(&mounted, &stand, "src");
        // Of one that has none is told first: that is no answer for the other one.
        assert_eq!(ask(&src.join("sub/empty")), Errno::NODATA);
        assert!(listed(&src, "hello").ends_with('+'), "{}", listed(&src, "hello"));
        assert!(!listed(&src.join("sub"), "empty").ends_with('+'));
        assert_eq!(acl_of(&src.join("hello")), acl_of(&stand.path("src/hello")));
        assert_eq!(acl_of(&src.join("sub/empty")), acl_of(&stand.path("src/sub/empty")));
        if options == "--allow-other" && pinstripe_testing::is_root() {
            let cat = |uid: u32, gid: u32| {
                let mut command = Command::new("cat");
                command.arg(src.join("hello")).uid(uid).gid(gid).stderr(Stdio::null());
                command.output().unwrap().status.success()
            };
            fs::set_permissions(stand.path("."), Permissions::from_mode(0o755)).unwrap();
            assert!(cat(65_534, 65_534), "the ACL lets this user read");
            // The mode alone shows the group what the ACL gives to the user.
            assert!(!cat(65_533, 0), "the ACL keeps the group out");
        }
        assert_eq!(mounted.end(), 0);
    }
}
