//! What a server meets: idle connections, bad disks, its own end, a port in use, wrong clocks.

use std::io::Read;

use crate::serve::{LISTEN, Serving, as_host, done, join, run, snapshots};
use crate::silent::Hung;
use crate::stand::{Stand, assert_same_tree, noise, ran};

/// Idle connections delay no other client, use little memory, and are closed after a deadline.
#[test]
fn ten_thousand_idle_connections_do_not_stop_the_server() {
    const IDLE: u64 = 10_000;
    let files = rustix::process::Resource::Nofile;
    let limit = rustix::process::getrlimit(files);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    if limit.maximum.is_some_and(|most| most < IDLE + 1000)
        || rustix::process::setrlimit(files, raised).is_err()
    {
        let test = "ten_thousand_idle_connections_do_not_stop_the_server";
        return pinstripe_testing::skipped(test, "fewer than 11,000 files may be open");
    }
    let stand = Stand::with_store();
    let server = Serving::start(&stand, LISTEN);
    done(&stand, "ant", &format!("connect {}", join(&stand, "ant", "append-restore")));
    let connect = |_| std::net::TcpStream::connect(&server.address).unwrap();
    let idle: Vec<_> = (0..IDLE).map(connect).collect();
    done(&stand, "ant", "backup src");
    let status = format!("/proc/{}/status", server.child.id());
    let status = std::fs::read_to_string(status).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 300 << 10, "{kib} KiB");
    for mut stream in idle.into_iter().step_by(1000) {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let ended = stream.read(&mut [0]);
        let is_reset = |it: &std::io::Error| it.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(is_reset), "{ended:?}");
    }
}

/// The faults below a server: a disk that fails, lies, is cut short, hangs.
#[test]
fn bad_disks_below_a_server_cost_no_data() {
    for fault in [
        "op=append,member=1,after=2,error=EIO",
        "op=put,member=1,error=ENOSPC",
        "op=seal,member=1,after=1,error=EIO",
        "op=read,member=1,flip=3",
        "op=read,member=1,error=EIO",
        "op=append,member=1,torn=100",
        "op=append,member=1,lost=yes",
        "op=list,member=1,error=EIO",
        "op=delete,member=1,error=EROFS",
        "op=any,member=1,after=5,hang=yes",
    ] {
        let stand = Stand::with_store();
        std::fs::write(stand.path("src/large"), noise(1, 2_000_000)).unwrap();
        let line = format!("{LISTEN} --member-timeout 1s --fault {fault}");
        let server = Serving::start(&stand, &line);
        done(&stand, "ant", &format!("connect {}", join(&stand, "ant", "append-restore")));
        for _ in 0..2 {
            let ran = run(&stand, "ant", "backup src --member-timeout 2s");
            assert!([0, 4].contains(&ran.code), "{fault}: {}", ran.err);
        }
        let ran = run(&stand, "ant", "restore latest --to out --member-timeout 2s");
        assert!([0, 4].contains(&ran.code), "{fault}: {}", ran.err);
        stand.assert_source_is_at("out");
        drop(server);
        // What the fault left is found and repaired.
        let scrubbed = run(&stand, "server", "scrub --store m0");
        assert_eq!(scrubbed.code, 0, "{fault}: {}{}", scrubbed.out, scrubbed.err);
        done(&stand, "server", "check --read-data --store m0");
    }
}

