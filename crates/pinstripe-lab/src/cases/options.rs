//! The options of a case as data, from which help, completions and the manual are generated and
//! values are read.

use std::collections::BTreeMap;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::parse_size;

/// One option: `--name VALUE`, or `--name` alone.
#[derive(Debug, Clone, Copy)]
pub struct CaseOption {
    /// The name without dashes.
    pub name: &'static str,
    /// The placeholder of its value in help.
    pub value: &'static str,
    /// How the value is read.
    pub form: ValueForm,
    /// The default value; `None` for a flag, and for values with a computed default.
    pub default: Option<&'static str>,
    /// The purpose of the option, in one line.
    pub about: &'static str,
    /// Further help.
    pub more: &'static str,
}

/// How the value of an option is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueForm {
    /// No value: the option is given or not.
    Flag,
    /// `64K`.
    Size,
    /// A positive whole number.
    Count,
    /// A number that is not negative.
    Number,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Some of these words, separated by commas.
    SomeOf(&'static [&'static str]),
    /// Whole numbers of 0 or more, separated by commas.
    Counts,
    /// Sizes separated by commas.
    Sizes,
    /// A file or a directory, stored as an absolute path, because a later run may be started in
    /// another directory.
    Path,
    /// Several paths: the option may be given several times, and each time adds one path.
    Paths,
    /// A text that the case parses.
    Text,
    /// Several texts: the option may be given several times, and each time adds one text.
    Texts,
    /// As many words as the placeholder has; the option may be given several times. The value is
    /// the words with a space between them, so only the last word may contain a space.
    Words,
    /// Several texts that are given without the name of the option.
    Operands,
}

impl ValueForm {
    /// Whether each time that the option is given adds a value, instead of replacing the last one.
    pub fn is_repeated(self) -> bool {
        matches!(self, ValueForm::Paths | ValueForm::Texts | ValueForm::Words | ValueForm::Operands)
    }
}

impl CaseOption {
    /// The number of words of each value.
    pub fn word_count(&self) -> usize {
        match self.form {
            ValueForm::Flag => 0,
            ValueForm::Words => self.value.split(' ').count(),
            _ => 1,
        }
    }

    /// Splits a value into the words that are typed.
    pub(crate) fn typed_words<'a>(&self, value: &'a str) -> Vec<&'a str> {
        match self.form {
            ValueForm::Words => value.splitn(self.word_count(), ' ').collect(),
            _ => vec![value],
        }
    }

    /// Joins the words of a value as they were typed.
    ///
    /// # Errors
    /// [`Kind::Usage`] if a word other than the last one is empty or contains a space.
    pub fn joined(&self, words: &[&str]) -> Result<String> {
        let (_, first) = words.split_last().unwrap_or((&"", &[]));
        match first.iter().find(|it| it.is_empty() || it.contains(' ')) {
            None => Ok(words.join(" ")),
            Some(word) => {
                let what = format!("'{word}' is not a valid value of --{}", self.name);
                Err(Error::new(Kind::Usage, what).advice(format!("--{} {}", self.name, self.value)))
            }
        }
    }

    /// Checks a value against its form.
    ///
    /// # Errors
    /// [`Kind::Usage`] that names the expected form.
    pub fn check(&self, text: &str) -> Result<()> {
        let refuse = |wanted: String| {
            let error = Error::new(
                Kind::Usage,
                format!("'{text}' is not a valid value of --{}", self.name),
            );
            Err(error.advice(wanted))
        };
        match self.form {
            ValueForm::Flag
            | ValueForm::Path
            | ValueForm::Paths
            | ValueForm::Text
            | ValueForm::Texts
            | ValueForm::Operands => Ok(()),
            ValueForm::Words => match self.typed_words(text).len() == self.word_count() {
                true => Ok(()),
                false => refuse(format!("--{} {}", self.name, self.value)),
            },
            ValueForm::Size => parse_size(text).map(drop),
            ValueForm::Count => match text.parse::<u64>() {
                Ok(1..) => Ok(()),
                _ => refuse("give a whole number of at least 1".to_owned()),
            },
            ValueForm::Number => match text.parse::<f64>() {
                Ok(number) if number.is_finite() && number >= 0.0 => Ok(()),
                _ => refuse("give a number of at least 0".to_owned()),
            },
            ValueForm::Counts => match text.split(',').all(|it| it.parse::<u64>().is_ok()) {
                true => Ok(()),
                false => refuse("give whole numbers of at least 0, separated by commas".to_owned()),
            },
            ValueForm::Sizes => text.split(',').try_for_each(|it| parse_size(it).map(drop)),
            ValueForm::OneOf(words) => match words.contains(&text) {
                true => Ok(()),
                false => refuse(format!("the values are {}", words.join(", "))),
            },
            ValueForm::SomeOf(words) => match text.split(',').all(|word| words.contains(&word)) {
                true => Ok(()),
                false => refuse(format!(
                    "give one or more of these values, separated by commas: {}",
                    words.join(", ")
                )),
            },
        }
    }
}

