//! Few open files allowed: everything takes longer, and nothing is lost.

use std::fs;
use std::process::{Command, Stdio};

use crate::stand::{Ran, Stand, assert_same_tree, noise};

/// Runs a line with so many descriptors, soft and hard.
fn limited(stand: &Stand, files: u32, line: &str) -> Ran {
    let plain = stand.command(line);
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("ulimit -n {files}; exec \"$0\" \"$@\""));
    command.arg(plain.get_program()).args(plain.get_args());
    command.current_dir(stand.path("")).env_clear().stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        command.env(name, value.expect("nothing is taken out of the environment"));
    }
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().expect("it ends by itself"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[track_caller]
fn done(ran: &Ran) {
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

/// Files of many chunks that share them, so that many are open at once.
fn many_open_at_once(stand: &Stand) {
    fs::create_dir_all(stand.path("src/d/e")).unwrap();
    for file in 0..150 {
        let own = noise(file, 9_000);
        let shared = noise(1000 + file % 7, 40_000);
        let place = ["src", "src/d", "src/d/e"][file as usize % 3];
        fs::write(stand.path(&format!("{place}/f{file}")), [shared, own].concat()).unwrap();
    }
}

#[test]
#[ignore = "with --all: it takes 6 s"]
fn verbs_wait_for_descriptors_instead_of_losing_files() {
    let stand = Stand::new();
    many_open_at_once(&stand);
    done(&stand.run(
        "init --encryption none --member m0 --member m1 --member m2 --member m3 --parity 1 \
         --same-disk --chunk-size 4K --quiet",
    ));
    for n in 0..12 {
        fs::write(stand.path(&format!("src/new{n}")), noise(500 + n, 20_000)).unwrap();
        done(&stand.run("backup src --store m0 -q"));
    }
    for files in [64, 40] {
        done(&limited(&stand, files, "restore latest:{}/src --to out --verify --store m0"));
        assert_same_tree(&stand.path("src"), &stand.path("out"));
        fs::write(stand.path("out/f0"), b"something else").unwrap();
        done(&limited(
            &stand,
            files,
            "restore latest:{}/src --to out --in-place --checksum --store m0",
        ));
        assert_same_tree(&stand.path("src"), &stand.path("out"));
        fs::remove_dir_all(stand.path("out")).unwrap();
    }
    for line in [
        "check --read-data --store m0",
        "scrub --store m0",
        "gc --max-waste 0 --store m0",
        "member add m4 --same-disk --store m0",
        "member rebalance --store m0",
        "member remove 1 --store m0",
        "backup src --store m0 -q",
    ] {
        done(&limited(&stand, 64, line));
    }
    fs::remove_dir_all(stand.path("m2")).unwrap();
    done(&limited(&stand, 64, "member replace 2 --to m5 --same-disk --store m0"));
    fs::remove_dir_all(stand.path("m3/packs")).unwrap();
    fs::create_dir(stand.path("m3/packs")).unwrap();
    done(&limited(&stand, 64, "repair --store m0"));
    done(&limited(&stand, 64, "check --read-data --store m0"));
    done(&limited(&stand, 64, "restore latest:{}/src --to out --store m0"));
    assert_same_tree(&stand.path("src"), &stand.path("out"));
}
