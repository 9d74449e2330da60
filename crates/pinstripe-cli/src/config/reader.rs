//! Reading a table of the config file key by key.
//!
//! Invariants: every key that is asked for is remembered, so that a key left over at the end is
//! unknown and is refused with its line and the most similar known key; a value of another type is
//! refused with its line and the expected type. No key is ignored.

use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::is_remote;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The text of a config file, used to convert offsets to line numbers.
pub struct Source<'a> {
    /// The file from which the text was read.
    pub file: &'a Path,
    /// The text.
    pub text: &'a str,
    /// The home directory, which replaces `~`, if it is known.
    pub home: Option<&'a Path>,
}

impl Source<'_> {
    /// An error at a byte offset of the text.
    pub fn error(&self, byte: usize, what: impl Into<String>) -> Error {
        Error::new(Kind::Usage, what).at(self.place(byte))
    }

    /// The file and the line number of a byte offset of the text.
    pub fn place(&self, byte: usize) -> PathBuf {
        let byte = byte.min(self.text.len());
        let line = self.text.as_bytes()[..byte].iter().filter(|&&it| it == b'\n').count() + 1;
        PathBuf::from(format!("{}:{line}", self.file.display()))
    }
}

/// One table of the config file, while its keys are read.
pub struct Table<'a> {
    source: &'a Source<'a>,
    /// The table's name in messages; empty for the top level of the file.
    name: String,
    table: &'a DeTable<'a>,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// Begins to read a table.
    pub fn new(source: &'a Source<'a>, name: impl Into<String>, table: &'a DeTable<'a>) -> Self {
        Table { source, name: name.into(), table, known: Vec::new() }
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    fn wrong<T>(&self, key: &str, expected: &str, found: &Spanned<DeValue<'_>>) -> Result<T> {
        let name =
            if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
        Err(self
            .source
            .error(
                found.span().start,
                format!("the key '{key}'{name} has a value of the wrong type"),
            )
            .expected(expected, kind_of(found.get_ref())))
    }

    /// A string.
    pub fn string(&mut self, key: &'static str) -> Result<Option<String>> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::String(text) if !text.is_empty() => Ok(Some(text.to_string())),
                _ => self.wrong(key, "a string that is not empty", value),
            },
        }
    }

    /// A boolean; `false` when the key is missing.
    pub fn flag(&mut self, key: &'static str) -> Result<bool> {
        match self.value(key) {
            None => Ok(false),
            Some(value) => match value.get_ref() {
                DeValue::Boolean(flag) => Ok(*flag),
                _ => self.wrong(key, "true or false", value),
            },
        }
    }

    /// A whole number that is not negative.
    pub fn number(&mut self, key: &'static str) -> Result<Option<u64>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        if let DeValue::Integer(number) = value.get_ref()
            && let Ok(number) = u64::from_str_radix(number.as_str(), number.radix())
        {
            return Ok(Some(number));
        }
        self.wrong(key, "a whole number that is not negative", value)
    }

    /// A number that is not negative, whole or not.
    pub fn amount(&mut self, key: &'static str) -> Result<Option<f64>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse::<f64>().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        match number {
            Some(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
            _ => self.wrong(key, "a number that is not negative", value),
        }
    }

    /// A list of strings; empty when the key is missing.
    pub fn strings(&mut self, key: &'static str) -> Result<Vec<String>> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let DeValue::Array(items) = value.get_ref() else {
            return self.wrong(key, "a list of strings", value);
        };
        let mut strings = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::String(text) if !text.is_empty() => strings.push(text.to_string()),
                _ => return self.wrong(key, "a list of strings that are not empty", item),
            }
        }
        Ok(strings)
    }

    /// An absolute path; `~/` at its beginning stands for the home directory.
    pub fn path(&mut self, key: &'static str) -> Result<Option<PathBuf>> {
        let Some(text) = self.string(key)? else { return Ok(None) };
        let at = self.place(key);
        self.absolute(key, &text, at).map(Some)
    }

    /// A list of absolute paths; `~/` at the beginning of one is the home directory.
    pub fn paths(&mut self, key: &'static str) -> Result<Vec<PathBuf>> {
        let texts = self.strings(key)?;
        let at = self.place(key);
        texts.iter().map(|text| self.absolute(key, text, at)).collect()
    }

    /// A list of patterns; `~/` at the beginning of one is the home directory, as in a path.
    pub fn patterns(&mut self, key: &'static str) -> Result<Vec<String>> {
        let texts = self.strings(key)?;
        let at = self.place(key);
        let pattern = |text: String| {
            let (sign, positive) = text.strip_prefix('!').map_or(("", &*text), |it| ("!", it));
            let Some(below) = positive.strip_prefix("~/") else { return Ok(text) };
            let home = self.home(key, at)?.to_string_lossy();
            Ok(format!("{sign}{}/{below}", literal(home.trim_end_matches('/'))))
        };
        texts.into_iter().map(pattern).collect()
    }

    /// One absolute path, or a non-empty list of absolute paths; empty if the key is missing.
    pub fn path_or_paths(&mut self, key: &'static str) -> Result<Vec<PathBuf>> {
        match self.value(key).map(|value| (value, value.get_ref())) {
            None => Ok(Vec::new()),
            Some((_, DeValue::String(_))) => Ok(self.path(key)?.into_iter().collect()),
            Some((_, DeValue::Array(items))) if !items.is_empty() => self.paths(key),
            Some((value, _)) => self.wrong(key, "a string or a list of strings", value),
        }
    }

    fn home(&self, key: &str, at: usize) -> Result<&Path> {
        self.source.home.ok_or_else(|| {
            self.source.error(at, format!("the path of '{key}' begins with ~, but HOME is not set"))
        })
    }

    fn absolute(&self, key: &str, text: &str, at: usize) -> Result<PathBuf> {
        if let Some(below) = text.strip_prefix("~/").or((text == "~").then_some("")) {
            let home = self.home(key, at)?;
            return Ok(if below.is_empty() { home.to_owned() } else { home.join(below) });
        }
        if key == "member" && is_remote(Path::new(text)) {
            return Ok(PathBuf::from(text));
        }
        if !text.starts_with('/') {
            return Err(self
                .source
                .error(at, format!("the value of '{key}' is not an absolute path"))
                .expected("a path that begins with / or ~/", format!("'{text}'"))
                .advice("paths in a config file must not depend on the current directory"));
        }
        Ok(PathBuf::from(text))
    }

    /// The named tables below a key, as in `[store.NAME]`.
    pub fn named_tables(&mut self, key: &'static str) -> Result<Vec<(String, Table<'a>)>> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let DeValue::Table(tables) = value.get_ref() else {
            return self.wrong(key, &format!("tables [{key}.NAME]"), value);
        };
        let mut found = Vec::new();
        for (name, inner) in tables {
            let DeValue::Table(table) = inner.get_ref() else {
                return Err(self
                    .source
                    .error(name.span().start, format!("'{name}' in [{key}] is not a table"))
                    .expected(format!("a table [{key}.NAME]"), kind_of(inner.get_ref())));
            };
            if name.get_ref().is_empty() || name.get_ref().contains('/') {
                return Err(self.source.error(
                    name.span().start,
                    format!("the NAME in [{key}.NAME] must not be empty and must not contain /"),
                ));
            }
            let (name, source) = (name.get_ref().to_string(), self.source);
            let inner = Table::new(source, format!("{}.{name}", self.name_of(key)), table);
            found.push((name, inner));
        }
        Ok(found)
    }

    /// The name of the table below a key, in messages.
    fn name_of(&self, key: &str) -> String {
        match self.name.as_str() {
            "" => key.to_owned(),
            name => format!("{name}.{key}"),
        }
    }

    /// The one table below a key.
    pub fn table(&mut self, key: &'static str) -> Result<Option<Table<'a>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(Table::new(self.source, self.name_of(key), table))),
            _ => self.wrong(key, &format!("a table [{key}]"), value),
        }
    }

    /// An error about the value of a key, or about the table if the key is missing.
    pub fn error(&self, key: &str, what: impl Into<String>) -> Error {
        self.source.error(self.place(key), what)
    }

    /// Whether the table has a key.
    pub fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(name, _)| name.get_ref() == key)
    }

    /// The offset of the value of a key, or of the first key of the table if the key is missing.
    fn place(&self, key: &str) -> usize {
        let value = self.table.iter().find(|(name, _)| name.get_ref() == key);
        let first = self.table.iter().map(|(name, _)| name.span().start).min().unwrap_or(0);
        value.map_or(first, |(_, value)| value.span().start)
    }

    /// Refuses keys that no reader has asked for.
    ///
    /// # Errors
    /// The error is about the first unknown key of the file.
    pub fn finish(self) -> Result<()> {
        let is_unknown = |name: &&Spanned<toml::de::DeString<'_>>| {
            !self.known.iter().any(|it| it == name.get_ref())
        };
        let unknown = self.table.iter().map(|(name, _)| name).filter(is_unknown);
        let Some(name) = unknown.min_by_key(|name| name.span().start) else { return Ok(()) };
        let within = match self.name.as_str() {
            "" => String::new(),
            table => format!(" in [{table}]"),
        };
        let error =
            self.source.error(name.span().start, format!("the key '{name}'{within} is unknown"));
        Err(match nearest(name.get_ref(), &self.known) {
            Some(near) => error.advice(format!("the most similar known key is '{near}'")),
            None => error.advice(format!("the known keys are: {}", self.known.join(", "))),
        })
    }
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(text) if text.is_empty() => "an empty string",
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The known word that is most similar to `word`, if one is similar enough.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let changes = |known: &&str| distance(word, known);
    let near = known.iter().min_by_key(|known| changes(known))?;
    (changes(near) <= near.len().max(3) / 2).then_some(near)
}

/// The number of letters to be added, removed or replaced to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (done, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (at, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

/// A path as a pattern that matches only this path.
fn literal(path: &str) -> String {
    let is_special = |c: char| "\\*?[".contains(c);
    path.chars().flat_map(|c| is_special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["exclude", "exclude-file", "tags", "host"];
        assert_eq!(nearest("exlude", &known), Some("exclude"));
        assert_eq!(nearest("tag", &known), Some("tags"));
        assert_eq!(nearest("exclude_file", &known), Some("exclude-file"));
        assert_eq!(nearest("retention", &known), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
