//! Exclude patterns follow gitignore's rules, on bytes, and are matched against absolute paths.
//!
//! * A pattern without a slash matches a name at any depth: `*.o`, `.cache`.
//! * A pattern with a leading slash matches the complete absolute path: `/home/*/tmp`.
//! * A pattern with a slash only inside matches any end of the path: `target/debug`.
//! * A pattern with a trailing slash matches only directories: `build/`.
//! * In a pattern, `*` matches any bytes, `?` one byte, and `[a-z]` or `[!a-z]` one byte of a set;
//!   none of these matches a slash.
//! * A component `**` matches any number of components, including none; at the end of a pattern,
//!   one or more.
//! * A `\` makes the next byte literal.
//!
//! A matching entry is left out with everything below it. Patterns do no I/O; an invalid pattern is
//! an error, and never a pattern that silently matches nothing. This type also says whether caches
//! are left out, although the walk finds out which directories are caches (`cache`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_base::error::{Error, Kind, Result};

/// The patterns of one walk. By default nothing is excluded.
#[derive(Debug, Clone, Default)]
pub struct Exclude {
    patterns: Vec<Pattern>,
    caches: bool,
    written: Arc<[WrittenPattern]>,
}

/// A pattern as the user wrote it, and whether any entry matched it. Clones of an [`Exclude`] share
/// this value.
#[derive(Debug)]
struct WrittenPattern {
    text: Vec<u8>,
    is_met: AtomicBool,
}

/// What the patterns decide about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing matches.
    Include,
    /// Leave the path out if it is a directory.
    ExcludeDirectory,
    /// Leave the path out, whatever its type.
    Exclude,
}

