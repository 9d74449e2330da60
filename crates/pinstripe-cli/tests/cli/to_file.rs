//! Paths that are relative to the current directory, and the restore of one file with a name of its
//! own.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

use crate::stand::{Stand, noise};

fn with_snapshot() -> Stand {
    let stand = Stand::with_store();
    fs::set_permissions(stand.path("src/hello"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    stand
}

#[test]
fn a_relative_path_begins_at_the_current_directory() {
    let stand = with_snapshot();
    let inside = |line: &str| {
        let mut command = stand.command(&format!("{line} --store {{}}/m0"));
        let done = command.current_dir(stand.path("src/sub")).output().unwrap();
        let [out, err] =
            [done.stdout, done.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        (done.status.code(), out, err)
    };
    for line in ["cat latest:../hello", "cat latest:./.././hello"] {
        assert_eq!(inside(line), (Some(0), "hello\n".to_owned(), String::new()), "{line}");
    }
    let (code, _, err) = inside("cat latest:hello");
    assert!(code == Some(11) && err.contains("src/sub/hello"), "{err}");
    for (line, found) in [
        ("ls latest:. --depth 1", "src/sub/noise"),
        ("ls latest ..", "src/hello"),
        ("history noise", "700000"),
        ("restore latest:.. --to {}/to", "restored "),
        ("dump latest:noise", "noise"),
    ] {
        let (code, out, err) = inside(line);
        assert!(code == Some(0) && out.contains(found), "{line}: {out}{err}");
    }
}

#[test]
fn one_file_is_restored_under_a_name_of_its_own() {
    let stand = with_snapshot();
    let entries = || fs::read_dir(stand.path("")).unwrap().count();
    let before = entries();
    let ran = stand.run("restore latest:src/hello --to-file copy --verify --store m0");
    assert!(ran.ends(0, "to-file").contains("to copy"));
    assert_eq!(fs::read_to_string(stand.path("copy")).unwrap(), "hello\n");
    let [copy, source] = ["copy", "src/hello"].map(|it| fs::metadata(stand.path(it)).unwrap());
    assert_eq!((copy.mode(), copy.mtime()), (source.mode(), source.mtime()));
    assert_eq!(entries(), before + 1, "nothing is left beside the file");

    // An existing file is replaced only with --overwrite, and a directory never.
    fs::create_dir(stand.path("directory")).unwrap();
    let noise_to = |to: &str| stand.run(&format!("restore latest:src/sub/noise --store m0 {to}"));
    assert_eq!(noise_to("--to-file copy").code, 14);
    assert_eq!(fs::read_to_string(stand.path("copy")).unwrap(), "hello\n");
    assert_eq!(noise_to("--to-file directory --overwrite").code, 14);
    assert_eq!(noise_to("--to-file none/copy").code, 11);
    assert_eq!(noise_to("--to-file copy --overwrite").code, 0);
    assert_eq!(fs::read(stand.path("copy")).unwrap(), noise(1, 700_000));
    let link = stand.run("restore latest:src/link --to-file link --store m0");
    assert_eq!(link.code, 0, "{}", link.err);
    assert_eq!(fs::read_link(stand.path("link")).unwrap().to_str(), Some("sub/noise"));

    for (what, code) in [("latest", 2), ("latest:src", 2), ("latest:src/none", 11)] {
        let ran = stand.run(&format!("restore {what} --to-file new --store m0"));
        assert_eq!(ran.code, code, "{what}: {}", ran.err);
    }
    assert_eq!(entries(), before + 3);
}

/// As the help of --stdin says.
#[test]
fn standard_input_is_restored_as_a_file() {
    let stand = Stand::with_store();
    let mut backup = stand.command("backup --stdin dump.sql --store m0 -q");
    let mut child = backup.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"create table").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(stand.run("restore latest:/dump.sql --to-file dump --store m0").code, 0);
    assert_eq!(fs::read_to_string(stand.path("dump")).unwrap(), "create table");
}

/// No file appears if a part of it is lost.
#[test]
fn a_file_with_lost_parts_does_not_appear() {
    let stand = with_snapshot();
    for member in ["m1", "m2"] {
        let packs = stand.path(member).join("packs");
        for pack in walk(&packs) {
            let bytes = fs::metadata(&pack).unwrap().len();
            fs::File::options().write(true).open(&pack).unwrap().set_len(bytes / 2).unwrap();
        }
    }
    let ran = stand.run("restore latest:src/sub/noise --to-file noise --store m0");
    assert!(ran.code == 3 || ran.code == 15, "{}: {}", ran.code, ran.err);
    assert!(!stand.path("noise").exists());
    assert!(!ran.out.contains("to noise"), "{}", ran.out);
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    entries.flat_map(|it| if it.is_dir() { walk(&it) } else { vec![it] }).collect()
}
