//! A real PostgreSQL for tests that need one, on a socket in a directory of its own.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The database user, who needs no password on the socket.
const USER: &str = "pinstripe";
/// Looks between the start of a server and its first answer: 60 s.
const LOOKS: usize = 1200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// The user id of root's server, where Debian's user is missing: PostgreSQL refuses root.
const NOBODY: u32 = 65534;

/// A server, until it is dropped.
pub struct PostgresServer {
    programs: PathBuf,
    dir: tempfile::TempDir,
    options: Vec<String>,
    child: Option<Child>,
}

impl PostgresServer {
    /// Starts an empty server whose data need not survive a power cut; `None` where PostgreSQL is
    /// missing, which is said as a skipped test.
    pub fn start(test: &str) -> Option<PostgresServer> {
        Self::start_with(test, &["fsync=off", "full_page_writes=off"])
    }

    /// Starts an empty server with these settings.
    pub fn start_with(test: &str, settings: &[&str]) -> Option<PostgresServer> {
        let Some(programs) = programs() else {
            crate::not_installed(test, "postgresql");
            return None;
        };
        let dir = tempfile::Builder::new().prefix("pinstripe-pg").tempdir().unwrap();
        let options = settings.iter().flat_map(|it| ["-c".to_owned(), (*it).to_owned()]).collect();
        let mut server = PostgresServer { programs, dir, options, child: None };
        if let Some((user, group)) = owner() {
            chown(server.dir.path(), Some(user), Some(group)).unwrap();
        }
        let data = server.dir.path().join("data");
        fs::DirBuilder::new().mode(0o700).create(&data).unwrap();
        if let Some((user, group)) = owner() {
            chown(&data, Some(user), Some(group)).unwrap();
        }
        let mut init = server.command("initdb");
        init.args(["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]);
        let made = init.arg("--no-sync").arg("--pgdata").arg(&data).output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        server.restart();
        Some(server)
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user={USER}", self.dir.path().display())
    }

    /// The bytes of the server's files.
    pub fn bytes(&self) -> u64 {
        fn of(path: &Path) -> u64 {
            let Ok(found) = fs::symlink_metadata(path) else { return 0 };
            let below = fs::read_dir(path).into_iter().flatten().flatten();
            found.len() + below.map(|it| of(&it.path())).sum::<u64>()
        }
        of(&self.dir.path().join("data/base"))
    }

    /// Runs SQL in a database; returns the rows, unaligned.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = self.command("psql");
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--username", USER]);
        psql.arg("--host").arg(self.dir.path()).args(["--dbname", database, "--command", sql]);
        let done = psql.output().unwrap();
        assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// Kills the server; its processes end with it.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The processes of its connections would answer for a moment longer.
            let others = children_of(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            for pid in others.into_iter().filter_map(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }

    /// Starts the server again.
    pub fn restart(&mut self) {
        self.kill();
        for _ in 0..LOOKS {
            let mut child = self.child.take().unwrap_or_else(|| self.begin());
            // The memory of processes that were killed may still be in use: it starts again then.
            let has_ended = child.try_wait().unwrap().is_some();
            if !has_ended {
                self.child = Some(child);
            }
            let mut ready = self.command("pg_isready");
            let ready = ready.arg("--quiet").arg("--host").arg(self.dir.path());
            if !has_ended && ready.status().unwrap().success() {
                return;
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        panic!("PostgreSQL does not answer: {log}");
    }

    fn begin(&self) -> Child {
        let log = fs::File::create(self.dir.path().join("log")).unwrap();
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.dir.path().join("data")).arg("-k").arg(self.dir.path());
        command.args(["-c", "listen_addresses="]).args(&self.options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        if let Some((user, group)) = owner() {
            command.uid(user).gid(group);
        }
        command.env_remove("PGPASSWORD").current_dir(self.dir.path());
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        // SIGQUIT ends all of its processes at once, and removes its shared memory.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(child),
            rustix::process::Signal::QUIT,
        );
        let _ = child.wait();
    }
}

/// The processes whose parent is this one.
fn children_of(parent: u32) -> Vec<i32> {
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.nth(1).and_then(|it| it.parse().ok()) == Some(parent)
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|it| it.file_name().to_str()?.parse().ok());
    all.filter(is_child).collect()
}

/// The user and group of the server, if this process is root's.
fn owner() -> Option<(u32, u32)> {
    if !crate::is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let found = line.and_then(|line| {
        let mut fields = line.split(':').skip(2).map(str::parse);
        Some((fields.next()?.ok()?, fields.next()?.ok()?))
    });
    Some(found.unwrap_or((NOBODY, NOBODY)))
}

/// The directory of the programs: Debian has them in a directory for each version.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = debian.map(|version| version.path().join("bin"));
    let mut all = debian.chain(std::env::split_paths(&path));
    let needed = ["initdb", "pg_isready", "postgres", "psql"];
    all.find(|bin| needed.iter().all(|program| bin.join(program).is_file()))
}