/// The server is killed at many moments of a backup, and started again at once.
#[test]
fn a_server_that_is_killed_amid_a_backup_loses_no_acknowledged_snapshot() {
    let stand = Stand::with_store();
    let line = format!("{LISTEN} --access-log {{}}/log");
    let mut server = Serving::start(&stand, &line);
    let address = server.address.clone();
    done(&stand, "ant", &format!("connect {}", join(&stand, "ant", "append-restore")));
    let mut taken = 0;
    for kill_after in [1, 2, 3, 5, 8, 12, 20] {
        std::fs::write(stand.path("src/large"), noise(kill_after as u64, 3_000_000)).unwrap();
        let requests = || {
            let log = std::fs::read_to_string(stand.path("log")).unwrap_or_default();
            log.lines().count()
        };
        let before = requests();
        let mut backup = as_host(&stand, "ant", "backup src --member-timeout 20s");
        let ran = std::thread::scope(|scope| {
            let ran = scope.spawn(move || ran(&mut backup));
            while requests() < before + kill_after && !ran.is_finished() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            let line = format!("--store m0 --listen {address} --access-log {{}}/log");
            server = Serving::start(&stand, &line);
            ran.join().unwrap()
        });
        assert!([0, 4, 18].contains(&ran.code), "{kill_after}: {}{}", ran.out, ran.err);
        taken += usize::from(ran.code != 18);
        let found = snapshots(&stand, "ant", "");
        assert!(found >= taken && found <= taken + 1, "{kill_after}: {found} {taken}");
        taken = found;
        let checked = run(&stand, "server", "check --read-data --store m0");
        assert!([0, 10].contains(&checked.code), "{kill_after}: {}", checked.err);
        assert_eq!(checked.err.matches("lost").count(), 0, "{kill_after}: {}", checked.err);
    }
    done(&stand, "ant", "restore latest --to out");
    done(&stand, "server", "repair --store m0");
    done(&stand, "server", "check --read-data --store m0");
}

#[test]
fn a_port_in_use_and_an_odd_address_are_named() {
    let stand = Stand::with_store();
    let server = Serving::start(&stand, LISTEN);
    let line = format!("serve --store m0 --state {{}}/other --listen {}", server.address);
    let refused = run(&stand, "server", &line);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("another program uses this port"), "{}", refused.err);
    let odd = run(&stand, "server", "serve --store m0 --listen nowhere");
    assert_eq!(odd.code, 2, "{}", odd.err);
}

/// Neither a host whose clock is years ahead nor one whose clock is years behind loses anything,
/// and the server's own clock decides what is overdue.
#[test]
fn hosts_with_wrong_clocks_back_up_through_a_server() {
    let test = "hosts_with_wrong_clocks_back_up_through_a_server";
    let Some(library) = crate::clocks::library() else {
        return pinstripe_testing::not_installed(test, "libfaketime");
    };
    let stand = Stand::with_store();
    let _server = Serving::start(&stand, LISTEN);
    for (host, time) in [("ant", "@2039-01-01 00:00:00"), ("bee", "@2003-01-01 00:00:00")] {
        let wrong = |line: &str| {
            let mut command = as_host(&stand, host, line);
            command.env("LD_PRELOAD", &library).env("FAKETIME", time);
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
            let ran = ran(&mut command);
            assert_eq!(ran.code, 0, "{host} {line}: {}", ran.err);
        };
        wrong(&format!("connect {}", join(&stand, host, "append-restore")));
        wrong("backup src");
        wrong("backup src");
        wrong(&format!("restore latest --to out-{host}"));
        stand.assert_source_is_at(&format!("out-{host}"));
    }
    done(&stand, "server", "gc --store m0");
    assert_eq!(snapshots(&stand, "server", "--store m0"), 4);
    done(&stand, "server", "check --read-data --store m0");
}

/// A server whose clock is years behind or ahead serves hosts with a right clock: only its tokens
/// expire by its clock.
#[test]
fn a_server_with_a_wrong_clock_serves_hosts() {
    let test = "a_server_with_a_wrong_clock_serves_hosts";
    let Some(library) = crate::clocks::library() else {
        return pinstripe_testing::not_installed(test, "libfaketime");
    };
    let stand = Stand::with_store();
    let serve = |time: &str| {
        let line = format!("serve --json {LISTEN} --state {{}}/state-{}", &time[1..5]);
        let mut command = as_host(&stand, "server", &line);
        command.env("LD_PRELOAD", &library).env("FAKETIME", time);
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        Serving::start_command(command)
    };
    let mut taken = 0;
    for time in ["@2003-01-01 00:00:00", "@2039-01-01 00:00:00"] {
        let _server = serve(time);
        let token = |host: &str, options: &str| {
            let state = format!("--state {{}}/state-{}", &time[1..5]);
            done(&stand, "server", &format!("token add {host} {state} --quiet {options}")).out
        };
        let host = format!("host-of-{}", &time[1..5]);
        done(&stand, &host, &format!("connect {}", token(&host, "").trim()));
        done(&stand, &host, "backup src");
        done(&stand, &host, "backup src");
        taken += 2;
        done(&stand, &host, &format!("restore latest --to out-{host}"));
        stand.assert_source_is_at(&format!("out-{host}"));
        let short = token("short", "--expires 90d");
        let ran = run(&stand, "short", &format!("snapshots --store {}", short.trim()));
        assert_eq!(ran.code, if time.starts_with("@2003") { 0 } else { 22 }, "{}", ran.err);
    }
    assert_eq!(snapshots(&stand, "server", "--store m0"), taken);
    done(&stand, "server", "check --read-data --store m0");
}

