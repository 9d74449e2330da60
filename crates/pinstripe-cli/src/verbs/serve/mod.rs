//! `pinstripe serve`: lets many hosts use a store through one server.

mod plan;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::ValueHint;
use pinstripe::Store;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_base::sync::lock;
use pinstripe_io::paths;
use pinstripe_member::label::Encryption;
use pinstripe_member::{DirectoryMember, ExtentName, Places};
use pinstripe_serve::{
    AccessLog, ClientAuthority, DatabaseTarget, JobPlans, ServedVolume, ServerKey, ServerOptions,
    StoreServer, export_id,
};
use serde::{Deserialize, Serialize};

use crate::args::Time;
use crate::config::{Config, ServeEntry};
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
///
/// The table [serve] of the config file defines jobs (scrub, repair, gc, check), spares that replace
/// silent members, and alarms; doc/server.md describes it. SIGHUP makes the server read the config
/// file, the certificates and the members again.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "\
Examples:
  pinstripe serve --store /srv/a/store
  pinstripe serve --store /srv/a/store --listen 0.0.0.0:7473 --address backup.example.org:7473
  pinstripe serve --export /srv/member --state /var/lib/pinstripe/site-b
  pinstripe serve --store /srv/a/store --catalog 'postgres:///pinstripe?host=/run/postgresql'
  pinstripe serve check-config

Then, on the same machine, make a token for each host:
  pinstripe token add web1 --store /srv/a/store
and on each host:
  pinstripe connect pst1_...
  pinstripe backup /etc")]
pub struct ServeArgs {
    #[command(subcommand)]
    verb: Option<ServeVerb>,

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

    /// Require of each client a certificate that an authority in this PEM file has signed
    ///
    /// A DNS name in the certificate must be the host of the token that the client uses. Browsers
    /// and the requests for health need a certificate, too. SIGHUP reads the file again.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    client_ca: Option<PathBuf>,
    /// A PostgreSQL database for a catalog that all hosts share, for example
    /// postgres://pinstripe@127.0.0.1/pinstripe
    ///
    /// Hosts send the names, sizes and times of the files of each snapshot to it, and 'find
    /// --all-hosts' searches it. The URL must not have a password: use --catalog-password-file or the
    /// environment variable PGPASSWORD. The connection is not encrypted: use a socket
    /// (postgres:///DATABASE?host=/run/postgresql), the loopback, or a tunnel. If the database is
    /// lost, no data is lost: 'pinstripe catalog rebuild --all-hosts' fills it again. For an encrypted
    /// store, the catalog is refused without --catalog-clear-names.
    #[arg(long, value_name = "URL")]
    catalog: Option<String>,

    /// A file whose first line is the password of the database
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    catalog_password_file: Option<PathBuf>,

    /// Use --catalog for an encrypted store, although the names of files are in clear text there
    ///
    /// Each host must allow it, too, with 'pinstripe connect --clear-names'.
    #[arg(long)]
    catalog_clear_names: bool,

    /// Append one JSON object for each request to this file, without secrets
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    access_log: Option<PathBuf>,

    /// The time limit of open requests after a signal that ends the server
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, default_value = "30s")]
    drain: Time,
}

#[derive(clap::Subcommand)]
enum ServeVerb {
    /// Check the table [serve] of the config file, and the files and programs that it names
    CheckConfig,
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

/// How often the store is opened again while some members do not answer.
const REOPEN: Duration = Duration::from_secs(10);

/// The time that a server waits for a member, without --member-timeout.
const SERVER_WAIT: Duration = Duration::from_secs(10);

/// What a server reads again after SIGHUP.
struct Settings {
    entry: ServeEntry,
    /// The config file, for the jobs.
    file: Option<PathBuf>,
}

impl Settings {
    fn load(run: &Run) -> Result<Settings> {
        let (config, file) = Config::load(&run.common)?;
        let entry = config.serve.unwrap_or_default();
        plan::check(&entry)?;
        let file = file.map(|file| std::path::absolute(&file).unwrap_or(file));
        Ok(Settings { entry, file })
    }

    /// The jobs for a volume.
    fn jobs(&self, volume: &ServedVolume) -> Result<JobPlans> {
        let has_jobs = !self.entry.jobs.is_empty() || self.entry.replace.is_some();
        if has_jobs && !volume.is_store {
            let what = "the config file has jobs, but an exported directory has none: a host of \
                        its store runs them";
            return Err(Error::new(Kind::Usage, what)
                .advice("remove [serve.job] and [serve.replace], or name another --config"));
        }
        let places: Vec<_> = volume.members.values().map(|it| it.place().to_path_buf()).collect();
        Ok(plan::jobs(&self.entry, &plan::program(self.file.as_deref(), &places)?))
    }
}

/// A server that runs, and what it needs to read its settings again.
struct Serving<'a> {
    args: &'a ServeArgs,
    run: &'a Run,
    state: &'a Path,
    server: &'a StoreServer,
    /// The open store; it is kept as long as its members are served.
    store: Mutex<Option<Store>>,
    settings: Mutex<Settings>,
    reopened: Mutex<Instant>,
}

