//! A member below a prefix of a bucket.
//!
//! Extents are objects, and their keys are their paths below the prefix. An object that a PUT was
//! answered for is durable, and an unfinished one is not there: so there is nothing to sync and
//! nothing to sweep.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use object_store::path::Path as Key;
use object_store::{GetRange, PutPayload};
use pinstripe::format::label::{MemberAbility, MemberFacts};
use pinstripe::member::{
    Caps, ExtentName, ExtentWriter, Far, Glance, KeptLonger, Member, Replace, Room, goes_on,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::blocks::{self, BLOCK_BYTES, Blocks};
use crate::fault::Fault;
use crate::foresight::{Asker, Foresight};
use crate::kept::Kept;
use crate::key;
use crate::lock::Lock;
use crate::place::BucketPlace;
use crate::session::{LIST_MAX, Session};
use crate::tails::{TAIL_BYTES, Tail, Tails, has_tail};
use crate::writer::BucketWriter;

/// Extents that are sent side by side, and their length: at 100 ms one alone is mostly waiting.
const LANES: usize = 8;
const EXTENT_BYTES: u64 = 16 << 20;
/// Objects that are asked for side by side.
const READ_AT_ONCE: usize = 32;

/// A member in a bucket.
#[derive(Clone)]
pub struct BucketMember(Arc<Inner>);

/// The bytes of a put, and its answer.
type Sending = (Vec<u8>, JoinHandle<Result<(), Fault>>);

/// What a member and its writers share.
pub struct Inner {
    pub session: Arc<Session>,
    pub runtime: Arc<Runtime>,
    pub place: BucketPlace,
    pub tails: Tails,
    /// Of all members; this one's are known by its number.
    pub blocks: Arc<Blocks>,
    /// What a verb is about to ask.
    pub foresight: Foresight,
    /// Puts that were begun ahead of their calls.
    puts: Mutex<HashMap<ExtentName, Sending>>,
    kept: Kept,
    /// What the store's table says of this member.
    facts: Mutex<MemberFacts>,
    number: u64,
    path: PathBuf,
}

impl Inner {
    /// Forgets what is held of an extent.
    pub fn forget(&self, name: ExtentName) {
        self.tails.forget(name);
        self.blocks.forget((self.number, name));
    }

    /// Goes by this from now on.
    pub fn agree(&self, facts: &MemberFacts) {
        *lock(&self.facts) = *facts;
    }

    /// What the store's table says of this member.
    pub fn facts(&self) -> MemberFacts {
        *lock(&self.facts)
    }

    /// The lock of an object of this name that is put now.
    pub fn lock(&self, name: ExtentName) -> Option<Lock> {
        Lock::of(name, self.facts().retention)
    }

    /// The error of a call on a name below the prefix.
    pub fn error(&self, fault: &Fault, act: &str, name: &str) -> Error {
        self.session.error(fault, act, self.path.join(name))
    }
}

impl BucketMember {
    pub fn new(
        session: Session,
        runtime: Arc<Runtime>,
        place: BucketPlace,
        (blocks, number): (Arc<Blocks>, u64),
        kept: Kept,
    ) -> Self {
        let (path, session, tails) = (place.path(), Arc::new(session), Tails::default());
        let (foresight, puts) = (Foresight::default(), Mutex::default());
        BucketMember(Arc::new(Inner {
            session,
            runtime,
            place,
            tails,
            blocks,
            foresight,
            puts,
            kept,
            facts: Mutex::default(),
            number,
            path,
        }))
    }

    /// What its calls use.
    pub fn inner(&self) -> &Inner {
        &self.0
    }

    /// Makes sure that nothing but the leftover of a probe is below the prefix.
    ///
    /// # Errors
    /// [`Kind::Refused`] when something is; those of the endpoint.
    pub fn require_empty(&self) -> Result<()> {
        let Inner { session, runtime, place, path, .. } = &*self.0;
        let prefix = Key::from(place.prefix());
        let probe = key::key(place, key::PROBE).to_string();
        let foreign = |key: &str| (!key.starts_with(&probe)).then(|| key.to_owned());
        let listed = runtime
            .block_on(session.list(&prefix, 1000, |meta| foreign(meta.location.as_ref())))
            .map_err(|fault| session.error(&fault, "list", path))?;
        let Some(first) = listed.first() else { return Ok(()) };
        let advice = match self.len(ExtentName::Label).is_ok() {
            true => "it is a member of a store already; name another prefix",
            false => "name another prefix, as in s3://BUCKET/NAME",
        };
        Err(Error::new(Kind::Refused, "the prefix is not empty")
            .at(path)
            .expected("nothing below it", format!("'{first}'"))
            .advice(advice))
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
            return Err(Error::corrupt("too long for a small object", place)
                .expected(format!("at most {most_bytes} bytes"), got.object_bytes));
        }
        Ok(got.bytes)
    }

    /// The end of an extent, fetched now; what was held of the extent is forgotten.
    fn tail(&self, name: ExtentName) -> Result<Arc<Tail>, Fault> {
        let Inner { session, runtime, tails, blocks, foresight, number, .. } = &*self.0;
        self.0.forget(name);
        let (epoch, facts) = (tails.epoch(), self.0.facts());
        if let Some(got) = foresight.read(runtime, name) {
            blocks.learn((*number, name), got.object_bytes);
            let (head, bytes) = (got.head.clone(), got.bytes.clone());
            let tail = Tail { extent_bytes: got.object_bytes, head, bytes };
            return Ok(tails.keep(name, tail, epoch));
        }
        let range = match facts.knows(MemberAbility::RangesFromTheEnd) {
            // It cannot be asked so: the length costs a request of its own.
            Some(false) => {
                let bytes = runtime.block_on(session.len(&self.key(name)))?;
                GetRange::Bounded(bytes.saturating_sub(TAIL_BYTES)..bytes)
            }
            _ => GetRange::Suffix(TAIL_BYTES),
        };
        let got = runtime.block_on(session.get(&self.key(name), Some(range), TAIL_BYTES));
        let tail = match got {
            Ok(got) => Tail { extent_bytes: got.object_bytes, head: got.head, bytes: got.bytes },
            // An empty object has no end that could be asked for.
            Err(Fault::Odd(_) | Fault::Refused(_)) => {
                let extent_bytes = runtime.block_on(session.len(&self.key(name)))?;
                return Ok(Arc::new(Tail { extent_bytes, head: Vec::new(), bytes: Vec::new() }));
            }
            Err(fault) => return Err(fault),
        };
        blocks.learn((*number, name), tail.extent_bytes);
        Ok(tails.keep(name, tail, epoch))
    }

    /// Reads a range out of blocks, if it is to be read so and they have it.
    fn read_blocks(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Option<()> {
        if !has_tail(name) {
            return None;
        }
        let Inner { session, runtime, blocks, number, .. } = &*self.0;
        let extent = (*number, name);
        let fetch = |from: u64| {
            let (session, key) = (Arc::clone(session), self.key(name));
            let got = runtime.spawn(async move {
                let range = Some(GetRange::Bounded(from..from + BLOCK_BYTES));
                Ok(Bytes::from(session.get(&key, range, BLOCK_BYTES).await?.bytes))
            });
            got.map(|got| got.unwrap_or_else(|error| Err(Fault::Odd(error.to_string())))).boxed()
        };
        let found = blocks.of(extent, offset, buf.len() as u64, fetch)?;
        let found = runtime.block_on(session.patiently(futures_util::future::try_join_all(found)));
        let copied = found.ok().and_then(|found| blocks::copy(&found, offset, buf));
        if copied.is_none() {
            blocks.forget(extent);
        }
        copied
    }

    fn too_short(&self, name: ExtentName, offset: u64, wanted: usize, found: u64) -> Error {
        let end = u128::from(offset) + wanted as u128;
        Error::corrupt("the extent is too short", self.0.path.join(name.path()))
            .expected(format!("{end} bytes or more"), found)
    }
}

impl Member for BucketMember {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.0.forget(name);
        self.0.foresight.drop_all();
        let member = Arc::clone(&self.0);
        Ok(Box::new(BucketWriter::new(member, self.key(name), name, replace)))
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        let Inner { session, runtime, puts, .. } = &*self.0;
        let ahead = lock(puts).remove(&name).filter(|(sent, _)| sent == bytes);
        let ahead = ahead.and_then(|(_, sending)| runtime.block_on(sending).ok());
        let created = ahead.unwrap_or_else(|| {
            let payload = PutPayload::from(bytes.to_vec());
            let lock = self.0.lock(name);
            runtime.block_on(session.create(&self.key(name), &payload, lock.as_ref()))
        });
        // Listings that were begun before the answer may lack it.
        self.0.foresight.drop_all();
        created.map_err(|fault| self.failed(&fault, "write", name))
    }

    fn put_ahead(&self, name: ExtentName, bytes: &[u8]) {
        let Inner { session, runtime, puts, .. } = &*self.0;
        let (session, key) = (Arc::clone(session), self.key(name));
        let (payload, own) = (PutPayload::from(bytes.to_vec()), self.0.lock(name));
        let sending =
            runtime.spawn(async move { session.create(&key, &payload, own.as_ref()).await });
        lock(puts).insert(name, (bytes.to_vec(), sending));
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        if buf.is_empty() {
            return self.len(name).map(drop);
        }
        let Inner { session, runtime, .. } = &*self.0;
        let wanted = buf.len();
        // An offset that no object can have is not asked for: endpoints read it in many ways.
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
        let range = Some(GetRange::Bounded(offset..end));
        let got = runtime.block_on(session.get(&self.key(name), range, wanted as u64));
        match got {
            Ok(got) if got.bytes.len() == wanted => {
                if has_tail(name) {
                    self.0.blocks.learn((self.0.number, name), got.object_bytes);
                }
                buf.copy_from_slice(&got.bytes);
                Ok(())
            }
            Ok(got) => Err(self.too_short(name, offset, wanted, got.object_bytes)),
            // Behind the end: endpoints say so by a status that the client passes on as odd.
            Err(fault @ (Fault::Odd(_) | Fault::Refused(_))) => match self.len(name) {
                Ok(found) if found < end => Err(self.too_short(name, offset, wanted, found)),
                _ => Err(self.failed(&fault, "read", name)),
            },
            Err(fault) => Err(self.failed(&fault, "read", name)),
        }
    }

    /// What lies in the end of an extent that was looked at.
    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        let tail = self.0.tails.get(name);
        let held = tail.as_ref().and_then(|tail| tail.get(offset, buf.len()));
        held.map(|held| buf.copy_from_slice(held)).is_some()
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        let Inner { session, runtime, foresight, .. } = &*self.0;
        if !has_tail(name)
            && let Some(seen) = foresight.read(runtime, name)
        {
            return Ok(seen.object_bytes);
        }
        let found = match has_tail(name) {
            true => self.tail(name).map(|tail| tail.extent_bytes),
            false => runtime.block_on(session.len(&self.key(name))),
        };
        found.map_err(|fault| self.failed(&fault, "look at", name))
    }

    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        let Inner { foresight, runtime, .. } = &*self.0;
        let seen = |name: &ExtentName| foresight.read(runtime, *name).map(|got| got.bytes.clone());
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

    fn list(&self, room: Room) -> Result<Vec<([u8; 16], u64)>> {
        let Inner { session, runtime, place, path, foresight, .. } = &*self.0;
        if let Some(listed) = foresight.list(runtime, room) {
            return Ok(listed);
        }
        let prefix = key::key(place, room.dir());
        let listed = session.list(&prefix, LIST_MAX, |meta| {
            key::extent(place, room, &meta.location).map(|id| (id, meta.size))
        });
        let mut listed = runtime
            .block_on(listed)
            .map_err(|fault| session.error(&fault, "list", path.join(room.dir())))?;
        listed.sort_unstable();
        listed.dedup_by_key(|(id, _)| *id);
        Ok(listed)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        let Inner { session, runtime, .. } = &*self.0;
        self.0.forget(name);
        let deleted = runtime.block_on(session.delete(&self.key(name)));
        self.0.foresight.drop_all();
        deleted.map_err(|fault| self.failed(&fault, "delete", name))
    }

    fn foresee(&self, wanted: &[Glance]) {
        let Inner { session, runtime, place, foresight, kept, .. } = &*self.0;
        let (session, place, kept) = (Arc::clone(session), place.clone(), kept.clone());
        let asker = Asker { session, place, kept };
        foresight.begin(runtime, &asker, wanted);
    }

    fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger> {
        self.0.keep_longer(names)
    }

    fn sync(&self) -> Result<()> {
        Ok(()) // What was answered is durable.
    }

    fn sweep(&self) -> Result<u64> {
        Ok(0) // What is unfinished is not there.
    }

    fn caps(&self) -> Caps {
        let far = Some(Far { lanes: LANES, extent_bytes: EXTENT_BYTES });
        Caps { device: None, free_bytes: None, is_full: false, far }
    }

    fn latency(&self) -> Option<Duration> {
        self.0.session.endpoint.latency.mean()
    }

    fn place(&self) -> &Path {
        &self.0.path
    }
}
