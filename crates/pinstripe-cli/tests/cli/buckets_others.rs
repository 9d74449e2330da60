//! A store in buckets of other S3 servers: a short life of it, with an object that was lost.

use std::process::Command;

use pinstripe_testing::{BUCKET, KEY_ID, KEY_SECRET, OtherS3Server, S3Program};

use crate::stand::{Ran, Stand, ran};

/// A server and the commands on it.
struct OtherCloud {
    stand: Stand,
    server: OtherS3Server,
}

impl OtherCloud {
    fn run(&self, line: &str) -> Ran {
        let mut command = self.stand.command(line);
        ran(command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", KEY_SECRET))
    }

    /// Runs a line that is to end with this code, and returns what it printed.
    fn ends(&self, code: i32, line: &str) -> String {
        self.run(line).ends(code, &format!("{}: {line}", self.server.program.name()))
    }

    fn place(&self, prefix: &str) -> String {
        self.server.place_at(self.server.port(), prefix)
    }

    /// A request of another program; returns the body of the answer.
    fn ask(&self, method: &str, target: &str) -> String {
        let asked = Command::new("curl")
            .args(["-sf", "-m", "20", "-X", method, "--aws-sigv4", "aws:amz:us-east-1:s3"])
            .args(["-u", &format!("{KEY_ID}:{KEY_SECRET}")])
            .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
            .arg(format!("http://127.0.0.1:{}/{BUCKET}{target}", self.server.port()))
            .output()
            .unwrap();
        assert!(asked.status.success(), "{method} {target}: {}", asked.status);
        String::from_utf8(asked.stdout).unwrap()
    }

    fn keys(&self, prefix: &str) -> Vec<String> {
        // As it is signed.
        let prefix = prefix.replace('/', "%2F");
        let page = self.ask("GET", &format!("?list-type=2&prefix={prefix}"));
        let parts = page.split("<Key>").skip(1);
        parts.map(|it| it.split("</Key>").next().unwrap().to_owned()).collect()
    }

    /// Restores all of the newest snapshot and compares it with the source.
    fn assert_restored(&self, at: &str, to: &str) {
        self.ends(0, &format!("restore latest --to {to} {at}"));
        self.stand.assert_source_is_at(to);
    }
}

/// Runs a test on each server that is installed.
fn at_each(test: &str, run: impl Fn(&OtherCloud)) {
    for program in S3Program::ALL {
        let stand = Stand::new();
        stand.make_tree();
        let Some(server) = OtherS3Server::start(test, program, &stand.path("server")) else {
            continue;
        };
        run(&OtherCloud { stand, server });
    }
}

#[test]
#[ignore = "with --all: it starts other S3 servers"]
fn a_store_at_other_servers_is_written_read_mended_and_collected() {
    at_each("a_store_at_other_servers", |cloud| {
        let [one, two, three] = ["one", "two", "three"].map(|prefix| cloud.place(prefix));
        let (is_safe, probe) =
            (cloud.server.program.has_one_winner(), format!("probe {}", cloud.place("probed")));
        if is_safe {
            cloud.ends(0, &probe);
        } else {
            let probed = cloud.run(&probe);
            assert!([0, 20].contains(&probed.code), "{}{}", probed.out, probed.err);
        }
        assert_eq!(cloud.keys("probed/"), Vec::<String>::new());
        let writers = if is_safe { "" } else { " --one-writer" };
        cloud.ends(
            0,
            &format!(
                "init --encryption none --parity 1 --same-fate{writers} --member {one} \
                 --member {two} --member {three}"
            ),
        );
        let at = format!("--store {one}");
        cloud.ends(0, &format!("backup src {at}"));
        let unchanged = cloud.ends(0, &format!("backup src --json {at}"));
        assert!(unchanged.contains("\"read_bytes\":0,"), "{unchanged}");
        let packs = cloud.keys("two/packs/");
        cloud.ends(0, &format!("check --read-data {at}"));
        cloud.assert_restored(&at, "out");

        cloud.ask("DELETE", &format!("/{}", packs[0]));
        cloud.ends(10, &format!("check {at}"));
        cloud.assert_restored(&at, "out2");
        cloud.ends(0, &format!("repair {at}"));
        assert_eq!(cloud.keys("two/packs/"), packs);
        cloud.ends(0, &format!("check --read-data {at}"));

        std::fs::write(cloud.stand.path("src/hello"), "hello again\n").unwrap();
        cloud.ends(0, &format!("backup src {at}"));
        cloud.ends(0, &format!("forget --keep-last 1 {at}"));
        cloud.ends(0, &format!("gc --wait 0 --max-waste 0% {at}"));
        let left = cloud.keys("two/packs/");
        assert!(packs.iter().any(|key| !left.contains(key)), "{left:?}");
        cloud.ends(0, &format!("gc --wait 0 {at}"));
        assert_eq!(cloud.keys("one/sessions/"), Vec::<String>::new());
        cloud.ends(0, &format!("check --read-data {at}"));
        cloud.assert_restored(&at, "out3");
    });
}
