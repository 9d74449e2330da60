//! A server, and hosts that use it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::Settings;
use crate::Result;
use crate::child::{self, Cost};
use crate::tools::{Pinstripe, Tool};
use crate::trees;

/// A running `pinstripe serve` with an empty store behind it; it ends when this is dropped.
pub struct ServedStore {
    tool: Pinstripe,
    child: Child,
    /// A closed one would end the server.
    _out: BufReader<ChildStdout>,
    work: PathBuf,
    /// Its address.
    pub address: String,
}

impl ServedStore {
    /// Makes an empty store of four members with parity, and starts a server for it.
    pub fn start(settings: &Settings) -> Result<ServedStore> {
        Self::start_at(settings, "127.0.0.1:0", None)
    }

    /// The same at an address, which hosts reach at another one.
    pub fn start_at(
        settings: &Settings,
        listen: &str,
        reached_at: Option<&str>,
    ) -> Result<ServedStore> {
        let work = settings.bench.work.clone();
        for part in ["state", "hosts"] {
            trees::remove(&work.join(part))?;
        }
        let tool = settings.bench.pinstripe()?.with_key_file();
        tool.make_empty()?;
        let mut command = tool.bare("serve");
        command.args(["--json", "--listen", listen]);
        if let Some(address) = reached_at {
            command.args(["--address", address]);
        }
        command.arg("--store").arg(tool.member(0));
        command.arg("--state").arg(work.join("state"));
        command.arg("--access-log").arg(work.join("access"));
        let _ = std::fs::remove_file(work.join("access"));
        let log = std::fs::File::create(work.join("logs/server.err")).map_err(told)?;
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().map_err(told)?;
        let out = child.stdout.take().ok_or("the server has no output")?;
        let (mut out, mut first) = (BufReader::new(out), String::new());
        out.read_line(&mut first).map_err(told)?;
        let event: serde_json::Value =
            serde_json::from_str(&first).map_err(|_| format!("the server said '{first}'"))?;
        let address = event["server"].as_str().ok_or("the server named no address")?.to_owned();
        Ok(ServedStore { tool, child, _out: out, work, address })
    }

    /// The join string of a new token.
    pub fn token(&self, host: &str, role: &str) -> Result<String> {
        let mut command = self.tool.bare("token");
        command.args(["add", host, "--role", role, "--quiet"]);
        command.arg("--state").arg(self.work.join("state"));
        command.arg("--store").arg(self.tool.member(0));
        let output = command.output().map_err(told)?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(format!("token add: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// A new host.
    pub fn host(&self, name: &str, role: &str) -> Result<ServedHost> {
        let join = self.token(name, role)?;
        let home = self.work.join("hosts").join(name);
        std::fs::create_dir_all(&home).map_err(told)?;
        let host = ServedHost {
            program: self.tool.program().to_path_buf(),
            key_file: self.tool.folder.with_extension("key"),
            join,
            home,
            logs: self.tool.logs.clone(),
            name: name.to_owned(),
        };
        let mut connect = host.bare();
        connect.args(["connect", &host.join]);
        child::run(&mut connect, &host.logs, "serve-connect")?;
        Ok(host)
    }

    /// The most resident memory of the server so far, in bytes.
    pub fn peak_bytes(&self) -> Result<f64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(&path).map_err(told)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        kib.map(|kib| kib * 1024.0).ok_or_else(|| format!("{path} has no VmHWM"))
    }

    /// The requests that were answered so far.
    pub fn requests(&self) -> Result<f64> {
        let log = std::fs::read_to_string(self.work.join("access")).map_err(told)?;
        Ok(log.lines().count() as f64)
    }

    /// Times of requests with curl over one connection, in seconds.
    pub fn curl(&self, path: &str, join: &str, times: usize) -> Result<Vec<f64>> {
        let path = format!("{path}?[1-{times}]");
        let options = ["--output", "/dev/null", "--write-out", "%{time_starttransfer}\\n"];
        let text = self.answer(&path, join, &options)?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// The body of an answer.
    pub fn body(&self, path: &str, join: &str) -> Result<String> {
        self.answer(path, join, &[])
    }

    fn answer(&self, path: &str, join: &str, options: &[&str]) -> Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--insecure"]).args(options);
        curl.arg("--header").arg(format!("Authorization: Bearer {join}"));
        curl.arg(format!("https://{}{path}", self.address));
        let output = curl.output().map_err(|error| format!("cannot run curl: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("curl {path} ended with {}", output.status)),
        }
    }
}

impl Drop for ServedStore {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// pinstripe on a host.
pub struct ServedHost {
    program: PathBuf,
    key_file: PathBuf,
    /// Its join string.
    pub join: String,
    home: PathBuf,
    logs: PathBuf,
    name: String,
}

impl ServedHost {
    /// The program with the state of this host.
    fn bare(&self) -> Command {
        // Hosts have processors of their own; here they share those of the server.
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).arg(&self.program);
        command.env("PINSTRIPE_CONFIG", "/dev/null").env("HOME", &self.home);
        command.env("XDG_CACHE_HOME", self.home.join("cache"));
        command.env("XDG_STATE_HOME", self.home.join("state"));
        command.env_remove("PINSTRIPE_STORE");
        command
    }

    /// A verb on the served store.
    pub fn command(&self, verb: &str) -> Command {
        let mut command = self.bare();
        command.args([verb, "--json", "--key-file"]).arg(&self.key_file);
        command
    }

    /// A backup of a tree.
    pub fn back_up(&self, source: &Path) -> Command {
        let mut command = self.command("backup");
        command.arg(source);
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, mut command: Command, what: &str) -> Result<Cost> {
        let name = format!("serve-{}-{what}", self.name);
        let cost = child::run(&mut command, &self.logs, &name)?;
        super::super::bench::say(&name, &cost);
        Ok(cost)
    }

    /// Starts a command.
    pub fn start(&self, mut command: Command, what: &str) -> Result<child::Running> {
        child::start(&mut command, &self.logs, &format!("serve-{}-{what}", self.name))
    }
}

pub fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
