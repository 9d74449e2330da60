//! The control socket of a mount; each mountpoint has one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinstripe_base::checksum::checksum;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::Stop;
use pinstripe_io::control::{Answer, Client, Control, Lines, Peer};

use super::ShownStatus;
use crate::xdg;

/// The timeout of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
const PEER: Peer = Peer {
    name: "the process that serves the mount",
    advice: "'pinstripe mount status' and 'pinstripe overlay status' show whether the process \
             still runs",
    silence: Kind::Io,
};
const REQUEST: &str = "status";

/// Answers requests for the status of a mount.
pub(super) struct StatusSocket(Control);

impl StatusSocket {
    /// Listens for status requests for a mountpoint.
    ///
    /// # Errors
    /// Fails without a directory for the socket; otherwise with the errors of the system.
    pub(super) fn bind(verb: &str, mountpoint: &Path) -> Result<Self> {
        let socket = socket_of(verb, mountpoint)?;
        let folder = socket.parent().expect("it is in a directory");
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| Error::io("cannot be made", folder, error))?;
        Control::bind(&socket).map(StatusSocket)
    }

    /// Answers requests until `over` is set.
    ///
    /// # Errors
    /// Fails when no client can be accepted any more.
    pub(super) fn serve(
        &self,
        over: &Stop,
        status: &(dyn Fn() -> ShownStatus + Sync),
    ) -> Result<()> {
        self.0.serve(over, &|request: &str, lines: &Lines<'_>| {
            let answer = match request {
                REQUEST => serde_json::to_string(&status()).expect("figures are plain JSON"),
                _ => "{}".to_owned(),
            };
            // A client that is gone does not need it.
            let _ = lines.send(&answer);
            Answer::Sent
        })
    }
}

/// The status of the mount at a mountpoint.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when no process of this verb serves that mountpoint.
pub(super) fn ask(verb: &str, mountpoint: &Path) -> Result<ShownStatus> {
    let socket = socket_of(verb, &full_path(mountpoint))?;
    ask_at(&socket)?.ok_or_else(|| {
        Error::new(
            Kind::NotFound,
            format!("no 'pinstripe {verb}' that this user started is mounted at this path"),
        )
        .at(mountpoint)
        .advice(format!("'pinstripe {verb} status' lists the mounts of this user"))
    })
}

/// The status of all mounts of a verb that belong to this user, by mountpoint.
///
/// # Errors
/// Fails when the directory of sockets cannot be read.
pub(super) fn ask_all(verb: &str) -> Result<Vec<ShownStatus>> {
    let folder = folder()?;
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| Error::io("cannot read", &folder, error))?,
    };
    let is_of_verb = |name: &OsStr| name.as_bytes().starts_with(format!("{verb}-").as_bytes());
    let mut all = Vec::new();
    for entry in entries.flatten().filter(|entry| is_of_verb(&entry.file_name())) {
        // One that ends just now is gone.
        if let Ok(Some(status)) = ask_at(&entry.path()) {
            all.push(status);
        }
    }
    all.sort_by(|one, other| one.mountpoint.cmp(&other.mountpoint));
    Ok(all)
}

fn ask_at(socket: &Path) -> Result<Option<ShownStatus>> {
    let Some(mut client) = Client::connect(socket, PEER)? else { return Ok(None) };
    client.set_timeout(Some(TIMEOUT))?;
    client.ask(REQUEST)?;
    let line = client.line()?;
    let status = serde_json::from_str(&line);
    status.map(Some).map_err(|error| {
        Error::new(
            Kind::Unsupported,
            format!(
                "the process that serves the mount runs a different version of pinstripe: {error}"
            ),
        )
        .at(socket)
    })
}

fn folder() -> Result<PathBuf> {
    Ok(xdg::runtime()?.join("shown"))
}

/// The path of the socket of a mountpoint. The socket has a short name, because the system limits
/// the length of its path.
fn socket_of(verb: &str, mountpoint: &Path) -> Result<PathBuf> {
    let hash = checksum(mountpoint.as_os_str().as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(folder()?.join(format!("{verb}-{hex}")))
}

/// The full path of a mountpoint, even if the mount no longer answers.
fn full_path(mountpoint: &Path) -> PathBuf {
    let above = mountpoint.parent().map(|above| match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    });
    let (Some(above), Some(name)) = (above, mountpoint.file_name()) else {
        return mountpoint.canonicalize().unwrap_or_else(|_| mountpoint.to_path_buf());
    };
    let direct = mountpoint.canonicalize();
    direct.or_else(|_| above.canonicalize().map(|above| above.join(name))).unwrap_or_default()
}
