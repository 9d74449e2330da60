//! The rules of the seam at other S3 servers.

use pinstripe_testing::{KEY_ID, KEY_SECRET, OtherS3Server, S3Program};

use crate::named::NamedEndpoint;

/// Runs a test at each server that is installed.
fn at_each(test: &str, run: impl Fn(&NamedEndpoint, S3Program)) {
    for program in S3Program::ALL {
        let dir = tempfile::tempdir().unwrap();
        let Some(server) = OtherS3Server::start(test, program, dir.path()) else { continue };
        let credentials = [("aws_access_key_id", KEY_ID), ("aws_secret_access_key", KEY_SECRET)];
        let credentials = credentials.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let place = server.place_at(server.port(), "tests");
        println!("{}", program.name());
        run(&NamedEndpoint::at(test, &place, credentials.into()), program);
    }
}

#[test]
#[ignore = "with --all: it starts other S3 servers"]
fn other_servers_keep_the_rules_of_the_seam() {
    at_each("rules", |named, program| {
        // The rules include races.
        if program.has_one_winner() {
            named.keeps_the_rules_of_the_seam();
        }
    });
}

#[test]
#[ignore = "with --all: it starts other S3 servers"]
fn other_servers_pass_the_probe_and_keep_nothing_of_it() {
    at_each("probe", |named, program| {
        if program.has_one_winner() {
            named.passes_the_probe_and_keeps_nothing_of_it(true);
        } else {
            let report = named.buckets.probe(&named.fresh_place()).unwrap();
            let others = &report.abilities[1..];
            assert!(others.iter().all(|it| it.is_there || !it.is_needed), "{report:?}");
        }
    });
}

#[test]
#[ignore = "with --all: it starts other S3 servers"]
fn other_servers_keep_long_extents_whole_and_do_not_write_over_them() {
    at_each("parts", |named, _| named.keeps_long_extents_whole_and_does_not_write_over_them());
}
