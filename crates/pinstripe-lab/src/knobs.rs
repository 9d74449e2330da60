//! A file of settings that were measured, each with its evidence: `pinstripe lab tune` writes the
//! file, and the other verbs read it (`--knobs FILE`).
//!
//! ```text
//! version = 1
//! [VERB]
//! # question: the figures
//! OPTION = "VALUE"
//! ```
//!
//! This module does not contain the list of verbs and options, except for those that are
//! [past](PAST). The reader of the file checks the verbs and options against its own list.

use crate::advice::Advice;
use crate::questions::{self, Question, RECORDER};

/// The version of the file format.
pub const VERSION: i64 = 1;

/// A setting of a verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    /// The verb: `split`, `array create`.
    pub verb: String,
    /// The option without dashes.
    pub option: String,
    /// The value as a user would type it.
    pub value: String,
    /// The evidence for the value, on one line.
    pub evidence: String,
}

/// Options that earlier versions wrote and that no verb has any more; a reader of the file ignores
/// them.
pub const PAST: [(&str, &str); 1] = [(RECORDER, "policy")];

fn answers(question: &Question, advice: &Advice) -> bool {
    advice.is_decided && advice.question == question.text && advice.setting == question.setting
}

/// Returns the knobs that follow from the advice that is decided.
pub fn knobs(advice: &[Advice]) -> Vec<Knob> {
    let knob = |question: &Question| {
        let advice = advice.iter().find(|it| answers(question, it))?;
        Some(Knob {
            verb: question.verb.to_owned(),
            option: question.option.to_owned(),
            value: advice.value.clone(),
            evidence: format!("{}: {}", advice.question, advice.evidence),
        })
    };
    questions::ALL.iter().filter_map(knob).collect()
}

/// Returns the verbs and options that these cases were to decide on but did not.
pub fn undecided(cases: &[&str], advice: &[Advice]) -> Vec<(&'static str, &'static str)> {
    let is_open = |it: &&Question| {
        cases.contains(&it.case) && !advice.iter().any(|advice| answers(it, advice))
    };
    questions::ALL.iter().filter(is_open).map(|it| (it.verb, it.option)).collect()
}

/// The file. Formats knobs as TOML; `about` contains lines that say where and when they were
/// measured.
pub fn to_toml(knobs: &[Knob], about: &[String]) -> String {
    let mut out: String = about.iter().map(|line| format!("# {}\n", plain(line))).collect();
    out += &format!("version = {VERSION}\n");
    let mut verbs: Vec<&str> = Vec::new();
    for knob in knobs {
        if !verbs.contains(&knob.verb.as_str()) {
            verbs.push(&knob.verb);
        }
    }
    for verb in verbs {
        out += &format!("\n[{}]\n", quoted_name(verb));
        for knob in knobs.iter().filter(|knob| knob.verb == verb) {
            out += &format!("# {}\n{} = {:?}\n", plain(&knob.evidence), knob.option, knob.value);
        }
    }
    out
}

/// Puts the name of a verb in quotes if it has two words.
fn quoted_name(verb: &str) -> String {
    match verb.contains(' ') {
        true => format!("{verb:?}"),
        false => verb.to_owned(),
    }
}

fn plain(text: &str) -> String {
    text.replace(|it: char| it.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_quick_are_answered_by_options() {
        let groups: Vec<String> = crate::cases::quick_groups();
        for question in questions::ALL.iter().filter(|it| it.case == "quick") {
            assert!(groups.iter().any(|it| it == question.text), "{}", question.text);
        }
        let advice = Advice {
            question: "write 1 MiB blocks sequentially".into(),
            setting: "policy".into(),
            value: "buffered".into(),
            is_usual: false,
            is_decided: true,
            evidence: "1850 MB/s of 9 rounds; direct 0.77".into(),
        };
        let advice = [advice];
        let knobs = knobs(&advice);
        assert_eq!(knobs.len(), 1);
        assert_eq!((&*knobs[0].verb, &*knobs[0].value), ("split", "buffered"));
        let open = undecided(&["quick", "split"], &advice);
        assert_eq!(open, [("split", "depth"), ("split", "strip-size"), ("split", "codec")]);
    }

    #[test]
    fn what_was_not_decided_is_no_knob() {
        let advice = Advice {
            question: "write 1 MiB blocks sequentially, direct".into(),
            setting: "depth".into(),
            value: "4".into(),
            is_usual: true,
            is_decided: false,
            evidence: String::new(),
        };
        assert_eq!(knobs(std::slice::from_ref(&advice)), []);
        assert!(undecided(&["quick"], &[advice]).contains(&("split", "depth")));
    }

    #[test]
    fn what_is_past_is_no_longer_written() {
        for (verb, option) in PAST {
            assert!(!questions::ALL.iter().any(|it| (it.verb, it.option) == (verb, option)));
        }
    }

    #[test]
    fn the_file_says_why() {
        let knob = |verb: &str, option: &str| Knob {
            verb: verb.into(),
            option: option.into(),
            value: "64K".into(),
            evidence: "1 MB/s\nof 2".into(),
        };
        let knobs =
            [knob("split", "depth"), knob("array create", "chunk"), knob("split", "policy")];
        let text = to_toml(&knobs, &["measured in /srv".into()]);
        let wanted = "# measured in /srv\nversion = 1\n\n[split]\n# 1 MB/s of 2\ndepth = \"64K\"\n\
                      # 1 MB/s of 2\npolicy = \"64K\"\n\n[\"array create\"]\n# 1 MB/s of 2\nchunk = \"64K\"\n";
        assert_eq!(text, wanted);
    }
}
