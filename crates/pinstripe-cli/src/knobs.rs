//! Settings that were measured (`pinstripe lab tune`), taken for options that are not given.
//!
//! Invariants: what is given on the command line outranks the file; a file that is named and sets what is no
//! option is refused; what is taken from it is said.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use pinstripe::error::{Error, Kind, Result};
use pinstripe_lab::knobs::VERSION;

use crate::args::{Cli, Common};
use crate::config::Config;

/// A file is written by a program, for a handful of options.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// The command line as it was given, and what a file of knobs adds to it.
pub struct Completed {
    /// All of it, read.
    pub cli: Cli,
    /// What was added, as it would be typed, and from where.
    pub added: Option<(Vec<String>, PathBuf)>,
}

/// Why a command line is not taken.
pub enum Refused {
    /// By what stands on it.
    Line(clap::Error),
    /// By a file that it leads to.
    File(Box<Cli>, Error),
}

/// Reads the command line, and takes what it leaves open from the file of knobs, if there is one.
///
/// # Errors
/// As [`Refused`] says.
pub fn complete(given: Vec<OsString>) -> std::result::Result<Completed, Refused> {
    let command = Cli::command();
    let matches = command.clone().try_get_matches_from(&given).map_err(Refused::Line)?;
    let cli = Cli::from_arg_matches(&matches).map_err(Refused::Line)?;
    let found = match missing_options(&cli.common, &command, &matches) {
        Ok(found) => found,
        Err(error) => return Err(Refused::File(Box::new(cli), error)),
    };
    let Some((options, file)) = found.filter(|(options, _)| !options.is_empty()) else {
        return Ok(Completed { cli, added: None });
    };
    // Behind a bare "--" nothing is an option.
    let end = given.iter().position(|it| it == "--").unwrap_or(given.len());
    let mut line = given;
    line.splice(end..end, options.iter().map(OsString::from));
    match clap::Parser::try_parse_from(line) {
        Ok(cli) => Ok(Completed { cli, added: Some((options, file)) }),
        Err(error) => {
            let what = error.to_string();
            let what = what.lines().next().unwrap_or_default().to_owned();
            let error = Error::new(Kind::Usage, format!("its values do not suit: {what}"));
            Err(Refused::File(Box::new(cli), error.at(file)))
        }
    }
}

/// Options of the verb that the file sets and the command line does not, as they would be typed.
fn missing_options(
    common: &Common,
    command: &Command,
    matches: &ArgMatches,
) -> Result<Option<(Vec<String>, PathBuf)>> {
    let (verb, command, matches) = leaf(command, matches);
    let Some(file) = file_of(common)? else { return Ok(None) };
    let mut options = Vec::new();
    for (option, value) in read(&file, &verb)? {
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(&option));
        let Some(arg) = arg else {
            let what = format!("it sets '{option}', which '{verb}' has not");
            return Err(Error::new(Kind::Usage, what).at(file).advice("measure again, or edit it"));
        };
        if matches.value_source(arg.get_id().as_str()) != Some(ValueSource::CommandLine) {
            options.push(format!("--{option}={value}"));
        }
    }
    Ok(Some((options, file)))
}

/// The innermost verb, by all of its words.
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

/// The file that was named, or that the config file names. A config file that says something else wrong is
/// told of by the verbs that need it.
fn file_of(common: &Common) -> Result<Option<PathBuf>> {
    match &common.knobs {
        Some(file) => Ok(Some(file.clone())),
        None => Ok(Config::load(common).ok().and_then(|(config, _)| config.knobs)),
    }
}

/// What the file sets of a verb.
fn read(file: &Path, verb: &str) -> Result<Vec<(String, String)>> {
    let io = |error| Error::io("cannot read the knobs", file, error);
    if std::fs::metadata(file).map_err(io)?.len() > FILE_MAX_BYTES {
        return Err(Error::new(Kind::Usage, "is no file of knobs: it is too long").at(file));
    }
    let text = std::fs::read_to_string(file).map_err(io)?;
    let refuse = |what: String| {
        Error::new(Kind::Usage, what).at(file).advice("make it anew: 'pinstripe lab tune'")
    };
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| refuse(format!("is no TOML: {}", error.message())))?;
    match table.get("version").and_then(toml::Value::as_integer) {
        Some(VERSION) => {}
        Some(newer) => {
            let error = Error::new(Kind::Unsupported, "the knobs are of another version");
            return Err(error.at(file).expected(VERSION, newer));
        }
        None => return Err(refuse("is no file of knobs: it has no version".to_owned())),
    }
    let Some(options) = table.get(verb) else { return Ok(Vec::new()) };
    let options = options.as_table().ok_or_else(|| refuse(format!("'{verb}' is no table")))?;
    let option = |(option, value): (&String, &toml::Value)| match value {
        toml::Value::String(value) => Ok((option.clone(), value.clone())),
        _ => Err(refuse(format!("the value of '{option}' is no text"))),
    };
    options.iter().map(option).collect()
}
