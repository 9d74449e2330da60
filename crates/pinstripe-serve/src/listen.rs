//! Accepts connections, with limits, until the server ends.

#![allow(clippy::disallowed_methods, reason = "opens the socket of the server, and has threads")]

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::{Request, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::access_log::{AccessLog, LoggedRequest};
use crate::alarms::Alarms;
use crate::answer::refusal;
use crate::app::{App, Records, VolumeState};
use crate::auth::Gate;
use crate::catalog::{DatabaseTarget, SharedTables};
use crate::events::EventLog;
use crate::identity::ServerKey;
use crate::jobs::{JobPlans, JobResult, Jobs, outcome, run_due};
use crate::ledger::Ledger;
use crate::notify::{AlarmTargets, Channel, deliver};
use crate::routes;
use crate::state_file;
use crate::tls::{self, ClientAuthority, HANDSHAKE, PeerNames};
use crate::tokens::TokenStore;
use crate::volume::ServedVolume;

/// The most connections at once, if the limit of open files allows them; further ones wait to be
/// accepted.
const CONNECTIONS_MAX: u64 = 16 << 10;
/// The most connections that wait to be accepted, if the system allows as many.
const QUEUE: i32 = 4096;
/// The job that deletes objects without a request to the server.
const GC: &str = "gc";
/// The longest time that a connection may stay idle or send a header.
const HEADER: Duration = Duration::from_secs(30);
/// How often the flag that ends the server is read.
const TICK: Duration = Duration::from_millis(100);
/// The most bytes of the headers of a request.
const HEADERS_MAX_BYTES: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// The windows and streams of HTTP/2.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;
const STREAMS_MAX: u32 = 64;
/// The most threads that call members.
const BLOCKING_THREADS: usize = 160;

/// What a server serves, and where its state is.
pub struct ServerOptions {
    /// Stores and exported directories.
    pub volumes: Vec<ServedVolume>,
    /// The directory of the server's state: tokens, keys, and who put what.
    pub state: PathBuf,
    /// The server's key.
    pub identity: ServerKey,
    /// The authorities that must have signed the certificates of clients; `None` requires none.
    pub client_authority: Option<ClientAuthority>,
    /// The log of all requests.
    pub access_log: Option<AccessLog>,
    /// The time limit of open requests when the server ends.
    pub drain: Duration,
    /// The address at which hosts reach the server, for the messages of alarms.
    pub address: String,
    /// The jobs.
    pub jobs: JobPlans,
    /// Where alarms are sent.
    pub alarms: AlarmTargets,
    /// The database of the catalog that the hosts of the first volume share.
    pub catalog: Option<DatabaseTarget>,
}

/// A server that listens.
pub struct StoreServer {
    runtime: Runtime,
    listener: TcpListener,
    router: Router,
    app: Arc<App>,
    log: Arc<RwLock<Option<AccessLog>>>,
    config: RwLock<Arc<ServerConfig>>,
    drain: Duration,
    /// When the server began, in seconds since 1970.
    began_seconds: i64,
    /// The address at which hosts reach the server.
    public: String,
    /// The tasks that send alarms.
    senders: Mutex<Vec<JoinHandle<()>>>,
}

impl StoreServer {
    /// Listens at an address.
    ///
    /// # Errors
    /// Fails if the address cannot be used.
    pub fn listen_at(address: SocketAddr) -> Result<OwnedFd> {
        let listener = std::net::TcpListener::bind(address).map_err(|error| {
            let in_use = error.kind() == std::io::ErrorKind::AddrInUse;
            let error = Error::io("cannot listen", address.to_string(), error);
            match in_use {
                true => error.advice("another program uses this port: name another with --listen"),
                false => error,
            }
        })?;
        // The standard library asks for a queue of 128 connections, which a flood fills.
        rustix::net::listen(&listener, QUEUE)
            .map_err(std::io::Error::from)
            .map_err(|error| Error::io("cannot listen", address.to_string(), error))?;
        Ok(listener.into())
    }

    /// Uses a socket that listens, for example one that a service manager has opened.
    ///
    /// # Errors
    /// Fails with the errors of the state's files.
    pub fn from_socket(socket: OwnedFd, options: ServerOptions) -> Result<StoreServer> {
        let listener = std::net::TcpListener::from(socket);
        let failed = |error| Error::io("cannot set up", "the server", error);
        let ServerOptions { volumes, state, identity, client_authority, .. } = options;
        let ServerOptions { access_log, drain, address, jobs, alarms, catalog, .. } = options;
        state_file::make_directory(&state)?;
        let served = volumes.into_iter().map(|volume| {
            let ledger = Ledger::open(&state.join(format!("owners-{}", volume.id)))?;
            Ok(VolumeState::new(volume, ledger))
        });
        let served = served.collect::<Result<Vec<_>>>()?;
        let pins = [Some(identity.pin), identity.next_pin].into_iter().flatten();
        let pins = pins.map(|pin| pin.to_string()).collect();
        let records = Records {
            events: EventLog::open(&state)?,
            alarms: Alarms::open(&state)?,
            jobs: Jobs::open(&state, jobs)?,
        };
        let store = served.first().map(|it| it.volume().id);
        let catalog = store.zip(catalog).map(|(id, it)| Arc::new(SharedTables::new(id, it)));
        let app = App::new(Gate::new(TokenStore::new(&state)), served, pins, records, catalog);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("serve")
            .max_blocking_threads(BLOCKING_THREADS)
            .enable_all()
            .build()
            .map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener).map_err(failed)?
        };
        let config = RwLock::new(tls::server_config(identity, client_authority.as_ref())?);
        let server = StoreServer {
            runtime,
            listener,
            router: routes::router(&app),
            app,
            log: Arc::new(RwLock::new(access_log)),
            config,
            drain,
            began_seconds: clock::now().0,
            public: address,
            senders: Mutex::default(),
        };
        server.set_alarms(&alarms);
        Ok(server)
    }

    /// The address at which the server listens.
    ///
    /// # Errors
    /// Fails with the errors of the operating system.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|error| Error::io("cannot read", "the address", error))
    }

    /// Uses another key, and other authorities of clients, for new connections.
    ///
    /// # Errors
    /// Fails if key and certificate do not match.
    pub fn set_identity(
        &self,
        identity: ServerKey,
        authority: Option<&ClientAuthority>,
    ) -> Result<()> {
        *sync::write(&self.config) = tls::server_config(identity, authority)?;
        Ok(())
    }

    /// Writes the log to another file from now on: the same path after a rotation, for example.
    pub fn set_access_log(&self, log: AccessLog) {
        *sync::write(&self.log) = Some(log);
    }

    /// The volume that the server serves.
    pub fn volume(&self) -> Arc<ServedVolume> {
        self.app.volumes[0].volume()
    }

    /// Uses other members of a volume from now on, for example after a replacement.
    pub fn set_volume(&self, volume: ServedVolume) {
        if let Some(served) = self.app.volumes.iter().find(|it| it.volume().id == volume.id) {
            served.set_volume(volume);
        }
    }

    /// Whether a member of a volume is absent or does not answer.
    pub fn misses_members(&self) -> bool {
        !self.app.silent_members().is_empty()
    }

    /// Uses other plans for jobs from now on.
    pub fn set_jobs(&self, jobs: JobPlans) {
        self.app.jobs.set_plans(jobs);
    }

    /// Adds an event to the log of the server.
    pub fn add_event(&self, is_bad: bool, what: &str) {
        self.app.events.add(is_bad, what);
    }

    /// Serves until `ends` is set; then ends when the open requests are answered, at the latest
    /// after the time that the options give. `at_tick` is called several times a second, on a thread
    /// of its own.
    pub fn run(&self, ends: &AtomicBool, at_tick: &(dyn Fn() + Sync)) {
        self.app.events.add(false, "the server has started");
        std::thread::scope(|scope| {
            scope.spawn(|| self.run_jobs(ends));
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    at_tick();
                    clock::sleep(TICK);
                }
            });
            self.runtime.block_on(self.serve(ends));
        });
        self.app.events.add(false, "the server has ended");
    }

    fn run_jobs(&self, ends: &AtomicBool) {
        let events = &self.app.events;
        // What the process before this one recorded, and did not put, is not being put any more.
        self.app.settle_ledgers_until(self.began_seconds);
        let ended = |name: &str, result: &Result<JobResult>| match result {
            Ok(result) => {
                let what = format!("job {name}: {} {}", outcome(result), result.messages);
                events.add(!result.is_good(), what.trim_end());
                if name == GC {
                    self.app.settle_ledgers();
                }
            }
            Err(error) => events.add(true, format!("the result of job {name} is lost: {error}")),
        };
        run_due(&self.app.jobs, ends, || self.app.silent_members(), ended);
    }

    /// Sends alarms to these targets from now on.
    pub fn set_alarms(&self, targets: &AlarmTargets) {
        let mut senders = sync::lock(&self.senders);
        senders.drain(..).for_each(|it| it.abort());
        let channels = targets.channels();
        let names: Vec<_> = channels.iter().map(Channel::name).collect();
        if names.is_empty() {
            self.app.alarms.drop_unsent();
        }
        let sender = |channel| {
            let (alarms, events) = (Arc::clone(&self.app.alarms), Arc::clone(&self.app.events));
            let server = self.public.clone();
            self.runtime.spawn(deliver(alarms, events, channel, names.clone(), server))
        };
        senders.extend(channels.into_iter().map(sender));
    }

    async fn serve(&self, ends: &AtomicBool) {
        self.runtime.spawn(Arc::clone(&self.app).watch());
        let slots = Arc::new(Semaphore::new(connections_max()));
        let graceful = GracefulShutdown::new();
        while !ends.load(Ordering::Relaxed) {
            let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                sleep(TICK).await;
                continue;
            };
            let stream = match timeout(TICK, self.listener.accept()).await {
                Ok(Ok((stream, _))) => stream,
                // Too many open files, for example: the connections that end free some.
                Ok(Err(_)) => {
                    sleep(TICK).await;
                    continue;
                }
                Err(_) => continue,
            };
            let acceptor = TlsAcceptor::from(Arc::clone(&sync::read(&self.config)));
            let (router, watcher) = (self.router.clone(), graceful.watcher());
            let seen = RequestsSeen { app: Arc::clone(&self.app), log: Arc::clone(&self.log) };
            self.runtime.spawn(async move {
                let _slot = slot;
                converse(stream, acceptor, router, seen, watcher).await;
            });
        }
        let _ = timeout(self.drain, graceful.shutdown()).await;
    }
}

