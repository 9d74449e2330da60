//! The two tools as a user calls them: nothing but their command lines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::child;
use crate::trees;

/// restic's name in tables.
pub const RESTIC: &str = "restic";
/// Our name in tables.
pub const PINSTRIPE: &str = "pinstripe";
/// Members of our store.
pub const MEMBERS: usize = 4;
/// Members that may be lost.
pub const PARITY: usize = 1;

/// A backup tool with one store of its own.
pub trait Tool {
    /// Throws the store away and makes an empty one.
    fn make_empty(&self) -> Result<()>;
    /// A verb on the store, with what opens it.
    fn command(&self, verb: &str) -> Command;
    /// The command that backs up `source` to the store.
    fn back_up(&self, source: &Path) -> Command {
        let mut command = self.command("backup");
        command.arg(source);
        command
    }
    /// The command that restores the latest backup below `to`, under its full path.
    fn restore(&self, to: &Path) -> Command;
    /// Bytes in all files of the store.
    fn stored_bytes(&self) -> Result<u64>;
}

/// The share of our stored bytes that is not parity: every extent has data and parity in one
/// proportion.
/// The little that all members hold alike (member files, snapshots) is shared out likewise.
pub fn without_parity(all_bytes: u64) -> f64 {
    all_bytes as f64 * (MEMBERS - PARITY) as f64 / MEMBERS as f64
}

/// restic with one local directory.
pub struct Restic {
    program: PathBuf,
    /// The directory of its repository and its cache.
    pub folder: PathBuf,
    logs: PathBuf,
    /// Its name and version.
    pub version: String,
    compression: String,
}

impl Restic {
    /// Looks whether it runs.
    pub fn find(program: &Path, work: &Path) -> Result<Restic> {
        let output = Command::new(program).arg("version").output().map_err(|error| {
            format!("cannot run {}: {error} (apt-get install restic)", program.display())
        })?;
        let version = String::from_utf8_lossy(&output.stdout);
        let version = version.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let (folder, logs) = (work.join("restic"), logs(work)?);
        let compression = "auto".to_owned();
        Ok(Restic { program: program.to_path_buf(), folder, logs, version, compression })
    }

    /// With another compression than `auto`: `off` or `max`.
    pub fn with_compression(self, compression: &str) -> Restic {
        Restic { compression: compression.to_owned(), ..self }
    }
}

impl Tool for Restic {
    fn make_empty(&self) -> Result<()> {
        new_folder(&self.folder)?;
        child::run(&mut self.command("init"), &self.logs, "restic-init").map(drop)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env("RESTIC_PASSWORD", "lab").env("RESTIC_CACHE_DIR", self.folder.join("cache"));
        command.env("RESTIC_REPOSITORY", self.folder.join("repository"));
        command.args([verb, "--quiet", "--compression", &self.compression]);
        command
    }

    fn restore(&self, to: &Path) -> Command {
        let mut command = self.command("restore");
        command.args(["latest", "--target"]).arg(to);
        command
    }

    fn stored_bytes(&self) -> Result<u64> {
        Ok(trees::measure(&self.folder.join("repository"))?.1)
    }
}

/// The way to open our store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// By a password, as restic's: that costs time with each start.
    Password,
    /// By a key file, as in a store with default options.
    File,
}

/// pinstripe with its members side by side.
pub struct Pinstripe {
    program: PathBuf,
    /// The directory of the members.
    pub folder: PathBuf,
    /// The file that takes its output.
    pub logs: PathBuf,
    key: Key,
    codec: Option<String>,
}

impl Pinstripe {
    /// Looks whether it is there.
    pub fn find(program: &Path, work: &Path) -> Result<Pinstripe> {
        if !program.exists() {
            let advice = "cargo build --release -p pinstripe-cli, or name it with --pinstripe";
            return Err(format!("no {}: {advice}", program.display()));
        }
        let (folder, logs) = (work.join("members"), logs(work)?);
        let (program, key, codec) = (program.to_path_buf(), Key::Password, None);
        Ok(Pinstripe { program, folder, logs, key, codec })
    }

    /// With a key file instead of a password.
    pub fn with_key_file(self) -> Pinstripe {
        Pinstripe { key: Key::File, ..self }
    }

    /// With another codec than the default.
    pub fn with_codec(self, codec: &str) -> Pinstripe {
        Pinstripe { codec: Some(codec.to_owned()), ..self }
    }

    /// The directory of a member.
    pub fn member(&self, number: usize) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A verb without a store, a key or a configuration.
    pub fn bare(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env("PINSTRIPE_CONFIG", "/dev/null").env_remove("PINSTRIPE_STORE").arg(verb);
        command
    }

