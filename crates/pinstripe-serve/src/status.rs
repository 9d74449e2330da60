//! The state of members and hosts, as the page and the metrics show it.
//!
//! Invariant: nothing here causes a request to a bucket or another server: remote members are shown
//! without their state.

use pinstripe_member::{ExtentName, SharedMember, is_remote};

use crate::ledger::{HostFacts, SessionFacts};
use crate::tokens::HostToken;

/// The state of a member at the last check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemberState {
    pub number: u16,
    pub place: String,
    /// Whether the member answered; `None` for a remote one, which is not asked.
    pub answers: Option<bool>,
    pub problem: Option<String>,
    pub free_bytes: Option<u64>,
    pub is_full: bool,
}

/// Whether a host's backups are as recent as expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostState {
    Ok,
    /// No snapshot within the expected time.
    Overdue,
    /// No snapshot yet.
    Never,
}

/// A host that may back up to a volume.
pub(crate) struct HostStatus {
    pub token: HostToken,
    pub facts: HostFacts,
    pub state: HostState,
    /// The time since the last snapshot.
    pub age_seconds: Option<u64>,
}

/// The state of a volume.
pub(crate) struct VolumeStatus {
    pub id: String,
    pub is_store: bool,
    pub hosts: Vec<HostStatus>,
    pub members: Vec<MemberState>,
    pub sessions: Vec<SessionFacts>,
}

impl HostStatus {
    /// The state of a host now.
    pub fn new(token: HostToken, facts: HostFacts, now_seconds: i64) -> Self {
        let age = |seconds: i64| u64::try_from(now_seconds - seconds).unwrap_or(0);
        let age_seconds = facts.last_snapshot_seconds.map(age);
        // A host has its expected time after its token was made, too.
        let since = age_seconds.unwrap_or(age(token.created_seconds));
        let is_late = token.expect_seconds.is_some_and(|expected| since > expected);
        let state = match (is_late, age_seconds) {
            (true, _) => HostState::Overdue,
            (false, None) => HostState::Never,
            (false, Some(_)) => HostState::Ok,
        };
        HostStatus { token, facts, state, age_seconds }
    }
}

/// Checks a member.
pub(crate) fn look(number: u16, member: &SharedMember) -> MemberState {
    let place = member.place().display().to_string();
    if is_remote(member.place()) {
        return MemberState { number, place, ..MemberState::default() };
    }
    let problem = member.len(ExtentName::Label).err().map(|error| error.what().to_owned());
    let caps = member.caps();
    MemberState {
        number,
        place,
        answers: Some(problem.is_none()),
        free_bytes: caps.free_bytes.filter(|_| problem.is_none()),
        is_full: caps.is_full,
        problem,
    }
}
