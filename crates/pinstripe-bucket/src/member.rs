//! A member below a prefix of a bucket.
//!
//! Extents are objects, and their keys are their paths below the prefix. An object is durable once
//! its PUT is answered, and an incomplete one does not exist, so `sync` and `sweep` do nothing.

mod reads;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use object_store::PutPayload;
use object_store::path::Path as Key;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::label::MemberFacts;
use pinstripe_member::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, Far, KeptLonger, Member,
    PlannedStep, PrefetchHint, Replace, ServerOfMember, goes_on,
};
use tokio::runtime::Runtime;

use crate::blocks::Blocks;
use crate::fault::Fault;
use crate::inner::{EXTENT_BYTES, Inner};
use crate::kept::Kept;
use crate::key;
use crate::locks::{BucketLock, RankedMutex};
use crate::place::BucketPlace;
use crate::prefetch::ListPrefetch;
use crate::reserve;
use crate::session::{ObjectMark, Session};
use crate::tails::{Tails, has_tail};
use crate::writer::BucketWriter;

/// The number of extents that are sent in parallel: at a latency of 100 ms, a single one mostly
/// waits.
const PARALLEL_SEALS: usize = 8;
/// The number of long reads that are sent in parallel.
const READS: usize = 16;
/// The longest read that is sent as one request: a pack of one extent is read by two.
const SPAN_BYTES: u64 = 8 << 20;
/// The number of objects that are requested in parallel.
const READ_AT_ONCE: usize = 32;

/// A member in a bucket.
#[derive(Clone)]
pub(crate) struct BucketMember(Arc<Inner>);

impl BucketMember {
    pub fn new(
        session: Session,
        runtime: Arc<Runtime>,
        place: BucketPlace,
        (blocks, number): (Arc<Blocks>, u64),
        kept: Kept,
    ) -> Self {
        let (path, session, tails) = (place.path(), Arc::new(session), Tails::default());
        let (prefetch, puts) =
            (ListPrefetch::default(), RankedMutex::new(BucketLock::Puts, HashMap::new()));
        BucketMember(Arc::new(Inner {
            session,
            runtime,
            place,
            tails,
            blocks,
            prefetch,
            puts,
            kept,
            facts: RankedMutex::new(BucketLock::Facts, MemberFacts::default()),
            has_freed: AtomicBool::new(false),
            number,
            path,
        }))
    }

    /// The member's state.
    pub fn inner(&self) -> &Inner {
        &self.0
    }

    /// Verifies that nothing is below the prefix except leftovers of a probe and a reserve.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when other objects are there; with the errors of the endpoint.
    pub fn require_empty(&self) -> Result<()> {
        let Inner { session, runtime, place, path, .. } = &*self.0;
        let prefix = Key::from(place.prefix());
        let probe = key::key(place, key::PROBE).to_string();
        let reserve = format!("{}/", reserve::prefix(place));
        let is_own = |key: &str| key.starts_with(&probe) || key.starts_with(&reserve);
        let foreign = |key: &str| (!is_own(key)).then(|| key.to_owned());
        let listed = runtime
            .block_on(session.list(&prefix, 1000, |meta| foreign(meta.location.as_ref())))
            .map_err(|fault| session.error(&fault, "list", path))?;
        let Some(first) = listed.first() else { return Ok(()) };
        let advice = match self.len(ExtentName::Label).is_ok() {
            true => "this prefix is already a member of a store; give another prefix",
            false => "give another prefix, for example s3://BUCKET/NAME",
        };
        Err(Error::new(Kind::Refused, "the prefix is not empty")
            .at(path)
            .expected("no object with this prefix", format!("'{first}'"))
            .advice(advice))
    }

    /// A value that distinguishes the label from a copy of it: its entity tag and the time when it
    /// was put.
    ///
    /// # Errors
    /// Fails with the errors of the endpoint.
    pub fn label_mark(&self) -> Result<String> {
        let Inner { session, runtime, .. } = &*self.0;
        let looked = runtime.block_on(session.head(&self.key(ExtentName::Label)));
        let meta = looked.map_err(|fault| self.failed(&fault, "look at", ExtentName::Label))?;
        let ObjectMark { e_tag, modified } = ObjectMark::from_meta(&meta);
        Ok(format!("{e_tag} {modified}"))
    }

