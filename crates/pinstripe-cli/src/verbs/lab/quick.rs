//! `pinstripe lab quick DIR`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use pinstripe_base::error::Result;
use pinstripe_lab::{
    Advice, Effort, NEGLIGIBLE, OutputFormat, Until, advise, put_file, report_page,
};

use super::{carry, history, tell};
use crate::escape;
use crate::run::{Ending, Run};

/// The name of the case that `quick` runs.
const CASE: &str = "quick";
/// The time for the runs. Together with creating and removing the test file, `quick` takes five
/// minutes.
const BUDGET_SECONDS: u64 = 270;

/// Measure in five minutes how fast a disk is, and which settings suit it
///
/// The command creates files of 1 GiB in total in a new directory below DIR, writes and reads them
/// with typical access patterns, and removes them. The command shows the best settings, with the
/// measured values that support them. The command also writes the best settings to an HTML page
/// (one file that needs no network).
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab quick /srv
  pinstripe lab quick /srv --out srv.html
  pinstripe lab quick /mnt/usb --time 60")]
pub struct LabQuickArgs {
    /// A directory on the disk to measure
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    dir: PathBuf,

    /// The HTML file to write [default: a file in the directory of the results]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,

    /// Time limit in seconds, after which no further run is started
    #[arg(long, value_name = "S", default_value_t = BUDGET_SECONDS)]
    time: u64,

    /// Size of the file that is written and read; twice this much space is needed
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    total_size: String,
}

impl LabQuickArgs {
    /// Measures, shows the results, and recommends settings.
    ///
    /// # Errors
    /// Fails with the errors of the case; with
    /// [`Kind::Interrupted`](pinstripe_base::error::Kind::Interrupted) after an interrupt.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let place = carry::usual_place(CASE)?;
        let given = [("total-size", self.total_size.as_str())];
        let dirs = [self.dir.clone()];
        let results = carry::measured(run, CASE, &dirs, &given, &effort(self.time), &place)?;
        tell::results(run, &results, OutputFormat::Text)?;
        let advice = advise(&results);
        say(run, &advice);
        let page_at = self.out.clone().unwrap_or_else(|| place.with_extension("html"));
        let page = report_page(std::slice::from_ref(&results), None, &history::usual(run));
        put_file(page.as_bytes(), &page_at)?;
        let (place_text, page_text) = (escape::path(&place), escape::path(&page_at));
        run.screen.say(&format!(
            "\nthe results are saved in {place_text}, and the page with the results in {page_text}"
        ));
        carry::check_complete(&results, &place)?;
        let facts = tell::facts(&results).with_path("path", &place).with_path("page", &page_at);
        Ok(Ending::done(facts.with("advice", json(&advice))))
    }
}

/// Formats advice for events.
pub fn json(advice: &[Advice]) -> serde_json::Value {
    serde_json::to_value(advice).expect("advice is plain text")
}

/// The number of rounds before which no race between variants ends.
const ROUNDS_AT_LEAST: usize = 8;
/// The number of rounds after which a race is left undecided.
const ROUNDS_AT_MOST: usize = 150;

/// Runs until each question is answered or `seconds` have elapsed.
pub fn effort(seconds: u64) -> Effort {
    Effort {
        min_runs: ROUNDS_AT_LEAST,
        max_runs: ROUNDS_AT_MOST,
        until: Until::Settled(NEGLIGIBLE),
        budget: Duration::from_secs(seconds),
        patience: Duration::from_millis(500),
        ..Effort::default()
    }
}

/// Prints the recommended settings with the figures that support them, and the settings that were
/// not decided.
pub fn say(run: &Run, advice: &[Advice]) {
    if advice.is_empty() {
        run.screen.say("\ntoo few rounds were undisturbed to recommend settings");
        return;
    }
    let (decided, open): (Vec<&Advice>, Vec<&Advice>) = advice.iter().partition(|it| it.is_decided);
    let parts = [
        ("\nrecommended settings:", decided),
        (
            "\nno recommendation for these settings, because the results do not differ clearly:",
            open,
        ),
    ];
    for (title, all) in parts.into_iter().filter(|(_, all)| !all.is_empty()) {
        run.screen.say(title);
        for it in all {
            let (setting, value) = (&it.setting, &it.value);
            let line = format!("  {setting} {value}  for '{}': {}", it.question, it.evidence);
            run.screen.say(&escape::text(&line));
        }
    }
}
