//! Counts odd words: lines of comments, messages and pages that a reader has to read twice.
//!
//! A line counts once, however many odd words it has. Tests do not count, and code does not count:
//! in comments and pages, text between back-ticks and in code blocks is left out. A literal counts
//! if it has at least three words.

use std::collections::{BTreeMap, HashMap};

use super::rules::words::{ODD_LINES, ODD_WORDS, OddWord};
use super::source::Prose;
use super::{File, Finding, Scanned, pages, ratchet};

/// The name of the row for literals in released code.
const MESSAGES: &str = "messages";
/// The name of the row for the help of the command line.
const HELP: &str = "help";
/// The file that lists the odd words.
const LISTS_ODD_WORDS: &str = "xtask/src/tidy/rules/words.rs";
/// The fewest words of a literal that counts.
const LITERAL_WORDS: usize = 3;
/// A token that replaces code, and marks both ends of a block.
const BREAK: &str = "";

/// The count for a crate, a page, the messages or the help.
#[derive(Debug, Default)]
pub struct Count {
    /// Lines of prose.
    pub lines: usize,
    /// The lines that contain an odd word.
    pub odd: Vec<OddLine>,
}

impl Count {
    /// Odd lines per thousand, rounded up.
    fn rate(&self) -> usize {
        (self.odd.len() * 1000).div_ceil(self.lines.max(1))
    }
}

/// A line with odd words.
#[derive(Debug, Clone)]
pub struct OddLine {
    place: String,
    line: usize,
    text: String,
    /// The patterns that the line matches.
    words: Vec<&'static OddWord>,
}

/// Lines that are read as one text, each with its number.
type Block<'a> = Vec<(usize, &'a str)>;

/// Limits the number of odd lines of each crate and page by a ratchet.
pub fn check(files: &[File], scanned: &[Scanned]) -> Vec<Finding> {
    compare(&counts(files, scanned), ODD_LINES)
}

/// Compares the counts with their limits. A name without a limit has the limit 0.
fn compare(counts: &BTreeMap<String, Count>, limits: &[(&str, usize)]) -> Vec<Finding> {
    let most = |name: &str| limits.iter().find(|(known, _)| *known == name).map_or(0, |it| it.1);
    let gone = limits.iter().filter(|(name, _)| !counts.contains_key(*name));
    let gone = gone.map(|(name, _)| {
        Finding::new("", 0, format!("ODD_LINES has a line for {name}, which does not exist"))
    });
    let beyond = counts.iter().filter_map(|(name, count)| {
        ratchet(count.odd.len(), most(name), "its line in ODD_LINES", |found| {
            let rate = count.rate();
            let what = format!("{name} has {found} lines with odd words, {rate} per 1,000");
            (what, format!("see cargo xtask tidy --words {name}"))
        })
    });
    beyond.chain(gone).collect()
}

/// Prints the counts, or the odd lines of the crate, page or row `name`.
pub fn list(files: &[File], scanned: &[Scanned], name: Option<&str>) -> Result<(), String> {
    let counts = counts(files, scanned);
    let Some(name) = name else {
        println!("{:>6} {:>6} {:>10}  name", "odd", "lines", "per 1,000");
        for (name, count) in &counts {
            println!("{:>6} {:>6} {:>10}  {name}", count.odd.len(), count.lines, count.rate());
        }
        return Ok(());
    };
    let count = counts.get(name).ok_or_else(|| format!("no crate or page '{name}'"))?;
    for odd in &count.odd {
        let words = odd.words.iter().map(|it| format!("'{}' -> {}", it.pattern, it.better));
        let words = words.collect::<Vec<_>>().join("; ");
        println!("{}:{}: {}: {words}", odd.place, odd.line, odd.text);
    }
    Ok(())
}

