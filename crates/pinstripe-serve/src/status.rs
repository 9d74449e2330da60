//! The state of members and hosts, as the page and the metrics show it.
//!
//! Invariant: nothing here causes a request to a bucket or another server: remote members are shown
//! without their state.

use std::path::Path;
use std::time::{Duration, Instant};

use pinstripe_member::scrub::ScrubState;
use pinstripe_member::{ExtentKind, ExtentName, SharedMember, is_remote};

use crate::alarms::{Alarm, Condition, Holds};
use crate::catalog::CatalogState;
use crate::jobs::{JobStatus, Jobs, outcome};
use crate::ledger::{HostFacts, SessionFacts};
use crate::tokens::HostToken;

/// How long a member must have been silent, or full, before an alarm is raised, and how long it
/// must have been well before the alarm is cleared.
const MEMBER_SETTLES: Duration = Duration::from_secs(25);

/// A longer object is not a scrub state.
const SCRUB_STATE_MAX_BYTES: u64 = 64 << 10;

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
    /// The damage that the last scrub job found on it; `None` before the first one.
    pub damage: Option<u64>,
    /// Reads of hosts that failed since the server started.
    pub failed_reads: u64,
    /// When its data was verified.
    pub scrubbed: Option<ScrubTimes>,
    /// When the member was first found silent, if it has been silent since.
    pub silent_since: Option<Instant>,
}

/// When scrubs, of this server or of others, verified data, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScrubTimes {
    /// The last verification.
    pub last_seconds: i64,
    /// The oldest one, of the parts of the store that were ever verified.
    pub oldest_seconds: i64,
}

impl ScrubTimes {
    /// Reads the newest scrub state on a member. Without the key its MAC cannot be verified: a hostile
    /// member can give a wrong time.
    fn read(member: &SharedMember) -> Option<ScrubTimes> {
        let names = member.names(ExtentKind::Scrub).ok()?;
        let names: Vec<_> =
            names.into_iter().map(|id| ExtentName::In(ExtentKind::Scrub, id)).collect();
        let read = member.read_whole(&names, SCRUB_STATE_MAX_BYTES).into_iter().flatten();
        let states = read.filter_map(|bytes| ScrubState::decode(&bytes).ok());
        let newest = states.max_by_key(|it| it.generation)?;
        let times = newest.shares.iter().chain([&newest.open]).map(|it| it.began_seconds);
        let times: Vec<_> = times.filter(|it| *it > 0).collect();
        let (last_seconds, oldest_seconds) = (*times.iter().max()?, *times.iter().min()?);
        Some(ScrubTimes { last_seconds, oldest_seconds })
    }
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
    pub tokens: Vec<HostToken>,
    pub alarms: Vec<Alarm>,
    /// The catalog that the hosts share.
    pub catalog: Option<CatalogState>,
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
        scrubbed: ScrubTimes::read(member),
        ..MemberState::default()
    }
}

/// The state of a member that the store has and the server could not open.
pub(crate) fn absent(number: u16, place: &Path) -> MemberState {
    let problem = Some("absent".to_owned());
    let place = place.display().to_string();
    MemberState { number, place, answers: Some(false), problem, ..MemberState::default() }
}

/// What the server watches of a volume, for its alarms.
pub(crate) fn conditions(volume: &VolumeStatus) -> Vec<Condition> {
    let yes_if = |holds| if holds { Holds::Yes } else { Holds::No };
    let mut all = Vec::new();
    for HostStatus { token, facts, state, .. } in &volume.hosts {
        let subject = format!("host {}", token.host);
        if let Some(expected) = token.expect_seconds {
            let what = format!("no backup within {} h", expected / 3600);
            let holds = yes_if(*state == HostState::Overdue);
            all.push(Condition { subject: subject.clone(), what, holds, settles: Duration::ZERO });
        }
        if let Some(quota) = token.quota_bytes {
            let holds = match u128::from(facts.used_bytes) * 100 / u128::from(quota.max(1)) {
                90.. => Holds::Yes,
                80.. => Holds::Between,
                _ => Holds::No,
            };
            let what = "the quota is nearly used up".to_owned();
            let subject = format!("quota of {subject}");
            all.push(Condition { subject, what, holds, settles: Duration::ZERO });
        }
    }
    for member in &volume.members {
        let Some(answers) = member.answers else { continue };
        let MemberState { number, place, .. } = member;
        let conditions = [
            ("member", format!("does not answer: {place}"), !answers),
            ("space of member", format!("is full: {place}"), answers && member.is_full),
        ];
        for (name, what, holds) in conditions {
            let (subject, holds) = (format!("{name} {number}"), yes_if(holds));
            all.push(Condition { subject, what, holds, settles: MEMBER_SETTLES });
        }
    }
    if let Some(catalog) = &volume.catalog {
        let subject = "shared catalog".to_owned();
        let what = catalog.problem.clone().unwrap_or_default();
        let holds = yes_if(catalog.problem.is_some());
        all.push(Condition { subject, what, holds, settles: MEMBER_SETTLES });
    }
    all
}

/// What the server watches of its jobs, for its alarms.
pub(crate) fn conditions_of_jobs(jobs: &Jobs) -> Vec<Condition> {
    let of_job = |it: JobStatus| {
        let what = it.last.as_ref().map(outcome).unwrap_or_default();
        let holds = match it.last.is_some_and(|last| !last.is_good()) {
            true => Holds::Yes,
            false => Holds::No,
        };
        Condition { subject: format!("job {}", it.name), what, holds, settles: Duration::ZERO }
    };
    let spares = jobs.spares_left().map(|left| Condition {
        subject: "spares".to_owned(),
        what: "no spare is left for a member that fails".to_owned(),
        holds: if left == 0 { Holds::Yes } else { Holds::No },
        settles: Duration::ZERO,
    });
    jobs.status().into_iter().map(of_job).chain(spares).collect()
}
