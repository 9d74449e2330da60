//! An array that is served: clients use it while its members come and go, and its process ends in
//! order or not.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stand::{Stand, noise};

/// `array serve pool` at work; ended at the latest when this is dropped.
pub struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Served {
    /// Runs it and waits until the array can be reached.
    pub fn start(stand: &Stand, options: &str) -> Self {
        Self::start_line(stand, &format!("array serve pool --json {options}"))
    }

    /// The same with the whole line.
    pub fn start_line(stand: &Stand, line: &str) -> Self {
        let mut command = stand.command(line);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut served = Served { child, out };
        // Members that are left out are told first.
        served.until("serving");
        served
    }

    /// Passes over events until one is of this name.
    pub fn until(&mut self, event: &str) {
        while self.event()["event"] != event {}
    }

    /// The same at a socket in the stand.
    pub fn by_nbd(stand: &Stand) -> Self {
        Self::start(stand, "--nbd unix:{}/nbd")
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: '{line}'"))
    }

    /// Waits for the end and returns the exit code.
    pub fn ended(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a foreign program, which has to succeed.
pub fn run(program: &str, arguments: &[&str]) {
    let ran = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{program} {arguments:?}: {said}");
}

/// Whether a program is there.
pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// A stand with an array `pool` of level 5 over `a`, `b` and `c`, and a file `d` of the same
/// length.
pub fn with_pool(member_bytes: u64) -> Stand {
    let stand = Stand::in_memory();
    let create = format!(
        "array create pool -l 5 -n 3 -c 64 --log-size 4M --size {member_bytes} a b c --quiet"
    );
    let made = stand.run(&create);
    assert_eq!(made.code, 0, "{}", made.err);
    fs::File::create(stand.path("d")).unwrap().set_len(member_bytes).unwrap();
    stand
}

/// The address for NBD clients.
pub fn nbd(stand: &Stand) -> String {
    format!("nbd+unix:///pool?socket={}", stand.path("nbd").display())
}

/// Runs a line of ours, which has to succeed.
pub fn good(stand: &Stand, line: &str) -> String {
    let ran = stand.run(line);
    assert_eq!(ran.code, 0, "{line}: {}{}", ran.out, ran.err);
    ran.out
}

#[test]
fn what_was_flushed_outlives_the_process() {
    const TEST: &str = "what_was_flushed_outlives_the_process";
    if !has("nbdcopy") {
        return pinstripe_testing::not_installed(TEST, "nbdcopy");
    }
    let stand = with_pool(24 << 20);
    let image = stand.path("image");
    for round in 0..3 {
        fs::write(&image, noise(round, 9 << 20)).unwrap();
        let served = Served::by_nbd(&stand);
        run("nbdcopy", &["--flush", image.to_str().unwrap(), &nbd(&stand)]);
        served.signal(Signal::KILL);
        served.ended();
        // Its socket is still there, and no process listens.
        assert!(stand.path("run/pinstripe/pool.sock").exists());
        assert!(good(&stand, "array status").contains("inactive"));
        good(&stand, "array assemble pool");
        let served = Served::by_nbd(&stand);
        let back = stand.path("back");
        let _ = fs::remove_file(&back);
        run("nbdcopy", &[&nbd(&stand), back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap()[..9 << 20] == fs::read(&image).unwrap(), "{round}");
        good(&stand, "array stop pool");
        assert_eq!(served.ended(), 0);
    }
}

#[test]
fn one_process_has_an_array_at_a_time() {
    let stand = with_pool(16 << 20);
    let served = Served::by_nbd(&stand);
    for (line, code) in [
        ("array serve pool --nbd unix:{}/other", 18),
        ("array assemble other a b c", 18),
        ("array zero-superblock a", 18),
        ("array create new -l 1 -n 2 a d --force", 18),
        ("array manage pool --fail d", 11),
        ("array manage pool", 2),
        ("array manage pool --add a", 1),
        ("array set pool frobnicate=1", 2),
        ("array set pool stripe_size=5000", 2),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
    }
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    assert!(!stand.path("run/pinstripe/pool.sock").exists());
    for (line, code) in [
        ("array stop pool", 0),
        ("array wait pool", 0),
        ("array events pool", 11),
        ("array serve pool", 2),
        ("array serve none --nbd unix:{}/nbd", 11),
        ("array serve pool --fuse {}/nowhere", 11),
        ("array stop none", 11),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
    }
}

#[test]
fn knobs_are_turned_while_it_runs_and_kept() {
    let stand = with_pool(16 << 20);
    let served = Served::by_nbd(&stand);
    good(&stand, "array set pool stripe_size=16384 rmw_level=2 sync_speed_max=50M");
    let knob = |name: &str| good(&stand, &format!("array set pool {name}")).trim().to_owned();
    assert_eq!((&*knob("stripe_size"), &*knob("rmw_level")), ("16384", "2"));
    assert_eq!((&*knob("degraded"), &*knob("mismatch_cnt")), ("0", "0"));
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    let served = Served::by_nbd(&stand);
    assert_eq!((&*knob("stripe_size"), &*knob("sync_speed_max")), ("16384", "51200"));
    good(&stand, "array set pool stripe_size=auto");
    assert_eq!(knob("stripe_size"), "auto");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
}

#[test]
fn an_array_offers_only_what_it_serves() {
    const TEST: &str = "an_array_offers_only_what_it_serves";
    if !has("nbdinfo") {
        return pinstripe_testing::not_installed(TEST, "nbdinfo");
    }
    let stand = with_pool(16 << 20);
    let _served = Served::by_nbd(&stand);
    let can = |what: &str| {
        Command::new("nbdinfo").args(["--can", what, &nbd(&stand)]).status().unwrap().success()
    };
    assert!(can("zero") && can("flush") && can("fua"));
    assert!(!can("trim") && !can("fast-zero"));
}

/// A loop device that goes when this is dropped.
pub struct Loop(pub String);

impl Loop {
    /// The device of a file, where there can be one.
    pub fn of(image: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        (made.status.success() && !name.is_empty()).then_some(Loop(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}
