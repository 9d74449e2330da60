//! The state that all requests share, and which requests are admitted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use axum::http::HeaderMap;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_base::sync::{self, lock};
use pinstripe_member::{Caps, ExtentKind, ExtentName, SharedMember};
use pinstripe_remote::{MemberProperties, PAGE_NAMES};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::alarms::Alarms;
use crate::auth::Gate;
use crate::catalog::SharedTables;
use crate::events::EventLog;
use crate::jobs::Jobs;
use crate::ledger::Ledger;
use crate::logins::Logins;
use crate::metrics::RequestMetrics;
use crate::open_sets::OpenSets;
use crate::role::{Deed, Ownership, TokenRole};
use crate::status::MemberState;
use crate::tokens::HostToken;
use crate::volume::ServedVolume;

/// The most calls of members that run at once; others wait.
const CALLS_MAX: usize = 128;
/// The most requests with much data that are carried out at once; others wait. Each has about a
/// row of strips in memory.
const BULK_MAX: usize = 32;
/// The most listings that are kept for the requests of their next pages.
const LISTINGS_MAX: usize = 32;
/// How long a listing is kept.
const LISTING_AGE: std::time::Duration = std::time::Duration::from_secs(60);

/// What all requests share.
pub(crate) struct App {
    pub gate: Gate,
    pub volumes: Vec<VolumeState>,
    pub pins: Vec<String>,
    pub calls: Arc<Semaphore>,
    bulk: Arc<Semaphore>,
    pub logins: Logins,
    pub metrics: RequestMetrics,
    pub events: Arc<EventLog>,
    pub alarms: Arc<Alarms>,
    pub jobs: Arc<Jobs>,
    /// The shared catalog of the first volume.
    pub catalog: Option<Arc<SharedTables>>,
    listings: Mutex<HashMap<ListingKey, Listing>>,
}

/// What the server itself records, in its state directory.
pub(crate) struct Records {
    pub events: EventLog,
    pub alarms: Alarms,
    pub jobs: Jobs,
}

/// A volume with its ledger.
pub(crate) struct VolumeState {
    volume: RwLock<Arc<ServedVolume>>,
    pub ledger: Ledger,
    /// The state of the members at the last check.
    pub members: Mutex<Vec<MemberState>>,
    /// The sets that are open for reading.
    pub sets: OpenSets,
    /// Reads that failed, by member.
    failed_reads: Mutex<BTreeMap<u16, u64>>,
}

type ListingKey = (String, StoreId, u16, ExtentKind);

struct Listing {
    names: Arc<Vec<([u8; 16], u64)>>,
    made: Instant,
}

/// A request that was admitted: its token, and the member that it names.
pub(crate) struct Admitted {
    pub token: HostToken,
    pub served: usize,
    pub number: u16,
    pub member: SharedMember,
}

impl App {
    pub fn new(
        gate: Gate,
        volumes: Vec<VolumeState>,
        pins: Vec<String>,
        Records { events, alarms, jobs }: Records,
        catalog: Option<Arc<SharedTables>>,
    ) -> Arc<App> {
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        let bulk = Arc::new(Semaphore::new(BULK_MAX));
        let (logins, metrics) = (Logins::default(), RequestMetrics::new());
        let listings = Mutex::default();
        Arc::new(App {
            gate,
            volumes,
            pins,
            calls,
            bulk,
            logins,
            metrics,
            events: Arc::new(events),
            alarms: Arc::new(alarms),
            jobs: Arc::new(jobs),
            catalog,
            listings,
        })
    }

    /// Admits a request for a volume. Returns the token and the position of the volume.
    pub(crate) fn admit_to_volume(
        &self,
        headers: &HeaderMap,
        volume: &str,
    ) -> Result<(HostToken, usize)> {
        let token = self.gate.admit(headers)?;
        let is_it = |it: &VolumeState| it.volume().id.to_string() == volume;
        let served = self.volumes.iter().position(is_it);
        let served = served
            .ok_or_else(|| Error::new(Kind::WrongMember, "this server has no such volume"))?;
        match token.volume == volume {
            true => Ok((token, served)),
            false => Err(Error::new(Kind::NotAllowed, "this token is for another store")),
        }
    }

    /// The shared catalog of the volume at a position.
    pub(crate) fn catalog_of(&self, served: usize) -> Option<&Arc<SharedTables>> {
        self.catalog.as_ref().filter(|it| it.store == self.volumes[served].volume().id)
    }

    /// Admits a request for a member.
    pub fn admit(&self, headers: &HeaderMap, volume: &str, member: &str) -> Result<Admitted> {
        let (token, served) = self.admit_to_volume(headers, volume)?;
        let unknown = |_| Error::new(Kind::WrongMember, "this server has no such member");
        let number: u16 = member.parse().map_err(unknown)?;
        let member = Arc::clone(self.volumes[served].volume().member(number)?);
        Ok(Admitted { token, served, number, member })
    }