/// Two hosts back up at once, and `trouble` happens when the server has answered some requests. Both
/// end well, and both restore. Returns the server: a process with a call to a stopped file system
/// does not end before the file system goes on.
fn back_up_two_hosts(stand: &Stand, options: &str, trouble: impl FnOnce()) -> Serving {
    let hosts = ["ant", "bee"];
    for (seed, host) in (0..).zip(hosts) {
        std::fs::create_dir_all(stand.path(&format!("of-{host}"))).unwrap();
        for file in 0..8 {
            let name = format!("of-{host}/{file}");
            std::fs::write(stand.path(&name), noise(seed * 100 + file, 700_000)).unwrap();
        }
    }
    let line = format!("{LISTEN} --access-log {{}}/log --member-timeout 2s {options}");
    let server = Serving::start(stand, &line);
    for host in hosts {
        done(stand, host, &format!("connect {}", join(stand, host, "append-restore")));
    }
    let requests =
        || std::fs::read_to_string(stand.path("log")).unwrap_or_default().lines().count();
    let before = requests();
    std::thread::scope(|scope| {
        let back_up = |host: &'static str| {
            let mut backup =
                as_host(stand, host, &format!("backup of-{host} --member-timeout 20s"));
            scope.spawn(move || (host, ran(&mut backup)))
        };
        let running = hosts.map(back_up);
        while requests() < before + 6 && running.iter().any(|it| !it.is_finished()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        trouble();
        for (host, ran) in running.map(|it| it.join().unwrap()) {
            assert!([0, 4].contains(&ran.code), "{host}: {}", ran.err);
        }
    });
    for host in hosts {
        let line = format!("restore latest:{{}}/of-{host} --to out-{host} --member-timeout 20s");
        let restored = run(stand, host, &line);
        assert!([0, 4].contains(&restored.code), "{host}: {}", restored.err);
        let [source, target] = [format!("of-{host}"), format!("out-{host}")];
        assert_same_tree(&stand.path(&source), &stand.path(&target));
    }
    server
}

/// No strips are lost beyond those of the member.
fn assert_no_loss(stand: &Stand) {
    let checked = run(stand, "server", "check --read-data --store m0 --json");
    assert!([0, 10].contains(&checked.code), "{}", checked.err);
    let summary = checked.summary();
    assert_eq!(
        (&summary["lost"], &summary["hurt_snapshots"]),
        (&0.into(), &0.into()),
        "{}",
        checked.err
    );
}

#[test]
fn a_member_that_is_full_under_load_costs_no_backup() {
    let stand = Stand::with_store();
    drop(back_up_two_hosts(&stand, "--fault op=append,member=1,after=9,error=ENOSPC", || ()));
    assert_no_loss(&stand);
    done(&stand, "server", "repair --store m0");
    done(&stand, "server", "check --read-data --store m0");
}

#[test]
fn a_member_that_is_lost_under_load_costs_no_backup() {
    let stand = Stand::with_store();
    let server = back_up_two_hosts(&stand, "", || {
        // What is written meanwhile may be in the way once.
        while std::fs::remove_dir_all(stand.path("m2")).is_err() && stand.path("m2").exists() {}
    });
    drop(server);
    let _ = std::fs::remove_dir_all(stand.path("m2"));
    assert_no_loss(&stand);
    done(&stand, "server", "member replace 2 --to m4 --same-disk --store m0");
    done(&stand, "server", "check --read-data --store m0");
}

/// A member whose file system is stopped while two hosts back up.
#[test]
fn a_member_that_hangs_under_load_costs_no_backup() {
    let stand = Stand::in_memory();
    let Some(hung) = Hung::mount(&stand, "real", "m3") else { return };
    stand.make_store();
    let server = back_up_two_hosts(&stand, "", || hung.stop());
    hung.go_on();
    drop(server);
    assert_no_loss(&stand);
}
