//! Events: what `--json` prints, one object on each line (doc/json.md).
//!
//! Invariants: keys are printed in the order in which they were added, `event` first; a name that
//! is not UTF-8 is printed twice: readable under its key, and exactly, as hex digits, under
//! `KEY_bytes`.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pinstripe_base::error::Error;
use pinstripe_base::monitor::{Problem, Severity};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// One line of output, or a part of one.
#[derive(Debug, Clone, Default)]
pub struct Event(Vec<(String, Value)>);

impl Event {
    /// An event with this name.
    pub fn new(name: &str) -> Self {
        Event::default().with("event", name)
    }

    /// Adds a value. Adds a value; replaces an earlier value with the same key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
        self
    }

    /// Adds a value, unless it is `None`.
    #[must_use]
    pub fn with_some(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Adds a name, which may be any bytes.
    #[must_use]
    pub fn with_name(self, key: &str, bytes: &[u8]) -> Self {
        let readable = String::from_utf8_lossy(bytes);
        let exact = matches!(readable, std::borrow::Cow::Owned(_)).then(|| base16(bytes));
        let event = self.with(key, readable.into_owned());
        event.with_some(&format!("{key}_bytes"), exact)
    }

    /// Adds a list of names; if one of them is not UTF-8, also adds all of them as hex digits.
    #[must_use]
    pub fn with_names(self, key: &str, names: &[Vec<u8>]) -> Self {
        let readable = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
        let is_exact = names.iter().all(|name| std::str::from_utf8(name).is_ok());
        let exact = || names.iter().map(|name| base16(name)).collect::<Vec<_>>();
        let event = self.with(key, names.iter().map(readable).collect::<Vec<_>>());
        event.with_some(&format!("{key}_bytes"), (!is_exact).then(exact))
    }

    /// Adds a path.
    #[must_use]
    pub fn with_path(self, key: &str, path: &Path) -> Self {
        self.with_name(key, path.as_os_str().as_bytes())
    }

    /// Adds all keys of another event.
    #[must_use]
    pub fn with_all(self, part: Event) -> Self {
        part.0.into_iter().fold(self, |event, (key, value)| event.with(&key, value))
    }

    /// Adds the fields of a plain struct to the event.
    #[must_use]
    pub fn with_fields(self, plain: &impl Serialize) -> Self {
        match serde_json::to_value(plain) {
            Ok(Value::Object(fields)) => {
                fields.into_iter().fold(self, |event, (key, value)| event.with(&key, value))
            }
            _ => self,
        }
    }

    /// The event of a problem that did not end the run.
    pub fn problem(problem: &Problem) -> Self {
        let severity = match problem.severity {
            Severity::Warning => "warning",
            Severity::Changed => "changed",
            Severity::Degraded => "degraded",
            Severity::Loss => "loss",
        };
        let event = Event::new("problem").with("severity", severity);
        let event = event.with_path("place", &problem.place);
        match problem.error.place().filter(|place| *place != problem.place) {
            Some(place) => event.with_path("cause_place", place).with_error(&problem.error),
            None => event.with_error(&problem.error),
        }
    }

    /// The event of the error that ended the run.
    pub fn error(error: &Error) -> Self {
        let event = Event::new("error");
        match error.place() {
            Some(place) => event.with_path("place", place).with_error(error),
            None => event.with_error(error),
        }
    }

    fn with_error(self, error: &Error) -> Self {
        let (expected, found) = error.expected_found().unzip();
        self.with("kind", error.kind().name())
            .with("what", error.what())
            .with_some("expected", expected)
            .with_some("found", found)
            .with_some("cause", error.cause().map(ToString::to_string))
            .with_some("advice", error.advice_text())
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

fn base16(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a String takes everything");
        out
    })
}

#[cfg(test)]
mod tests {
    use pinstripe_base::error::Kind;

    use super::*;

    fn line(event: &Event) -> String {
        serde_json::to_string(event).unwrap()
    }

    #[test]
    fn keys_keep_their_order_and_stand_once() {
        let event = Event::new("summary").with("b", 1).with("a", 2).with("b", 3);
        assert_eq!(line(&event), r#"{"event":"summary","b":3,"a":2}"#);
    }

    #[test]
    fn names_that_are_not_utf8_stand_exactly_beside() {
        let event = Event::new("entry").with_name("path", b"a\nb").with_name("target", b"x\xff");
        assert_eq!(
            line(&event),
            "{\"event\":\"entry\",\"path\":\"a\\nb\",\"target\":\"x\u{fffd}\",\"target_bytes\":\"78ff\"}"
        );
    }

    #[test]
    fn an_error_is_told_in_parts() {
        let error = Error::new(Kind::Usage, "odd").at("/p").expected(1, 2).advice("even");
        assert_eq!(
            line(&Event::error(&error)),
            r#"{"event":"error","place":"/p","kind":"usage","what":"odd","expected":"1","found":"2","advice":"even"}"#
        );
    }
}
