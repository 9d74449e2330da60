//! Encrypted stores on the command line: where keys come from, and what the key verb does.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

use crate::stand::{Stand, assert_same_tree, set_home};

/// A stand with a tree and a store of two members, opened by the key file `key`.
fn with_key_file() -> Stand {
    let stand = Stand::new();
    stand.make_tree();
    let init = "init --member m0 --member m1 --parity 1 --same-disk --key-file key -q";
    assert_eq!(stand.run(init).code, 0);
    stand
}

/// Writes a file that only its owner can read: others are warned of.
fn write_secret(stand: &Stand, name: &str, text: &str) {
    fs::write(stand.path(name), text).unwrap();
    fs::set_permissions(stand.path(name), Permissions::from_mode(0o600)).unwrap();
}

fn run_with(stand: &Stand, variable: &str, value: &str, line: &str) -> Option<i32> {
    stand.command(line).env(variable, value).output().unwrap().status.code()
}

#[test]
fn without_a_password_or_a_terminal_init_says_what_there_is() {
    let stand = Stand::new();
    assert_eq!(stand.tell("init --member m0").code, 2);
    assert!(!stand.path("m0").exists());
    assert_eq!(stand.tell("init --member m0 --encryption none --key-file k").code, 2);
    assert_eq!(stand.tell("init --member m0 --encryption rot13").code, 2);
    assert_eq!(stand.tell("init --member m0 --encryption none --padding padme").code, 2);
    assert_eq!(stand.tell("init --member m0 --key-file k --password-file p").code, 2);
    assert_eq!(stand.tell("init --member m0 --password-file missing").code, 11);
    assert_eq!(stand.tell("init --member m0 --password-command false").code, 2);
    assert!(!stand.path("k").exists() && !stand.path("m0").exists());
    write_secret(&stand, "short", "0123");
    assert_eq!(stand.tell("init --member m0 --key-file short").code, 2);
    stand.assert("init-without-key");
}

#[test]
fn a_key_file_is_made_and_opens_the_store() {
    let stand = Stand::new();
    stand.make_tree();
    fs::set_permissions(stand.path("src/hello"), Permissions::from_mode(0o600)).unwrap();
    stand.tell("init --member m0 --key-file keys/mine");
    assert_eq!(fs::metadata(stand.path("keys/mine")).unwrap().mode() & 0o777, 0o600);
    stand.tell("backup src --store m0");
    stand.tell("backup src --store m0 --key-file keys/mine -q");
    stand.tell("snapshots --store m0");
    stand.tell("check --store m0");
    stand.tell("check --store m0 --key-file keys/mine");
    stand.tell("members --store m0");
    write_secret(&stand, "other", &"00".repeat(32));
    assert_eq!(stand.tell("ls latest --store m0 --key-file other").code, 17);
    assert_eq!(stand.tell("ls latest --store m0 --key-file src/hello").code, 2);
    let line = "restore latest:{}/src --to out --store m0 --key-file keys/mine -q";
    assert_eq!(stand.run(line).code, 0);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    stand.assert("key-file");
}

#[test]
fn passwords_come_from_files_commands_and_the_environment() {
    let stand = Stand::new();
    stand.make_tree();
    write_secret(&stand, "pw", "open sesame\n");
    let init = "init --member m0 --password-file pw --kdf-memory 64K -q";
    assert_eq!(stand.run(init).code, 0);
    assert_eq!(stand.run("backup src --store m0 --password-file pw -q").code, 0);
    let mut command = stand.command("snapshots --store m0 --json --password-command");
    assert_eq!(command.arg("echo open sesame").output().unwrap().status.code(), Some(0));
    let list = "snapshots --store m0";
    assert_eq!(run_with(&stand, "PINSTRIPE_PASSWORD", "open sesame", list), Some(0));
    assert_eq!(run_with(&stand, "PINSTRIPE_PASSWORD", "open rice", list), Some(17));
    assert_eq!(run_with(&stand, "PINSTRIPE_PASSWORD", "", list), Some(16));
    assert_eq!(stand.run(list).code, 16);
    // The option outranks the environment.
    let line = "snapshots --store m0 --password-file pw";
    assert_eq!(run_with(&stand, "PINSTRIPE_PASSWORD", "open rice", line), Some(0));
    let out = stand.command("key list --json --store m0").output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    assert!(out.contains("\"memory_kib\":64") && !out.contains("sesame"), "{out}");
}

