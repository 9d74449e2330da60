//! What a backup excludes and why, and what a restore selects, by the options of the command line
//! and the keys of the config file.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::stand::{Stand, assert_ends};

/// A stand with a store and these files below `src`.
fn with_files(names: &[&str]) -> Stand {
    let stand = Stand::with_store();
    for name in names {
        let path = stand.path("src").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    stand
}

/// The names of those of the files that the latest snapshot has.
fn saved<'a>(stand: &Stand, names: &[&'a str]) -> Vec<&'a str> {
    let listed = stand.run("ls latest --json --store m0");
    assert_eq!(listed.code, 0, "{}", listed.err);
    let paths: Vec<_> = listed.events_of("entry");
    let ends = |name: &str| {
        let end = format!("/src/{name}");
        paths.iter().any(|it| it["path"].as_str().is_some_and(|path| path.ends_with(&end)))
    };
    names.iter().copied().filter(|name| ends(name)).collect()
}

#[test]
fn a_changed_rule_applies_to_unchanged_files() {
    let names = ["a.o", "keep.o", "d/a.o", "d/x"];
    let stand = with_files(&names);
    let cases: [(&str, &[&str]); 6] = [
        ("", &names),
        ("--exclude *.o", &["d/x"]),
        ("--exclude *.o --exclude !keep.o", &["keep.o", "d/x"]),
        ("--exclude !keep.o --exclude *.o", &["d/x"]),
        ("--exclude d --exclude !x", &["a.o", "keep.o"]),
        ("--iexclude *.O --exclude-from list", &["a.o", "d/x"]),
    ];
    fs::write(stand.path("list"), "# again\nkeep.*\n!a.o\n!/**/src/a.o\nd/a.o\n").unwrap();
    for (options, expected) in cases {
        let dry = stand.run(&format!("backup src {options} --store m0 --dry-run --json"));
        let real = stand.run(&format!("backup src {options} --store m0 --json"));
        assert_eq!((dry.code, real.code), (0, 0), "{}", real.err);
        assert_eq!(dry.summary()["would_read_bytes"], real.summary()["read_bytes"], "{options}");
        assert_eq!(dry.summary()["walked_entries"], real.summary()["walked_entries"]);
        assert_eq!(saved(&stand, &names), expected, "{options}");
    }
}

#[test]
fn ignore_files_and_limits_also_come_from_the_config_file() {
    let names = ["a.o", "big", "old", "x"];
    let stand = with_files(&names);
    fs::write(stand.path("src/.ignore"), "*.o\n").unwrap();
    fs::write(stand.path("src/big"), vec![0; 5000]).unwrap();
    let old = fs::File::options().write(true).open(stand.path("src/old")).unwrap();
    old.set_modified(SystemTime::now() - Duration::from_secs(50 * 3600)).unwrap();
    let line = "--ignore-file .ignore --exclude-larger-than 4K --exclude-older-than 2d";
    assert_eq!(stand.run(&format!("backup src {line} -q --store m0")).code, 0);
    assert_eq!(saved(&stand, &names), ["x"]);
    let config = format!(
        "[backup.a]\npaths = ['{}']\nignore-file = ['.ignore']\niexclude = ['X']\n\
         exclude-larger-than = '4K'\nexclude-older-than = '2d'\n",
        stand.path("src").display()
    );
    fs::write(stand.path("c.toml"), config).unwrap();
    let line = "backup --named a --config c.toml --store m0 --exclude-larger-than 1M";
    assert_eq!(stand.run(line).code, 0);
    assert_eq!(saved(&stand, &names), ["big"]);
}

#[test]
fn new_options_without_effect_are_noted_and_faults_are_reported() {
    let stand = with_files(&["x"]);
    for dry in ["", " --dry-run"] {
        let ran = stand.run(&format!("backup src --iexclude *.JPG --ignore-file .none{dry}"));
        assert_ends(&ran, 0, "no path matches --iexclude *.JPG");
        assert_ends(&ran, 0, "no directory has a file of --ignore-file .none");
        fs::write(stand.path("src/.ig"), "x\n[\n").unwrap();
        let ran = stand.run(&format!("backup src --ignore-file .ig{dry}"));
        assert_ends(&ran, 0, "line 2 of this ignore file has no effect");
        fs::remove_file(stand.path("src/.ig")).unwrap();
    }
    assert_ends(&stand.run("backup src --ignore-file a/b"), 2, "is not the name of a file");
    assert_ends(&stand.run("backup src --exclude-older-than 3x"), 2, "is not a time span");
}

#[test]
fn explain_names_the_rule_and_needs_no_store() {
    let stand = with_files(&["a.o", "d/a.o", "d/x"]);
    fs::write(stand.path("src/d/.ig"), "# none\n!a.o\nx\n").unwrap();
    let options = "--store nowhere --ignore-file .ig --exclude *.o --exclude !d/a.o";
    let explain = |path: &str, code: i32, text: &str| {
        let ran = stand.run(&format!("backup src {options} --explain {path}"));
        assert_eq!(ran.code, code, "{}{}", ran.out, ran.err);
        assert!(ran.out.contains(text) || ran.err.contains(text), "{}{}", ran.out, ran.err);
    };
    explain("src/a.o", 0, "excluded: ");
    explain("src/a.o", 0, "matches '*.o' (--exclude on the command line)");
    explain("src/d/a.o", 0, "saved: ");
    explain("src/d/x", 0, ".ig:3)");
    explain("src/d", 0, "no rule matches");
    explain("src", 0, "one of the given paths");
    explain("src/gone", 11, "gone");
    explain("m0", 11, "this path is not in any of the given paths");
    let ran = stand.run(&format!("backup src {options} --explain src/d/x --json"));
    let told = &ran.events_of("explanation")[0];
    assert_eq!((&told["saved"], &told["reason"]), (&false.into(), &"rule".into()));
    assert_eq!((&told["rule"], &told["line"]), (&"x".into(), &3.into()));
    assert_eq!(ran.summary()["saved"], false);
}

#[test]
fn a_restore_takes_patterns_from_files() {
    let stand = with_files(&["a.jpg", "b.jpg", "c.txt"]);
    assert_eq!(stand.run("backup src -q").code, 0);
    fs::write(stand.path("in"), "*.jpg\n").unwrap();
    fs::write(stand.path("out"), "b.*\n*.none\n").unwrap();
    let line = "restore latest:{}/src --to to --include-from in --exclude-from out -q";
    assert_ends(&stand.run(line), 0, "");
    let names: Vec<_> = fs::read_dir(stand.path("to")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    fs::write(stand.path("some"), "*.jpg\n*.gif\n").unwrap();
    let some = stand.run("restore latest --to some-of --include-from some");
    assert_ends(&some, 3, "*.gif: no path of the restored part matches this pattern in some:2");
    fs::write(stand.path("none"), "*.gif\n!*.jpg\n").unwrap();
    let none = stand.run("restore latest --to none-of --include-from none");
    assert_ends(&none, 11, "no path of the restored part matches this pattern in none:1");
    fs::write(stand.path("empty"), "# nothing\n").unwrap();
    let empty = stand.run("restore latest --to none-of --include-from empty");
    assert_ends(&empty, 2, "the list contains no pattern");
    assert!(!stand.path("none-of").exists());
}
