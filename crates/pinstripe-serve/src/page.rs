//! The page: hosts, members, sessions and tokens, for a browser that logged in with an admin token.
//!
//! It is complete without scripts, and reads no member: see `status`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use maud::{DOCTYPE, Markup, html};
use pinstripe_base::clock;
use pinstripe_base::units::format_size;

use crate::app::App;
use crate::body::Pieces;
use crate::logins::{COOKIE_NAME, LOGIN};
use crate::role::TokenRole;
use crate::status::{HostState, HostStatus, MemberState, VolumeStatus};

/// The longest body of a login.
const FORM_MAX_BYTES: u64 = 4096;
/// How often a browser reads the page again, in seconds.
const REFRESH: u32 = 30;

impl App {
    /// Whether a browser is logged in with a token that still is that of an admin.
    fn is_logged_in(&self, headers: &HeaderMap) -> bool {
        let Some(id) = self.logins.find(headers) else { return false };
        let now = clock::now().0;
        self.gate.tokens.all().is_ok_and(|tokens| {
            let is_it = |it: &&crate::tokens::HostToken| it.id == id && it.is_valid(now);
            tokens.iter().find(is_it).is_some_and(|it| it.role == TokenRole::Admin)
        })
    }
}

type Shared = State<Arc<App>>;

pub(crate) async fn page(State(app): Shared, headers: HeaderMap) -> Response {
    match app.is_logged_in(&headers) {
        true => show(StatusCode::OK, &overview(&app.status())),
        false => show(StatusCode::OK, &login_form(None)),
    }
}

pub(crate) async fn login(State(app): Shared, request: Request) -> Response {
    let body = Pieces::new(request.into_body(), FORM_MAX_BYTES).up_to().await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let field = text.split('&').find_map(|pair| pair.strip_prefix("join="));
    // A join string has only characters that forms do not encode.
    let bearer = format!("Bearer {}", field.unwrap_or_default().trim());
    let mut headers = HeaderMap::new();
    if let Ok(value) = bearer.parse() {
        headers.insert(axum::http::header::AUTHORIZATION, value);
    }
    let cookie = match app.gate.admit(&headers) {
        Ok(token) if token.role == TokenRole::Admin => app.logins.add(&token.id).ok(),
        _ => None,
    };
    let Some(cookie) = cookie else {
        let why = "This is not the join string of a valid token with the role admin.";
        return show(StatusCode::FORBIDDEN, &login_form(Some(why)));
    };
    let cookie = format!(
        "{COOKIE_NAME}={cookie}; Path=/; Max-Age={}; HttpOnly; Secure; SameSite=Strict",
        LOGIN.as_secs()
    );
    to_page(&cookie)
}

pub(crate) async fn logout(State(app): Shared, headers: HeaderMap) -> Response {
    app.logins.remove(&headers);
    to_page(&format!("{COOKIE_NAME}=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict"))
}

pub(crate) async fn style() -> Response {
    let mut response = Response::new(Body::from(include_str!("page.css")));
    response.headers_mut().insert(CONTENT_TYPE, "text/css".parse().expect("a header value"));
    response
}

fn to_page(cookie: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(LOCATION, "/".parse().expect("a header value"));
    if let Ok(cookie) = cookie.parse() {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

fn show(status: StatusCode, markup: &Markup) -> Response {
    let mut response = Response::new(Body::from(markup.0.clone()));
    *response.status_mut() = status;
    let policy = "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'";
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, policy),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, value.parse().expect("a header value"));
    }
    response
}

fn frame(refreshes: bool, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                @if refreshes { meta http-equiv="refresh" content=(REFRESH); }
                title { "pinstripe" }
                link rel="stylesheet" href="/style.css";
            }
            body { (content) }
        }
    }
}

fn login_form(problem: Option<&str>) -> Markup {
    frame(
        false,
        &html! {
            main class="login" {
                h1 { "pinstripe" }
                form method="post" action="/login" {
                    label for="join" { "Join string of an admin token" }
                    input id="join" name="join" type="password" autocomplete="off" required autofocus
                        aria-describedby="help";
                    p id="help" { "'pinstripe token add NAME --role admin' prints one." }
                    @if let Some(problem) = problem { p class="bad" role="alert" { (problem) } }
                    button { "Log in" }
                }
            }
        },
    )
}

fn overview(volumes: &[VolumeStatus]) -> Markup {
    let late = volumes.iter().flat_map(|it| &it.hosts).filter(|it| it.state == HostState::Overdue);
    let down = volumes.iter().flat_map(|it| &it.members).filter(|it| it.answers == Some(false));
    let (late, down) = (late.count(), down.count());
    frame(
        true,
        &html! {
            header {
                h1 { "pinstripe" }
                @match (late, down) {
                    (0, 0) => { p class="good" { "Every host and member is as expected." } }
                    (late, down) => {
                        p class="bad" role="alert" {
                            @if late > 0 { (late) " host" @if late > 1 { "s" } " overdue. " }
                            @if down > 0 { (down) " member" @if down > 1 { "s" } " not answering." }
                        }
                    }
                }
                form method="post" action="/logout" { button { "Log out" } }
            }
            main { @for volume in volumes { (one_volume(volume)) } }
        },
    )
}

fn one_volume(volume: &VolumeStatus) -> Markup {
    let what = if volume.is_store { "Store" } else { "Exported directory" };
    html! {
        section {
            h2 { (what) " " code { (volume.id.get(..8).unwrap_or_default()) } }
            h3 { "Members" }
            (table(
                &["Member", "State", "Free", "Place"],
                &volume.members.iter().map(member_row).collect::<Vec<_>>(),
            ))
            h3 { "Running sessions" }
            @if volume.sessions.is_empty() {
                p { "None since the server started." }
            } @else {
                (table(
                    &["Host", "Running for"],
                    &volume.sessions.iter().map(|it| vec![
                        html! { (it.host) },
                        html! { (span(u64::try_from(clock::now().0 - it.began_seconds).unwrap_or(0))) },
                    ]).collect::<Vec<_>>(),
                ))
            }
            h3 { "Hosts" }
            @if volume.hosts.is_empty() {
                p { "No host has a token yet: 'pinstripe token add HOST' makes one." }
            } @else {
                (table(
                    &["Host", "State", "Last snapshot", "Expected", "Snapshots", "New", "Took", "Stored", "Quota", "Role"],
                    &volume.hosts.iter().map(host_row).collect::<Vec<_>>(),
                ))
            }
        }
    }
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
        html! { (format_size(facts.used_bytes)) },
        html! { (size(token.quota_bytes)) },
        html! { (token.role) },
    ]
}

fn member_row(member: &MemberState) -> Vec<Markup> {
    let (class, word) = match (member.answers, member.is_full) {
        (Some(true), true) => ("bad", "full".to_owned()),
        (Some(true), false) => ("good", "ok".to_owned()),
        (Some(false), _) => ("bad", member.problem.clone().unwrap_or_default()),
        (None, _) => ("", "remote: not asked".to_owned()),
    };
    vec![
        html! { (member.number) },
        html! { span class=(class) { (word) } },
        html! { (member.free_bytes.map_or_else(|| "-".to_owned(), format_size)) },
        html! { (member.place) },
    ]
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
