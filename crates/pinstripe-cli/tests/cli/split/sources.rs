//! Sources as they are met: a kernel, a program, a core of a running process, a sparse file.

use std::env;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::names;
use crate::stand::{Stand, skipped};

const MIB: u64 = 1 << 20;

/// The largest file of a directory that is as large as a kernel.
fn largest(directory: &str) -> Option<PathBuf> {
    let files = fs::read_dir(directory).ok()?.flatten().map(|it| it.path());
    let size =
        |path: &PathBuf| path.metadata().map_or(0, |it| if it.is_file() { it.len() } else { 0 });
    files.max_by_key(size).filter(|path| size(path) > MIB)
}

/// Splits it in several ways; with parity it comes back without an output, too.
fn assert_splits(stand: &Stand, source: &Path) {
    let content = fs::read(source).unwrap();
    for (more, outputs) in [("", 3), ("--codec lzo --layout ranges", 2), ("--parity 1", 4)] {
        let outs = names(outputs);
        let line = format!("split {} {outs} --force -q {more}", source.display());
        let ran = stand.run(&line);
        assert_eq!(ran.code, 0, "{}", ran.err);
        stand.assert_whole(outputs, &content);
    }
    fs::remove_file(stand.output(2)).unwrap();
    let (ran, joined) = stand.join("o3 o0 o1");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(joined.unwrap() == content, "without an output it is another one");
}

/// Splits the first part of a file: that is enough, and takes no minutes.
fn assert_part_splits(test: &str, path: &Path) {
    let stand = Stand::new();
    let Ok(file) = fs::File::open(path) else { return skipped(test, "it cannot be read") };
    let mut bytes = vec![0; (24 * MIB).min(file.metadata().unwrap().len()) as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    fs::write(stand.path("source"), bytes).unwrap();
    assert_splits(&stand, &stand.path("source"));
}

#[test]
fn a_kernel_comes_back() {
    let test = "a_kernel_comes_back";
    match largest("/boot").or_else(|| largest("/usr/src")) {
        Some(kernel) => assert_part_splits(test, &kernel),
        None => skipped(test, "neither /boot nor /usr/src has one"),
    }
}

#[test]
fn a_program_comes_back() {
    assert_part_splits("a_program_comes_back", &env::current_exe().unwrap());
}

#[test]
#[ignore = "with --all: it starts gcore"]
fn a_core_of_a_process_comes_back() {
    let test = "a_core_of_a_process_comes_back";
    let stand = Stand::new();
    let mut sleeper = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let id = sleeper.id().to_string();
    let made = Command::new("gcore").arg("-o").arg(stand.path("core")).arg(&id).output();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let core = stand.path(&format!("core.{id}"));
    match made {
        Ok(made) if made.status.success() && core.exists() => assert_splits(&stand, &core),
        Ok(_) => skipped(test, "gcore may not look into a process here"),
        Err(_) => pinstripe_testing::not_installed(test, "gcore"),
    }
}

#[test]
#[ignore = "with --all: it takes 6 s"]
fn holes_stay_holes() {
    let stand = Stand::new();
    let path = stand.path("src");
    let file = fs::File::create(&path).unwrap();
    file.set_len(200 * MIB + 100).unwrap();
    for at in [0, 50 * MIB + 4096, 199 * MIB] {
        file.write_all_at(&[7; 10_000], at).unwrap();
    }
    file.sync_all().unwrap();
    let content = fs::read(&path).unwrap();
    let blocks = |path: &Path| path.metadata().unwrap().blocks() * 512;
    if blocks(&path) > 100 * MIB {
        return skipped("holes_stay_holes", "this file system keeps no holes");
    }
    for more in ["", "--parity 1", "--layout ranges --codec raw"] {
        stand.split(&format!("{more} --force"), 2);
        stand.assert_whole(2, &content);
        for path in ["joined", "o0", "o1"] {
            let taken = blocks(&stand.path(path));
            assert!(taken < 20 * MIB, "{more}: {path} takes {taken}");
        }
        let ran = stand.run("inspect o0 --json");
        let told = &ran.events_of("output")[0];
        assert!(told["hole_bytes"].as_u64() > Some(180 * MIB), "{told}");
    }
    // A part of a hole, and the edge of one.
    let cat = stand.command("cat o0 o1 --range 52M..53M").output().unwrap();
    assert!(cat.stdout == vec![0; MIB as usize]);
    let cat = stand.command("cat o1 o0 --range 51M..52500K").output().unwrap();
    assert!(cat.stdout == content[51 << 20..52_500 << 10]);
    fs::remove_file(stand.path("o0")).unwrap();
}
