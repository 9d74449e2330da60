//! Figures over HTTP, of a mount in the background, asked by another program; and clients that keep
//! the server busy without asking anything.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::fakevmcore::obstacle;
use crate::mount::{Background, ok};
use crate::stand::{Stand, noise, skipped};

/// Clients that a server takes at a time.
const CLIENTS: usize = 16;

/// What curl got: the status, and the page.
fn curl(options: &[&str], url: &str) -> Option<(String, String)> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "60", "--noproxy", "*"]);
    let output = curl.args(["--write-out", "\n%{http_code}"]).args(options).arg(url).output();
    let output = output.ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    let (page, status) = text.rsplit_once('\n').unwrap();
    Some((status.to_owned(), page.to_owned()))
}

/// The value of a figure without labels of its own.
fn figure(page: &str, name: &str) -> f64 {
    let begins = format!("pinstripe_shown_{name}{{");
    let line = page.lines().find(|line| line.starts_with(&begins));
    let line = line.unwrap_or_else(|| panic!("no {name} in {page}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn a_mount_in_the_background_tells_its_figures_to_another_program() {
    let name = "a_mount_in_the_background_tells_its_figures_to_another_program";
    if let Some(obstacle) = obstacle() {
        return skipped(name, obstacle);
    }
    if Command::new("curl").arg("--version").output().is_err() {
        return pinstripe_testing::not_installed(name, "curl");
    }
    let stand = Stand::with_store();
    fs::write(stand.path("src/large"), noise(5, 9 << 20)).unwrap();
    ok(&stand, "backup --store m0 src");
    let background = Background::at(&stand, "mnt");
    let ran = stand.run("mount mnt --store m0 --json --metrics 127.0.0.1:0");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let events = ran.events();
    let url = events[0]["metrics"].as_str().unwrap().to_owned();
    let process = events.last().unwrap()["process"].as_u64().unwrap();

    let (status, page) = curl(&[], &url).unwrap();
    assert_eq!((status.as_str(), figure(&page, "snapshots")), ("200", 1.0));
    let large = stand.path("mnt/latest").join(stand.path("src/large").strip_prefix("/").unwrap());
    assert!(fs::read(large).unwrap() == noise(5, 9 << 20));
    let (_, page) = curl(&["--http1.0"], &url).unwrap();
    assert_eq!(figure(&page, "file_read_bytes_total"), f64::from(9 << 20));
    let members = page.lines().filter(|it| it.starts_with("pinstripe_shown_member_reads_total{"));
    assert_eq!(members.count(), 4);
    let fetched =
        ["demanded", "ahead"].map(|it| figure(&page, &format!("fetched_{it}_bytes_total")));
    assert!(fetched.iter().sum::<f64>() >= f64::from(9 << 20), "{fetched:?}");
    for (options, wanted) in [
        (&["--head"][..], "200"),
        (&["--request", "PUT", "--data", "x"], "405"),
        (&["--header", "Host:"], "400"),
        (&["--header", &format!("A: {}", "a".repeat(9000))], "431"),
    ] {
        assert_eq!(curl(options, &url).unwrap().0, wanted, "{options:?}");
    }
    assert_eq!(curl(&[], &url.replace("/metrics", "/other")).unwrap().0, "404");

    // As many as are taken, and they ask nothing: one more is told so, and is served when they go.
    // A few more than that, since one that was served before may be counted for a moment longer.
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let silent: Vec<_> = (0..CLIENTS + 4).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut refused = TcpStream::connect(address).unwrap();
    let mut told = String::new();
    refused.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    refused.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    drop(silent);
    let is_served = || curl(&[], &url).unwrap().0 == "200";
    assert!((0..200).any(|_| is_served() || pause()), "no place became free");

    // Nor do they keep the mount from ending.
    let _silent: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
    background.end(process);
    assert!(TcpStream::connect(address).is_err());
}

/// Waits a moment; false, so that what failed is tried again.
fn pause() -> bool {
    std::thread::sleep(Duration::from_millis(50));
    false
}
