//! What a walk leaves out: rules of options (`rules`) and of ignore files (`ignore`), files that are
//! too large or too old, and directories with a tag (`tagged`).
//!
//! A matching entry is left out with everything below it. An exclusion does no I/O: the walk finds
//! out which directories have a tag or an ignore file.

use std::sync::Arc;

use super::ignore::{IgnoreFile, IgnoreRules};
use super::rules::{Deciders, Rule, RuleOrigin, RuleSet, WrittenRule};
use super::tagged::DirectoryTag;
use pinstripe_base::error::Result;
use pinstripe_member::PatternPlace;
use pinstripe_member::meta::{FileKind, Stat, Time};

/// The exclusions of one walk. By default nothing is excluded.
#[derive(Debug, Clone, Default)]
pub struct Exclude {
    /// Clones share the rules, which record whether they were met.
    rules: Arc<RuleSet>,
    /// Places that the program itself leaves out, whatever the rules are.
    own: Vec<Arc<Rule>>,
    tags: Vec<Arc<DirectoryTag>>,
    ignore_files: Vec<Arc<IgnoreFile>>,
    limits: FileLimits,
}

/// Which regular files are left out because of their metadata.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileLimits {
    /// Files with more bytes.
    pub larger_than: Option<u64>,
    /// Files that were modified before this time.
    pub older_than: Option<Time>,
}

/// Why a regular file exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    /// It has more bytes.
    Larger,
    /// It was modified earlier.
    Older,
}

/// What the rules decide about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Leave the path out if it is a directory.
    pub excludes_directory: bool,
    /// Leave the path out if it is something else.
    pub excludes_other: bool,
    /// A rule matched, whatever it decided.
    pub is_met: bool,
}

impl Verdict {
    /// Whether the path is left out, whatever it is.
    pub(crate) fn excludes_all(self) -> bool {
        self.excludes_directory && self.excludes_other
    }

    /// Whether an entry of this type is left out.
    pub fn excludes(self, is_directory: bool) -> bool {
        if is_directory { self.excludes_directory } else { self.excludes_other }
    }
}

impl Exclude {
    /// Parses patterns of `--exclude`.
    ///
    /// # Errors
    /// Fails with the errors of [`of_rules`](Self::of_rules).
    pub fn new<P: AsRef<[u8]>>(patterns: impl IntoIterator<Item = P>) -> Result<Self> {
        let written = patterns.into_iter().map(|pattern| WrittenRule {
            text: pattern.as_ref().to_vec(),
            ignores_case: false,
            origin: RuleOrigin::Option("--exclude"),
        });
        Exclude::of_rules(written)
    }

    /// Parses rules; the last one that matches a path decides about it.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`](pinstripe_base::error::Kind::Usage) for a pattern that could match
    /// nothing or that means something else elsewhere: empty, an open `[`, a `\` at the end, `.` or
    /// `..` or nothing between slashes.
    pub fn of_rules(rules: impl IntoIterator<Item = WrittenRule>) -> Result<Self> {
        let parse = |it| Rule::parse("exclude pattern", it, PatternPlace::Option);
        let rules = rules.into_iter().map(parse).collect::<Result<Vec<_>>>()?;
        Ok(Exclude { rules: Arc::new(RuleSet::new(rules)), ..Exclude::default() })
    }

    /// Records which rules match this absolute path: see [`unmet`](Self::unmet).
    pub(crate) fn note(&self, path: &[u8], is_directory: bool) {
        self.rules.note(path, is_directory);
    }

    /// Returns the rules that matched nothing: no entry that a walk found, or no path given to
    /// [`note`](Self::note).
    pub fn unmet(&self) -> impl Iterator<Item = &WrittenRule> {
        self.rules.rules().iter().filter(|rule| !rule.is_met()).map(|rule| &rule.written)
    }

    /// Whether there are rules that are not negated, and none of them matched anything.
    pub(crate) fn is_wholly_unmet(&self) -> bool {
        let mut positive = self.rules.rules().iter().filter(|rule| !rule.is_negated).peekable();
        positive.peek().is_some() && positive.all(|rule| !rule.is_met())
    }

    /// Also leaves out the content of a directory with this tag. The directory itself and its tag
    /// file are kept, so that it still has its tag after a restore.
    #[must_use]
    pub fn with_tag(mut self, tag: DirectoryTag) -> Self {
        self.tags.push(Arc::new(tag));
        self
    }

    /// The tags of directories whose content is left out.
    pub fn tags(&self) -> impl Iterator<Item = &DirectoryTag> {
        self.tags.iter().map(|tag| &**tag)
    }