/// Half of the open files are left to members, logs and commands.
fn connections_max() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = files.map_or(CONNECTIONS_MAX, |files| CONNECTIONS_MAX.min(files / 2));
    usize::try_from(most.max(1)).unwrap_or(1)
}

/// Counts and logs requests.
#[derive(Clone)]
struct RequestsSeen {
    app: Arc<App>,
    log: Arc<RwLock<Option<AccessLog>>>,
}

impl RequestsSeen {
    fn count(&self, request: &LoggedRequest, status: u16, elapsed: Duration) {
        self.app.metrics.count(request.method(), status, elapsed);
        if let Some(log) = &*sync::read(&self.log) {
            log.write(request, status, elapsed);
        }
    }
}

/// Serves one connection.
async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    seen: RequestsSeen,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let _ = stream.set_nodelay(true);
    let Some(stream) = tls::accept(stream, acceptor).await else { return };
    let names = PeerNames::of_connection(&stream);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADERS_MAX_BYTES.max(64 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_MAX_BYTES as u32)
        .keep_alive_interval(HEADER)
        .keep_alive_timeout(HANDSHAKE);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (mut router, seen, names) = (router.clone(), seen.clone(), names.clone());
        async move {
            let began = clock::monotonic();
            let logged = LoggedRequest::new(request.method(), request.uri(), request.headers());
            let refused = names.as_ref().map(|it| seen.app.require_peer(it, request.headers()));
            let answered = match refused {
                Some(Err(error)) => Ok(refusal(&error)),
                _ => {
                    names.map(|names| request.extensions_mut().insert(names));
                    router.call(request.map(axum::body::Body::new)).await
                }
            };
            if let Ok(response) = &answered {
                seen.count(&logged, response.status().as_u16(), clock::since(began));
            }
            answered
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    // What ends a connection is the client's matter.
    let _ = watcher.watch(connection).await;
}
