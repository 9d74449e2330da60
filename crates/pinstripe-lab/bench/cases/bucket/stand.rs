//! A server, a proxy before it, and both tools as they are called with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pinstripe_testing::{BUCKET, KEY_ID, KEY_SECRET, Proxy, S3Server};

use super::Settings;
use crate::Result;
use crate::child::{self, Cost};
use crate::tools::{Pinstripe, Restic, Tool};
use crate::trees;

/// One endpoint.
pub struct ProxiedServer {
    /// Its server; dropped, it ends.
    pub server: S3Server,
    /// What everybody asks.
    pub proxy: Proxy,
}

/// Whether an S3 server is available.
#[cfg(test)]
pub fn has_server() -> bool {
    let dir = tempfile::tempdir().unwrap();
    S3Server::start("bench bucket", dir.path()).is_some()
}

impl ProxiedServer {
    /// Starts one with nothing in it.
    pub fn start(work: &Path, name: &str) -> Result<ProxiedServer> {
        let dir = work.join(name);
        trees::remove(&dir)?;
        let server = S3Server::start("bench bucket", &dir)
            .ok_or("no versitygw: go install github.com/versity/versitygw/cmd/versitygw@latest")?;
        let proxy = Proxy::start(server.port());
        Ok(ProxiedServer { server, proxy })
    }

    /// A place in it, through the proxy.
    pub fn place(&self, prefix: &str) -> String {
        self.server.place_at(self.proxy.port(), prefix)
    }
}

/// Requests by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RequestCounts {
    pub all: f64,
    /// PUTs of packs, and of restic's.
    pub packs: f64,
    pub lists: f64,
    pub gets: f64,
}

impl RequestCounts {
    /// What a proxy has seen since it was asked last.
    pub fn take(proxy: &Proxy) -> RequestCounts {
        let log = proxy.take_log();
        let count = |is: &dyn Fn(&&String) -> bool| log.iter().filter(is).count() as f64;
        let is_pack = |line: &&String| {
            line.starts_with("PUT ") && (line.contains("/packs/") || line.contains("/data/"))
        };
        // restic asks by the older form of a listing, too.
        let is_list = |line: &&String| {
            line.starts_with("GET ") && (line.contains("list-type=") || line.contains("prefix="))
        };
        RequestCounts {
            all: log.len() as f64,
            packs: count(&is_pack),
            lists: count(&is_list),
            gets: count(&|line| line.starts_with("GET ") && !is_list(line)),
        }
    }
}

/// pinstripe as one host calls it.
pub struct HostTool {
    tool: Pinstripe,
    home: PathBuf,
    key_file: PathBuf,
    logs: PathBuf,
}

impl HostTool {
    /// The host of this name; the first one makes the key of the store.
    pub fn new(settings: &Settings, name: &str) -> Result<HostTool> {
        let work = &settings.bench.work;
        let home = work.join(format!("home-{name}"));
        trees::remove(&home)?;
        std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
        let tool = settings.bench.pinstripe()?;
        let logs = tool.logs.clone();
        Ok(HostTool { tool, home, key_file: work.join("bucket.key"), logs })
    }

    /// Makes a store over these places; a store that had the key before is gone.
    pub fn make(&self, places: &[String], parity: u8) -> Result<()> {
        let _ = std::fs::remove_file(&self.key_file);
        let mut init = self.bare("init");
        init.args(["--parity", &parity.to_string(), "--same-fate"]);
        for place in places {
            init.args(["--member", place]);
        }
        child::run(&mut init, &self.logs, "bucket-init").map(drop)
    }

    fn bare(&self, verb: &str) -> Command {
        let mut command = self.tool.bare(verb);
        credentials(&mut command);
        command.env("HOME", &self.home).arg("--key-file").arg(&self.key_file);
        command
    }

    /// A verb on a store.
    pub fn command(&self, place: &str, verb: &str) -> Command {
        let mut command = self.bare(verb);
        command.args(["--store", place, "--json"]);
        command
    }

    /// Removes its state for all stores, including caches.
    pub fn forget(&self) -> Result<()> {
        trees::remove(&self.home)?;
        std::fs::create_dir_all(&self.home).map_err(|error| error.to_string())
    }

    /// Runs a command, and counts what one proxy saw of it.
    pub fn run(
        &self,
        mut command: Command,
        name: &str,
        proxy: &Proxy,
    ) -> Result<(Cost, RequestCounts)> {
        rustix::fs::sync();
        proxy.take_log();
        let cost = child::run(&mut command, &self.logs, name)?;
        super::say(name, &cost);
        Ok((cost, RequestCounts::take(proxy)))
    }

    /// A number from the summary of a run.
    pub fn figure(&self, name: &str, key: &str) -> Result<f64> {
        self.tool.figure(name, key)
    }

    /// Where output goes.
    pub fn logs(&self) -> &Path {
        &self.logs
    }
}

/// The key of the test servers, as every S3 tool takes it.
fn credentials(command: &mut Command) {
    command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", KEY_SECRET);
    command.env("AWS_DEFAULT_REGION", "us-east-1").env("AWS_EC2_METADATA_DISABLED", "true");
}

/// restic on the same endpoint; nothing where it is not installed.
pub struct Other {
    tool: Restic,
    repository: String,
    cache: PathBuf,
}

impl Other {
    /// A repository of its own below a prefix.
    pub fn find(settings: &Settings, endpoint: &ProxiedServer) -> Option<Other> {
        let tool = settings.bench.restic().ok()?;
        let port = endpoint.proxy.port();
        let repository = format!("s3:http://127.0.0.1:{port}/{BUCKET}/restic");
        let cache = settings.bench.work.join("restic-cache");
        Some(Other { tool, repository, cache })
    }

    /// Its name and version.
    pub fn version(&self) -> &str {
        &self.tool.version
    }

    /// A verb on its repository.
    pub fn command(&self, verb: &str) -> Command {
        let mut command = self.tool.command(verb);
        credentials(&mut command);
        command.env("RESTIC_REPOSITORY", &self.repository);
        command.env("RESTIC_CACHE_DIR", &self.cache);
        command
    }

    /// Forgets its cache.
    pub fn forget(&self) -> Result<()> {
        trees::remove(&self.cache)
    }
}

/// A tree of incompressible files, another one for each number.
pub fn noise_tree(work: &Path, number: u64, bytes: u64) -> Result<PathBuf> {
    const FILE_BYTES: u64 = 1 << 20;
    let tree = work.join(format!("noise-{number}"));
    trees::remove(&tree)?;
    let told = |error: std::io::Error| format!("{}: {error}", tree.display());
    std::fs::create_dir_all(&tree).map_err(told)?;
    for file in 0..bytes.div_ceil(FILE_BYTES) {
        let mut content = vec![0; FILE_BYTES as usize];
        blake3::Hasher::new()
            .update(&number.to_le_bytes())
            .update(&file.to_le_bytes())
            .finalize_xof()
            .fill(&mut content);
        std::fs::write(tree.join(format!("f{file}")), content).map_err(told)?;
    }
    Ok(tree)
}

/// Has a proxy add this to each request.
pub fn set_delay(endpoints: &[&ProxiedServer], delay: Duration) {
    endpoints.iter().for_each(|endpoint| endpoint.proxy.delay(delay));
}
