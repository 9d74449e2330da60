//! Extracts the JSON from fio's output: notes, warnings and progress come before it, after it and
//! within it.

use pinstripe_base::error::{Error, Kind, Result};
use serde_json::Value;

/// Returns the first JSON document in a text.
///
/// # Errors
/// [`Kind::Corrupt`], with the line, if the text has no document or its document is cut off.
pub fn document(text: &str) -> Result<Value> {
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| line.trim() == "{").or_else(|| {
        // Another program wrote it out again, on one line.
        lines.iter().position(|line| line.trim_start().starts_with("{\""))
    });
    let Some(first) = first else {
        return Err(Error::new(Kind::Corrupt, "the file contains no JSON from fio").advice(
            "create the file with 'fio --output-format=json' or 'fio --output-format=json+'",
        ));
    };
    let kept = lines[first..].iter().filter(|line| is_json(line)).copied();
    let whole = kept.collect::<Vec<_>>().join("\n");
    let mut documents = serde_json::Deserializer::from_str(&whole).into_iter::<Value>();
    match documents.next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => {
            let line = first + error.line();
            let what = format!("the JSON of fio cannot be read near line {line}: {error}");
            Err(Error::new(Kind::Corrupt, what).advice("check whether the file is complete"))
        }
        None => Err(Error::new(Kind::Corrupt, "the file contains no JSON from fio")),
    }
}

/// Whether a line can belong to fio's JSON, in which every line begins with a name or a bracket.
fn is_json(line: &str) -> bool {
    let line = line.trim();
    match line.chars().next() {
        None => false,
        // Names, and strings in lists.
        Some('"' | '{' | '}' | ']') => true,
        // A list on its own line; not '[eta 00m:01s]' and not '[ 12.3] kernel'.
        Some('[') => matches!(line, "[" | "[]" | "[]," | "[{"),
        // A number in a list.
        Some('-' | '0'..='9') => line.trim_end_matches(',').parse::<f64>().is_ok(),
        Some(_) => false,
    }
}