    fn key(&self, name: ExtentName) -> Key {
        key::key(&self.0.place, &name.path())
    }

    fn failed(&self, fault: &Fault, act: &str, name: ExtentName) -> Error {
        self.0.error(fault, act, &name.path())
    }

    async fn read_one(&self, name: ExtentName, most_bytes: u64) -> Result<Vec<u8>> {
        let got = self.0.session.get(&self.key(name), None, most_bytes).await;
        let got = got.map_err(|fault| self.failed(&fault, "read", name))?;
        if got.object_bytes > most_bytes {
            let place = self.0.path.join(name.path());
            return Err(Error::corrupt("the content is too long for a small object", place)
                .expected(format!("at most {most_bytes} bytes"), got.object_bytes));
        }
        Ok(got.bytes)
    }
}

impl Member for BucketMember {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.0.forget(name);
        self.0.prefetch.drop_all();
        let member = Arc::clone(&self.0);
        Ok(Box::new(BucketWriter::new(member, self.key(name), name, replace)))
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        let Inner { session, runtime, puts, .. } = &*self.0;
        let ahead = puts.lock().remove(&name).filter(|(sent, _)| sent == bytes);
        let ahead = ahead.and_then(|(_, sending)| runtime.block_on(sending).ok());
        let (key, payload) = (self.key(name), PutPayload::from(bytes.to_vec()));
        let lock = self.0.lock(name);
        let send = || session.create(&key, &payload, lock.as_ref());
        let created = runtime.block_on(self.0.with_reserve(name, ahead, send));
        // Listings begun before the answer may lack it.
        self.0.prefetch.drop_all();
        let tag = created.map_err(|fault| self.failed(&fault, "write", name))?;
        if let Err(several) = self.0.require_one_winner() {
            // No other object depends on it.
            let _ = self.delete(name);
            return Err(several);
        }
        self.0.keep(name, tag, bytes);
        Ok(())
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        if buf.is_empty() {
            return self.len(name).map(drop);
        }
        let wanted = buf.len();
        // Endpoints treat offsets beyond the longest object differently, so these are not
        // requested.
        let end = offset.checked_add(wanted as u64).filter(|end| *end <= i64::MAX as u64);
        let Some(end) = end else {
            return Err(self.too_short(name, offset, wanted, self.len(name)?));
        };
        let tail = self.0.tails.get(name);
        if let Some(bytes) = tail.as_ref().and_then(|tail| tail.get(offset, wanted)) {
            buf.copy_from_slice(bytes);
            return Ok(());
        }
        if self.read_blocks(name, offset, buf).is_some() {
            return Ok(());
        }
        let got = self.get(name, offset..end)?;
        if has_tail(name) {
            self.0.blocks.learn((self.0.number, name), got.object_bytes);
        }
        buf.copy_from_slice(&got.bytes);
        Ok(())
    }

    /// Reads from the fetched end of an extent; returns false if that end does not contain the
    /// range.
    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        let tail = self.0.tails.get(name);
        let held = tail.as_ref().and_then(|tail| tail.get(offset, buf.len()));
        held.map(|held| buf.copy_from_slice(held)).is_some()
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        let Inner { session, runtime, prefetch, .. } = &*self.0;
        if !has_tail(name)
            && let Some(seen) = prefetch.read(runtime, name)
        {
            return Ok(seen.object_bytes);
        }
        let found = match has_tail(name) {
            true => self.tail(name).map(|tail| tail.extent_bytes),
            false => runtime.block_on(session.len(&self.key(name))),
        };
        found.map_err(|fault| self.failed(&fault, "look at", name))
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        let Inner { session, runtime, place, path, prefetch, .. } = &*self.0;
        if let Some(listed) = prefetch.list(runtime, kind) {
            return Ok(listed);
        }
        let prefix = key::key(place, kind.dir());
        let listed = session.list_room(&prefix, |meta| {
            key::extent(place, kind, &meta.location).map(|id| (id, meta.size))
        });
        let mut listed = runtime
            .block_on(listed)
            .map_err(|fault| session.error(&fault, "list", path.join(kind.dir())))?;
        listed.sort_unstable();
        listed.dedup_by_key(|(id, _)| *id);
        Ok(listed)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        let Inner { session, runtime, .. } = &*self.0;
        self.0.forget(name);
        let deleted = runtime.block_on(session.delete(&self.key(name)));
        match name {
            ExtentName::In(ExtentKind::Packs, _) => self.0.has_freed.store(true, Ordering::Relaxed),
            ExtentName::Label => runtime.block_on(self.0.drop_reserve()),
            ExtentName::In(..) => {}
        }
        self.0.prefetch.drop_all();
        deleted.map_err(|fault| self.failed(&fault, "delete", name))
    }

    fn sync(&self) -> Result<()> {
        Ok(()) // An acknowledged write is durable.
    }

    fn sweep(&self) -> Result<u64> {
        Ok(0) // An unfinished object does not exist.
    }

    fn caps(&self) -> Caps {
        let extent_bytes = EXTENT_BYTES;
        let far =
            Some(Far { seals: PARALLEL_SEALS, extent_bytes, reads: READS, span_bytes: SPAN_BYTES });
        Caps { device: None, free_bytes: None, is_full: false, is_append_only: false, far }
    }

    fn place(&self) -> &Path {
        &self.0.path
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        Some(self)
    }
}

