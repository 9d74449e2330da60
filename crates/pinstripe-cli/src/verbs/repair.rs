//! `pinstripe repair`: write anew what parity or another copy can give back.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::error::Result;
use pinstripe::monitor::Counter;
use pinstripe::ops::{members, repair};
use pinstripe::units::format_size;

use super::counted;
use crate::escape;
use crate::event::Event;
use crate::exit;
use crate::progress::Gauge;
use crate::remembered::Proof;
use crate::run::{Ending, Run};
use crate::time;

/// Mend damage, or rebuild a lost member into an empty directory
///
/// Every strip is read and judged. A damaged extent is rebuilt beside the old one and takes its
/// place only when it is safely on the disk. With --member and --to, an absent member is rebuilt
/// whole.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe repair
  pinstripe members
  pinstripe repair --member 2 --to /mnt/new/store")]
pub struct Args {
    /// The number of the absent member to rebuild, as 'pinstripe members' shows it
    #[arg(long, value_name = "N", requires = "to")]
    member: Option<usize>,

    /// The directory that becomes this member; missing or empty
    #[arg(long, value_name = "DIR", requires = "member", value_hint = ValueHint::DirPath)]
    to: Option<PathBuf>,

    /// Allow it on a disk that another member is on
    #[arg(long, requires = "to")]
    same_disk: bool,
}

const GAUGE: Gauge = Gauge {
    label: "repairing",
    done_bytes: |monitor| monitor.get(Counter::CheckedBytes),
    passes: 1,
};

impl Args {
    /// Runs the repair.
    ///
    /// # Errors
    /// Those of [`repair::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let mut store = run.open_keyless()?;
        let replace = self.member.zip(self.to.clone());
        for number in store.absent().filter(|number| Some(*number) != self.member) {
            run.monitor.note(&format!(
                "member {number} is absent and is not repaired; rebuild it with: \
                 pinstripe repair --member {number} --to DIR"
            ));
        }
        let stored: u64 = members::run(&store)?.iter().map(|state| state.stored_bytes).sum();
        run.monitor.expect(stored, 0);
        let options = repair::Options {
            replace: replace.clone(),
            same_disk: self.same_disk,
            limits: run.limits(&store),
        };
        let ticker = run.ticker(GAUGE);
        let outcome = repair::run(&mut store, &options, &run.monitor)?;
        drop(ticker);
        run.remember(&store, Proof::Label);
        say(run, &outcome);
        if let Some((number, place)) = replace.filter(|_| run.count(Counter::Losses) == 0) {
            let place = escape::path(&place);
            let new = outcome.replaced_by.unwrap_or(number);
            run.screen.say(&format!("member {number} is replaced by member {new}, at {place}"));
        }
        // A store with a member still absent is whole for reading, not for the next loss.
        let code = if store.absent().count() > 0 { exit::REPAIRABLE } else { exit::DONE };
        Ok(Ending { code, facts: Event::default().with_fields(&outcome) })
    }
}

fn say(run: &Run, outcome: &repair::Outcome) {
    let say = |line: String| run.screen.say(&line);
    say(format!(
        "examined {}, {} in {}",
        counted(outcome.sets, "stripe set"),
        format_size(run.count(Counter::CheckedBytes)),
        time::span(run.elapsed()),
    ));
    let doubled = run.count(Counter::DoubledPages);
    let ended = [
        (outcome.repaired_extents, "rebuilt", "extent", " from parity"),
        (outcome.repaired_objects, "copied", "small object", " from other members"),
        (outcome.strays, "set aside", "stray object", ", named above"),
        (outcome.rebuilt_runs, "made", "index run", " anew"),
        (outcome.relaid_packs, "laid", "pack", " anew that parity could not mend"),
        (doubled, "doubled", "page", " of snapshots' trees"),
        (outcome.lost_extents, "gave up", "extent", " that nothing can bring back"),
        (outcome.homeless_extents, "left out", "extent", " for which there are too few members"),
    ];
    for (count, act, name, how) in ended.iter().filter(|(count, ..)| *count > 0) {
        say(format!("{act} {}{how}", counted(*count, name)));
    }
    if ended.iter().all(|(count, ..)| *count == 0) {
        say("there was nothing to mend".to_owned());
    }
}
