//! The command line as a table: the verbs, and the options that all of them share.
//!
//! Help, man pages and shell completions are generated from this table.

use std::ffi::OsString;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Command, CommandFactory, Parser, Subcommand};

use crate::args::Common;
use crate::exit;
use crate::verbs::Verb;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Backs up directories to a store on many disks, with deduplication, compression and parity.
///
/// A store is a set of members: directories on different disks. A backup saves files and
/// directories as a new snapshot; data that the store already contains is not stored again. With
/// parity 1, all data can still be restored after the loss of any one member; with parity 2, after
/// the loss of any two members.
#[derive(Parser)]
#[command(
    name = "pinstripe",
    version,
    styles = STYLES,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs",
    after_help = "See 'pinstripe VERB --help' for examples, and 'pinstripe --help' for exit codes.",
    after_long_help = exit::HELP,
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// Options of all verbs.
    #[command(flatten)]
    pub common: Common,
}

/// The command line with the options of all verbs, for help and for messages about mistakes.
/// Building the complete command line takes longer than many verbs run.
pub fn whole_command() -> Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// The command line with one verb only, which parses like the complete one; `None` for an unknown
/// verb. clap copies the options of all verbs into each verb that it has.
pub fn command_of(verb: &str) -> Option<Command> {
    let verbs = Verb::augment_subcommands(Command::new("verbs"));
    let verb = verbs.find_subcommand(verb)?.clone();
    let root = Command::new("pinstripe").disable_help_subcommand(true);
    Some(Common::augment_args(root).subcommand(verb))
}

