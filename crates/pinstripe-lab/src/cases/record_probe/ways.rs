//! The variants: how the streams are written, during which load, and with which priority.

use pinstripe_base::error::Result;

use pinstripe_record::WritePolicy;

use super::options::{CLASSES, POLICIES, UNDER};
use crate::cases::Values;
use crate::io::recorder::{SchedulingClass, can_take};

/// A variant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub policy: &'static str,
    pub under: &'static str,
    pub class: &'static str,
}

impl Way {
    pub fn class(self) -> SchedulingClass {
        match self.class {
            "rt" => SchedulingClass::RealTime,
            _ => SchedulingClass::Normal,
        }
    }

    /// How the recorder writes, if the recorder is what writes in this variant.
    pub(crate) fn of_recorder(self) -> Option<WritePolicy> {
        match self.policy {
            "recorder" => Some(WritePolicy::Buffered),
            "recorder-direct" => Some(WritePolicy::Direct),
            _ => None,
        }
    }
}

/// Returns every combination that is permitted on this machine, and remarks on those that are not.
pub(super) fn ways(values: &Values) -> Result<(Vec<Way>, Vec<String>)> {
    let known = |name: &str, all: &'static [&'static str]| -> Vec<&'static str> {
        let of = |word: &&str| all.iter().find(|it| *it == word).copied();
        values.words(name).iter().filter_map(of).collect()
    };
    let mut classes = known("io-class", CLASSES);
    let mut notes = vec![
        "the backlog is the number of bytes that were not yet written; the durable lag is the age \
         of the oldest byte that a power cut would have lost"
            .to_owned(),
        "after each run, every stream was read and was equal to the recorded data".to_owned(),
    ];
    if classes.contains(&"rt")
        && let Err(error) = can_take(SchedulingClass::RealTime)
    {
        classes.retain(|it| *it != "rt");
        if classes.is_empty() {
            return Err(error.advice(
                "leave out --io-class, or run the command with the capability CAP_SYS_ADMIN",
            ));
        }
        notes.push(format!("the real-time I/O class was not used: {error}"));
    }
    let mut ways = Vec::new();
    for under in known("under", UNDER) {
        for policy in known("policies", POLICIES) {
            ways.extend(classes.iter().map(|&class| Way { policy, under, class }));
        }
    }
    Ok((ways, notes))
}
