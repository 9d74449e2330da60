//! Exclude patterns follow gitignore's rules (`pinstripe_member::PathPattern`), and are matched
//! against absolute paths.
//!
//! A matching entry is left out with everything below it. Patterns do no I/O; an invalid pattern is
//! an error, and never a pattern that silently matches nothing. This type also has the tags of
//! directories whose content is left out, although the walk finds out which directories have one
//! (`tagged`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::tagged::DirectoryTag;
use pinstripe_base::error::Result;
use pinstripe_member::PathPattern;

/// The patterns of one walk. By default nothing is excluded.
#[derive(Debug, Clone, Default)]
pub struct Exclude {
    patterns: Vec<PathPattern>,
    tags: Vec<Arc<DirectoryTag>>,
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
            Ok((PathPattern::parse("exclude pattern", &written.text)?, written))
        };
        let read = patterns.into_iter().map(read).collect::<Result<Vec<_>>>()?;
        let (patterns, written): (_, Vec<_>) = read.into_iter().unzip();
        Ok(Exclude { patterns, tags: Vec::new(), written: written.into() })
    }

    /// Records which patterns match this absolute path: see [`unmet`](Self::unmet).
    pub(crate) fn note(&self, path: &[u8], is_directory: bool) {
        for (pattern, written) in self.patterns.iter().zip(self.written.iter()) {
            let is_open = !written.is_met.load(Ordering::Relaxed);
            if is_open && pattern.matches(path) && (is_directory || !pattern.is_for_directories()) {
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

    /// Also leaves out one absolute path, in which no byte is a wildcard.
    #[must_use]
    pub(crate) fn with_place(mut self, place: &[u8]) -> Self {
        self.patterns.push(PathPattern::of_place(place));
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
            if verdict == Verdict::ExcludeDirectory && pattern.is_for_directories() {
                continue;
            }
            if pattern.matches(path) {
                if !pattern.is_for_directories() {
                    return Verdict::Exclude;
                }
                verdict = Verdict::ExcludeDirectory;
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use pinstripe_base::error::Kind;

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
