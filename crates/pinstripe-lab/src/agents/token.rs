//! The secret that a coordinator and its agents share, read from a file that no other user can read.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};

/// The context string for deriving a key from a token; no other program uses this string, so no
/// other program derives the same key.
const CONTEXT: &str = "pinstripe lab agent 2026-11-25 key of a token";
/// A token of fewer bytes can be guessed by a host that has listened to one connection.
const LEAST_BYTES: usize = 32;
const MOST_BYTES: u64 = 4096;
const ADVICE: &str = "create a token with 'openssl rand -hex 32 > FILE; chmod 600 FILE', and copy \
                      this file to all machines";

/// A key derived from a token. The key is never shown and never sent.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Derives the key from the bytes of a token, without leading and trailing white space.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the token is too short, or longer than 4096 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Token> {
        let bytes = bytes.trim_ascii();
        if bytes.len() < LEAST_BYTES || bytes.len() as u64 > MOST_BYTES {
            let error = Error::new(Kind::Refused, "this file does not contain a valid token");
            let error = error.expected(
                format!("{LEAST_BYTES} to {MOST_BYTES} bytes"),
                format!("{} bytes", bytes.len()),
            );
            return Err(error.advice(ADVICE));
        }
        Ok(Token(blake3::derive_key(CONTEXT, bytes)))
    }

    /// Reads a token from a file.
    ///
    /// # Errors
    /// [`Kind::Refused`] if other users may read or write the file, if it belongs to another user,
    /// if it is not a regular file, or if its token is too short; other errors as the system
    /// reports them.
    pub fn read(path: &Path) -> Result<Token> {
        let failed = |error| Error::of_named("cannot read the token file", path, error);
        // Opening a FIFO must not block before its type is checked.
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let refuse = |what: &str| Err(Error::new(Kind::Refused, what.to_owned()).at(path));
        if !found.is_file() {
            return refuse("this is not a regular file, so it cannot be a token file");
        }
        let user = rustix::process::geteuid().as_raw();
        if found.uid() != user && found.uid() != 0 {
            let owner = found.uid();
            return refuse(&format!(
                "the token file belongs to another user ({owner}), who knows the token"
            ));
        }
        let mode = found.mode() & 0o7777;
        if mode & 0o077 != 0 {
            let path = path.display();
            return refuse(&format!(
                "other users can read or change the token file (mode {mode:03o})"
            ))
            .map_err(|error: Error| error.advice(format!("run 'chmod 600 {path}'")));
        }
        Token::from_bytes(&read_at_most(file, MOST_BYTES + 64).map_err(failed)?)
            .map_err(|it| it.at(path))
    }

    /// The key.
    pub(super) fn key(&self) -> &[u8; 32] {
        &self.0
    }
}

fn read_at_most(file: File, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_that_others_can_read_is_refused_and_so_is_a_short_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let with = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Token::read(&path)
        };
        let long = "0123456789abcdef0123456789abcdef";
        for mode in [0o604, 0o640, 0o602, 0o620, 0o666] {
            let error = with(long, mode).unwrap_err();
            assert_eq!(error.kind(), Kind::Refused, "{mode:o}");
            assert!(error.to_string().contains("other users"), "{error}");
        }
        let token = with(&format!("{long}\n"), 0o600).unwrap();
        assert_eq!(token.key(), Token::from_bytes(long.as_bytes()).unwrap().key());
        assert_ne!(token.key(), Token::from_bytes(&[b'x'; 32]).unwrap().key());
        assert_eq!(format!("{token:?}"), "Token(..)");
        for text in ["", "short", &"x".repeat(5000)] {
            assert_eq!(with(text, 0o600).unwrap_err().kind(), Kind::Refused);
        }
        assert_eq!(Token::read(dir.path()).unwrap_err().kind(), Kind::Refused);
        assert_eq!(Token::read(&dir.path().join("no")).unwrap_err().kind(), Kind::NotFound);
    }
}
