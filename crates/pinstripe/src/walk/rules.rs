//! Rules: patterns with their order, negation and origin, compiled for many lookups.
//!
//! The last rule that matches a path decides. A set of rules has tables by the name: one slot for
//! the complete name, for its last two bytes and for its first two bytes has the rules that can
//! match, so the cost of a lookup hardly depends on the number of rules. Rules do no I/O; an invalid
//! pattern is an error, and never a pattern that silently matches nothing.

use std::ffi::OsStr;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_base::error::Result;
use pinstripe_member::{NameHint, PathPattern, PatternPlace, fold_case};

/// Up to this number of rules, each rule is tried.
const TRIED_MAX: usize = 2;

/// Where a rule was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleOrigin {
    /// The option of this name on the command line.
    Option(&'static str),
    /// The key of this name in the config file.
    Config(&'static str),
    /// A line, counted from 1, of a file that was given to an option or a key.
    List(Arc<Path>, usize),
    /// A line of an ignore file.
    Ignore(Arc<Path>, usize),
    /// The program itself, for this reason.
    Own(&'static str),
}

impl fmt::Display for RuleOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleOrigin::Option(name) => write!(f, "{name} on the command line"),
            RuleOrigin::Config(key) => write!(f, "the key '{key}' in the config file"),
            RuleOrigin::List(file, line) => write!(f, "{}:{line}", file.display()),
            RuleOrigin::Ignore(file, line) => {
                write!(f, "the ignore file {}:{line}", file.display())
            }
            RuleOrigin::Own(reason) => f.write_str(reason),
        }
    }
}

/// A rule as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenRule {
    /// The pattern, after a `!` if it is negated.
    pub text: Vec<u8>,
    /// Whether letters of both cases match.
    pub ignores_case: bool,
    /// Where it was written.
    pub origin: RuleOrigin,
}

/// A rule, and whether any entry matched it.
#[derive(Debug)]
pub(super) struct Rule {
    pub written: WrittenRule,
    pattern: PathPattern,
    pub is_negated: bool,
    is_met: AtomicBool,
}

impl Rule {
    pub fn parse(noun: &str, written: WrittenRule, place: PatternPlace) -> Result<Rule> {
        let positive = written.text.strip_prefix(b"!");
        let pattern = PathPattern::parse(noun, positive.unwrap_or(&written.text), place)?;
        let pattern = if written.ignores_case { pattern.ignoring_case() } else { pattern };
        let is_negated = positive.is_some();
        Ok(Rule { written, pattern, is_negated, is_met: AtomicBool::new(false) })
    }

    /// A rule that excludes one absolute path, in which no byte is a wildcard.
    pub fn of_place(place: &[u8], reason: &'static str) -> Rule {
        let origin = RuleOrigin::Own(reason);
        let written = WrittenRule { text: place.to_vec(), ignores_case: false, origin };
        let pattern = PathPattern::of_place(place);
        Rule { written, pattern, is_negated: false, is_met: AtomicBool::new(false) }
    }

    pub fn matches(&self, path: &[u8]) -> bool {
        match self.pattern.ignores_case() {
            true => self.pattern.matches(&fold_case(path)),
            false => self.pattern.matches(path),
        }
    }

    pub fn is_met(&self) -> bool {
        self.is_met.load(Ordering::Relaxed)
    }

    fn note(&self, path: &[u8], is_directory: bool) {
        let can_match = is_directory || !self.pattern.is_for_directories();
        if can_match && !self.is_met() && self.matches(path) {
            self.is_met.store(true, Ordering::Relaxed);
        }
    }
}

/// The rules that decide about a path: one if it is a directory, and one if it is something else.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Deciders<'a> {
    pub directory: Option<&'a Rule>,
    pub other: Option<&'a Rule>,
}

impl<'a> Deciders<'a> {
    /// Takes what is still undecided from rules of less precedence.
    pub fn or_else(self, weaker: impl FnOnce() -> Deciders<'a>) -> Deciders<'a> {
        if self.directory.is_some() && self.other.is_some() {
            return self;
        }
        let weaker = weaker();
        Deciders {
            directory: self.directory.or(weaker.directory),
            other: self.other.or(weaker.other),
        }
    }
}

/// Rules in the order in which they were given.
#[derive(Debug, Default)]
pub(super) struct RuleSet {
    rules: Vec<Rule>,
    exactly: NameTables,
    folded: NameTables,
}

impl RuleSet {
    pub fn new(rules: Vec<Rule>) -> RuleSet {
        let numbered = |is_folded: bool| {
            let all = rules.iter().enumerate();
            let chosen = all.filter(|(_, rule)| rule.pattern.ignores_case() == is_folded);
            NameTables::new(chosen.map(|(number, rule)| (number as u32, rule.pattern.hint())))
        };
        let (exactly, folded) = (numbered(false), numbered(true));
        RuleSet { rules, exactly, folded }
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The last rules that match a path, which begins with a slash.
    pub fn decide(&self, path: &[u8]) -> Deciders<'_> {
        let (mut directory, mut other) = (None::<u32>, None::<u32>);
        self.each_candidate(path, |number, rule, path| {
            // An earlier rule than one that decides for every type changes nothing.
            if other.is_some_and(|found| found > number) {
                return;
            }
            let slot = match rule.pattern.is_for_directories() {
                true => &mut directory,
                false => &mut other,
            };
            if slot.is_none_or(|found| found < number) && rule.pattern.matches(path) {
                *slot = Some(number);
            }
        });
        let rule = |number: Option<u32>| number.map(|number| &self.rules[number as usize]);
        Deciders { directory: rule(directory.max(other)), other: rule(other) }
    }

