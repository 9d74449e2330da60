//! A file of settings that were measured, each with what speaks for it: `pinstripe lab tune` writes
//! it, the other verbs read it (`--knobs FILE`).
//!
//! ```text
//! version = 1
//! [VERB]
//! # question: the figures
//! OPTION = "VALUE"
//! ```
//! Never here: the list of verbs and options, but for those [to come](TO_COME). The reader of the
//! file checks it against its own list.

use crate::advice::{ALL_LOADS, Advice, CODEC, RECORD};

/// The version of the form.
pub const VERSION: i64 = 1;

/// A setting of a verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    /// Of which verb: `split`, `array create`.
    pub verb: String,
    /// The option without dashes.
    pub option: String,
    /// Its value as it would be typed.
    pub value: String,
    /// The reason for it, on one line.
    pub evidence: String,
}

/// Which verb's option a question about a setting answers.
struct Answer {
    /// Which case asks it.
    case: &'static str,
    question: &'static str,
    setting: &'static str,
    verb: &'static str,
    option: &'static str,
}

const fn answer(
    case: &'static str,
    [question, setting]: [&'static str; 2],
    [verb, option]: [&'static str; 2],
) -> Answer {
    Answer { case, question, setting, verb, option }
}

const STRIPS: [&str; 2] = ["write in order, direct, 4 at a time", "strip-size"];

const ANSWERS: [Answer; 9] = [
    answer("quick", ["write 1 MiB in order", "policy"], ["split", "policy"]),
    answer("quick", ["write 1 MiB in order, direct", "depth"], ["split", "depth"]),
    answer("quick", STRIPS, ["split", "strip-size"]),
    answer("quick", STRIPS, ["init", "strip-size"]),
    answer("quick", STRIPS, ["array create", "chunk"]),
    answer("stripe", [ALL_LOADS, "granule"], ["array create", "stripe-size"]),
    answer("split", [CODEC, "codec"], ["split", "codec"]),
    answer("record-probe", [RECORD, "policy"], [RECORDER, "policy"]),
    answer("record-probe", [RECORD, "ring"], [RECORDER, "ring"]),
];

/// The verb that records, which this version does not have.
const RECORDER: &str = "record";

/// Sections of verbs that are still to come, with their options: a reader of the file accepts them.
pub const TO_COME: [(&str, &[&str]); 1] = [(RECORDER, &["policy", "ring"])];

impl Answer {
    fn is_given_by(&self, advice: &Advice) -> bool {
        advice.question == self.question && advice.setting == self.setting
    }
}

/// The knobs that follow from advice.
pub fn knobs(advice: &[Advice]) -> Vec<Knob> {
    let knob = |answer: &Answer| {
        let advice = advice.iter().find(|it| answer.is_given_by(it))?;
        Some(Knob {
            verb: answer.verb.to_owned(),
            option: answer.option.to_owned(),
            value: advice.value.clone(),
            evidence: format!("{}: {}", advice.question, advice.evidence),
        })
    };
    ANSWERS.iter().filter_map(knob).collect()
}

/// Verbs and options that these cases were to decide on, and did not.
pub fn undecided(cases: &[&str], advice: &[Advice]) -> Vec<(&'static str, &'static str)> {
    let is_open = |answer: &&Answer| {
        cases.contains(&answer.case) && !advice.iter().any(|it| answer.is_given_by(it))
    };
    ANSWERS.iter().filter(is_open).map(|it| (it.verb, it.option)).collect()
}

/// The file. `about` says, line by line, where and when they were measured.
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

/// A verb of two words is a name in quotes.
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
        for answer in ANSWERS.iter().filter(|it| it.case == "quick") {
            assert!(groups.iter().any(|it| it == answer.question), "{}", answer.question);
        }
        let advice = Advice {
            question: "write 1 MiB in order".into(),
            setting: "policy".into(),
            value: "direct".into(),
            is_first: false,
            is_decided: true,
            evidence: "1850 MB/s of 5 runs; buffered 1420".into(),
        };
        let advice = [advice];
        let knobs = knobs(&advice);
        assert_eq!(knobs.len(), 1);
        assert_eq!((&*knobs[0].verb, &*knobs[0].value), ("split", "direct"));
        let open = undecided(&["quick", "split"], &advice);
        let wanted = [("split", "depth"), ("split", "strip-size"), ("init", "strip-size")];
        assert_eq!(open[..3], wanted);
        assert_eq!(open[3..], [("array create", "chunk"), ("split", "codec")]);
    }

    #[test]
    fn what_verbs_to_come_are_told_is_known_by_name() {
        for answer in ANSWERS.iter().filter(|it| it.verb == RECORDER) {
            let known = TO_COME.iter().find(|(verb, _)| *verb == answer.verb);
            assert!(known.is_some_and(|(_, options)| options.contains(&answer.option)));
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
