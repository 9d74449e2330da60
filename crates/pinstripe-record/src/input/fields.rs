//! Parses the `key=value` options in the text of an input.

use pinstripe_base::error::{Error, Kind, Result};

/// Parses the `key=value` options after an input's place; an unknown key is an error.
pub(super) fn pairs<'a>(
    whole: &str,
    text: &'a str,
    known: &[&str],
) -> Result<Vec<(&'a str, &'a str)>> {
    let mut pairs = Vec::new();
    for part in text.split(',').filter(|it| !it.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if !known.contains(&key) || value.is_empty() {
            return Err(Error::new(
                Kind::Usage,
                format!("'{part}' is not a known option in '{whole}'"),
            )
            .expected(known.join("=, ") + "=", part));
        }
        if pairs.iter().any(|(before, _)| *before == key) {
            return Err(Error::new(
                Kind::Usage,
                format!("'{whole}' contains the option {key}= twice"),
            ));
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Parses a whole number within bounds.
pub(super) fn number(key: &str, value: &str, least: u64, most: u64) -> Result<u64> {
    let found = value.parse().ok().filter(|it| (least..=most).contains(it));
    found.ok_or_else(|| {
        Error::new(Kind::Usage, format!("'{value}' is not a possible value of {key}"))
            .expected(format!("a number from {least} to {most}"), value)
    })
}
