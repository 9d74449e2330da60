//! Remote places: their normal form, and how they are opened.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe::Store;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
#[cfg(feature = "s3")]
use pinstripe_base::units::format_size;
use pinstripe_member::label::MemberFacts;
use pinstripe_member::{NewMember, Places, RemoteMembers, SharedMember};
use pinstripe_rados::{Pools, is_pool};
#[cfg(feature = "serve")]
use pinstripe_remote::is_served;
use pinstripe_split::RemoteOutputs;

use super::context::Run;
use crate::escape;
use crate::event::Event;
use crate::run::screen::Priority;

/// The packs that a verb would write, read and delete.
#[derive(Debug, Clone, Copy, Default)]
pub struct PackPlan {
    /// Bytes of content that would be written.
    pub written_bytes: u64,
    /// Bytes of content that would first be read from the members.
    pub read_bytes: u64,
    /// The number of packs that would be deleted.
    pub deleted_packs: u64,
    /// The bytes, on all members, of the packs that would be deleted.
    pub deleted_bytes: u64,
    /// The largest number of requests that the verb sends to a bucket, not counting requests for
    /// packs.
    pub requests_beside: u64,
}

/// Opens members of each kind, by the scheme of their places.
struct EachKind {
    pools: Arc<Pools>,
    #[cfg(feature = "serve")]
    served: Arc<super::served::ServedStores>,
    #[cfg(feature = "s3")]
    buckets: Arc<pinstripe_bucket::Buckets>,
}

impl EachKind {
    fn members_at(&self, place: &Path) -> Result<&dyn RemoteMembers> {
        if is_pool(place) {
            return Ok(&*self.pools);
        }
        #[cfg(feature = "serve")]
        if is_served(place) {
            return Ok(self.served.volumes());
        }
        #[cfg(feature = "s3")]
        return Ok(&*self.buckets);
        #[cfg(not(feature = "s3"))]
        Err(Error::new(Kind::Unsupported, "this program was built without support for buckets")
            .at(place)
            .advice("use a build of pinstripe with the feature 's3'"))
    }
}

impl RemoteMembers for EachKind {
    fn open(&self, place: &Path) -> Result<SharedMember> {
        self.members_at(place)?.open(place)
    }

    fn create(&self, place: &Path) -> Result<NewMember> {
        self.members_at(place)?.create(place)
    }

    fn agree(&self, place: &Path, facts: &MemberFacts) {
        // A member that cannot be opened is reported later, when it is used.
        if let Ok(kind) = self.members_at(place) {
            kind.agree(place, facts);
        }
    }

    fn served_place(
        &self,
        named: &Path,
        store: StoreId,
        recorded: &Path,
        number: u16,
    ) -> Option<PathBuf> {
        self.members_at(named).ok()?.served_place(named, store, recorded, number)
    }

    fn fate(&self, place: &Path) -> Result<String> {
        self.members_at(place)?.fate(place)
    }

    fn label_mark(&self, place: &Path) -> Result<Option<String>> {
        self.members_at(place)?.label_mark(place)
    }
}

/// Refuses paths that other programs take for a remote place, as in `sftp:host:path` or
/// `user@host:path`: here such a path would be a directory with an odd name.
fn refuse_remote_of_others(place: &Path) -> Result<()> {
    let bytes = place.as_os_str().as_bytes();
    let first = bytes.split(|&byte| byte == b'/').next().unwrap_or_default();
    if !first.contains(&b':') || place.exists() {
        return Ok(());
    }
    let shown = escape::path(place);
    Err(Error::new(
        Kind::Usage,
        "this looks like a remote location in the notation of another program",
    )
    .at(place)
    .advice(format!(
        "give a directory, s3://BUCKET/PREFIX or rados://POOL/NAMESPACE; to use any other remote \
         file system, mount it and give its directory; if this is the name of a directory, write \
         ./{shown}"
    )))
}

impl Run {
    /// Prints the expected cost of a plan, as far as it concerns buckets with prices in the config
    /// file, and returns it as facts of the summary.
    ///
    /// # Errors
    /// Fails with the errors of the config file.
    pub fn say_cost(&self, store: &Store, plan: &PackPlan) -> Result<Event> {
        #[cfg(feature = "s3")]
        return self.cost_of_plan(store, plan);
        #[cfg(not(feature = "s3"))]
        {
            let (Self { .. }, Store { .. }, PackPlan { .. }) = (self, store, plan);
            Ok(Event::default())
        }
    }