    /// Records which rules match a path.
    pub fn note(&self, path: &[u8], is_directory: bool) {
        self.each_candidate(path, |_, rule, _| rule.note(path, is_directory));
    }

    /// Calls `visit` with each rule that the name admits, and with the path as the rule compares it.
    fn each_candidate<'a>(&'a self, path: &[u8], mut visit: impl FnMut(u32, &'a Rule, &[u8])) {
        let name_of =
            |path: &[u8]| path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let rule = |number: u32| &self.rules[number as usize];
        if !self.exactly.is_empty() {
            let name = &path[name_of(path)..];
            self.exactly.each(name, |number| visit(number, rule(number), path));
        }
        if !self.folded.is_empty() {
            let folded = fold_case(path);
            let name = &folded[name_of(&folded)..];
            self.folded.each(name, |number| visit(number, rule(number), &folded));
        }
    }
}

/// The rules by the names that they admit.
#[derive(Debug, Default)]
struct NameTables {
    complete: NameTable,
    ends: NameTable,
    begins: NameTable,
    /// Rules that must always be tried.
    others: Vec<u32>,
    is_used: bool,
}

impl NameTables {
    fn new(hints: impl Iterator<Item = (u32, NameHint)>) -> NameTables {
        let hints: Vec<_> = hints.collect();
        let is_small = hints.len() <= TRIED_MAX;
        let is_used = !hints.is_empty();
        let (mut complete, mut ends, mut begins, mut others) = (vec![], vec![], vec![], vec![]);
        for (number, hint) in hints {
            match hint {
                _ if is_small => others.push(number),
                NameHint::Exact(name) => complete.push((slot_of_name(&name), number, name)),
                NameHint::Ends(end) if end.len() >= 2 => {
                    ends.push((slot_of_end(&end), number, end));
                }
                NameHint::Begins(begin) if begin.len() >= 2 => {
                    begins.push((slot_of_begin(&begin), number, begin));
                }
                _ => others.push(number),
            }
        }
        let [complete, ends, begins] = [complete, ends, begins].map(NameTable::new);
        NameTables { complete, ends, begins, others, is_used }
    }

    fn is_empty(&self) -> bool {
        !self.is_used
    }

    fn each(&self, name: &[u8], mut visit: impl FnMut(u32)) {
        self.others.iter().for_each(|&number| visit(number));
        self.complete.each(|| slot_of_name(name), |text| text == name, &mut visit);
        if name.len() >= 2 {
            self.ends.each(|| slot_of_end(name), |text| name.ends_with(text), &mut visit);
            self.begins.each(|| slot_of_begin(name), |text| name.starts_with(text), &mut visit);
        }
    }
}

const SLOTS: usize = 256;

/// Rules in slots, each with the bytes that a name must have.
#[derive(Debug, Default)]
struct NameTable {
    /// The position of the first entry of each slot; empty for a table without entries.
    starts: Vec<u32>,
    entries: Vec<(u32, Range<u32>)>,
    texts: Vec<u8>,
}

impl NameTable {
    fn new(mut all: Vec<(u8, u32, Vec<u8>)>) -> NameTable {
        let mut table = NameTable::default();
        if all.is_empty() {
            return table;
        }
        // The last rule of a slot first: it decides more often than those before it.
        all.sort_by_key(|&(slot, number, _)| (slot, std::cmp::Reverse(number)));
        for slot in 0..=SLOTS {
            table.starts.push(all.partition_point(|it| usize::from(it.0) < slot) as u32);
        }
        for (_, number, text) in all {
            let from = table.texts.len() as u32;
            table.texts.extend_from_slice(&text);
            table.entries.push((number, from..table.texts.len() as u32));
        }
        table
    }

