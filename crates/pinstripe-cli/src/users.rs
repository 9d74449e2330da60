//! Users and groups in options: a number, or a name that this system knows.

use std::fs;

/// Reads `FROM:TO` for users.
///
/// # Errors
/// Fails with a line that says what is invalid.
pub fn user_pair(text: &str) -> Result<(u32, u32), String> {
    pair(text, "user", "/etc/passwd")
}

/// Reads `FROM:TO` for groups.
///
/// # Errors
/// Fails with a line that says what is invalid.
pub fn group_pair(text: &str) -> Result<(u32, u32), String> {
    pair(text, "group", "/etc/group")
}

fn pair(text: &str, what: &str, file: &str) -> Result<(u32, u32), String> {
    let (from, to) = text.split_once(':').ok_or("expected FROM:TO")?;
    let known = || fs::read_to_string(file).unwrap_or_default();
    Ok((number(from, what, file, known)?, number(to, what, file, known)?))
}

fn number(name: &str, what: &str, file: &str, known: impl Fn() -> String) -> Result<u32, String> {
    if let Ok(number) = name.parse::<u32>() {
        // All ones mean "leave it" to the system.
        return if number < u32::MAX {
            Ok(number)
        } else {
            Err(format!("no {what} can have this number"))
        };
    }
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    known().lines().find_map(of_line).ok_or_else(|| {
        format!("{file} has no {what} '{name}'; write the number that 'id {name}' shows")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read() {
        let known = || "root:x:0:0::/root:/bin/sh\nanna:x:1000:100:Anna:/home/anna:\n".to_owned();
        let read = |name: &str| number(name, "user", "/etc/passwd", known);
        assert_eq!((read("anna"), read("root"), read("77")), (Ok(1000), Ok(0), Ok(77)));
        assert!(read("ann").unwrap_err().contains("no user 'ann'"));
        assert!(read("4294967295").is_err() && read("").is_err() && read("-1").is_err());
        assert!(user_pair("1").is_err());
        assert_eq!(user_pair("1:2"), Ok((1, 2)));
        assert_eq!(group_pair("3:root"), Ok((3, 0)));
    }
}
