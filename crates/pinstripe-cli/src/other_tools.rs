//! Answers to verbs that pinstripe does not have: those of other backup tools, and typing errors.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli;

/// Verbs of restic, borg, kopia, rsync and mdadm, and what to run instead.
const VERBS: &[(&[&str], &str)] = &[
    (
        &["prune", "compact", "cleanup", "maintenance", "delete"],
        "'pinstripe forget' marks snapshots, by rules or by id, and 'pinstripe gc' deletes the data that \
         no snapshot needs",
    ),
    (
        &["unlock", "break-lock", "list-locks"],
        "a store has no lock that a dead process could leave: 'pinstripe gc' reports sessions that do \
         not end, and 'pinstripe gc --fence SESSION' ends one",
    ),
    (
        &["list", "show"],
        "'pinstripe snapshots' lists the snapshots, and 'pinstripe ls SNAPSHOT' the files of one",
    ),
    (&["info", "status", "repo-info"], "'pinstripe members' and 'pinstripe stats' show the store"),
    (&["extract"], "'pinstripe restore SNAPSHOT[:PATH] --to DIR' restores files"),
    (
        &["create", "snapshot", "save"],
        "'pinstripe backup PATH' makes a snapshot, and 'pinstripe init' a store",
    ),
    (&["export-tar"], "'pinstripe dump SNAPSHOT[:PATH] > FILE' writes a tar archive"),
    (&["rebuild-index", "repair-index", "recovery"], "'pinstripe repair' rebuilds what is missing"),
    (&["migrate"], "'pinstripe upgrade' converts a store to the newest format"),
    (
        &["passwd", "change-passphrase"],
        "'pinstripe key add' and 'pinstripe key remove' change passwords",
    ),
    (&["benchmark", "bench"], "'pinstripe lab' measures disks and settings"),
    (&["umount", "unmount"], "'umount MOUNTPOINT' ends a mount"),
    (&["policy", "profile"], "rules and backups are in the config file: see 'pinstripe config'"),
    (&["server", "daemon"], "'pinstripe serve' lets many hosts use a store"),
    (&["login", "repository"], "'pinstripe connect' saves a join string; --store names a store"),
    (&["self-update", "update"], "pinstripe is updated as it was installed"),
    (&["du", "usage"], "'pinstripe stats' shows what snapshots need"),
];

/// The most suggestions for a verb that is mistyped.
const SUGGESTIONS_MAX: usize = 3;

/// The words of a command line, with `help VERB` and `version` as the options that pinstripe has.
pub fn with_options(mut words: Vec<OsString>) -> Vec<OsString> {
    match words.get(1).and_then(|word| word.to_str()) {
        Some("help") => {
            words.remove(1);
            words.push("--help".into());
        }
        Some("version") if words.len() == 2 => words[1] = "--version".into(),
        _ => {}
    }
    words
}

/// A refusal of a command line, which says what to run instead of an unknown verb.
pub fn explained(words: &[OsString], refused: clap::Error) -> clap::Error {
    let Some(ContextValue::String(verb)) = refused.get(ContextKind::InvalidSubcommand) else {
        return refused;
    };
    // A word after a verb is an unknown part of that verb.
    let before = words.iter().skip(1).take_while(|word| *word != verb.as_str());
    let command = cli::whole_command();
    if before.filter_map(|word| word.to_str()).any(|it| command.find_subcommand(it).is_some()) {
        return refused;
    }
    let instead = match VERBS.iter().find(|(verbs, _)| verbs.contains(&verb.as_str())) {
        Some((_, instead)) => (*instead).to_owned(),
        None => match &similar(&command, verb)[..] {
            [] => "'pinstripe --help' lists the verbs".to_owned(),
            [one] => format!("a similar verb is {one}"),
            several => format!("similar verbs are {}", several.join(", ")),
        },
    };
    let what = format!("pinstripe has no verb '{verb}'\n\n  tip: {instead}\n");
    clap::Error::raw(ErrorKind::InvalidSubcommand, what)
}

/// The verbs that differ from a word in few letters, the most similar one first.
fn similar(command: &clap::Command, word: &str) -> Vec<String> {
    let mut near: Vec<_> = command
        .get_subcommands()
        .map(|verb| (strsim::damerau_levenshtein(word, verb.get_name()), verb.get_name()))
        .filter(|(distance, _)| *distance <= word.chars().count().div_ceil(3).min(2))
        .collect();
    near.sort_unstable();
    near.into_iter().take(SUGGESTIONS_MAX).map(|(_, verb)| format!("'{verb}'")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tip(verb: &str) -> String {
        told(&["pinstripe", verb])
    }

    fn told(line: &[&str]) -> String {
        let words: Vec<_> = line.iter().map(OsString::from).collect();
        let refused = cli::whole_command().try_get_matches_from(&words).unwrap_err();
        explained(&words, refused).to_string()
    }

    #[test]
    fn a_part_of_a_verb_is_not_taken_for_a_verb() {
        let text = told(&["pinstripe", "key", "prune"]);
        assert!(text.contains("unrecognized subcommand 'prune'"), "{text}");
        assert!(told(&["pinstripe", "--json", "prune"]).contains("'pinstripe gc'"));
    }

    #[test]
    fn the_most_similar_verb_is_the_first() {
        for (typed, first) in [
            ("resotre", "a similar verb is 'restore'"),
            ("snapshot5", "a similar verb is 'snapshots'"),
            ("mnt", "'pinstripe --help' lists the verbs"),
            ("lss", "'ls'"),
            ("xyzzy", "'pinstripe --help' lists the verbs"),
        ] {
            assert!(tip(typed).contains(first), "{typed}: {}", tip(typed));
        }
    }

    #[test]
    fn no_verb_of_another_tool_is_one_of_pinstripe_and_each_answer_names_one() {
        let command = cli::whole_command();
        let is_ours = |name: &str| command.find_subcommand(name).is_some();
        for (verbs, instead) in VERBS {
            for verb in *verbs {
                assert!(!is_ours(verb), "{verb}");
                assert!(tip(verb).contains("pinstripe has no verb"), "{verb}");
            }
            for named in instead.split("'pinstripe ").skip(1) {
                let name = named.split([' ', '\'']).next().unwrap();
                assert!(is_ours(name), "{name}");
            }
        }
    }

    #[test]
    fn help_and_version_are_words_too() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (given, meant) in [
            ("pinstripe help restore", "pinstripe restore --help"),
            ("pinstripe help", "pinstripe --help"),
            ("pinstripe help key add", "pinstripe key add --help"),
            ("pinstripe version", "pinstripe --version"),
            ("pinstripe backup help", "pinstripe backup help"),
        ] {
            assert_eq!(with_options(words(given)), words(meant));
        }
    }
}