#[derive(Debug, Clone)]
pub(super) struct Pattern {
    components: Vec<Component>,
    directories_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Component {
    /// `**`.
    Any,
    /// A name with wildcards, as tokens.
    Name(Vec<PatternToken>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternToken {
    Byte(u8),
    One,
    Run,
    Set { negated: bool, ranges: Vec<(u8, u8)> },
}

impl Exclude {
    /// Parses patterns as the user wrote them.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a pattern that could match nothing or that means something
    /// else elsewhere: empty, an open `[`, a `\` at the end, `.` or `..` or nothing between
    /// slashes, a leading `!`, a `[:class:]`.
    pub fn new<P: AsRef<[u8]>>(patterns: impl IntoIterator<Item = P>) -> Result<Self> {
        let read = |pattern: P| {
            let written =
                WrittenPattern { text: pattern.as_ref().to_vec(), is_met: AtomicBool::new(false) };
            Ok((Pattern::parse("exclude pattern", &written.text)?, written))
        };
        let read = patterns.into_iter().map(read).collect::<Result<Vec<_>>>()?;
        let (patterns, written): (_, Vec<_>) = read.into_iter().unzip();
        Ok(Exclude { patterns, caches: false, written: written.into() })
    }

    /// Records which patterns match this absolute path: see [`unmet`](Self::unmet).
    pub(crate) fn note(&self, path: &[u8], is_directory: bool) {
        for (pattern, written) in self.patterns.iter().zip(self.written.iter()) {
            let is_open = !written.is_met.load(Ordering::Relaxed);
            if is_open && pattern.matches(path) && (is_directory || !pattern.directories_only) {
                written.is_met.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns the patterns, as written, that matched nothing: no entry that a walk left out, or no
    /// path given to [`note`](Self::note).
    pub fn unmet(&self) -> Vec<&[u8]> {
        let unmet = self.written.iter().filter(|it| !it.is_met.load(Ordering::Relaxed));
        unmet.map(|written| &written.text[..]).collect()
    }

    /// The number of patterns, as written.
    pub(crate) fn count(&self) -> usize {
        self.written.len()
    }

    /// Also leaves out the content of a directory with a `CACHEDIR.TAG` that has the signature of
    /// the Cache Directory Tagging Specification. The directory itself and its tag file are kept,
    /// so that it is still a cache after a restore.
    #[must_use]
    pub fn with_caches(self) -> Self {
        Exclude { caches: true, ..self }
    }

    /// Whether caches are left out.
    pub(super) fn leaves_out_caches(&self) -> bool {
        self.caches
    }

    /// Also leaves out one absolute path, in which no byte is a wildcard.
    #[must_use]
    pub(crate) fn with_place(mut self, place: &[u8]) -> Self {
        let name =
            |name: &[u8]| Component::Name(name.iter().map(|&b| PatternToken::Byte(b)).collect());
        let names = place.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        self.patterns
            .push(Pattern { components: names.map(name).collect(), directories_only: false });
        self
    }

    /// Whether a walk leaves out the entry with this absolute path, judged only by this path: a
    /// walk does not reach entries below an excluded directory.
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        match self.judge(path) {
            Verdict::Include => false,
            Verdict::ExcludeDirectory => is_directory,
            Verdict::Exclude => true,
        }
    }

    /// Decides about an absolute path whose parents are known to be included.
    pub(super) fn judge(&self, path: &[u8]) -> Verdict {
        let mut verdict = Verdict::Include;
        for pattern in &self.patterns {
            if verdict == Verdict::ExcludeDirectory && pattern.directories_only {
                continue;
            }
            if pattern.matches(path) {
                if !pattern.directories_only {
                    return Verdict::Exclude;
                }
                verdict = Verdict::ExcludeDirectory;
            }
        }
        verdict
    }
}

impl Pattern {
    /// Parses a pattern; `noun` is what messages call it.
    pub(super) fn parse(noun: &str, text: &[u8]) -> Result<Pattern> {
        let bad = |why: &str, advice: &str| {
            let text = String::from_utf8_lossy(text).into_owned();
            Err(Error::new(Kind::Usage, format!("{noun} '{text}' {why}")).advice(advice))
        };
        if text.starts_with(b"!") {
            return bad(
                "begins with !, and negated patterns are not supported",
                r"write \! for a name that begins with !",
            );
        }
        if text.starts_with(b"~/") {
            let advice = r"write the complete path, or \~ for a directory of that name";
            return bad("begins with ~, which does not mean the home directory here", advice);
        }
        if text.ends_with(b" ") && !text.ends_with(b"\\ ") {
            return bad(
                "ends with a space",
                r"remove the space, or write '\ ' for a name that ends with a space",
            );
        }
        let body = text.strip_suffix(b"/").unwrap_or(text);
        let directories_only = body.len() < text.len();
        let anchored = body.starts_with(b"/");
        let body = body.strip_prefix(b"/").unwrap_or(body);
        let mut components = Vec::new();
        if !anchored {
            components.push(Component::Any);
        }
        for part in body.split(|&byte| byte == b'/') {
            let component = match part {
                b"" => {
                    return bad(
                        "has nothing between two slashes",
                        "write one slash, and a name after it",
                    );
                }
                b"." | b".." => {
                    return bad(
                        "contains the component . or ..",
                        "write the path without . and ..",
                    );
                }
                b"**" => Component::Any,
                _ => match parse_name(part) {
                    Ok(tokens) => Component::Name(tokens),
                    Err(why) => {
                        return bad(why, r"put \ before a character that is meant literally");
                    }
                },
            };
            if component != Component::Any || components.last() != Some(&Component::Any) {
                components.push(component);
            }
        }
        Ok(Pattern { components, directories_only })
    }

    /// Whether an entry of this name can match.
    pub(super) fn admits_name(&self, name: &[u8]) -> bool {
        match self.components.last() {
            Some(Component::Name(tokens)) => name_matches(tokens, name),
            _ => true,
        }
    }

    /// Whether the name alone decides.
    pub(super) fn is_about_names(&self) -> bool {
        matches!(self.components[..], [Component::Any, Component::Name(_)])
    }

    /// Whether the pattern matches only directories.
    pub(super) fn is_for_directories(&self) -> bool {
        self.directories_only
    }

    /// Whether an absolute path matches, for any type of entry.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let split = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        // The name alone settles nearly every path.
        if !self.admits_name(&path[split..]) {
            return false;
        }
        if self.is_about_names() {
            return true;
        }
        let names: Vec<&[u8]> =
            path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        components_match(&self.components, &names)
    }
}

/// Matches greedily and backtracks only to the last `**`, because backtracking to an earlier one
/// could match nothing more.
fn components_match(pattern: &[Component], names: &[&[u8]]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry = None;
    loop {
        match pattern.get(p) {
            Some(Component::Any) if p + 1 == pattern.len() => return n < names.len(),
            Some(Component::Any) => {
                retry = Some((p, n));
                p += 1;
                continue;
            }
            Some(Component::Name(tokens)) if n < names.len() && name_matches(tokens, names[n]) => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            None if n == names.len() => return true,
            _ => {}
        }
        match retry {
            Some((any, from)) if from < names.len() => {
                retry = Some((any, from + 1));
                (p, n) = (any + 1, from + 1);
            }
            _ => return false,
        }
    }
}

/// Matches a name in the same way, with bytes and `*` instead of components and `**`.
fn name_matches(tokens: &[PatternToken], name: &[u8]) -> bool {
    let (mut t, mut n) = (0, 0);
    let mut retry = None;
    loop {
        match tokens.get(t) {
            Some(PatternToken::Run) => {
                retry = Some((t, n));
                t += 1;
                continue;
            }
            Some(token) if n < name.len() && token.takes(name[n]) => {
                (t, n) = (t + 1, n + 1);
                continue;
            }
            None if n == name.len() => return true,
            _ => {}
        }
        match retry {
            Some((run, from)) if from < name.len() => {
                retry = Some((run, from + 1));
                (t, n) = (run + 1, from + 1);
            }
            _ => return false,
        }
    }
}

impl PatternToken {
    fn takes(&self, byte: u8) -> bool {
        match self {
            PatternToken::Byte(literal) => *literal == byte,
            PatternToken::One => true,
            PatternToken::Run => unreachable!("a run is not a single byte; the matcher handles it"),
            PatternToken::Set { negated, ranges } => {
                ranges.iter().any(|&(low, high)| (low..=high).contains(&byte)) != *negated
            }
        }
    }
}

fn parse_name(text: &[u8]) -> Result<Vec<PatternToken>, &'static str> {
    let mut tokens = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let token = match byte {
            b'*' => PatternToken::Run,
            b'?' => PatternToken::One,
            b'[' => parse_set(&mut rest)?,
            _ => PatternToken::Byte(literal(byte, &mut rest)?),
        };
        if token != PatternToken::Run || tokens.last() != Some(&PatternToken::Run) {
            tokens.push(token);
        }
    }
    Ok(tokens)
}

/// Returns the byte itself, or the byte after a backslash.
fn literal(byte: u8, rest: &mut &[u8]) -> Result<u8, &'static str> {
    match byte {
        0 => Err("contains a NUL byte, which no name can contain"),
        b'\\' => {
            let (&escaped, tail) = rest.split_first().ok_or("ends with a single \\")?;
            *rest = tail;
            literal_escaped(escaped)
        }
        _ => Ok(byte),
    }
}

fn literal_escaped(byte: u8) -> Result<u8, &'static str> {
    if byte == 0 { Err("contains a NUL byte, which no name can contain") } else { Ok(byte) }
}

