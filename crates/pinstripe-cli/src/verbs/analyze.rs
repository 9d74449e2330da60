//! `pinstripe analyze`: what dedup and compression would save on a directory tree.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::ValueHint;
use pinstripe::{Exclude, Limits, SURVEY_LENGTHS, Survey, analyze};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::{format_count, format_size};
use pinstripe_stripe::Count;

use super::backup::note_unmet;
use crate::event::Event;
use crate::run::progress::Gauge;
use crate::run::{Ending, Run};
use crate::system;
use crate::table::{self, Side};

/// Show how much space deduplication would save for files that are not backed up
///
/// Reads PATH and everything below it once. Compares three kinds of deduplication: of whole files
/// (equal in name, size and content, or in content alone), of blocks of fixed length, and of
/// content-defined chunks. Also shows the compression ratio of distinct chunks, which is measured
/// on a sample of them. No data is stored. In large trees, the amount of distinct content is
/// estimated from a sample; estimated numbers are marked with '~'.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe analyze /home
  pinstripe analyze /srv/images --memory 1G
  pinstripe analyze . --exclude '*.tmp' --json")]
pub struct AnalyzeArgs {
    /// The directory or file to analyze
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    path: PathBuf,

    /// Exclude entries that match this pattern, which is written as for 'pinstripe backup
    /// --exclude'; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,

    /// Do not enter other file systems that are mounted below PATH
    #[arg(long)]
    one_file_system: bool,
}

impl AnalyzeArgs {
    /// Reads the tree and prints the table.
    ///
    /// # Errors
    /// Fails with the errors of [`analyze::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let cores = run.common.threads.map_or_else(system::cores, |threads| threads as usize);
        let exclude = Exclude::new(self.exclude.iter().map(|pattern| pattern.as_bytes()))?;
        let options = analyze::AnalyzeOptions {
            paths: std::slice::from_ref(&self.path),
            exclude: exclude.clone(),
            one_file_system: self.one_file_system,
            limits: Limits::new(cores, 1, run.common.memory.0),
            // An interrupt ends the process: nothing is kept, so nothing is to be put in order.
            stop: &AtomicBool::new(false),
        };
        let ticker = run.ticker(Gauge {
            label: "reading",
            done_bytes: |monitor| monitor.get(Counter::ReadBytes),
            passes: 1,
        });
        let survey = analyze::run(options, &run.monitor)?;
        drop(ticker);
        note_unmet(run, &exclude);
        run.screen.say(&format!(
            "analyzed {} with {} of data",
            pinstripe_base::units::counted(survey.by_content.items, "file", "files"),
            format_size(survey.by_content.bytes)
        ));
        let mut methods = of_files(survey.by_name, survey.by_content);
        methods.extend(of_parts(&survey));
        show(run, &methods)?;
        if survey.tried_bytes > 0 {
            run.screen.say(&format!(
                "new chunks of 64 KiB can be compressed to {:.1} % of their size (tried on {})",
                percent(survey.compressed_bytes, survey.tried_bytes),
                format_size(survey.tried_bytes),
            ));
        }
        let facts = Event::default()
            .with("files", survey.by_content.items)
            .with("bytes", survey.by_content.bytes)
            .with("tried_bytes", survey.tried_bytes)
            .with("tried_compressed_bytes", survey.compressed_bytes);
        Ok(Ending::done(facts))
    }
}

/// The name of a method of deduplication, and its result.
pub type Method = (String, Count);

/// Whole files.
pub fn of_files(by_name: Count, by_content: Count) -> Vec<Method> {
    vec![
        ("complete files with the same name, size and content".to_owned(), by_name),
        ("complete files with the same content".to_owned(), by_content),
    ]
}

/// The methods with blocks and chunks of every length.
pub fn of_parts(survey: &Survey) -> Vec<Method> {
    let named = |what: &str, counts: &[Count]| -> Vec<Method> {
        let name = |bytes: u32| format!("{what} {}", format_size(u64::from(bytes)));
        counts.iter().zip(SURVEY_LENGTHS).map(|(count, bytes)| (name(bytes), *count)).collect()
    };
    let fixed = named("fixed blocks of", &survey.fixed);
    [fixed, named("content-defined chunks around", &survey.defined)].concat()
}

const HEAD: [(&str, Side); 6] = [
    ("method", Side::Left),
    ("objects", Side::Right),
    ("distinct", Side::Right),
    ("fewer", Side::Right),
    ("left", Side::Right),
    ("saved", Side::Right),
];

/// Prints the results of several methods side by side.
///
/// # Errors
/// Fails when standard output cannot be written.
pub fn show(run: &Run, methods: &[Method]) -> Result<()> {
    for (method, count) in methods {
        run.screen.event(&event(method, count))?;
    }
    let rows: Vec<_> = methods.iter().map(|(method, count)| row(method, count)).collect();
    table::lines(&HEAD, &rows).iter().try_for_each(|line| run.screen.row(line))
}

fn row(method: &str, count: &Count) -> Vec<String> {
    let mark = if count.sampled > 1 { "~" } else { "" };
    vec![
        method.to_owned(),
        format_count(count.items),
        format!("{mark}{}", format_count(count.distinct_items)),
        format!("{mark}{:.2} %", 100.0 - percent(count.distinct_items, count.items)),
        format!("{mark}{}", format_size(count.distinct_bytes)),
        format!("{mark}{:.2} %", 100.0 - percent(count.distinct_bytes, count.bytes)),
    ]
}

fn event(method: &str, count: &Count) -> Event {
    Event::new("method")
        .with("method", method)
        .with("objects", count.items)
        .with("distinct_objects", count.distinct_items)
        .with("bytes", count.bytes)
        .with("distinct_bytes", count.distinct_bytes)
        .with("sampled_one_in", count.sampled)
}

/// `part` as a percentage of `whole`; 100 if `whole` is 0.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}
