//! Parses hints that programs write.
//!
//! ```text
//! sequential [OFFSET]
//! random
//! stride LENGTH DISTANCE [OFFSET]       DISTANCE may be negative
//! will-need OFFSET LENGTH [OFFSET LENGTH]...
//! dont-need
//! ```
//!
//! Numbers are bytes, with K, M, G or T for powers of 1024.

use std::str::FromStr;

use pinstripe_base::error::{Error, Kind, Result};

use crate::planner::Hint;

/// Parses a hint, and the offset from which it applies. A NUL byte ends the hint.
///
/// # Errors
/// Fails with [`Kind::Usage`] for an unknown hint.
pub fn parse(text: &[u8]) -> Result<(Hint, u64)> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let wrong = |what: String| Error::new(Kind::Usage, what);
    let text = std::str::from_utf8(text)
        .map_err(|_| wrong("a hint must be valid UTF-8 text".to_owned()))?;
    words(text).map_err(wrong)
}

fn words(text: &str) -> Result<(Hint, u64), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = |word: Option<&&str>| word.map_or(Ok(0), |word| bytes(word));
    match words.as_slice() {
        ["sequential", rest @ ..] if rest.len() <= 1 => Ok((Hint::Sequential, at(rest.first())?)),
        ["random"] => Ok((Hint::Random, 0)),
        ["dont-need"] => Ok((Hint::DontNeed, 0)),
        ["stride", length, distance, rest @ ..] if rest.len() <= 1 => {
            let (sign, far) = match distance.strip_prefix('-') {
                Some(far) => (-1, far),
                None => (1, *distance),
            };
            let distance = i64::try_from(bytes(far)?).map_err(|_| out_of_range(far))?;
            let length = bytes(length)?;
            if distance == 0 || length == 0 || length > distance.unsigned_abs() {
                return Err(
                    "the length of a stride must be at least 1, and at most the distance of the \
                     stride"
                        .into(),
                );
            }
            Ok((Hint::Stride { length, distance: sign * distance }, at(rest.first())?))
        }
        ["will-need", ranges @ ..] if !ranges.is_empty() && ranges.len() % 2 == 0 => {
            let range = |pair: &[&str]| {
                let (offset, length) = (bytes(pair[0])?, bytes(pair[1])?);
                let end = offset.checked_add(length).ok_or_else(|| out_of_range(pair[1]))?;
                Ok(offset..end)
            };
            let ranges: Result<Vec<_>, String> = ranges.chunks(2).map(range).collect();
            Ok((Hint::WillNeed(ranges?), 0))
        }
        _ => Err(format!(
            "'{text}' is not a valid hint; the hints are sequential, random, stride LENGTH \
             DISTANCE, will-need OFFSET LENGTH... and dont-need"
        )),
    }
}

fn bytes(word: &str) -> Result<u64, String> {
    let digits = word.trim_end_matches(['K', 'M', 'G', 'T']);
    let factor = match &word[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("'{word}' is not a number of bytes")),
    };
    let number = u64::from_str(digits).map_err(|_| format!("'{word}' is not a number of bytes"))?;
    number.checked_mul(1 << factor).ok_or_else(|| out_of_range(word))
}

fn out_of_range(word: &str) -> String {
    format!("the number '{word}' is too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_as_they_are_documented() {
        let read = |text: &str| parse(text.as_bytes());
        assert_eq!(read("sequential").unwrap(), (Hint::Sequential, 0));
        assert_eq!(read("sequential 4K\0").unwrap(), (Hint::Sequential, 4096));
        assert_eq!(read("random").unwrap(), (Hint::Random, 0));
        let stride = Hint::Stride { length: 4 << 20, distance: -(68 << 20) };
        assert_eq!(read("stride 4M -68M 1G").unwrap(), (stride, 1 << 30));
        assert_eq!(
            read("will-need 0 5 1M 1M").unwrap().0,
            Hint::WillNeed(vec![0..5, 1 << 20..2 << 20])
        );
        for bad in [
            "",
            "fast",
            "stride 4M",
            "stride 0 5",
            "stride 6 5",
            "stride 1 0",
            "will-need 5",
            "sequential x",
            "will-need 1 99999999999T",
            "random 5",
            "stride 1 18446744073709551615",
        ] {
            assert_eq!(read(bad).unwrap_err().kind(), Kind::Usage, "{bad}");
        }
        assert!(parse(b"\xff").is_err());
    }
}
