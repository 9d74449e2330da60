//! Parameters: names that commands contain in braces, each with the values that replace it.

use pinstripe_base::error::{Error, Kind, Result};

use crate::cases::Values;

/// The most values of a parameter, and the most variants of the case.
pub(super) const MOST_VALUES: usize = 256;
/// The most digits of a number of a scan, before and after the point.
const MOST_DIGITS: usize = 18;

/// A parameter and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sweep {
    pub name: String,
    pub values: Vec<String>,
}

/// The value of each parameter of a variant.
pub(super) type Chosen = Vec<(String, String)>;

/// Reads all parameters: scans first, then lists.
///
/// # Errors
/// [`Kind::Usage`] for a name or a number that is not valid, a scan without end or with too many
/// values, and a name or a value that is given twice.
pub(super) fn read(values: &Values) -> Result<Vec<Sweep>> {
    let step = values.text("parameter-step-size");
    let scans = values.texts("parameter-scan");
    if let (Some(step), true) = (step, scans.is_empty()) {
        let error = Error::new(Kind::Usage, "--parameter-step-size needs --parameter-scan");
        return Err(error.advice(format!("--parameter-scan VAR MIN MAX, with the step {step}")));
    }
    let scans = scans.into_iter().map(|text| scan(text, step.unwrap_or("1")));
    let lists = values.texts("parameter-list").into_iter().map(list);
    let all = scans.chain(lists).collect::<Result<Vec<Sweep>>>()?;
    let names = all.iter().map(|it| it.name.as_str()).collect::<Vec<_>>();
    match twice(&names) {
        None => Ok(all),
        Some(name) => {
            Err(Error::new(Kind::Usage, format!("the parameter '{name}' is given twice")))
        }
    }
}

/// Reads `VAR MIN MAX`.
fn scan(text: &str, step: &str) -> Result<Sweep> {
    let words: Vec<&str> = text.splitn(3, ' ').collect();
    let [name, min, max] = words[..] else {
        return Err(Error::new(Kind::Usage, "write --parameter-scan VAR MIN MAX"));
    };
    let name = name_of(name)?;
    let number = |text: &str| {
        decimal(text).ok_or_else(|| {
            Error::new(Kind::Usage, format!("'{text}' is not a number"))
                .advice("numbers of a scan are written like 8, -1 or 0.25")
        })
    };
    let (min, max, step) = (number(min)?, number(max)?, number(step)?);
    let digits = min.digits.max(max.digits).max(step.digits);
    let at = |it: &Decimal| it.value * 10_i128.pow(digits - it.digits);
    let (low, high, step) = (at(&min), at(&max), at(&step));
    if step <= 0 {
        return Err(Error::new(Kind::Usage, "the step of a scan must be more than 0"));
    }
    if low > high {
        let what = format!("the scan of '{name}' begins above its end");
        return Err(Error::new(Kind::Usage, what).advice("--parameter-scan VAR MIN MAX"));
    }
    let count = (high - low) / step + 1;
    if count > MOST_VALUES as i128 {
        let what = format!("the scan of '{name}' has {count} values; the limit is {MOST_VALUES}");
        return Err(Error::new(Kind::Usage, what).advice("use a larger --parameter-step-size"));
    }
    let values = (0..count).map(|number| shown(low + number * step, digits)).collect();
    Ok(Sweep { name: name.to_owned(), values })
}

/// Reads `VAR VALUE,...`; a comma after a backslash belongs to a value.
fn list(text: &str) -> Result<Sweep> {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    let name = name_of(name)?;
    let mut values = vec![String::new()];
    let mut letters = rest.chars().peekable();
    while let Some(letter) = letters.next() {
        let last = values.len() - 1;
        match letter {
            '\\' if letters.next_if_eq(&',').is_some() => values[last].push(','),
            ',' => values.push(String::new()),
            other => values[last].push(other),
        }
    }
    let all: Vec<&str> = values.iter().map(String::as_str).collect();
    if let Some(value) = twice(&all) {
        let what = format!("the parameter '{name}' has the value '{value}' twice");
        return Err(Error::new(Kind::Usage, what));
    }
    if values.len() > MOST_VALUES {
        let count = values.len();
        let what = format!("the parameter '{name}' has {count} values; the limit is {MOST_VALUES}");
        return Err(Error::new(Kind::Usage, what));
    }
    Ok(Sweep { name: name.to_owned(), values })
}

fn name_of(text: &str) -> Result<&str> {
    let is_letter = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    let begins_well = text.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
    match begins_well && text.chars().all(is_letter) {
        true => Ok(text),
        false => {
            let error = Error::new(Kind::Usage, format!("'{text}' is not a name of a parameter"));
            Err(error.advice("use letters, digits, '_' and '-'; the first must be a letter or '_'"))
        }
    }
}

/// The first of some words that occurs twice.
pub(super) fn twice<'a>(words: &[&'a str]) -> Option<&'a str> {
    let is_second = |at: &usize| words[..*at].contains(&words[*at]);
    (0..words.len()).find(is_second).map(|at| words[at])
}

/// A decimal number: `value` divided by a power of ten.
struct Decimal {
    value: i128,
    digits: u32,
}

fn decimal(text: &str) -> Option<Decimal> {
    let (is_negative, plain) = match text.strip_prefix('-') {
        Some(plain) => (true, plain),
        None => (false, text),
    };
    let (whole, part) = plain.split_once('.').unwrap_or((plain, ""));
    let is_number = |it: &str| it.len() <= MOST_DIGITS && it.bytes().all(|it| it.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || plain.ends_with('.') {
        return None;
    }
    let value: i128 = format!("{whole}{part}").parse().ok()?;
    Some(Decimal { value: if is_negative { -value } else { value }, digits: part.len() as u32 })
}

fn shown(value: i128, digits: u32) -> String {
    if digits == 0 {
        return value.to_string();
    }
    let unit = 10_i128.pow(digits);
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.abs());
    format!("{sign}{}.{:0width$}", value / unit, value % unit, width = digits as usize)
}

