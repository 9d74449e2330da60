//! The argument SNAPSHOT[:PATH] of a verb, and other paths in snapshots.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};

/// Splits at the first colon, because names of snapshots have no colons. The path is absolute, or
/// empty if none was given.
///
/// # Errors
/// Fails with [`Kind::Usage`] when the part before the colon is not UTF-8, or with the errors of
/// [`absolute`].
pub fn parse(what: &OsStr) -> Result<(String, OsString)> {
    let bytes = what.as_bytes();
    let (name, path) = match bytes.iter().position(|&byte| byte == b':') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &b""[..]),
    };
    let name = std::str::from_utf8(name).map_err(|_| {
        Error::new(Kind::Usage, "this does not identify a snapshot")
            .at(what)
            .advice("write 'latest' or the beginning of a snapshot id, then ':' and a path")
    })?;
    Ok((name.to_owned(), absolute(OsStr::from_bytes(path))?))
}

/// Returns the absolute path in a snapshot that a user means: a relative path begins at the current
/// directory. An empty path stays empty.
///
/// # Errors
/// Fails when the current directory cannot be found.
pub fn absolute(path: &OsStr) -> Result<OsString> {
    if path.is_empty() || Path::new(path).is_absolute() {
        return Ok(path.to_owned());
    }
    let here = std::env::current_dir()
        .map_err(|error| Error::io("cannot find the current directory for", path, error))?;
    Ok(below(here, Path::new(path)).into_os_string())
}

/// Returns a path relative to an absolute directory without symlinks.
fn below(mut directory: PathBuf, path: &Path) -> PathBuf {
    for part in path.components() {
        match part {
            Component::ParentDir => drop(directory.pop()),
            Component::Normal(name) => directory.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_colon_divides() {
        let parsed = |text: &[u8]| parse(OsStr::from_bytes(text)).unwrap();
        assert_eq!(parsed(b"latest"), ("latest".into(), "".into()));
        assert_eq!(parsed(b"1a2b:/a:b"), ("1a2b".into(), "/a:b".into()));
        assert_eq!(parsed(b"latest:/\xff").1.as_bytes(), b"/\xff");
        assert!(parse(OsStr::from_bytes(b"\xff:a")).is_err());
    }

    #[test]
    fn relative_paths_begin_at_a_directory() {
        let from = |path| below(PathBuf::from("/home/me"), Path::new(path));
        let expected = [("a/b", "/home/me/a/b"), (".", "/home/me"), ("./a/", "/home/me/a")];
        let above = [("..", "/home"), ("../you/a", "/home/you/a"), ("../../../..", "/")];
        for (path, whole) in expected.into_iter().chain(above) {
            assert_eq!(from(path), Path::new(whole), "{path}");
        }
    }
}
