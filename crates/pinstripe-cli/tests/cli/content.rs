//! cat, dump and restoring in place, as a user would.

use std::fs;
use std::process::{Command, Stdio};

use crate::stand::{Stand, assert_same_tree, noise};

#[test]
fn content_comes_out_as_it_went_in() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    let output = stand
        .command("cat latest:{}/src/sub/noise latest:{}/src/hello --store m0")
        .output()
        .unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    assert!(output.stdout == [&noise(1, 700_000)[..], b"hello\n"].concat());
    assert_eq!(stand.run("cat latest:{}/src/hello --offset 1 --length 3 --store m0").out, "ell");
    for (line, code) in [
        ("cat latest:{}/src --store m0", 2),
        ("cat latest:{}/src/none --store m0", 11),
        ("cat latest --store m0", 2),
        ("cat latest:{}/src/hello --offset 7 --store m0", 2),
        ("cat latest:{}/src/hello --json --store m0", 2),
        ("dump latest --json --store m0", 2),
        ("dump latest:/none --store m0", 11),
        ("dump latest --format cpio --store m0", 2),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
    }
    assert_eq!(stand.run("ls latest:{}/src/sub --store m0 -q").out.lines().count(), 4);
    assert_eq!(stand.run("ls latest:{}/src {}/src --store m0").code, 2);
}

#[test]
fn an_archive_goes_through_a_pipe_into_tar() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    fs::create_dir(stand.path("out")).unwrap();
    let mut dump = stand
        .command("dump latest:{}/src --store m0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let tar = Command::new("tar")
        .args(["-xpf", "-", "-C"])
        .arg(stand.path("out"))
        .stdin(dump.stdout.take().unwrap())
        .output();
    let ended = dump.wait_with_output().unwrap();
    let Ok(tar) = tar else {
        eprintln!("skipped: no tar on this system");
        return;
    };
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
    assert_eq!(ended.status.code(), Some(0));
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(told.starts_with("dumped 7 entries"), "{told}");
    assert_same_tree(&stand.path("src"), &stand.path("out"));
}

#[test]
fn a_tree_is_mended_in_place() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    assert_eq!(stand.run("restore latest:{}/src --to was --store m0 -q").code, 0);
    stand.act("break src", || {
        fs::write(stand.path("src/hello"), "broken\n").unwrap();
        fs::remove_file(stand.path("src/link")).unwrap();
        fs::write(stand.path("src/sub/extra"), "extra\n").unwrap();
    });
    stand.tell("restore latest:{}/src --in-place --delete --dry-run --store m0");
    stand.tell("restore latest:{}/src --in-place --delete --verify --store m0");
    assert_same_tree(&stand.path("was"), &stand.path("src"));
    stand.tell("restore latest:{}/src --in-place --dry-run --store m0");
    stand.tell("restore latest:{}/src --to was --store m0");
    stand.tell("restore latest:{}/src --to was --delete --store m0");
    stand.tell("restore latest:{}/src --to new --owner-map nobody-at-all:0 --store m0");
    stand.act("a directory with much in it", || {
        fs::create_dir(stand.path("other")).unwrap();
        (0..9).for_each(|n| fs::write(stand.path("other").join(n.to_string()), "x").unwrap());
    });
    stand.tell("restore latest:{}/src --to other --in-place --delete --store m0");
    let dry = "restore latest:{}/src --to other --in-place --delete --dry-run --json --store m0";
    let refused = stand.run(dry);
    assert_eq!((refused.code, refused.events_of("preview").len()), (14, 15), "{}", refused.err);
    let seen = stand.run(&format!("{dry} --yes"));
    assert_eq!(
        (&seen.summary()["remove_entries"], &seen.summary()["make_entries"]),
        (&9.into(), &6.into())
    );
    assert_eq!(seen.events_of("preview").len(), 15);
    stand.assert("in-place");
}

#[test]
fn what_dedup_saves_is_told_in_tables() {
    let stand = Stand::with_store();
    fs::copy(stand.path("src/sub/noise"), stand.path("src/copy")).unwrap();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    let stats = stand.run("stats --store m0 --json");
    let summary = stats.summary();
    assert_eq!((&summary["files"], &summary["snapshots"]), (&4.into(), &1.into()), "{}", stats.err);
    assert_eq!(summary["logical_bytes"], 1_400_006);
    assert_eq!(summary["by_content_bytes"], 700_006);
    assert_eq!(summary["by_name_bytes"], 1_400_006);
    assert_eq!(stats.events_of("stats").len(), 1);
    let read = stand.run("stats --read-data --store m0 --json");
    let told = read.events_of("method");
    assert_eq!(told.len(), 13, "{}", read.err);
    let analyzed = stand.run("analyze src --json");
    let methods = analyzed.events_of("method");
    assert_eq!(methods.len(), 12);
    // The snapshot holds the directories above as well, but no other file.
    assert_eq!(told[..12], methods[..]);
    assert_eq!(methods[1]["distinct_bytes"], 700_006);
    assert_eq!(analyzed.summary()["files"], 4);
    let table = stand.run("analyze src --exclude copy --quiet").out;
    assert!(
        table.lines().count() == 13 && table.contains("content-defined chunks around 64"),
        "{table}"
    );
    assert_eq!(stand.run("analyze nowhere").code, 11);
    assert_eq!(stand.run("stats none --store m0").code, 11);
}
