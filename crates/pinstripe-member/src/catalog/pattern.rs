//! Patterns for names and paths, by gitignore's rules, on bytes (`doc/patterns.md`).
//!
//! Patterns do no I/O, and cost at most the product of the lengths of pattern and path. They are
//! matched from the end of the path, because the name alone rules out nearly every path.

use std::borrow::Cow;

use pinstripe_base::error::{Error, Kind, Result};

/// A pattern.
#[derive(Debug, Clone)]
pub struct PathPattern {
    components: Vec<Component>,
    /// The bytes with which a path without its leading slash must begin.
    begin: Vec<u8>,
    directories_only: bool,
    ignores_case: bool,
}

/// Where a pattern was written, which decides what a slash in it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternPlace {
    /// In an option or a list, for absolute paths: a pattern with a slash only inside matches any
    /// end of the path.
    Option,
    /// In a file of rules of one directory, for paths below this directory: a pattern with a slash
    /// at the beginning or inside matches the complete path below the directory.
    Directory,
}

/// What a name must have if a pattern is to match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameHint {
    /// The name is equal to these bytes.
    Exact(Vec<u8>),
    /// The name ends with these bytes.
    Ends(Vec<u8>),
    /// The name begins with these bytes.
    Begins(Vec<u8>),
    /// Nothing is known.
    Any,
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

impl PathPattern {
    /// A pattern that matches one absolute path, in which no byte is a wildcard.
    #[must_use]
    pub fn of_place(place: &[u8]) -> PathPattern {
        let name =
            |name: &[u8]| Component::Name(name.iter().map(|&b| PatternToken::Byte(b)).collect());
        let names = place.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        let components = names.map(name).collect();
        PathPattern { components, begin: Vec::new(), directories_only: false, ignores_case: false }
    }

    /// Parses a pattern; `noun` is what messages call it.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a pattern that could match nothing or that means something
    /// else elsewhere.
    pub fn parse(noun: &str, text: &[u8], place: PatternPlace) -> Result<PathPattern> {
        let bad = |why: &str, advice: &str| {
            let text = String::from_utf8_lossy(text).into_owned();
            Err(Error::new(Kind::Usage, format!("{noun} '{text}' {why}")).advice(advice))
        };
        if place == PatternPlace::Option && text.starts_with(b"~/") {
            let advice = r"write the complete path, or \~ for a directory of that name";
            return bad("begins with ~, which does not mean the home directory here", advice);
        }
        if place == PatternPlace::Option && text.ends_with(b" ") && !text.ends_with(b"\\ ") {
            return bad(
                "ends with a space",
                r"remove the space, or write '\ ' for a name that ends with a space",
            );
        }
        let body = text.strip_suffix(b"/").unwrap_or(text);
        let directories_only = body.len() < text.len();
        let anchored = match place {
            PatternPlace::Option => body.starts_with(b"/"),
            PatternPlace::Directory => body.contains(&b'/'),
        };
        let mut components = Vec::new();
        if !anchored {
            components.push(Component::Any);
        }
        let mut rest = body.strip_prefix(b"/").unwrap_or(body);
        loop {
            let from = rest;
            let tokens = match parse_name(&mut rest) {
                Ok(tokens) => tokens,
                Err(why) => return bad(why, r"put \ before a character that is meant literally"),
            };
            let component = match &from[..from.len() - rest.len()] {
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
                _ => Component::Name(tokens),
            };
            if component != Component::Any || components.last() != Some(&Component::Any) {
                components.push(component);
            }
            match rest.strip_prefix(b"/") {
                Some(below) => rest = below,
                None => break,
            }
        }
        let begin = literal_begin(&components);
        Ok(PathPattern { components, begin, directories_only, ignores_case: false })
    }

    /// The same pattern for paths that [`fold_case`] has changed: it matches letters of both cases.
    #[must_use]
    pub fn ignoring_case(mut self) -> PathPattern {
        for component in &mut self.components {
            if let Component::Name(tokens) = component {
                *tokens = fold_tokens(tokens);
            }
        }
        self.begin = literal_begin(&self.components);
        self.ignores_case = true;
        self
    }

    /// Whether paths must be changed by [`fold_case`] before they are compared.
    pub fn ignores_case(&self) -> bool {
        self.ignores_case
    }

