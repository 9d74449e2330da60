//! One Rust file as tidy sees it: without comments, strings and tests, at unchanged positions.
//!
//! The module is a scanner, not a parser: it knows just enough of the language (nested comments,
//! raw strings, lifetimes, `#[cfg(test)]` items) to never take prose for code. Removed bytes become
//! spaces, and newlines are kept, so that offsets and line numbers are those of the file.

mod prose;

use std::ops::Range;

pub use prose::Prose;

/// A scanned file.
pub struct Source {
    /// The code of the product, in which comments, literals and tests are replaced by blanks.
    pub product: Vec<u8>,
    /// The number of lines that are not inside tests.
    pub product_lines: usize,
    /// Modules in files of their own that are declared only for tests.
    pub test_modules: Vec<String>,
    /// All modules that are declared to be in files of their own.
    pub modules: Vec<String>,
    /// Comments and literals of the product, in their order.
    pub prose: Vec<Prose>,
}

/// The name that stands for an import whose rooms cannot be determined.
pub const HIDDEN: &str = "*";

/// A function of the product.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line number of the `fn`, from 1.
    pub line: usize,
    /// The number of lines from `fn` to the closing brace.
    pub lines: usize,
}

impl Source {
    /// Scans a file.
    pub fn scan(text: &str) -> Source {
        let ranges = prose::ranges(text.as_bytes());
        let mut code = text.as_bytes().to_vec();
        for range in &ranges {
            blank(&mut code[range.clone()]);
        }
        let modules = declared_modules(&code);
        let tests = test_items(&code);
        let mut product = code.clone();
        for range in &tests {
            blank(&mut product[range.clone()]);
        }
        let kept = declared_modules(&product);
        let test_modules = modules.iter().filter(|name| !kept.contains(name)).cloned().collect();
        let in_tests: usize = tests.iter().map(|range| lines_within(&code, range)).sum();
        let all = text.lines().count();
        let is_product = |range: &Range<usize>| !tests.iter().any(|it| it.contains(&range.start));
        let prose = prose::pieces(text, ranges.into_iter().filter(is_product));
        let product_lines = all.saturating_sub(in_tests);
        Source { product_lines, product, test_modules, modules, prose }
    }

    /// The line number of an offset, from 1.
    pub fn line(&self, offset: usize) -> usize {
        1 + newlines(&self.product[..offset])
    }

    /// Returns the first names after `crate::`, or after the number of `super::` that leads to the
    /// crate's root from a file whose module is `depth` below it; each name has its offset.
    /// [`HIDDEN`] stands for a `use` that renames the root or imports all its items, because the
    /// rooms cannot then be determined.
    pub fn rooms_named(&self, depth: usize) -> Vec<(String, usize)> {
        let code = &self.product;
        let inline = inline_modules(code);
        let mut named = Vec::new();
        for at in whole_words(code, b"crate") {
            let end = at + "crate".len();
            match skip_colons(code, end) {
                Some(after) => heads(code, after, &mut named),
                None if word_at(code, skip_blanks(code, end)) == "as" => {
                    named.push((HIDDEN.to_owned(), at));
                }
                // `extern crate self as name`.
                None if word_at(code, skip_blanks(code, end)) == "self" => {
                    named.push((HIDDEN.to_owned(), at));
                }
                None => {}
            }
        }
        for at in whole_words(code, b"super") {
            if before_is_colons(code, at) {
                continue; // Counted from the first `super` of the chain.
            }
            let depth = depth + inline.iter().filter(|body| body.contains(&at)).count();
            let (mut here, mut up) = (at, 0);
            while code[here..].starts_with(b"super") {
                up += 1;
                let end = here + "super".len();
                let Some(after) = skip_colons(code, end) else {
                    if up == depth && word_at(code, skip_blanks(code, end)) == "as" {
                        named.push((HIDDEN.to_owned(), at));
                    }
                    up = 0;
                    break;
                };
                here = after;
            }
            if up > 0 && up == depth {
                heads(code, here, &mut named);
            }
        }
        named
    }

    /// Returns the public types that the file declares, each with its offset.
    pub fn public_types(&self) -> Vec<(String, usize)> {
        self.public(&["struct", "enum", "trait", "type", "union"])
    }

    /// Returns the public items that the file declares, including functions and constants, each
    /// with its offset.
    pub fn public_items(&self) -> Vec<(String, usize)> {
        self.public(&["const", "enum", "fn", "static", "struct", "trait", "type"])
    }

    /// Returns the public items of these kinds.
    fn public(&self, kinds: &[&str]) -> Vec<(String, usize)> {
        let code = &self.product;
        let declared = |at: usize| {
            let mut here = skip_blanks(code, at + "pub".len());
            let mut is_item = false;
            loop {
                let word = word_at(code, here);
                match word.as_str() {
                    "unsafe" | "async" => {}
                    kind if kinds.contains(&kind) => is_item = true,
                    _ => return is_item.then_some((word, at)).filter(|(name, _)| !name.is_empty()),
                }
                here = skip_blanks(code, here + word.len());
            }
        };
        whole_words(code, b"pub").filter_map(declared).collect()
    }

