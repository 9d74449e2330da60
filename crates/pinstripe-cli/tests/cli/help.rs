//! Help, version, manual pages, completions.

use crate::stand::Stand;

#[test]
fn help_says_what_there_is() {
    let stand = Stand::new();
    stand.tell("-h");
    stand.tell("--help");
    for verb in [
        "init",
        "backup",
        "snapshots",
        "ls",
        "restore",
        "check",
        "members",
        "member",
        "probe",
        "repair",
        "scrub",
        "key",
        "config",
        "mount",
        "overlay",
        "hint",
        "fakevmcore",
        "array",
        "array assemble",
        "array create",
        "array detail",
        "array examine",
        "array forget",
        "array manage",
        "array monitor",
        "array serve",
        "array stop",
        "record",
        "record ctl",
        "recover",
        "play",
        "lab",
        "lab run",
        "lab run fileio",
        "lab run streams",
        "lab run record-probe",
        "lab run split",
        "lab run stripe",
        "lab run stride",
        "lab run readahead",
        "lab run slices",
        "lab run opmix",
        "lab run dedup",
        "lab run walk",
        "lab run catalog",
        "lab run command",
        "lab compare",
        "lab history",
        "lab import",
        "lab report",
        "lab clean",
        "lab agent",
    ] {
        stand.tell(&format!("{verb} -h"));
    }
    for verb in ["find", "history", "diff", "catalog"] {
        stand.tell(&format!("{verb} -h"));
    }
    stand.tell("backup --help");
    stand.assert("help");
}

#[test]
fn the_version_is_told() {
    let ran = Stand::new().run("--version");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out, format!("pinstripe {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn mistakes_on_the_command_line_are_told_apart() {
    let stand = Stand::new();
    for line in [
        "",
        "frobnicate",
        "backup",
        "ls",
        "ls latest --frobnicate",
        "restore latest",
        "member replace 1",
        "check --memory 1M",
        "check --memory lots",
        "check --threads 0",
        "check --fault op=append",
        "init --encryption none --member m0 --store m0",
        "init --encryption none --member m0 --fault op=append,error=EIO",
        "completions klingon",
    ] {
        assert_eq!(stand.tell(line).code, 2, "{line}");
    }
    stand.assert("usage");
}

#[test]
fn every_shell_gets_its_completions() {
    let stand = Stand::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = stand.run(&format!("completions {shell}"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{shell}");
        for word in
            ["snapshots", "split", "join", "inspect", "fakevmcore", "range", "array", "fileio"]
        {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn manual_pages_are_written_for_every_verb() {
    let stand = Stand::new();
    let page = stand.run("man");
    assert_eq!(page.code, 0);
    assert!(page.out.contains(".TH pinstripe 1") && page.out.contains("Exit codes"));
    assert_eq!(stand.run("man --out pages").code, 0);
    for name in ["pinstripe.1", "pinstripe-backup.1", "pinstripe-restore.1"] {
        let page = std::fs::read_to_string(stand.path("pages").join(name)).unwrap();
        assert!(page.starts_with(".ie"), "{name}");
    }
}

#[test]
fn the_verbs_of_split_have_examples_in_help_and_manual() {
    let stand = Stand::new();
    assert_eq!(stand.run("man --out pages").code, 0);
    for (verb, example) in [
        ("split", "pinstripe split disk.img /mnt/a /mnt/b --resume"),
        ("join", "pinstripe join a b c d -o part --range 10G..11G"),
        ("verify", "pinstripe verify /mnt/?/disk.img.split-*"),
        ("inspect", "pinstripe inspect /mnt/a/disk.img.split-0"),
        ("cat", "pinstripe cat /mnt/?/disk.img.split-* --range 1G..1025M"),
        ("fakevmcore", "pinstripe fakevmcore /mnt/fake --size 1T --block-size 64K"),
    ] {
        let help = stand.run(&format!("{verb} --help"));
        assert!(help.code == 0 && help.out.contains(example), "{verb} --help");
        let page = stand.path("pages").join(format!("pinstripe-{verb}.1"));
        let page = std::fs::read_to_string(page).unwrap().replace('\\', "");
        assert!(page.contains(example), "pinstripe-{verb}.1");
    }
}
