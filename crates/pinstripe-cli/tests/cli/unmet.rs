//! What was asked and cannot be done, or has no effect, is reported: exit code 0 means that it was
//! done.

use std::fs;
use std::os::unix::fs::symlink;

use crate::stand::{Stand, assert_ends};

fn backed_up() -> Stand {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src -q").code, 0);
    stand
}

#[test]
fn an_empty_argument_is_refused() {
    let stand = backed_up();
    let command = |args: &[&str]| {
        let output = stand.command("backup").args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for args in [&["src", "--host", ""][..], &["src", "--host="], &[""]] {
        let (code, told) = command(args);
        assert_eq!(code, Some(2), "{args:?}: {told}");
        assert!(told.contains("is empty"), "{args:?}: {told}");
    }
}

#[test]
fn patterns_of_a_restore_that_match_nothing_are_named() {
    let stand = backed_up();
    let nothing = stand.run("restore latest --to none --include *.jpg");
    assert_ends(&nothing, 11, "*.jpg: no path of the restored part matches this --include");
    let preview = stand.run("restore latest --to none2 --include *.jpg --dry-run");
    assert_ends(&preview, 11, "*.jpg");
    let some = stand.run("restore latest --to some --include hello --include *.jpg");
    assert_ends(&some, 3, "*.jpg: no path of the restored part matches this --include");
    let src = stand.path("src");
    assert!(stand.path("some").join(src.strip_prefix("/").unwrap()).join("hello").exists());
    let in_place = stand.run("restore latest --to {}/deep/none3 --in-place --include *.jpg");
    assert_ends(&in_place, 11, "*.jpg");
    let full = stand.run("restore latest --to src --include *.jpg");
    assert_ends(&full, 14, "not empty");
    for made in ["none", "none2", "deep"] {
        assert!(!stand.path(made).exists(), "{made}: nothing is restored, so nothing is made");
    }
    // One that matches below another one counts.
    let inner = stand.run("restore latest --to inner --include sub --include noise");
    assert_eq!(inner.code, 0, "{}", inner.err);
    let left = stand.run("restore latest --to left --exclude *.jpg");
    assert_ends(&left, 0, "no path of the restored part matches --exclude *.jpg");
    let above = stand.run("restore latest:{}/src/sub --to above --include {}/src");
    assert_ends(&above, 11, "/src: no path of the restored part matches this --include");
}

#[test]
fn a_search_without_a_result_ends_with_not_found() {
    let stand = backed_up();
    let ran = stand.run("find noi");
    assert_ends(&ran, 11, "no entry in the searched snapshots matches");
    assert!(ran.err.contains("try '*noi*'"), "{}", ran.err);
    assert_eq!(stand.run("find *noi*").code, 0);
    assert_eq!(stand.run("find noi --json").summary()["exit_code"], 11);
}

#[test]
fn nothing_is_made_inside_a_member() {
    let stand = backed_up();
    for line in [
        "init --encryption none --member m0/sub",
        "init --encryption none --member m0/packs/deep/sub",
        "restore latest --to m0/sub",
        "restore latest --to m0 --overwrite",
        "restore latest --to m0/sub --dry-run",
    ] {
        assert_ends(&stand.run(line), 14, "this directory is inside a member of a store");
    }
    fs::create_dir(stand.path("m0/sub")).unwrap();
    let added = stand.run("member add m0/sub --same-disk");
    assert_ends(&added, 14, "this directory is inside a member of a store");
    assert_eq!(stand.run("check -q").code, 0);
}

#[test]
fn a_remote_place_of_another_program_is_no_directory() {
    let stand = Stand::new();
    for place in ["rclone:remote", "sftp:host:x", "user@host:backup", "s3:bucket/x", "b2:b:x"] {
        let ran = stand.run(&format!("init --encryption none --member {place}"));
        assert_ends(
            &ran,
            2,
            "this looks like a remote location in the notation of another program",
        );
        assert!(!stand.path(place).exists());
    }
    let meant = stand.run("init --encryption none --member ./odd:name -q");
    assert_eq!(meant.code, 0, "{}", meant.err);
    assert_eq!(stand.run("snapshots --store odd:name").code, 0);
}

#[test]
fn a_named_path_without_content_is_noted() {
    let stand = backed_up();
    symlink("src", stand.path("to-src")).unwrap();
    assert_ends(&stand.run("backup to-src"), 0, "a symbolic link, so its target is not backed up");
    assert_ends(&stand.run("backup /dev/null"), 0, "a device, so its content is not backed up");
    assert!(!stand.run("backup src").err.contains("symbolic"));
    let fifo = stand.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert_ends(&stand.run("backup fifo"), 0, "a FIFO, so its content is not backed up");
}

#[test]
fn a_path_below_a_file_does_not_exist() {
    let stand = backed_up();
    fs::write(stand.path("list"), "src/hello/x\n").unwrap();
    fs::write(stand.path("list of both"), "src/hello/x\nsrc/sub\n").unwrap();
    for line in [
        "backup src/hello/x",
        "backup src/hello/",
        "backup src/hello/x src/gone",
        "backup --files-from list",
        "backup src --files-from src/hello/x",
        "backup src --exclude-file src/hello/x",
        "snapshots --store src/hello/x",
        "snapshots --config src/hello/x",
        "snapshots --knobs src/hello/x",
        "snapshots --key-file src/hello/x",
        "mount src/hello/x",
        "overlay src/hello/x m0",
        "hint src/hello/x dont-need",
        "split src/hello/x a b c",
        "split src/hello a b src/hello/x",
        "join src/hello/x",
        "verify src/hello/x",
        "record take pcm:src/hello/x,rate=48000,channels=2,format=s16 --to takes",
        "lab show src/hello/x",
        "lab import src/hello/x",
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, 11, "{line}: {}", ran.err);
    }
    let some = stand.run("backup src src/hello/x");
    assert_ends(&some, 3, "src/hello/x: cannot back up this path: Not a directory");
    let listed = stand.command("backup --files-from").arg("list of both").output().unwrap();
    assert_eq!(listed.status.code(), Some(3));
    // A target need not exist, and cannot be created there.
    assert_eq!(stand.run("restore latest --to src/hello/x").code, 1);
    assert_eq!(fs::read_to_string(stand.path("src/hello")).unwrap(), "hello\n");
}