impl BatchedMember for BucketMember {
    fn put_ahead(&self, name: ExtentName, bytes: &[u8]) {
        let Inner { session, runtime, puts, .. } = &*self.0;
        let (session, key) = (Arc::clone(session), self.key(name));
        let (payload, own) = (PutPayload::from(bytes.to_vec()), self.0.lock(name));
        let sending =
            runtime.spawn(async move { session.create(&key, &payload, own.as_ref()).await });
        puts.lock().insert(name, (bytes.to_vec(), sending));
    }

    fn plan(&self, _: &[PlannedStep], _: usize) {}

    fn list_next(&self, _: PrefetchHint, _: bool) {}

    /// Reads a span without the cached blocks, since the bytes around it are not expected to be
    /// read.
    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let tail = self.0.tails.get(name);
        if let Some(held) = tail.as_ref().and_then(|tail| tail.get(offset, bytes)) {
            return Ok(held.to_vec());
        }
        match offset.checked_add(bytes as u64).filter(|end| bytes > 0 && *end <= i64::MAX as u64) {
            Some(end) => Ok(self.get(name, offset..end)?.bytes),
            None => {
                let mut span = vec![0; bytes];
                self.read_at(name, offset, &mut span)?;
                Ok(span)
            }
        }
    }

    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        let Inner { prefetch, runtime, .. } = &*self.0;
        let seen = |name: &ExtentName| prefetch.read(runtime, *name).map(|got| got.bytes.clone());
        let seen: Vec<_> = names.iter().map(|name| (*name, seen(name))).collect();
        let reads = seen.into_iter().map(|(name, seen)| async move {
            match seen.filter(|bytes| bytes.len() as u64 <= most_bytes) {
                Some(bytes) => Ok(bytes),
                None => self.read_one(name, most_bytes).await,
            }
        });
        let reads = futures_util::stream::iter(reads).buffered(READ_AT_ONCE);
        self.0.runtime.block_on(reads.inspect(|_| goes_on()).collect())
    }

    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        Ok(self.list(kind)?.into_iter().map(|(id, _)| id).collect())
    }

    fn prefetch(&self, wanted: &[PrefetchHint]) {
        let Inner { runtime, prefetch, .. } = &*self.0;
        prefetch.begin(runtime, &self.0.asker(), wanted);
    }

    /// Does nothing if the endpoint has no ranges from the end, because each extent would then cost
    /// two requests in sequence.
    fn open_ahead(&self, names: &[ExtentName]) {
        let Inner { runtime, prefetch, .. } = &*self.0;
        if self.0.has_ranges_from_the_end() {
            prefetch.begin_ends(runtime, &self.0.asker(), names);
        }
    }

    fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger> {
        self.0.keep_longer(names)
    }

    fn latency(&self) -> Option<Duration> {
        self.0.session.endpoint.latency.mean()
    }

    fn served(&self) -> Option<ServerOfMember> {
        None
    }
}