/// Returns the counts of every crate, every page, the messages and the help.
fn counts(files: &[File], scanned: &[Scanned]) -> BTreeMap<String, Count> {
    let finder = Finder::new();
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for file in scanned.iter().filter(|file| file.path != LISTS_ODD_WORDS) {
        let name = crate_of(&file.path);
        let has_help = name == "pinstripe-cli"
            && super::source::whole_words(&file.source.product, b"clap").next().is_some();
        let is_shipped =
            !matches!(name, "xtask" | "pinstripe-testing") && !file.path.contains("/bench/");
        for block in blocks_of_code(&file.source.prose) {
            let found = finder.odd_lines(&file.path, &block);
            let is_literal = !block[0].1.starts_with('/');
            let is_help = has_help && block[0].1.starts_with("///");
            let rows = [
                Some(name),
                (is_literal && is_shipped).then_some(MESSAGES),
                is_help.then_some(HELP),
            ];
            for row in rows.into_iter().flatten() {
                let count = counts.entry(row.to_owned()).or_default();
                count.lines += block.len();
                count.odd.extend(found.iter().cloned());
            }
        }
    }
    let is_page = |path: &str| {
        path.ends_with(".md") && !path.starts_with("doc/decisions/0") && !path.contains("/src/")
    };
    for file in files.iter().filter(|file| is_page(&file.path)) {
        let count = counts.entry(file.path.clone()).or_default();
        for block in blocks_of_page(&file.text) {
            count.lines += block.len();
            count.odd.extend(finder.odd_lines(&file.path, &block));
        }
    }
    counts
}

/// Returns the name of the crate that contains a path.
fn crate_of(path: &str) -> &str {
    let mut parts = path.split('/');
    match parts.next() {
        Some("crates") => parts.next().unwrap_or_default(),
        other => other.unwrap_or_default(),
    }
}

/// Returns comments on consecutive lines, and literals with enough words.
fn blocks_of_code(prose: &[Prose]) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_fenced = false;
    for piece in prose {
        let lines = || piece.text.lines().enumerate().map(|(n, text)| (piece.line + n, text));
        if !piece.text.starts_with('/') {
            let words = piece.text.split_whitespace().filter(|it| it.contains(char::is_alphabetic));
            if words.count() >= LITERAL_WORDS {
                blocks.push(lines().collect());
            }
            continue;
        }
        let text = piece.text.trim_start_matches(['/', '!', '*']).trim();
        let is_fence = text.starts_with("```");
        is_fenced ^= is_fence;
        if is_fence || is_fenced || text.is_empty() {
            continue;
        }
        let follows = |block: &Block| {
            block.last().is_some_and(|(line, last)| line + 1 == piece.line && last.starts_with('/'))
        };
        match blocks.last_mut().filter(|block| follows(block)) {
            Some(block) => block.extend(lines()),
            None => blocks.push(lines().collect()),
        }
    }
    blocks
}

/// Returns the paragraphs of a page, without code.
fn blocks_of_page(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block> = Vec::new();
    for (number, line) in pages::prose_lines(text) {
        match blocks.last_mut() {
            Some(block) if block.last().is_some_and(|(last, _)| last + 1 == number) => {
                block.push((number, line));
            }
            _ => blocks.push(vec![(number, line)]),
        }
    }
    blocks
}

/// A pattern, divided into its elements.
struct Pattern {
    word: &'static OddWord,
    elements: Vec<Element>,
}

/// One element of a pattern.
struct Element {
    /// Whether the element matches all words except its own.
    is_other: bool,
    words: Vec<&'static str>,
}

impl Element {
    fn matches(&self, token: &Token) -> bool {
        let is = |word: &&str| match word.starts_with(char::is_uppercase) {
            true => *word == token.text,
            false => *word == token.lower,
        };
        self.words.iter().any(is) != self.is_other
    }
}

/// A word of a text, a character of punctuation, or a [`BREAK`].
struct Token<'a> {
    line: usize,
    text: &'a str,
    lower: String,
}

