//! Refusals, with nothing changed; and outputs and sources that fail on the way.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::Stdio;

use crate::lab_fs::Loop;
use crate::stand::{Stand, each_at_once, skipped};

const MIB: u64 = 1 << 20;

#[test]
fn what_makes_no_sense_is_refused_and_nothing_is_touched() {
    let stand = Stand::new();
    stand.source(MIB);
    fs::write(stand.path("old"), "what was there").unwrap();
    fs::create_dir(stand.path("d")).unwrap();
    symlink("d", stand.path("link")).unwrap();
    symlink("old", stand.path("to-old")).unwrap();
    symlink("new", stand.path("to-new")).unwrap();
    symlink("src", stand.path("to-src")).unwrap();
    fs::hard_link(stand.path("old"), stand.path("old-too")).unwrap();
    fs::hard_link(stand.path("src"), stand.path("src-too")).unwrap();
    let before = || {
        let mut names: Vec<_> =
            fs::read_dir(stand.path("")).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        (names, fs::read(stand.path("old")).unwrap(), fs::read(stand.path("src")).unwrap())
    };
    let was = before();
    for (line, code, words) in [
        ("src o0 old", 1, "already exists"),
        ("src o0 src", 2, "the source itself"),
        ("src o0 src --force", 2, "the source itself"),
        ("src o0 src-too --force", 2, "the source itself"),
        ("src to-src --force", 2, "the source itself"),
        ("to-src o0 src --force", 2, "the source itself"),
        ("src o0 o0", 2, "the same file"),
        ("src o0 ./o0", 2, "the same file"),
        ("src d/o link/o", 2, "the same file"),
        ("src old old-too --force", 2, "the same file"),
        ("src old to-old --force", 2, "the same file"),
        ("src new to-new", 2, "the same file"),
        ("src o0 o0.pinstripe --layout ranges --codec raw", 2, "the same file"),
        ("src o0 nowhere/o1", 11, "nowhere"),
        ("src o0 old --block-size 5000 --force", 2, "a power of two"),
        ("src o0 old --block-size 2K --force", 2, "a power of two"),
        ("src o0 old --block-size 32M --force", 2, "a power of two"),
        ("src o0 old --block-size 64G --force", 2, "a power of two"),
        ("src o0 old --parity 1 --strip-size 5000 --force", 2, "a power of two"),
        ("src o0 old --parity 1 --strip-size 2K --force", 2, "a power of two"),
        ("src o0 old --parity 2 --force", 2, "at least 3"),
        (
            "src o0 o1 old --layout queue --parity 1 --force",
            2,
            "parity is possible only with --layout stripes",
        ),
        ("src o0 o1 old --parity 3 --force", 2, "3"),
        ("src old --codec none --force", 2, "none"),
        ("src old --depth 0 --force", 2, "0"),
        ("- old --layout ranges --force", 2, "a known length"),
        ("nowhere old --force", 11, "nowhere"),
        ("d old --force", 2, "d"),
        ("src o0 --resume", 11, "o0"),
        ("src old --resume", 1, "start the split from the beginning with --force"),
        ("src old --resume --force", 2, "--resume"),
        ("src o0 /dev/tty", 2, "this is not a file or a block device"),
    ] {
        let mut command = stand.command(&format!("split {line}"));
        if line.starts_with('-') {
            command.stdin(Stdio::piped());
        }
        let ran = command.output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{line}: {said}");
        assert!(said.contains(words), "{line}: {said}");
        assert!(before() == was, "{line} changed something: {:?}", before().0);
    }
}

#[test]
fn an_output_that_is_full_ends_it_and_no_output_is_complete() {
    let stand = Stand::new();
    stand.source(20 * MIB);
    for (outs, fault) in [
        ("o0 /dev/full o1", ""),
        ("/dev/full o0 o1 --parity 1", ""),
        ("o0 o1 --codec raw", "--fault op=write,member=1,after=2,error=ENOSPC"),
        ("o0 o1 --codec raw --parity 1", "--fault op=write,member=0,after=20,error=ENOSPC"),
        ("o0 o1 --codec raw --layout ranges", "--fault op=write,member=1,after=1,error=ENOSPC"),
    ] {
        let ran = stand.run(&format!("split src {outs} --force {fault} --json"));
        assert_eq!(ran.code, 1, "{outs}: {}", ran.err);
        let error = ran.events_of("error").pop().unwrap();
        assert_eq!(error["kind"], "no_space", "{error}");
        let at = error["place"].as_str().unwrap();
        let full = if fault.contains("member=1") { "o1" } else { "o0" };
        let full = if fault.is_empty() { "/dev/full" } else { full };
        assert!(at.contains(full), "{error}");
        // Neither of the others is complete, and each says so.
        let there: Vec<_> = outs.split(' ').filter(|it| it.starts_with('o')).collect();
        for out in &there {
            let told = stand.run(&format!("inspect {out} --json")).events_of("output").pop();
            assert!(told.is_none_or(|told| told["complete"] == false), "{out}");
        }
        // /dev/full is written first, so the others may have their heads only, or not even these.
        let (ran, joined) = stand.join(&there.join(" "));
        assert!(joined.is_none());
        assert!(fault.is_empty() || ran.code == 14, "{outs}: {}", ran.err);
        assert!(ran.code != 14 || ran.err.contains("the split is incomplete"), "{}", ran.err);
    }
}

