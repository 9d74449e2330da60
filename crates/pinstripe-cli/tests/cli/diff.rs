//! A snapshot compared with a directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::stand::Stand;

/// The lines of a comparison, with the names below `directory` only.
fn lines(stand: &Stand, line: &str, directory: &str) -> Vec<String> {
    let ran = stand.run(&format!("{line} --store m0"));
    assert_eq!(ran.code, 0, "{line}: {}", ran.err);
    let below = format!("/{directory}/");
    let line = |line: &str| {
        let (letter, path) = line.split_once(' ')?;
        let (_, name) = path.rsplit_once(&below)?;
        Some(format!("{letter} {name}"))
    };
    let mut lines: Vec<_> = ran.out.lines().filter_map(line).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_snapshot_is_compared_with_a_directory() {
    let stand = Stand::with_store();
    let write = |name: &str, content: &str| fs::write(stand.path("src").join(name), content);
    fs::create_dir_all(stand.path("src/kept/inner")).unwrap();
    for name in ["same", "longer", "silent", "mode", "gone", "kind", "kept/file"] {
        write(name, "content").unwrap();
    }
    symlink("same", stand.path("src/to")).unwrap();
    stand.run("backup src --store m0").ends(0, "backup");
    assert_eq!(lines(&stand, "diff latest src/", "src"), Vec::<String>::new());
    let same = stand.run("diff latest ./src --store m0");
    assert!(same.ends(0, "no change").contains("no difference"));

    write("longer", "more content").unwrap();
    let modified = fs::metadata(stand.path("src/silent")).unwrap().modified().unwrap();
    write("silent", "CONTENT").unwrap();
    fs::File::open(stand.path("src/silent")).unwrap().set_modified(modified).unwrap();
    fs::set_permissions(stand.path("src/mode"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(stand.path("src/gone")).unwrap();
    fs::remove_file(stand.path("src/kind")).unwrap();
    fs::create_dir(stand.path("src/kind")).unwrap();
    fs::remove_file(stand.path("src/to")).unwrap();
    symlink("longer", stand.path("src/to")).unwrap();
    write("kept/new", "new").unwrap();
    fs::set_permissions(stand.path("src/kept/inner"), fs::Permissions::from_mode(0o700)).unwrap();
    let expected =
        ["A kept/new", "D gone", "M longer", "M to", "T kind", "m kept/inner/", "m mode"];
    assert_eq!(lines(&stand, "diff latest src/", "src"), expected);
    let found = lines(&stand, "diff latest src/ --checksum", "src");
    assert!(found.contains(&"M silent".to_owned()), "{found:?}");
    // A path of the snapshot beside another directory.
    fs::create_dir(stand.path("other")).unwrap();
    fs::write(stand.path("other/file"), "different").unwrap();
    let found = lines(&stand, "diff latest:{}/src/kept ./other", "other");
    assert_eq!(found, ["D inner/", "M file"]);
    // Nothing was changed, and the events say the same.
    assert_eq!(fs::read(stand.path("src/longer")).unwrap(), b"more content");
    let events = stand.run("diff latest src/ --json --store m0").events_of("difference");
    let is_gone = |event: &&serde_json::Value| event["path"].as_str().unwrap().ends_with("/gone");
    assert_eq!(events.iter().find(is_gone).unwrap()["change"], "deleted");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let stand = Stand::with_store();
    stand.run("backup src --store m0").ends(0, "backup");
    for (line, code) in [
        ("diff latest latest --checksum", 2),
        ("diff latest:{}/src latest", 2),
        ("diff latest ./missing", 11),
        ("diff latest /dev/null", 11),
        ("diff latest m1/", 14),
    ] {
        let refused = stand.run(&format!("{line} --store m0"));
        assert_eq!(refused.code, code, "{line}: {}", refused.err);
    }
}
