//! Times commands: several commands, with the values of parameters, take turns.
//!
//! Invariants: a command that was prepared is concluded, and the cleanup is run, also after an error
//! or an interrupt; no time but that of the command itself is measured.
//!
//! This module does not decide how often a command is run, or which is faster: the engine does.

mod options;
mod parameters;
mod tables;
mod trial;
mod words;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_stats::median;

use super::{Again, Case, Given, Setting, Values, shared};
use crate::display;
use crate::program::{self, Output, ProcessUsage, TimedRun};
use crate::result::{Measured, Metric, Parameter};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use options::OPTIONS;
use trial::Trial;

/// The case.
pub static CASE: Case = Case {
    name: "command",
    about: "Time commands, with parameters, and compare them, as hyperfine does",
    help: "\
Runs each command several times, in the directory of --dir, and measures the time from its start to its end, \
its processor time, the memory of its largest process, and the bytes that it read and wrote. The commands \
take turns, and the verdicts are those of every case.

Standard error of a command is discarded, except that its last line is shown if the command fails.",
    examples: "\
  pinstripe lab run command 'grep -r main /usr/include' 'rg main /usr/include'
  pinstripe lab run command --prepare 'sync; echo 3 > /proc/sys/vm/drop_caches' 'tar cf /dev/null /usr'
  pinstripe lab run command --parameter-scan n 1 8 'make -j {n}' --prepare 'make clean'
  pinstripe lab run command --parameter-list c gzip,zstd,xz '{c} -k data.tar' --conclude 'rm data.tar.?*'
  pinstripe lab run command --same-output --reference 'sort f' 'LC_ALL=C sort f' 'sort f'
  pinstripe lab run command --shell none --form csv 'sleep 0.1'
  pinstripe lab run command 'dd if=/dev/zero of=f bs=1M count=512 conv=fsync' \\
      --knob-command 'sysctl vm.dirty_bytes=67108864' 'sysctl vm.dirty_ratio=20'",
    options: OPTIONS,
    plan,
    tables: tables::tables,
    again: Again { of_all: |_| None, of_variant, elsewhere: None },
};

/// The group of all commands.
const GROUP: &str = "commands";
/// The number of starts of the shell that are timed.
const SHELL_STARTS: usize = 5;
/// The bytes of a file that one read takes.
const READ_BYTES: usize = 1 << 20;

/// The options that measure a variant alone: parameters of other variants are left out.
fn of_variant(parameter: &Parameter) -> Option<Vec<Given>> {
    let none = |name| (name, "none".to_owned());
    let left_out = ["parameter-scan", "parameter-step-size", "parameter-list", "reference"];
    (parameter.name == "command").then(|| {
        let own = ("command", parameter.value.clone());
        left_out.into_iter().map(none).chain([own]).collect()
    })
}

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let dir = shared::one_directory(setting)?;
    let trials = trial::all(values)?;
    let shell = match values.text("shell").unwrap_or("sh") {
        "none" => Vec::new(),
        shell => words::split(shell)?,
    };
    if shell.is_empty() {
        trials.iter().try_for_each(|it| words::split(&it.command).map(drop))?;
    }
    let compares_output = values.has("same-output");
    let output = output(values.text("output"), compares_output)?;
    let timeout = values.has("timeout").then(|| shared::seconds(values, "timeout")).transpose()?;
    if timeout == Some(Duration::ZERO) {
        return Err(Error::new(Kind::Usage, "the time of --timeout must be longer than 0 seconds"));
    }
    let mut parameters = shared::parameters(OPTIONS, values);
    if let (Output::File(path), Some(shown)) =
        (&output, parameters.iter_mut().find(|it| it.name == "output"))
    {
        shown.value = path.to_string_lossy().into_owned();
    }
    Ok(Box::new(CommandCase {
        parameters,
        dir,
        shell,
        input: values.text("input").map(PathBuf::from),
        output,
        timeout,
        accepts_failure: values.has("ignore-failure"),
        compares_output,
        trials,
        shell_start: None,
        to_conclude: None,
        is_set_up: false,
        printed: None,
        expected: None,
    }))
}

/// Reads the destination of the standard output.
fn output(text: Option<&str>, is_hashed: bool) -> Result<Output> {
    let unread = |word: &str| {
        let what = format!("--same-output cannot check the output with --output {word}");
        Err(Error::new(Kind::Usage, what).advice("use --output pipe, or a file"))
    };
    Ok(match text {
        None if is_hashed => Output::Pipe { is_hashed },
        Some("pipe") => Output::Pipe { is_hashed },
        Some(word @ ("null" | "inherit")) if is_hashed => return unread(word),
        None | Some("null") => Output::Null,
        Some("inherit") => Output::Inherit,
        Some("") => return Err(Error::new(Kind::Usage, "the text of --output is empty")),
        Some(file) => {
            let whole = std::path::absolute(file);
            Output::File(whole.map_err(|error| Error::io("is not a path", file, error))?)
        }
    })
}

