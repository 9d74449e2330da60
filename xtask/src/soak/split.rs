//! Splits a source of 16 GiB over three outputs. One of the three outputs is lost afterwards. All
//! data must still be readable, and neither splitting nor reading may use more memory than its
//! budget.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::workspace::{Result, Workspace, cargo, succeeds};

const GIB: u64 = 1 << 30;
/// The source: zeros, and words that compress well, so that the outputs fit on an ordinary disk.
const SOURCE: &str = "fake:16G,zero=40%,entropy=0.1";
const CODEC: &str = "zstd:1";
const SOURCE_BYTES: u64 = 16 * GIB;
/// The space for the outputs with parity, plus a reserve of a tenth.
const ROOM_BYTES: u64 = 9 * GIB;
/// The requested memory budget.
const MEMORY: &str = "256M";
/// The most memory that is permitted: the budget, plus the memory of the program itself.
const PEAK_BYTES: u64 = (256 + 64) << 20;
/// The exit code for outputs that are damaged but repairable.
const REPAIRABLE: i32 = 10;

/// Splits, removes an output and verifies; returns false if a result is wrong.
pub fn run() -> Result<bool> {
    let workspace = Workspace::load()?;
    if !succeeds(cargo().args(["build", "--package", "pinstripe-cli"]))? {
        return Ok(false);
    }
    let stand = Stand::new(workspace.target)?;
    let free = free_bytes(&stand.directory)?;
    if free < ROOM_BYTES {
        let (free, room) = (free / GIB, ROOM_BYTES / GIB);
        println!("skipped: soak split: {room} GiB are needed in target/, {free} GiB are free");
        return Ok(true);
    }
    let outputs = ["0", "1", "2"];
    let split = [&["split", SOURCE], &outputs[..], &["--parity", "1", "--codec", CODEC]].concat();
    let split = stand.watch(&split)?;
    split.report("split");
    fs::remove_file(stand.directory.join(outputs[1])).map_err(|error| error.to_string())?;
    let verified = stand.watch(&["verify", "2", "0"])?;
    verified.report("verify, an output lost");
    let mut wrong = Vec::new();
    for (is_so, what) in [
        (split.code == Some(0), "split failed"),
        (split.summary["source_bytes"] == SOURCE_BYTES, "not all of the source was split"),
        (verified.code == Some(REPAIRABLE), "verify says that it is not whole"),
        (verified.summary["lost_bytes"] == 0, "a part of the source is lost"),
        (verified.summary["blake3"].is_string(), "verify did not read all"),
        (verified.summary["blake3"] == split.summary["blake3"], "the source differs"),
        (split.peak_bytes.max(verified.peak_bytes) <= PEAK_BYTES, "more memory than allowed"),
    ] {
        wrong.extend((!is_so).then_some(what));
    }
    wrong.iter().for_each(|what| println!("failed: soak split: {what}"));
    Ok(wrong.is_empty())
}

/// A directory that is removed together with the outputs in it.
struct Stand {
    target: PathBuf,
    directory: PathBuf,
}

impl Stand {
    /// Creates an empty directory; the remains of a killed run are removed first.
    fn new(target: PathBuf) -> Result<Stand> {
        let directory = target.join("xtask").join("soak-split");
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        Ok(Stand { target, directory })
    }

    /// Runs `pinstripe` in the directory and measures its memory use.
    fn watch(&self, args: &[&str]) -> Result<Ran> {
        let start = Instant::now();
        let mut command = Command::new(self.target.join("debug").join("pinstripe"));
        command.args(args).args(["--memory", MEMORY, "--json"]).current_dir(&self.directory);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run pinstripe: {error}"))?;
        let mut stdout = child.stdout.take().expect("it was asked for");
        let reader = thread::spawn(move || {
            let mut said = String::new();
            stdout.read_to_string(&mut said).map(|_| said)
        });
        let (code, peak_bytes) = wait(&mut child).map_err(|error| error.to_string())?;
        let said = reader.join().expect("reading panics nowhere");
        let said = said.map_err(|error| error.to_string())?;
        let last = said.lines().last().unwrap_or_default();
        let summary = serde_json::from_str(last).unwrap_or_default();
        Ok(Ran { code, summary, peak_bytes, took: start.elapsed() })
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The result of a run of `pinstripe`.
struct Ran {
    code: Option<i32>,
    summary: Value,
    peak_bytes: u64,
    took: Duration,
}

impl Ran {
    fn report(&self, what: &str) {
        let seconds = self.took.as_secs_f64();
        let speed = SOURCE_BYTES as f64 / 1e6 / seconds;
        let peak = self.peak_bytes >> 20;
        println!(
            "{what}: {seconds:.0} s, {speed:.0} MB/s of the source, {peak} MiB of memory at most"
        );
    }
}

/// Waits for the end of a process; returns its exit code, and the most memory that it was seen to
/// use.
fn wait(child: &mut Child) -> std::io::Result<(Option<i32>, u64)> {
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut peak_bytes = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status.code(), peak_bytes));
        }
        let told = fs::read_to_string(&status).unwrap_or_default();
        peak_bytes = peak_bytes.max(high_water_bytes(&told).unwrap_or(0));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns VmHWM of /proc/PID/status (proc(5)) in bytes.
fn high_water_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// The bytes that df(1) reports as available.
fn free_bytes(directory: &Path) -> Result<u64> {
    let mut df = Command::new("df");
    let output = df.args(["--output=avail", "--block-size=1"]).arg(directory).output();
    let output = output.map_err(|error| format!("cannot run df: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let number = said.lines().last().and_then(|line| line.trim().parse().ok());
    number.ok_or_else(|| format!("df does not say what is free: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status_of_a_process() {
        let status = "Name:\tpinstripe\nVmPeak:\t  900 kB\nVmHWM:\t  262144 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(high_water_bytes(status), Some(256 << 20));
        assert_eq!(high_water_bytes("Name:\tzombie\n"), None);
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert!(high_water_bytes(&own) > Some(0));
    }

    #[test]
    fn free_space_is_known() {
        assert!(free_bytes(Path::new("/proc/self")).is_ok());
        assert!(free_bytes(Path::new("/nowhere/at/all")).is_err());
    }
}