/// The options of a case with their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values(BTreeMap<&'static str, Vec<String>>);

impl Values {
    /// Reads the given options, and uses defaults for the rest. For a flag, any value means that
    /// the flag was given.
    ///
    /// # Errors
    /// [`Kind::Usage`] for an invalid value, or an option that the case does not have.
    pub fn read(options: &'static [CaseOption], given: &[(&str, &str)]) -> Result<Values> {
        let mut values = BTreeMap::new();
        for option in options {
            let found = given.iter().filter(|(name, _)| *name == option.name);
            let mut found: Vec<&str> = found.map(|(_, value)| *value).collect();
            if found.is_empty() {
                found.extend(option.default);
            }
            // The last value replaces earlier ones, unless the option adds a value each time.
            let first = if option.form.is_repeated() { 0 } else { found.len().saturating_sub(1) };
            let mut kept = Vec::new();
            for value in &found[first..] {
                option.check(value)?;
                kept.push(match option.form {
                    ValueForm::Path | ValueForm::Paths => absolute(value)?,
                    _ => (*value).to_owned(),
                });
            }
            if !kept.is_empty() {
                values.insert(option.name, kept);
            }
        }
        match given.iter().find(|(name, _)| !options.iter().any(|option| option.name == *name)) {
            None => Ok(Values(values)),
            Some((name, _)) => {
                Err(Error::new(Kind::Usage, format!("this case has no option --{name}")))
            }
        }
    }

    /// The value as it was typed (a path as an absolute path), or `None` if there is no value.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|it| it.last()).map(String::as_str)
    }

    /// All values of an option that may be given several times.
    pub fn texts(&self, name: &str) -> Vec<&str> {
        self.0.get(name).into_iter().flatten().map(String::as_str).collect()
    }

    /// Whether a flag was given, or whether an option has a value.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A size in bytes; 0 if the option has no value.
    pub fn size(&self, name: &str) -> u64 {
        self.text(name).and_then(|text| parse_size(text).ok()).unwrap_or(0)
    }

    /// A whole number; 0 if the option has no value.
    pub fn count(&self, name: &str) -> u64 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Whole numbers, in the order in which they were typed.
    pub fn counts(&self, name: &str) -> Vec<u64> {
        self.words(name).into_iter().filter_map(|it| it.parse().ok()).collect()
    }

    /// Sizes in bytes, in the order in which they were typed.
    pub fn sizes(&self, name: &str) -> Vec<u64> {
        self.words(name).into_iter().filter_map(|it| parse_size(it).ok()).collect()
    }

    /// A number; 0 if the option has no value.
    pub fn number(&self, name: &str) -> f64 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or(0.0)
    }

    /// Words, in the order in which they were typed.
    pub fn words(&self, name: &str) -> Vec<&str> {
        self.text(name).map(|text| text.split(',').collect()).unwrap_or_default()
    }

    /// Parses a value by the [`FromStr`] of its type.
    ///
    /// # Errors
    /// Errors of the type's parser; [`Kind::Usage`] if there is no value.
    pub fn parsed<T: FromStr<Err = Error>>(&self, name: &str) -> Result<T> {
        let text = self.text(name);
        text.ok_or_else(|| Error::new(Kind::Usage, format!("the option --{name} has no value")))?
            .parse()
    }
}

