//! Makes names and texts safe to show on a terminal.
//!
//! A file's creator chooses its name: control characters in a name could move the cursor, change
//! the window's title or forge another line of output. All text for the terminal goes through this
//! module.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Escapes a name: an unprintable character becomes `\n`, `\x1b` or `\u{202e}`, and `\` becomes
/// `\\`, so that two names never look the same.
pub fn name(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' { out.push_str(r"\\") } else { push(&mut out, character) }
        }
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}").expect("a String takes everything");
        }
    }
    out
}

/// Escapes a path, like [`name`].
pub fn path(path: &Path) -> String {
    name(path.as_os_str().as_bytes())
}

/// Escapes a sentence of pinstripe that may quote a name; backslashes stay.
pub fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|character| push(&mut out, character));
    out
}

fn push(out: &mut String, character: char) {
    match character {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        _ if character.is_ascii_control() => {
            write!(out, "\\x{:02x}", character as u32).expect("a String takes everything");
        }
        _ if character.is_control() || is_invisible(character) => {
            write!(out, "{}", character.escape_unicode()).expect("a String takes everything");
        }
        _ => out.push(character),
    }
}

/// Whether a character changes the direction of a line or ends it without being a control
/// character.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_fool_a_terminal_is_escaped() {
        for (bytes, shown) in [
            (&b"plain name.txt"[..], "plain name.txt"),
            ("größe-日本".as_bytes(), "größe-日本"),
            (b"a\nb\tc\rd", r"a\nb\tc\rd"),
            (b"\x1b]0;title\x07", r"\x1b]0;title\x07"),
            (b"latin-\xff\xfe", r"latin-\xff\xfe"),
            (b"half \xe6\x97", r"half \xe6\x97"),
            (br"back\slash", r"back\\slash"),
            ("\u{202e}gpj.exe".as_bytes(), r"\u{202e}gpj.exe"),
            ("\u{85}".as_bytes(), r"\u{85}"),
        ] {
            assert_eq!(name(bytes), shown);
        }
        assert_eq!(text("a\\b\nc"), r"a\b\nc");
    }

    #[test]
    fn no_byte_gets_through_that_is_not_printable() {
        let every: Vec<u8> = (0..=255).collect();
        assert!(name(&every).chars().all(|character| !character.is_control()));
    }
}
