//! What every source does, as one test over a tree of files.

#![allow(clippy::disallowed_methods, reason = "makes the files that are read")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use super::{ContentVersion, RangeSource};
use pinstripe_base::error::Kind;
use pinstripe_io::file_tree::FileKind;

/// Checks the source that `open` makes of a directory.
pub fn check<S: RangeSource>(open: &dyn Fn(&Path) -> S) {
    describes_and_lists(open);
    reads_ranges(open);
    tells_changes(open);
}

fn describes_and_lists<S: RangeSource>(open: &dyn Fn(&Path) -> S) {
    let stand = tempfile::tempdir().unwrap();
    fs::create_dir(stand.path().join("below")).unwrap();
    fs::write(stand.path().join("below/file"), "content").unwrap();
    symlink("anywhere", stand.path().join("link")).unwrap();
    let source = open(stand.path());

    assert_eq!(source.stat(b"").unwrap().kind, FileKind::Directory);
    let file = source.stat(b"below/file").unwrap();
    assert_eq!((file.kind, file.version.size), (FileKind::File, 7));
    assert_eq!(source.stat(b"below/file").unwrap(), file, "the same again");
    assert_eq!(source.stat(b"link").unwrap().kind, FileKind::Symlink);
    assert_eq!(source.target(b"link").unwrap(), b"anywhere");
    assert_eq!(source.target(b"below/file").unwrap_err().kind(), Kind::Usage);

    let mut names: Vec<_> = source.list(b"").unwrap().into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, [b"below".to_vec().into(), Box::from(&b"link"[..])]);
    for (name, told) in source.list(b"below").unwrap() {
        assert_eq!(&*name, b"file");
        assert!(told.is_none_or(|told| told == file));
    }
    assert!(source.list(b"below/file").is_err());
    for missing in [&b"nothing"[..], b"below/nothing", b"below/file/nothing"] {
        assert_eq!(source.stat(missing).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(source.list(missing).unwrap_err().kind(), Kind::NotFound);
    }
    for unclean in [&b"/etc"[..], b"..", b"below/../link", b"below//file", b"."] {
        assert_eq!(source.stat(unclean).unwrap_err().kind(), Kind::Refused, "{unclean:?}");
    }
    assert!(source.totals().is_ok());
}

fn reads_ranges<S: RangeSource>(open: &dyn Fn(&Path) -> S) {
    let stand = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..300_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    fs::write(stand.path().join("file"), &content).unwrap();
    fs::write(stand.path().join("empty"), "").unwrap();
    let source = open(stand.path());
    let version = source.stat(b"file").unwrap().version;
    let mut out = b"before".to_vec();
    for range in [0..0, 0..300_000, 4095..4097, 299_999..300_000, 100_000..200_001] {
        out.truncate(6);
        source.read(b"file", &version, range.clone(), &mut out).unwrap();
        assert_eq!(&out[..6], b"before");
        assert!(out[6..] == content[range.start as usize..range.end as usize], "{range:?}");
    }
    let beyond = source.read(b"file", &version, 299_999..300_001, &mut out);
    assert_eq!(beyond.unwrap_err().kind(), Kind::Changed);
    let empty = source.stat(b"empty").unwrap().version;
    source.read(b"empty", &empty, 0..0, &mut Vec::new()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (source, content) = (&source, &content);
            scope.spawn(move || {
                for step in 0..200 {
                    let at = (step * 7919 + thread * 104_729) % 290_000;
                    let mut out = Vec::new();
                    source.read(b"file", &version, at as u64..at as u64 + 5000, &mut out).unwrap();
                    assert!(out == content[at..at + 5000]);
                }
            });
        }
    });
}

fn tells_changes<S: RangeSource>(open: &dyn Fn(&Path) -> S) {
    let stand = tempfile::tempdir().unwrap();
    let path = stand.path().join("file");
    let read = |source: &S, version: &ContentVersion| {
        source.read(b"file", version, 0..4, &mut Vec::new()).map_err(|error| error.kind())
    };
    fs::write(&path, "first").unwrap();
    let source = open(stand.path());
    let first = source.stat(b"file").unwrap().version;
    read(&source, &first).unwrap();

    pinstripe_testing::await_tick();
    File::options().write(true).open(&path).unwrap().write_all_at(b"w", 0).unwrap();
    assert_eq!(read(&source, &first), Err(Kind::Changed), "written");
    let second = source.stat(b"file").unwrap().version;
    assert_ne!(first, second);
    read(&source, &second).unwrap();

    File::options().write(true).open(&path).unwrap().set_len(2).unwrap();
    assert_eq!(read(&source, &second), Err(Kind::Changed), "shrunk");
    fs::write(stand.path().join("other"), "other").unwrap();
    let other = source.stat(b"other").unwrap().version;
    source.read(b"other", &other, 0..5, &mut Vec::new()).unwrap();
    fs::rename(stand.path().join("other"), &path).unwrap();
    assert_eq!(read(&source, &second), Err(Kind::Changed), "replaced");
    let third = source.stat(b"file").unwrap().version;
    read(&source, &third).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(read(&source, &third), Err(Kind::Changed), "removed");
    assert_eq!(source.stat(b"file").unwrap_err().kind(), Kind::NotFound);
}
