//! `pinstripe lab tune`: finds settings by measurement, and writes them to a file that other verbs
//! read.

mod step;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueHint;
use pinstripe::members;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::{Advice, Knob, advise, knobs, knobs_to_toml, put_file, undecided_knobs};
use rustix::fs::Access;

use self::step::{Case, Step, share, steps, usual_seconds};
use super::{carry, quick, tell};
use crate::args::{Size, size};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::time;

/// Measure the disks, and write the best settings to a file
///
/// Runs four cases of the lab in the given directories, or on the members of a store (--store). The
/// case 'quick' runs in each directory; its results determine the write policy, depth and strip
/// size of 'pinstripe split'. The case 'stripe' uses all directories together; its results
/// determine the stripe_size of an array. The case 'split' uses all directories together; its
/// results determine the codec of 'pinstripe split'. The case 'record-probe' runs in the first
/// directory; its results determine the write policy and the ring buffer size of 'pinstripe
/// record'. 'lab tune' takes 7 minutes for one directory, and 2 1/2 minutes for each further
/// directory. If the best value of a setting differs between directories, the most frequent value
/// is written to the file. If several values are equally frequent, the first of them is written.
/// The written file contains the evidence for each setting. Other verbs read the file if it is
/// given by --knobs FILE, or by the key 'knobs' in the config file. Options on the command line
/// take precedence over settings in this file. A setting is written to the file only if it is
/// proved to be better than the default of the verb, or as good as every other value. All other
/// settings are reported as undecided.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab tune /mnt/a /mnt/b --out knobs.toml
  pinstripe lab tune --store /mnt/a/store --out knobs.toml
  pinstripe lab tune /mnt/a --cases split --sample /srv/dumps
  pinstripe split image /mnt/a /mnt/b --knobs knobs.toml")]
pub struct LabTuneArgs {
    /// Directories on the disks to measure
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dirs: Vec<PathBuf>,

    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "knobs.toml", value_hint = ValueHint::FilePath)]
    out: PathBuf,

    /// Cases to run: quick, stripe, split, record-probe
    #[arg(
        long,
        value_name = "NAME,...",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "quick,stripe,split,record-probe"
    )]
    cases: Vec<Case>,

    /// Time limit in seconds for all cases together, after which no further run is started
    /// [default: the sum of 150 for quick in each directory, 90 for stripe, 70 for split, 110 for
    /// record-probe]
    ///
    /// Each case gets a share of the remaining time. A slow disk needs a longer --time.
    #[arg(long, value_name = "S")]
    time: Option<u64>,

    /// Size of the data that is written and read at a time in each directory; three times this much
    /// space is needed
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = Size(512 << 20))]
    total_size: Size,

    /// Choose the codec by compressing the data of this file, or of all files below this directory
    ///
    /// The best codec depends on the data. By default, the case compresses generated data that
    /// resembles the memory of a machine: 40 % of its pages are zeros, and each other page consists
    /// of half random bytes and half words.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    sample: Option<PathBuf>,

    /// Number of streams to record in the case 'record-probe'
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    streams: u64,

    /// Rate of each stream in bytes per second; 288000 is one channel of 24 bits at 96 kHz
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = Size(288_000))]
    rate: Size,
}

