//! The page and the metrics.

use pinstripe_serve::TokenRole;

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
