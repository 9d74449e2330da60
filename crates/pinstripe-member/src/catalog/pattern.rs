//! Patterns for names and paths, by gitignore's rules, on bytes.
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
//! Patterns do no I/O, and cost at most the product of the lengths of pattern and path.

use pinstripe_base::error::{Error, Kind, Result};

/// A pattern.
#[derive(Debug, Clone)]
pub struct PathPattern {
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

impl PathPattern {
    /// A pattern that matches one absolute path, in which no byte is a wildcard.
    #[must_use]
    pub fn of_place(place: &[u8]) -> PathPattern {
        let name =
            |name: &[u8]| Component::Name(name.iter().map(|&b| PatternToken::Byte(b)).collect());
        let names = place.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        PathPattern { components: names.map(name).collect(), directories_only: false }
    }

    /// Parses a pattern; `noun` is what messages call it.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a pattern that could match nothing or that means something
    /// else elsewhere.
    pub fn parse(noun: &str, text: &[u8]) -> Result<PathPattern> {
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
        Ok(PathPattern { components, directories_only })
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

    /// Whether an absolute path matches, for any type of entry.
    pub fn matches(&self, path: &[u8]) -> bool {
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
