//! The questions whose answers are options of verbs, with the default of each verb, with which
//! every answer is compared.
//!
//! This module contains neither answers nor questions that no option depends on.

/// The question of `stripe`.
pub(crate) const ALL_LOADS: &str = "an array under all loads";
/// The question of `split`.
pub const CODEC: &str = "split by codec";
/// The question of `record-probe`.
pub const RECORD: &str = "record during a storm";
/// The verb that records.
pub(crate) const RECORDER: &str = "record";

/// A question about a setting, and the verb and option that its answer applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The case that asks the question.
    pub case: &'static str,
    /// The name of the group, or the topic of several groups.
    pub text: &'static str,
    /// The setting in which the variants of the question differ.
    pub setting: &'static str,
    /// The verb.
    pub verb: &'static str,
    /// The verb's option without dashes.
    pub option: &'static str,
    /// The verb's default value; `None` if the verb measures before it chooses.
    pub usual: Option<&'static str>,
}

const fn question(
    case: &'static str,
    [text, setting]: [&'static str; 2],
    [verb, option]: [&'static str; 2],
    usual: Option<&'static str>,
) -> Question {
    Question { case, text, setting, verb, option, usual }
}

/// All questions. Measurements of one file do not apply to the strips of a store or the chunks of
/// an array, so no question is about these.
pub const ALL: [Question; 7] = [
    question(
        "quick",
        ["write 1 MiB blocks sequentially", "policy"],
        ["split", "policy"],
        Some("direct"),
    ),
    question(
        "quick",
        ["write 1 MiB blocks sequentially, direct", "depth"],
        ["split", "depth"],
        Some("4"),
    ),
    question(
        "quick",
        ["write sequentially, direct, 4 at a time", "strip-size"],
        ["split", "strip-size"],
        Some("256K"),
    ),
    question("stripe", [ALL_LOADS, "granule"], ["array create", "stripe-size"], Some("auto")),
    question("split", [CODEC, "codec"], ["split", "codec"], Some("auto")),
    question("record-probe", [RECORD, "policy"], [RECORDER, "writes"], None),
    question("record-probe", [RECORD, "ring"], [RECORDER, "ring"], None),
];

/// The default of a verb for the setting that a question of a case is about.
pub fn usual(case: &str, text: &str, setting: &str) -> Option<&'static str> {
    let is_asked = |it: &&Question| (it.case, it.text, it.setting) == (case, text, setting);
    ALL.iter().find(is_asked).and_then(|it| it.usual)
}
