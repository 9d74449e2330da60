//! `pinstripe serve`: lets many hosts use a store through one server.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::ValueHint;
use pinstripe::Store;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_io::paths;
use pinstripe_member::{DirectoryMember, ExtentName, Places};
use pinstripe_serve::{AccessLog, ServedVolume, ServerKey, ServerOptions, StoreServer, export_id};
use serde::{Deserialize, Serialize};

use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::{signals, system, xdg};

/// Let many hosts use a store through one server
///
/// The server needs no key of the store: hosts encrypt what they send. It speaks HTTPS; its key is
/// made at the first start, and hosts recognize it by the join string. Without a token nothing is
/// served. SIGTERM ends the server when the open requests are answered.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe serve --store /srv/a/store
  pinstripe serve --store /srv/a/store --listen 0.0.0.0:7473 --address backup.example.org:7473
  pinstripe serve --export /srv/member --state /var/lib/pinstripe/site-b

Then, on the same machine, make a token for each host:
  pinstripe token add web1 --store /srv/a/store
and on each host:
  pinstripe connect pst1_...
  pinstripe backup /etc")]
pub struct ServeArgs {
    /// The address and port to listen at
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7473")]
    listen: String,

    /// The address at which hosts reach the server, for join strings [default: this host's name,
    /// with the port of --listen]
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,

    /// Serve this directory as one member, for a store over several servers; 'pinstripe init' with
    /// the join strings of the servers makes the store
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    export: Option<PathBuf>,

    /// The directory of the server's state: its key, its tokens, and which host stored what
    ///
    /// Default: a directory for the store below /var/lib/pinstripe/serve, or for users other than
    /// root below $XDG_STATE_HOME/pinstripe/serve.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    state: Option<PathBuf>,

    /// A certificate chain in a PEM file, instead of the server's own; needs --tls-key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// The private key of --tls-certificate, in a PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Append one JSON object for each request to this file, without secrets
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    access_log: Option<PathBuf>,

    /// The time limit of open requests after a signal that ends the server
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, default_value = "30s")]
    drain: crate::args::Time,
}

/// The facts that `token` needs about the server that was last started with a state directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerFacts {
    /// The address at which hosts reach the server.
    pub address: String,
    /// The volumes, in hex.
    pub volumes: Vec<String>,
    /// The administrator's own certificate and key.
    #[serde(default)]
    own: Option<(PathBuf, PathBuf)>,
}

const FACTS: &str = "server.json";

impl ServerFacts {
    /// Reads the facts in a state directory; `None` if no server was started with it.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for a damaged file.
    pub fn read(state: &Path) -> Result<Option<ServerFacts>> {
        pinstripe_serve::read_state(&state.join(FACTS))
    }
}

/// The state directory of the server of a volume, unless --state names one.
///
/// # Errors
/// Fails without a home.
pub fn default_state(volume: StoreId) -> Result<PathBuf> {
    Ok(xdg::lasting()?.join("serve").join(volume.to_string()))
}

/// The identity that the server with this state directory uses.
///
/// # Errors
/// Fails with the errors of [`ServerKey::open`].
pub fn identity(state: &Path) -> Result<ServerKey> {
    match ServerFacts::read(state)?.and_then(|facts| facts.own) {
        Some((certificate, key)) => ServerKey::from_files(&certificate, &key),
        None => ServerKey::open(state),
    }
}

