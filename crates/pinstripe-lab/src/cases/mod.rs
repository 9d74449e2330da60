//! One file per thing that is measured. A case reads its own arguments, measures through the
//! public interfaces that users have, and returns tables.

mod backup;
mod parity;

use crate::Result;
use crate::table::Table;

/// Something that can be measured.
pub struct Case {
    /// Its name on the command line, and of its result files.
    pub name: &'static str,
    /// What it measures, and its arguments.
    pub about: &'static str,
    /// Measures.
    pub run: fn(&[String]) -> Result<Vec<Table>>,
}

/// Every case: a new one is a `mod` line above and a line here.
pub const ALL: &[Case] = &[
    Case { name: "backup", about: backup::ABOUT, run: backup::run },
    Case { name: "parity", about: parity::ABOUT, run: parity::run },
];

/// Takes `--name VALUE` pairs; the answer to a name that is not in `known` is an error.
fn pairs<'a>(args: &'a [String], known: &[&str]) -> Result<Vec<(&'a str, &'a str)>> {
    let mut pairs = Vec::new();
    let mut args = args.iter();
    while let Some(name) = args.next() {
        if !known.contains(&name.as_str()) {
            return Err(format!("'{name}' is not one of {}", known.join(", ")));
        }
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        pairs.push((name.as_str(), value.as_str()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_in_known_pairs() {
        let args = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let good = args("--work w --rounds 3");
        assert_eq!(
            pairs(&good, &["--work", "--rounds"]).unwrap(),
            [("--work", "w"), ("--rounds", "3")]
        );
        assert!(pairs(&args("--wrk w"), &["--work"]).unwrap_err().contains("--work"));
        assert!(pairs(&args("--work"), &["--work"]).unwrap_err().contains("needs a value"));
    }
}
