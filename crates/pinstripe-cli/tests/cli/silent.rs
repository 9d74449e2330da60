//! A member that answers no more: every verb ends, names it once, and does without it as parity
//! allows; an interrupt ends the waiting.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::stand::{Stand, assert_same_tree, each_at_once, noise, skipped};

/// Long enough that a busy machine is not taken for a broken disk.
const PATIENCE: &str = "--member-timeout 2s";

/// A store of four members with two snapshots, of which one is forgotten, and damage to mend.
fn stand() -> Stand {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    fs::write(stand.path("src/new"), "new\n").unwrap();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    stand
}

fn times_named(text: &str) -> usize {
    text.matches("does not answer").count()
}

/// The output of a process that is to end soon; one that does not is killed, so that the test ends.
fn ended_or_killed(child: Child) -> Output {
    const PATIENCE: Duration = Duration::from_secs(60);
    let pid = Pid::from_child(&child);
    let (ended, is_over) = mpsc::channel::<()>();
    let guard = thread::spawn(move || {
        if is_over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            kill_process(pid, Signal::KILL).unwrap();
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    guard.join().unwrap();
    output
}

#[test]
fn every_verb_ends_with_one_member_of_four_that_never_answers() {
    // Each waits for the member as long as it may: groups of them do so at once, each group on a
    // store of its own, which is made whole at the end.
    const GROUPS: [&[(&str, i32)]; 7] = [
        &[("snapshots", 0), ("ls latest", 0), ("cat latest:{}/src/hello", 0)],
        &[("diff latest latest", 0), ("stats", 0), ("find hello --catalog catalog", 0)],
        &[("members", 0), ("check --read-data", 10), ("backup src --dry-run", 0)],
        &[("restore latest:{}/src --to out", 0), ("backup src", 4), ("gc", 4)],
        &[("forget latest", 4), ("undelete latest", 4), ("forget --keep-last 1 --gc", 4)],
        &[("scrub", 10), ("backup src", 4), ("repair", 10)],
        &[("backup src", 4), ("member rebalance --dry-run", 0), ("member remove 2", 14)],
    ];
    each_at_once(GROUPS.len(), &GROUPS, |group| {
        let stand = stand();
        for (line, code) in group.iter().chain(&[("member replace 3 --to m4 --same-disk", 0)]) {
            let fault = "--fault member=3,hang=yes --store m0";
            let ran = stand.run(&format!("{line} {fault} {PATIENCE}"));
            assert_eq!(ran.code, *code, "{line}: {}", ran.err);
            assert_eq!(times_named(&ran.err), 1, "{line}: {}", ran.err);
            assert!(ran.err.contains("/m3"), "{line}: {}", ran.err);
            if line.starts_with("restore") {
                assert_same_tree(&stand.path("src"), &stand.path("out"));
            }
        }
        assert_eq!(stand.run("check --read-data --store m0").code, 0, "{group:?}");
    });
}

#[test]
#[ignore = "with --all: it waits for 10 s"]
fn a_member_that_falls_silent_amid_a_verb_is_one_that_fails() {
    const GROUPS: [&[(&str, &str, i32)]; 6] = [
        &[
            ("backup src", "op=list,room=snapshots", 4),
            ("gc", "op=list,room=index", 4),
            ("scrub", "op=list,room=packs", 10),
            ("repair", "op=list,room=index", 10),
        ],
        &[
            ("backup src", "op=put", 4),
            ("gc", "op=read,room=snapshots", 4),
            ("backup src", "op=list,room=packs", 4),
            ("repair", "op=list,room=snapshots", 10),
        ],
        &[
            ("backup src", "op=append,room=packs", 4),
            ("backup src", "op=seal,room=packs", 4),
            ("check --read-data", "op=read,room=packs,after=3", 10),
        ],
        &[
            ("backup src", "op=create,room=index", 4),
            ("backup src", "op=put,room=snapshots", 4),
            ("scrub", "op=read,room=packs,after=3", 10),
        ],
        &[
            ("backup src", "op=append,room=packs", 4),
            ("restore latest:{}/src --to out", "op=read,room=packs", 0),
        ],
        &[("snapshots", "op=list,room=snapshots", 0), ("ls latest", "op=read,room=snapshots", 0)],
    ];
    each_at_once(GROUPS.len(), &GROUPS, |group| {
        let stand = stand();
        for (round, (line, fault, code)) in group.iter().enumerate() {
            if line.starts_with("backup") {
                fs::write(stand.path("src/changed"), round.to_string().repeat(9000)).unwrap();
            }
            // The member that is asked first by those that ask one only.
            let store = "--store m1";
            if line.starts_with("restore") {
                // A pack of several rows has data on every member; of one that is shorter than a
                // row a member may have parity alone, which a restore does not read.
                fs::write(stand.path("src/rows"), noise(7, 4 << 20)).unwrap();
                stand.run(&format!("backup src {store}"));
            }
            let ran =
                stand.run(&format!("{line} --fault member=0,{fault},hang=yes {store} {PATIENCE}"));
            assert_eq!(ran.code, *code, "{line} {fault}: {}", ran.err);
            assert_eq!(times_named(&ran.err), 1, "{line} {fault}: {}", ran.err);
            if line.starts_with("restore") {
                assert_same_tree(&stand.path("src"), &stand.path("out"));
            }
        }
        assert_eq!(stand.run("repair --store m0").code, 0, "{group:?}");
        assert_eq!(stand.run("check --read-data --store m0").code, 0, "{group:?}");
    });
}

#[test]
fn a_member_can_be_left_out() {
    let stand = stand();
    // Its place is not looked at: it would never answer.
    let left = "--store m0 --without-member 3 --fault member=3,hang=yes --member-timeout 24h";
    let listed = stand.run(&format!("snapshots {left}"));
    assert_eq!((listed.code, times_named(&listed.err)), (0, 0), "{}", listed.err);
    let saved = stand.run(&format!("backup src {left}"));
    assert_eq!(saved.code, 4, "{}", saved.err);
    assert!(saved.err.contains("member 3 is excluded with --without-member"), "{}", saved.err);
    assert_eq!(stand.run("snapshots --store m0 --without-member 7").code, 2);
    assert_eq!(stand.run("snapshots --store m0 --without-member 1 --without-member 2").code, 15);
}

/// Starts a line and waits until it waits for a member: it has a session and reads nothing more.
fn waiting(stand: &Stand, line: &str) -> Child {
    let mut command = stand.command(line);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let sessions = || fs::read_dir(stand.path("m1/sessions")).unwrap().count();
    while sessions() == 0 {
        sleep(Duration::from_millis(10));
    }
    // Past the session it is soon at the call that hangs; sooner does no harm.
    sleep(Duration::from_millis(300));
    child
}

#[test]
fn an_interrupt_ends_what_waits_for_a_member() {
    // One member silent: the backup ends in order without it. More than parity replaces: it ends.
    for (faults, codes) in [
        // What was to be read may all be read by then: the backup is whole.
        ("member=3", [130, 4]),
        ("member=2,op=append,room=packs,hang=yes;member=3", [130, 130]),
    ] {
        let stand = Stand::with_store();
        let line = format!(
            "backup src --store m0 --fault {faults},op=append,room=packs,hang=yes \
             --member-timeout 24h"
        );
        let child = waiting(&stand, &line);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ended = ended_or_killed(child);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(codes.contains(&ended.status.code().unwrap()), "{:?} {said}", ended.status);
        assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    }
}

#[test]
fn an_interrupt_ends_what_waits_for_a_source() {
    let stand = Stand::with_store();
    // A file system that was stopped is a source that does not answer.
    let Some(hung) = Hung::mount(&stand, "real-src", "src/hung") else { return };
    hung.stop();
    let child = waiting(&stand, "backup src --store m0");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = ended_or_killed(child);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
}

#[test]
fn a_file_system_that_hangs_keeps_no_verb_waiting() {
    let stand = Stand::new();
    stand.make_tree();
    let Some(hung) = Hung::mount(&stand, "real", "m3") else { return };
    let init = "init --encryption none --member m0 --member m1 --member m2 --member m3 --parity 1 \
                --same-disk -q";
    assert_eq!(stand.run(init).code, 0);
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    hung.stop();
    // What only reads waits at once.
    for lines in [
        &[("snapshots --store m0", 0), ("members --store m0", 0)][..],
        &[("backup src --store m0", 4)],
        &[
            ("restore latest:{}/src --to out --store m0", 0),
            ("check --store m0", 10),
            // The store is known by its other members, too.
            ("snapshots --store m3", 0),
        ],
    ] {
        let start = |(line, code): &(&'static str, i32)| {
            let mut command = stand.command(&format!("{line} {PATIENCE}"));
            let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            (*line, *code, child)
        };
        let started: Vec<_> = lines.iter().map(start).collect();
        for (line, code, child) in started {
            let ended = child.wait_with_output().unwrap();
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(code), "{line}: {said}");
            assert!(said.contains("does not answer"), "{line}: {said}");
        }
    }
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    drop(hung);
}

/// A directory that is shown by another process, which can be stopped.
pub struct Hung {
    process: Child,
    at: std::path::PathBuf,
}

impl Hung {
    pub fn mount(stand: &Stand, real: &str, at: &str) -> Option<Hung> {
        let (real, at) = (stand.path(real), stand.path(at));
        fs::create_dir_all(&real).unwrap();
        fs::create_dir_all(&at).unwrap();
        let mut command = Command::new("bindfs");
        command.args(["-f", "--no-allow-other"]).arg(&real).arg(&at);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok();
        let mut hung = process.map(|process| Hung { process, at });
        let is_mounted = |hung: &mut Hung| {
            let device = |path: &std::path::Path| {
                use std::os::unix::fs::MetadataExt;
                fs::metadata(path).map(|it| it.dev()).ok()
            };
            let above = hung.at.parent().unwrap().to_path_buf();
            while hung.process.try_wait().unwrap().is_none() {
                if device(&hung.at) != device(&above) {
                    return true;
                }
                sleep(Duration::from_millis(10));
            }
            false
        };
        if hung.as_mut().is_some_and(is_mounted) {
            return hung;
        }
        skipped("silent", "bindfs does not mount a directory here");
        None
    }

    pub fn stop(&self) {
        kill_process(Pid::from_child(&self.process), Signal::STOP).unwrap();
    }

    pub fn go_on(&self) {
        kill_process(Pid::from_child(&self.process), Signal::CONT).unwrap();
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::CONT);
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