impl LabTuneArgs {
    /// Measures, and writes the file of settings.
    ///
    /// # Errors
    /// Fails with the errors of the cases and of the file; with [`Kind::Interrupted`] after an
    /// interrupt, when nothing is written.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let dirs = self.places(run)?;
        self.check_files()?;
        let steps = steps(&self.cases, &dirs);
        let budget = Duration::from_secs(self.time.unwrap_or_else(|| usual_seconds(&steps)));
        let began = Instant::now();
        let mut found = Vec::new();
        for number in 0..steps.len() {
            let left = budget.saturating_sub(began.elapsed());
            let step = &steps[number];
            run.screen.say(&format!(
                "step {} of {}: case {} in {}; about {} left for all steps",
                number + 1,
                steps.len(),
                step.case.name(),
                escape::text(&step.places()),
                time::rough_span(left)
            ));
            found.push(self.measure(run, step, share(&steps[number..], left))?);
        }
        let advice = agree(&found);
        let cases: Vec<&str> = steps.iter().map(|it| it.case.name()).collect();
        self.conclude(run, &dirs, &knobs(&advice), &undecided_knobs(&cases, &advice))
    }

    /// Checks in advance that the sample can be read and the output file written, which would
    /// otherwise fail after minutes.
    fn check_files(&self) -> Result<()> {
        if let Some(sample) = &self.sample {
            rustix::fs::access(sample, Access::READ_OK)
                .map_err(|errno| Error::io("cannot be read", sample, errno))?;
        }
        let folder = self.out.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|errno| Error::io("this directory cannot be written", folder, errno))
    }

    /// Runs one case, and keeps its advice.
    fn measure(&self, run: &Run, step: &Step, budget: Duration) -> Result<Vec<Advice>> {
        let name = step.case.name();
        let place = carry::usual_place(&format!("tune-{name}"))?;
        let given = step.given(self, budget);
        let given: Vec<(&str, &str)> =
            given.iter().map(|(name, value)| (*name, &**value)).collect();
        let effort = step.case.effort(budget);
        let results = carry::measured(run, name, &step.dirs, &given, &effort, &place)?;
        let advice = advise(&results);
        let event = Event::new("lab_step").with_all(tell::facts(&results));
        let event = event.with_path("path", &place).with("advice", quick::json(&advice));
        run.screen.event(&event)?;
        carry::check_complete(&results, &place)?;
        quick::say(run, &advice);
        run.screen.say(&format!("the results are saved in {}\n", escape::path(&place)));
        Ok(advice)
    }

    /// Writes the file, and reports which settings it has and which were not decided.
    fn conclude(
        &self,
        run: &Run,
        dirs: &[PathBuf],
        knobs: &[Knob],
        open: &[(&str, &str)],
    ) -> Result<Ending> {
        if knobs.is_empty() {
            let error = Error::new(
                Kind::Changed,
                "no setting can be recommended: too few rounds were undisturbed, or no difference \
                 is certain",
            );
            return Err(
                error.advice("measure again when the machine is quiet, or with a larger --time")
            );
        }
        self.write(dirs, knobs)?;
        let open: Vec<String> =
            open.iter().map(|(verb, option)| format!("{verb} --{option}")).collect();
        if !open.is_empty() {
            run.screen.say(&format!(
                "no values were found for these settings, so they were not written: {}\n  measure \
                 again when the machine is quiet, or with a larger --time",
                open.join(", ")
            ));
        }
        let out = escape::path(&self.out);
        run.screen
            .say(&format!("the settings were written to {out}; to use them, add --knobs {out}"));
        let set = |knob: &Knob| format!("{} --{}={}", knob.verb, knob.option, knob.value);
        let set: Vec<String> = knobs.iter().map(set).collect();
        let facts = Event::default().with_path("path", &self.out);
        Ok(Ending::done(facts.with("knobs", set).with("undecided", open)))
    }

    /// The named directories, or the members of the store.
    fn places(&self, run: &Run) -> Result<Vec<PathBuf>> {
        let dirs = match (&self.dirs[..], &run.common.store[..]) {
            ([], [_, ..]) => members_of_store(run)?,
            ([], []) => {
                return Err(Error::new(
                    Kind::Usage,
                    "give directories, or give a store with --store",
                ));
            }
            (dirs, _) => dirs.to_vec(),
        };
        dirs.iter().map(|dir| carry::whole_dir(dir)).collect()
    }

    fn write(&self, dirs: &[PathBuf], knobs: &[Knob]) -> Result<()> {
        let places: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        let (seconds, nanos) = clock::now();
        let when = time::utc(seconds, nanos).unwrap_or_default();
        let about =
            [format!("settings that 'pinstripe lab tune' found in {}, {when}", places.join(", "))];
        let text = knobs_to_toml(knobs, &about);
        put_file(text.as_bytes(), &self.out)
    }
}

/// The places of the members of the store that are present.
fn members_of_store(run: &Run) -> Result<Vec<PathBuf>> {
    let states = members::run(&run.open_locked()?)?;
    Ok(states.into_iter().filter(|it| it.present).map(|it| it.place).collect())
}

/// For each setting, the most frequent advice of the places that came to a decision; if several are
/// equally frequent, that of the first place.
fn agree(found: &[Vec<Advice>]) -> Vec<Advice> {
    let decided = |all: &Vec<Advice>| -> Vec<Advice> {
        all.iter().filter(|it| it.is_decided).cloned().collect()
    };
    let found: Vec<Vec<Advice>> = found.iter().map(decided).collect();
    let is_same = |a: &Advice, b: &Advice| (&a.question, &a.setting) == (&b.question, &b.setting);
    let mut agreed: Vec<Advice> = Vec::new();
    for advice in found.iter().flatten() {
        if agreed.iter().any(|known| is_same(known, advice)) {
            continue;
        }
        let all: Vec<&Advice> = found.iter().flatten().filter(|it| is_same(it, advice)).collect();
        let votes = |it: &&&Advice| all.iter().filter(|other| other.value == it.value).count();
        let most = all.iter().map(|it| votes(&it)).max().unwrap_or(0);
        agreed.extend(all.iter().find(|it| votes(it) == most).map(|it| (*it).clone()));
        if let Some(last) = agreed.last_mut().filter(|_| all.len() > 1) {
            last.evidence +=
                &format!("; this value is the best in {most} of {} directories", all.len());
        }
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
            is_usual: false,
            is_decided: true,
            evidence: String::new(),
        };
        let open = Advice { is_decided: false, ..advice("c", "9") };
        let found = [
            vec![advice("a", "1"), advice("b", "8"), open],
            vec![advice("a", "4"), advice("b", "2")],
            vec![advice("a", "4")],
        ];
        let mut ring = advice("a", "128K");
        ring.setting = "ring".into();
        let found = [&found[..], &[vec![ring]]].concat();
        let agreed = agree(&found);
        assert_eq!(agreed[0].evidence, "; this value is the best in 2 of 3 directories");
        let values: Vec<String> = agreed.into_iter().map(|it| it.value).collect();
        assert_eq!(values, ["4", "8", "128K"]);
    }
}
