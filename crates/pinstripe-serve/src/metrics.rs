//! Metrics in the text format of OpenMetrics, which Prometheus reads.

use std::fmt::Write as _;
use std::time::Duration;

use pinstripe_base::clock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::jobs::JobStatus;
use crate::status::{HostState, VolumeStatus};

/// The media type of the answer.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HostLabels {
    store: String,
    host: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct MemberLabels {
    store: String,
    member: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StoreLabels {
    store: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct JobLabels {
    job: String,
}

/// The counters of requests.
pub(crate) struct RequestMetrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Histogram,
}

impl RequestMetrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("pinstripe");
        let requests = Family::<RequestLabels, Counter>::default();
        let seconds = Histogram::new(exponential_buckets(0.001, 2.0, 16));
        registry.register("requests", "Requests that were answered", requests.clone());
        let what = "Time until a request was answered";
        registry.register_with_unit("request", what, Unit::Seconds, seconds.clone());
        RequestMetrics { registry, requests, seconds }
    }

    pub fn count(&self, method: &str, code: u16, elapsed: Duration) {
        // Any client may invent methods; few are worth a series.
        let method = match method {
            "GET" | "HEAD" | "PUT" | "POST" | "DELETE" => method,
            _ => "other",
        };
        let labels = RequestLabels { method: method.to_owned(), code };
        self.requests.get_or_create(&labels).inc();
        self.seconds.observe(elapsed.as_secs_f64());
    }

    /// The metrics of requests and of volumes.
    pub fn text(&self, volumes: &[VolumeStatus], jobs: &[JobStatus]) -> String {
        let mut text = String::new();
        let written = encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &of_volumes(volumes)))
            .and_then(|()| encode_registry(&mut text, &of_jobs(jobs)))
            .and_then(|()| encode_eof(&mut text));
        if written.is_err() {
            let _ = writeln!(text, "# EOF");
        }
        text
    }
}

type PerHost = Family<HostLabels, Gauge>;

/// The metrics of volumes, as they are now.
fn of_volumes(volumes: &[VolumeStatus]) -> Registry {
    let mut registry = Registry::with_prefix("pinstripe");
    of_hosts(&mut registry, volumes);
    of_members(&mut registry, volumes);
    of_catalogs(&mut registry, volumes);
    let sessions = Family::<StoreLabels, Gauge>::default();
    let oldest = Family::<StoreLabels, Gauge>::default();
    let now = clock::now().0;
    for volume in volumes {
        let labels = StoreLabels { store: volume.id.clone() };
        sessions.get_or_create(&labels).set(volume.sessions.len() as i64);
        let age = volume.sessions.first().map_or(0, |it| now - it.began_seconds);
        oldest.get_or_create(&labels).set(age);
    }
    registry.register("sessions", "Sessions that run", sessions);
    let what = "Age of the oldest session that runs";
    registry.register_with_unit("session_oldest_age", what, Unit::Seconds, oldest);
    let alarms = Family::<StoreLabels, Gauge>::default();
    for volume in volumes {
        let labels = StoreLabels { store: volume.id.clone() };
        alarms.get_or_create(&labels).set(volume.alarms.len() as i64);
    }
    registry.register("alarms", "Alarms that are active", alarms);
    registry
}

/// The metrics of shared catalogs.
fn of_catalogs(registry: &mut Registry, volumes: &[VolumeStatus]) {
    let [up, snapshots, versions, queue, names] =
        std::array::from_fn(|_| Family::<StoreLabels, Gauge>::default());
    for (store, catalog) in volumes.iter().filter_map(|it| Some((&it.id, it.catalog.as_ref()?))) {
        let labels = StoreLabels { store: store.clone() };
        up.get_or_create(&labels).set(i64::from(catalog.problem.is_none()));
        snapshots.get_or_create(&labels).set(catalog.size.snapshots as i64);
        versions.get_or_create(&labels).set(catalog.size.versions as i64);
        queue.get_or_create(&labels).set(catalog.queue as i64);
        names.get_or_create(&labels).set(catalog.names_bytes as i64);
    }
    registry.register("catalog_up", "Whether the database of the shared catalog answers", up);
    registry.register("catalog_snapshots", "Snapshots in the shared catalog", snapshots);
    registry.register("catalog_versions", "Versions of paths in the shared catalog", versions);
    registry.register("catalog_queue", "Snapshots that are loaded or wait for it", queue);
    let what = "Names of the shared catalog in memory";
    registry.register_with_unit("catalog_names", what, Unit::Bytes, names);
}

