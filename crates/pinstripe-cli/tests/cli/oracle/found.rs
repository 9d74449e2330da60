//! Differences between the product and the model that seeds found, one test for each.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use pinstripe_testing::{in_own_mounts, skipped};
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::stand::{Ran, Stand};

/// A stand with a store and these files in `src`; the content of each is its name.
fn with_files(names: &[&str]) -> Stand {
    let stand = Stand::in_memory();
    assert_eq!(stand.run("init --encryption none --member m0 -q").code, 0);
    files(&stand.path("src"), names);
    stand
}

fn files(at: &Path, names: &[&str]) {
    for name in names {
        let path = at.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
}

fn run(stand: &Stand, line: &str) -> Ran {
    stand.run(&format!("{line} --store m0"))
}

fn assert_ends(ran: &Ran, code: i32) {
    assert_eq!(ran.code, code, "{}{}", ran.out, ran.err);
}

/// Runs a restore after its dry run. Returns both summaries.
fn both(stand: &Stand, line: &str, code: i32) -> [serde_json::Value; 2] {
    let dry = run(stand, &format!("{line} --dry-run --json"));
    assert_ends(&dry, code);
    let real = run(stand, &format!("{line} --json"));
    assert_ends(&real, code);
    [dry.summary(), real.summary()]
}

/// Two links and a bind mount give one file three names.
#[test]
fn a_file_with_more_names_than_links_is_saved_under_each() {
    let test = "a_file_with_more_names_than_links_is_saved_under_each";
    in_own_mounts(test, || {
        let stand = with_files(&["b/file"]);
        let src = stand.path("src");
        fs::hard_link(src.join("b/file"), src.join("c")).unwrap();
        fs::create_dir(src.join("a")).unwrap();
        if mount_bind(src.join("b"), src.join("a")).is_err() {
            return skipped(test, "no bind mount is possible here");
        }
        for _ in 0..2 {
            let [dry, real] = ["backup src --dry-run --json", "backup src --json"].map(|line| {
                let ran = run(&stand, line);
                assert_ends(&ran, 0);
                ran.summary()
            });
            assert_eq!(dry["would_read_bytes"], real["read_bytes"]);
        }
        assert_ends(&run(&stand, "restore latest:{}/src --to new -q"), 0);
        for name in ["a/file", "b/file", "c"] {
            assert_eq!(fs::read(stand.path("new").join(name)).unwrap(), b"b/file", "{name}");
        }
        unmount(src.join("a"), UnmountFlags::DETACH).unwrap();
    });
}

#[test]
fn a_directory_in_the_way_of_a_lone_file_is_shown_and_guarded() {
    let stand = with_files(&["file"]);
    assert_ends(&run(&stand, "backup src -q"), 0);
    fs::remove_file(stand.path("src/file")).unwrap();
    files(&stand.path("src/file"), &["a", "b", "c/d"]);
    let line = "restore latest:{}/src/file --in-place --delete";
    assert_ends(&run(&stand, &format!("{line} --dry-run")), 14);
    assert_ends(&run(&stand, line), 14);
    assert!(stand.path("src/file/c/d").exists());
    let [dry, real] = both(&stand, &format!("{line} --yes"), 0);
    assert_eq!((&dry["remove_entries"], &dry["remove_bytes"]), (&5.into(), &5.into()));
    assert_eq!((&real["removed_entries"], &real["removed_bytes"]), (&5.into(), &5.into()));
    assert_eq!(fs::read(stand.path("src/file")).unwrap(), b"file");
}

#[test]
fn removed_files_with_several_names_count_once_in_a_dry_run_too() {
    let stand = with_files(&["1", "2", "3", "4", "keep"]);
    assert_ends(&run(&stand, "backup src -q"), 0);
    let src = stand.path("src");
    files(&src, &["extra", "d/more"]);
    fs::hard_link(src.join("extra"), src.join("extra too")).unwrap();
    // Another name is replaced, and another one stays.
    fs::hard_link(src.join("d/more"), stand.path("outside")).unwrap();
    fs::remove_file(src.join("keep")).unwrap();
    fs::hard_link(src.join("extra"), src.join("keep")).unwrap();
    let [dry, real] = both(&stand, "restore latest:{}/src --in-place --delete", 0);
    let bytes = "extra".len() + "d/more".len();
    assert_eq!((&dry["remove_entries"], &dry["remove_bytes"]), (&4.into(), &bytes.into()));
    assert_eq!((&real["removed_entries"], &real["removed_bytes"]), (&4.into(), &bytes.into()));
}

/// File systems choose the size of a directory by the number of its names.
#[test]
fn a_directory_has_no_content_of_its_own_in_a_history() {
    let stand = with_files(&["d/a"]);
    assert_ends(&run(&stand, "backup src -q"), 0);
    files(&stand.path("src"), &["d/b", "d/c"]);
    assert_ends(&run(&stand, "backup src -q"), 0);
    let told = run(&stand, "history {}/src/d --json");
    let told: Vec<_> = told.events_of("version").iter().map(|it| it["what"].clone()).collect();
    assert_eq!(told, ["first", "metadata"]);
}

#[test]
fn a_missing_path_with_dots_stays_among_the_sources() {
    let stand = with_files(&["d/a"]);
    let backup = |line: &str, code| {
        let ran = run(&stand, line);
        assert_ends(&ran, code);
        ran.summary()
    };
    let line = "backup src src/d/../gone --json";
    files(&stand.path("src"), &["gone/x"]);
    let whole = backup(line, 0);
    fs::remove_dir_all(stand.path("src/gone")).unwrap();
    let without = backup(line, 3);
    assert_eq!(whole["sources"], without["sources"]);
    let unknown = backup("backup src src/nowhere/../gone --json", 3);
    assert_eq!(unknown["sources"].as_array().unwrap().len(), 1);
}

/// A blocked later name is not tried: that would touch the file.
#[test]
fn a_blocked_name_does_not_touch_the_other_names_of_its_file() {
    let stand = with_files(&["a", "z"]);
    let src = stand.path("src");
    fs::hard_link(src.join("a"), src.join("b")).unwrap();
    fs::hard_link(src.join("z"), src.join("y")).unwrap();
    assert_ends(&run(&stand, "backup src -q"), 0);
    for blocked in ["b", "y"] {
        fs::remove_file(src.join(blocked)).unwrap();
        files(&src, &[&format!("{blocked}/in the way")]);
    }
    let ctimes = || {
        ["a", "z"].map(|name| {
            let stat = fs::metadata(src.join(name)).unwrap();
            (stat.ctime(), stat.ctime_nsec())
        })
    };
    let before = ctimes();
    pinstripe_testing::await_tick();
    both(&stand, "restore latest:{}/src --in-place", 3);
    assert_eq!(ctimes(), before);
}

/// No hard link leads from one mount to another one.
#[test]
fn names_of_a_file_on_several_mounts_of_the_target_are_all_restored() {
    let test = "names_of_a_file_on_several_mounts_of_the_target_are_all_restored";
    in_own_mounts(test, || {
        let stand = with_files(&["a", "b"]);
        let (src, to) = (stand.path("src"), stand.path("to"));
        for name in ["d/c", "d/e"] {
            fs::create_dir_all(src.join("d")).unwrap();
            fs::hard_link(src.join("a"), src.join(name)).unwrap();
        }
        assert_ends(&run(&stand, "backup src -q"), 0);
        fs::create_dir_all(to.join("d")).unwrap();
        if !pinstripe_testing::mount("tmpfs", "size=1m", Path::new("tmpfs"), &to.join("d")) {
            return skipped(test, "no tmpfs can be mounted here");
        }
        let line = "restore latest:{}/src --to to --in-place";
        let [dry, _] = both(&stand, line, 0);
        assert_eq!(dry["make_entries"], 4);
        let [again, _] = both(&stand, &format!("{line} --checksum"), 0);
        assert_eq!(again["keep_entries"], 5);
        for name in ["a", "d/c", "d/e"] {
            assert_eq!(fs::read(to.join(name)).unwrap(), b"a", "{name}");
        }
        let inode = |name| fs::metadata(to.join(name)).unwrap().ino();
        assert_eq!(inode("d/c"), inode("d/e"));
        unmount(to.join("d"), UnmountFlags::DETACH).unwrap();
    });
}

#[test]
fn a_mount_in_the_way_has_one_reason() {
    let test = "a_mount_in_the_way_has_one_reason";
    in_own_mounts(test, || {
        let stand = with_files(&["a"]);
        std::os::unix::fs::symlink("a", stand.path("src/link")).unwrap();
        assert_ends(&run(&stand, "backup src -q"), 0);
        let at = stand.path("to/link");
        fs::create_dir_all(&at).unwrap();
        if !pinstripe_testing::mount("tmpfs", "size=1m", Path::new("tmpfs"), &at) {
            return skipped(test, "no tmpfs can be mounted here");
        }
        let line = "restore latest:{}/src --to to --in-place --json";
        let reasons = [" --dry-run", ""].map(|dry| {
            let ran = run(&stand, &format!("{line}{dry}"));
            assert_ends(&ran, 3);
            ran.events_of("problem")
        });
        assert_eq!(reasons[0], reasons[1]);
        unmount(&at, UnmountFlags::DETACH).unwrap();
    });
}

/// A file that is kept because of its size and time has a byte where the snapshot has a hole.
#[test]
fn verify_finds_a_byte_in_a_hole() {
    let stand = with_files(&["a"]);
    let source = fs::File::create(stand.path("src/sparse")).unwrap();
    source.write_all_at(b"data", 0).unwrap();
    source.set_len(1 << 20).unwrap();
    assert_ends(&run(&stand, "backup src -q"), 0);
    let line = "restore latest:{}/src --to to --in-place --verify --json";
    assert_ends(&run(&stand, line), 0);
    let restored = stand.path("to/sparse");
    let time = fs::metadata(&restored).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&restored).unwrap();
    file.write_all_at(b"!", 500_000).unwrap();
    file.set_modified(time).unwrap();
    let found = run(&stand, line);
    assert_ends(&found, 3);
    assert!(found.err.contains("are not zeros"), "{}", found.err);
    assert_ends(&run(&stand, &format!("{line} --checksum")), 0);
    assert_ends(&run(&stand, line), 0);
}