#[test]
fn devices_that_swallow_are_outputs_and_targets() {
    let stand = Stand::new();
    stand.source(9 * MIB);
    let ran = stand.run("split src /dev/null /dev/null --json");
    assert_eq!(ran.code, 0, "{}", ran.err);
    stand.split("", 2);
    for (to, code) in [("/dev/null", 0), ("/dev/full", 1)] {
        let ran = stand.run(&format!("join o0 o1 -o {to} --force"));
        assert_eq!(ran.code, code, "{}", ran.err);
        assert!(fs::metadata(to).unwrap().file_type().is_char_device(), "{to} was replaced");
    }
}

#[test]
fn a_source_that_shrinks_ends_it() {
    let ways = ["", "--parity 1", "--layout ranges --codec raw"];
    each_at_once(ways.len(), &ways, |more| {
        let stand = Stand::new();
        fs::write(stand.path("src"), vec![7; 64 << 20]).unwrap();
        let slow = "--depth 1 --memory 64M --codec raw --fault op=write,after=2,delay=100ms";
        let line = format!("split src o0 o1 --force {slow} {more}");
        let line = if more.contains("codec") { line.replacen("--codec raw", "", 1) } else { line };
        let mut command = stand.command(&line);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // Of plain outputs the logs grow.
        let log = stand.path(if more.contains("ranges") { "o1.pinstripe" } else { "o1" });
        while !fs::metadata(&log).is_ok_and(|it| it.len() > 8192) {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it wrote anything");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        fs::File::options().write(true).open(stand.path("src")).unwrap().set_len(4097).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("became shorter"), "{said}");
        assert_eq!(stand.run("join o0 o1 -o joined").code, 14);
    });
}

#[test]
fn outputs_that_do_not_belong_together_are_refused() {
    let stand = Stand::new();
    let source = stand.source(5 * MIB);
    stand.split("--parity 1", 3);
    fs::create_dir(stand.path("other")).unwrap();
    assert_eq!(stand.run("split src other/0 other/1 other/2 --parity 1 -q").code, 0);
    fs::hard_link(stand.output(1), stand.path("o1-too")).unwrap();
    symlink("o1", stand.path("o1-link")).unwrap();
    fs::copy(stand.output(1), stand.path("o1-copy")).unwrap();
    for (outs, code, words) in [
        ("o0 other/1 o2", 12, "other/1: this output belongs to another split"),
        ("o0 o1 o1", 2, "output 1 was given twice"),
        ("o0 o1 o1-too", 2, "output 1 was given twice"),
        ("o1-link o0 o1", 2, "output 1 was given twice"),
        ("o0 o1-copy o1 o2", 2, "output 1 was given twice"),
        ("src", 1, "check whether these files are outputs of 'pinstripe split'"),
        ("nowhere elsewhere", 11, "no named output exists"),
        ("o0", 15, "too many outputs are missing"),
    ] {
        for verb in ["join", "verify", "cat --range 0..1"] {
            let ran = stand.run(&format!("{verb} {outs}"));
            assert_eq!(ran.code, code, "{verb} {outs}: {}", ran.err);
            assert!(ran.err.contains(words), "{verb} {outs}: {}", ran.err);
        }
        assert!(stand.join(outs).1.is_none(), "{outs}");
    }
    assert_eq!(stand.run("verify nowhere").code, 11, "it may have been meant to be a take");
    assert_eq!(stand.run("join o0 o1 o2 -o o1").code, 1);
    assert_eq!(stand.run("join o0 o1 o2 -o o1 --force").code, 2);
    assert_eq!(stand.run("join o0 o1 o2 -o o1-too --force").code, 2);
    assert_eq!(stand.run("join o0 o1 o2 -o src").code, 1);
    assert_eq!(stand.run("join o0 o1 o2 --store x").code, 2);
    assert_eq!(stand.run("join o0 o1 o2 --json").code, 2);
    stand.assert_whole(3, &source);
}

/// A device is overwritten by force only, and never when it is too small.
#[test]
fn join_refuses_a_device_that_carries_something_or_is_too_small() {
    let stand = Stand::new();
    let content = stand.source(2 * MIB);
    assert_eq!(stand.run("split src o0 o1").code, 0);
    let disk = |bytes: u64| {
        let image = stand.path("disk");
        let xfs = [b"XFSB".to_vec(), vec![0; bytes as usize - 4]].concat();
        fs::write(&image, &xfs).unwrap();
        Loop::on(&image).map(|disk| (disk, xfs))
    };
    let Some((device, was)) = disk(4 * MIB) else {
        return skipped("join_refuses_a_device_that_carries_something", "no loop devices");
    };
    let carries = stand.run(&format!("join o0 o1 -o {}", device.0));
    assert_eq!(carries.code, 14, "{}", carries.err);
    assert!(carries.err.contains("an XFS file system"), "{}", carries.err);
    assert!(fs::read(&device.0).unwrap() == was);
    assert_eq!(stand.run(&format!("join o0 o1 -o {} --force", device.0)).code, 0);
    assert!(fs::read(&device.0).unwrap().starts_with(&content));
    drop(device);
    let Some((device, was)) = disk(MIB) else { return };
    for options in ["", "--force"] {
        let small = stand.run(&format!("join o0 o1 -o {} {options}", device.0));
        assert_eq!(small.code, 1, "{options}: {}", small.err);
        assert!(small.err.contains("too small"), "{}", small.err);
        assert!(fs::read(&device.0).unwrap() == was, "{options}");
    }
    assert_eq!(stand.run(&format!("join o0 o1 -o {} --range 0..1M --force", device.0)).code, 0);
}
