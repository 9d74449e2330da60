//! One server in front of buckets: hosts need neither the keys of the buckets nor their endpoints.

use std::process::Command;

use pinstripe_testing::{KEY_ID, KEY_SECRET, Proxy};

use crate::buckets::Cloud;
use crate::serve::{Serving, as_host, await_that, done, page, run, snapshots};
use crate::stand::ran;

/// The walk of an administrator: a store in three buckets, a server, a host, the page, and a bucket
/// that is gone.
#[test]
fn hosts_back_up_to_buckets_through_a_server_without_their_keys() {
    let test = "hosts_back_up_to_buckets_through_a_server_without_their_keys";
    if Command::new("curl").arg("--version").output().is_err() {
        return pinstripe_testing::not_installed(test, "curl");
    }
    let Some(mut cloud) = Cloud::new(test, 3) else { return };
    let proxies: Vec<_> = cloud.servers.iter().map(|it| Proxy::start(it.port())).collect();
    let place = |number: usize| cloud.servers[number].place_at(proxies[number].port(), "store");
    let places = [place(0), place(1), place(2)];
    let members: String = places.iter().map(|place| format!(" --member {place}")).collect();
    // Buckets of one machine.
    cloud.done(&format!("init --encryption none --parity 1 --same-disk{members}"));
    let stand = &cloud.stand;
    let with_keys = |line: &str| {
        let mut command = as_host(stand, "server", line);
        command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", KEY_SECRET);
        command
    };
    let store = &places[0];
    let line = format!(
        "serve --json --store {store} --listen 127.0.0.1:0 --state {{}}/state --member-timeout 2s"
    );
    let server = Serving::start_command(with_keys(&line));
    let token = |host: &str, role: &str| {
        let line = format!("token add {host} --role {role} --state {{}}/state --quiet");
        done(stand, "server", &line).out.trim().to_owned()
    };
    // The host has no key of a bucket.
    done(stand, "ant", &format!("connect {}", token("ant", "append-restore")));
    done(stand, "ant", "backup src");
    done(stand, "ant", "backup src");
    assert_eq!(snapshots(stand, "ant", ""), 2);
    done(stand, "ant", "restore latest --to out");
    stand.assert_source_is_at("out");
    // Neither the page nor the metrics cost a request, however often they are shown.
    let admin = token("desk", "admin");
    let requests = || proxies.iter().map(|it| it.take_log().len()).sum::<usize>();
    await_that("the page shows the members", || {
        page(&server.address, &admin).contains("remote: not asked")
    });
    requests();
    for _ in 0..5 {
        let page = page(&server.address, &admin);
        assert!(page.contains("ant") && page.contains("Every host and member"), "{page}");
    }
    assert_eq!(requests(), 0, "showing the page sends requests to a bucket");
    // A bucket that is gone: backups are degraded, and everything can be read.
    cloud.servers[1].stop();
    let stand = &cloud.stand;
    std::fs::write(stand.path("src/more"), "more\n").unwrap();
    let degraded = run(stand, "ant", "backup src");
    assert_eq!(degraded.code, 4, "{}{}", degraded.out, degraded.err);
    let restored = run(stand, "ant", "restore latest --to out2");
    assert!([0, 4].contains(&restored.code), "{}", restored.err);
    stand.assert_source_is_at("out2");
    assert_eq!(server.terminate(), 0);
    // With the bucket again, a repair at the server makes the store whole.
    cloud.servers[1].restart(&[]);
    let (stand, store) = (&cloud.stand, &places[0]);
    for line in [format!("repair --store {store}"), format!("check --read-data --store {store}")] {
        let mut command = as_host(stand, "server", &line);
        command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", KEY_SECRET);
        let ran = ran(&mut command);
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.out, ran.err);
    }
}
