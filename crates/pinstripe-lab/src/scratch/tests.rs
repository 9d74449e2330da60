//! File systems made and mounted on real loop devices: as root only.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::kinds::{FILE_SYSTEMS, System};
use super::*;
use pinstripe_testing::skipped;

/// That no loop device has a file of a directory any more. Programs that other tests start have the
/// descriptors of this one too, for the moment in which they are started.
pub fn assert_detached(dir: &Path) {
    let began = Instant::now();
    while is_attached(dir) {
        assert!(began.elapsed() < PATIENCE, "{} is still in use", dir.display());
        std::thread::sleep(PERIOD);
    }
}

/// An image, where one can be made and mounted.
pub fn image(test: &str, bytes: u64) -> Option<(tempfile::TempDir, Scratch)> {
    let dir = tempfile::tempdir().unwrap();
    let live = Live::new(Arc::default());
    let made = may_mount().and_then(|()| Scratch::image(dir.path(), bytes, &live));
    match made {
        Ok(scratch) => Some((dir, scratch)),
        Err(error) if [Kind::Refused, Kind::NotFound].contains(&error.kind()) => {
            skipped(test, &format!("no loop device can be made: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn maker(text: &str) -> Option<Maker> {
    let candidate: FsCandidate = text.parse().unwrap();
    let program = System::default().maker(candidate.kind).ok()?;
    Some(Maker { candidate, program })
}

/// Whether any loop device has a file that was made in a directory.
fn is_attached(dir: &Path) -> bool {
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices.filter_map(|it| fs::read(it.path().join("loop/backing_file")).ok());
    let dir = dir.to_str().unwrap();
    files.into_iter().any(|file| String::from_utf8_lossy(&file).starts_with(dir))
}

#[test]
#[ignore = "with --all: it makes file systems on loop devices"]
fn every_file_system_of_this_machine_is_made_mounted_and_gone_again() {
    let test = "every_file_system_of_this_machine_is_made_mounted_and_gone_again";
    let live = Live::new(Arc::default());
    for kind in FILE_SYSTEMS {
        let Some(maker) = maker(kind.name) else {
            skipped(test, &format!("{} cannot be made here", kind.name));
            continue;
        };
        let Some((dir, scratch)) = image(test, kind.least_bytes) else { return };
        let path = scratch.path().to_owned();
        // Nothing of the image has a name, and no byte of it is a hole: not even behind mkfs.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        for text in ["first", "second"] {
            scratch.format(&maker, &live).unwrap();
            let mounted = scratch.mount(&maker.candidate).unwrap();
            let file = mounted.path().join("file");
            assert!(!file.exists(), "{}: it is made anew", kind.name);
            fs::write(&file, text).unwrap();
            assert!(mounted.options().unwrap().starts_with("rw,relatime"), "{}", kind.name);
            assert!(mounted.space().unwrap().1 > 0);
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(!mounts.contains(path.to_str().unwrap()), "nobody sees it");
            scratch.unmount(mounted).unwrap();
            let mounted = scratch.mount(&maker.candidate).unwrap();
            assert_eq!(fs::read_to_string(mounted.path().join("file")).unwrap(), text);
            scratch.unmount(mounted).unwrap();
        }
        scratch.wipe().unwrap();
        assert!(scratch.mount(&maker.candidate).is_err(), "{}: it is wiped", kind.name);
        drop(scratch);
        assert_detached(dir.path());
    }
}

#[test]
fn an_image_has_no_holes_whatever_is_made_on_it() {
    use std::os::unix::fs::MetadataExt;
    let test = "an_image_has_no_holes_whatever_is_made_on_it";
    let Some((_dir, scratch)) = image(test, 300 << 20) else { return };
    let live = Live::new(Arc::default());
    let Scratch::Image(image) = &scratch else { unreachable!() };
    for kind in FILE_SYSTEMS {
        let Some(maker) = maker(kind.name) else { continue };
        scratch.format(&maker, &live).unwrap();
        scratch.unmount(scratch.mount(&maker.candidate).unwrap()).unwrap();
        let blocks = image.file().metadata().unwrap().blocks();
        assert!(blocks * 512 >= 300 << 20, "{}: {blocks}", kind.name);
    }
}

#[test]
fn what_fails_says_why_and_leaves_the_device_free() {
    let test = "what_fails_says_why_and_leaves_the_device_free";
    let Some((dir, scratch)) = image(test, 16 << 20) else { return };
    let Some(plain) = maker("ext4") else {
        return pinstripe_testing::not_installed(test, "mkfs.ext4");
    };
    let live = Live::new(Arc::default());
    let with = |text: &str| Maker { candidate: text.parse().unwrap(), ..plain.clone() };
    // mkfs does not know an option: its own words.
    let error = scratch.format(&with("ext4 -O no_such_thing"), &live).unwrap_err();
    assert!(error.to_string().contains("no_such_thing"), "{error}");
    // The kernel does not know an option: its own words.
    scratch.format(&plain, &live).unwrap();
    let bad = with("ext4 mount=no_such_option=1");
    let error = scratch.mount(&bad.candidate).unwrap_err();
    assert!(error.to_string().contains("no_such_option"), "{error}");
    // There is another file system on it.
    let other: FsCandidate = "xfs".parse().unwrap();
    let error = scratch.mount(&other).unwrap_err();
    assert!(error.to_string().contains("as xfs"), "{error}");
    // Options of the mount are taken.
    let mounted =
        scratch.mount(&with("ext4 mount=noatime,nodev,data=writeback").candidate).unwrap();
    let options = mounted.options().unwrap();
    for part in ["noatime", "nodev", "data=writeback"] {
        assert!(options.contains(part), "{part}: {options}");
    }
    scratch.unmount(mounted).unwrap();
    // The mkfs that is named is none.
    let nowhere = Maker { program: dir.path().join("mkfs"), ..plain.clone() };
    assert_eq!(scratch.format(&nowhere, &live).unwrap_err().kind(), Kind::NotFound);
    // After a stop nothing more is formatted.
    let stopped = Live::new(Arc::new(AtomicBool::new(true)));
    assert_eq!(scratch.format(&plain, &stopped).unwrap_err().kind(), Kind::Interrupted);
    let refused = Scratch::image(dir.path(), 1 << 20, &stopped).unwrap_err();
    assert_eq!(refused.kind(), Kind::Interrupted);
    let refused = Scratch::image(dir.path(), 1 << 60, &live).unwrap_err();
    assert!([Kind::NoSpace, Kind::Io].contains(&refused.kind()), "{refused}");
    scratch.alone().unwrap();
}

#[test]
fn a_program_is_ended_when_we_are_to_stop_and_the_device_let_go() {
    let test = "a_program_is_ended_when_we_are_to_stop_and_the_device_let_go";
    let Some((dir, scratch)) = image(test, 300 << 20) else { return };
    assert!(is_attached(dir.path()));
    // It writes and reads all of the device four times before, by a program that it starts itself.
    let Some(maker) = maker("ext4 -c -c") else {
        return pinstripe_testing::not_installed(test, "mkfs.ext4");
    };
    let stop = Arc::new(AtomicBool::new(false));
    let live = Live::new(Arc::clone(&stop));
    let mut told = crate::io::at_once(2, |number| {
        if number == 0 {
            return scratch.format(&maker, &live).unwrap_err().kind();
        }
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        Kind::Interrupted
    });
    assert_eq!(told.remove(0), Kind::Interrupted);
    // No process has it any more.
    scratch.alone().unwrap();
    drop(scratch);
    assert_detached(dir.path());
}

#[test]
fn a_device_is_known_by_its_own_name_and_not_by_a_link_to_it() {
    let test = "a_device_is_known_by_its_own_name_and_not_by_a_link_to_it";
    let free = crate::safety::tests::Loop::new(&[]).zip(crate::safety::tests::Loop::new(&[]));
    let Some((one, other)) = free else { return skipped(test, "no loop device can be made") };
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("disk");
    std::os::unix::fs::symlink(one.path(), &link).unwrap();
    let scratch = Scratch::device(&link).unwrap();
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(other.path(), &link).unwrap();
    assert_eq!(scratch.path(), one.path());
    scratch.wipe().unwrap();
    // Should the name be another device's all the same, nothing is written.
    let held = fs::File::open(one.path()).unwrap();
    let wrong = Scratch::Device(other.path().to_owned(), held);
    assert_eq!(wrong.wipe().unwrap_err().kind(), Kind::Changed);
}
