//! A file of settings that were measured, each with what speaks for it: `pinstripe lab tune` writes it, the
//! other verbs read it (`--knobs FILE`).
//!
//! ```text
//! version = 1
//! [VERB]
//! # question: the figures
//! OPTION = "VALUE"
//! ```
//! Never here: which verbs and options there are. Whoever reads it holds it against those.

use crate::advice::Advice;

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
    /// What speaks for it, on one line.
    pub evidence: String,
}

/// Which verb's option a question of the case `quick` answers.
const ANSWERS: [(&str, &str, &str); 5] = [
    ("write 1 MiB in order", "split", "policy"),
    ("write 1 MiB in order, direct", "split", "depth"),
    ("write in order, direct, 4 at a time", "split", "strip-size"),
    ("write in order, direct, 4 at a time", "init", "strip-size"),
    ("write in order, direct, 4 at a time", "array create", "chunk"),
];

/// The knobs that follow from advice.
pub fn knobs(advice: &[Advice]) -> Vec<Knob> {
    let answer = |&(question, verb, option): &(&str, &str, &str)| {
        let advice = advice.iter().find(|it| it.question == question)?;
        Some(Knob {
            verb: verb.to_owned(),
            option: option.to_owned(),
            value: advice.value.clone(),
            evidence: format!("{question}: {}", advice.evidence),
        })
    };
    ANSWERS.iter().filter_map(answer).collect()
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
        for (question, ..) in ANSWERS {
            assert!(groups.iter().any(|group| group == question), "{question}: {groups:?}");
        }
        let advice = Advice {
            question: "write 1 MiB in order".into(),
            setting: "policy".into(),
            value: "direct".into(),
            is_first: false,
            evidence: "1850 MB/s of 5 runs; buffered 1420".into(),
        };
        let knobs = knobs(&[advice]);
        assert_eq!(knobs.len(), 1);
        assert_eq!((&*knobs[0].verb, &*knobs[0].value), ("split", "direct"));
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
