//! The output of `forget`: each group with its snapshots, and the groups that get no more
//! snapshots.

use pinstripe::forget::{ForgetOutcome, Group, Idle, Verdict};
use pinstripe_base::error::Result;
use pinstripe_base::id::SnapshotId;
use pinstripe_base::units::format_size;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_stripe::GroupKey;

use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::Run;
use crate::table::{self, Side};
use crate::time;
use crate::verbs::snapshots;

const HEAD: [(&str, Side); 6] = [
    ("", Side::Left),
    ("snapshot", Side::Left),
    ("time", Side::Left),
    ("host", Side::Left),
    ("why", Side::Left),
    ("paths", Side::Left),
];

/// The largest number of snapshots in the command that a note gives.
const NAMED_MAX: usize = 50;

const DAY_SECONDS: u64 = 24 * 3600;

/// Shows which snapshots stay and which go, and names each group if there are several: as output of
/// a dry run, otherwise as a note that --quiet omits.
pub fn verdicts(run: &Run, outcome: &ForgetOutcome, is_dry_run: bool) -> Result<()> {
    let is_shown = is_dry_run || !run.common.quiet;
    let row = |line: &str| if is_shown { run.screen.row(line) } else { Ok(()) };
    if outcome.groups.is_empty() {
        let all: Vec<_> = outcome.verdicts.iter().collect();
        all.iter().try_for_each(|verdict| run.screen.event(&event(verdict)))?;
        return table_of(&all).iter().try_for_each(|line| row(line));
    }
    for (number, group) in outcome.groups.iter().enumerate() {
        let own: Vec<_> = group.positions.iter().map(|&at| &outcome.verdicts[at]).collect();
        let goes = own.iter().filter(|verdict| !verdict.stays()).count();
        let facts = key_facts(Event::new("group").with("group", number), &group.key)
            .with("snapshots", ids(own.iter().map(|it| it.snapshot.id)))
            .with("kept", own.len() - goes)
            .with("forgotten", goes);
        run.screen.event(&facts)?;
        for verdict in &own {
            run.screen.event(&event(verdict).with("group", number))?;
        }
        if outcome.groups.len() > 1 {
            if number > 0 {
                row("")?;
            }
            row(&format!("group: {}", describe(&group.key)))?;
        }
        table_of(&own).iter().try_for_each(|line| row(line))?;
    }
    if outcome.groups.len() > 1 {
        row("")?;
    }
    Ok(())
}

fn reasons(verdict: &Verdict) -> Vec<String> {
    verdict.reasons.iter().map(ToString::to_string).collect()
}

fn event(verdict: &Verdict) -> Event {
    Event::new("verdict")
        .with_all(snapshots::facts(&verdict.snapshot))
        .with("stays", verdict.stays())
        .with("why", reasons(verdict))
}

fn table_of(verdicts: &[&Verdict]) -> Vec<String> {
    let row = |verdict: &&Verdict| {
        let Snapshot { id, created_seconds, host, .. } = &verdict.snapshot;
        let fate = if verdict.stays() { "keep" } else { "forget" };
        vec![
            fate.to_owned(),
            id.short(),
            time::date(*created_seconds),
            escape::name(host),
            escape::text(&reasons(verdict).join(", ")),
            snapshots::paths(&verdict.snapshot),
        ]
    };
    let rows: Vec<_> = verdicts.iter().map(row).collect();
    if rows.is_empty() { Vec::new() } else { table::lines(&HEAD, &rows) }
}

fn ids(ids: impl Iterator<Item = SnapshotId>) -> Vec<String> {
    ids.map(|id| id.to_string()).collect()
}

/// Adds what the snapshots of a group have in common.
fn key_facts(event: Event, key: &GroupKey) -> Event {
    let event = match &key.host {
        Some(host) => event.with_name("host", host),
        None => event,
    };
    let event = match &key.sources {
        Some(sources) => {
            let sources: Vec<_> = sources.iter().map(|it| snapshots::absolute(it)).collect();
            event.with_names("sources", &sources)
        }
        None => event,
    };
    event.with_some("tags", key.tags.clone())
}

/// What the snapshots of a group have in common, for people.
fn describe(key: &GroupKey) -> String {
    let tags = |tags: &Vec<String>| match tags.is_empty() {
        true => "no tags".to_owned(),
        false => format!("tags {}", escape::text(&tags.join(" "))),
    };
    let parts = [
        key.host.as_ref().map(|host| format!("host {}", escape::name(host))),
        key.sources.as_ref().map(|sources| format!("paths {}", snapshots::paths_of(sources))),
        key.tags.as_ref().map(tags),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "all examined snapshots".to_owned() } else { parts.join(", ") }
}

/// Names the groups that get no more snapshots, with the command that forgets their snapshots.
pub fn idle_groups(run: &Run, outcome: &ForgetOutcome, is_dry_run: bool) -> Result<()> {
    for (number, group) in outcome.groups.iter().enumerate() {
        let Some(Idle { newest, age }) = group.idle else { continue };
        let newest = &outcome.verdicts[newest].snapshot;
        let left = left(outcome, group, is_dry_run);
        let event = key_facts(Event::new("idle_group").with("group", number), &group.key)
            .with("newest", newest.id.to_string())
            .with("newest_seconds", newest.created_seconds)
            .with("age_seconds", age.as_secs())
            .with("bytes", newest.content_bytes())
            .with("snapshots", ids(left.iter().copied()));
        run.screen.event(&event)?;
        let named: Vec<_> = left.iter().take(NAMED_MAX).map(SnapshotId::short).collect();
        let what = match left.len() {
            1 => "it".to_owned(),
            count if count > NAMED_MAX => format!("the {NAMED_MAX} oldest ones"),
            _ => "them".to_owned(),
        };
        run.monitor.note(&format!(
            "the newest snapshot of the group '{}' is {} old ({}; size of the newest: {}); if \
             nothing backs up this group any more, 'pinstripe forget {}' forgets {what}",
            describe(&group.key),
            counted(age.as_secs() / DAY_SECONDS, "day"),
            counted(left.len() as u64, "snapshot"),
            format_size(newest.content_bytes()),
            named.join(" "),
        ));
    }
    Ok(())
}

/// The snapshots of a group that are not forgotten now, oldest first.
fn left(outcome: &ForgetOutcome, group: &Group, is_dry_run: bool) -> Vec<SnapshotId> {
    let verdicts = group.positions.iter().map(|&at| &outcome.verdicts[at]);
    let left = verdicts.filter(|verdict| is_dry_run || verdict.stays());
    left.map(|verdict| verdict.snapshot.id).collect()
}
