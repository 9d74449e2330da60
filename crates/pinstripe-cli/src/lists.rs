//! Lists from files: paths for `--files-from`, patterns for `--exclude-file` and others.
//!
//! A list is read as bytes, because file names are bytes. Nothing is ignored silently: an invalid
//! line is an error that names the list and the line.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe::{Exclude, RuleOrigin, WrittenRule, pattern_lines};
use pinstripe_base::error::{Error, Kind, Result};

/// A longer list is an error: the path is probably a device, or another file by mistake.
const LIST_MAX_BYTES: u64 = 256 << 20;

/// The paths in a list, one per line, or each ended by a zero byte. `-` is standard input. Empty
/// lines name nothing.
///
/// # Errors
/// Fails when the list cannot be read, is too long, or is empty.
pub fn paths(list: &Path, ends_with_zero: bool) -> Result<Vec<PathBuf>> {
    let bytes = if list == Path::new("-") {
        read(io::stdin().lock(), Path::new("standard input"))?
    } else {
        read_file(list)?
    };
    let end = if ends_with_zero { b'\0' } else { b'\n' };
    let mut paths = Vec::new();
    for (number, name) in bytes.split(|&byte| byte == end).enumerate() {
        if name.contains(&0) {
            return Err(Error::new(
                Kind::Usage,
                format!("line {} of the list has a NUL byte", number + 1),
            )
            .at(list)
            .advice("use --from0 for a list of names that end with a NUL byte"));
        }
        if !name.is_empty() {
            paths.push(PathBuf::from(OsStr::from_bytes(name)));
        }
    }
    if paths.is_empty() {
        return Err(Error::new(Kind::Usage, "the list contains no path").at(list));
    }
    Ok(paths)
}

/// The patterns in a list, one per line; empty lines and lines that begin with `#` are skipped. As
/// in .gitignore, spaces at the end of a line do not count, unless a backslash is before them.
///
/// # Errors
/// Fails when the list cannot be read or a pattern is invalid.
pub fn patterns(list: &Path) -> Result<Vec<WrittenRule>> {
    let (bytes, file) = (read_file(list)?, Arc::from(list));
    let mut patterns = Vec::new();
    for (line, text) in pattern_lines(&bytes) {
        let origin = RuleOrigin::List(Arc::clone(&file), line);
        let rule = WrittenRule { text: text.to_vec(), ignores_case: false, origin };
        if let Err(error) = Exclude::of_rules([rule.clone()]) {
            return Err(error.at(rule.origin.to_string()));
        }
        patterns.push(rule);
    }
    Ok(patterns)
}

/// Like [`patterns`], for a list that must not be empty.
///
/// # Errors
/// Fails as [`patterns`] does, or when the list has no pattern.
pub fn some_patterns(list: &Path) -> Result<Vec<WrittenRule>> {
    let patterns = patterns(list)?;
    match patterns.is_empty() {
        true => Err(Error::new(Kind::Usage, "the list contains no pattern").at(list)),
        false => Ok(patterns),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let file =
        File::open(path).map_err(|error| Error::of_named("cannot open the list", path, error))?;
    read(file, path)
}

fn read(source: impl Read, place: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source
        .take(LIST_MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io("cannot read the list", place, error))?;
    if bytes.len() as u64 > LIST_MAX_BYTES {
        return Err(Error::new(Kind::Usage, "the list is too long")
            .at(place)
            .expected(format!("at most {LIST_MAX_BYTES} bytes"), "more"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn paths_are_bytes_up_to_the_end_that_was_said() {
        let lines = list(b"/a b\n\n-x\n/\xff");
        let named = paths(lines.path(), false).unwrap();
        let named: Vec<_> = named.iter().map(|path| path.as_os_str().as_bytes()).collect();
        assert_eq!(named, [&b"/a b"[..], b"-x", b"/\xff"]);
        let zeros = list(b"/a\nb\0/c\0");
        assert_eq!(paths(zeros.path(), true).unwrap(), ["/a\nb", "/c"].map(PathBuf::from));
        let refused = paths(zeros.path(), false).unwrap_err();
        assert!(refused.to_string().contains("line 2 of the list has a NUL byte"), "{refused}");
        assert_eq!(paths(list(b"\n").path(), false).unwrap_err().kind(), Kind::Usage);
        let missing = paths(Path::new("/no/such/list"), false).unwrap_err();
        assert_eq!(missing.kind(), Kind::NotFound);
    }

    #[test]
    fn patterns_may_have_remarks_and_a_bad_one_is_placed() {
        let good = list(b"# caches\n\n*.o\r\n\\#odd\n*.tmp  \n   \na\\  \n");
        let read = patterns(good.path()).unwrap();
        let texts: Vec<_> = read.iter().map(|rule| &rule.text[..]).collect();
        assert_eq!(texts, [&b"*.o"[..], b"\\#odd", b"*.tmp", b"a\\ "]);
        let bad = list(b"*.o\n[a\n");
        let error = patterns(bad.path()).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.place().unwrap().to_string_lossy().ends_with(":2"), "{error}");
    }
}