    /// Also obeys ignore files of this name. In one directory, the rules of a name that was given
    /// later have precedence.
    #[must_use]
    pub fn with_ignore_file(mut self, file: IgnoreFile) -> Self {
        self.ignore_files.push(Arc::new(file));
        self
    }

    /// The names of ignore files.
    pub fn ignore_files(&self) -> impl Iterator<Item = &IgnoreFile> {
        self.ignore_files.iter().map(|file| &**file)
    }

    /// Also leaves out regular files beyond these limits.
    #[must_use]
    pub fn with_limits(mut self, limits: FileLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Also leaves out one absolute path, in which no byte is a wildcard, for this reason; no rule
    /// includes it again.
    #[must_use]
    pub(crate) fn with_place(mut self, place: &[u8], reason: &'static str) -> Self {
        self.own.push(Arc::new(Rule::of_place(place, reason)));
        self
    }

    /// Whether the options leave out the entry with this absolute path, judged only by this path: a
    /// walk does not reach entries below an excluded directory.
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        self.judge(path, None).excludes(is_directory)
    }

    /// The limit that a regular file exceeds.
    pub(super) fn excess(&self, stat: &Stat) -> Option<Excess> {
        if stat.kind != FileKind::File {
            return None;
        }
        if self.limits.larger_than.is_some_and(|limit| stat.size_bytes > limit) {
            return Some(Excess::Larger);
        }
        self.limits.older_than.is_some_and(|limit| stat.mtime < limit).then_some(Excess::Older)
    }

    /// The rules that decide about an absolute path whose parents are known to be included. `ignore`
    /// has the rules of the ignore files in the directories above it.
    pub(super) fn deciders<'a>(
        &'a self,
        path: &[u8],
        ignore: Option<&'a IgnoreRules>,
    ) -> Deciders<'a> {
        let own = self.own.iter().find(|rule| rule.matches(path)).map(|rule| &**rule);
        let own = Deciders { directory: own, other: own };
        let found = own.or_else(|| self.rules.decide(path));
        IgnoreRules::and_above(ignore)
            .fold(found, |found, rules| found.or_else(|| rules.decide(path)))
    }

    /// What the rules decide about such a path.
    pub(super) fn judge(&self, path: &[u8], ignore: Option<&IgnoreRules>) -> Verdict {
        let Deciders { directory, other } = self.deciders(path, ignore);
        let excludes = |rule: Option<&Rule>| rule.is_some_and(|rule| !rule.is_negated);
        Verdict {
            excludes_directory: excludes(directory),
            excludes_other: excludes(other),
            is_met: directory.is_some() || other.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use pinstripe_base::error::Kind;

    use super::*;

    /// Whether the pattern excludes the path, and whether it does so only for directories.
    #[derive(Debug, PartialEq, Eq)]
    enum Found {
        No,
        Dir,
        Yes,
    }

    fn found(exclude: &Exclude, path: &[u8]) -> Found {
        match (exclude.leaves_out(path, true), exclude.leaves_out(path, false)) {
            (true, true) => Found::Yes,
            (true, false) => Found::Dir,
            (false, _) => Found::No,
        }
    }

    fn judge(pattern: &str, path: &str) -> Found {
        found(&Exclude::new([pattern]).unwrap(), path.as_bytes())
    }

    #[test]
    fn patterns_match_what_people_expect() {
        use Found::{Dir, No, Yes};
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
        assert_eq!(found(&exclude, b"/x/caf\xe9.txt"), Found::Yes);
        assert_eq!(found(&exclude, b"/x/\xf8"), Found::Yes);
        assert_eq!(found(&exclude, b"/x/\xc3"), Found::No);
        assert_eq!(found(&Exclude::new([b"?"]).unwrap(), b"/\xff"), Found::Yes);
    }

    #[test]
    fn the_gravest_verdict_wins_without_negation() {
        let exclude = Exclude::new(["x/", "y/", "x*"]).unwrap();
        assert_eq!(found(&exclude, b"/x"), Found::Yes);
        assert_eq!(found(&exclude, b"/y"), Found::Dir);
        assert_eq!(found(&Exclude::default(), b"/x"), Found::No);
    }

    #[test]
    fn no_rule_includes_an_own_place_again() {
        let exclude = Exclude::new(["!*"]).unwrap().with_place(b"/m*", "a member");
        assert_eq!(found(&exclude, b"/m*"), Found::Yes);
        assert_eq!(found(&exclude, b"/mm"), Found::No);
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
            "!",
            "!/",
            "[[:letter:]]",
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
        assert_eq!(judge(&pattern, &path), Found::No);
        let pattern = format!("/{}z", "**/a/".repeat(60));
        let path = "/a".repeat(2000);
        assert_eq!(judge(&pattern, &path), Found::No);
    }
}
