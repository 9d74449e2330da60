//! The conformance test of sources, over the files of a fixture.

use pinstripe_base::error::Kind;
use pinstripe_io::file_tree::FileKind;

use super::{ContentVersion, RangeSource};

/// Files of a test, and the source that shows them.
pub trait SourceFixture {
    /// The source.
    type Source: RangeSource;

    /// Opens the source.
    fn open(&self) -> Self::Source;
    /// Writes a file and creates missing directories. A change of an existing file changes its
    /// version.
    fn write(&self, path: &str, content: &[u8]);
    /// Removes a file.
    fn remove(&self, path: &str);
    /// Makes a symbolic link at the top; `false` if the source does not support them.
    fn link(&self, name: &str, target: &str) -> bool;
}

/// Checks a source; `stand` makes a fixture without files.
pub fn check<S: SourceFixture>(stand: &dyn Fn() -> S) {
    describes_and_lists(&stand());
    reads_ranges(&stand());
    tells_changes(&stand());
}

fn describes_and_lists(stand: &impl SourceFixture) {
    stand.write("below/file", b"content");
    let has_links = stand.link("link", "anywhere");
    let source = stand.open();

    assert_eq!(source.stat(b"").unwrap().kind, FileKind::Directory);
    assert_eq!(source.stat(b"below").unwrap().kind, FileKind::Directory);
    let file = source.stat(b"below/file").unwrap();
    assert_eq!((file.kind, file.version.size), (FileKind::File, 7));
    assert_eq!(source.stat(b"below/file").unwrap(), file, "the same again");
    if has_links {
        assert_eq!(source.stat(b"link").unwrap().kind, FileKind::Symlink);
        assert_eq!(source.target(b"link").unwrap(), b"anywhere");
    }
    assert_eq!(source.target(b"below/file").unwrap_err().kind(), Kind::Usage);
    assert!(source.xattrs(b"below/file").is_ok());

    let mut names: Vec<_> = source.list(b"").unwrap().into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(&*names[0], b"below");
    assert_eq!(names.len(), 1 + usize::from(has_links));
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

fn reads_ranges(stand: &impl SourceFixture) {
    let content: Vec<u8> = (0..300_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    stand.write("file", &content);
    stand.write("empty", b"");
    let source = stand.open();
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
    reads_from_threads(&source, &version, &content);
}

#[allow(clippy::disallowed_methods, reason = "in these tests, many threads read one source")]
fn reads_from_threads(source: &impl RangeSource, version: &ContentVersion, content: &[u8]) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for step in 0..100 {
                    let at = (step * 7919 + thread * 104_729) % 290_000;
                    let mut out = Vec::new();
                    source.read(b"file", version, at as u64..at as u64 + 5000, &mut out).unwrap();
                    assert!(out == content[at..at + 5000]);
                }
            });
        }
    });
}

fn tells_changes(stand: &impl SourceFixture) {
    stand.write("file", b"first");
    let source = stand.open();
    let read = |version: &ContentVersion| {
        let mut out = b"kept".to_vec();
        let read = source.read(b"file", version, 0..2, &mut out).map_err(|error| error.kind());
        assert!(read.is_ok() || out == b"kept", "no bytes of other content are returned");
        read
    };
    let version = || source.stat(b"file").unwrap().version;
    let first = version();
    read(&first).unwrap();

    stand.write("file", b"wirst");
    assert_eq!(read(&first), Err(Kind::Changed), "written");
    let second = version();
    assert_ne!(first, second);
    read(&second).unwrap();

    stand.write("file", b"wi");
    assert_eq!(read(&second), Err(Kind::Changed), "shrunk");
    stand.write("file", b"x");
    assert_eq!(read(&version()), Err(Kind::Changed), "behind the end");
    stand.write("file", b"other");
    assert_eq!(read(&second), Err(Kind::Changed), "replaced");
    let third = version();
    read(&third).unwrap();
    stand.remove("file");
    assert_eq!(read(&third), Err(Kind::Changed), "removed");
    assert_eq!(source.stat(b"file").unwrap_err().kind(), Kind::NotFound);
}