/// Parses a set whose `[` was already read.
fn parse_set(rest: &mut &[u8]) -> Result<PatternToken, &'static str> {
    const OPEN: &str = "has a [ without a matching ]";
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    if negated {
        *rest = &rest[1..];
    }
    let mut ranges = Vec::new();
    loop {
        let (&byte, tail) = rest.split_first().ok_or(OPEN)?;
        *rest = tail;
        match byte {
            b']' if !ranges.is_empty() => return Ok(PatternToken::Set { negated, ranges }),
            b'[' if rest.first() == Some(&b':') => {
                return Err("has a character class such as [:alpha:], which is not supported");
            }
            _ => {}
        }
        let low = literal(byte, rest)?;
        let mut high = low;
        if let [b'-', end, tail @ ..] = *rest
            && *end != b']'
        {
            *rest = tail;
            high = literal(*end, rest)?;
        }
        if high < low {
            return Err("has a range whose end comes before its beginning");
        }
        ranges.push((low, high));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(pattern: &str, path: &str) -> Verdict {
        Exclude::new([pattern]).unwrap().judge(path.as_bytes())
    }

    #[test]
    fn patterns_match_what_people_expect() {
        use Verdict::{Exclude as Yes, ExcludeDirectory as Dir, Include as No};
        for (pattern, path, expected) in [
            ("*.o", "/src/a.o", Yes),
            ("*.o", "/src/deep/er/a.o", Yes),
            ("*.o", "/src/a.oo", No),
            ("*.o", "/src.o/a", No),
            ("*.o", "/.o", Yes),
            ("cache", "/home/a/cache", Yes),
            ("cache", "/home/a/cached", No),
            ("cache", "/cache", Yes),
            ("cache/", "/home/a/cache", Dir),
            ("/cache", "/cache", Yes),
            ("/cache", "/home/cache", No),
            ("/home/*/tmp", "/home/a/tmp", Yes),
            ("/home/*/tmp", "/home/a/b/tmp", No),
            ("/home/*/tmp", "/home/tmp", No),
            ("target/debug", "/x/target/debug", Yes),
            ("target/debug", "/target/debug", Yes),
            ("target/debug", "/target/x/debug", No),
            ("target/debug", "/x/target/debug/y", No),
            ("target/debug/", "/x/target/debug", Dir),
            ("a/**/b", "/a/b", Yes),
            ("a/**/b", "/x/a/y/z/b", Yes),
            ("a/**/b", "/x/a/y/z/bb", No),
            ("/a/**/b", "/x/a/b", No),
            ("/a/**/b/**/c", "/a/b/b/d/c", Yes),
            ("/a/**/b/**/c", "/a/d/c", No),
            ("**/b", "/a/b", Yes),
            ("**/b", "/b", Yes),
            ("/a/**", "/a/b/c", Yes),
            ("/a/**", "/a", No),
            ("a/*", "/x/a/b", Yes),
            ("a/*", "/x/a", No),
            ("a/**/**/b", "/a/b", Yes),
            ("**", "/a", Yes),
            ("/**", "/a/b", Yes),
            ("a?c", "/abc", Yes),
            ("a?c", "/ac", No),
            ("a*b*c", "/aXbYbZc", Yes),
            ("a*b*c", "/aXcYb", No),
            ("a**c", "/abbc", Yes),
            ("a**c", "/a/c", No),
            ("[a-c]x", "/bx", Yes),
            ("[a-c]x", "/dx", No),
            ("[!a-c]x", "/dx", Yes),
            ("[^a-c]x", "/ax", No),
            ("[]]x", "/]x", Yes),
            ("[a-]x", "/-x", Yes),
            (r"[\]a]x", "/]x", Yes),
            (r"\*x", "/*x", Yes),
            (r"\*x", "/yx", No),
            (r"\!x", "/!x", Yes),
            ("*", "/a/b", Yes),
            ("**a*", "/xxay", Yes),
        ] {
            assert_eq!(judge(pattern, path), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn names_are_bytes() {
        let exclude = Exclude::new([&b"caf\xe9*"[..], b"[\xf0-\xff]"]).unwrap();
        assert_eq!(exclude.judge(b"/x/caf\xe9.txt"), Verdict::Exclude);
        assert_eq!(exclude.judge(b"/x/\xf8"), Verdict::Exclude);
        assert_eq!(exclude.judge(b"/x/\xc3"), Verdict::Include);
        assert_eq!(Exclude::new([b"?"]).unwrap().judge(b"/\xff"), Verdict::Exclude);
    }

    #[test]
    fn the_gravest_verdict_wins() {
        let exclude = Exclude::new(["x/", "y/", "x*"]).unwrap();
        assert_eq!(exclude.judge(b"/x"), Verdict::Exclude);
        assert_eq!(exclude.judge(b"/y"), Verdict::ExcludeDirectory);
        assert_eq!(Exclude::default().judge(b"/x"), Verdict::Include);
    }

    #[test]
    fn patterns_that_cannot_be_meant_are_refused() {
        for pattern in [
            "",
            "/",
            "//",
            "a//b",
            "./a",
            "a/..",
            "[",
            "[]",
            "[a",
            "[!",
            "[a-",
            "x[b-a]",
            "a\\",
            "!a",
            "[[:alpha:]]",
            "a\0b",
            "\\\0",
        ] {
            let error = Exclude::new([pattern]).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{pattern:?}");
            assert!(error.advice_text().is_some(), "{pattern:?}");
        }
    }

    #[test]
    fn many_stars_cost_little() {
        let pattern = "*a".repeat(60);
        let path = format!("/{}b", "a".repeat(4000));
        assert_eq!(judge(&pattern, &path), Verdict::Include);
        let pattern = format!("/{}z", "**/a/".repeat(60));
        let path = "/a".repeat(2000);
        assert_eq!(judge(&pattern, &path), Verdict::Include);
    }
}