fn of_hosts(registry: &mut Registry, volumes: &[VolumeStatus]) {
    let [success, duration, fresh, snapshots, used, quota, expected, overdue] =
        std::array::from_fn(|_| PerHost::default());
    let hosts = volumes.iter().flat_map(|it| it.hosts.iter().map(|host| (&it.id, host)));
    for (store, host) in hosts {
        let labels = HostLabels { store: store.clone(), host: host.token.host.clone() };
        let set = |family: &PerHost, value: Option<i64>| {
            if let Some(value) = value {
                family.get_or_create(&labels).set(value);
            }
        };
        set(&success, host.facts.last_snapshot_seconds);
        set(&duration, host.facts.last_duration_seconds);
        set(&fresh, host.facts.last_snapshot_seconds.map(|_| host.facts.last_new_bytes as i64));
        set(&snapshots, Some(host.facts.snapshots as i64));
        set(&used, Some(host.facts.used_bytes as i64));
        set(&quota, host.token.quota_bytes.map(|it| it as i64));
        set(&expected, host.token.expect_seconds.map(|it| it as i64));
        set(&overdue, Some(i64::from(host.state == HostState::Overdue)));
    }
    for (name, what, unit, family) in [
        (
            "backup_last_success_timestamp",
            "When the last snapshot of the host was accepted",
            Some(Unit::Seconds),
            success,
        ),
        (
            "backup_last_duration",
            "How long the last backup of the host took",
            Some(Unit::Seconds),
            duration,
        ),
        (
            "backup_last_stored",
            "Bytes that the last backup of the host stored",
            Some(Unit::Bytes),
            fresh,
        ),
        ("snapshots", "Snapshots that the host has put", None, snapshots),
        ("used", "Bytes that the host has stored", Some(Unit::Bytes), used),
        ("quota", "Bytes that the host may store", Some(Unit::Bytes), quota),
        (
            "backup_expected_interval",
            "The longest expected time between two backups",
            Some(Unit::Seconds),
            expected,
        ),
        ("backup_overdue", "Whether no backup came within the expected time", None, overdue),
    ] {
        match unit {
            Some(unit) => registry.register_with_unit(name, what, unit, family),
            None => registry.register(name, what, family),
        }
    }
}

/// The metrics of jobs.
fn of_jobs(jobs: &[JobStatus]) -> Registry {
    let mut registry = Registry::with_prefix("pinstripe");
    let [end, duration, failed] = std::array::from_fn(|_| Family::<JobLabels, Gauge>::default());
    for job in jobs {
        let Some(last) = &job.last else { continue };
        let labels = JobLabels { job: job.name.clone() };
        end.get_or_create(&labels).set(last.ended_seconds);
        duration.get_or_create(&labels).set(last.ended_seconds - last.began_seconds);
        failed.get_or_create(&labels).set(i64::from(!last.is_good()));
    }
    let seconds = Some(Unit::Seconds);
    for (name, what, unit, family) in [
        ("job_last_end_timestamp", "When the last run of the job ended", seconds.clone(), end),
        ("job_last_duration", "How long the last run of the job took", seconds, duration),
        ("job_failed", "Whether the last run of the job failed or found damage", None, failed),
    ] {
        match unit {
            Some(unit) => registry.register_with_unit(name, what, unit, family),
            None => registry.register(name, what, family),
        }
    }
    registry
}

fn of_members(registry: &mut Registry, volumes: &[VolumeStatus]) {
    let up = Family::<MemberLabels, Gauge>::default();
    let free = Family::<MemberLabels, Gauge>::default();
    let full = Family::<MemberLabels, Gauge>::default();
    for (store, member) in
        volumes.iter().flat_map(|it| it.members.iter().map(|member| (&it.id, member)))
    {
        let labels = MemberLabels { store: store.clone(), member: member.number };
        let Some(answers) = member.answers else { continue };
        up.get_or_create(&labels).set(i64::from(answers));
        full.get_or_create(&labels).set(i64::from(member.is_full));
        if let Some(bytes) = member.free_bytes {
            free.get_or_create(&labels).set(bytes as i64);
        }
    }
    of_damage(registry, volumes);
    registry.register("member_up", "Whether the member answers", up);
    registry.register("member_full", "Whether the member is full", full);
    registry.register_with_unit("member_free", "Free bytes of the member", Unit::Bytes, free);
}

