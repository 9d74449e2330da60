//! The page and the metrics.

use pinstripe_serve::{NewToken, TokenRole};

use crate::hostile::{exchange, status};
use crate::setup::{StoreFixture, store};

fn get(server: &StoreFixture, path: &str, headers: &str) -> String {
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

/// Prometheus' own tool accepts the metrics and the rules that are shipped.
#[test]
fn prometheus_accepts_the_metrics_and_the_rules() {
    let server = store();
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let bearer = format!("Authorization: Bearer {}\r\n", admin.join_string().reveal());
    server.token_with(NewToken {
        host: "ant".to_owned(),
        role: TokenRole::Append,
        volume: server.volume,
        quota_bytes: Some(1 << 40),
        expect_seconds: Some(3600),
        rate: None,
        all_hosts: false,
        expires_seconds: None,
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
    let rules = std::fs::read_to_string(shipped).unwrap();
    // Each metric that a rule uses is one that the server has, though not each has a value yet.
    let used = rules.match_indices("pinstripe_").map(|(at, _)| {
        let name = &rules[at..];
        &name[..name.find(|it: char| !it.is_ascii_alphanumeric() && it != '_').unwrap()]
    });
    for name in used {
        let family = name.strip_suffix("_total").unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {family} ")), "{name}: {text}");
    }
    let promtool = |act: &[&str]| {
        let mut command = std::process::Command::new("promtool");
        command.arg("check").args(act).stdin(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn()
    };
    // The tool reads the older text format, in which the name of a counter has its suffix.
    let older = text.replace("pinstripe_requests Req", "pinstripe_requests_total Req");
    let older = older.replace("pinstripe_requests counter", "pinstripe_requests_total counter");
    let is_kept = |line: &&str| !line.starts_with("# UNIT") && !line.starts_with("# EOF");
    let older: String = older.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
    for (act, content) in [(&["metrics"][..], older.as_str()), (&["rules", shipped], "")] {
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