/// Finds all patterns.
struct Finder {
    patterns: Vec<Pattern>,
    /// Patterns by the words of their first element that has no `!`, with the index of that
    /// element.
    by_word: HashMap<String, Vec<(usize, usize)>>,
}

impl Finder {
    fn new() -> Finder {
        let element = |text: &'static str| Element {
            is_other: text.starts_with('!'),
            words: text.trim_start_matches('!').split('|').collect(),
        };
        let pattern = |word: &'static OddWord| Pattern {
            word,
            elements: word.pattern.split(' ').map(element).collect(),
        };
        let patterns: Vec<Pattern> = ODD_WORDS.iter().map(pattern).collect();
        let mut by_word: HashMap<String, Vec<(usize, usize)>> = HashMap::new();
        for (number, pattern) in patterns.iter().enumerate() {
            let first = pattern.elements.iter().position(|it| !it.is_other).unwrap_or_default();
            for word in &pattern.elements[first].words {
                by_word.entry(word.to_lowercase()).or_default().push((number, first));
            }
        }
        Finder { patterns, by_word }
    }

    /// Returns the lines of a block that contain odd words.
    fn odd_lines(&self, place: &str, block: &Block) -> Vec<OddLine> {
        let tokens = tokens(block);
        let mut found: BTreeMap<usize, Vec<&'static OddWord>> = BTreeMap::new();
        for (at, token) in tokens.iter().enumerate() {
            for &(number, first) in self.by_word.get(&token.lower).into_iter().flatten() {
                let pattern = &self.patterns[number];
                let here = at.checked_sub(first).and_then(|start| tokens.get(start..));
                let here = here.filter(|here| here.len() >= pattern.elements.len());
                let mut pairs = pattern.elements.iter().zip(here.unwrap_or_default());
                let is_odd = here.is_some() && pairs.all(|(element, token)| element.matches(token));
                if is_odd && !asks(&tokens[at..]) {
                    found.entry(token.line).or_default().push(pattern.word);
                }
            }
        }
        let texts: HashMap<usize, &str> = block.iter().copied().collect();
        let odd = |(line, words): (usize, Vec<&'static OddWord>)| OddLine {
            place: place.to_owned(),
            line,
            text: texts.get(&line).map_or("", |text| text.trim()).to_owned(),
            words,
        };
        found.into_iter().map(odd).collect()
    }
}

/// Whether the sentence that contains these tokens ends with a question mark.
fn asks(tokens: &[Token]) -> bool {
    let mut ends = tokens.iter().map(|token| token.text);
    ends.find(|text| [".", ";", ":", "|", "?"].contains(text)) == Some("?")
}