/// The bytes that a run printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Printed {
    bytes: u64,
    hash: blake3::Hash,
}

struct CommandCase {
    parameters: Vec<Parameter>,
    dir: PathBuf,
    /// The words before `-c`; empty if commands are started without a shell.
    shell: Vec<String>,
    input: Option<PathBuf>,
    output: Output,
    timeout: Option<Duration>,
    accepts_failure: bool,
    compares_output: bool,
    trials: Vec<Trial>,
    /// The time that the shell takes for a command that does nothing.
    shell_start: Option<Duration>,
    /// The variant whose preparation has begun, and that was not concluded.
    to_conclude: Option<usize>,
    /// Whether a setup has begun, so that the cleanup must follow.
    is_set_up: bool,
    /// The output of the last run.
    printed: Option<Printed>,
    /// The output that every run must have, and the variant that printed it first.
    expected: Option<(usize, Printed)>,
}

impl CommandCase {
    /// A command that is timed.
    fn timed(&self, text: &str) -> Result<Command> {
        let mut words = self.shell.clone();
        match words.is_empty() {
            true => words = words::split(text)?,
            false => words.extend(["-c".to_owned(), text.to_owned()]),
        }
        let (name, rest) = words.split_first().expect("no command is empty");
        let mut command = Command::new(name);
        command.args(rest).current_dir(&self.dir);
        Ok(command)
    }

    /// A command that is not timed, and is run by a shell in any case.
    fn step(&self, text: &str) -> Command {
        let usual = ["sh".to_owned()];
        let shell = if self.shell.is_empty() { &usual[..] } else { &self.shell };
        let mut command = Command::new(&shell[0]);
        command.args(&shell[1..]).args(["-c", text]).current_dir(&self.dir);
        command
    }

    fn run_step(&self, option: &str, text: &str, live: &Live) -> Result<()> {
        program::run_step(&mut self.step(text), &format!("--{option} '{text}'"), live)
    }

    fn put_back(&self, option: &str, text: &str) -> Result<()> {
        let put_back = program::put_back(&mut self.step(text), &format!("--{option} '{text}'"));
        put_back.map_err(|error| error.advice(format!("run it by hand in {}", self.dir.display())))
    }

    fn conclude(&mut self) -> Result<()> {
        let Some(at) = self.to_conclude.take() else { return Ok(()) };
        let text = self.trials[at].conclude.as_deref();
        text.map_or(Ok(()), |text| self.put_back("conclude", text))
    }

    /// The time of the start of the shell; `None` if it cannot be measured.
    fn shell_start(&self, live: &Live) -> Result<Option<Duration>> {
        let mut times = Vec::new();
        for _ in 0..SHELL_STARTS {
            let began = Instant::now();
            let ran = program::run_timed(&mut self.timed("")?, None, &Output::Null, None, live)?;
            times.push(ran.seconds.min(began.elapsed().as_secs_f64()));
        }
        Ok(median(&times).and_then(|it| Duration::try_from_secs_f64(it).ok()))
    }

    /// The output of a run; the content of a file is read.
    fn printed(&self, ran: &TimedRun, live: &Live) -> Result<Option<Printed>> {
        match (&self.output, ran.out_hash) {
            _ if !self.compares_output => Ok(None),
            (Output::File(path), _) => printed_in(path, live).map(Some),
            (_, hash) => Ok(hash.map(|hash| Printed { bytes: ran.out_bytes, hash })),
        }
    }

    /// Compares the output of the last run of a variant with that of the first run.
    fn check_output(&mut self, at: usize) -> Result<()> {
        let Some(printed) = self.printed.take() else { return Ok(()) };
        let (first, expected) = *self.expected.get_or_insert((at, printed));
        if printed == expected {
            return Ok(());
        }
        let (name, other) = (&self.trials[at].name, &self.trials[first].name);
        let (expected, found) = (expected.bytes, printed.bytes);
        let what = match first == at {
            true => format!("the output of '{name}' changes from run to run"),
            false => format!("the output of '{name}' differs from that of '{other}'"),
        };
        Err(Error::new(Kind::Changed, what)
            .expected(format!("{expected} bytes"), format!("{found} bytes"))
            .advice("run both by hand and compare their outputs, or leave out --same-output"))
    }
}

/// Reads a file, and returns its length and hash.
fn printed_in(path: &Path, live: &Live) -> Result<Printed> {
    let failed = |error| Error::io("cannot read the output", path, error);
    let mut file = File::open(path).map_err(failed)?;
    let (mut hasher, mut bytes) = (blake3::Hasher::new(), 0);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        live.check()?;
        let count = file.read(&mut buffer).map_err(failed)?;
        if count == 0 {
            return Ok(Printed { bytes, hash: hasher.finalize() });
        }
        bytes += count as u64;
        hasher.update(&buffer[..count]);
    }
}