    /// What the name must have if the pattern is to match.
    pub fn hint(&self) -> NameHint {
        let Some(Component::Name(tokens)) = self.components.last() else { return NameHint::Any };
        let literal = |token: &PatternToken| match token {
            PatternToken::Byte(byte) => Some(*byte),
            _ => None,
        };
        let begin: Vec<u8> = tokens.iter().map_while(literal).collect();
        let mut end: Vec<u8> = tokens.iter().rev().map_while(literal).collect();
        end.reverse();
        match (begin.len() == tokens.len(), end.is_empty(), begin.is_empty()) {
            (true, ..) => NameHint::Exact(begin),
            (_, false, _) => NameHint::Ends(end),
            (_, _, false) => NameHint::Begins(begin),
            _ => NameHint::Any,
        }
    }

    /// Whether an entry of this name can match.
    pub fn admits_name(&self, name: &[u8]) -> bool {
        match self.components.last() {
            Some(Component::Name(tokens)) => name_matches(tokens, name),
            _ => true,
        }
    }

    /// Whether the name alone decides.
    pub fn is_about_names(&self) -> bool {
        matches!(self.components[..], [Component::Any, Component::Name(_)])
    }

    /// Whether the pattern matches only directories.
    pub fn is_for_directories(&self) -> bool {
        self.directories_only
    }

    /// Whether an absolute path, or one below the directory of the pattern, matches, for any type
    /// of entry.
    pub fn matches(&self, path: &[u8]) -> bool {
        if self.is_about_names() {
            let split = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
            return self.admits_name(&path[split..]);
        }
        let path = path.strip_prefix(b"/").unwrap_or(path);
        path.starts_with(&self.begin) && components_match(&self.components, path)
    }
}

/// Changes letters to lower case: those of ASCII, and in each name that is UTF-8 all others too.
pub fn fold_case(path: &[u8]) -> Cow<'_, [u8]> {
    if path.is_ascii() {
        return match path.iter().any(u8::is_ascii_uppercase) {
            true => Cow::Owned(path.to_ascii_lowercase()),
            false => Cow::Borrowed(path),
        };
    }
    let names = path.split(|&byte| byte == b'/').map(|name| match std::str::from_utf8(name) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    });
    Cow::Owned(names.collect::<Vec<_>>().join(&b'/'))
}

/// Returns the bytes with which each path that matches begins: those of the first components that
/// have no wildcard.
fn literal_begin(components: &[Component]) -> Vec<u8> {
    let mut begin = Vec::new();
    for (at, component) in components.iter().enumerate() {
        let Component::Name(tokens) = component else { break };
        if at > 0 {
            begin.push(b'/');
        }
        for token in tokens {
            let PatternToken::Byte(byte) = token else { return begin };
            begin.push(*byte);
        }
    }
    begin
}

/// Matches from the end, greedily, and backtracks only to the last `**` met, because backtracking to
/// an earlier one could match nothing more.
fn components_match(pattern: &[Component], path: &[u8]) -> bool {
    let (mut left, mut end) = (pattern.len(), path.len());
    let mut retry = None;
    loop {
        match pattern[..left].last() {
            Some(Component::Any) if left == 1 => return left < pattern.len() || end > 0,
            Some(Component::Any) => {
                // At the end of the pattern, at least one name.
                let from = if left == pattern.len() { split_name(path, end).0 } else { end };
                if left == pattern.len() && end == 0 {
                    return false;
                }
                retry = Some((left, from));
                (left, end) = (left - 1, from);
                continue;
            }
            Some(Component::Name(tokens)) if end > 0 => {
                let (before, name) = split_name(path, end);
                if name_matches(tokens, name) {
                    (left, end) = (left - 1, before);
                    continue;
                }
            }
            None if end == 0 => return true,
            _ => {}
        }
        match retry {
            Some((any, from)) if from > 0 => {
                let (before, _) = split_name(path, from);
                retry = Some((any, before));
                (left, end) = (any - 1, before);
            }
            _ => return false,
        }
    }
}

/// Returns the last name of `path[..end]`, and the end of the path above it.
fn split_name(path: &[u8], end: usize) -> (usize, &[u8]) {
    match path[..end].iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (slash, &path[slash + 1..end]),
        None => (0, &path[..end]),
    }
}

