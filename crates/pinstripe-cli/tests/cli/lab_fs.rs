//! File systems held against each other: what would be done, what is refused, and that nothing
//! stays behind whatever ends the program.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stand::{Stand, skipped};

const SMALL: &str = "lab run fs --file-systems ext4 --files 2 --total-size 1M --image-size 32M --warm-up 0 \
                     --patience 0 --out r.json";

/// Runs losetup; none where it is not there or may not.
fn losetup(words: &[&str]) -> Option<String> {
    let ran = Command::new("losetup").args(words).output().ok()?;
    ran.status.success().then(|| String::from_utf8(ran.stdout).unwrap().trim().to_owned())
}

/// A loop device that is let go of when it is dropped.
pub struct Loop(pub String);

impl Loop {
    pub fn on(image: &Path) -> Option<Loop> {
        losetup(&["--find", "--show", image.to_str()?]).map(Loop)
    }

    fn read_only(image: &Path) -> Option<Loop> {
        losetup(&["--find", "--show", "--read-only", image.to_str()?]).map(Loop)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        losetup(&["--detach", &self.0]);
    }
}

/// Loop devices whose file is or was in a directory.
fn attached(dir: &Path) -> Vec<PathBuf> {
    let is_here = |device: &PathBuf| {
        let file = fs::read(device.join("loop/backing_file")).unwrap_or_default();
        String::from_utf8_lossy(&file).starts_with(dir.to_str().unwrap())
    };
    fs::read_dir("/sys/block").unwrap().map(|it| it.unwrap().path()).filter(is_here).collect()
}

/// Whether the case can be run at all: as root, with loop devices and ext4.
fn can(stand: &Stand, test: &str) -> bool {
    let ran = stand.run(&format!("{SMALL} --runs 1 --modes seqwr --run-time 60"));
    match ran.code {
        0 => true,
        _ => {
            skipped(test, &format!("the case cannot be run here: {}", ran.err));
            false
        }
    }
}

fn assert_nothing_is_left(stand: &Stand) {
    let dir = fs::canonicalize(stand.path("")).unwrap();
    // The kernel takes a killed program apart behind its back.
    let began = Instant::now();
    while !attached(&dir).is_empty() && began.elapsed() < Duration::from_secs(20) {
        sleep(Duration::from_millis(10));
    }
    assert_eq!(attached(&dir), [] as [PathBuf; 0]);
    let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.iter().all(|it| it == "r.json" || it == "home"), "{left:?}");
}

/// A kill while results are saved leaves them under this name, which the next save replaces.
fn drop_unsaved(stand: &Stand) {
    let _ = fs::remove_file(stand.path("r.json.part"));
}

fn runs(stand: &Stand) -> usize {
    let text = fs::read_to_string(stand.path("r.json")).unwrap_or_default();
    let saved: Value = serde_json::from_str(&text).unwrap_or_default();
    saved["variants"][0]["runs"].as_array().map_or(0, Vec::len)
}