    /// Whether it has a verb.
    pub fn knows(&self, verb: &str) -> bool {
        let asked = Command::new(&self.program).args([verb, "--help"]).output();
        asked.is_ok_and(|output| output.status.success())
    }

    /// A number from the summary that the run of this name left in the logs.
    ///
    /// # Errors
    /// When there is none.
    pub fn figure(&self, name: &str, key: &str) -> Result<f64> {
        let value = self.summary(name, key)?;
        value.as_f64().ok_or_else(|| format!("{name}: '{key}' is no number: {value}"))
    }

    /// The same of a text.
    ///
    /// # Errors
    /// When there is none.
    pub fn text(&self, name: &str, key: &str) -> Result<String> {
        let value = self.summary(name, key)?;
        value.as_str().map(str::to_owned).ok_or_else(|| format!("{name}: '{key}' is no text"))
    }

    fn summary(&self, name: &str, key: &str) -> Result<serde_json::Value> {
        let path = self.logs.join(format!("{name}.out"));
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let summary: Option<serde_json::Value> =
            text.lines().next_back().and_then(|line| serde_json::from_str(line).ok());
        let value = summary.and_then(|mut summary| Some(summary.get_mut(key)?.take()));
        value.ok_or_else(|| format!("{}: its last line has no '{key}'", path.display()))
    }

    /// Moves one member's directory away, another one in each round; never the one that names the
    /// store.
    pub fn lose_member(&self, round: usize) -> Result<Away> {
        let home = self.member(1 + round % (MEMBERS - 1));
        let away = home.with_extension("away");
        rename(&home, &away)?;
        Ok(Away { home, away })
    }
}

impl Tool for Pinstripe {
    fn make_empty(&self) -> Result<()> {
        new_folder(&self.folder)?;
        let mut command = self.command("init");
        command.env_remove("PINSTRIPE_STORE");
        if let Some(codec) = &self.codec {
            command.args(["--codec", codec]);
        }
        for number in 0..MEMBERS {
            command.arg("--member").arg(self.member(number));
        }
        command.args(["--parity", &PARITY.to_string(), "--same-disk"]);
        child::run(&mut command, &self.logs, "pinstripe-init").map(drop)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        // The user who runs the benchmark may have a store and a configuration.
        command.env("PINSTRIPE_CONFIG", "/dev/null");
        command.env("PINSTRIPE_STORE", self.member(0)).args([verb, "--json"]);
        match self.key {
            Key::Password => command.env("PINSTRIPE_PASSWORD", "lab"),
            Key::File => command.arg("--key-file").arg(self.folder.with_extension("key")),
        };
        command
    }

    fn restore(&self, to: &Path) -> Command {
        let mut command = self.command("restore");
        command.args(["latest", "--to"]).arg(to);
        command
    }

    fn stored_bytes(&self) -> Result<u64> {
        Ok(trees::measure(&self.folder)?.1)
    }
}

/// A member that is away.
#[must_use]
pub struct Away {
    home: PathBuf,
    /// Its current place.
    pub away: PathBuf,
}

impl Away {
    /// Moves it back.
    pub fn bring_back(self) -> Result<()> {
        rename(&self.away, &self.home)
    }
}

/// The directory for logs below `work`, made.
fn logs(work: &Path) -> Result<PathBuf> {
    let logs = work.join("logs");
    fs::create_dir_all(&logs)
        .map_err(|error| format!("cannot make {}: {error}", logs.display()))?;
    Ok(logs)
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| format!("cannot move {}: {error}", from.display()))
}

fn new_folder(folder: &Path) -> Result<()> {
    trees::remove(folder)?;
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lost_member_changes_and_is_never_the_named_one() {
        let work = tempfile::tempdir().unwrap();
        let program = work.path().join("program");
        fs::write(&program, "").unwrap();
        let tool = Pinstripe::find(&program, work.path()).unwrap();
        for number in 0..MEMBERS {
            fs::create_dir_all(tool.member(number)).unwrap();
        }
        let mut lost = Vec::new();
        for round in 0..MEMBERS - 1 {
            let away = tool.lose_member(round).unwrap();
            assert!(tool.member(0).exists() && !away.home.exists());
            lost.push(away.home.clone());
            away.bring_back().unwrap();
        }
        lost.dedup();
        assert_eq!(lost.len(), MEMBERS - 1);
        assert!((0..MEMBERS).all(|number| tool.member(number).exists()));
    }

    #[test]
    fn a_quarter_of_four_members_is_parity() {
        assert_eq!(without_parity(400), 300.0);
    }
}
