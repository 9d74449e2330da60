//! Shows results to people and to other programs: text, Markdown, CSV, JSON.
//!
//! Invariant: a figure is never shown without what is needed to judge it: the number of runs that
//! count and of all runs, its interval, and its notes. This module adds no judgement of its own.

mod csv;
mod hosts;
mod spark;
mod tables;

use std::str::FromStr;

use pinstripe_base::error::{Error, Kind, Result};
use serde::Serialize;

use crate::cases;
use crate::fio;
use crate::result::Results;
use crate::table::Table;

pub use csv::csv;
pub use hosts::clock_line;
pub(crate) use hosts::host_tables;
pub use spark::spark;
#[cfg(test)]
pub(crate) use tables::sentence;
pub(crate) use tables::{
    basis_text, chance, disturbance_lines, disturbances, finding_text, hump_text, latency,
    latency_of, marked, mood_text, shown_runs, why_estimate,
};
pub use tables::{change_lines, parameters_text, sides_line, table};
pub(crate) use tables::{fingerprint_lines, verdict_lines};

/// The format in which results are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// A table for a terminal.
    Text,
    /// A table for a Markdown page.
    Markdown,
    /// CSV with one line for each run, with all its figures.
    Csv,
    /// The tables as CSV, for spreadsheets: each table has its own heading, and an empty line
    /// separates two tables.
    TableCsv,
    /// All results, as they are saved.
    Json,
    /// The runs that count, as jobs in the JSON that fio prints.
    Fio,
}

impl FromStr for OutputFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "text" => Ok(OutputFormat::Text),
            "markdown" => Ok(OutputFormat::Markdown),
            "csv" => Ok(OutputFormat::Csv),
            "table-csv" => Ok(OutputFormat::TableCsv),
            "json" => Ok(OutputFormat::Json),
            "fio" => Ok(OutputFormat::Fio),
            _ => Err(Error::new(Kind::Usage, format!("'{text}' is not an output format"))
                .advice("choose text, markdown, csv, table-csv, json or fio")),
        }
    }
}

/// Shows results.
pub fn show(results: &Results, form: OutputFormat) -> String {
    match form {
        OutputFormat::Text => {
            let lines = [verdict_lines(results), note_lines(results), fingerprint_lines(results)];
            let tables: Vec<_> = all_tables(results).iter().map(Table::to_text).collect();
            format!("{}{}", tables.join("\n"), paragraphs(&lines, "\n"))
        }
        OutputFormat::Markdown => {
            let lines = [verdict_lines(results), note_lines(results), fingerprint_lines(results)];
            let lines = lines.map(|part| part.iter().map(|line| format!("- {line}")).collect());
            let tables: Vec<_> = all_tables(results).iter().map(Table::to_markdown).collect();
            format!("{}{}", tables.join("\n"), paragraphs(&lines, "\n"))
        }
        OutputFormat::Csv => csv(results),
        OutputFormat::TableCsv => {
            let tables: Vec<_> = all_tables(results).iter().map(csv::of_table).collect();
            tables.join("\n")
        }
        OutputFormat::Json => {
            let tables = cases::tables(results).iter().map(Table::to_json).collect();
            let text = serde_json::to_string_pretty(&ShownResults { results, tables });
            text.expect("results have only strings for keys") + "\n"
        }
        OutputFormat::Fio => format!("{:#}\n", fio::export(results)),
    }
}

/// Results as they are saved, and the tables of their case.
#[derive(Serialize)]
struct ShownResults<'a> {
    #[serde(flatten)]
    results: &'a Results,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tables: Vec<serde_json::Value>,
}

/// The table of all variants, the tables of several hosts, and the tables of the case.
fn all_tables(results: &Results) -> Vec<Table> {
    let own = host_tables(results).into_iter().chain(cases::tables(results));
    std::iter::once(table(results)).chain(own).collect()
}

fn paragraphs(parts: &[Vec<String>], between: &str) -> String {
    let parts = parts.iter().filter(|lines| !lines.is_empty());
    parts.map(|lines| format!("{between}{}\n", lines.join("\n"))).collect()
}

/// Lines with further information: disturbances, and whether the measurement reached its end.
fn note_lines(results: &Results) -> Vec<String> {
    let mut lines = [results.notes.clone(), tables::hump_lines(results)].concat();
    lines.extend(mood_text(results));
    if !results.is_complete {
        lines.push("the measurement was interrupted, so the results are incomplete".to_owned());
    }
    lines.extend(hosts::host_lines(results));
    lines.extend(tables::disturbance_lines(results));
    lines
}

#[cfg(test)]
mod tests;
