//! The content of the page: alarms, members, sessions, hosts, jobs, tokens and events.
//!
//! It is complete without scripts (`live.js` only refreshes it), and is made only from state in memory: it reads no member.

use std::collections::VecDeque;

use maud::{Markup, html};
use pinstripe_base::clock;
use pinstripe_base::id::hex;
use pinstripe_base::units::format_size;

use crate::alarms::Alarm;
use crate::catalog::CatalogState;
use crate::events::ServerEvent;
use crate::jobs::{JobStatus, RunningJob, outcome};
use crate::ledger::SessionFacts;
use crate::status::{HostState, HostStatus, MemberState, VolumeStatus};
use crate::tokens::HostToken;

/// The number of events that the page shows.
const EVENTS: usize = 30;

/// What the page shows.
pub(crate) struct Overview {
    pub volumes: Vec<VolumeStatus>,
    pub jobs: Vec<JobStatus>,
    pub running: Option<RunningJob>,
    pub spares_left: Option<usize>,
    pub events: Vec<ServerEvent>,
}

/// The content of the page.
pub(crate) fn overview(all: &Overview) -> Markup {
    let late = all.volumes.iter().flat_map(|it| &it.hosts);
    let late = late.filter(|it| it.state == HostState::Overdue).count();
    let down = all.volumes.iter().flat_map(|it| &it.members);
    let down = down.filter(|it| it.answers == Some(false)).count();
    let alarms: Vec<_> = all.volumes.iter().flat_map(|it| &it.alarms).collect();
    html! {
        header {
            h1 { "pinstripe" }
            @if late + down + alarms.len() == 0 {
                p id="summary" class="good" { "Every host and member is as expected." }
            } @else {
                p id="summary" class="bad" role="alert" {
                    @if late > 0 { (late) " host" @if late > 1 { "s" } " overdue. " }
                    @if down > 0 { (down) " member" @if down > 1 { "s" } " not answering. " }
                    @if !alarms.is_empty() {
                        (alarms.len()) " alarm" @if alarms.len() > 1 { "s" } "."
                    }
                }
            }
            p id="note" class="bad" role="status" {}
            form method="post" action="/logout" { button { "Log out" } }
        }
        main {
            @if !alarms.is_empty() { (alarm_section(&alarms)) }
            @for volume in &all.volumes { (one_volume(volume)) }
            @if !all.jobs.is_empty() { (job_section(all)) }
            (event_section(&all.events))
        }
    }
}

fn alarm_section(alarms: &[&Alarm]) -> Markup {
    html! {
        section {
            h2 { "Alarms" }
            (table(
                &["Since", "Subject", "What"],
                &alarms.iter().map(|it| vec![
                    html! { (ago(it.since_seconds)) },
                    html! { (it.subject) },
                    html! { span class="bad" { (it.what) } },
                ]).collect::<Vec<_>>(),
            ))
        }
    }
}

fn job_section(all: &Overview) -> Markup {
    html! {
        section {
            h2 { "Jobs" }
            (table(
                &["Job", "Runs", "State", "Last run", "Took"],
                &all.jobs.iter().map(|it| job_row(it, all)).collect::<Vec<_>>(),
            ))
        }
    }
}

fn job_row(job: &JobStatus, all: &Overview) -> Vec<Markup> {
    let running = all.running.as_ref().filter(|it| it.name == job.name);
    let last = job.last.as_ref();
    let took = last.and_then(|it| u64::try_from(it.ended_seconds - it.began_seconds).ok());
    vec![
        html! { (job.name) },
        html! {
            @match (job.every, all.spares_left) {
                (Some(every), _) => { "every " (span(every.as_secs())) }
                (None, left) => { "if a member is silent; spares left: " (left.unwrap_or(0)) }
            }
        },
        html! {
            @match (running, last) {
                (Some(RunningJob { done: Some(done), .. }), _) => {
                    "running, " (format!("{:.0}", 100.0 * done)) " %"
                }
                (Some(_), _) => { "running" }
                (None, Some(last)) => {
                    span class=(if last.is_good() { "good" } else { "bad" }) { (outcome(last)) }
                }
                (None, None) => { "not yet run" }
            }
        },
        html! { @match last { Some(last) => { (ago(last.ended_seconds)) } None => { "-" } } },
        html! { (took.map_or_else(|| "-".to_owned(), span)) },
    ]
}

