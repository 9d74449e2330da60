//! The wording of problems and errors: `PLACE: what (expected .., found ..): cause`, and on the
//! next line an advice.

use std::path::Path;

use pinstripe_base::error::Error;
use pinstripe_base::units;

use crate::escape;

/// A message of one or two lines, without a newline at the end.
pub fn message(level: &str, place: Option<&Path>, error: &Error) -> String {
    let mut out = format!("pinstripe: {level}: ");
    if let Some(place) = whole_place(place, error.place()) {
        out += &place;
        out += ": ";
    }
    out += &facts(error);
    if let Some(advice) = error.advice_text() {
        out += &format!("\n  what to do: {}", escape::text(advice));
    }
    out
}

/// The failure and its cause, without the place and the advice.
pub fn facts(error: &Error) -> String {
    let mut out = escape::text(error.what());
    if let Some((expected, found)) = error.expected_found() {
        let (expected, found) = (escape::text(expected), escape::text(found));
        out += &format!(" (expected {expected}, found {found})");
    }
    if let Some(cause) = error.cause() {
        out += &format!(": {}", escape::text(&plain_cause(cause)));
    }
    out
}

/// The path that the problem is about and the path of the error; only one of them if it contains
/// the other.
fn whole_place(about: Option<&Path>, arose: Option<&Path>) -> Option<String> {
    match (about, arose) {
        (None, None) => None,
        (Some(place), None) | (None, Some(place)) => Some(escape::path(place)),
        (Some(about), Some(arose)) if arose.starts_with(about) || arose.ends_with(about) => {
            Some(escape::path(arose))
        }
        (Some(about), Some(arose)) if about.starts_with(arose) || about.ends_with(arose) => {
            Some(escape::path(about))
        }
        (Some(about), Some(arose)) => {
            Some(format!("{}: {}", escape::path(about), escape::path(arose)))
        }
    }
}

/// The system's message without the error number.
fn plain_cause(cause: &std::io::Error) -> String {
    let text = cause.to_string();
    match cause.raw_os_error() {
        Some(number) => match text.strip_suffix(&format!(" (os error {number})")) {
            Some(words) => words.to_owned(),
            None => text,
        },
        None => text,
    }
}

/// A count with its noun: `1 pack`, `2 packs`.
pub fn counted(count: u64, name: &str) -> String {
    units::counted(count, name, &format!("{name}s"))
}

#[cfg(test)]
mod tests {
    use pinstripe_base::error::Kind;

    use super::*;

    #[test]
    fn a_message_says_where_what_and_what_to_do() {
        let error = Error::new(Kind::Corrupt, "wrong checksum").expected("aa", "bb").advice("weep");
        assert_eq!(
            message("error", Some(Path::new("/m/packs")), &error),
            "pinstripe: error: /m/packs: wrong checksum (expected aa, found bb)\n  what to do: weep"
        );
        let error = Error::io("cannot open", "/a/b\x1b", rustix::io::Errno::ACCESS);
        assert_eq!(
            message("warning", None, &error),
            "pinstripe: warning: /a/b\\x1b: cannot open: Permission denied"
        );
    }

    #[test]
    fn a_place_is_told_once() {
        let told = |about: &str, arose: &str| {
            whole_place(Some(Path::new(about)), Some(Path::new(arose))).unwrap()
        };
        assert_eq!(told("/a", "/a/b"), "/a/b");
        assert_eq!(told("a/b", "/a/b"), "/a/b");
        assert_eq!(told("/a/b", "b"), "/a/b");
        assert_eq!(told("/a/b", "/c"), "/a/b: /c");
    }
}