impl ServeArgs {
    /// Serves until a signal ends the run.
    ///
    /// # Errors
    /// Fails if the store cannot be opened or the address cannot be used.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        if let Some(ServeVerb::CheckConfig) = self.verb {
            return check_config(run);
        }
        let (stop, reloads) = signals::catch_as_server()?;
        // A member that was silent is used again when it answers: a host that could not write to it
        // has counted it as failed, and writes nothing more to it.
        run.wait_as_reader(Some(member_wait(run.common.member_timeout)));
        let settings = Settings::load(run)?;
        let (volume, store) = self.volume(run)?;
        let catalog = self.catalog(&settings.entry, store.as_ref())?;
        if let Some(catalog) = catalog.as_ref().filter(|it| it.is_remote()) {
            run.monitor.note(&format!("the connection to {} is not encrypted", catalog.shown()));
        }
        let state = match &self.state {
            Some(state) => state.clone(),
            None => default_state(volume.id)?,
        };
        let identity = self.read_key(&state)?;
        let (id, pin) = (volume.id, identity.pin);
        let members = volume.members.len() as u64;
        let socket = Listening::open(self)?;
        let listens = socket.address()?;
        let address = self.address.clone().unwrap_or_else(|| own_address(listens));
        let options = ServerOptions {
            jobs: settings.jobs(&volume)?,
            alarms: plan::alarms(settings.entry.alarm.as_ref())?,
            catalog,
            volumes: vec![volume],
            state: state.clone(),
            identity,
            client_authority: self.client_authority()?,
            access_log: self.access_log.as_deref().map(AccessLog::open).transpose()?,
            drain: self.drain.0,
            address: address.clone(),
        };
        let server = StoreServer::from_socket(socket.0, options)?;
        let facts = ServerFacts {
            address: address.clone(),
            volumes: vec![id.to_string()],
            own: self.own_key(),
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
        let (state, server) = (state.as_path(), &server);
        let (store, reopened) = (Mutex::new(store), Mutex::new(clock::monotonic()));
        let settings = Mutex::new(settings);
        let serving = Serving { args: self, run, state, server, store, settings, reopened };
        server.run(stop.as_flag(), &|| serving.tick(&reloads));
        drop(serving);
        run.screen.say("the server has ended");
        Ok(Ending::done(Event::default().with("store", id.to_string())))
    }

    /// The administrator's own certificate and key.
    fn own_key(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls_certificate.clone().zip(self.tls_key.clone())
    }

    fn client_authority(&self) -> Result<Option<ClientAuthority>> {
        self.client_ca.as_deref().map(ClientAuthority::from_file).transpose()
    }

    fn read_key(&self, state: &Path) -> Result<ServerKey> {
        match self.own_key() {
            Some((certificate, key)) => ServerKey::from_files(&certificate, &key),
            None => ServerKey::open(state),
        }
    }

    /// The database of the shared catalog.
    fn catalog(&self, entry: &ServeEntry, store: Option<&Store>) -> Result<Option<DatabaseTarget>> {
        let database =
            plan::database(self.catalog.as_deref(), self.catalog_password_file.as_deref(), entry)?;
        let Some(database) = database else { return Ok(None) };
        let Some(store) = store else {
            let what = "an exported directory has no shared catalog, because it is not a store";
            return Err(Error::new(Kind::Usage, what).advice("omit --catalog"));
        };
        let allows_names = self.catalog_clear_names || entry.catalog_clear_names;
        if store.config.encryption != Encryption::None && !allows_names {
            let what = "the store is encrypted, but the names of files would be in clear text in \
                        the database of the shared catalog";
            return Err(Error::new(Kind::Refused, what).advice(
                "omit --catalog, or allow it with --catalog-clear-names and, on each host, \
                 'pinstripe connect --clear-names'",
            ));
        }
        Ok(Some(database))
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
        Ok((volume_of(&store), Some(store)))
    }
}

/// How long the server waits for a member: less than hosts wait for the server, unless the user says
/// so, because one request of a host is about all members.
fn member_wait(given: Option<Time>) -> Duration {
    given.map_or(SERVER_WAIT, |it| it.0)
}

/// The members of a store, those that are absent included.
fn volume_of(store: &Store) -> ServedVolume {
    let (mut members, mut absent) = (BTreeMap::new(), BTreeMap::new());
    for (number, slot) in (0..).zip(&store.member_slots) {
        match &slot.member {
            Some(member) => drop(members.insert(number, Arc::clone(member))),
            None if slot.row.is_some() => drop(absent.insert(number, slot.place.clone())),
            None => {}
        }
    }
    ServedVolume { id: store.config.store, is_store: true, members, absent }
}

