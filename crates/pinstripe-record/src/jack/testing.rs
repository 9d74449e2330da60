//! A real JACK server for tests, and clients that produce and record samples.
//!
//! The environment names the server, so each test runs itself again in a process with another
//! environment.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use pinstripe_base::sync::lock;
use rustix::process::{Pid, Signal, kill_process};

use super::JackClient;

/// The environment variable that passes the server's process id to the process in which a test runs
/// itself again.
const SERVER: &str = "PINSTRIPE_TEST_JACK_SERVER";
/// The name of the server in every test. The registry of servers has eight places, and the entry of
/// a killed server remains until a server with the same name starts.
const NAME: &str = "pinstripe-tests";
pub const RATE: u32 = 48_000;

/// A server that is ended when this value is dropped.
struct JackServer(Child);

impl Drop for JackServer {
    fn drop(&mut self) {
        // Asked to end, it removes what it has in shared memory.
        end(self.0.id(), Signal::TERM);
        let _ = self.0.wait();
        // One that was killed left its part of the shared memory.
        for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().contains(NAME) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

pub fn end(process: u32, signal: Signal) {
    let process = Pid::from_raw(process as i32).unwrap();
    // It may have ended by itself.
    let _ = kill_process(process, signal);
}

/// Starts a server that `JACK_DEFAULT_SERVER` names, and calls `body` with its process id. `test`
/// is the path of the test within this crate.
pub fn with_server(test: &str, body: fn(u32)) {
    if let Some(server) = std::env::var_os(SERVER) {
        return body(server.to_str().unwrap().parse().unwrap());
    }
    if Command::new("jackd").arg("--version").stdout(Stdio::null()).status().is_err() {
        return pinstripe_testing::not_installed(test, "jackd");
    }
    // Servers that start at once race for the registry that they share, and one does not come up.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = lock(&ONE_AT_A_TIME);
    let server = Command::new("jackd")
        .args(["--name", NAME, "--no-realtime", "-S", "--port-max", "128", "-d", "dummy"])
        .args(["-r", "48000", "-p", "1024", "-C", "0", "-P", "0"])
        .env("JACK_NO_AUDIO_RESERVATION", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut server = JackServer(server.unwrap());
    // One that cannot run here, as where shared memory is small, says so at once.
    std::thread::sleep(Duration::from_millis(300));
    if let Ok(Some(status)) = server.0.try_wait() {
        return pinstripe_testing::skipped(test, &format!("jackd does not start here: {status}"));
    }
    let this = std::env::current_exe().unwrap();
    let status = Command::new(this)
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env("JACK_DEFAULT_SERVER", NAME)
        .env("JACK_NO_START_SERVER", "1")
        .env(SERVER, server.0.id().to_string())
        .status();
    assert!(status.unwrap().success());
}

/// Waits for a server that has just been started.
pub fn await_server() {
    for _ in 0..200 {
        if JackClient::open("looks").is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the server does not come");
}
