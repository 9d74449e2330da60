//! Measures each stage of pinstripe, and pinstripe against other programs: for its developers.
//!
//! This supplements the lab, whose loads, statistics and tables it uses. Measurements of users' own
//! disks are cases of the lab; they are here only together with their comparisons, such as other
//! programs, parts of the library alone, and target figures.
//!
//! A case returns tables; this file shows them, saves them, and knows nothing about any case.
//! Nothing here decides whether a figure is good: tables say what was aimed at and what was met.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a program of its own")]

mod cases;
mod child;
mod content;
mod targets;
mod tools;
mod trees;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cases::Case;
use pinstripe_lab::{Machine, Table};

/// The result of a case or a helper: the message says what failed and where.
type Result<T> = std::result::Result<T, String>;

/// The form of results on standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OutputFormat {
    Text,
    Markdown,
    Json,
}

/// The command-line options common to all cases.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    form: OutputFormat,
    out: Option<PathBuf>,
    rest: Vec<String>,
}

impl Options {
    fn read(args: &[String]) -> Result<Options> {
        let mut options = Options { form: OutputFormat::Text, out: None, rest: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--markdown" => options.form = OutputFormat::Markdown,
                "--json" => options.form = OutputFormat::Json,
                "--out" => {
                    options.out = Some(args.next().ok_or("--out needs a directory")?.into());
                }
                _ => options.rest.push(arg.clone()),
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(case) = args.first().and_then(|name| cases::ALL.iter().find(|c| c.name == *name))
    else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    match Options::read(&args[1..]).and_then(|options| run(case, &options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pinstripe-bench {}: {error}", case.name);
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let mut text = String::from(
        "usage: pinstripe-bench CASE [--markdown | --json] [--out DIR] [ARG]...\n\n\
         --out DIR writes CASE.json and CASE.md there; the cases and what they take:\n",
    );
    for case in cases::ALL {
        text.push_str(&format!("  {:<8} {}\n", case.name, case.about));
    }
    text
}

fn run(case: &Case, options: &Options) -> Result<()> {
    let machine = Machine::probe();
    let tables = (case.run)(&options.rest)?;
    let json = to_json(case.name, &machine, &tables);
    let page = |show: fn(&Table) -> String| {
        let tables: Vec<String> = tables.iter().map(show).collect();
        format!("{machine}\n\n{}", tables.join("\n"))
    };
    if let Some(out) = &options.out {
        save(out, &format!("{}.json", case.name), &json)?;
        save(out, &format!("{}.md", case.name), &page(Table::to_markdown))?;
    }
    match options.form {
        OutputFormat::Text => print!("{}", page(Table::to_text)),
        OutputFormat::Markdown => print!("{}", page(Table::to_markdown)),
        OutputFormat::Json => print!("{json}"),
    }
    Ok(())
}

fn to_json(case: &str, machine: &Machine, tables: &[Table]) -> String {
    let tables: Vec<_> = tables.iter().map(Table::to_json).collect();
    let value = serde_json::json!({"case": case, "machine": machine, "tables": tables});
    format!("{value:#}\n")
}

fn save(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_options_are_taken_out_and_the_rest_is_the_case_s() {
        let args = ["--work", "w", "--markdown", "--out", "o", "--rounds", "1"];
        let options = Options::read(&args.map(str::to_owned)).unwrap();
        assert_eq!(options.form, OutputFormat::Markdown);
        assert_eq!(options.out.as_deref(), Some(Path::new("o")));
        assert_eq!(options.rest, ["--work", "w", "--rounds", "1"]);
        assert!(Options::read(&["--out".to_owned()]).is_err());
    }
}