    /// Returns the functions that have a body.
    pub fn functions(&self) -> Vec<Function> {
        let code = &self.product;
        let mut functions = Vec::new();
        for at in whole_words(code, b"fn") {
            let start = skip_blanks(code, at + 2);
            let name = word_at(code, start);
            if name.is_empty() {
                continue; // The type `fn(..)`.
            }
            if let Some(body) = item_body(code, start) {
                let line = self.line(at);
                let lines = self.line(body.end - 1) - line + 1;
                functions.push(Function { name, line, lines });
            }
        }
        functions
    }
}

/// Returns the words of a text, including comments and strings.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the offsets of `needle` at which it is not part of a longer word.
pub fn whole_words<'a>(text: &'a [u8], needle: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let (first, last) = (needle[0], needle[needle.len() - 1]);
    let last_start = text.len().saturating_sub(needle.len());
    (0..=last_start).filter(move |&at| {
        text[at..].starts_with(needle)
            && !(is_word(first) && at > 0 && is_word(text[at - 1]))
            && !(is_word(last) && text.get(at + needle.len()).is_some_and(|&b| is_word(b)))
    })
}

/// Returns the ranges of items under `#[cfg(test)]` or `#[test]`; the range of everything under
/// `#![cfg(test)]`.
fn test_items(code: &[u8]) -> Vec<Range<usize>> {
    let all = |mark: &[u8]| find(code, 0, mark) < code.len();
    if all(b"#![cfg(test)]") {
        return std::iter::once(0..code.len()).collect();
    }
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for mark in ["#[cfg(test)]", "#[cfg(all(test", "#[test]"] {
        let mut at = find(code, 0, mark.as_bytes());
        while at < code.len() {
            let end = item_end(code, at);
            if !ranges.iter().any(|range| range.contains(&at)) {
                ranges.retain(|range| !(at..end).contains(&range.start));
                ranges.push(at..end);
            }
            at = find(code, end, mark.as_bytes());
        }
    }
    ranges
}

/// Returns the end of the item whose first attribute begins here.
fn item_end(code: &[u8], start: usize) -> usize {
    let mut at = start;
    while code.get(at) == Some(&b'#') {
        at = skip_blanks(code, closed(code, find(code, at, b"[")));
    }
    match item_body(code, at) {
        Some(body) => body.end,
        None => (find(code, at, b";") + 1).min(code.len()),
    }
}

/// Returns the range of the braces of an item; `None` if a `;` ends the item before any brace.
fn item_body(code: &[u8], start: usize) -> Option<Range<usize>> {
    let mut at = start;
    while at < code.len() {
        match code[at] {
            b'{' => return Some(at..closed(code, at)),
            b';' => return None,
            b'(' | b'[' => at = closed(code, at),
            _ => at += 1,
        }
    }
    None
}

