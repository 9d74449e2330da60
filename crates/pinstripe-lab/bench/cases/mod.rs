//! One file per thing that is measured. A case reads its own arguments, measures through the
//! public interfaces that users have, and returns tables.

mod array;
mod backup;
mod bench;
mod bucket;
mod catalog;
mod codec;
mod from_lab;
mod kernel;
mod lab;
mod read;
mod record;
mod seal;
mod serve;
mod settings;
mod split;
mod store;
mod walk;

use pinstripe_lab::Table;

use crate::Result;

/// Something that can be measured.
pub struct Case {
    /// Its name on the command line, and of its result files.
    pub name: &'static str,
    /// The purpose of the case, and its arguments.
    pub about: &'static str,
    /// Measures.
    pub run: fn(&[String]) -> Result<Vec<Table>>,
}

/// Every case: a new one is a `mod` line above and a line here.
pub const ALL: &[Case] = &[
    Case { name: "array", about: array::ABOUT, run: array::run },
    Case { name: "backup", about: backup::ABOUT, run: backup::run },
    Case { name: "bucket", about: bucket::ABOUT, run: bucket::run },
    Case { name: "catalog", about: catalog::ABOUT, run: catalog::run },
    Case {
        name: "codec",
        about: "every codec on each kind of data (its file lists the arguments)",
        run: codecs,
    },
    Case { name: "kernel", about: kernel::ABOUT, run: kernel::run },
    Case { name: "lab", about: lab::ABOUT, run: lab::run_case },
    Case { name: "record", about: record::ABOUT, run: record::run },
    Case { name: "read", about: read::ABOUT, run: read::run },
    Case { name: "seal", about: seal::ABOUT, run: seal::run },
    Case { name: "serve", about: serve::ABOUT, run: serve::run },
    Case { name: "settings", about: settings::ABOUT, run: settings::run },
    Case { name: "split", about: split::ABOUT, run: split::run },
    Case { name: "store", about: store::ABOUT, run: store::run },
    Case { name: "walk", about: walk::ABOUT, run: walk::run },
];

fn codecs(args: &[String]) -> Result<Vec<Table>> {
    let note = "Thread CPU time, best of three passes; every round trip compared.";
    Ok(vec![Table::from_rows("Codecs", note, codec::run(args)?)])
}

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

/// Reads how many of something.
fn count(name: &str, value: &str) -> Result<u64> {
    let count = value.parse().ok().filter(|count: &u64| *count > 0);
    count.ok_or_else(|| format!("{name}: '{value}' is no number above 0"))
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
