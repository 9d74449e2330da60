//! restic with `rclone serve restic` over TLS, and pinstripe with its server, on the same tree.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pinstripe_lab::Table;

use super::Settings;
use super::stand::{ServedStore, told};
use crate::Result;
use crate::child;
use crate::targets::{Target, compare_row, comparison};
use crate::tools::{Restic, Tool};
use crate::trees;

/// `rclone serve restic`; it ends when this is dropped.
struct RcloneServer {
    child: Child,
    repository: String,
    certificate: PathBuf,
}

impl Drop for RcloneServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn measure(settings: &Settings) -> Result<Table> {
    let tree = settings.tree()?;
    let (entries, bytes) = trees::measure(&tree)?;
    trees::warm(&tree)?;
    let other = start_other(settings);
    let name = match &other {
        Ok((restic, _)) => format!("{} with rclone serve restic", restic.version),
        Err(why) => format!("nothing ({why})"),
    };
    let note = format!(
        "{entries} entries with {:.0} MB; loopback, TLS, page cache warm. Against: {name}, one directory \
         without parity. pinstripe: four members with parity 1.",
        bytes as f64 / 1e6,
    );
    let mut table = comparison("Through a server, s", note);
    let server = ServedStore::start(settings)?;
    let host = server.host("versus", "append-restore")?;
    // ext4 passes over inodes that were freed a short time ago, which makes new files slow: no tree is
    // removed before both restores are measured.
    let outs = ["restored-restic", "restored"].map(|name| settings.bench.work.join(name));
    outs.iter().try_for_each(|out| trees::remove(out))?;
    let [their_out, out] = &outs;
    let mut theirs = [f64::NAN; 3];
    if let Ok((restic, rclone)) = &other {
        theirs = their_seconds(restic, rclone, &tree, their_out)?;
    }
    let mut restore = host.command("restore");
    restore.arg("latest").arg("--to").arg(out);
    let commands =
        [("backup", host.back_up(&tree)), ("unchanged", host.back_up(&tree)), ("restore", restore)];
    for ((what, command), theirs) in commands.into_iter().zip(theirs) {
        rustix::fs::sync();
        let ours = host.run(command, what)?.wall_s;
        compare_row(&mut table, what.to_owned(), [theirs, ours], 2, Target::None);
    }
    trees::compare(&tree, &out.join(tree.strip_prefix("/").unwrap_or(&tree)))?;
    outs.iter().try_for_each(|out| trees::remove(out))?;
    Ok(table)
}

fn their_seconds(
    restic: &Restic,
    rclone: &RcloneServer,
    tree: &Path,
    out: &Path,
) -> Result<[f64; 3]> {
    let run = |mut command: Command, what: &str| {
        command.env("RESTIC_REPOSITORY", &rclone.repository);
        command.arg("--cacert").arg(&rclone.certificate);
        rustix::fs::sync();
        child::run(&mut command, &restic.folder, &format!("restic-{what}")).map(|it| it.wall_s)
    };
    run(restic.command("init"), "init")?;
    let first = run(restic.back_up(tree), "backup")?;
    let again = run(restic.back_up(tree), "unchanged")?;
    let restored = run(restic.restore(out), "restore")?;
    Ok([first, again, restored])
}

fn start_other(settings: &Settings) -> Result<(Restic, RcloneServer)> {
    let restic = settings.bench.restic()?;
    trees::remove(&restic.folder)?;
    std::fs::create_dir_all(&restic.folder).map_err(told)?;
    let (certificate, key) = (restic.folder.join("cert.pem"), restic.folder.join("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.arg("-out").arg(&certificate).arg("-keyout").arg(&key);
    child::run(&mut openssl, &restic.folder, "openssl")?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(told)?;
    let address = listener.local_addr().map_err(told)?.to_string();
    drop(listener);
    let mut rclone = Command::new("rclone");
    rclone.args(["serve", "restic", "--addr", &address, "--cert"]).arg(&certificate);
    rclone.arg("--key").arg(&key).arg(restic.folder.join("repository"));
    rclone.env("RCLONE_CONFIG", "/dev/null").stdout(Stdio::null()).stderr(Stdio::null());
    let child = rclone.spawn().map_err(|error| format!("cannot run rclone: {error}"))?;
    let server =
        RcloneServer { child, repository: format!("rest:https://{address}/"), certificate };
    let began = Instant::now();
    while std::net::TcpStream::connect(&address).is_err() {
        if began.elapsed() > Duration::from_secs(20) {
            return Err("rclone does not answer".to_owned());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok((restic, server))
}
