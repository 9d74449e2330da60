//! One search pattern, with the same rules as exclude patterns.
//!
//! A pattern does no I/O: the name alone excludes nearly everything, so that an index of names can
//! be searched before any path is built.

use super::pattern::{PathPattern, PatternPlace};
use pinstripe_base::error::{Error, Kind, Result};

/// A pattern for names and paths.
#[derive(Debug, Clone)]
pub struct Glob {
    pattern: PathPattern,
    text: Vec<u8>,
}

impl Glob {
    /// Parses a pattern: `*.o` or `Makefile` for a name at any depth, `/home/*/tmp` for a complete
    /// path, `src/*.c` for any end of a path, `build/` for directories only.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a pattern that could match nothing, or a negated one.
    pub fn new(text: &[u8]) -> Result<Self> {
        if text.starts_with(b"!") {
            let shown = String::from_utf8_lossy(text);
            let what = format!(
                "pattern '{shown}' begins with !, and negated patterns are not supported here"
            );
            let advice = r"write \! for a name that begins with !";
            return Err(Error::new(Kind::Usage, what).advice(advice));
        }
        let pattern = PathPattern::parse("pattern", text, PatternPlace::Option)?;
        Ok(Glob { pattern, text: text.to_vec() })
    }

    /// The pattern as it was written.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether an entry of this name can match, judged by its name alone.
    pub fn admits_name(&self, name: &[u8]) -> bool {
        self.pattern.admits_name(name)
    }

    /// Whether the name alone decides, whatever the rest of the path is.
    pub fn is_about_names(&self) -> bool {
        self.pattern.is_about_names()
    }

    /// Whether the entry with this path matches.
    pub fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        (is_directory || !self.pattern.is_for_directories()) && self.pattern.matches(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ends_of_paths_whole_paths_and_directories() {
        for (pattern, path, is_directory, expected) in [
            ("*.c", "src/a.c", false, true),
            ("*.c", "src/a.h", false, false),
            ("src/*.c", "home/me/src/a.c", false, true),
            ("/src/*.c", "home/me/src/a.c", false, false),
            ("/home/**/a.c", "home/me/src/a.c", false, true),
            ("src/**", "home/src/x/y", false, true),
            ("build/", "home/build", true, true),
            ("build/", "home/build", false, false),
        ] {
            let glob = Glob::new(pattern.as_bytes()).unwrap();
            let name = path.rsplit('/').next().unwrap().as_bytes();
            assert_eq!(glob.matches(path.as_bytes(), is_directory), expected, "{pattern} {path}");
            assert!(glob.admits_name(name) || !expected, "{pattern} {path}");
        }
        assert!(Glob::new(b"*.c").unwrap().is_about_names());
        assert!(!Glob::new(b"a/*.c").unwrap().is_about_names());
        let error = Glob::new(b"a//b").unwrap_err().to_string();
        assert!(error.starts_with("pattern 'a//b'"), "{error}");
    }
}