    fn each(
        &self,
        slot: impl FnOnce() -> u8,
        admits: impl Fn(&[u8]) -> bool,
        visit: &mut impl FnMut(u32),
    ) {
        if self.starts.is_empty() {
            return;
        }
        let slot = usize::from(slot());
        let range = self.starts[slot] as usize..self.starts[slot + 1] as usize;
        for (number, text) in &self.entries[range] {
            if admits(&self.texts[text.start as usize..text.end as usize]) {
                visit(*number);
            }
        }
    }
}

fn slot_of_name(name: &[u8]) -> u8 {
    let [first, last] = [name.first(), name.last()].map(|byte| byte.copied().unwrap_or(0));
    let middle = name[name.len() / 2..].first().copied().unwrap_or(0);
    let sum = (name.len() as u8).wrapping_mul(41).wrapping_add(first.wrapping_mul(7));
    sum.wrapping_add(last.wrapping_mul(29)).wrapping_add(middle.wrapping_mul(101))
}

fn slot_of_end(name: &[u8]) -> u8 {
    let [.., before, last] = name else { return 0 };
    before.wrapping_mul(31).wrapping_add(*last)
}

fn slot_of_begin(name: &[u8]) -> u8 {
    let [first, second, ..] = name else { return 0 };
    first.wrapping_mul(31).wrapping_add(*second)
}

/// Returns the rules in a file with their line numbers, counted from 1, without empty lines and
/// lines that begin with `#`. A byte order mark at the beginning, CR at the end of a line and spaces
/// there are left out, unless a backslash is before the space.
pub fn pattern_lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let lines = text.split(|&byte| byte == b'\n').enumerate();
    let lines = lines.map(|(number, line)| {
        (number + 1, without_spaces(line.strip_suffix(b"\r").unwrap_or(line)))
    });
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
}

fn without_spaces(mut line: &[u8]) -> &[u8] {
    while let Some(shorter) = line.strip_suffix(b" ") {
        let backslashes = shorter.iter().rev().take_while(|&&byte| byte == b'\\').count();
        if backslashes % 2 == 1 {
            break;
        }
        line = shorter;
    }
    line
}

/// Returns the path that these bytes are.
pub(super) fn path_of(bytes: &[u8]) -> Arc<Path> {
    Arc::from(Path::new(OsStr::from_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str], ignores_case: bool) -> RuleSet {
        let rule = |text: &&str| {
            let text = text.as_bytes().to_vec();
            let written =
                WrittenRule { text, ignores_case, origin: RuleOrigin::Option("--exclude") };
            Rule::parse("exclude pattern", written, PatternPlace::Option).unwrap()
        };
        RuleSet::new(texts.iter().map(rule).collect())
    }

    /// Whether a directory and another entry with this path are excluded.
    fn decide(rules: &RuleSet, path: &str) -> (bool, bool) {
        let found = rules.decide(path.as_bytes());
        let is_excluded = |rule: Option<&Rule>| rule.is_some_and(|rule| !rule.is_negated);
        (is_excluded(found.directory), is_excluded(found.other))
    }

    #[test]
    fn the_last_match_decides() {
        let set = rules(&["*.o", "!keep.o", "/a/keep.o", "*", "!*/", "x/", "!!odd"], false);
        assert_eq!(decide(&set, "/b/keep.o"), (false, true));
        assert_eq!(decide(&set, "/b/x"), (true, true));
        assert_eq!(decide(&set, "/!odd"), (false, false));
        let set = rules(&["x/", "!x"], false);
        assert_eq!(decide(&set, "/x"), (false, false));
        let set = rules(&["x", "!x/", "y", "y/"], false);
        assert_eq!((decide(&set, "/x"), decide(&set, "/y")), ((false, true), (true, true)));
    }

    /// The tables find what trying each rule finds.
    #[test]
    fn tables_do_not_change_a_decision() {
        let parts = ["*.o", "*.tar.gz", "a*", "ab*", "core", "a?b", "*~", "[ab]*", "x/y", "/x/*"];
        let mut texts: Vec<String> = Vec::new();
        for number in 0..400 {
            let part = parts[number * 7 % parts.len()];
            let tail = ["", "/"][number / 3 % 2];
            let head = ["", "!", "", "**/"][number / 5 % 4];
            let odd = if number % 4 == 0 { String::new() } else { format!("{}", number % 60) };
            texts.push(format!("{head}{odd}{part}{tail}"));
        }
        let names: Vec<&str> = texts.iter().map(String::as_str).collect();
        for ignores_case in [false, true] {
            let set = rules(&names, ignores_case);
            for name in ["a.o", "12a.o", "core", "17core", "x", "a", "~", "13*~", "5ab", "AB", "é~"]
            {
                for path in [format!("/{name}"), format!("/x/{name}"), format!("/q/3x/y/{name}")] {
                    let last = |is_directory: bool| {
                        let can = |it: &&Rule| is_directory || !it.pattern.is_for_directories();
                        let mut found = set.rules.iter().rev().filter(can);
                        found.find(|it| it.matches(path.as_bytes())).map(|it| &it.written)
                    };
                    let found = set.decide(path.as_bytes());
                    assert_eq!(found.directory.map(|it| &it.written), last(true), "{path}");
                    assert_eq!(found.other.map(|it| &it.written), last(false), "{path}");
                }
            }
        }
    }

    #[test]
    fn lines_are_read_as_git_reads_them() {
        let text = b"\xef\xbb\xbf# caches\n\n*.o\r\n\\#odd\n*.tmp  \n   \na\\  \n!x";
        let read: Vec<_> = pattern_lines(text).collect();
        let expected = [(3, &b"*.o"[..]), (4, b"\\#odd"), (5, b"*.tmp"), (7, b"a\\ "), (8, b"!x")];
        assert_eq!(read, expected);
    }
}