/// What scrubs found, and what could not be read.
fn of_damage(registry: &mut Registry, volumes: &[VolumeStatus]) {
    let damage = Family::<MemberLabels, Gauge>::default();
    let unread = Family::<MemberLabels, Counter>::default();
    let last = Family::<MemberLabels, Gauge>::default();
    let oldest = Family::<StoreLabels, Gauge>::default();
    for volume in volumes {
        for member in &volume.members {
            let labels = MemberLabels { store: volume.id.clone(), member: member.number };
            unread.get_or_create(&labels).inc_by(member.failed_reads);
            if let Some(found) = member.damage {
                damage.get_or_create(&labels).set(found as i64);
            }
            if let Some(scrubbed) = member.scrubbed {
                last.get_or_create(&labels).set(scrubbed.last_seconds);
            }
        }
        // The newest state of all members counts: one that was absent has an older one.
        let scrubbed = volume.members.iter().filter_map(|it| it.scrubbed);
        if let Some(newest) = scrubbed.max_by_key(|it| it.last_seconds) {
            let labels = StoreLabels { store: volume.id.clone() };
            oldest.get_or_create(&labels).set(newest.oldest_seconds);
        }
    }
    registry.register("member_damage", "Damage that the last scrub found on the member", damage);
    let what = "Reads from the member that failed since the server started";
    registry.register("member_failed_reads", what, unread);
    let seconds = || Unit::Seconds;
    let what = "When a scrub last verified data of the member";
    registry.register_with_unit("member_last_scrub_timestamp", what, seconds(), last);
    let what = "When the data whose verification is the oldest was verified";
    registry.register_with_unit("scrub_oldest_timestamp", what, seconds(), oldest);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::catalog::CatalogState;
    use crate::jobs::JobResult;
    use crate::ledger::HostFacts;
    use crate::status::{HostStatus, MemberState, ScrubTimes};
    use crate::tokens::HostToken;

    #[test]
    fn requests_are_counted_by_method_and_code() {
        let metrics = RequestMetrics::new();
        metrics.count("GET", 200, Duration::from_millis(3));
        metrics.count("GET", 200, Duration::from_millis(3));
        metrics.count("BREW", 418, Duration::ZERO);
        let text = metrics.text(&[], &[]);
        assert!(text.contains("pinstripe_requests_total{method=\"GET\",code=\"200\"} 2"), "{text}");
        assert!(text.contains("method=\"other\",code=\"418\""), "{text}");
        assert!(text.contains("pinstripe_request_seconds_count 3"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    fn everything() -> (VolumeStatus, JobStatus) {
        let token = serde_json::json!({
            "id": "07", "host": "ant", "role": "append", "volume": "ab", "secret_hash": "",
            "quota_bytes": 9, "expect_seconds": 9, "created_seconds": 1
        });
        let token: HostToken = serde_json::from_value(token).unwrap();
        let mut facts = HostFacts::default();
        (facts.last_snapshot_seconds, facts.last_duration_seconds) = (Some(5), Some(6));
        let scrubbed = Some(ScrubTimes { last_seconds: 3, oldest_seconds: 2 });
        let (answers, free_bytes, damage) = (Some(true), Some(7), Some(1));
        let member =
            MemberState { answers, free_bytes, damage, scrubbed, ..MemberState::default() };
        let catalog = CatalogState {
            place: String::new(),
            problem: None,
            size: <_>::default(),
            queue: 0,
            names_bytes: 0,
        };
        let volume = VolumeStatus {
            id: "ab".to_owned(),
            is_store: true,
            hosts: vec![HostStatus::new(token, facts, 8)],
            members: vec![member],
            sessions: Vec::new(),
            tokens: Vec::new(),
            catalog: Some(catalog),
            alarms: Vec::new(),
        };
        let last = JobResult {
            began_seconds: 1,
            ended_seconds: 2,
            exit_code: Some(0),
            messages: String::new(),
            counts: BTreeMap::new(),
            damage: BTreeMap::new(),
        };
        (volume, JobStatus { name: "scrub".to_owned(), every: None, last: Some(last) })
    }

    /// The alert rules and the dashboard that are shipped use metrics that there are.
    #[test]
    fn rules_and_dashboard_name_metrics_that_there_are() {
        let metrics = RequestMetrics::new();
        metrics.count("GET", 200, Duration::ZERO);
        let (volume, job) = everything();
        let text = metrics.text(&[volume], &[job]);
        let rules = include_str!("../../../contrib/prometheus/pinstripe.rules.yml");
        let dashboard = include_str!("../../../contrib/grafana/pinstripe.json");
        let mut used = 0;
        for from in [rules, dashboard] {
            for (at, _) in from.match_indices("pinstripe_") {
                let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
                let name = from[at..].split(|it| !is_part(it)).next().unwrap();
                let family = name.trim_end_matches("_total").trim_end_matches("_bucket");
                assert!(text.contains(&format!("# TYPE {family} ")), "{name}: {text}");
                used += 1;
            }
        }
        assert!(used > 20, "{used}");
    }
}
