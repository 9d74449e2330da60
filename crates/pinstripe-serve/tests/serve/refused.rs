//! Requests that a token may not send: of a token that has ended or is of another store, and any request
//! of a role that does not allow it.

use pinstripe_base::id::{SetId, StoreId};
use pinstripe_base::random::Noise;
use pinstripe_member::session::Work;
use pinstripe_member::{ExtentKind, ExtentName, Member, SharedMember};
use pinstripe_remote::{Connection, JoinString, TokenId};
use pinstripe_serve::{NewToken, TokenRole};

use crate::hostile::{exchange, status};
use crate::roles::{name, session};
use crate::setup::{StoreFixture, directory, store};

/// A request with a join string.
fn request(method: &str, path: &str, join: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {join}\r\n\
         Connection: close\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn join_of(connection: &Connection) -> String {
    connection.join_string().reveal()
}

#[test]
fn a_token_that_has_expired_is_refused() {
    let server = store();
    let old = NewToken {
        expires_seconds: Some(1_700_000_001),
        ..server.new_token("ant", TokenRole::Admin)
    };
    let (_, connection) = server.token_with(old);
    let hello = request("GET", "/v1/hello", &join_of(&connection), "", b"");
    let answer = exchange(&server, &hello, false);
    assert!(status(&answer) == 403 && answer.contains("has expired"), "{answer}");
}

#[test]
fn a_token_of_another_store_or_server_opens_nothing_here() {
    let (server, other_server) = (store(), store());
    let other = NewToken { volume: StoreId([8; 16]), ..server.new_token("ant", TokenRole::Admin) };
    let (_, of_other_store) = server.token_with(other);
    // The server knows this token, the join string names this server's store, and the token another.
    let mut renamed = of_other_store.join_string();
    renamed.volume = StoreId([8; 16]);
    let (_, of_other_server) = other_server.token("ant", TokenRole::Admin);
    let joins = [join_of(&of_other_store), renamed.reveal(), join_of(&of_other_server)];
    for join in &joins {
        for volume in [server.volume, StoreId([8; 16])] {
            for path in ["0/list/snapshots", "0/extent/label", "0/properties"] {
                let asked = request("GET", &format!("/v1/{volume}/{path}"), join, "", b"");
                let answer = exchange(&server, &asked, false);
                assert!([403, 404, 421].contains(&status(&answer)), "{path}: {answer}");
            }
            let look = request("POST", &format!("/v1/{volume}/look"), join, "", &[1, 0, 0, 0]);
            assert!((400..500).contains(&status(&exchange(&server, &look, false))));
        }
    }
}

/// A recorded request that is sent again does nothing more, and nothing at all once its
/// secret was rotated or its token revoked.
#[test]
fn a_request_that_is_sent_again_does_nothing() {
    let server = store();
    let (token, connection) = server.token("ant", TokenRole::Append);
    let local = directory(&server.state.path().join("member"));
    let (at, object) = session(1, 1, Work::Backup);
    let ExtentName::In(_, id) = at else { unreachable!("a session has a name") };
    let path = format!("/v1/{}/0/extent/sessions/{}", server.volume, SetId(id));
    let join = join_of(&connection);
    let put = request("PUT", &path, &join, "If-None-Match: *\r\n", &object);
    let delete = request("DELETE", &path, &join, "", b"");
    assert_eq!(status(&exchange(&server, &put, false)), 201);
    assert_eq!(status(&exchange(&server, &put, false)), 412);
    let (_, secret) = server.tokens().rotate("ant", 1_700_000_000).unwrap();
    let id = TokenId::from_hex(&token.id).unwrap();
    let (pin, volume, address) = (server.pin, server.volume, server.address.to_string());
    let rotated = Connection::from(JoinString { pin, token: id, secret, volume, address });
    // The former secret is valid until the new one is used.
    assert_eq!(server.member(&rotated, 0).len(at).unwrap(), object.len() as u64);
    for again in [&put, &delete] {
        assert_eq!(status(&exchange(&server, again, false)), 403);
    }
    let delete = request("DELETE", &path, &join_of(&rotated), "", b"");
    server.tokens().revoke("ant", 1_700_000_000).unwrap();
    assert_eq!(status(&exchange(&server, &delete, false)), 403);
    assert_eq!(local.len(at).unwrap(), object.len() as u64);
}

/// What no answer may contain.
const SECRET: &[u8] = b"the secret of another host";

/// The kinds that a role may not read when another host has put them.
fn hidden(role: TokenRole) -> Vec<ExtentKind> {
    let mut kinds =
        vec![ExtentKind::Snapshots, ExtentKind::Checkpoints, ExtentKind::Scrub, ExtentKind::Strays];
    kinds.extend((role == TokenRole::Append).then_some(ExtentKind::Packs));
    kinds
}

fn draw<T: Copy>(random: &mut Noise, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

/// The first bytes of a message that names extents: the kind and the id.
fn named(random: &mut Noise) -> Vec<u8> {
    let kind = random.below(ExtentKind::ALL.len() as u64 + 1) as u8;
    let kind = if usize::from(kind) == ExtentKind::ALL.len() { 0xff } else { kind };
    [&[kind][..], &[draw(random, &[200, 1, 0]); 16]].concat()
}

/// A body of one of the messages of the protocol, or of none.
fn body(random: &mut Noise) -> Vec<u8> {
    let whole = |random: &mut Noise| {
        let (offset, bytes, flag) =
            (draw(random, &[0, 1, 1 << 63]), draw(random, &[1, 26, 1 << 20]), random.below(2));
        let (offset, bytes): (u64, u64) = (offset, bytes);
        [&named(random)[..], &offset.to_le_bytes(), &bytes.to_le_bytes(), &[flag as u8]].concat()
    };
    match random.below(6) {
        0 => Vec::new(),
        // Ranges.
        1 => [&[1][..], &whole(random)].concat(),
        // A look: labels, member 0, every kind with content, one extent to open.
        2 => {
            let kinds = (0..ExtentKind::ALL.len() as u8).flat_map(|kind| [kind, 3]);
            let mut look = vec![1, 1, 0, 0, ExtentKind::ALL.len() as u8];
            look.extend(kinds);
            [&look[..], &[1], &named(random)].concat()
        }
        // A part of a set.
        3 => [&[1][..], &named(random), &0_u64.to_le_bytes(), &26_u32.to_le_bytes()].concat(),
        // A removal on member 0, and nothing else.
        4 => [&[1, 0, 0, 1, 1][..], &named(random), &[0]].concat(),
        _ => pinstripe_member::envelope::close(
            pinstripe_member::envelope::Object::Forgotten,
            &random.next().to_le_bytes(),
        ),
    }
}

/// Any request of the protocol and of the page.
fn any_request(random: &mut Noise, server: &StoreFixture, join: &str) -> Vec<u8> {
    let volume = match random.below(8) {
        0 => StoreId([8; 16]),
        _ => server.volume,
    };
    let member = draw(random, &["0", "0", "0", "1", "65536", "-1"]);
    let kind = ExtentKind::ALL[random.below(ExtentKind::ALL.len() as u64) as usize].dir();
    let id = SetId([draw(random, &[200, 1, 0]); 16]);
    let path = match random.below(16) {
        0 => "/".to_owned(),
        1 => draw(random, &["/login", "/logout", "/fence", "/metrics", "/v1/hello"]).to_owned(),
        2 => format!("/v1/{volume}/look"),
        3 => format!("/v1/{volume}/objects"),
        4 => format!("/v1/{volume}/pack/{kind}/{id}"),
        5 => format!("/v1/{volume}/fetch"),
        6 => format!("/v1/{volume}/{member}/properties"),
        7 => format!("/v1/{volume}/{member}/list/{kind}"),
        8 => format!("/v1/{volume}/{member}/extent/label"),
        9 => format!("/v1/{volume}/{member}/read"),
        10 => format!("/v1/{volume}/{member}/{}", draw(random, &["sync", "sweep"])),
        11 => format!("/v1/{volume}/catalog{}", draw(random, &["", "/rows"])),
        _ => format!("/v1/{volume}/{member}/extent/{kind}/{id}"),
    };
    let method =
        draw(random, &["GET", "GET", "HEAD", "PUT", "PUT", "POST", "POST", "DELETE", "PATCH"]);
    let headers = draw(
        random,
        &[
            "",
            "If-None-Match: *\r\n",
            "Range: bytes=0-25\r\n",
            "Range: bytes=9223372036854775807-\r\n",
        ],
    );
    request(method, &path, join, headers, &body(random))
}

fn contains(answer: &str, what: &[u8]) -> bool {
    answer.as_bytes().windows(what.len()).any(|it| it == what)
}

/// What a role may not read or change stays as it was and unseen, whatever requests come in whatever
/// order.
#[test]
fn no_request_of_any_role_reads_or_changes_what_it_may_not() {
    for seed in pinstripe_testing::chosen_seeds("PINSTRIPE_SERVE_SEEDS", 0..9) {
        let mut random = Noise(seed * 1_000_003 + 5);
        let role =
            [TokenRole::Append, TokenRole::AppendRestore, TokenRole::Restore][seed as usize % 3];
        let server = store();
        let local = directory(&server.state.path().join("member"));
        let planted = plant(&local, role);
        let tokens = || std::fs::read(server.state.path().join("tokens.json")).unwrap();
        let (_, connection) = server.token("ant", role);
        let (join, before) = (join_of(&connection), tokens());
        for step in 0..120 {
            let asked = any_request(&mut random, &server, &join);
            let answer = exchange(&server, &asked, false);
            let asked = String::from_utf8_lossy(&asked);
            assert!(!contains(&answer, SECRET), "seed {seed}, step {step}: {asked}\n{answer}");
            assert!(status(&answer) < 500, "seed {seed}, step {step}: {asked}\n{answer}");
        }
        for (name, content) in planted {
            let mut there = vec![0; content.len()];
            local.read_at(name, 0, &mut there).unwrap();
            assert!(there == content && local.len(name).unwrap() == content.len() as u64, "{name}");
        }
        for kind in [ExtentKind::Forgotten, ExtentKind::Keys, ExtentKind::Scrub, ExtentKind::Strays]
        {
            assert_eq!(local.list(kind).unwrap().len(), 1, "seed {seed}: {kind:?}");
        }
        assert!(tokens() == before, "seed {seed}: the tokens have changed");
    }
}

/// Objects of each kind, with the secret where the role may not read it.
fn plant(local: &SharedMember, role: TokenRole) -> Vec<(ExtentName, Vec<u8>)> {
    let hidden = hidden(role);
    let object = |kind: ExtentKind| {
        let content =
            if hidden.contains(&kind) { SECRET } else { b"what each role may read, that" };
        (name(kind, 200), content.to_vec())
    };
    let mut planted: Vec<_> = ExtentKind::ALL.into_iter().map(object).collect();
    planted.push((ExtentName::Label, b"the label of the member".to_vec()));
    for (name, content) in &planted {
        local.put(*name, content).unwrap();
    }
    planted
}