/// Matches a name, from its beginning, with bytes and `*` instead of components and `**`.
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

/// Changes literal bytes to lower case, and adds the lower case of capital letters to sets.
fn fold_tokens(tokens: &[PatternToken]) -> Vec<PatternToken> {
    let mut folded = Vec::new();
    let mut literal = Vec::new();
    let flush = |literal: &mut Vec<u8>, folded: &mut Vec<PatternToken>| {
        folded.extend(fold_case(literal).iter().map(|&byte| PatternToken::Byte(byte)));
        literal.clear();
    };
    for token in tokens {
        match token {
            PatternToken::Byte(byte) => literal.push(*byte),
            PatternToken::Set { negated, ranges } => {
                flush(&mut literal, &mut folded);
                let capitals = ranges.iter().filter_map(|&(low, high)| {
                    let (low, high) = (low.max(b'A'), high.min(b'Z'));
                    (low <= high).then(|| (low.to_ascii_lowercase(), high.to_ascii_lowercase()))
                });
                let ranges = ranges.iter().copied().chain(capitals).collect();
                folded.push(PatternToken::Set { negated: *negated, ranges });
            }
            other => {
                flush(&mut literal, &mut folded);
                folded.push(other.clone());
            }
        }
    }
    flush(&mut literal, &mut folded);
    folded
}

/// Parses a name up to the next slash outside sets.
fn parse_name(rest: &mut &[u8]) -> Result<Vec<PatternToken>, &'static str> {
    let mut tokens = Vec::new();
    while let Some((&byte, tail)) = rest.split_first().filter(|(byte, _)| **byte != b'/') {
        *rest = tail;
        let token = match byte {
            b'*' => PatternToken::Run,
            b'?' => PatternToken::One,
            b'[' => parse_set(rest)?,
            _ => PatternToken::Byte(literal(byte, rest)?),
        };
        if token != PatternToken::Run || tokens.last() != Some(&PatternToken::Run) {
            tokens.push(token);
        }
    }
    Ok(tokens)
}

/// Returns the byte itself, or the byte after a backslash.
fn literal(byte: u8, rest: &mut &[u8]) -> Result<u8, &'static str> {
    const NUL: &str = "contains a NUL byte, which no name can contain";
    match byte {
        0 => Err(NUL),
        b'\\' => {
            let (&escaped, tail) = rest.split_first().ok_or("ends with a single \\")?;
            *rest = tail;
            match escaped {
                0 => Err(NUL),
                b'/' => Err("has a \\ before a slash"),
                _ => Ok(escaped),
            }
        }
        _ => Ok(byte),
    }
}

