//! `pinstripe stats`: shows the content of the store, the space that it takes, and the savings by
//! dedup.

use pinstripe::stats::{self, Holds};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::{format_count, format_size};
use pinstripe_stripe::Count;

use super::{analyze, snapshots};
use crate::choice_args::HostChoiceArgs;
use crate::event::Event;
use crate::run::progress::Gauge;
use crate::run::{Ending, Run};
use crate::table::{self, Side};

/// Show how much data the store contains and how much deduplication saves
///
/// For each snapshot, and for all snapshots together, 'stats' shows the number of files and their
/// size. 'stats' also shows the size that remains if equal files (equal in name, size and content,
/// or in content alone) or equal chunks are stored only once. Without --read-data, 'stats' reads
/// only lists of chunks, and no file content. With --read-data, all content is read once; the
/// second table then also shows how much deduplication of blocks of fixed length, and of
/// content-defined chunks of other lengths, would save. 'pinstripe analyze' shows how much
/// deduplication would save for files that are not backed up. In large stores, the amount of
/// distinct content is estimated from a sample; estimated numbers are marked with '~'.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe stats
  pinstripe stats latest
  pinstripe stats --read-data
  pinstripe stats --json")]
pub struct StatsArgs {
    /// Show only this snapshot: 'latest', 'latest~N' (N before the latest) or the beginning of its
    /// id
    #[arg(value_name = "SNAPSHOT")]
    snapshot: Option<String>,

    /// Also read all content, and show how much deduplication with other block and chunk lengths
    /// would save
    #[arg(long)]
    read_data: bool,

    #[command(flatten)]
    choice: HostChoiceArgs,
}

const HEAD: [(&str, Side); 8] = [
    ("snapshot", Side::Left),
    ("entries", Side::Right),
    ("files", Side::Right),
    ("size", Side::Right),
    ("by name", Side::Right),
    ("by content", Side::Right),
    ("by chunk", Side::Right),
    ("saved", Side::Right),
];

impl StatsArgs {
    /// Prints the tables.
    ///
    /// # Errors
    /// Fails with the errors of [`stats::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let choice = self.choice.choice(run)?;
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        let ticker = run.ticker(Gauge {
            label: "looking",
            done_bytes: |monitor| monitor.get(Counter::FetchedBytes),
            passes: 1,
        });
        let options = stats::StatsOptions {
            snapshot: self.snapshot.as_deref(),
            choice: &choice,
            read_data: self.read_data,
            limits: run.limits(&store),
        };
        let found = stats::run(&store, &options, &run.monitor)?;
        drop(ticker);
        let mut rows = Vec::new();
        for (snapshot, holds) in &found.snapshots {
            rows.push(row(&snapshot.id.short(), holds));
            let event = Event::new("stats").with_all(snapshots::facts(snapshot));
            run.screen.event(&event.with_all(facts(holds)))?;
        }
        if found.snapshots.len() != 1 {
            rows.push(row("all", &found.all));
        }
        for line in table::lines(&HEAD, &rows) {
            run.screen.row(&line)?;
        }
        run.screen.row("")?;
        let mut methods = analyze::of_files(found.all.by_name, found.all.by_content);
        methods.extend(found.survey.iter().flat_map(analyze::of_parts));
        methods.push(("chunks as they are stored".to_owned(), found.all.by_chunk));
        analyze::show(run, &methods)?;
        let stored = found.stored;
        run.screen.row("")?;
        run.screen.row(&format!(
            "the store has {} with {}; these have {} before compression and {} after compression; \
             with parity and index, the store uses {} on its members",
            pinstripe_base::units::counted(stored.packs, "pack", "packs"),
            pinstripe_base::units::counted(stored.chunks, "chunk", "chunks"),
            format_size(stored.raw_bytes),
            format_size(stored.record_bytes),
            format_size(stored.member_bytes),
        ))?;
        run.say_redundancy();
        let facts = facts(&found.all)
            .with("snapshots", found.snapshots.len())
            .with("packs", stored.packs)
            .with("chunks", stored.chunks)
            .with("raw_bytes", stored.raw_bytes)
            .with("record_bytes", stored.record_bytes)
            .with("member_bytes", stored.member_bytes);
        Ok(Ending::done(facts))
    }
}

fn row(name: &str, holds: &Holds) -> Vec<String> {
    let left = |count: &Count| {
        let mark = if count.sampled > 1 { "~" } else { "" };
        format!("{mark}{}", format_size(count.distinct_bytes))
    };
    let chunks = &holds.by_chunk;
    let saved = match holds.logical_bytes {
        0 => 0.0,
        all => 100.0 - 100.0 * chunks.distinct_bytes as f64 / all as f64,
    };
    vec![
        name.to_owned(),
        format_count(holds.entries),
        format_count(holds.files),
        format_size(holds.logical_bytes),
        left(&holds.by_name),
        left(&holds.by_content),
        left(chunks),
        format!("{saved:.2} %"),
    ]
}

fn facts(holds: &Holds) -> Event {
    Event::default()
        .with("entries", holds.entries)
        .with("files", holds.files)
        .with("logical_bytes", holds.logical_bytes)
        .with("by_name_bytes", holds.by_name.distinct_bytes)
        .with("by_content_bytes", holds.by_content.distinct_bytes)
        .with("by_chunk_bytes", holds.by_chunk.distinct_bytes)
}