#[test]
fn slots_are_added_listed_removed_and_rotated() {
    let stand = with_key_file();
    assert_eq!(stand.run("backup src --store m0 --key-file key -q").code, 0);
    write_secret(&stand, "pw", "open sesame\n");
    stand.tell("key list --store m0");
    let add = "key add --store m0 --key-file key --new-password-file pw --label laptop \
               --kdf-memory 64K";
    assert_eq!(stand.tell(add).code, 0);
    assert_eq!(stand.tell("key add --store m0 --key-file key").code, 2);
    stand.tell("key list --store m0");
    assert_eq!(stand.run("ls latest --store m0 --password-file pw").code, 0);
    assert_eq!(stand.tell("key remove laptop --store m0").code, 16);
    assert_eq!(stand.tell("key remove desktop --store m0 --key-file key").code, 11);
    assert_eq!(stand.tell("key remove laptop --store m0 --key-file key").code, 0);
    let remove = stand.command("key remove --store m0 --key-file key").arg("key file").output();
    assert_eq!(remove.unwrap().status.code(), Some(14), "the last slot stays");
    assert_eq!(stand.run("ls latest --store m0 --password-file pw").code, 17);
    let rotate = "key rotate --store m0 --key-file key --new-key-file new";
    assert_eq!(stand.tell(rotate).code, 0);
    assert_eq!(stand.run("ls latest --store m0 --key-file key").code, 17);
    assert_eq!(stand.run("ls latest --store m0 --key-file new").code, 0);
    assert_eq!(stand.run("backup src --store m0 --key-file new -q").code, 0);
    // Without a new one, the one that opens the store goes on to.
    assert_eq!(stand.tell("key rotate --store m0 --key-file new").code, 0);
    assert_eq!(stand.run("check --read-data --store m0 --key-file new -q").code, 0);
    stand.assert("key-slots");
}

#[test]
fn the_default_store_has_a_key_file_of_its_own() {
    let stand = Stand::new();
    stand.make_tree();
    let made = stand.run("backup src");
    assert_eq!(made.code, 0, "{}", made.err);
    assert!(made.err.contains("keep a copy of this file"), "{}", made.err);
    let keys: Vec<_> = fs::read_dir(stand.path("home/.config/pinstripe/keys")).unwrap().collect();
    assert_eq!(keys.len(), 1);
    let key = keys[0].as_ref().unwrap().path();
    assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
    assert_eq!(stand.run("snapshots").code, 0);
    let aside = stand.path("aside");
    fs::rename(&key, &aside).unwrap();
    assert_eq!(stand.run("snapshots").code, 16);
    assert_eq!(stand.run("snapshots --key-file aside").code, 0);
}

#[test]
fn a_store_without_encryption_takes_no_key() {
    let stand = Stand::with_store();
    write_secret(&stand, "pw", "x\n");
    assert_eq!(stand.tell("snapshots --store m0 --password-file pw").code, 19);
    assert_eq!(stand.tell("key list --store m0").code, 2);
    assert_eq!(run_with(&stand, "PINSTRIPE_PASSWORD", "x", "snapshots --store m0"), Some(19));
    stand.assert("no-key");
}

#[test]
fn key_files_and_passwords_of_before_open_what_they_opened() {
    let frozen = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let stand = Stand::new();
    for name in ["store-v2-aes", "store-v2-chacha"] {
        let copied = std::process::Command::new("cp")
            .arg("-R")
            .arg(frozen.join(name))
            .arg(stand.path(name))
            .status();
        assert!(copied.unwrap().success());
        for given in ["--key-file {}/NAME/key", "--password-file {}/NAME/password"] {
            let with = format!("--store NAME/m0 {given}").replace("NAME", name);
            let listed = stand.run(&format!("snapshots --json {with}"));
            assert_eq!(listed.events_of("snapshot").len(), 2, "{}", listed.err);
            let found = stand.run(&format!("find small --json {with}")).events_of("found");
            assert_eq!(found[0]["path"], "/tmp/freeze/tree/dir/deep/small");
            let content = stand.run(&format!("cat latest:/tmp/freeze/tree/new --all-hosts {with}"));
            assert_eq!((content.code, content.out.as_str()), (0, "new\n"));
        }
    }
}

fn lose_packs(stand: &Stand, member: &str) {
    let packs = stand.path(member).join("packs");
    fs::remove_dir_all(&packs).unwrap();
    fs::create_dir(&packs).unwrap();
}

