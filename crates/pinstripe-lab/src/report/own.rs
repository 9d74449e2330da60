//! The tables of the case: its figures in their usual form.

use maud::{Markup, html};

use crate::cases;
use crate::result::Results;
use crate::show::host_tables;
use crate::table::{Align, Table};

/// The most rows in all tables of a page; of further rows only the number is shown.
const MOST_ROWS: usize = 160;
/// The most rows that are printed, including the rows of the table of all variants.
const PAPER_ROWS: usize = 10;

/// All tables, with their notes. The tables are printed only if they have few rows.
pub(super) fn show(results: &Results) -> Markup {
    let tables: Vec<Table> =
        host_tables(results).into_iter().chain(cases::tables(results)).collect();
    let all: usize = tables.iter().map(|it| rows(it).len()).sum();
    let mut left = MOST_ROWS;
    let parts: Vec<Markup> = tables
        .iter()
        .map(|table| {
            let most = left;
            left = left.saturating_sub(rows(table).len());
            of_table(table, most)
        })
        .collect();
    html! {
        @if !tables.is_empty() {
            section class=[(results.variants.len() + all > PAPER_ROWS).then_some("screen").or(Some("detail"))] {
                h2 { @if results.hosts.is_empty() { "Tables of the case" } @else { "Results by host, and tables of the case" } }
                div class="tables" { @for part in &parts { (part) } }
                @if all > MOST_ROWS { p class="quiet" { (all - MOST_ROWS) " more rows are shown by " code { "pinstripe lab show" } "." } }
            }
        }
    }
}

/// The rows of a table as they are shown, without its heading.
fn rows(table: &Table) -> Vec<Vec<String>> {
    table.shown().split_off(1)
}

/// Whether a column contains numbers with units or marks, which a program reads as words, such as
/// `21 us`, `(75.1)`, `~12`; a longer text that begins with a number does not count.
fn has_numbers(shown: &[Vec<String>], at: usize) -> bool {
    /// The greatest length of a number with its unit.
    const MOST: usize = 12;
    let cells: Vec<&str> =
        shown.iter().skip(1).map(|row| row[at].as_str()).filter(|it| *it != "-").collect();
    let is_number = |it: &&str| {
        let digits = it.trim_start_matches(['(', '~']);
        it.len() <= MOST && digits.starts_with(|it: char| it.is_ascii_digit())
    };
    at > 0 && !cells.is_empty() && cells.iter().all(is_number)
}

fn of_table(table: &Table, most: usize) -> Markup {
    let shown = table.shown();
    let is_left = |(at, side): (usize, Align)| side == Align::Left && !has_numbers(&shown, at);
    let sides: Vec<Option<&str>> =
        table.sides().enumerate().map(|it| is_left(it).then_some("left")).collect();
    html! {
        div class="wide" {
            table class="own" {
                caption {
                    b { (table.title()) }
                    @if !table.note().is_empty() { " " span class="quiet" { (table.note()) } }
                }
                @if let Some(head) = shown.first() {
                    thead { tr { @for (name, side) in head.iter().zip(&sides) { th class=[*side] scope="col" { (name) } } } }
                }
                tbody {
                    @for row in shown.iter().skip(1).take(most) {
                        tr { @for (cell, side) in row.iter().zip(&sides) { td class=[*side] { (cell) } } }
                    }
                }
            }
        }
    }
}
