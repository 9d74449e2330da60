//! Ports of a JACK server without hardware: the built binary records from a server that is started
//! here, and once that server is killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pinstripe_lab::Table;
use serde_json::Value;

use super::Settings;
use super::goals::worst_row;
use crate::Result;
use crate::targets::{Target, figure_row, figures};

/// The server of this process.
fn name() -> String {
    format!("pinstripe-bench-{}", std::process::id())
}

struct Server(Child);

impl Server {
    fn start(ports: usize, is_realtime: bool) -> Result<Server> {
        let mut command = Command::new("jackd");
        command.args(["--name", &name(), "--port-max", "1024", "-S"]);
        command.args(if is_realtime { &["-R", "-P", "70"][..] } else { &["--no-realtime"][..] });
        command.args(["-d", "dummy", "-r", "96000", "-p", "1024", "-P", "0", "-C"]);
        command.arg(ports.to_string()).env("JACK_NO_AUDIO_RESERVATION", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("cannot run jackd: {error}"))?;
        let mut server = Server(child);
        let began = Instant::now();
        while !server.answers() {
            let ended = server.0.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || began.elapsed() > Duration::from_secs(10) {
                return Err("jackd does not start here".to_owned());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn answers(&self) -> bool {
        let mut command = Command::new("jack_lsp");
        command.env("JACK_DEFAULT_SERVER", name()).env("JACK_NO_START_SERVER", "1");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|it| it.success())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// 64 ports without real time, 256 with it where it is allowed, and a server that is killed.
pub fn jack(settings: &Settings) -> Result<Table> {
    let seconds = settings.seconds(30);
    let note = format!(
        "Ports of `jackd -S -d dummy` at 96 kHz with blocks of 1024 frames, {seconds} s each, which give silence; that \
         samples come through unchanged is tested elsewhere. {}",
        settings.circumstances()
    );
    let mut table = figures("JACK", note);
    for (ports, is_realtime) in [(64, false), (256, true)] {
        let title = format!("{ports} ports{}", if is_realtime { ", RT" } else { "" });
        if let Err(why) = ports_of(settings, &title, (ports, is_realtime, seconds), &mut table) {
            let row = format!("{title}: not measured, {why}");
            worst_row(&mut table, &row, &[], 0, Target::None);
        }
    }
    if let Err(why) = killed(settings, &mut table) {
        worst_row(&mut table, &format!("killed: not measured, {why}"), &[], 0, Target::None);
    }
    Ok(table)
}

fn recorder(settings: &Settings, take: &str, more: &[&str]) -> Result<Command> {
    let mut command = settings.bench.pinstripe()?.bare("record");
    command.arg(take).arg("--to").arg(&settings.bench.work);
    command.args(["--ring", "1M", "--json", "jack:system:capture_*"]).args(more);
    command.env("JACK_DEFAULT_SERVER", name()).env("JACK_NO_START_SERVER", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}

fn summary(out: &[u8]) -> Result<Value> {
    let text = String::from_utf8_lossy(out);
    let last = text.lines().last().ok_or("the recorder said nothing")?;
    serde_json::from_str(last).map_err(|error| format!("'{last}': {error}"))
}

fn ports_of(
    settings: &Settings,
    title: &str,
    (ports, is_realtime, seconds): (usize, bool, u64),
    table: &mut Table,
) -> Result<()> {
    let mut command = recorder(settings, "ports", &["--duration", &format!("{seconds}s")])?;
    let _server = Server::start(ports, is_realtime)?;
    let ran = command.output().map_err(|error| format!("the recorder: {error}"))?;
    let found = summary(&ran.stdout)?;
    crate::trees::remove(&settings.bench.work.join("ports"))?;
    let of = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
    let row = |what: &str| format!("{title}: {what}");
    figure_row(table, &row("streams"), &[of("streams")], 0, Target::AtLeast(ports as f64));
    for what in ["overruns", "missing_frames", "exit_code"] {
        worst_row(table, &row(what), &[of(what)], 0, Target::AtMost(0.0));
    }
    Ok(())
}

/// From the kill of the server to the end of the recorder, with every file closed.
fn killed(settings: &Settings, table: &mut Table) -> Result<()> {
    let mut command = recorder(settings, "killed", &[])?;
    let server = Server::start(64, false)?;
    let mut child = command.spawn().map_err(|error| format!("the recorder: {error}"))?;
    let journal = settings.bench.work.join("killed/take.json");
    await_file(&journal, &mut child)?;
    std::thread::sleep(Duration::from_secs(settings.seconds(3)));
    let at = Instant::now();
    drop(server);
    let ran = child.wait_with_output().map_err(|error| error.to_string())?;
    let took = at.elapsed().as_secs_f64();
    let found = summary(&ran.stdout)?;
    worst_row(table, "server killed: all files closed after, s", &[took], 2, Target::AtMost(1.0));
    let code = found["exit_code"].as_f64().unwrap_or(f64::NAN);
    let what = "server killed: exit code is not 3, a loss that was told, by";
    worst_row(table, what, &[(code - 3.0).abs()], 0, Target::AtMost(0.0));
    crate::trees::remove(&settings.bench.work.join("killed"))
}

fn await_file(path: &Path, child: &mut Child) -> Result<()> {
    while !path.exists() {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("the recorder ended at once: {status}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
