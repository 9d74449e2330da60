//! Settings that were measured (`pinstripe lab tune`), which are used for options that are not
//! given.
//!
//! Invariants: options on the command line take precedence over the file. A file with an unknown
//! verb, an option that its verb lacks or an invalid value is refused with its line, even if
//! another verb is run; so is an invalid config file, because it may name such a file. Settings
//! taken from a file are reported.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::{KNOBS_VERSION, PAST_KNOBS};
use toml::de::{DeTable, DeValue};

use crate::args::Common;
use crate::cli::{Cli, command_of, whole_command};
use crate::config::{Config, Source};

/// A longer file is not a file of knobs, which a program writes with a handful of options.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Verbs that take no settings from a file, and that report an invalid config file themselves if
/// they read it.
const WITHOUT: [&str; 3] = ["config", "completions", "man"];

/// The command line as it was given, and the options that a file of knobs adds to it.
pub struct Completed {
    /// The parsed command line, with the added options.
    pub cli: Cli,
    /// The added options in the form in which they would be typed, and the file that they come
    /// from.
    pub added: Option<(Vec<String>, PathBuf)>,
}

/// Why a command line is refused.
pub enum Refused {
    /// Refused because of its own arguments.
    Line(clap::Error),
    /// Refused because of a file that it names.
    File(Box<Cli>, Error),
}

/// Parses the command line, and adds options from the file of knobs that the command line does not
/// set, if there is such a file.
///
/// # Errors
/// As [`Refused`] says.
pub fn complete(given: &[OsString]) -> std::result::Result<Completed, Refused> {
    let matches = parse(given).map_err(Refused::Line)?;
    let cli = Cli::from_arg_matches(&matches).map_err(Refused::Line)?;
    let found = match missing_options(&cli.common, &matches) {
        Ok(found) => found,
        Err(error) => return Err(Refused::File(Box::new(cli), error)),
    };
    let Some((settings, file)) = found.filter(|(settings, _)| !settings.is_empty()) else {
        return Ok(Completed { cli, added: None });
    };
    let options: Vec<String> = settings.iter().map(FileSetting::typed).collect();
    // After a bare "--" nothing is an option.
    let end = given.iter().position(|it| it == "--").unwrap_or(given.len());
    let mut line = given.to_vec();
    line.splice(end..end, options.iter().map(OsString::from));
    match clap::Parser::try_parse_from(line) {
        Ok(cli) => Ok(Completed { cli, added: Some((options, file)) }),
        Err(error) => {
            let what = error.to_string();
            let what = what.lines().next().unwrap_or_default();
            let names = |it: &&FileSetting| what.contains(&format!("'--{} ", it.option));
            let place = settings.iter().find(names).map_or(file, |it| it.place.clone());
            let error =
                Error::new(Kind::Usage, format!("a value in the knobs file is invalid: {what}"));
            Err(Refused::File(Box::new(cli), error.at(place).advice(ADVICE)))
        }
    }
}

/// Parses the command line; if it begins with a verb, only the options of that verb are built.
/// Help, and messages about a refused command line, may name any verb, so that they need the
/// options of all verbs.
fn parse(given: &[OsString]) -> std::result::Result<ArgMatches, clap::Error> {
    let verb = given.get(1).and_then(|word| word.to_str());
    let command = verb.and_then(command_of).unwrap_or_else(Cli::command);
    command.try_get_matches_from(given).or_else(|refused| match refused.kind() {
        ErrorKind::DisplayVersion => Err(refused),
        _ => whole_command().try_get_matches_from(given),
    })
}

/// The advice about a file of knobs that cannot be parsed.
const ADVICE: &str = "recreate the knobs file with 'pinstripe lab tune', or edit it";

/// An option that a file of knobs sets.
struct FileSetting {
    verb: String,
    option: String,
    value: String,
    /// File and line.
    place: PathBuf,
}

impl FileSetting {
    fn typed(&self) -> String {
        format!("--{}={}", self.option, self.value)
    }
}

/// The options that the file sets for the verb and the command line does not.
fn missing_options(
    common: &Common,
    matches: &ArgMatches,
) -> Result<Option<(Vec<FileSetting>, PathBuf)>> {
    if matches.subcommand_name().is_some_and(|it| WITHOUT.contains(&it)) {
        return Ok(None);
    }
    let Some(file) = file_of(common)? else { return Ok(None) };
    let root = whole_command();
    let (verb, command, matches) = leaf(&root, matches);
    let mut settings = read(&file, &root)?;
    settings.retain(|it| it.verb == verb && !is_given(command, matches, &it.option));
    Ok(Some((settings, file)))
}

