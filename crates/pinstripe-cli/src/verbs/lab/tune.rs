//! `pinstripe lab tune`: settings by measurement, in a file that other verbs read.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::clock;
use pinstripe::error::{Error, Kind, Result};
use pinstripe::ops::members;
use pinstripe_lab::advice::{Advice, advise};
use pinstripe_lab::knobs::{Knob, knobs, to_toml};
use pinstripe_lab::result;

use super::quick::{self, Extent};
use super::{carry, tell};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::time;

/// Measure the disks, and write down what to set
///
/// Runs what 'pinstripe lab quick' runs in each directory, or on the members of a store (--store). Of several
/// places, what most of them want is written, and of as many the first. The file says for each setting what
/// speaks for it; other verbs read it with --knobs FILE, or by the key 'knobs' in the config file. What is
/// given on the command line outranks it.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab tune /mnt/a /mnt/b --out knobs.toml
  pinstripe lab tune --store /mnt/a/store --out knobs.toml
  pinstripe split image /mnt/a /mnt/b --knobs knobs.toml")]
pub struct Args {
    /// Directories on the disks to measure
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dirs: Vec<PathBuf>,

    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "knobs.toml", value_hint = ValueHint::FilePath)]
    out: PathBuf,

    #[command(flatten)]
    extent: Extent,
}

impl Args {
    /// Measures, and writes the file.
    ///
    /// # Errors
    /// Those of the cases and of the file; [`Kind::Interrupted`] after an interrupt: nothing is written then.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let dirs = self.places(run)?;
        let mut found = Vec::new();
        for dir in &dirs {
            let place = carry::usual_place("tune")?;
            let results = quick::measured(run, dir, &self.extent, &place)?;
            carry::check_complete(&results, &place)?;
            run.screen.event(&tell::facts(&results).with_path("path", &place))?;
            let advice = advise(&results);
            run.screen.say(&format!("{}:", escape::path(dir)));
            quick::say(run, &advice);
            found.push(advice);
        }
        let knobs = knobs(&agree(&found));
        if knobs.is_empty() {
            let error = Error::new(Kind::Changed, "too few runs counted to set anything by them");
            return Err(error.advice("measure again when the machine is quiet, or with --time"));
        }
        self.write(&dirs, &knobs)?;
        let out = escape::path(&self.out);
        run.screen.say(&format!("\nwritten to {out}: use it with --knobs {out}"));
        let set = |knob: &Knob| format!("{} --{}={}", knob.verb, knob.option, knob.value);
        let set: Vec<String> = knobs.iter().map(set).collect();
        Ok(Ending::done(Event::default().with_path("path", &self.out).with("knobs", set)))
    }

    /// The directories that were named, or the members of the store.
    fn places(&self, run: &Run) -> Result<Vec<PathBuf>> {
        let dirs = match (&self.dirs[..], &run.common.store) {
            ([], Some(_)) => members_of_store(run)?,
            ([], None) => {
                return Err(Error::new(Kind::Usage, "name directories, or a store with --store"));
            }
            (dirs, _) => dirs.to_vec(),
        };
        dirs.iter().map(|dir| carry::whole_dir(dir)).collect()
    }

    fn write(&self, dirs: &[PathBuf], knobs: &[Knob]) -> Result<()> {
        let places: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        let (seconds, nanos) = clock::now();
        let when = time::utc(seconds, nanos).unwrap_or_default();
        let about = [format!("what 'pinstripe lab tune' found in {}, {when}", places.join(", "))];
        let text = to_toml(knobs, &about);
        result::put(text.as_bytes(), &self.out)
    }
}

/// Where the members of the store are that are there.
fn members_of_store(run: &Run) -> Result<Vec<PathBuf>> {
    let states = members::run(&run.open_locked()?)?;
    Ok(states.into_iter().filter(|it| it.present).map(|it| it.place).collect())
}

/// Of each question the advice that most places have; of as many, that of the first.
fn agree(found: &[Vec<Advice>]) -> Vec<Advice> {
    let mut agreed: Vec<Advice> = Vec::new();
    for advice in found.iter().flatten() {
        if agreed.iter().any(|known| known.question == advice.question) {
            continue;
        }
        let all: Vec<&Advice> =
            found.iter().flatten().filter(|it| it.question == advice.question).collect();
        let votes = |it: &&&Advice| all.iter().filter(|other| other.value == it.value).count();
        let most = all.iter().map(|it| votes(&it)).max().unwrap_or(0);
        agreed.extend(all.iter().find(|it| votes(it) == most).map(|it| (*it).clone()));
    }
    agreed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_places_want_is_set() {
        let advice = |question: &str, value: &str| Advice {
            question: question.into(),
            setting: "depth".into(),
            value: value.into(),
            is_first: false,
            evidence: String::new(),
        };
        let found = [
            vec![advice("a", "1"), advice("b", "8")],
            vec![advice("a", "4"), advice("b", "2")],
            vec![advice("a", "4")],
        ];
        let values: Vec<String> = agree(&found).into_iter().map(|it| it.value).collect();
        assert_eq!(values, ["4", "8"]);
    }
}
