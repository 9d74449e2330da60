//! The argument SNAPSHOT[:PATH] of a verb.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use pinstripe_base::error::{Error, Kind, Result};

/// Splits at the first colon, because names of snapshots have no colons.
///
/// # Errors
/// Fails with [`Kind::Usage`] when the part before the colon is not UTF-8.
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
    Ok((name.to_owned(), OsString::from_vec(path.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_colon_divides() {
        let parsed = |text: &[u8]| parse(OsStr::from_bytes(text)).unwrap();
        assert_eq!(parsed(b"latest"), ("latest".into(), "".into()));
        assert_eq!(parsed(b"1a2b:/a:b"), ("1a2b".into(), "/a:b".into()));
        assert_eq!(parsed(b"latest:\xff").1.as_bytes(), b"\xff");
        assert!(parse(OsStr::from_bytes(b"\xff:a")).is_err());
    }
}