    /// The normal form of a place that a user named.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`](pinstripe_base::error::Kind::Usage) for an invalid remote place.
    pub fn place(&self, place: &Path) -> Result<PathBuf> {
        if is_pool(place) {
            return Ok(place.to_path_buf());
        }
        #[cfg(feature = "serve")]
        if let Some(place) = self.served().place(place)? {
            return Ok(place);
        }
        #[cfg(feature = "s3")]
        if pinstripe_member::is_remote(place) {
            return self.buckets().canonical(place);
        }
        refuse_remote_of_others(place)?;
        Ok(place.to_path_buf())
    }

    /// The normal form of each of these places.
    ///
    /// # Errors
    /// Fails with the errors of [`place`](Self::place).
    pub fn each_place(&self, places: &[PathBuf]) -> Result<Vec<PathBuf>> {
        places.iter().map(|place| self.place(place)).collect()
    }

    /// The shared catalog: this program was built without support for servers.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "serve"))]
    pub fn catalog_of_all(
        &self,
        _: &Store,
        _: bool,
    ) -> Result<Option<Box<dyn pinstripe_member::SharedCatalog>>> {
        Ok(None)
    }

    /// Returns the id of the token with which the store is used: this program cannot use a server.
    #[cfg(not(feature = "serve"))]
    pub fn token_of(&self, _: &Store) -> Option<String> {
        None
    }

    /// Whether the store is shown as it was at an earlier time.
    pub fn shows_past(&self) -> bool {
        #[cfg(feature = "s3")]
        return self.common.buckets.at.is_some();
        #[cfg(not(feature = "s3"))]
        false
    }

    /// The object that opens new members.
    pub fn to_places(&self) -> Places {
        Places { remote: self.remote(), steps: None }
    }

    /// Opens members that are not directories.
    pub fn remote(&self) -> Option<Arc<dyn RemoteMembers>> {
        Some(Arc::new(EachKind {
            pools: Arc::clone(self.pools()),
            #[cfg(feature = "serve")]
            served: Arc::clone(self.served()),
            #[cfg(feature = "s3")]
            buckets: Arc::clone(self.buckets()),
        }))
    }

    /// Opens outputs of a split that are not files.
    pub fn remote_outputs(&self) -> Option<Arc<dyn RemoteOutputs>> {
        #[cfg(feature = "s3")]
        return Some(Arc::clone(self.buckets()) as Arc<dyn RemoteOutputs>);
        #[cfg(not(feature = "s3"))]
        None
    }

    /// Reports how many deleted objects a bucket keeps as old versions.
    pub fn say_hidden(&self) {
        #[cfg(feature = "s3")]
        if let Some(requests) = self.asked_buckets().filter(|requests| requests.hidden > 0) {
            self.screen.say(&format!(
                "{} that were deleted stay in buckets as old versions until their retention has \
                 ended and the bucket's lifecycle rule removes them",
                crate::message::counted(requests.hidden, "object")
            ));
        }
    }

    /// Adds the requests to remote members to the summary, and prints them.
    pub fn add_requests(&self, summary: Event) -> Event {
        #[cfg(feature = "s3")]
        if let Some(requests) = self.asked_buckets() {
            let pinstripe_bucket::Requests { puts, gets, lists, deletes, retries, .. } = requests;
            let (up, down) = (requests.sent_bytes, requests.received_bytes);
            if !self.common.quiet && !self.common.json {
                // Not on standard output: that may be content.
                self.screen.complain(
                    Priority::Info,
                    &format!(
                        "pinstripe: requests to buckets: {puts} put, {gets} get, {lists} list, \
                     {deletes} delete, {retries} sent again; {} sent, {} received",
                        format_size(up),
                        format_size(down),
                    ),
                );
            }
            return self
                .add_price(summary)
                .with("request_puts", puts)
                .with("request_gets", gets)
                .with("request_lists", lists)
                .with("request_deletes", deletes)
                .with("request_hidden", requests.hidden)
                .with("request_retries", retries)
                .with("request_sent_bytes", up)
                .with("request_received_bytes", down);
        }
        summary
    }
}