/// Parses a set whose `[` was already read.
fn parse_set(rest: &mut &[u8]) -> Result<PatternToken, &'static str> {
    const OPEN: &str = "has a [ without a matching ]";
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    if negated {
        *rest = &rest[1..];
    }
    let mut ranges = Vec::new();
    let mut is_empty = true;
    loop {
        let (&byte, tail) = rest.split_first().ok_or(OPEN)?;
        *rest = tail;
        if byte == b']' && !is_empty {
            return Ok(PatternToken::Set { negated, ranges });
        }
        is_empty = false;
        if byte == b'['
            && let Some(class) = parse_class(rest)?
        {
            ranges.extend(class);
            continue;
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

type Class = &'static [(u8, u8)];

/// The classes of bytes; only bytes of ASCII are in any.
const CLASSES: &[(&[u8], Class)] = &[
    (b"alnum", &[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')]),
    (b"alpha", &[(b'A', b'Z'), (b'a', b'z')]),
    (b"blank", &[(b'\t', b'\t'), (b' ', b' ')]),
    (b"cntrl", &[(1, 31), (127, 127)]),
    (b"digit", &[(b'0', b'9')]),
    (b"graph", &[(33, 126)]),
    (b"lower", &[(b'a', b'z')]),
    (b"print", &[(32, 126)]),
    (b"punct", &[(33, 47), (58, 64), (91, 96), (123, 126)]),
    (b"space", &[(9, 13), (b' ', b' ')]),
    (b"upper", &[(b'A', b'Z')]),
    (b"xdigit", &[(b'0', b'9'), (b'A', b'F'), (b'a', b'f')]),
];

/// Parses a class such as `[:alpha:]` whose `[` was already read. Any other text is left:
/// its bytes are members of the set.
fn parse_class(rest: &mut &[u8]) -> Result<Option<Class>, &'static str> {
    let Some(text) = rest.strip_prefix(b":") else { return Ok(None) };
    let end = text.iter().position(|&byte| byte == b']');
    let Some(name) = end.and_then(|end| text[..end].strip_suffix(b":")) else { return Ok(None) };
    *rest = &text[name.len() + 2..];
    let class = CLASSES.iter().find(|(known, _)| *known == name);
    class.map(|(_, ranges)| Some(*ranges)).ok_or("has an unknown character class")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, place: PatternPlace, path: &str) -> bool {
        PathPattern::parse("pattern", pattern.as_bytes(), place).unwrap().matches(path.as_bytes())
    }

    #[test]
    fn a_slash_inside_anchors_only_the_pattern_of_a_directory() {
        for (pattern, path, in_option, in_directory) in [
            ("a/b", "/x/a/b", true, false),
            ("a/b", "/a/b", true, true),
            ("/a", "/a", true, true),
            ("/a", "/x/a", false, false),
            ("a", "/x/a", true, true),
            ("a/", "/x/a", true, true),
            ("a/b/", "/x/a/b", true, false),
            ("**/a/b", "/x/a/b", true, true),
            ("a/**", "/x/a/b", true, false),
            ("a/**/b", "/a/b", true, true),
            ("a/**/b", "/a/x/y/b", true, true),
            ("**", "/a/b", true, true),
            ("/**/", "/a/b", true, true),
            ("[^/]*.c", "/x/a.c", true, false),
            ("[^/]*.c", "/a.c", true, true),
            ("[/a]b", "/ab", true, true),
        ] {
            assert_eq!(matches(pattern, PatternPlace::Option, path), in_option, "{pattern} {path}");
            let found = matches(pattern, PatternPlace::Directory, path);
            assert_eq!(found, in_directory, "{pattern} {path} in a directory");
        }
    }

    #[test]
    fn classes_are_bytes_of_ascii() {
        for (pattern, path, expected) in [
            ("[[:digit:]]", "/7", true),
            ("[[:digit:]]", "/a", false),
            ("[![:digit:]x]", "/a", true),
            ("[![:digit:]x]", "/x", false),
            ("[[:upper:][:punct:]]", "/!", true),
            ("[[:upper:][:punct:]]", "/a", false),
            ("[[:x]", "/:", true),
            ("[[:x]", "/[", true),
            ("[[:]", "/:", true),
        ] {
            assert_eq!(matches(pattern, PatternPlace::Option, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn case_is_folded_in_names_and_sets() {
        for (pattern, path, expected) in [
            ("*.JPG", "/a/B.jPg", true),
            ("[A-C]x", "/BX", true),
            ("[a-c]x", "/BX", true),
            ("[!A-C]x", "/bx", false),
            ("[[:upper:]]", "/b", true),
            ("Äpfel*", "/ÄPFEL.txt", true),
            ("/Home/*/TMP", "/home/Me/tmp", true),
        ] {
            let place = PatternPlace::Option;
            let folded = PathPattern::parse("pattern", pattern.as_bytes(), place).unwrap();
            let folded = folded.ignoring_case();
            let path = fold_case(path.as_bytes());
            assert_eq!(folded.matches(&path), expected, "{pattern}");
        }
        assert_eq!(fold_case(b"A\xff"), &b"a\xff"[..]);
    }

    #[test]
    fn hints_follow_from_the_last_component() {
        let hint = |text: &str| {
            PathPattern::parse("pattern", text.as_bytes(), PatternPlace::Option).unwrap().hint()
        };
        assert_eq!(hint("a/b.c/"), NameHint::Exact(b"b.c".to_vec()));
        assert_eq!(hint(r"\*"), NameHint::Exact(b"*".to_vec()));
        assert_eq!(hint("a*.o"), NameHint::Ends(b".o".to_vec()));
        assert_eq!(hint("tmp-?"), NameHint::Begins(b"tmp-".to_vec()));
        assert_eq!([hint("a/**"), hint("*"), hint("[ab]*")], [const { NameHint::Any }; 3]);
    }
}