/// Refuses an empty argument, which no option and no path accepts: usually, a script passes a
/// variable that is not set.
pub fn empty_argument(words: &[OsString]) -> Option<clap::Error> {
    let options = words.iter().take_while(|word| *word != "--").count();
    let is_empty = |(at, word): &(usize, &OsString)| {
        let is_option = *at < options && word.as_encoded_bytes().starts_with(b"--");
        word.is_empty() || is_option && word.as_encoded_bytes().ends_with(b"=")
    };
    let (at, word) = words.iter().enumerate().skip(1).find(is_empty)?;
    let before = if word.is_empty() { &words[at - 1] } else { word };
    let place = match at {
        1 if word.is_empty() => "the first argument".to_owned(),
        _ if word.is_empty() => format!("the argument after '{}'", before.to_string_lossy()),
        _ => format!("the value of '{}'", before.to_string_lossy().trim_end_matches('=')),
    };
    let what = format!("{place} is empty: give a value, or leave out the argument\n");
    Some(Cli::command().error(clap::error::ErrorKind::InvalidValue, what))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_empty_argument_is_refused_and_named() {
        let refused = |line: &[&str]| {
            let words: Vec<_> = line.iter().map(OsString::from).collect();
            empty_argument(&words).map(|refused| refused.to_string())
        };
        for (line, place) in [
            (&["pinstripe", ""][..], "the first argument"),
            (&["pinstripe", "backup", "a", "--host", ""], "the argument after '--host'"),
            (&["pinstripe", "backup", "--host=", "a"], "the value of '--host'"),
            (&["pinstripe", "backup", "--", ""], "the argument after '--'"),
        ] {
            let text = refused(line).unwrap();
            assert!(text.contains(&format!("{place} is empty")), "{text}");
        }
        assert_eq!(refused(&["pinstripe", "backup", "a=", "-q", "--", "--b="]), None);
    }

    #[test]
    fn the_table_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_of_a_store_is_in_the_table_of_what_may_run_beside_what() {
        const OPEN_NO_STORE: [&str; 21] = [
            "init",
            "overlay",
            "hint",
            "analyze",
            "probe",
            "config",
            "split",
            "join",
            "verify",
            "inspect",
            "array",
            "record",
            "recover",
            "play",
            "fakevmcore",
            "lab",
            // The server reads and writes only for its hosts, whose verbs are in the table.
            "serve",
            "token",
            "connect",
            "completions",
            "man",
        ];
        let mut command = Cli::command();
        // Verbs of a verb are known once it is built, and each has a help then.
        command.build();
        let verbs = command.get_subcommands().flat_map(|verb| {
            let name = verb.get_name().to_owned();
            match name.as_str() {
                "key" | "member" => {
                    verb.get_subcommands().map(|it| format!("{name} {}", it.get_name())).collect()
                }
                _ => vec![name],
            }
        });
        let is_of_store =
            |name: &String| !OPEN_NO_STORE.contains(&name.as_str()) && !name.ends_with("help");
        let verbs: BTreeSet<String> = verbs.filter(is_of_store).collect();
        let table = pinstripe::beside::VERBS.iter().map(|(verb, _)| (*verb).to_owned());
        assert_eq!(verbs, table.collect::<BTreeSet<_>>());
    }

    /// One of a verb's own with the id of a global one would be read as that, and panic.
    #[test]
    fn no_option_of_a_verb_takes_the_place_of_a_global_one() {
        fn check(command: &clap::Command, globals: &[String]) {
            for verb in command.get_subcommands() {
                for arg in verb.get_arguments().filter(|arg| !arg.is_global_set()) {
                    let id = arg.get_id().to_string();
                    assert!(!globals.contains(&id), "{}: {id}", verb.get_name());
                }
                check(verb, globals);
            }
        }
        let command = whole_command();
        let globals = command.get_arguments().filter(|arg| arg.is_global_set());
        let globals: Vec<String> = globals.map(|arg| arg.get_id().to_string()).collect();
        assert!(globals.contains(&"knobs".to_owned()));
        check(&command, &globals);
    }

    /// What one verb alone takes, the whole takes, and finds the same.
    #[test]
    fn a_verb_alone_is_parsed_as_among_all() {
        for line in [
            "backup src --store m0 --tag weekly --json",
            "array status pool -v",
            "lab run stride --dir . --runs 3",
            "key add --new-password-file p --store m0 -q",
            "snapshots",
        ] {
            let given = || std::iter::once("pinstripe").chain(line.split(' '));
            let verb = line.split(' ').next().unwrap();
            let alone = command_of(verb).unwrap().try_get_matches_from(given()).unwrap();
            let among = whole_command().try_get_matches_from(given()).unwrap();
            // The matches of the root name its verbs, which differ.
            assert_eq!(alone.subcommand(), among.subcommand(), "{line}");
            for flag in ["json", "quiet"] {
                assert_eq!(alone.get_flag(flag), among.get_flag(flag), "{line}");
            }
        }
        assert!(command_of("--version").is_none() && command_of("verbs").is_none());
        let alone = command_of("backup").unwrap();
        assert!(alone.try_get_matches_from(["pinstripe", "backup", "--nothing"]).is_err());
    }

    #[test]
    fn every_verb_has_examples() {
        for verb in whole_command().get_subcommands() {
            let help = verb.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:\n  pinstripe"), "{}", verb.get_name());
        }
        let command = whole_command();
        for verb in command.find_subcommand("array").unwrap().get_subcommands() {
            let help = verb.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:\n  pinstripe array"), "{}", verb.get_name());
        }
        for verb in command.find_subcommand("lab").unwrap().get_subcommands() {
            let help = verb.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:\n  pinstripe lab"), "{}", verb.get_name());
        }
    }

    #[test]
    fn the_lab_knows_what_each_verb_does_by_itself() {
        for question in pinstripe_lab::QUESTIONS {
            let Some(usual) = question.usual else { continue };
            let root = whole_command();
            let verb = question.verb.split(' ').fold(&root, |verb, name| {
                verb.find_subcommand(name).unwrap_or_else(|| panic!("no verb {name}"))
            });
            let mut options = verb.get_arguments();
            let option = options.find(|it| it.get_long() == Some(question.option)).unwrap();
            let text = |it: &clap::builder::OsStr| it.to_string_lossy().into_owned();
            let defaults: Vec<String> = option.get_default_values().iter().map(text).collect();
            // What a policy is when none is given stands in the verb itself.
            let is_own = question.option == "policy" && defaults.is_empty();
            let size = |text: &str| pinstripe_base::units::parse_size(text).ok();
            let is_same =
                |it: &String| it == usual || size(it).is_some_and(|it| size(usual) == Some(it));
            assert!(is_own || defaults.iter().any(is_same), "{question:?}: {defaults:?}");
        }
    }
}