fn is_given(command: &Command, matches: &ArgMatches, option: &str) -> bool {
    let found = command.get_arguments().find(|it| it.get_long() == Some(option));
    let source = |id: &str| matches.value_source(id);
    found.is_some_and(|it| source(it.get_id().as_str()) == Some(ValueSource::CommandLine))
}

/// The innermost verb, found by all words of the verb's name.
fn leaf<'a>(
    mut command: &'a Command,
    mut matches: &'a ArgMatches,
) -> (String, &'a Command, &'a ArgMatches) {
    let mut words = Vec::new();
    while let Some((word, inner)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(word) else { break };
        words.push(word);
        (command, matches) = (found, inner);
    }
    (words.join(" "), command, matches)
}

/// The file of knobs that was named on the command line, or in the config file.
fn file_of(common: &Common) -> Result<Option<PathBuf>> {
    match &common.knobs {
        Some(file) => Ok(Some(file.clone())),
        None => Ok(Config::load(common)?.0.knobs),
    }
}

/// All options that a file of knobs sets.
fn read(file: &Path, root: &Command) -> Result<Vec<FileSetting>> {
    let io = |error| Error::of_named("cannot read the knobs file", file, error);
    if std::fs::metadata(file).map_err(io)?.len() > FILE_MAX_BYTES {
        return Err(
            Error::new(Kind::Usage, "this is not a knobs file: the file is too long").at(file)
        );
    }
    let text = std::fs::read_to_string(file).map_err(io)?;
    let source = Source { file, text: &text, home: None };
    let parsed = DeTable::parse(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        source
            .error(at, format!("the knobs file is not valid TOML: {}", error.message()))
            .advice(ADVICE)
    })?;
    let mut settings = Vec::new();
    check_version(&source, parsed.get_ref())?;
    for (verb, options) in parsed.get_ref() {
        let at = verb.span().start;
        let DeValue::Table(options) = options.get_ref() else {
            if verb.get_ref() == "version" {
                continue;
            }
            let what = format!(
                "the key '{}' in the knobs file is not the table of a verb",
                verb.get_ref()
            );
            return Err(source.error(at, what).advice(ADVICE));
        };
        let known = known_options(root, verb.get_ref());
        let Some(known) = known else {
            let what = format!(
                "the knobs file has settings for the verb '{}', which does not exist",
                verb.get_ref()
            );
            return Err(source.error(at, what).advice(ADVICE));
        };
        for (option, value) in options {
            let place = source.place(option.span().start);
            let refuse = |what: String| Error::new(Kind::Usage, what).at(&place).advice(ADVICE);
            let (verb, option) = (verb.get_ref().to_string(), option.get_ref().to_string());
            if is_past(&verb, &option) {
                continue;
            }
            if !known.contains(&option) {
                return Err(refuse(format!(
                    "the knobs file sets the option '{option}', which the verb '{verb}' does not \
                     have"
                )));
            }
            let DeValue::String(value) = value.get_ref() else {
                return Err(refuse(format!(
                    "the value of '{option}' in the knobs file is not a string"
                )));
            };
            settings.push(FileSetting { verb, option, value: value.to_string(), place });
        }
    }
    Ok(settings)
}

fn check_version(source: &Source<'_>, table: &DeTable<'_>) -> Result<()> {
    let found = table.iter().find(|(name, _)| name.get_ref() == "version");
    let Some((name, DeValue::Integer(number))) = found.map(|(name, it)| (name, it.get_ref()))
    else {
        let what = "this is not a knobs file: the file has no version";
        return Err(Error::new(Kind::Usage, what).at(source.file).advice(ADVICE));
    };
    match i64::from_str_radix(number.as_str(), number.radix()) {
        Ok(KNOBS_VERSION) => Ok(()),
        _ => {
            let what = "the knobs file has an unsupported version";
            let error = Error::new(Kind::Unsupported, what);
            Err(error
                .at(source.place(name.span().start))
                .expected(KNOBS_VERSION, number.as_str())
                .advice("recreate the knobs file with 'pinstripe lab tune'"))
        }
    }
}

/// Whether an earlier version wrote an option that the verb does not have any more.
fn is_past(verb: &str, option: &str) -> bool {
    PAST_KNOBS.contains(&(verb, option))
}

/// Options of a verb; empty for an unknown verb.
fn known_options(root: &Command, verb: &str) -> Option<Vec<String>> {
    let mut words = verb.split(' ');
    let command = words.try_fold(root, |command, word| command.find_subcommand(word))?;
    let is_own = |it: &&Arg| {
        let is_usual = matches!(it.get_id().as_str(), "help" | "version");
        !it.is_global_set() && !is_usual
    };
    let own = command.get_arguments().filter(is_own);
    Some(own.filter_map(|it| it.get_long().map(str::to_owned)).collect())
}