#[test]
fn damage_is_found_and_mended_without_a_key() {
    let stand = with_key_file();
    assert_eq!(stand.run("backup src --store m0 --key-file key -q").code, 0);
    lose_packs(&stand, "m1");
    assert_eq!(stand.run("check --read-data --store m0").code, 10);
    assert_eq!(stand.run("repair --store m0").code, 0);
    let checked = stand.run("check --read-data --store m0 --json");
    assert_eq!((checked.code, &checked.summary()["without_key"]), (0, &true.into()));
    assert_eq!(stand.run("check --read-data --store m1 --key-file key").code, 0);
}

/// The note of `members` spoke of checks.
#[test]
fn a_verb_says_what_it_lacks_without_a_key() {
    let stand = with_key_file();
    for (line, lack) in [
        (
            "members --store m0",
            "no key was given, so pinstripe shows only information that needs no key",
        ),
        (
            "scrub --status --store m0",
            "no key was given, so pinstripe shows only information that needs no key",
        ),
        ("check --store m0", "no key was given, so pinstripe skips all checks that need the key"),
    ] {
        let ran = stand.run(line);
        assert!(ran.code == 0 && ran.err.contains(lack), "{line}: {}", ran.err);
    }
}

/// It asked for the key as a verb does that cannot do without.
#[test]
fn scrub_needs_no_key() {
    let stand = with_key_file();
    assert_eq!(stand.run("backup src --store m0 --key-file key -q").code, 0);
    lose_packs(&stand, "m1");
    let scrubbed = stand.run("scrub --store m0 --json");
    assert!(
        scrubbed.code != 16 && scrubbed.summary()["mended_extents"].as_u64() > Some(0),
        "{}",
        scrubbed.err
    );
    assert_eq!(stand.run("scrub --store m0").code, 0);
    assert_eq!(stand.run("scrub --status --store m0").code, 0);
    assert_eq!(stand.run("check --read-data --store m1 --key-file key").code, 0);
}

/// Runs a line on a terminal of its own and answers its questions. `None` when the system has no
/// `script` to make one.
fn on_terminal(stand: &Stand, line: &str, answers: &[&str]) -> Option<(i32, String)> {
    let program = env!("CARGO_BIN_EXE_pinstripe");
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &format!("{program} {line}"), "/dev/null"]);
    let dir = stand.path("").canonicalize().unwrap();
    script.env_clear().env("TERM", "dumb").env("SHELL", "/bin/sh");
    set_home(&mut script, &dir.join("home"));
    script.current_dir(&dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = script.env("PATH", "/usr/bin:/bin").spawn().ok()?;
    let (mut typed, mut shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut said, mut block, mut answers) = (Vec::new(), [0; 4096], answers.iter());
    let mut answered = 0;
    loop {
        let read = shown.read(&mut block).unwrap();
        if read == 0 {
            break;
        }
        said.extend_from_slice(&block[..read]);
        // Every question ends so, and waits.
        if said.ends_with(b": ") && said.len() > answered {
            answered = said.len();
            typed.write_all(answers.next().map_or("", |answer| answer).as_bytes()).unwrap();
            typed.write_all(b"\n").unwrap();
        }
    }
    let code = child.wait().unwrap().code()?;
    Some((code, String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn a_terminal_is_asked_and_a_new_password_twice() {
    let stand = Stand::new();
    stand.make_tree();
    let init = "init --member m0 --kdf-memory 64K";
    let Some((code, said)) = on_terminal(&stand, init, &["open sesame", "open rice"]) else {
        return pinstripe_testing::not_installed(
            "a_terminal_is_asked_and_a_new_password_twice",
            "script",
        );
    };
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("differ") && !stand.path("m0").exists(), "{said}");
    let (code, said) = on_terminal(&stand, init, &["open sesame", "open sesame"]).unwrap();
    assert_eq!(code, 0, "{said}");
    // Two wrong answers are told, the third opens.
    let answers = ["open rice", "open rye", "open sesame"];
    let (code, said) = on_terminal(&stand, "backup src --store m0", &answers).unwrap();
    assert_eq!((code, said.matches("does not open any key slot").count()), (0, 2), "{said}");
    let (code, said) = on_terminal(&stand, "snapshots --store m0", &["a", "b", "c"]).unwrap();
    assert_eq!(code, 17, "{said}");
    // What needs no key goes on without one.
    let (code, said) = on_terminal(&stand, "check --store m0", &[""]).unwrap();
    assert!(code == 0 && said.contains("no key was given, so only checksums"), "{said}");
}
