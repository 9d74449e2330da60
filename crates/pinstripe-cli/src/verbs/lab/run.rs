//! `pinstripe lab run CASE`: builds the options of a case from the case's own table.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches, ValueHint};
use pinstripe_base::error::Result;
use pinstripe_lab::{
    Assignment, CASES, Case, CaseOption, Consent, Coordinator, CoordinatorOptions, Effort,
    KnobCommand, Origin, OutputFormat, Plan, Results, Runner, Setting, Token, ValueForm, Values,
    VariantSpec, find_case, refuse_plan_without_room, with_knob_commands,
};
use serde_json::json;

use super::{carry, consent, form, tell};
use crate::args::one_line;
use crate::args::refuse_option;
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;

/// A case with the options that were given.
pub struct LabRunArgs {
    case: &'static Case,
    shared: SharedOptions,
    given: Vec<(&'static str, String)>,
}

/// Options of every case.
#[derive(clap::Args)]
#[command(next_help_heading = "Options of every case")]
struct SharedOptions {
    /// Directory to measure; may be given more than once, and each directory is compared with the
    /// first [default: .]
    ///
    /// Files are created in a new directory below each DIR; the new directory is removed at the
    /// end.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Vec<PathBuf>,

    /// Measure a device; all data on the device is lost
    ///
    /// The device must be unused and blank: it must not be mounted, used as swap, opened by another
    /// process or part of another device, and it must contain no data. The serial number of the
    /// device must be given by --serial, or typed at a prompt. The serial number of a loop device
    /// is the path of the file behind it.
    #[arg(long, value_name = "DEV", value_hint = ValueHint::FilePath, conflicts_with = "dir")]
    device: Option<PathBuf>,

    /// The serial number of the device of --device, to confirm that the device may be overwritten
    #[arg(long, value_name = "TEXT", requires = "device", conflicts_with = "dir")]
    serial: Option<String>,

    /// Overwrite the device although it is not blank
    ///
    /// --overwrite-unknown is only for data of unknown format, for example data of an earlier
    /// measurement. A file system, a partition table, a member of an array, or data of any other
    /// known format is never overwritten.
    #[arg(long, requires = "device", conflicts_with = "dir")]
    overwrite_unknown: bool,

    /// Only show which runs would be made
    #[arg(long)]
    dry_run: bool,

    /// Run each variant exactly this many times, instead of until its result is precise enough
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: Option<u64>,

    /// Time limit in seconds, after which no further run is started [default: 300 if --runs is not
    /// given]
    #[arg(long, value_name = "S", value_parser = some_seconds)]
    time: Option<Duration>,

    /// Number of warm-up runs of each variant, which do not count
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(0..=100))]
    warm_up: u64,

    /// Maximum number of seconds to wait before each run until the machine is quiet
    ///
    /// A run that starts under other load, or is disturbed by other load, is marked and repeated.
    /// If runs are shorter than two seconds, the machine is checked only every two seconds.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    patience: Duration,

    /// Also use runs that were disturbed by other load, and label the results that depend on them
    ///
    /// --accept-noise is for machines that are never quiet. Disturbed runs are not repeated, and
    /// every value and verdict that depends on a disturbed run has a label.
    #[arg(long)]
    accept_noise: bool,

    /// Measure every variant also with a setting of the system: a shell runs BEFORE before each run
    /// and AFTER after it
    ///
    /// The variants with and without the setting take turns, and are compared with each other. May
    /// be given more than once: each setting is compared with no setting. AFTER is also run if
    /// BEFORE or the run fails, and after an interrupt. If BEFORE or AFTER fails, the measurement
    /// stops. AFTER is killed if it does not end within ten minutes. Neither of them is timed.
    #[arg(long, value_names = ["BEFORE", "AFTER"], num_args = 2, action = ArgAction::Append,
          conflicts_with = "agents")]
    knob_command: Vec<String>,

    /// Seed of all random choices [default: a new seed for each execution]
    ///
    /// With the same seed, a case makes the same requests in the same order.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Save the results in this file
    ///
    /// Default: a file in the directory $XDG_STATE_HOME/pinstripe/lab/results, or in
    /// ~/.local/state/pinstripe/lab/results. Results are saved after every run (every second if
    /// runs are short) and at the end, so that no result is lost by an interrupt.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,

    /// Measure on several machines at the same time, through the agents ('lab agent') at these
    /// addresses
    ///
    /// The clocks of the machines are compared, so that each run starts on all machines at the same
    /// time. Paths in --dir and in the options of the case are paths on the machines of the agents.
    /// Relative paths begin at the first directory of the agent, which is also the default of
    /// --dir. Results are shown as the sum over all machines, and for each machine.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', requires = "token_file")]
    agents: Vec<String>,

    /// The file that contains the token of the agents
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "agents")]
    token_file: Option<PathBuf>,

    /// Seconds without progress after which an agent counts as lost
    ///
    /// An agent that sends no message counts as lost after 15 seconds, or after the time of
    /// --agent-timeout if that is shorter.
    #[arg(long, value_name = "S", default_value = "300", value_parser = some_seconds)]
    agent_timeout: Duration,

    /// Output format: text, markdown, csv, table-csv, json or fio
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = form)]
    form: OutputFormat,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
    seconds.ok_or_else(|| "write a number of seconds, for example 60 or 2.5".to_owned())
}