    /// Runs a call of a member on a thread that may block.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let ended = || Error::new(Kind::Io, "the server is ending");
        let permit = Arc::clone(&self.calls).acquire_owned().await.map_err(|_| ended())?;
        let worked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        worked.await.map_err(panicked)?
    }

    /// Carries out a request that stores something to its end, also if the client goes away
    /// meanwhile: otherwise the work would stop between two members.
    pub async fn to_the_end<T: Send + 'static>(
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        tokio::spawn(work).await.map_err(panicked)?
    }

    /// Waits until another request with much data may be carried out: memory is bounded, and short
    /// requests find a free thread.
    pub async fn bulk(&self) -> Result<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.bulk).acquire_owned().await;
        permit.map_err(|_| Error::new(Kind::Io, "the server is ending"))
    }

    /// Refuses what the token's role does not allow.
    pub fn require(&self, admitted: &Admitted, deed: Deed, name: ExtentName) -> Result<()> {
        self.require_of(&admitted.token, admitted.served, deed, name)
    }

    /// Like [`require`](Self::require), for the volume at a position.
    pub(crate) fn require_of(
        &self,
        token: &HostToken,
        served: usize,
        deed: Deed,
        name: ExtentName,
    ) -> Result<()> {
        let ownership = self.volumes[served].ownership(name, &token.host);
        if token.role.may(deed, name, ownership, token.all_hosts) {
            return Ok(());
        }
        let deed = match deed {
            Deed::Read => "read",
            Deed::Create => "create",
            Deed::Replace => "replace",
            Deed::Delete => "delete",
        };
        let kind = match name {
            ExtentName::Label => "the label",
            ExtentName::In(kind, _) => kind.dir(),
        };
        let what = format!("a token with the role {} may not {deed} this in {kind}", token.role);
        Err(Error::new(Kind::NotAllowed, what)
            .advice("use a token with another role, which the server's administrator can add"))
    }
}

/// The properties of a member, as a token may use it.
pub(crate) fn properties_for(token: &HostToken, caps: Caps) -> MemberProperties {
    MemberProperties {
        free_bytes: caps.free_bytes,
        is_full: caps.is_full,
        is_append_only: caps.is_append_only || token.role != TokenRole::Admin,
    }
}

impl VolumeState {
    pub fn new(volume: ServedVolume, ledger: Ledger) -> Self {
        let volume = RwLock::new(Arc::new(volume));
        let (members, sets, failed_reads) = <(_, _, _)>::default();
        VolumeState { volume, ledger, members, sets, failed_reads }
    }

    /// Counts a read from a member, if it failed.
    pub(crate) fn count_read<T>(&self, member: u16, read: Result<T>) -> Result<T> {
        if read.as_ref().is_err_and(|it| matches!(it.kind(), Kind::Io | Kind::Unanswered)) {
            *lock(&self.failed_reads).entry(member).or_default() += 1;
        }
        read
    }

    /// The number of reads from a member that failed.
    pub(crate) fn failed_reads(&self, member: u16) -> u64 {
        lock(&self.failed_reads).get(&member).copied().unwrap_or(0)
    }

    /// The volume as it is now.
    pub fn volume(&self) -> Arc<ServedVolume> {
        Arc::clone(&sync::read(&self.volume))
    }

    /// Uses other members from now on.
    pub fn set_volume(&self, volume: ServedVolume) {
        debug_assert_eq!(self.volume().id, volume.id, "a volume keeps its id");
        *sync::write(&self.volume) = Arc::new(volume);
        self.sets.discard();
    }

    pub(crate) fn ownership(&self, name: ExtentName, host: &str) -> Ownership {
        if self.ledger.is_of(name, host) { Ownership::Own } else { Ownership::Other }
    }
}

impl App {
    /// Removes the names that the token may not see.
    pub(crate) fn retain_visible(
        &self,
        token: &HostToken,
        served: usize,
        kind: ExtentKind,
        names: &mut Vec<([u8; 16], u64)>,
    ) {
        if matches!(kind, ExtentKind::Snapshots | ExtentKind::Checkpoints) {
            let may_read = |id: &[u8; 16]| {
                self.require_of(token, served, Deed::Read, ExtentName::In(kind, *id)).is_ok()
            };
            names.retain(|(id, _)| may_read(id));
        }
    }

    /// The names that the token may see. The pages after the first are of the same listing.
    pub async fn listing(
        &self,
        admitted: &Admitted,
        kind: ExtentKind,
        continues: bool,
    ) -> Result<Arc<Vec<([u8; 16], u64)>>> {
        let Admitted { token, served, number, member } = admitted;
        let served = &self.volumes[*served];
        let key = (token.id.clone(), served.volume().id, *number, kind);
        if continues && let Some(known) = lock(&self.listings).get(&key) {
            return Ok(Arc::clone(&known.names));
        }
        let member = Arc::clone(member);
        let listed = self.call(move || member.list(kind)).await;
        let mut names = served.count_read(*number, listed)?;
        self.retain_visible(token, admitted.served, kind, &mut names);
        let names = Arc::new(names);
        if names.len() > PAGE_NAMES {
            let mut listings = lock(&self.listings);
            // Its later pages would otherwise come from an earlier listing.
            listings.remove(&key);
            listings.retain(|_, it| clock::since(it.made) < LISTING_AGE);
            if listings.len() < LISTINGS_MAX {
                let made = clock::monotonic();
                listings.insert(key, Listing { names: Arc::clone(&names), made });
            }
        }
        Ok(names)
    }
}

/// The error for work that panicked.
fn panicked(_: tokio::task::JoinError) -> Error {
    Error::new(Kind::Io, "the server failed to carry this out")
}
