//! Splits a command into words as a shell does, without running a shell.

use pinstripe_base::error::{Error, Kind, Result};

/// Splits a text into words: at blanks, except inside quotes and after a backslash. Nothing is
/// expanded: variables, patterns and redirections are ordinary letters.
///
/// # Errors
/// [`Kind::Usage`] if a quote is not closed, or nothing follows a backslash.
pub(super) fn split(text: &str) -> Result<Vec<String>> {
    let refuse = |what: &str| {
        let error = Error::new(Kind::Usage, format!("the command '{text}' {what}"));
        Err(error.advice("write it as for a shell, or let a shell run it: --shell sh"))
    };
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(other) => word.push(other),
                        None => return refuse("has a quote (') that is not closed"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('"') => break,
                        Some('\\') => match letters.next() {
                            Some(other @ ('"' | '\\' | '$' | '`')) => word.push(other),
                            Some('\n') => {}
                            Some(other) => word.extend(['\\', other]),
                            None => return refuse("has a quote (\") that is not closed"),
                        },
                        Some(other) => word.push(other),
                        None => return refuse("has a quote (\") that is not closed"),
                    }
                }
            }
            '\\' => match letters.next() {
                Some('\n') => {}
                Some(other) => word.get_or_insert_default().push(other),
                None => return refuse("ends with a backslash"),
            },
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        for (text, words) in [
            ("a  b\tc\n", &["a", "b", "c"][..]),
            (r#"a 'b c' "d \" \n" e\ f"#, &["a", "b c", r#"d " \n"#, "e f"]),
            (r#"x''y "" 'it'"'"'s'"#, &["xy", "", "it's"]),
            ("$HOME *.c > f", &["$HOME", "*.c", ">", "f"]),
            ("", &[]),
            ("a\\\nb", &["ab"]),
        ] {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
        for bad in ["'a", "\"a", "a\\", "\"a\\"] {
            assert_eq!(split(bad).unwrap_err().kind(), Kind::Usage, "{bad}");
        }
    }
}