fn some_seconds(text: &str) -> std::result::Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("the time must be longer than 0 seconds".to_owned()),
        some if some > Duration::from_secs(86_400) => {
            Err("the time must be at most a day (86400 seconds)".to_owned())
        }
        some => Ok(some),
    }
}

impl clap::Args for LabRunArgs {
    fn augment_args(command: Command) -> Command {
        command
            .about("Run a case, and show its results")
            .long_about(
                "Run a case, and show its results\n\nEach case has its own options: see \
                 'pinstripe lab run CASE --help'.",
            )
            .after_long_help("Examples:\n  pinstripe lab run fileio --dir /srv --time 60")
            .subcommand_required(true)
            .arg_required_else_help(true)
            .disable_help_subcommand(true)
            .subcommand_value_name("CASE")
            .subcommand_help_heading("Cases")
            .subcommands(CASES.iter().map(|case| of_case(case)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn of_case(case: &'static Case) -> Command {
    let command = Command::new(case.name)
        .next_help_heading("Options of this case")
        .args(case.options.iter().map(of_option));
    // The shared options bring a text of their own, which is not that of the case.
    SharedOptions::augment_args(command)
        .about(case.about)
        .long_about(format!("{}\n\n{}", case.about, case.help))
        .after_long_help(format!("Examples:\n{}", case.examples))
}

fn of_option(option: &'static CaseOption) -> Arg {
    let arg = Arg::new(option.name).help(option.about);
    let arg = match option.form {
        // Without it there is nothing to measure.
        ValueForm::Operands => arg.required(true).num_args(1..),
        _ => arg.long(option.name),
    };
    let arg = match option.form {
        ValueForm::Path | ValueForm::Paths => arg.value_hint(ValueHint::AnyPath),
        _ => arg,
    };
    let arg = match option.more {
        "" => arg,
        more => arg.long_help(format!("{}\n\n{more}", option.about)),
    };
    let parser = match option.form {
        ValueForm::Flag => return arg.action(ArgAction::SetTrue),
        ValueForm::OneOf(words) => {
            ValueParser::from(PossibleValuesParser::new(words.iter().copied()))
        }
        // The words are checked together.
        ValueForm::Words => ValueParser::string(),
        _ => ValueParser::from(move |text: &str| {
            option.check(text).map(|()| text.to_owned()).map_err(one_line)
        }),
    };
    let arg = match option.form {
        ValueForm::Words => {
            // A number of a scan may be negative.
            let arg = arg.value_names(option.value.split(' ')).num_args(option.word_count());
            arg.allow_negative_numbers(true)
        }
        _ => arg.value_name(option.value),
    };
    let arg = arg.hide_possible_values(true).value_parser(parser);
    let arg = if option.form.is_repeated() { arg.action(ArgAction::Append) } else { arg };
    match option.default {
        Some(default) => arg.default_value(default),
        None => arg,
    }
}

/// The values of an option whose values have several words.
fn joined_words(
    option: &CaseOption,
    matches: &ArgMatches,
) -> std::result::Result<Vec<String>, clap::Error> {
    let given = matches.get_occurrences::<String>(option.name).into_iter().flatten();
    let joined = given.map(|words| {
        let words: Vec<&str> = words.map(String::as_str).collect();
        option.joined(&words)
    });
    let refused = |error| {
        let text = format!("{}\n", one_line(error));
        clap::Error::raw(clap::error::ErrorKind::ValueValidation, text)
    };
    joined.collect::<Result<_>>().map_err(refused)
}

impl FromArgMatches for LabRunArgs {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let case = find_case(name).map_err(|_| missing())?;
        let mut given = Vec::new();
        for option in case.options {
            let values: Vec<String> = match option.form {
                ValueForm::Flag => {
                    matches.get_flag(option.name).then(String::new).into_iter().collect()
                }
                ValueForm::Words => joined_words(option, matches)?,
                _ => matches.get_many(option.name).into_iter().flatten().cloned().collect(),
            };
            given.extend(values.into_iter().map(|value| (option.name, value)));
        }
        Ok(LabRunArgs { case, shared: SharedOptions::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl LabRunArgs {
    /// Runs the case, saves the results as they arrive, and shows them at the end.
    ///
    /// # Errors
    /// Fails with the errors of the case; with [`Kind::Interrupted`] after an interrupt, where the
    /// results are kept and shown.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let common = &run.common;
        refuse_option(
            !common.store.is_empty(),
            "--store",
            "a case measures directories: give them with --dir",
        )?;
        refuse_option(
            common.threads.is_some(),
            "--threads",
            "use the option --workers of the case",
        )?;
        refuse_option(
            !common.faults.is_empty(),
            "--fault",
            "a case measures real disks without simulated faults",
        )?;
        let given: Vec<(&str, &str)> =
            self.given.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let values = Values::read(self.case.options, &given)?;
        let origin = carry::origin(self.case.name, self.shared.seed);
        if let (Some(token_file), false) = (&self.shared.token_file, self.shared.agents.is_empty())
        {
            return self.run_on_agents(run, token_file, &origin);
        }
        let dirs = if self.shared.device.is_some() { Vec::new() } else { self.dirs()? };
        let device = self.shared.device.as_deref().map(carry::own_name);
        let setting = Setting { dirs, device: device.clone(), seed: origin.seed };
        let plan = (self.case.plan)(&setting, &values)?;
        let mut plan = with_knob_commands(plan, self.knob_commands())?;
        refuse_plan_without_room(plan.as_ref())?;
        if self.shared.dry_run {
            return self.rehearse(run, plan.as_ref(), device.as_deref());
        }
        if let Some(device) = &device {
            consent::ask(device, self.consent())?;
        }
        plan.may_begin()?;
        let place = self.place()?;
        let results = carry::carry_out(run, plan.as_mut(), &self.effort(), &origin, &place)?;
        self.end(run, &results, &place)
    }

    /// Runs the case on other machines.
    fn run_on_agents(&self, run: &Run, token_file: &Path, origin: &Origin) -> Result<Ending> {
        let token = Token::read(token_file)?;
        let words = |path: &PathBuf| path.to_string_lossy().into_owned();
        let own = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
        let asked = Assignment {
            case: self.case.name.to_owned(),
            options: self.given.iter().map(own).collect(),
            dirs: self.shared.dir.iter().map(words).collect(),
            device: self.shared.device.as_ref().map(words),
            seed: origin.seed,
            patience_s: self.shared.patience.as_secs_f64(),
        };
        let terms = CoordinatorOptions {
            program: origin.program.clone(),
            timeout: self.shared.agent_timeout,
            accepts_noise: self.shared.accept_noise,
        };
        let stop = signals::catch()?;
        let mut cluster = Coordinator::connect(&self.shared.agents, &token, &asked, terms, stop)?;
        if self.shared.dry_run {
            let (intents, variants) = (cluster.intents(), cluster.variants());
            let printed = self.print_plan(run, &intents, &variants, cluster.is_exact());
            cluster.clean()?;
            return printed;
        }
        for host in cluster.hosts() {
            let line = escape::text(&pinstripe_lab::clock_line(&host));
            tell::remark(run, self.shared.form, &line);
        }
        let place = self.place()?;
        let results = carry::carry_out_by(run, &mut cluster, &self.effort(), origin, &place)?;
        self.end(run, &results, &place)
    }

    /// The pairs of commands of --knob-command.
    fn knob_commands(&self) -> Vec<KnobCommand> {
        let pairs = self.shared.knob_command.chunks_exact(2);
        let knob = |it: &[String]| KnobCommand { before: it[0].clone(), after: it[1].clone() };
        pairs.map(knob).collect()
    }

    /// The file in which the results are kept.
    fn place(&self) -> Result<PathBuf> {
        match &self.shared.out {
            Some(out) => Ok(out.clone()),
            None => carry::usual_place(self.case.name),
        }
    }

    /// Shows the results.
    fn end(&self, run: &Run, results: &Results, place: &Path) -> Result<Ending> {
        if carry::has_runs(results) {
            tell::results(run, results, self.shared.form)?;
            let saved = format!("\nthe results are saved in {}", escape::path(place));
            tell::remark(run, self.shared.form, &saved);
        }
        carry::check_complete(results, place)?;
        Ok(Ending::done(tell::facts(results).with_path("path", place)))
    }

    /// Prints what a run would do, after all checks that a run makes before it changes anything.
    fn rehearse(&self, run: &Run, plan: &dyn Plan, device: Option<&Path>) -> Result<Ending> {
        let is_asked = device.map(|device| consent::check(device, self.consent())).transpose()?;
        plan.may_begin()?;
        if let (Some(device), Some(true)) = (device, is_asked) {
            let line =
                format!("the run would ask for the serial number of {}", escape::path(device));
            tell::remark(run, self.shared.form, &line);
        }
        self.print_plan(run, &plan.intents(), &plan.variants(), plan.is_exact())
    }

    /// Prints the plan: as lines for people, or as one JSON object.
    fn print_plan(
        &self,
        run: &Run,
        intents: &[String],
        variants: &[VariantSpec],
        is_exact: bool,
    ) -> Result<Ending> {
        let runs = self.runs_in_words(is_exact);
        for intent in intents {
            tell::remark(run, self.shared.form, &escape::text(&format!("would {intent}")));
        }
        for variant in variants {
            let line = format!("would run {} ({}) {runs}", variant.name, variant.about);
            tell::remark(run, self.shared.form, &escape::text(&line));
        }
        if self.shared.form == OutputFormat::Json {
            let variant = |it: &VariantSpec| json!({ "name": it.name, "group": it.group, "about": it.about, "runs": runs });
            let variants: Vec<_> = variants.iter().map(variant).collect();
            let plan = json!({
                "case": self.case.name,
                "dry_run": true,
                "intents": intents,
                "variants": variants,
            });
            run.screen.row(&format!("{plan:#}"))?;
        }
        let facts = Event::default().with("case", self.case.name).with("dry_run", true);
        Ok(Ending::done(facts.with("intents", intents.to_vec())))
    }

    fn runs_in_words(&self, is_exact: bool) -> String {
        let effort = self.effort();
        match (effort.min_runs, effort.max_runs) {
            _ if is_exact => "once".to_owned(),
            (1, 1) => "once".to_owned(),
            (least, most) if least == most => format!("{least} times"),
            (least, most) => format!("{least} to {most} times"),
        }
    }

    fn consent(&self) -> Consent<'_> {
        Consent {
            serial: self.shared.serial.as_deref(),
            overwrite_unknown: self.shared.overwrite_unknown,
        }
    }

    fn dirs(&self) -> Result<Vec<PathBuf>> {
        let dirs = match self.shared.dir.as_slice() {
            [] => vec![PathBuf::from(".")],
            dirs => dirs.to_vec(),
        };
        dirs.iter().map(|dir| carry::whole_dir(dir)).collect()
    }

    fn effort(&self) -> Effort {
        let effort = Effort {
            warm_up: self.shared.warm_up as usize,
            patience: self.shared.patience,
            accepts_noise: self.shared.accept_noise,
            ..Effort::default()
        };
        let budget = match (self.shared.time, self.shared.runs) {
            (Some(time), _) => time,
            (None, None) => effort.budget,
            (None, Some(_)) => Duration::MAX,
        };
        let effort = Effort { budget, ..effort };
        self.shared.runs.map_or(effort, |runs| effort.exactly(runs as usize))
    }
}
