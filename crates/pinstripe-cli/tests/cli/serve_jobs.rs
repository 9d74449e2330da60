//! Jobs, spares and alarms of a server, and the settings that define them.

use std::process::Command;

use serde_json::Value;

use crate::serve::{LISTEN, Serving, await_that, done, page, run};
use crate::stand::Stand;

fn write_config(stand: &Stand, text: &str) {
    let dir = stand.path("").canonicalize().unwrap();
    std::fs::write(stand.path("config.toml"), text.replace("{}", dir.to_str().unwrap())).unwrap();
}

/// Jobs run beside a host, a member that is lost is replaced by the spare, and each alarm is sent
/// once. The server needs no command meanwhile.
#[test]
fn the_server_scrubs_and_replaces_a_lost_member_and_sends_alarms() {
    let stand = Stand::with_store();
    write_config(
        &stand,
        "[serve.job.scrub]\nevery = \"1s\"\n[serve.job.gc]\nevery = \"2s\"\n\
         [serve.replace]\nafter = \"1s\"\nspares = [\"{}/spare\"]\nsame-fate = true\n\
         [serve.alarm]\ncommand = [\"/bin/sh\", \"-c\", \"cat >> {}/alarms; echo >> {}/alarms\"]\n",
    );
    let checked = done(&stand, "server", "serve check-config --config config.toml");
    assert!(checked.out.contains("2 jobs, 1 spare, 1 alarm channel"), "{}", checked.out);
    let line = format!("{LISTEN} --state {{}}/state --config config.toml");
    let server = Serving::start(&stand, &line);
    let token = "token add ant --role append-restore --state {}/state --quiet --expect 1h";
    let join = done(&stand, "server", token).out;
    done(&stand, "ant", &format!("connect {}", join.trim()));
    done(&stand, "ant", "backup src");
    let jobs = || std::fs::read_to_string(stand.path("state/jobs.json")).unwrap_or_default();
    let is_good = |job: &str| {
        let jobs: Value = serde_json::from_str(&jobs()).unwrap_or_default();
        jobs["last"][job]["exit_code"] == 0
    };
    await_that("scrub and gc end well", || is_good("scrub") && is_good("gc"));
    std::fs::remove_dir_all(stand.path("m2")).unwrap();
    await_that("the member is replaced", || is_good("replace"));
    // The server finds the new member without a restart.
    let again = || run(&stand, "ant", "backup src").code == 0;
    await_that("a backup is complete again", again);
    // Backups in the meantime were stored without the new member: the next scrub copies them.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let scrubbed = || {
        let jobs: Value = serde_json::from_str(&jobs()).unwrap_or_default();
        jobs["last"]["scrub"]["began_seconds"].as_u64() > Some(now) && is_good("scrub")
    };
    await_that("a later scrub is well", scrubbed);
    done(&stand, "ant", "restore latest --to out");
    stand.assert_source_is_at("out");
    let alarms = || std::fs::read_to_string(stand.path("alarms")).unwrap_or_default();
    await_that("the missing spare is an alarm", || alarms().contains("no spare is left"));
    let alarms = alarms();
    let alarms: Vec<Value> =
        alarms.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (at, alarm) in alarms.iter().enumerate() {
        let same = alarms[..at].iter().rev().find(|it| it["subject"] == alarm["subject"]);
        assert!(same.is_none_or(|it| it["change"] != alarm["change"]), "{alarms:?}");
    }
    drop(server);
    done(&stand, "server", "check --read-data --store m0");
}

/// The page and the metrics show what a scrub of the server found on each member.
#[test]
fn damage_that_a_job_finds_is_shown_with_its_member() {
    let test = "damage_that_a_job_finds_is_shown_with_its_member";
    if Command::new("curl").arg("--version").output().is_err() {
        return pinstripe_testing::not_installed(test, "curl");
    }
    let stand = Stand::with_store();
    done(&stand, "server", "backup src --store m0");
    let packs = stand.path("m1/packs");
    let first = std::fs::read_dir(packs).unwrap().next().unwrap().unwrap().path();
    let pack = std::fs::read_dir(first).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
    write_config(&stand, "[serve.job.scrub]\nevery = \"1h\"\n");
    let line = format!("{LISTEN} --state {{}}/state --config config.toml");
    let server = Serving::start(&stand, &line);
    let token = "token add desk --role admin --state {}/state --quiet";
    let admin = done(&stand, "server", token).out;
    let shows = || page(&server.address, admin.trim()).contains("1 found by the last scrub");
    await_that("the page shows the damage", shows);
    let metrics = Command::new("curl")
        .args(["--silent", "--insecure", "--header"])
        .arg(format!("Authorization: Bearer {}", admin.trim()))
        .arg(format!("https://{}/metrics", server.address))
        .output()
        .unwrap();
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    let damage = |member: u8| {
        let is_it = |line: &&str| {
            line.starts_with("pinstripe_member_damage{")
                && line.contains(&format!("member=\"{member}\""))
        };
        metrics.lines().find(is_it).and_then(|it| it.rsplit(' ').next()).unwrap_or_default()
    };
    assert_eq!([0, 1, 2, 3].map(damage), ["0", "1", "0", "0"], "{metrics}");
    assert!(metrics.contains("pinstripe_scrub_oldest_timestamp_seconds{"), "{metrics}");
}

#[test]
fn settings_of_the_server_are_checked_and_read_again() {
    let stand = Stand::with_store();
    let refuse = |text: &str, what: &str| {
        write_config(&stand, text);
        let refused = run(&stand, "server", "serve check-config --config config.toml");
        assert_eq!(refused.code, 2, "{text}: {}", refused.out);
        assert!(refused.err.contains(what), "{text}: {}", refused.err);
    };
    refuse("[serve.job.scrubb]\nevery = \"1d\"\n", "'scrubb' cannot be a job");
    refuse("[serve.job.scrub]\n", "needs the key 'every'");
    refuse("[serve.job.scrub]\nevery = \"often\"\n", "this is not a time");
    refuse("[serve.job.repair]\nevery = \"1d\"\nkey-file = \"/k\"\n", "'key-file'");
    refuse("[serve.replace]\nspares = []\n", "'spares'");
    refuse("[serve.alarm]\nwebhook = \"ftp://x\"\n", "URL");
    refuse("[serve.alarm]\nmial-to = \"x\"\n", "'mial-to'");
    write_config(&stand, "[serve.job.check]\nevery = \"1d\"\nkey-file = \"{}/absent\"\n");
    assert_eq!(run(&stand, "server", "serve check-config --config config.toml").code, 11);
    write_config(&stand, "[serve.alarm]\ncommand = [\"/no/such/program\"]\n");
    assert_eq!(run(&stand, "server", "serve check-config --config config.toml").code, 11);
    // A server uses the file that SIGHUP makes it read, unless the file is damaged.
    write_config(&stand, "");
    let line = format!("{LISTEN} --state {{}}/state --config config.toml");
    let server = Serving::start(&stand, &line);
    let pid = rustix::process::Pid::from_child(&server.child);
    let events = || std::fs::read_to_string(stand.path("state/events.jsonl")).unwrap();
    let reload = |text: &str, event: &str| {
        write_config(&stand, text);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        await_that(event, || events().contains(event));
    };
    reload("[serve]\nodd = 1\n", "did not change");
    reload("[serve.job.repair]\nevery = \"1d\"\n", "job repair: ok");
    assert_eq!(server.terminate(), 0);
}
