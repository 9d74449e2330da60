//! Members that fail, files that cannot be read, damage: what is said, and the exit code.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::stand::{Stand, assert_same_tree, noise};

#[test]
fn a_member_that_fails_is_left_out_when_parity_allows() {
    let stand = Stand::with_store();
    assert_eq!(stand.tell("backup src --store m0 --fault op=append,member=1,error=EIO").code, 4);
    // How many packs were begun before the member failed is chance: no transcript.
    assert_eq!(stand.run("check --store m0 --quiet").code, 10);
    assert_eq!(stand.run("repair --store m0").code, 0);
    assert_eq!(stand.tell("check --read-data --store m0").code, 0);
    stand.assert("member-fails");
}

#[test]
fn a_member_that_fails_ends_it_without_parity() {
    let stand = Stand::new();
    stand.make_tree();
    stand.tell("init --encryption none --member m0 --member m1 --same-disk");
    assert_eq!(stand.tell("backup src --store m0 --fault op=append,member=1,error=EIO").code, 1);
    assert_eq!(stand.tell("snapshots --store m0").code, 0);
    assert_eq!(stand.tell("backup src --store m0 --quiet").code, 0);
    stand.assert("member-fails-without-parity");
}

#[test]
fn a_full_member_is_passed_over_and_named() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    for (round, (op, name)) in
        [("append", "packs"), ("create", "index"), ("put", "snapshots")].into_iter().enumerate()
    {
        fs::write(stand.path("src/more"), noise(round as u64, 900_000)).unwrap();
        let fault = format!("--fault op={op},room={name},member=2,error=ENOSPC");
        let full = stand.run(&format!("backup src --store m0 {fault}"));
        assert_eq!(full.code, 4, "{}", full.err);
        assert!(full.err.contains("/m2") && full.err.contains("No space left"), "{}", full.err);
        assert!(full.err.contains("'pinstripe forget' and 'pinstripe gc'"), "{}", full.err);
        let restored =
            stand.run(&format!("restore latest:{{}}/src --to out{round} --verify --store m0"));
        assert_eq!(restored.code, 0, "{}", restored.err);
        assert_same_tree(&stand.path("src"), &stand.path(&format!("out{round}")));
        assert_eq!(stand.run("repair --store m0 -q").code, 0);
    }
    assert_eq!(stand.run("check --read-data --store m0 -q").code, 0);
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// The command, run by a user whom file modes bind: where the test runs as root, as `nobody`.
fn as_mere_user(stand: &Stand, line: &str) -> std::process::Output {
    use std::os::unix::process::CommandExt;
    let mut command = stand.command(line);
    if is_root() {
        let binary = stand.path("pinstripe");
        // By another process: a file that this one had open for writing could not be run while
        // some other test's child holds on to it.
        let copied = std::process::Command::new("cp")
            .args([Path::new(env!("CARGO_BIN_EXE_pinstripe")), &binary])
            .status();
        assert!(copied.unwrap().success());
        let (args, envs): (Vec<_>, Vec<_>) = (
            command.get_args().map(ToOwned::to_owned).collect(),
            command.get_envs().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned()))).collect(),
        );
        let dir = command.get_current_dir().unwrap().to_owned();
        command = std::process::Command::new(binary);
        command.args(args).env_clear().envs(envs).current_dir(dir).uid(65534).gid(65534);
    }
    command.output().unwrap()
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_saved() {
    let stand = Stand::new();
    let src = stand.path("src");
    stand.make_tree();
    fs::create_dir(src.join("closed")).unwrap();
    fs::write(src.join("secret"), "x").unwrap();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&stand.path(""), 0o777);
    mode(&src.join("secret"), 0);
    mode(&src.join("closed"), 0);
    let output = as_mere_user(&stand, "backup src");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    let src = src.canonicalize().unwrap();
    let src = src.display();
    let error = "pinstripe: error:";
    assert!(
        said.contains(&format!("{error} {src}/secret: cannot open: Permission denied")),
        "{said}"
    );
    assert!(said.contains(&format!("{error} {src}/closed: cannot open")), "{said}");
    assert!(
        said.ends_with(
            "pinstripe: finished with losses; number of losses listed above: 2 (exit code 3)\n"
        ),
        "{said}"
    );
    let output = as_mere_user(&stand, "restore latest:{}/src --to out");
    assert_eq!(output.status.code(), Some(0));
    if is_root() {
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.matches("warning").count(), 1, "owners are told of once: {said}");
        assert!(said.contains("not to the original owner"), "{said}");
    }
    assert!(stand.path("out/sub/noise").exists() && !stand.path("out/secret").exists());
}

/// Every file in a room of a member.
fn extents(stand: &Stand, room: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![stand.path(room)];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { left.push(path) } else { found.push(path) }
        }
    }
    found
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn damage_is_found_and_mended() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    stand.act("flip a bit in every pack, and in the snapshot, of member 2", || {
        extents(&stand, "m2/packs").iter().for_each(|path| flip(path, 4200));
        extents(&stand, "m2/snapshots").iter().for_each(|path| flip(path, 30));
    });
    assert_eq!(stand.run("check --read-data --store m0").code, 10);
    // Whether it meets the damage is a matter of chance: the flipped strip may be one of parity.
    assert_eq!(stand.run("restore latest:{}/src --to out --store m0").code, 0);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    assert_eq!(stand.tell("repair --store m0").code, 0);
    assert_eq!(stand.tell("check --read-data --store m0").code, 0);
    stand.assert("damage");
}

#[test]
fn more_damage_than_parity_replaces_is_told_with_what_it_hurts() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    for member in ["m1", "m2"] {
        extents(&stand, &format!("{member}/packs")).iter().for_each(|path| flip(path, 4200));
    }
    let checked = stand.run("check --read-data --store m0 --json");
    assert_eq!(checked.code, 3, "{}", checked.err);
    let summary = checked.summary();
    for key in ["lost", "hurt_snapshots", "hurt_paths", "losses"] {
        assert!(summary[key].as_u64().unwrap() > 0, "{key}: {summary}");
    }
    assert!(checked.err.contains("pinstripe: error: snapshot "), "{}", checked.err);
    assert_eq!(stand.run("repair --store m0").code, 3);
}

#[test]
fn a_fault_that_can_never_strike_is_refused() {
    let stand = Stand::in_memory();
    std::fs::write(stand.path("source"), [1; 10_000]).unwrap();
    for (line, code) in [
        ("split source out --fault op=append,member=0,rate=20M", 2),
        ("split source out --fault op=read,room=packs,error=EIO", 2),
        ("array status --fault op=append,error=EIO", 0),
        ("array create pool -l 1 -n 2 --size 16M a b --fault op=seal,error=EIO", 2),
        ("split source out --fault op=any,delay=1us", 0),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
        assert_eq!(code == 2, ran.err.contains("can never occur"), "{line}: {}", ran.err);
    }
}
