//! The tables of the case itself: its figures in the form in which people know them.

use maud::{Markup, html};

use crate::cases;
use crate::result::Results;
use crate::show::host_tables;
use crate::table::{Align, Table};

/// The largest number of rows in all tables of a page; only the number of further rows is shown.
const MOST_ROWS: usize = 160;
/// Rows, with those of the table of all variants, that paper has room for.
const PAPER_ROWS: usize = 10;

/// All tables, with their notes. On paper only if there are few rows.
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
                h2 { @if results.hosts.is_empty() { "Tables of the case" } @else { "By host, and tables of the case" } }
                div class="tables" { @for part in &parts { (part) } }
                @if all > MOST_ROWS { p class="quiet" { (all - MOST_ROWS) " more rows are shown by " code { "pinstripe lab show" } "." } }
            }
        }
    }
}

/// A table's rows as they are shown, without its head.
fn rows(table: &Table) -> Vec<Vec<String>> {
    table.shown().split_off(1)
}

/// Whether a column has numbers that are words to a program: `21 us`, `(75.1)`, `~12`; not what
/// begins with one.
fn has_numbers(shown: &[Vec<String>], at: usize) -> bool {
    /// No number with its unit is longer.
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
