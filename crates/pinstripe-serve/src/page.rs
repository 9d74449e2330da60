//! The requests of a browser: the page, the login, and the buttons of the page.
//!
//! Only a browser that logged in with an admin token, and a script that sends one, see more than the
//! form of the login.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use maud::{DOCTYPE, Markup, html};
use pinstripe_base::clock;
use pinstripe_base::id::SetId;
use pinstripe_member::{ExtentKind, ExtentName};

use crate::app::App;
use crate::body::Pieces;
use crate::logins::{COOKIE_NAME, LOGIN};
use crate::overview::{Overview, overview};
use crate::role::TokenRole;
use crate::tls::PeerNames;

/// The longest body of a login.
const FORM_MAX_BYTES: u64 = 4096;
/// How often a browser without scripts loads the page again, in seconds.
const REFRESH: u32 = 30;

impl App {
    /// Whether a request has the token of an admin, or is of a browser that is logged in with a token
    /// that still is that of an admin.
    fn is_logged_in(&self, headers: &HeaderMap) -> bool {
        if headers.contains_key(AUTHORIZATION) {
            return self.gate.admit(headers).is_ok_and(|token| token.role == TokenRole::Admin);
        }
        let Some(id) = self.logins.find(headers) else { return false };
        let now = clock::now().0;
        self.gate.tokens.all().is_ok_and(|tokens| {
            let is_it = |it: &&crate::tokens::HostToken| it.id == id && it.is_valid(now);
            tokens.iter().find(is_it).is_some_and(|it| it.role == TokenRole::Admin)
        })
    }
}

impl App {
    fn overview(&self) -> Overview {
        Overview {
            volumes: self.status(),
            jobs: self.jobs.status(),
            running: self.jobs.running(),
            spares_left: self.jobs.spares_left(),
            events: self.events.last(),
        }
    }

    /// Fences a session, and removes its object, so that no deletion waits for the session.
    async fn fence(&self, session: [u8; 16]) {
        for served in &self.volumes {
            let host = match served.ledger.fence(session) {
                Ok(Some(host)) => host,
                Ok(None) => continue,
                Err(error) => {
                    self.events.add(true, format!("a session could not be fenced: {error}"));
                    continue;
                }
            };
            self.events.add(true, format!("the session of host {host} was fenced"));
            let name = ExtentName::In(ExtentKind::Sessions, session);
            for member in served.volume().members.values() {
                let member = Arc::clone(member);
                // A copy on a member that does not answer is ended by the next gc.
                let _ = self.call(move || member.delete(name)).await;
            }
            served.ledger.forget(name);
        }
    }
}

type Shared = State<Arc<App>>;

pub(crate) async fn page(State(app): Shared, headers: HeaderMap) -> Response {
    match app.is_logged_in(&headers) {
        true => show(StatusCode::OK, &frame(true, &overview(&app.overview()))),
        false => show(StatusCode::OK, &login_form(None)),
    }
}

pub(crate) async fn login(State(app): Shared, request: Request) -> Response {
    let names = request.extensions().get::<PeerNames>().cloned();
    let body = Pieces::new(request.into_body(), FORM_MAX_BYTES).up_to().await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let field = text.split('&').find_map(|pair| pair.strip_prefix("join="));
    // A join string has only characters that forms do not encode.
    let bearer = format!("Bearer {}", field.unwrap_or_default().trim());
    let mut headers = HeaderMap::new();
    if let Ok(value) = bearer.parse() {
        headers.insert(AUTHORIZATION, value);
    }
    let admitted = app.gate.admit(&headers);
    if let (Ok(token), Some(names)) = (&admitted, names)
        && names.require(&token.host).is_err()
    {
        let why = "The browser's client certificate does not name the host of this token.";
        return show(StatusCode::FORBIDDEN, &login_form(Some(why)));
    }
    let cookie = match admitted {
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
    to_page(Some(&cookie))
}

pub(crate) async fn logout(State(app): Shared, headers: HeaderMap) -> Response {
    app.logins.remove(&headers);
    let cookie = format!("{COOKIE_NAME}=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict");
    to_page(Some(&cookie))
}

/// Ends a running session: its snapshot will be refused.
pub(crate) async fn fence(State(app): Shared, request: Request) -> Response {
    // The cookie is sent only by pages of this server (SameSite=Strict).
    if !app.is_logged_in(request.headers()) {
        return show(StatusCode::FORBIDDEN, &login_form(None));
    }
    let body = Pieces::new(request.into_body(), FORM_MAX_BYTES).up_to().await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let field = text.split('&').find_map(|pair| pair.strip_prefix("session="));
    if let Some(SetId(session)) = field.and_then(SetId::from_hex) {
        app.fence(session).await;
    }
    to_page(None)
}

pub(crate) async fn style() -> Response {
    file(include_str!("page.css"), "text/css")
}

pub(crate) async fn script() -> Response {
    file(include_str!("live.js"), "text/javascript")
}

fn file(text: &'static str, media_type: &str) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, media_type.parse().expect("a header value"));
    response
}

fn to_page(cookie: Option<&str>) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(LOCATION, "/".parse().expect("a header value"));
    if let Some(Ok(cookie)) = cookie.map(str::parse) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

fn show(status: StatusCode, markup: &Markup) -> Response {
    let mut response = Response::new(Body::from(markup.0.clone()));
    *response.status_mut() = status;
    let policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                  form-action 'self'; frame-ancestors 'none'";
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
                @if refreshes {
                    noscript { meta http-equiv="refresh" content=(REFRESH); }
                    script src="/live.js" defer {}
                }
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
