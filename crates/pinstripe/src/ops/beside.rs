//! Which verbs may run concurrently: for every verb of a store, its effect on other running verbs.
//!
//! Each verb has one *role*, which says what it puts on the members while it works: nothing, a
//! session, a claim, or a new ring of keys. The roles of two verbs determine how the verbs affect
//! each other. The table in doc/semantics.md is generated from the one in this module; tests
//! compare it with the verbs of the command and with the behaviour of the roles.
//!
//! Not in this module: the mechanisms themselves (`store/sessions`, `store/claim`,
//! `store/keyring/newest`).

/// The objects that a verb puts on the members while it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerbRole {
    /// Nothing: it reads.
    Reader,
    /// Puts a session, and a snapshot at the end of the verb.
    Writer,
    /// Puts a mark on a snapshot that is no longer wanted; no session.
    Marker,
    /// Puts a session, and a mark on a snapshot that is kept.
    Undeleter,
    /// Puts a session, and the steps of a deletion.
    Collector,
    /// Puts no session: it rewrites each damaged object in its own place.
    Scrubber,
    /// Puts a claim: it moves extents, repairs, or changes the members. Only one verb with this
    /// role runs at a time.
    Mover,
    /// Puts a claim, and no writer may be running: it rewrites every small object.
    Upgrader,
    /// Puts a key slot, or the object that removes one.
    KeyEditor,
    /// Puts a claim, and a ring of a new generation: all verbs with older keys end.
    Rotator,
}

/// What happens when a verb begins while another one is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// Both verbs do their work.
    Both,
    /// Both verbs do their work, unless one of them removes objects that the other builds on: the
    /// other then ends with exit code 18 and has changed nothing.
    OneMayEnd,
    /// The verb that begins waits for an answer of the other one; without an answer it ends with
    /// exit code 18.
    Waits,
    /// The verb that begins ends with exit code 18, or waits if it was given `--wait`.
    Refused,
    /// The running verb ends with exit code 18, because its keys are no longer the newest.
    EndsOther,
}

use Meeting::{Both, EndsOther, OneMayEnd, Refused, Waits};
use VerbRole::{
    Collector, KeyEditor, Marker, Mover, Reader, Rotator, Scrubber, Undeleter, Upgrader, Writer,
};

/// All roles, in the order of the table.
pub(crate) const ROLES: [VerbRole; 10] =
    [Reader, Writer, Marker, Undeleter, Collector, Scrubber, Mover, Upgrader, KeyEditor, Rotator];

/// Every verb that opens a store, with its role.
pub const VERBS: [(&str, VerbRole); 30] = [
    ("snapshots", Reader),
    ("ls", Reader),
    ("cat", Reader),
    ("dump", Reader),
    ("find", Reader),
    ("history", Reader),
    ("diff", Reader),
    ("catalog", Reader),
    ("restore", Reader),
    ("mount", Reader),
    ("stats", Reader),
    ("check", Reader),
    ("members", Reader),
    ("key list", Reader),
    ("backup", Writer),
    ("tag", Writer),
    ("member merge", Writer),
    ("forget", Marker),
    ("undelete", Undeleter),
    ("gc", Collector),
    ("scrub", Scrubber),
    ("repair", Mover),
    ("member add", Mover),
    ("member remove", Mover),
    ("member replace", Mover),
    ("member rebalance", Mover),
    ("upgrade", Upgrader),
    ("key add", KeyEditor),
    ("key remove", KeyEditor),
    ("key rotate", Rotator),
];

/// Returns the outcome when a verb of the role `begins` starts while one of the role `at_work` is
/// running.
pub fn beside(at_work: VerbRole, begins: VerbRole) -> Meeting {
    match (at_work, begins) {
        // A rotation ends everything that has older keys, and movers have the claim.
        (Mover | Upgrader | Rotator, Mover | Upgrader | Rotator) => Refused,
        (Writer | Undeleter | Collector, Upgrader) => Refused,
        (_, Rotator) => EndsOther,
        (Rotator, _) => OneMayEnd,
        // An upgrade admits no session; of marks and slots it may miss one.
        (Upgrader, Writer | Undeleter | Collector) => Refused,
        (Upgrader, Marker | KeyEditor | Scrubber) | (Marker | KeyEditor | Scrubber, Upgrader) => {
            OneMayEnd
        }
        (Writer, Collector) => Waits,
        (Collector, Undeleter)
        | (Undeleter, Collector)
        | (Undeleter, Marker)
        | (Marker, Undeleter) => OneMayEnd,
        // A verb that finds the members changed ends.
        (Mover, Writer | Marker | Undeleter | Collector) => OneMayEnd,
        (Writer | Marker | Undeleter | Collector, Mover) => OneMayEnd,
        (KeyEditor, KeyEditor) => OneMayEnd,
        (Collector, Reader) | (Reader, Collector) => OneMayEnd,
        _ => Both,
    }
}

impl VerbRole {
    /// The name of the role in the table.
    pub fn name(self) -> &'static str {
        match self {
            Reader => "reads",
            Writer => "writes",
            Marker => "marks",
            Undeleter => "undelete",
            Collector => "gc",
            Scrubber => "scrub",
            Mover => "moves",
            Upgrader => "upgrade",
            KeyEditor => "slots",
            Rotator => "rotate",
        }
    }
}

impl Meeting {
    /// The word for the outcome in the table.
    pub fn word(self) -> &'static str {
        match self {
            Both => "yes",
            OneMayEnd => "one ends",
            Waits => "waits",
            Refused => "18",
            EndsOther => "ends it",
        }
    }
}

/// The two tables of doc/semantics.md: the verbs of each role, and the outcome for each pair of
/// roles.
pub fn tables() -> String {
    let mut out = String::from("| role | verbs |\n|---|---|\n");
    for role in ROLES {
        let verbs = VERBS.iter().filter(|(_, of)| *of == role);
        let verbs: Vec<_> = verbs.map(|(verb, _)| format!("`{verb}`")).collect();
        out += &format!("| {} | {} |\n", role.name(), verbs.join(", "));
    }
    out += "\n| running, below: starts |";
    ROLES.iter().for_each(|role| out += &format!(" {} |", role.name()));
    out += "\n|---|";
    out += &"---|".repeat(ROLES.len());
    for at_work in ROLES {
        out += &format!("\n| {} |", at_work.name());
        ROLES.iter().for_each(|begins| out += &format!(" {} |", beside(at_work, *begins).word()));
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_this_table() {
        let page = include_str!("../../../../doc/semantics.md");
        assert!(page.contains(&tables()), "doc/semantics.md lacks:\n{}", tables());
    }

    #[test]
    fn of_two_verbs_that_exclude_each_other_either_order_does() {
        for one in ROLES {
            for other in ROLES {
                let (begins, at_work) = (beside(one, other), beside(other, one));
                assert_eq!(begins == Refused, at_work == Refused, "{one:?} {other:?}");
            }
        }
    }
}