/// The different texts, each once, in their order.
fn each_once<'a>(texts: impl Iterator<Item = Option<&'a String>>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for text in texts.flatten() {
        if !found.contains(&text.as_str()) {
            found.push(text);
        }
    }
    found
}

impl Plan for CommandCase {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |trial: &Trial| VariantSpec {
            name: trial.name.clone(),
            group: GROUP.to_owned(),
            about: trial.command.clone(),
            parameters: trial.parameters.clone(),
            metric: Metric::time(),
            place: PlaceNo::FIRST,
        };
        self.trials.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.dir.clone()]
    }

    fn notes(&self) -> Vec<String> {
        let note = |time: Duration| {
            let time = display::duration(time);
            let shell = self.shell.join(" ");
            format!(
                "each time contains the start of the shell '{shell}', which takes about {time}; \
                 --shell none starts the commands without it"
            )
        };
        self.shell_start.map(note).into_iter().collect()
    }

    fn intents(&self) -> Vec<String> {
        vec![format!("run the commands in {}", self.dir.display())]
    }

    fn may_begin(&self) -> Result<()> {
        if let Some(input) = &self.input {
            File::open(input).map_err(|error| Error::of_named("cannot read", input, error))?;
        }
        match &self.output {
            Output::File(path) if !path.parent().is_some_and(Path::is_dir) => {
                let what = "the directory of the file of --output does not exist";
                Err(Error::new(Kind::NotFound, what).at(path))
            }
            _ => Ok(()),
        }
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        self.is_set_up = true;
        for text in each_once(self.trials.iter().map(|it| it.setup.as_ref())) {
            self.run_step("setup", text, live)?;
        }
        if !self.shell.is_empty() {
            self.shell_start = self.shell_start(live)?;
        }
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, live: &Live) -> Result<()> {
        self.to_conclude = Some(variant.0);
        let text = self.trials[variant.0].prepare.as_deref();
        text.map_or(Ok(()), |text| self.run_step("prepare", text, live))
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let trial = &self.trials[variant.0];
        let mut command = self.timed(&trial.command)?;
        let input = self.input.as_deref();
        let ran = program::run_timed(&mut command, input, &self.output, self.timeout, live)
            .map_err(|error| error.at(&trial.command))?;
        if !self.accepts_failure {
            let what = format!("the command '{}'", trial.command);
            program::check_status(ran.status, &ran.err, &what).map_err(|error| {
                let dir = self.dir.display();
                error.advice(format!(
                    "run it by hand in {dir}; --ignore-failure measures commands that fail, too"
                ))
            })?;
        }
        self.printed = self.printed(&ran, live)?;
        Ok(outcome(&ran))
    }

    fn check(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        self.check_output(variant.0)?;
        self.conclude()
    }

    fn clean(&mut self) -> Result<()> {
        let concluded = self.conclude();
        if !std::mem::take(&mut self.is_set_up) {
            return concluded;
        }
        let texts = each_once(self.trials.iter().map(|it| it.cleanup.as_ref()));
        // A failure does not prevent the others from being run.
        let cleaned = texts.into_iter().map(|text| self.put_back("cleanup", text));
        cleaned.fold(concluded, Result::and)
    }
}

/// The figures of a run.
fn outcome(ran: &TimedRun) -> Outcome {
    let usage: &ProcessUsage = &ran.usage;
    let mut figures = BTreeMap::from([
        ("user_s".to_owned(), usage.user_s),
        ("system_s".to_owned(), usage.system_s),
        ("disk_read_bytes".to_owned(), usage.disk_read_bytes as f64),
        ("disk_written_bytes".to_owned(), usage.disk_written_bytes as f64),
    ]);
    let memory = match usage.memory_bytes {
        Some(bytes) => ("peak_memory_bytes", bytes),
        None => ("peak_memory_at_most_bytes", usage.memory_floor_bytes),
    };
    let others = [
        Some(memory),
        usage.call_read_bytes.map(|it| ("call_read_bytes", it)),
        usage.call_written_bytes.map(|it| ("call_written_bytes", it)),
        Some(("exit_code", exit_code(ran))),
    ];
    let others = others.into_iter().flatten();
    figures.extend(others.map(|(name, value)| (name.to_owned(), value as f64)));
    Outcome {
        measured: Measured { value: ran.seconds, figures, ..Measured::default() },
        beside_read_bytes: usage.disk_read_bytes,
        beside_written_bytes: usage.disk_written_bytes,
        other_cpu_s: usage.user_s + usage.system_s,
        ..Outcome::default()
    }
}

/// The exit code as a shell shows it: 128 and the number of the signal that killed the command.
fn exit_code(ran: &TimedRun) -> u64 {
    use std::os::unix::process::ExitStatusExt;
    let signal = || ran.status.signal().map(|it| 128 + it);
    ran.status.code().or_else(signal).and_then(|it| it.try_into().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