/// `pinstripe serve check-config`.
fn check_config(run: &Run) -> Result<Ending> {
    let Settings { entry, file } = Settings::load(run)?;
    let Some(file) = file else {
        return Err(Error::new(Kind::NotFound, "there is no config file")
            .advice("give one with --config, or run 'serve' without jobs and alarms"));
    };
    let jobs = counted(entry.jobs.len() as u64, "job");
    let spares = entry.replace.as_ref().map_or(0, |it| it.spares.len());
    let channels = plan::alarms(entry.alarm.as_ref())?.channel_count();
    let database = plan::database(None, None, &entry)?;
    if let Some(database) = &database {
        let version = database.check()?;
        let shown = database.shown();
        run.screen.say(&format!("the shared catalog {shown} answers: PostgreSQL {version}"));
    }
    run.screen.say(&format!(
        "the table [serve] of {} is valid; it has {jobs}, {}, {}",
        escape::path(&file),
        counted(spares as u64, "spare"),
        counted(channels as u64, "alarm channel"),
    ));
    let facts = Event::default().with("jobs", entry.jobs.len()).with("spares", spares);
    Ok(Ending::done(facts.with("alarm_channels", channels)))
}

impl Serving<'_> {
    /// Called several times a second: reads again what SIGHUP asks for, and opens the store again
    /// if members do not answer.
    fn tick(&self, reloads: &AtomicBool) {
        if reloads.swap(false, Ordering::Relaxed) {
            match self.reload() {
                Ok(()) => {
                    self.run.screen.say("the certificates and the config file were read again");
                    self.server.add_event(false, "certificates and config file were read again");
                }
                Err(error) => {
                    let what = format!("the settings in use did not change: {error}");
                    self.server.add_event(true, &what);
                    self.run.monitor.warning(self.state, error);
                }
            }
            self.reopen();
        } else if self.server.misses_members() && clock::since(*lock(&self.reopened)) >= REOPEN {
            self.reopen();
        }
    }

    fn reload(&self) -> Result<()> {
        let settings = Settings::load(self.run)?;
        let volume = self.server.volume();
        let jobs = settings.jobs(&volume)?;
        let alarms = plan::alarms(settings.entry.alarm.as_ref())?;
        let authority = self.args.client_authority()?;
        self.server.set_identity(self.args.read_key(self.state)?, authority.as_ref())?;
        if let Some(log) = &self.args.access_log {
            self.server.set_access_log(AccessLog::open(log)?);
        }
        self.server.set_jobs(jobs);
        self.server.set_alarms(&alarms);
        *lock(&self.settings) = settings;
        Ok(())
    }

    /// Opens the store again, so that members that came back, moved or were replaced are served.
    fn reopen(&self) {
        let mut store = lock(&self.store);
        if store.is_some() {
            // A store that cannot be opened now is served as before.
            if let Ok(opened) = self.run.open_locked() {
                let volume = volume_of(&opened);
                // The jobs name the places of the members.
                if let Ok(jobs) = lock(&self.settings).jobs(&volume) {
                    self.server.set_jobs(jobs);
                }
                self.server.set_volume(volume);
                *store = Some(opened);
            }
        }
        *lock(&self.reopened) = clock::monotonic();
    }
}

/// The socket of a server.
struct Listening(OwnedFd);

impl Listening {
    fn open(args: &ServeArgs) -> Result<Listening> {
        match system::activated_socket() {
            Some(socket) => Ok(Listening(socket)),
            None => StoreServer::listen_at(resolve(&args.listen)?).map(Listening),
        }
    }

    fn address(&self) -> Result<SocketAddr> {
        let failed = |error| Error::io("cannot read", "the address", error);
        let copy = self.0.try_clone().map_err(failed)?;
        TcpListener::from(copy).local_addr().map_err(failed)
    }
}

/// A directory as a volume; one that is missing or empty becomes a member.
fn exported(run: &Run, dir: &Path) -> Result<ServedVolume> {
    let member = match paths::exists(&dir.join(ExtentName::Label.path())) {
        true => Arc::new(DirectoryMember::open(dir)?),
        false => match DirectoryMember::open(dir) {
            Ok(member) => Arc::new(member) as pinstripe_member::SharedMember,
            Err(_) => Places::default().create(dir)?.member,
        },
    };
    let place = pinstripe_member::real(dir).map_err(|e| Error::io("cannot open", dir, e))?;
    let watched = pinstripe_member::WatchedMember::new(member, run.patience());
    let members = BTreeMap::from([(0, Arc::new(watched) as _)]);
    Ok(ServedVolume { id: export_id(&place), is_store: false, members, absent: BTreeMap::new() })
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    /// The default of other verbs, too, if it is given.
    #[test]
    fn a_member_timeout_that_is_given_is_used() {
        let wait = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string());
            member_wait(cli.unwrap().common.member_timeout)
        };
        assert_eq!(wait("pinstripe serve"), SERVER_WAIT);
        assert_eq!(wait("pinstripe serve --member-timeout 30s"), Duration::from_secs(30));
        assert_eq!(wait("pinstripe serve --member-timeout 2m"), Duration::from_secs(120));
    }
}
