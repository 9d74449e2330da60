//! The protection of secrets: in memory that is never dumped, in files that only their owner can
//! read.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::stand::{Stand, set_home, skipped};

/// A number of a user who owns nothing.
const STRANGER: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a command that reads standard input, up to a place where it does.
fn running(mut command: Command) -> Child {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // More than a pipe holds: when it is written, the command has read a part of it.
    child.stdin.as_mut().unwrap().write_all(&[b'\n'; 300_000]).unwrap();
    child
}

fn ended(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn of_process(child: &Child, name: &str) -> std::io::Result<String> {
    fs::read_to_string(format!("/proc/{}/{name}", child.id()))
}

#[test]
fn no_core_is_dumped_and_keys_lie_in_locked_pages() {
    let stand = Stand::new();
    assert_eq!(stand.run("init --member m0 --key-file key -q").code, 0);
    let child = running(stand.command("backup --stdin x --store m0 --key-file key"));
    let limits = of_process(&child, "limits").unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let numbers: Vec<_> = core.split_whitespace().skip(4).take(2).collect();
    let maps = of_process(&child, "smaps");
    ended(child);
    assert_eq!(numbers, ["0", "0"], "{core}");
    let Ok(maps) = maps else {
        return skipped("no_core_is_dumped_and_keys_lie_in_locked_pages", "smaps cannot be read");
    };
    let flags = maps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
    let has = |line: &&str, flag| line.split_whitespace().any(|it| it == flag);
    // "Do not dump", "wipe on fork", "locked".
    let secret: Vec<_> = flags.filter(|it| has(it, "dd") && has(it, "wf")).collect();
    assert!(!secret.is_empty(), "no pages for secrets");
    assert!(secret.iter().any(|it| has(it, "lo")), "{secret:?}");
}

/// The files in /proc of a process that cannot be dumped belong to root, whichever user runs it.
#[test]
fn another_process_of_the_same_user_cannot_look_into_it() {
    let name = "another_process_of_the_same_user_cannot_look_into_it";
    if !is_root() {
        return skipped(name, "only root can run a command as another user");
    }
    let stand = Stand::new();
    fs::set_permissions(stand.path(""), Permissions::from_mode(0o777)).unwrap();
    let mut command = stand.command("backup --files-from - --store m0");
    command.uid(STRANGER).gid(STRANGER);
    let child = running(command);
    // The directory keeps its owner; what is in it does not.
    let place = format!("/proc/{}/environ", child.id());
    let (owner, status) = (fs::metadata(&place).unwrap().uid(), of_process(&child, "status"));
    ended(child);
    let status = status.unwrap();
    assert!(status.contains(&format!("Uid:\t{STRANGER}\t")), "{status}");
    assert_eq!(owner, 0);
}

#[test]
fn files_with_secrets_that_others_can_read_are_warned_of() {
    let stand = Stand::new();
    assert_eq!(stand.run("init --member m0 --key-file key -q").code, 0);
    let (file, line) = (stand.path("key"), "snapshots --store m0 --key-file key");
    let said = |line: &str| {
        let ran = stand.run(line);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.err
    };
    assert_eq!(said(line), "");
    for mode in [0o644, 0o640, 0o602] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let said = said(line);
        assert!(said.contains(&format!("mode 0{mode:o}")) && said.contains("chmod 600"), "{said}");
    }
    fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
    assert_eq!(said(line), "");
    if is_root() {
        chown(&file, Some(STRANGER), None).unwrap();
        assert!(said(line).contains("another user"));
        chown(&file, Some(0), None).unwrap();
    }
    // The user's own key file and a password file are judged alike.
    fs::write(stand.path("pw"), "open sesame\n").unwrap();
    fs::set_permissions(stand.path("pw"), Permissions::from_mode(0o644)).unwrap();
    assert!(said("init --member m1 --password-file pw --kdf-memory 64K").contains("mode 0644"));
    stand.make_tree();
    assert!(!said("backup src -q").contains("mode"));
    let keys = stand.path("home/.config/pinstripe/keys");
    let own = fs::read_dir(keys).unwrap().next().unwrap().unwrap().path();
    fs::set_permissions(&own, Permissions::from_mode(0o604)).unwrap();
    assert!(said("backup src -q").contains("mode 0604"));
}

/// A file of no bytes stayed behind, and stood in the way of the next try.
#[test]
fn a_key_file_that_cannot_be_written_is_removed() {
    let stand = Stand::new();
    let program = env!("CARGO_BIN_EXE_pinstripe");
    let mut shell = Command::new("/bin/sh");
    // The signal ignored, a write beyond the limit is an error as a full disk is.
    let line = format!("trap '' XFSZ; ulimit -f 0; exec {program} init --member m0 --key-file key");
    set_home(&mut shell, &stand.path("home"));
    let ran = shell.args(["-c", &line]).current_dir(stand.path("")).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write the key file"), "{said}");
    assert!(!stand.path("key").exists() && !stand.path("m0").exists());
    assert_eq!(stand.run("init --member m0 --key-file key -q").code, 0);
}
