//! The server of network block devices: clients of our own, which may misbehave, and those of
//! others.

mod clients;
mod devices;
mod raw;
mod rules;
mod stopping;
mod strangers;

use std::path::Path;
use std::time::Duration;

use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_nbd::{Address, Export, Server, Settings};

/// Serves `exports` at a socket while `test` runs, and to the end of all connections.
fn served(exports: &[Export], settings: Settings, test: impl FnOnce(&Path)) -> Monitor {
    let (monitor, stop) = (Monitor::default(), Stop::new().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = Server::bind(&[Address::Unix(path.clone())]).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(exports, &settings, &monitor, &stop));
        // Also when the test panics, so that it ends.
        let _stopping = Stopping(&stop);
        test(&path);
        stop.set();
        serving.join().unwrap().unwrap();
    });
    monitor
}

/// Ends the server with the test.
struct Stopping<'a>(&'a Stop);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Settings under which a stuck client is soon disconnected, and a slow one is not.
fn impatient() -> Settings {
    let short = Duration::from_secs(3);
    Settings { handshake_timeout: short, stall_timeout: short, ..Settings::default() }
}

fn noise(seed: u32, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u32 ^ (at as u32 >> 8)).wrapping_mul(seed * 2 + 1) as u8;
    (0..len).map(byte).collect()
}
