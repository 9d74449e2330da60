//! A made-up file shown to every program: its bytes are the library's, it goes when it should.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use pinstripe_split::Fake;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stand::{Stand, skipped};

/// Why no file system of ours can be mounted here, if so.
pub fn obstacle() -> Option<&'static str> {
    const SYS_ADMIN: u32 = 21;
    if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        return Some("/dev/fuse cannot be opened");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let may_mount = effective.is_some_and(|rights| rights & 1 << SYS_ADMIN != 0);
    let has_helper = || Command::new("fusermount3").arg("--version").output().is_ok();
    (!may_mount && !has_helper()).then_some("mounting is not allowed and fusermount3 is missing")
}

/// The command at work; ended at the latest when this is dropped.
struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
    mountpoint: PathBuf,
}

impl Served {
    /// Runs `fakevmcore` and waits until the file is there.
    fn start(stand: &Stand, options: &str) -> Self {
        let mountpoint = stand.path("mnt");
        fs::create_dir_all(&mountpoint).unwrap();
        let mut command = stand.command(&format!("fakevmcore mnt --json {options}"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut served = Served { child, out, mountpoint };
        let event = served.event();
        assert_eq!(event["event"], "mounted", "{event}");
        assert_eq!(Path::new(event["path"].as_str().unwrap()), served.file());
        served
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: '{line}'"))
    }

    fn file(&self) -> PathBuf {
        self.mountpoint.canonicalize().unwrap().join("vmcore")
    }

    /// Waits for the end and returns the exit code, which the summary must tell as well.
    fn ended(mut self) -> i32 {
        let summary = self.event();
        let code = self.child.wait().unwrap().code().unwrap();
        assert_eq!((&summary["event"], &summary["exit_code"]), (&"summary".into(), &code.into()));
        assert_eq!(fs::read_dir(&self.mountpoint).unwrap().count(), 0, "nothing is mounted");
        code
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.mountpoint).status();
        }
    }
}

#[test]
fn the_file_has_the_bytes_of_the_library() {
    if let Some(obstacle) = obstacle() {
        return skipped("the_file_has_the_bytes_of_the_library", obstacle);
    }
    let bytes = (20 << 20) + 777;
    let stand = Stand::new();
    for (options, told) in [
        ("", ""),
        (
            "--block-size 64K --zero 40% --entropy 0.5 --seed 7",
            ",block=64K,zero=40%,entropy=0.5,seed=7",
        ),
        ("--direct-io --threads 3", ""),
    ] {
        let served = Served::start(&stand, &format!("--size {bytes} {options}"));
        let mut wanted = vec![0; bytes as usize];
        Fake::new(format!("fake:{bytes}{told}").parse().unwrap()).unwrap().fill(0, &mut wanted);
        let facts = fs::metadata(served.file()).unwrap();
        assert_eq!((facts.len(), facts.mode() & 0o7777), (bytes, 0o444));

        let mut file = File::open(served.file()).unwrap();
        for (at, length) in
            [(0, 1), (4095, 2), (65_535, 70_000), (5 << 20, 5 << 20), (bytes - 3, 3)]
        {
            let mut read = vec![0; length];
            file.read_exact_at(&mut read, at).unwrap();
            assert!(read == wanted[at as usize..][..length], "{options}: {length} at {at}");
        }
        let mut beyond = [0; 100];
        assert_eq!(file.read_at(&mut beyond, bytes - 40).unwrap(), 40);
        for at in [bytes, bytes + 1, i64::MAX as u64 - 4096] {
            assert_eq!(file.read_at(&mut beyond, at).unwrap(), 0, "at {at}");
        }
        let mut whole = Vec::new();
        file.read_to_end(&mut whole).unwrap();
        assert!(whole == wanted, "{options}");
        let printed = Command::new("cat").arg(served.file()).output().unwrap().stdout;
        assert!(printed == wanted, "{options}: what cat prints");

        assert!(File::options().write(true).open(served.file()).is_err());
        assert!(fs::write(served.mountpoint.join("other"), "x").is_err());
        assert!(fs::remove_file(served.file()).is_err());
        assert_eq!(fs::read_dir(&served.mountpoint).unwrap().count(), 1);
        drop(file);
        served.signal(Signal::INT);
        assert_eq!(served.ended(), 0);
    }
}

#[test]
fn it_ends_when_it_is_told_or_unmounted() {
    if let Some(obstacle) = obstacle() {
        return skipped("it_ends_when_it_is_told_or_unmounted", obstacle);
    }
    let stand = Stand::new();
    let served = Served::start(&stand, "--size 1T");
    let second = stand.run("fakevmcore mnt --size 1G");
    assert_eq!(second.code, 18, "{}", second.err);
    served.signal(Signal::TERM);
    assert_eq!(served.ended(), 0);

    let served = Served::start(&stand, "--size 1T");
    let [by_user, by_root] =
        [("fusermount3", &["-u"][..]), ("umount", &[])].map(|(name, options)| {
            let mut command = Command::new(name);
            command.args(options).arg(&served.mountpoint).stderr(Stdio::null());
            command
        });
    let works = |mut command: Command| command.status().is_ok_and(|status| status.success());
    assert!(works(by_root) || works(by_user));
    assert_eq!(served.ended(), 0);

    // A program that has it open does not keep it in sight.
    let served = Served::start(&stand, "--size 1G");
    let mut open = File::open(served.file()).unwrap();
    assert_eq!(open.read(&mut [0; 10]).unwrap(), 10);
    served.signal(Signal::INT);
    if rustix::process::geteuid().is_root() {
        let mut served = served;
        assert_eq!(served.event()["kind"], "busy");
        assert_eq!(served.ended(), 18);
        assert!(open.read_at(&mut [0; 10], 1 << 29).is_err());
    } else {
        drop(open);
        assert_eq!(served.ended(), 0);
    }
}

#[test]
fn what_cannot_be_shown_is_refused_before_anything_is_mounted() {
    let stand = Stand::new();
    fs::create_dir(stand.path("mnt")).unwrap();
    fs::create_dir_all(stand.path("full/of")).unwrap();
    fs::write(stand.path("file"), "").unwrap();
    for (line, code) in [
        ("fakevmcore", 2),
        ("fakevmcore mnt", 2),
        ("fakevmcore mnt --size much", 2),
        ("fakevmcore mnt --size 1G --block-size 3000", 2),
        ("fakevmcore mnt --size 1G --block-size 32M", 2),
        ("fakevmcore mnt --size 1G --zero 120%", 2),
        ("fakevmcore mnt --size 1G --entropy x", 2),
        ("fakevmcore mnt --size 1G --seed -1", 2),
        ("fakevmcore none --size 1G", 11),
        ("fakevmcore file --size 1G", 2),
        ("fakevmcore full --size 1G", 1),
        ("fakevmcore /proc --size 1G", 18),
    ] {
        assert_eq!(stand.tell(line).code, code, "{line}");
    }
    stand.assert("fakevmcore");
}
