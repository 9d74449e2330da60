//! Values of options that several modules read.

use std::fmt;

use pinstripe_base::error::Error;
use pinstripe_base::units::{GIB, KIB, MIB, parse_size};

/// Formats an error for clap: on one line, followed by its advice.
pub fn one_line(error: Error) -> String {
    match error.advice_text() {
        Some(advice) => format!("{error}; {advice}"),
        None => error.to_string(),
    }
}

/// A number of bytes as it is written in an option: `256M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    /// Writes a size so that [`size`] reads the same value, in the largest unit that is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(GIB, "G"), (MIB, "M"), (KIB, "K"), (1, "")];
        let fits = |(bytes, _): &&(u64, &str)| self.0 >= *bytes && self.0.is_multiple_of(*bytes);
        match units.iter().find(fits) {
            Some((bytes, name)) => write!(f, "{}{name}", self.0 / bytes),
            None => write!(f, "{}", self.0),
        }
    }
}

impl serde::Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Reads a size.
pub fn size(text: &str) -> Result<Size, String> {
    parse_size(text).map(Size).map_err(one_line)
}

/// The least rate in bytes per second that a limit may set: with a lower one, verbs would take
/// practically forever.
const RATE_MIN_BYTES: u64 = KIB;

/// Reads a rate limit in bytes per second.
pub fn rate(text: &str) -> Result<u64, String> {
    match size(text)?.0 {
        bytes if bytes >= RATE_MIN_BYTES => Ok(bytes),
        _ => Err("the rate must be at least 1K (1024 bytes) per second".to_owned()),
    }
}
