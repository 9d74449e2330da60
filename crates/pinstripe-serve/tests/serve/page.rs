//! The page and the metrics.

use pinstripe_base::error::Kind;
use pinstripe_base::id::StoreId;
use pinstripe_member::scrub::{ScrubShare, ScrubState};
use pinstripe_member::session::Work;
use pinstripe_member::{ExtentKind, Member, PlannedStep};
use pinstripe_remote::Connection;
use pinstripe_serve::{NewToken, TokenRole};

use crate::hostile::{exchange, status};
use crate::roles::{name, session, snapshot};
use crate::setup::{StoreFixture, directory, start, store, volume};

pub fn get(server: &StoreFixture, path: &str, headers: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n");
    exchange(server, request.as_bytes(), false)
}

fn post(server: &StoreFixture, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\
         Connection: close\r\n\r\n{body}"
    );
    exchange(server, request.as_bytes(), false)
}

/// The cookie that an answer sets, as a browser sends it back.
fn cookie(answer: &str) -> Option<String> {
    let line = answer.lines().find(|line| line.to_lowercase().starts_with("set-cookie:"))?;
    let value = line.split_once(':')?.1.trim().split(';').next()?;
    Some(format!("Cookie: {value}\r\n"))
}

#[test]
fn without_an_admin_token_the_page_is_a_login_form() {
    let server = store();
    let (_, ant) = server.token("ant", TokenRole::AppendRestore);
    let page = get(&server, "/", "");
    assert!(page.contains("<form") && !page.contains("ant") && !page.contains("<table"), "{page}");
    let join = ant.join_string().reveal();
    for body in [format!("join={join}"), "join=pst1_x".to_owned(), String::new()] {
        let refused = post(&server, "/login", "", &body);
        assert_eq!((status(&refused), cookie(&refused)), (403, None), "{refused}");
    }
    let forged = get(&server, "/", "Cookie: pinstripe=00\r\n");
    assert!(!forged.contains("<table"), "{forged}");
    // A script sends the join string instead.
    let bearer = |join: &str| format!("Authorization: Bearer {join}\r\n");
    assert!(!get(&server, "/", &bearer(&join)).contains("<table"));
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let page = get(&server, "/", &bearer(&admin.join_string().reveal()));
    assert!(page.contains("<table") && page.contains("ant"), "{page}");
}

#[test]
fn an_admin_sees_hosts_and_members_until_the_logout() {
    let server = store();
    server.token("ant<script>", TokenRole::Append);
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let body = format!("join={}", admin.join_string().reveal());
    let answer = post(&server, "/login", "", &body);
    assert_eq!(status(&answer), 303, "{answer}");
    let cookie = cookie(&answer).unwrap();
    let page = get(&server, "/", &cookie);
    assert!(page.contains("no snapshot yet") && page.contains("<table"), "{page}");
    assert!(page.contains("ant&lt;script&gt;") && !page.contains("ant<script>"), "{page}");
    post(&server, "/logout", &cookie, "");
    assert!(!get(&server, "/", &cookie).contains("<table"));
    // A login ends with its token, too.
    let cookie = self::cookie(&post(&server, "/login", "", &body)).unwrap();
    server.tokens().revoke("desk", 1_700_000_000).unwrap();
    assert!(!get(&server, "/", &cookie).contains("<table"));
}