/// Whether a text contains a parameter.
pub(super) fn uses(text: &str, name: &str) -> bool {
    text.contains(&format!("{{{name}}}"))
}

/// Replaces each parameter of a text by its value, without looking for parameters in values.
pub(super) fn substituted(text: &str, chosen: &Chosen) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        result.push_str(&rest[..at]);
        rest = &rest[at..];
        let is_here = |(name, _): &&(String, String)| {
            rest[1..].strip_prefix(name.as_str()).is_some_and(|it| it.starts_with('}'))
        };
        match chosen.iter().find(is_here) {
            Some((name, value)) => {
                result.push_str(value);
                rest = &rest[name.len() + 2..];
            }
            None => {
                result.push('{');
                rest = &rest[1..];
            }
        }
    }
    result + rest
}

/// Every combination of the values of some parameters; the last parameter varies fastest. One empty
/// combination if there is no parameter.
///
/// # Errors
/// [`Kind::Usage`] for too many combinations.
pub(super) fn combinations(sweeps: &[&Sweep]) -> Result<Vec<Chosen>> {
    let counts = sweeps.iter().map(|it| it.values.len());
    let count = counts.fold(1_usize, usize::saturating_mul);
    refuse_many(count)?;
    let mut all: Vec<Chosen> = vec![Vec::new()];
    for sweep in sweeps {
        let with = |chosen: &Chosen, value: &String| -> Chosen {
            let own = (sweep.name.clone(), value.clone());
            chosen.iter().cloned().chain([own]).collect()
        };
        all = all.iter().flat_map(|it| sweep.values.iter().map(move |v| with(it, v))).collect();
    }
    Ok(all)
}

/// Fails if there are too many variants.
///
/// # Errors
/// [`Kind::Usage`].
pub(super) fn refuse_many(count: usize) -> Result<()> {
    match count > MOST_VALUES {
        false => Ok(()),
        true => {
            let what =
                format!("these parameters make {count} variants; the limit is {MOST_VALUES}");
            Err(Error::new(Kind::Usage, what).advice("use fewer values, or several executions"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_exact_and_written_with_the_digits_of_its_numbers() {
        let values = |text: &str, step: &str| scan(text, step).map(|it| it.values.join(" "));
        assert_eq!(values("n 1 4", "1").unwrap(), "1 2 3 4");
        assert_eq!(values("n 1 10", "4").unwrap(), "1 5 9");
        assert_eq!(values("n -1 1", "0.5").unwrap(), "-1.0 -0.5 0.0 0.5 1.0");
        assert_eq!(values("n 0.1 0.3", "0.1").unwrap(), "0.1 0.2 0.3");
        assert_eq!(values("n 7 7", "1").unwrap(), "7");
        for (text, step) in [
            ("n 1 4", "0"),
            ("n 1 4", "-1"),
            ("n 1 4", "0.00"),
            ("n 4 1", "1"),
            ("n 0 256", "1"),
            ("n 0 999999999999999999", "0.000000000000000001"),
            ("n 0 1e3", "1"),
            ("n a 3", "1"),
            ("n 1. 3", "1"),
            ("n 1", "1"),
            ("1n 1 3", "1"),
            ("{n} 1 3", "1"),
        ] {
            assert_eq!(values(text, step).unwrap_err().kind(), Kind::Usage, "{text} {step}");
        }
        assert_eq!(values("n 0 255", "1").unwrap().split(' ').count(), 256);
    }

    #[test]
    fn a_list_is_split_at_commas_that_have_no_backslash() {
        let values = |text: &str| list(text).map(|it| it.values);
        assert_eq!(values("n a,b c,").unwrap(), ["a", "b c", ""]);
        assert_eq!(values("n a\\,b,\\x").unwrap(), ["a,b", "\\x"]);
        for bad in ["n a,a", "n! a", " a"] {
            assert_eq!(values(bad).unwrap_err().kind(), Kind::Usage, "{bad}");
        }
    }

    #[test]
    fn parameters_are_replaced_once_and_other_braces_are_kept() {
        let chosen: Chosen = vec![("n".into(), "{m}".into()), ("m".into(), "2".into())];
        assert_eq!(substituted("a {n} {m} {x} ${n} {{m}}", &chosen), "a {m} 2 {x} ${m} {2}");
        assert_eq!(substituted("awk '{print}' {", &chosen), "awk '{print}' {");
        assert_eq!(substituted("µ{n}µ", &chosen), "µ{m}µ");
        assert!(uses("a{n}", "n") && !uses("a{nn}", "n"));
    }

    #[test]
    fn every_combination_is_made_once() {
        let sweep = |name: &str, values: &[&str]| Sweep {
            name: name.to_owned(),
            values: values.iter().map(|it| (*it).to_owned()).collect(),
        };
        let (a, b) = (sweep("a", &["1", "2"]), sweep("b", &["x", "y"]));
        let all = combinations(&[&a, &b]).unwrap();
        let told: Vec<String> =
            all.iter().map(|it| it.iter().map(|(_, v)| v.as_str()).collect()).collect();
        assert_eq!(told, ["1x", "1y", "2x", "2y"]);
        assert_eq!(combinations(&[]).unwrap(), [Chosen::new()]);
        let many = sweep("c", &["v"; 200]);
        assert_eq!(combinations(&[&a, &many]).unwrap_err().kind(), Kind::Usage);
    }
}