/// Begins to measure for long.
fn begun(stand: &Stand) -> Child {
    let _ = fs::remove_file(stand.path("r.json"));
    let line = format!("{SMALL} --modes rndwr --runs 900");
    stand.command(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
#[ignore = "with --all: it makes file systems on loop devices"]
fn file_systems_are_measured_saved_and_shown() {
    let stand = Stand::new();
    if !can(&stand, "file_systems_are_measured_saved_and_shown") {
        return;
    }
    let line =
        format!("{SMALL} --runs 2 --modes seqwr,rndrd --candidates").replace("ext4 ", "ext3 ");
    let mut command = stand.command(&line);
    command.arg("ext4 -O ^has_journal mount=noatime");
    let ran = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!((ran.status.code(), &*err), (Some(0), ""));
    for part in [
        "rndrd ext4 -O ^has_journal mount=noatime",
        "MB/s of the file systems, by mode",
        "best by worst",
        "mkfs ms",
        "mounted rw,noatime",
        "bypassing the page cache",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    assert!(stand.run("lab show r.json --form markdown").out.contains("| best by worst"));
    assert!(stand.run("lab show r.json --form csv").out.contains("rndrd ext3"));
    let json: Value = serde_json::from_str(&stand.run("lab show r.json --form json").out).unwrap();
    assert_eq!(json["tables"].as_array().unwrap().len(), 2);
    assert_nothing_is_left(&stand);
}

#[test]
fn an_interrupt_takes_everything_down_and_keeps_the_runs() {
    let stand = Stand::new();
    if !can(&stand, "an_interrupt_takes_everything_down_and_keeps_the_runs") {
        return;
    }
    let mut child = begun(&stand);
    while runs(&stand) < 1 {
        assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        sleep(Duration::from_millis(5));
    }
    send(&child, Signal::INT);
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(130), None));
    assert!(runs(&stand) >= 1);
    // Before it says that it is through, not some time later.
    assert_eq!(attached(&fs::canonicalize(stand.path("")).unwrap()), [] as [PathBuf; 0]);
    assert_nothing_is_left(&stand);
    assert!(stand.run("lab show r.json").out.contains("interrupted"));
}

#[test]
#[ignore = "with --all: it makes file systems on loop devices"]
fn a_kill_at_any_moment_leaves_no_mount_no_loop_device_and_no_image() {
    let stand = Stand::new();
    if !can(&stand, "a_kill_at_any_moment_leaves_no_mount_no_loop_device_and_no_image") {
        return;
    }
    let dir = fs::canonicalize(stand.path("")).unwrap();
    let mut was_attached = 0;
    for millis in [20, 60, 100, 150, 200, 300, 450, 600] {
        let mut child = begun(&stand);
        sleep(Duration::from_millis(millis));
        was_attached += usize::from(!attached(&dir).is_empty());
        send(&child, Signal::KILL);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        drop_unsaved(&stand);
        assert_nothing_is_left(&stand);
    }
    // The last one in the midst of runs, of which those are kept that were made.
    let mut child = begun(&stand);
    while runs(&stand) < 2 {
        assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        sleep(Duration::from_millis(5));
    }
    was_attached += usize::from(!attached(&dir).is_empty());
    send(&child, Signal::KILL);
    child.wait().unwrap();
    drop_unsaved(&stand);
    assert_nothing_is_left(&stand);
    assert!(was_attached > 0, "there was something to leave behind");
    assert!(runs(&stand) >= 2);
    assert_eq!(stand.run("lab show r.json").code, 0);
}

#[test]
fn a_rehearsal_says_which_devices_and_images_are_formatted() {
    let stand = Stand::new();
    let test = "a_rehearsal_says_which_devices_and_images_are_formatted";
    // A rehearsal is refused where a run is.
    if !can(&stand, test) {
        return;
    }
    let dry = stand.run("lab run fs --dry-run --image-size 2G");
    assert_eq!(dry.code, 0, "{}", dry.err);
    assert!(dry.out.contains("would write an unlinked image of 2.0 GiB in"), "{}", dry.out);
    assert_nothing_is_left(&stand);
    let image = stand.path("image");
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let Some(device) = Loop::on(&fs::canonicalize(&image).unwrap()) else {
        return skipped(test, "no loop device can be made: not root, or none left");
    };
    let line = format!("lab run fs --dry-run --modes seqwr --device {}", device.0);
    let dry = stand.run(&line);
    assert_eq!(dry.code, 0, "{}", dry.err);
    for part in ["would overwrite", &device.0, "would wipe the signature"] {
        assert!(dry.out.contains(part), "{part}\n{}", dry.out);
    }
    assert!(fs::read(&image).unwrap().iter().all(|it| *it == 0));
}

#[test]
#[ignore = "with --all: it makes file systems on loop devices"]
fn a_device_is_formatted_only_with_its_serial_number_and_only_when_it_is_free() {
    let test = "a_device_is_formatted_only_with_its_serial_number_and_only_when_it_is_free";
    let stand = Stand::new();
    let image = stand.path("image");
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let image = fs::canonicalize(&image).unwrap();
    let Some(device) = Loop::on(&image) else {
        return skipped(test, "no loop device can be made: not root, or none left");
    };
    let line = format!("{SMALL} --runs 1 --modes seqwr --run-time 60 --device {}", device.0);
    let refused = |more: &str, said: &str| {
        let ran = stand.run(&format!("{line} {more}"));
        assert!(ran.code == 14 && ran.err.contains(said), "{more}: {} {}", ran.code, ran.err);
    };
    let serial = format!("--serial {}", image.display());
    refused("", "serial number must be given");
    refused("--serial 123", "differs from the given one");
    let held = Loop::on(Path::new(&device.0)).unwrap();
    refused(&serial, "the device is used by loop");
    drop(held);
    let beside = Loop::on(&image).unwrap();
    refused(&serial, "is used by loop");
    drop(beside);
    let mut options = fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_EXCL);
    let alone = options.read(true).open(&device.0).unwrap();
    refused(&serial, "has opened it exclusively");
    drop(alone);
    assert!(fs::read(&image).unwrap().iter().all(|it| *it == 0), "nothing was written so far");
    // It passes, and passes again: its file system is wiped at the end, though not its data.
    for more in ["", "--overwrite-unknown"] {
        let ran = stand.run(&format!("{line} {serial} {more}"));
        if ran.err.contains("cannot mount") || ran.err.contains("mkfs.ext4 is not installed") {
            return skipped(test, &ran.err);
        }
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    assert!(fs::read(&image).unwrap().iter().any(|it| *it != 0));
    fs::write(&image, [&[0; 1024 + 0x38][..], &[0x53, 0xef], &[0; 8 << 20]].concat()).unwrap();
    refused(&serial, "contains an ext2 file system");
    drop(device);
    let device = Loop::read_only(&image).unwrap();
    let ran = stand.run(&format!("{SMALL} --device {} {serial}", device.0));
    assert!(ran.code == 14 && ran.err.contains("the device is read-only"), "{}", ran.err);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let stand = Stand::new();
    for (words, code, part) in [
        ("--file-systems ext4,ext5", 2, "ext5"),
        ("--candidates ext5", 2, "not a file system that this case can create"),
        ("--candidates ext4|/dev/sda", 2, "could refer to another device"),
        ("--candidates ext4|mount=journal_dev=0x801", 2, "could refer to another device"),
        ("--candidates ext4|LABEL=root", 2, "could refer to another device"),
        ("--dir .|--dir|/", 2, "one directory at a time"),
        ("--device /dev/null", 14, "not a block device"),
        ("--total-size 1K", 2, "smaller than one block"),
    ] {
        let mut command = stand.command("lab run fs");
        // What is behind the first blank is one word, where it has several.
        let (first, rest) = words.split_once(' ').unwrap();
        match rest.contains("--dir") {
            true => command.arg(first).args(rest.split('|')),
            false => command.args([first, &rest.replace('|', " ")]),
        };
        let ran = command.output().unwrap();
        let err = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.code() == Some(code) && err.contains(part), "{words}: {err}");
    }
    assert_nothing_is_left(&stand);
}

#[test]
fn without_the_right_to_it_is_said_what_to_do() {
    let stand = Stand::new();
    let program = stand.path("program");
    // By another process: a test that forks meanwhile would inherit the file open for writing, and the
    // copy could not be executed ("text file busy").
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_pinstripe")).arg(&program).status();
    assert!(copied.unwrap().success());
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(stand.path(""), everybody).unwrap();
    let mut command = Command::new(program);
    command.args(["lab", "run", "fs", "--dir", "/", "--out", "r.json"]);
    command.current_dir(stand.path("")).env_clear().env("HOME", "/");
    if rustix::process::geteuid().is_root() {
        // The user `nobody`, by its usual number.
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        std::os::unix::process::CommandExt::gid(&mut command, 65534);
    }
    let ran = command.output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    if err.contains("no file system can be created here") {
        return skipped("without_the_right_to_it_is_said_what_to_do", &err);
    }
    assert_eq!(ran.status.code(), Some(14), "{err}");
    assert!(err.contains("run the case as root") && err.contains("lab run fileio --dir"), "{err}");
    assert!(!stand.path("r.json").exists());
}
