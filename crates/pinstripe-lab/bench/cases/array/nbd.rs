//! Random reads by NBD on a unix socket, beside a server of others.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_array::geometry::Level;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_io::device::Device;
use pinstripe_nbd::{Address, Export, Server, Settings as NbdSettings};
use serde_json::Value;

use super::Settings;
use super::places::{MEMBERS, devices, start, text};
use crate::Result;
use crate::table::Table;
use crate::targets::{Target, figure_row, figures};

/// Reads per second.
const READS: f64 = 60_000.0;
const SECONDS: u64 = 5;

pub fn measure(settings: &Settings) -> Result<Table> {
    let volume = Arc::new(start(devices(settings, "memory", MEMBERS)?, Level::Raid5)?);
    let capacity = volume.len().map_err(text)?;
    std::fs::create_dir_all(&settings.shm).map_err(|error| error.to_string())?;
    let socket = settings.shm.join("ours");
    let address = Address::Unix(socket.clone());
    let server = Server::bind(&[address]).map_err(text)?;
    let export = Export::sparse("", Arc::clone(&volume) as Arc<dyn pinstripe_io::device::Sparse>);
    let exports = [export];
    let (stop, monitor) = (Stop::new().map_err(text)?, Monitor::default());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let measured: Result<()> = std::thread::scope(|scope| {
        let serving =
            scope.spawn(|| server.serve(&exports, &NbdSettings::default(), &monitor, &stop));
        let mut rounds = || {
            for _ in 0..settings.bench.rounds {
                ours.push(reads(settings, &socket, capacity)?);
                theirs.push(beside(settings, capacity)?);
            }
            Ok(())
        };
        let done = rounds();
        stop.set();
        serving.join().map_err(|_| "the server panicked".to_owned())?.map_err(text)?;
        done
    });
    measured?;
    let note = format!(
        "RAID 5 of {MEMBERS} members in memory, {} MiB; fio's engine nbd, 64 requests in flight, {SECONDS} s; client and \
         server share the machine. The other server has plain memory behind it.",
        capacity >> 20
    );
    let mut table = figures("4 KiB random reads by NBD, per second", note);
    figure_row(&mut table, "pinstripe, array", &ours, 0, Target::AtLeast(READS));
    figure_row(&mut table, "nbdkit memory", &theirs, 0, Target::None);
    Ok(table)
}

fn beside(settings: &Settings, capacity: u64) -> Result<f64> {
    let socket = settings.shm.join("theirs");
    let _ = std::fs::remove_file(&socket);
    let mut command = Command::new(&settings.nbdkit);
    command.arg("-f").arg("-U").arg(&socket).arg("memory").arg(capacity.to_string());
    let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut server = Guard(child.map_err(|error| format!("nbdkit: {error}"))?);
    let start = Instant::now();
    while !socket.exists() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let found = reads(settings, &socket, capacity);
    server.end();
    found
}

/// A program that ends with us.
struct Guard(Child);

impl Guard {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}

fn reads(settings: &Settings, socket: &Path, capacity: u64) -> Result<f64> {
    let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
    let mut command = Command::new(&settings.fio);
    command.args(["--name=reads", "--ioengine=nbd", "--rw=randread", "--bs=4k", "--iodepth=64"]);
    command.args(["--time_based", "--output-format=json", &uri]);
    command.arg(format!("--runtime={SECONDS}")).arg(format!("--size={capacity}"));
    let output = command.output().map_err(|error| format!("fio: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // What it says before the braces is for people.
    let json = text.find('{').map_or("", |at| &text[at..]);
    let value: Value = serde_json::from_str(json)
        .map_err(|error| format!("fio: {error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    value["jobs"][0]["read"]["iops"].as_f64().ok_or_else(|| "fio told no rate".to_owned())
}
