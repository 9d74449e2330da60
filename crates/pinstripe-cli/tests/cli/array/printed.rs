//! What is printed for users to copy: commands in the documents, units for systemd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::serving::{Served, good, has};
use crate::stand::{Stand, skipped};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// The commands about arrays in a section of a document, without what follows as an explanation.
fn commands(document: &str, section: &str) -> Vec<String> {
    let text = fs::read_to_string(file(document)).unwrap();
    let section = text.split("\n## ").find(|it| it.starts_with(section)).unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("    pinstripe "));
    let lines = lines.filter(|line| line.starts_with("array "));
    lines.map(|line| line.split("   ").next().unwrap().trim_end_matches(" &").to_owned()).collect()
}

/// Runs commands one after the other on files in directories `a` to `f`, which stand for disks.
fn run_all(commands: &[String]) {
    let stand = Stand::in_memory();
    for directory in ["a", "b", "c", "d", "e", "f", "fuse"] {
        fs::create_dir(stand.path(directory)).unwrap();
    }
    let mut served = Vec::new();
    for printed in commands {
        let line = printed.replace("10G", "32M").replace("/run/user/1000/pool", "{}/nbd");
        // A shell would do this.
        let disks = ["a", "b", "c", "d"].map(|disk| format!("{{}}/{disk}/pool.img")).join(" ");
        let line = line.replace("/mnt/{a,b,c,d}/pool.img", &disks);
        let line = line.split(" --fuse ").next().unwrap().replace("/mnt/", "{}/");
        match line.starts_with("array serve") {
            true => served.push(Served::start_line(&stand, &format!("{line} --json"))),
            false => _ = good(&stand, &line),
        }
    }
    let shown = good(&stand, "array status");
    assert!(!shown.contains('_'), "{shown}");
}

#[test]
fn commands_of_the_readme_work_as_printed() {
    let commands = commands("README.md", "Array\n");
    assert!(commands.len() >= 3, "{commands:?}");
    run_all(&commands);
}

#[test]
fn the_walk_through_works_as_printed() {
    let commands = commands("doc/array.md", "A walk-through");
    assert!(commands.len() >= 8, "{commands:?}");
    run_all(&commands);
}

#[test]
fn systemd_accepts_the_units_and_we_their_commands() {
    const TEST: &str = "systemd_accepts_the_units_and_we_their_commands";
    let stand = Stand::new();
    let program = stand.path("pinstripe");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut units = Vec::new();
    for entry in fs::read_dir(file("contrib/systemd")).unwrap() {
        let unit = entry.unwrap().path();
        let text = fs::read_to_string(&unit).unwrap();
        let copy = stand.path(unit.file_name().unwrap().to_str().unwrap());
        fs::write(&copy, text.replace("/usr/bin/pinstripe", program.to_str().unwrap())).unwrap();
        units.push(copy);
        let line = text.lines().find_map(|it| it.strip_prefix("ExecStart=/usr/bin/pinstripe "));
        // Names and places are unknown, so the line ends there when all else of it is understood.
        let here = format!(" {}/", stand.path("").display().to_string().trim_end_matches('/'));
        let line = line.unwrap().replace("%i", "none").replace(" /mnt/", " none/");
        let ran = match line.replace(" /var/log/", &here).replace(" /var/cache/", &here) {
            line if ["serve", "mount", "overlay"].iter().any(|verb| line.contains(verb)) => {
                stand.run(line.trim_start_matches("--quiet "))
            }
            line => stand.run(&format!("{} none", line.trim_start_matches("--quiet "))),
        };
        assert_eq!(ran.code, 11, "{line:?}: {}", ran.err);
    }
    assert_eq!(units.len(), 5);
    if !has("systemd-analyze") {
        return skipped(TEST, "systemd-analyze is missing");
    }
    let said = Command::new("systemd-analyze").arg("verify").args(&units).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && text.is_empty(), "{text}");
}