/// The absolute path, without resolving links; the unchanged text if the absolute path would not be
/// UTF-8.
fn absolute(text: &str) -> Result<String> {
    let path = std::path::absolute(text);
    let refuse = |error| {
        Error::new(Kind::Usage, format!("the path '{text}' cannot be made absolute: {error}"))
    };
    let path = path.map_err(refuse)?;
    Ok(path.into_os_string().into_string().unwrap_or_else(|_| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn option(
        name: &'static str,
        form: ValueForm,
        default: Option<&'static str>,
    ) -> CaseOption {
        CaseOption { name, value: "V", form, default, about: "", more: "" }
    }

    const OPTIONS: &[CaseOption] = &[
        option("size", ValueForm::Size, Some("64K")),
        option("files", ValueForm::Count, Some("4")),
        option("share", ValueForm::Number, Some("0.5")),
        option("modes", ValueForm::SomeOf(&["a", "b", "c"]), Some("a,b")),
        option("engine", ValueForm::OneOf(&["x", "y"]), Some("x")),
        option("depths", ValueForm::Counts, Some("0,4")),
        option("steps", ValueForm::Sizes, Some("4K,1M")),
        option("tree", ValueForm::Path, None),
        option("trees", ValueForm::Paths, None),
        option("fast", ValueForm::Flag, None),
        option("note", ValueForm::Texts, None),
        CaseOption { value: "NAME VALUES", ..option("list", ValueForm::Words, None) },
    ];

    #[test]
    fn values_that_are_added_are_all_kept_and_words_are_split_again() {
        let given = [("note", "a b"), ("list", "n 1 2"), ("note", ""), ("list", "m x")];
        let values = Values::read(OPTIONS, &given).unwrap();
        assert_eq!(values.texts("note"), ["a b", ""]);
        assert_eq!(values.texts("list"), ["n 1 2", "m x"]);
        let list = OPTIONS.last().unwrap();
        assert_eq!(list.typed_words("n 1 2"), ["n", "1 2"]);
        assert_eq!(list.joined(&["n", "1 2"]).unwrap(), "n 1 2");
        for bad in [["n n", "1"], ["", "1"]] {
            assert_eq!(list.joined(&bad).unwrap_err().kind(), Kind::Usage, "{bad:?}");
        }
        assert!(Values::read(OPTIONS, &[("list", "n")]).is_err());
    }

    #[test]
    fn a_path_means_the_same_from_another_directory() {
        let here = std::env::current_dir().unwrap();
        for (typed, kept) in [("a/b", here.join("a/b")), ("/a/b", "/a/b".into())] {
            let values = Values::read(OPTIONS, &[("tree", typed)]).unwrap();
            assert_eq!(values.text("tree"), kept.to_str(), "{typed}");
        }
        assert!(Values::read(OPTIONS, &[("tree", "")]).is_err());
        let given = [("trees", "/a"), ("trees", "/b"), ("tree", "/c"), ("tree", "/d")];
        let values = Values::read(OPTIONS, &given).unwrap();
        assert_eq!(values.texts("trees"), ["/a", "/b"]);
        assert_eq!(values.texts("tree"), ["/d"]);
    }

    #[test]
    fn defaults_give_way_to_what_was_given_last() {
        let values = Values::read(OPTIONS, &[]).unwrap();
        assert_eq!(
            (values.size("size"), values.count("files"), values.number("share")),
            (65_536, 4, 0.5)
        );
        assert_eq!(values.words("modes"), ["a", "b"]);
        assert_eq!(values.counts("depths"), [0, 4]);
        assert_eq!(values.sizes("steps"), [4096, 1 << 20]);
        assert!(!values.has("fast"));
        let given = [("size", "1M"), ("size", "2M"), ("fast", ""), ("modes", "c")];
        let values = Values::read(OPTIONS, &given).unwrap();
        assert_eq!((values.size("size"), values.words("modes")), (2 << 20, vec!["c"]));
        assert!(values.has("fast"));
    }

    #[test]
    fn values_that_are_none_are_refused_by_name() {
        for (name, value) in [
            ("size", "lots"),
            ("files", "0"),
            ("share", "-1"),
            ("modes", "a,z"),
            ("engine", "z"),
            ("depths", "1,-1"),
            ("steps", "4K,lots"),
            ("new", "1"),
        ] {
            let error = Values::read(OPTIONS, &[(name, value)]).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{name}");
        }
    }
}