/// Returns the offset after the bracket that closes the one that opens here.
pub fn closed(code: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0usize);
    while at < code.len() {
        match code[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The names of `mod name;` declarations.
fn declared_modules(code: &[u8]) -> Vec<String> {
    let declared = |at: usize| {
        let start = skip_blanks(code, at + 3);
        let name = word_at(code, start);
        let next = code.get(skip_blanks(code, start + name.len()));
        (!name.is_empty() && next == Some(&b';')).then_some(name)
    };
    whole_words(code, b"mod").filter_map(declared).collect()
}

/// The bodies of modules that are written inline.
pub fn inline_modules(code: &[u8]) -> Vec<Range<usize>> {
    let body = |at: usize| {
        let start = skip_blanks(code, at + "mod".len());
        let open = skip_blanks(code, start + word_at(code, start).len());
        (code.get(open) == Some(&b'{')).then(|| open..closed(code, open))
    };
    whole_words(code, b"mod").filter_map(body).collect()
}

/// Adds the first name of a path, or of each path in a `{..}` group.
fn heads(code: &[u8], at: usize, named: &mut Vec<(String, usize)>) {
    if code.get(at) != Some(&b'{') {
        match word_at(code, at).as_str() {
            "" if code.get(at) == Some(&b'*') => named.push((HIDDEN.to_owned(), at)),
            "" => {}
            "self" => named.push((HIDDEN.to_owned(), at)),
            name => named.push((name.to_owned(), at)),
        }
        return;
    }
    let end = closed(code, at) - 1;
    let mut at = skip_blanks(code, at + 1);
    while at < end {
        heads(code, at, named);
        while at < end && code[at] != b',' {
            at = if code[at] == b'{' { closed(code, at) } else { at + 1 };
        }
        at = skip_blanks(code, at + 1);
    }
}

pub fn skip_colons(code: &[u8], at: usize) -> Option<usize> {
    let at = skip_blanks(code, at);
    code[at..].starts_with(b"::").then(|| skip_blanks(code, at + 2))
}

fn before_is_colons(code: &[u8], at: usize) -> bool {
    code[..at].trim_ascii_end().ends_with(b"::")
}

pub fn skip_blanks(code: &[u8], at: usize) -> usize {
    let rest = code.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|b| b.is_ascii_whitespace()).count()
}

pub fn word_at(code: &[u8], at: usize) -> String {
    let rest = code.get(at..).unwrap_or_default();
    let word = rest.iter().take_while(|&&b| is_word(b)).copied().collect();
    String::from_utf8(word).unwrap_or_default()
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the offset of `needle` at or after `start`; the length of the text if there is none.
pub fn find(text: &[u8], start: usize, needle: &[u8]) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    let found = rest.windows(needle.len()).position(|window| window == needle);
    found.map_or(text.len(), |at| start + at)
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

fn lines_within(code: &[u8], range: &Range<usize>) -> usize {
    1 + newlines(code[range.clone()].trim_ascii_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(text: &str) -> String {
        String::from_utf8(Source::scan(text).product).unwrap()
    }

    #[test]
    fn prose_is_not_code() {
        for text in [
            "a(); // b()\n c()",
            "a(); /* b() /* b() */ b() */ c()",
            r#"a("b()", "\"b()"); c()"#,
            r###"a(r"b()\", r#"b()"b"#, cr##"b()"#b"##); c()"###,
            "a('b', '\\'', '\\u{62}', 'é'); c()",
        ] {
            let product = product(text);
            assert_eq!(product.len(), text.len());
            assert!(product.contains("a(") && product.contains("c()"), "{text} -> {product}");
            assert!(!product.contains('b'), "{text} -> {product}");
        }
        let lifetimes = "fn a<'b>(c: &'b str) -> &'b str { r#type(c) }";
        assert_eq!(product(lifetimes), lifetimes);
    }

    #[test]
    fn tests_are_not_product() {
        let text = "fn a() {}\n#[cfg(test)]\n#[rustfmt::skip]\nmod tests {\n  fn b() {}\n}\n\
                    #[cfg(test)]\nuse b::c;\nfn d() {}\n#[cfg(test)]\nmod oracle;\nmod real;\n";
        let source = Source::scan(text);
        assert_eq!(source.test_modules, ["oracle"]);
        assert_eq!(source.modules, ["oracle", "real"]);
        let names: Vec<String> = source.functions().into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["a", "d"]);
        assert_eq!(source.product_lines, 3);
        assert_eq!(Source::scan("#![cfg(test)]\nfn a() {}\n").product_lines, 0);
    }

    #[test]
    fn imports_are_found_however_they_are_written() {
        let text = "use crate::codec::Codec;\nuse crate::{chunk, dedup::{self, Known}, walk as w};\n\
                    fn a() -> crate::error::Result<()> { $crate::id::random(); super::super::ops::b() }\n\
                    use super::near; pub(crate) fn c() {} // crate::prose\n";
        let named = |depth| {
            let rooms = Source::scan(text).rooms_named(depth);
            rooms.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(named(2), ["codec", "chunk", "dedup", "walk", "error", "id", "ops"]);
        assert_eq!(named(1).last().unwrap(), "near");
        let source = Source::scan(text);
        let (_, at) = source.rooms_named(2)[6];
        assert_eq!(source.line(at), 3);
    }

    #[test]
    fn public_types_are_found() {
        let text =
            "pub struct A;\nstruct B;\npub(crate) enum C {}\npub trait D {}\npub fn e() {}\n";
        let found = Source::scan(text).public_types();
        let names: Vec<_> = found.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["A", "D"]);
    }

    #[test]
    fn functions_are_measured_to_their_closing_brace() {
        let text = "trait T {\n  fn a(x: [u8; 4]);\n}\nfn b(f: fn(u8)) -> [u8; 2]\nwhere\n  u8: Copy,\n\
                    {\n  if x { \"}\" }\n}\n";
        assert_eq!(
            Source::scan(text).functions(),
            [Function { name: "b".into(), line: 4, lines: 6 }]
        );
    }

    #[test]
    fn imports_that_hide_their_rooms_are_told() {
        for (text, depth) in [
            ("use crate as me; fn a() { me::store::b() }", 2),
            ("use crate::{self as me};", 2),
            ("use crate::*;", 2),
            ("extern crate self as me;", 2),
            ("use super::super as top;", 2),
            ("use super::super::*;", 2),
            ("mod deep { use super::super::*; }", 1),
            ("mod deep { use super::super as top; }", 1),
        ] {
            let found = Source::scan(text).rooms_named(depth);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].0, HIDDEN, "{text}");
        }
        // Of the room itself, all may be taken.
        for text in ["use super::*;", "mod deep { use super::super::*; }", "use self::near as far;"]
        {
            assert_eq!(Source::scan(text).rooms_named(2), [], "{text}");
        }
    }

    #[test]
    fn modules_that_are_written_inline_are_one_deeper() {
        let text =
            "mod deep { fn a() { super::super::store::b() } mod er { use super::super::c; } }";
        let rooms: Vec<_> = Source::scan(text).rooms_named(1).into_iter().map(|it| it.0).collect();
        assert_eq!(rooms, ["store"]);
    }
}