/// Waits until the metrics show so many failed reads of a member, and returns all metrics.
fn await_failed_reads(server: &StoreFixture, admin: &Connection, count: u64) -> String {
    let bearer = format!("Authorization: Bearer {}\r\n", admin.join_string().reveal());
    let mut found = Vec::new();
    // The members are checked every few seconds.
    for _ in 0..1000 {
        let metrics = get(server, "/metrics", &bearer);
        let is_it = |it: &&str| it.starts_with("pinstripe_member_failed_reads_total{");
        found = metrics.lines().filter(is_it).map(str::to_owned).collect();
        if found.iter().any(|it| it.ends_with(&format!(" {count}"))) {
            return metrics;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("there are not {count} failed reads: {found:?}");
}

/// Failed reads are counted at the server, and scrubs of others are read from the member.
#[test]
fn damage_and_scrubs_of_a_member_are_shown() {
    let state = tempfile::tempdir().unwrap();
    let place = state.path().join("member");
    let member = pinstripe_member::Places::default().create(&place).unwrap().member;
    let mut scrubbed = ScrubState::new(StoreId([7; 16]));
    for (share, seconds) in [(3, 1_700_000_000), (9, 1_600_000_000)] {
        scrubbed.shares[share] = ScrubShare { began_seconds: seconds, sets: 1, bytes: 1 };
    }
    member.put(name(ExtentKind::Scrub, 1), &scrubbed.encode()).unwrap();
    let plan: pinstripe_io::fault::Plan = "op=read,room=packs,error=EIO".parse().unwrap();
    let faults = plan.for_member(0);
    let faulty = std::sync::Arc::new(pinstripe_member::FaultMember::new(member, faults));
    let server = start(state, volume(true, vec![faulty]), "127.0.0.1:0".parse().unwrap());
    let (_, ant) = server.token("ant", TokenRole::Admin);
    let local = directory(&place);
    local.put(name(ExtentKind::Packs, 1), b"pack").unwrap();
    for _ in 0..2 {
        let read = server.member(&ant, 0).read_at(name(ExtentKind::Packs, 1), 0, &mut [0; 4]);
        assert_eq!(read.unwrap_err().kind(), Kind::Io);
    }
    let metrics = await_failed_reads(&server, &ant, 2);
    let value = |name: &str| {
        let line = metrics.lines().find(|it| it.starts_with(name)).unwrap_or_default();
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!(value("pinstripe_scrub_oldest_timestamp_seconds{"), "1600000000");
    assert_eq!(value("pinstripe_member_last_scrub_timestamp_seconds{"), "1700000000");
    let page = get(&server, "/", &login(&server));
    assert!(page.contains("2 failed reads"), "{page}");
    assert!(page.contains(" days ago"), "{page}");
}

/// Reads that fail within a request for several extents, or for several members, count as reads that
/// fail alone.
#[test]
fn failed_reads_within_a_batch_are_counted() {
    let state = tempfile::tempdir().unwrap();
    let place = state.path().join("member");
    let member = pinstripe_member::Places::default().create(&place).unwrap().member;
    let plan =
        "op=read,room=packs,error=EIO;op=list,room=keys,error=EIO;op=read,room=snapshots,error=EIO";
    let plan: pinstripe_io::fault::Plan = plan.parse().unwrap();
    let faulty = pinstripe_member::FaultMember::new(member, plan.for_member(0));
    let served = volume(true, vec![std::sync::Arc::new(faulty)]);
    let server = start(state, served, "127.0.0.1:0".parse().unwrap());
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let local = directory(&place);
    for byte in 1..4 {
        local.put(name(ExtentKind::Packs, byte), b"pack").unwrap();
    }
    local.put(name(ExtentKind::Snapshots, 1), b"snapshot").unwrap();
    let client = server.member(&admin, 0);
    // Three reads in one request.
    let names: Vec<_> = (1..4).map(|byte| name(ExtentKind::Packs, byte)).collect();
    let before = server.requests();
    let read = client.read_whole(&names, 100);
    assert!(read.iter().all(|it| it.as_ref().is_err_and(|it| it.kind() == Kind::Io)), "{read:?}");
    assert_eq!(server.requests() - before, 1);
    await_failed_reads(&server, &admin, 3);
    // A listing and an object in one look.
    let volume = admin.volume;
    // Labels: no. Members: 0. Kinds: two, with content. Extents to open: none.
    let kind = |it| ExtentKind::ALL.iter().position(|kind| *kind == it).unwrap() as u8;
    let [first, second] = [ExtentKind::Snapshots, ExtentKind::Keys].map(kind);
    let body = [0, 1, 0, 0, 2, first, 2, second, 2, 0];
    let head = format!(
        "POST /v1/{volume}/look HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        admin.join_string().reveal(),
        body.len()
    );
    assert_eq!(status(&exchange(&server, &[head.as_bytes(), &body].concat(), false)), 200);
    await_failed_reads(&server, &admin, 5);
}

/// A host whose backups fail at their last step has no newer backup.
#[test]
fn a_snapshot_that_was_not_stored_is_no_success() {
    let state = tempfile::tempdir().unwrap();
    let member =
        pinstripe_member::Places::default().create(&state.path().join("m")).unwrap().member;
    let plan: pinstripe_io::fault::Plan =
        "op=put,room=snapshots,times=2,error=ENOSPC".parse().unwrap();
    let faulty = pinstripe_member::FaultMember::new(member, plan.for_member(0));
    let served = volume(true, vec![std::sync::Arc::new(faulty)]);
    let server = start(state, served, "127.0.0.1:0".parse().unwrap());
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let (_, ant) = server.token("ant", TokenRole::Append);
    let ant = server.member(&ant, 0);
    let (at, object) = session(9, 1, Work::Backup);
    ant.put(at, &object).unwrap();
    let bearer = format!("Authorization: Bearer {}\r\n", admin.join_string().reveal());
    let figures = || {
        let metrics = get(&server, "/metrics", &bearer);
        let value = |figure: &str| {
            let line = metrics.lines().find(|it| it.starts_with(figure) && it.contains("\"ant\""));
            line.and_then(|it| it.rsplit(' ').next()).map(str::to_owned)
        };
        let success = value("pinstripe_backup_last_success_timestamp_seconds{");
        (value("pinstripe_snapshots{"), success.is_some())
    };
    // Alone, and as a step of a request for all members.
    assert_eq!(
        ant.put(name(ExtentKind::Snapshots, 1), &snapshot()).unwrap_err().kind(),
        Kind::NoSpace
    );
    assert_eq!(figures(), (Some("0".to_owned()), false));
    ant.plan(&[PlannedStep::Put(name(ExtentKind::Snapshots, 1), snapshot())], 1);
    assert_eq!(
        ant.put(name(ExtentKind::Snapshots, 1), &snapshot()).unwrap_err().kind(),
        Kind::NoSpace
    );
    assert_eq!(figures(), (Some("0".to_owned()), false));
    ant.put(name(ExtentKind::Snapshots, 1), &snapshot()).unwrap();
    assert_eq!(figures(), (Some("1".to_owned()), true));
}

/// Logs a browser in, and returns its cookie.
fn login(server: &StoreFixture) -> String {
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let body = format!("join={}", admin.join_string().reveal());
    cookie(&post(server, "/login", "", &body)).unwrap()
}

#[test]
fn an_admin_fences_a_session_and_its_snapshot_is_refused() {
    let server = store();
    let (_, ant) = server.token("ant", TokenRole::Append);
    let member = server.member(&ant, 0);
    let (at, object) = session(9, 1, Work::Backup);
    member.put(at, &object).unwrap();
    let cookie = login(&server);
    let page = get(&server, "/", &cookie);
    let id = pinstripe_base::id::hex(&[9; 16]);
    assert!(page.contains(&format!("value=\"{id}\"")), "{page}");
    // Only a browser that is logged in may do this.
    let body = format!("session={id}");
    assert_eq!(status(&post(&server, "/fence", "", &body)), 403);
    for odd in ["", "session=", "session=zz", "session=00000000000000000000000000000000"] {
        assert_eq!(status(&post(&server, "/fence", &cookie, odd)), 303, "{odd}");
    }
    assert_eq!(member.len(at).unwrap(), object.len() as u64);
    assert_eq!(status(&post(&server, "/fence", &cookie, &body)), 303);
    assert_eq!(member.len(at).unwrap_err().kind(), Kind::NotFound);
    let refused = member.put(name(ExtentKind::Snapshots, 1), &snapshot());
    assert_eq!(refused.unwrap_err().kind(), Kind::NotAllowed);
    let page = get(&server, "/", &cookie);
    assert!(page.contains("the session of host ant was fenced"), "{page}");
    assert!(!page.contains("Fence the session"), "{page}");
}

#[test]
fn metrics_are_for_admins() {
    let server = store();
    let (_, ant) = server.token("ant", TokenRole::Append);
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let bearer = |join: String| format!("Authorization: Bearer {join}\r\n");
    assert_eq!(status(&get(&server, "/metrics", "")), 403);
    assert_eq!(status(&get(&server, "/metrics", &bearer(ant.join_string().reveal()))), 403);
    let text = get(&server, "/metrics", &bearer(admin.join_string().reveal()));
    for metric in ["pinstripe_requests_total", "pinstripe_snapshots{", "pinstripe_backup_overdue{"]
    {
        assert!(text.contains(metric), "{metric}: {text}");
    }
    assert!(text.trim_end().ends_with("# EOF"), "{text}");
    assert_eq!(status(&get(&server, "/healthz", "")), 200);
}

/// The expressions of the dashboard that is shipped, for a rule file.
fn dashboard_rules() -> String {
    let text = include_str!("../../../../contrib/grafana/pinstripe.json");
    let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(panel["gridPos"]["w"].as_u64().unwrap() <= 24);
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap().replace("$store", ".*");
            rules += &format!("      - record: dashboard:panel\n        expr: '{expression}'\n");
        }
    }
    rules
}

/// Prometheus' own tool accepts the metrics and the rules that are shipped.
#[test]
#[ignore = "with --all: it needs promtool, which Debian has in the package prometheus"]
fn prometheus_accepts_the_metrics_and_the_rules() {
    let server = store();
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let bearer = format!("Authorization: Bearer {}\r\n", admin.join_string().reveal());
    server.token_with(NewToken {
        quota_bytes: Some(1 << 40),
        expect_seconds: Some(3600),
        ..server.new_token("ant", TokenRole::Append)
    });
    // The members are checked soon after the start.
    let answer = loop {
        let answer = get(&server, "/metrics", &bearer);
        if answer.contains("pinstripe_member_up{") && answer.contains("_requests_total{") {
            break answer;
        }
    };
    let text = answer.split_once("\r\n\r\n").unwrap().1;
    let shipped =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/prometheus/pinstripe.rules.yml");
    let dashboard = server.state.path().join("dashboard.yml");
    std::fs::write(&dashboard, dashboard_rules()).unwrap();
    let promtool = |act: &[&str]| {
        let mut command = std::process::Command::new("promtool");
        command.arg("check").args(act).stdin(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn()
    };
    // The tool reads the older text format, in which the name of a counter has its suffix.
    let mut older = text.to_owned();
    for name in ["requests", "member_failed_reads"] {
        for what in ["HELP", "TYPE"] {
            let line = format!("# {what} pinstripe_{name}");
            older = older.replace(&format!("{line} "), &format!("{line}_total "));
        }
    }
    let is_kept = |line: &&str| !line.starts_with("# UNIT") && !line.starts_with("# EOF");
    let older: String = older.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
    for (act, content) in [
        (&["metrics"][..], older.as_str()),
        (&["rules", shipped], ""),
        (&["rules", dashboard.to_str().unwrap()], ""),
    ] {
        let Ok(mut child) = promtool(act) else {
            return pinstripe_testing::not_installed(
                "prometheus_accepts_the_metrics_and_the_rules",
                "promtool",
            );
        };
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), content.as_bytes()).unwrap();
        let said = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{act:?}: {text}");
    }
}
