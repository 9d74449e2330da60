//! Requests by NBD on a unix socket, compared with another server: random reads here, writes in
//! `writes.rs`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_array::{Level, Volume};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_base::units::MIB;
use pinstripe_io::device::{Device, Sparse};
use pinstripe_lab::{Table, own_cpu_time};
use pinstripe_nbd::{Address, Export, Server, Settings as NbdSettings};
use serde_json::Value;

use super::Settings;
use super::places::{MEMBERS, devices, start, text};
use crate::Result;
use crate::targets::{Target, figure_row, figures};

/// Reads per second.
const READS: f64 = 60_000.0;
const SECONDS: u64 = 5;

pub fn measure(settings: &Settings) -> Result<Table> {
    let volume = Arc::new(start(devices(settings, "memory", MEMBERS)?, Level::Raid5)?);
    let capacity = volume.len().map_err(text)?;
    std::fs::create_dir_all(&settings.shm).map_err(|error| error.to_string())?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    with_server(settings, &volume, |socket| {
        for _ in 0..settings.bench.rounds {
            ours.push(Fio::reads(settings, socket, capacity).run()?.per_second);
            theirs.push(with_nbdkit(settings, capacity, |socket, _| {
                Ok(Fio::reads(settings, socket, capacity).run()?.per_second)
            })?);
        }
        Ok(())
    })?;
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

/// Serves an array in this process while something is done with its socket.
pub fn with_server(
    settings: &Settings,
    volume: &Arc<Volume>,
    act: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let socket = settings.shm.join("ours");
    let server = Server::bind(&[Address::Unix(socket.clone())]).map_err(text)?;
    let exports = [Export::sparse("", Arc::clone(volume) as Arc<dyn Sparse>)];
    let (stop, monitor) = (Stop::new().map_err(text)?, Monitor::default());
    std::thread::scope(|scope| {
        let serving =
            scope.spawn(|| server.serve(&exports, &NbdSettings::default(), &monitor, &stop));
        let done = act(&socket);
        stop.set();
        serving.join().map_err(|_| "the server panicked".to_owned())?.map_err(text)?;
        done
    })
}

/// Runs nbdkit's memory plugin while something is done with its socket and its process.
pub fn with_nbdkit<T>(
    settings: &Settings,
    bytes: u64,
    act: impl FnOnce(&Path, u32) -> Result<T>,
) -> Result<T> {
    let socket = settings.shm.join("theirs");
    let _ = std::fs::remove_file(&socket);
    let mut command = Command::new(&settings.nbdkit);
    command.arg("-f").arg("-U").arg(&socket).arg("memory").arg(bytes.to_string());
    let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut server = Guard(child.map_err(|error| format!("nbdkit: {error}"))?);
    let start = Instant::now();
    while !socket.exists() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let found = act(&socket, server.0.id());
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

/// What a run of fio found.
pub struct Served {
    pub per_second: f64,
    pub mb_per_s: f64,
    /// The latencies that 50, 99 and 99.9 % of the requests do not exceed.
    pub millis: [f64; 3],
    /// Processor time of the server; 0 if it was not measured.
    pub cpu_us_per_mib: f64,
    bytes: f64,
}

/// A run of fio to come.
pub struct Fio {
    program: PathBuf,
    direction: &'static str,
    arguments: Vec<String>,
    is_timed: bool,
}

impl Fio {
    /// 4 KiB anywhere, 64 in flight.
    fn reads(settings: &Settings, socket: &Path, capacity: u64) -> Fio {
        Fio::of(settings, socket, capacity, "read", &["--rw=randread", "--bs=4k", "--iodepth=64"])
    }

    /// 1 MiB in order, 8 in flight.
    pub fn writes(settings: &Settings, socket: &Path, capacity: u64) -> Fio {
        Fio::of(settings, socket, capacity, "write", &["--rw=write", "--bs=1M", "--iodepth=8"])
    }

    fn of(
        settings: &Settings,
        socket: &Path,
        capacity: u64,
        direction: &'static str,
        load: &[&str],
    ) -> Fio {
        let mut arguments: Vec<String> = load.iter().map(|&it| it.to_owned()).collect();
        let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
        arguments.extend(["--name=load".to_owned(), "--ioengine=nbd".to_owned(), uri]);
        arguments
            .extend(["--output-format=json", "--percentile_list=50:99:99.9"].map(str::to_owned));
        arguments.push(format!("--size={capacity}"));
        Fio { program: settings.fio.clone(), direction, arguments, is_timed: true }
    }

    /// All of it once instead of for some seconds.
    pub fn once(self) -> Fio {
        Fio { is_timed: false, ..self }
    }

    /// To a file past the page cache instead of a server.
    pub fn against_file(mut self, path: &Path) -> Fio {
        self.arguments.retain(|it| !it.starts_with("--ioengine") && !it.starts_with("--uri"));
        self.arguments.extend(["--ioengine=libaio", "--direct=1"].map(str::to_owned));
        self.arguments.push(format!("--filename={}", path.display()));
        self
    }

    pub fn run(&self) -> Result<Served> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if self.is_timed {
            command.arg("--time_based").arg(format!("--runtime={SECONDS}"));
        }
        let output = command.output().map_err(|error| format!("fio: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // What it says before the braces is for people.
        let json = text.find('{').map_or("", |at| &text[at..]);
        let value: Value = serde_json::from_str(json).map_err(|error| {
            format!("fio: {error}: {}", String::from_utf8_lossy(&output.stderr))
        })?;
        let found = &value["jobs"][0][self.direction];
        let number = |value: &Value| value.as_f64().ok_or_else(|| "fio told no rate".to_owned());
        let latency = &found["clat_ns"]["percentile"];
        let millis = |name: &str| latency[name].as_f64().map_or(f64::NAN, |nanos| nanos / 1e6);
        Ok(Served {
            per_second: number(&found["iops"])?,
            mb_per_s: number(&found["bw_bytes"])? / 1e6,
            millis: ["50.000000", "99.000000", "99.900000"].map(millis),
            cpu_us_per_mib: 0.0,
            bytes: number(&found["io_bytes"])?,
        })
    }

    /// The same, with the processor time of this process, which serves.
    pub fn run_beside_us(&self) -> Result<Served> {
        self.costing(|| Ok(own_cpu_time()))
    }

    /// The same, with the processor time of another process.
    pub fn run_beside(&self, server: u32) -> Result<Served> {
        self.costing(|| cpu_of(server))
    }

    fn costing(&self, cpu: impl Fn() -> Result<Duration>) -> Result<Served> {
        let before = cpu()?;
        let found = self.run()?;
        let took = cpu()?.saturating_sub(before);
        let cpu_us_per_mib = took.as_secs_f64() * 1e6 / (found.bytes / MIB as f64);
        Ok(Served { cpu_us_per_mib, ..found })
    }
}

/// Processor time of a process (proc(5): fields 14 and 15 of `stat`, in ticks).
fn cpu_of(process: u32) -> Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: Option<u64> =
        fields.get(11..13).and_then(|it| it.iter().map(|it| it.parse::<u64>().ok()).sum());
    let ticks = ticks.ok_or_else(|| format!("{path}: no times"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}