fn event_section(events: &[ServerEvent]) -> Markup {
    html! {
        section {
            h2 { "Events" }
            (table(
                &["When", "What"],
                &events.iter().take(EVENTS).map(|it| vec![
                    html! { (ago(it.time_seconds)) },
                    html! { span class=(if it.is_bad { "bad" } else { "" }) { (it.what) } },
                ]).collect::<Vec<_>>(),
            ))
        }
    }
}

fn catalog_line(catalog: &CatalogState) -> Markup {
    html! {
        h3 { "Shared catalog" }
        p {
            code { (catalog.place) } ": "
            @match &catalog.problem {
                Some(problem) => { span class="bad" { (problem) } }
                None => {
                    (catalog.size.snapshots) " snapshots, " (catalog.size.versions)
                    " versions of paths, " (format_size(catalog.size.bytes)) ", "
                    (catalog.queue) " being loaded"
                }
            }
        }
    }
}

fn one_volume(volume: &VolumeStatus) -> Markup {
    let what = if volume.is_store { "Store" } else { "Exported directory" };
    html! {
        section {
            h2 { (what) " " code { (volume.id.get(..8).unwrap_or_default()) } }
            h3 { "Members" }
            (table(
                &["Member", "State", "Free", "Damage", "Last scrub", "Place"],
                &volume.members.iter().map(member_row).collect::<Vec<_>>(),
            ))
            @if let Some(catalog) = &volume.catalog { (catalog_line(catalog)) }
            h3 { "Running sessions" }
            @if volume.sessions.is_empty() {
                p { "No session that began since the server started is running." }
            } @else {
                (table(
                    &["Host", "Running for", "Action"],
                    &volume.sessions.iter().map(session_row).collect::<Vec<_>>(),
                ))
            }
            h3 { "Hosts" }
            @if volume.hosts.is_empty() {
                p { "No host has a token yet: 'pinstripe token add HOST' makes one." }
            } @else {
                (table(
                    &["Host", "State", "Last snapshot", "Expected", "Snapshots", "New", "Took", "Took before", "Stored", "Quota", "Role"],
                    &volume.hosts.iter().map(host_row).collect::<Vec<_>>(),
                ))
            }
            @if !volume.tokens.is_empty() {
                h3 { "Tokens" }
                (table(
                    &["Token", "Host", "Role", "State", "Made"],
                    &volume.tokens.iter().map(token_row).collect::<Vec<_>>(),
                ))
            }
        }
    }
}

fn session_row(session: &SessionFacts) -> Vec<Markup> {
    let SessionFacts { id, host, began_seconds } = session;
    vec![
        html! { (host) },
        html! { (span(age(*began_seconds))) },
        html! {
            form method="post" action="/fence" {
                input type="hidden" name="session" value=(hex(id));
                button aria-label=(format!("Fence the session of {host}")) { "Fence" }
            }
        },
    ]
}

fn token_row(token: &HostToken) -> Vec<Markup> {
    let now = clock::now().0;
    let state = match (token.revoked_seconds, token.expires_seconds) {
        (Some(when), _) => format!("revoked {}", ago(when)),
        (None, Some(when)) if when <= now => format!("expired {}", ago(when)),
        (None, Some(when)) => format!("valid for {}", span((when - now).unsigned_abs())),
        (None, None) => "valid".to_owned(),
    };
    vec![
        html! { code { (token.id) } },
        html! { (token.host) },
        html! { (token.role) @if token.all_hosts { ", all hosts" } },
        html! { (state) },
        html! { (ago(token.created_seconds)) },
    ]
}

