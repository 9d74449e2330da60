//! The state that a member in a bucket and its writers share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_base::error::{Error, Result};
use pinstripe_member::ExtentName;
use pinstripe_member::label::MemberFacts;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::blocks::Blocks;
use crate::fault::Fault;
use crate::kept::Kept;
use crate::lock::Lock;
use crate::locks::RankedMutex;
use crate::place::BucketPlace;
use crate::prefetch::{self, Asker, ListPrefetch};
use crate::session::Session;
use crate::tails::Tails;

/// The length.
pub(crate) const EXTENT_BYTES: u64 = 16 << 20;

/// The bytes of a put in progress, and its answer.
pub(crate) type Sending = (Vec<u8>, JoinHandle<Result<Option<String>, Fault>>);

/// The state that a member and its writers share.
pub struct Inner {
    pub session: Arc<Session>,
    pub runtime: Arc<Runtime>,
    pub place: BucketPlace,
    pub tails: Tails,
    /// The cached blocks, which all members share; their keys include the number of the member.
    pub blocks: Arc<Blocks>,
    /// Prefetched answers.
    pub prefetch: ListPrefetch,
    /// Puts that were begun before the calls that wait for them.
    pub puts: RankedMutex<HashMap<ExtentName, Sending>>,
    pub kept: Kept,
    /// The facts about this member in the store's table.
    pub facts: RankedMutex<MemberFacts>,
    /// Whether packs were deleted here since the reserve was last completed.
    pub has_freed: AtomicBool,
    pub number: u64,
    pub path: PathBuf,
}

impl Inner {
    /// Forgets the cached bytes of an extent.
    pub fn forget(&self, name: ExtentName) {
        self.tails.forget(name);
        self.blocks.forget((self.number, name));
    }

    /// Adds an object that was put to this host's cache, with the tag that the next listing will
    /// show.
    pub fn keep(&self, name: ExtentName, tag: Option<String>, bytes: &[u8]) {
        let Some(tag) = tag else { return };
        self.kept.put(&self.place, name, &prefetch::as_fetched(name, tag, bytes));
    }

    /// A handle with which other threads can send requests.
    pub(crate) fn asker(&self) -> Asker {
        let (session, place) = (Arc::clone(&self.session), self.place.clone());
        Asker { session, place, kept: self.kept.clone() }
    }

    /// Sets the facts about this member.
    pub fn agree(&self, facts: &MemberFacts) {
        self.session.has_one_writer.store(facts.has_one_writer(), Ordering::Relaxed);
        *self.facts.lock() = *facts;
    }

    /// The facts about this member in the store's table.
    pub fn facts(&self) -> MemberFacts {
        *self.facts.lock()
    }

    /// The lock for an object with this name that is put now.
    pub fn lock(&self, name: ExtentName) -> Option<Lock> {
        Lock::for_extent(name, self.facts().retention)
    }

    /// The error of a call about a name below the prefix.
    pub fn error(&self, fault: &Fault, act: &str, name: &str) -> Error {
        self.session.error(fault, act, self.path.join(name))
    }
}