/// Returns the words of a block, with punctuation between them, and breaks for code,
/// `{placeholders}` and both ends.
fn tokens<'a>(block: &Block<'a>) -> Vec<Token<'a>> {
    let mut tokens = Vec::new();
    let push = |tokens: &mut Vec<Token<'a>>, line, text: &'a str| {
        tokens.push(Token { line, text, lower: text.to_lowercase() });
    };
    push(&mut tokens, 0, BREAK);
    let mut is_code = false;
    for &(line, text) in block {
        let text = text.trim_start().trim_start_matches(['/', '!', '#', '>', '-', '*', '"']);
        let mut rest = text;
        let mut is_placeholder = false;
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || "_-'\u{2019}".contains(c);
            let length = match is_word(first) {
                true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                // An escape of a literal.
                false if first == '\\' => {
                    rest.len().min(1 + rest[1..].chars().next().map_or(0, char::len_utf8))
                }
                false => first.len_utf8(),
            };
            let (word, after) = rest.split_at(length);
            rest = after;
            is_code ^= first == '`';
            is_placeholder = (is_placeholder || first == '{') && first != '}';
            let is_skipped = is_code || is_placeholder;
            let word = word.trim_matches('\'');
            match is_word(first) && !word.is_empty() && !is_skipped {
                true => push(&mut tokens, line, word),
                false if first.is_whitespace() || "*\"'".contains(first) => {}
                false if word == "\\" => {} // A continued line.
                false => push(&mut tokens, line, if is_skipped { BREAK } else { word }),
            }
        }
    }
    push(&mut tokens, 0, BREAK);
    tokens
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::super::tests::{file, lines};
    use super::*;

    fn odd(text: &str) -> Vec<usize> {
        let block: Block = text.lines().enumerate().map(|(n, line)| (n + 1, line)).collect();
        Finder::new().odd_lines("a", &block).into_iter().map(|it| it.line).collect()
    }

    #[test]
    fn patterns_match_words_and_not_parts_of_them() {
        assert_eq!(odd("/// The caller is told.\n/// untold\n/// Told-off"), [1]);
        assert_eq!(odd("Waits for so\nmany of them. So. Many."), [1]);
        assert_eq!(odd("`told` and `a\ntold` are code, this is told"), [2]);
        assert_eq!(odd("{told} and {} told"), [1]);
        assert_eq!(odd("{told} and }{x:?}"), Vec::<usize>::new());
        assert_eq!(odd("told of so many, of which none lies\nhere"), [1]);
    }

    #[test]
    fn capitals_and_exceptions_are_kept() {
        assert_eq!(odd("Who asks is answered\nOf many, one\nthe one who asks, of many"), [1, 2]);
        assert!(odd("| What is left after a crash? | a |").is_empty());
        assert_eq!(odd("What is odd is here, too.\nWhat is a question, too?"), [1]);
        assert_eq!(odd("there is no file\nit is no longer\nit is no file\nis no file"), [3, 4]);
    }

    #[test]
    fn comments_and_literals_count_and_code_and_tests_do_not() {
        let text = "//! One is told.\nfn told() { a(\"told\"); b(\"{a} is told\\n\"); }\n/// ```text\n\
                    /// told\n/// ```\n/// Says\n/// so many things.\nfn b() {}\n\
                    #[cfg(test)]\nmod tests {\n    // told\n}\n";
        let files = [
            file("crates/pinstripe-cli/src/main.rs", text),
            file("README.md", "# Plain\n    told, as code\n\nplain\n\n```\ntold\n```\n- is told\n"),
            file("doc/decisions/0001-a.md", "told\n"),
        ];
        let counts = counts(&files, &scan(&files));
        let found = |name: &str| {
            let count = &counts[name];
            let lines: Vec<usize> = count.odd.iter().map(|it| it.line).collect();
            (count.lines, lines)
        };
        assert_eq!(found("pinstripe-cli"), (4, vec![1, 2, 7]));
        assert_eq!(found(MESSAGES), (1, vec![2]));
        assert_eq!(found("README.md"), (3, vec![9]));
        assert_eq!(counts.len(), 3);
    }

    #[test]
    fn documentation_of_files_with_arguments_is_help() {
        let text = "use clap::Args;\n/// How many are told\nstruct A;\n// told\n";
        let files = [file("crates/pinstripe-cli/src/verbs/a.rs", text)];
        let counts = counts(&files, &scan(&files));
        assert_eq!((counts[HELP].lines, counts[HELP].odd.len()), (1, 1));
        assert_eq!(counts[HELP].rate(), 1000);
    }

    #[test]
    fn counts_may_only_fall() {
        let files = [file("crates/a/src/lib.rs", "// told\n// plain\n")];
        let counts = counts(&files, &scan(&files));
        let found = |limits: &[(&str, usize)]| lines(compare(&counts, limits));
        assert_eq!(found(&[("a", 1)]), Vec::<String>::new());
        let more = found(&[]);
        assert!(more[0].starts_with("error: a has 1 lines with odd words, 500 per 1,000"));
        assert!(found(&[("a", 2)])[0].starts_with("warning: a has 1 "));
        assert!(found(&[("a", 1), ("b", 0)])[0].contains("for b, which does not exist"));
    }
}