#[test]
fn patterns_that_could_match_nothing_are_refused_or_read_as_meant() {
    let stand = Stand::with_store();
    fs::write(stand.path("src/a.tmp"), "x").unwrap();
    fs::write(stand.path("list"), "*.tmp  \n").unwrap();
    assert_eq!(stand.run("backup src --exclude-file list -q").code, 0);
    assert!(!stand.run("ls latest").out.contains("a.tmp"));
    assert_ends(&stand.run("backup src --exclude ~/x"), 2, "does not mean the home directory here");
    fs::create_dir_all(stand.path("home/docs/cache")).unwrap();
    fs::write(stand.path("home/docs/cache/x"), "x").unwrap();
    fs::write(stand.path("c.toml"), "[backup.d]\npaths = ['~/docs']\nexclude = ['~/docs/cache']\n")
        .unwrap();
    assert_eq!(stand.run("backup --named d --config c.toml -q").code, 0);
    assert!(!stand.run("ls latest").out.contains("cache"));
}

#[test]
fn a_member_that_is_not_there_cannot_be_left_out() {
    let stand = backed_up();
    let ran = stand.run("snapshots --without-member 9");
    assert_ends(&ran, 2, "--without-member: the store has no member 9");
    assert!(ran.err.contains("'pinstripe members' lists the members"), "{}", ran.err);
}

#[test]
fn a_path_that_is_gone_has_its_name_and_host() {
    let stand = Stand::with_store();
    for host in ["h1", "h2"] {
        assert_eq!(stand.run(&format!("backup src -q --host {host}")).code, 0);
    }
    fs::remove_file(stand.path("src/link")).unwrap();
    assert_eq!(stand.run("backup src -q --host h2").code, 0);
    let told = stand.run("history {}/src/link --json");
    let versions = told.events_of("version");
    let gone = versions.iter().find(|it| it["what"] == "gone").unwrap();
    assert_eq!(gone["host"], "h2");
    assert_eq!(gone["path"], versions[0]["path"]);
}

#[test]
fn limits_of_nothing_are_refused_and_a_quiet_forget_is_quiet() {
    let stand = backed_up();
    assert_ends(
        &stand.run("scrub --limit 0"),
        2,
        "the rate must be at least 1K (1024 bytes) per second",
    );
    let forget = stand.run("forget --keep-last 5 -q");
    assert_eq!((forget.code, &*forget.out, &*forget.err), (0, "", ""));
    assert!(stand.run("forget --keep-last 5 -q --dry-run").out.contains("keep"));
    let restore = stand.run("restore latest");
    assert_ends(&restore, 2, "no target directory was given");
    assert!(restore.err.contains("--in-place"), "{}", restore.err);
}

#[test]
fn excludes_of_the_command_line_that_match_nothing_are_noted() {
    let stand = backed_up();
    for verb in ["backup src", "backup src --dry-run", "analyze src"] {
        let ran = stand.run(&format!("{verb} --exclude *.jpg --exclude hello --exclude sub/"));
        assert_ends(&ran, 0, "no path matches --exclude *.jpg");
        assert_eq!(ran.err.matches("--exclude").count(), 1, "{}", ran.err);
    }
    fs::write(stand.path("list"), "*.jpg\n").unwrap();
    let shared = stand.run("backup src --exclude-file list");
    assert!(!shared.err.contains("no path matches"), "{}", shared.err);
}

#[test]
fn hosts_and_tags_of_forget_that_match_nothing_are_named() {
    let stand = backed_up();
    let host = stand.run("forget --keep-last 1 --host nobody --dry-run");
    assert_ends(&host, 11, "the host 'nobody' has no snapshot");
    let tag = stand.run("forget --keep-last 1 --keep-tag weekyl --dry-run");
    assert_ends(&tag, 0, "no snapshot has the tag 'weekyl'");
}

#[test]
fn directories_with_a_tag_are_excluded_and_tags_of_none_are_named() {
    let stand = Stand::with_store();
    fs::write(stand.path("src/sub/.nobackup"), "").unwrap();
    let line = "--exclude-if-present .nobackup --exclude-if-present .none:header";
    for dry in ["--dry-run", ""] {
        let ran = stand.run(&format!("backup src --store m0 {line} {dry}"));
        assert_ends(&ran, 0, "no directory matches --exclude-if-present .none");
        assert!(!ran.err.contains("present .nobackup"), "{}", ran.err);
    }
    let listed = stand.run("ls latest:src/sub --store m0").out;
    assert!(listed.contains("sub/.nobackup") && !listed.contains("noise"), "{listed}");
    let wrong = stand.run("backup src --store m0 --exclude-if-present a/b");
    assert_ends(&wrong, 2, "'a/b' is not the name of a file");
}