impl ServeArgs {
    /// Serves until a signal ends the run.
    ///
    /// # Errors
    /// Fails if the store cannot be opened or the address cannot be used.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let (stop, reloads) = signals::catch_as_server()?;
        // A member that was silent is used again when it answers: a host that could not write to it
        // has counted it as failed, and writes nothing more to it.
        run.wait_as_reader(None);
        let (volume, store) = self.volume(run)?;
        let state = match &self.state {
            Some(state) => state.clone(),
            None => default_state(volume.id)?,
        };
        let own = self.tls_certificate.clone().zip(self.tls_key.clone());
        let read_key = || match &own {
            Some((certificate, key)) => ServerKey::from_files(certificate, key),
            None => ServerKey::open(&state),
        };
        let identity = read_key()?;
        let pin = identity.pin;
        let (id, members) = (volume.id, volume.members.len() as u64);
        let options = ServerOptions {
            volumes: vec![volume],
            state: state.clone(),
            identity,
            access_log: self.access_log.as_deref().map(AccessLog::open).transpose()?,
            drain: self.drain.0,
        };
        let server = match system::activated_socket() {
            Some(socket) => StoreServer::from_socket(socket, options)?,
            None => StoreServer::bind(resolve(&self.listen)?, options)?,
        };
        let listens = server.address()?;
        let address = self.address.clone().unwrap_or_else(|| own_address(listens));
        let facts = ServerFacts {
            address: address.clone(),
            volumes: vec![id.to_string()],
            own: own.clone(),
        };
        pinstripe_serve::replace_state(&state.join(FACTS), &facts)?;
        let what = if store.is_some() { "store" } else { "directory" };
        let (short, members) = (id.short(), counted(members, "member"));
        run.screen.say(&format!("serving {what} {short} ({members}) at https://{address}"));
        run.screen.say(&format!("SHA-256 of the server's key: {pin}"));
        run.screen.say(&format!("next: {}", self.next(run, &state)));
        let event = Event::new("serving").with("store", id.to_string());
        let event = event.with("listen", listens.to_string()).with("server", address);
        run.screen.event(&event.with("key_sha256", pin.to_string()))?;
        run.screen.flush();
        let reload = || {
            if reloads.swap(false, Ordering::Relaxed) {
                match read_key().and_then(|key| server.set_identity(key)) {
                    Ok(()) => run.screen.say("the certificate was read again"),
                    Err(error) => run.monitor.warning(&state, error),
                }
            }
        };
        server.run(stop.as_flag(), &reload);
        drop(store);
        run.screen.say("the server has ended");
        Ok(Ending::done(Event::default().with("store", id.to_string())))
    }

    /// The command that makes the first token.
    fn next(&self, run: &Run, state: &Path) -> String {
        match (run.common.store.first(), &self.state) {
            (Some(store), None) => {
                format!("pinstripe token add HOST --store {}", escape::path(store))
            }
            (None, None) if self.export.is_none() => "pinstripe token add HOST".to_owned(),
            _ => {
                let role = if self.export.is_some() { " --role admin" } else { "" };
                format!("pinstripe token add HOST{role} --state {}", escape::path(state))
            }
        }
    }

    /// The members to serve. An open store is kept as long as its members are served.
    fn volume(&self, run: &Run) -> Result<(ServedVolume, Option<Store>)> {
        if let Some(dir) = &self.export {
            crate::args::refuse_option(
                !run.common.store.is_empty(),
                "--store",
                "--export serves a directory that belongs to no store here",
            )?;
            return Ok((exported(run, dir)?, None));
        }
        let store = run.open_locked()?;
        let members = store
            .member_slots
            .iter()
            .enumerate()
            .filter_map(|(number, slot)| Some((number as u16, slot.member.clone()?)));
        let volume =
            ServedVolume { id: store.config.store, is_store: true, members: members.collect() };
        Ok((volume, Some(store)))
    }
}

/// A directory as a volume; one that is missing or empty becomes a member.
fn exported(run: &Run, dir: &Path) -> Result<ServedVolume> {
    let member = match paths::exists(&dir.join(ExtentName::Label.path())) {
        true => std::sync::Arc::new(DirectoryMember::open(dir)?),
        false => match DirectoryMember::open(dir) {
            Ok(member) => std::sync::Arc::new(member) as pinstripe_member::SharedMember,
            Err(_) => Places::default().create(dir)?.member,
        },
    };
    let place = pinstripe_member::real(dir).map_err(|e| Error::io("cannot open", dir, e))?;
    let watched = pinstripe_member::WatchedMember::new(member, run.patience());
    let members = BTreeMap::from([(0, std::sync::Arc::new(watched) as _)]);
    Ok(ServedVolume { id: export_id(&place), is_store: false, members })
}

fn resolve(listen: &str) -> Result<SocketAddr> {
    let wrong = || {
        Error::new(Kind::Usage, format!("'{listen}' is not an address to listen at"))
            .advice("write an address and a port, for example 0.0.0.0:7473 or [::1]:7473")
    };
    listen.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(wrong)
}

/// The default of --address.
fn own_address(listens: SocketAddr) -> String {
    if !listens.ip().is_unspecified() {
        return listens.to_string();
    }
    let name = String::from_utf8_lossy(&system::host_name()).into_owned();
    format!("{name}:{}", listens.port())
}
