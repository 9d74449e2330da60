//! Finds the comments and literals of a Rust file.

use std::ops::Range;

use super::{find, is_word, newlines};

/// A comment up to the end of its line, or a literal.
#[derive(Debug, PartialEq, Eq)]
pub struct Prose {
    /// The line number at which it begins, from 1.
    pub line: usize,
    /// The text as in the file, with slashes and quotes.
    pub text: String,
}

/// Returns the pieces of prose in these ranges, which are in order.
pub fn pieces(text: &str, ranges: impl Iterator<Item = Range<usize>>) -> Vec<Prose> {
    let (mut line, mut seen) = (1, 0);
    let piece = |range: Range<usize>| {
        line += newlines(&text.as_bytes()[seen..range.start]);
        seen = range.start;
        Prose { line, text: text[range].to_owned() }
    };
    ranges.map(piece).collect()
}

/// The ranges of comments and literals.
pub fn ranges(text: &[u8]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let end = match text[at] {
            b'/' if text[at..].starts_with(b"//") => find(text, at, b"\n"),
            b'/' if text[at..].starts_with(b"/*") => comment_end(text, at),
            b'"' => string_end(text, at),
            b'r' if at == 0 || !is_word(text[at - 1]) || is_literal_prefix(text, at) => {
                raw_string_end(text, at).unwrap_or(at)
            }
            b'\'' => char_end(text, at).unwrap_or(at),
            _ => at,
        };
        if end > at {
            ranges.push(at..end);
        }
        at = end.max(at + 1);
    }
    ranges
}

/// Whether the `r` at this offset follows the `b` or `c` of `br"..."`, `cr"..."`.
fn is_literal_prefix(text: &[u8], at: usize) -> bool {
    matches!(text[at - 1], b'b' | b'c') && (at == 1 || !is_word(text[at - 2]))
}

fn comment_end(text: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

fn raw_string_end(text: &[u8], start: usize) -> Option<usize> {
    let hashes = text[start + 1..].iter().take_while(|&&b| b == b'#').count();
    if text.get(start + 1 + hashes) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let end = find(text, start + 2 + hashes, &close) + close.len();
    Some(end.min(text.len()))
}

/// Returns the end of a character literal; `None` for a lifetime.
fn char_end(text: &[u8], start: usize) -> Option<usize> {
    let inside = text.get(start + 1)?;
    if *inside == b'\\' {
        return Some((find(text, start + 3, b"'") + 1).min(text.len()));
    }
    let width = match inside {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (text.get(start + 1 + width) == Some(&b'\'')).then_some(start + 2 + width)
}
