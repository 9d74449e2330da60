//! A server that requires client certificates, as its hosts and its administrator meet it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use crate::serve::{LISTEN, Serving, as_host, await_that, done, join, run};
use crate::stand::{Stand, ran};

/// An authority; its certificate is the file `NAME.pem` of the stand.
struct Authority<'a> {
    stand: &'a Stand,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl<'a> Authority<'a> {
    fn new(stand: &'a Stand, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(stand.path(&format!("{name}.pem")), issuer.pem()).unwrap();
        Authority { stand, issuer }
    }

    /// Writes the files `HOST.pem` and `HOST.key`. Returns the first one.
    fn sign(&self, host: &str, last_year: i32) -> PathBuf {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        let pair = KeyPair::generate().unwrap();
        let signed = params.signed_by(&pair, &self.issuer).unwrap();
        let file = |end: &str| self.stand.path(&format!("{host}.{end}"));
        std::fs::write(file("pem"), signed.pem()).unwrap();
        std::fs::write(file("key"), pair.serialize_pem()).unwrap();
        file("pem")
    }
}

#[test]
fn hosts_with_certificates_are_served_and_others_have_their_own_messages() {
    let stand = Stand::with_store();
    let authority = Authority::new(&stand, "ca");
    let server = Serving::start(&stand, &format!("{LISTEN} --client-ca ca.pem"));
    let ant = join(&stand, "ant", "append-restore");
    authority.sign("ant", 2099);
    let refused = |line: &str, what: &str| {
        let refused = run(&stand, "ant", line);
        assert_eq!(refused.code, 22, "{line}: {}", refused.err);
        assert!(refused.err.contains(what), "{line}: {}", refused.err);
    };
    refused(&format!("connect {ant}"), "requires a client certificate");
    refused(&format!("snapshots --store {ant}"), "PINSTRIPE_CLIENT_CERTIFICATE");
    authority.sign("bee", 2099);
    let of_bee = "--client-certificate bee.pem --client-key bee.key";
    refused(&format!("connect {ant} {of_bee}"), "does not name the host of the token");
    let files = "--client-certificate ant.pem --client-key ant.key";
    let connected = done(&stand, "ant", &format!("connect {ant} {files} --json"));
    assert!(connected.out.contains("/ant.pem\""), "{}", connected.out);
    done(&stand, "ant", "backup src");
    let saved = stand.path("hosts/ant/.local/state/pinstripe/connections.json");
    assert_eq!(std::fs::metadata(saved).unwrap().permissions().mode() & 0o777, 0o600);
    // The saved certificate is used from any directory, and read again by each command.
    let mut elsewhere = as_host(&stand, "ant", "restore latest --to out");
    assert_eq!(ran(&mut elsewhere).code, 0);
    stand.assert_source_is_at("out");
    let expired = authority.sign("ant", 2002);
    refused("snapshots", &format!("{}: it has expired", expired.display()));
    authority.sign("ant", 2099);
    done(&stand, "ant", "snapshots");
    // A join string as a store, with the certificate of the environment.
    let mut bare = as_host(&stand, "other", &format!("snapshots --store {ant}"));
    bare.env("PINSTRIPE_CLIENT_CERTIFICATE", "ant.pem").env("PINSTRIPE_CLIENT_KEY", "ant.key");
    let listed = ran(&mut bare);
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn another_authority_is_used_after_sighup() {
    let stand = Stand::with_store();
    Authority::new(&stand, "ca").sign("ant", 2099);
    let line = format!("{LISTEN} --client-ca ca.pem --state {{}}/state");
    let server = Serving::start(&stand, &line);
    let token = "token add ant --state {}/state --quiet";
    let ant = done(&stand, "server", token).out.trim().to_owned();
    let files = "--client-certificate ant.pem --client-key ant.key";
    done(&stand, "ant", &format!("connect {ant} {files}"));
    let events = || std::fs::read_to_string(stand.path("state/events.jsonl")).unwrap();
    let reload = |event: &str| {
        let pid = rustix::process::Pid::from_child(&server.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        await_that(event, || events().contains(event));
    };
    // A damaged file changes nothing.
    std::fs::write(stand.path("ca.pem"), "nonsense").unwrap();
    reload("did not change");
    done(&stand, "ant", "snapshots");
    let other = Authority::new(&stand, "ca");
    reload("certificates and config file were read again");
    let refused = run(&stand, "ant", "snapshots");
    assert_eq!(refused.code, 22, "{}", refused.err);
    assert!(refused.err.contains("has signed it"), "{}", refused.err);
    other.sign("ant", 2099);
    done(&stand, "ant", "snapshots");
}

#[test]
fn a_server_does_not_start_with_a_file_that_has_no_authority() {
    let stand = Stand::with_store();
    std::fs::write(stand.path("ca.pem"), "nonsense").unwrap();
    for (file, code) in [("ca.pem", 1), ("absent.pem", 11)] {
        let refused = run(&stand, "server", &format!("serve {LISTEN} --client-ca {file}"));
        assert_eq!(refused.code, code, "{}", refused.err);
        assert!(refused.err.contains(file), "{}", refused.err);
    }
}