fn table(head: &[&str], rows: &[Vec<Markup>]) -> Markup {
    html! {
        table {
            thead { tr { @for name in head { th scope="col" { (name) } } } }
            tbody {
                @for row in rows {
                    tr {
                        @for (name, cell) in head.iter().zip(row) { td data-label=(name) { (cell) } }
                    }
                }
            }
        }
    }
}

fn host_row(host: &HostStatus) -> Vec<Markup> {
    let HostStatus { token, facts, state, age_seconds } = host;
    let (class, word) = match state {
        HostState::Ok => ("good", "ok"),
        HostState::Overdue => ("bad", "overdue"),
        HostState::Never => ("", "no snapshot yet"),
    };
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), format_size);
    let time = |seconds: Option<u64>| seconds.map_or_else(|| "-".to_owned(), span);
    let took = facts.last_duration_seconds.and_then(|it| u64::try_from(it).ok());
    let has_any = facts.last_snapshot_seconds.is_some();
    vec![
        html! { (token.host) },
        html! { span class=(class) { (word) } },
        html! { @match age_seconds { Some(age) => { (span(*age)) " ago" } None => { "-" } } },
        html! { @match token.expect_seconds { Some(it) => { "every " (span(it)) } None => { "-" } } },
        html! { (facts.snapshots) },
        html! { (size(has_any.then_some(facts.last_new_bytes))) },
        html! { (time(took)) },
        bars(&facts.durations),
        html! { (format_size(facts.used_bytes)) },
        html! { (size(token.quota_bytes)) },
        html! { (token.role) },
    ]
}

/// A bar for each duration.
fn bars(seconds: &VecDeque<u64>) -> Markup {
    const WIDTH: usize = 5;
    const HEIGHT: u64 = 20;
    let longest = seconds.iter().copied().max().unwrap_or(0);
    if seconds.len() < 2 {
        return html! { "-" };
    }
    let shortest = seconds.iter().copied().min().unwrap_or(0);
    let label =
        format!("the last {} backups took {} to {}", seconds.len(), span(shortest), span(longest));
    let height = |it: u64| (it * HEIGHT).checked_div(longest).unwrap_or(0).max(1);
    html! {
        svg class="bars" role="img" aria-label=(label) width=(WIDTH * seconds.len()) height=(HEIGHT) {
            title { (label) }
            @for (at, it) in seconds.iter().enumerate() {
                rect x=(WIDTH * at) y=(HEIGHT - height(*it)) width=(WIDTH - 1) height=(height(*it)) {}
            }
        }
    }
}

fn member_row(member: &MemberState) -> Vec<Markup> {
    let (class, word) = match (member.answers, member.is_full) {
        (Some(true), true) => ("bad", "full".to_owned()),
        (Some(true), false) => ("good", "ok".to_owned()),
        (Some(false), _) => ("bad", member.problem.clone().unwrap_or_default()),
        (None, _) => ("", "remote: not asked".to_owned()),
    };
    let damage = damage_of(member);
    vec![
        html! { (member.number) },
        html! { span class=(class) { (word) } },
        html! { (member.free_bytes.map_or_else(|| "-".to_owned(), format_size)) },
        html! { span class=(if damage.is_some() { "bad" } else { "" }) { (damage.as_deref().unwrap_or("none found")) } },
        html! { (member.scrubbed.map_or_else(|| "-".to_owned(), |it| ago(it.last_seconds))) },
        html! { (member.place) },
    ]
}

/// The known damage of a member, in words.
fn damage_of(member: &MemberState) -> Option<String> {
    let found =
        member.damage.filter(|it| *it > 0).map(|it| format!("{it} found by the last scrub"));
    let unread = Some(member.failed_reads).filter(|it| *it > 0);
    let unread = unread.map(|it| format!("{it} failed reads"));
    let parts: Vec<_> = found.into_iter().chain(unread).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The seconds since a time.
fn age(seconds: i64) -> u64 {
    u64::try_from(clock::now().0 - seconds).unwrap_or(0)
}

fn ago(seconds: i64) -> String {
    format!("{} ago", span(age(seconds)))
}

/// A time span in its largest unit, for people.
fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
