//! A device that consists of objects: an output of `split` below a prefix of a bucket.
//!
//! ```text
//! PREFIX/head              its first bytes, which are written again at the end
//! PREFIX/log-0000000000000000, -1, …   the rest in segments of 8 MiB, the last one shorter
//! ```
//!
//! Writes gather in memory until a segment is full. The thread that filled a segment sends it as
//! one PUT. A sync sends the segments that are not full. A missing segment reads as zeros, like a
//! hole: split logs have checksums of their own.
//!
//! An object is created only if none exists, and overwritten only by the output that created it or
//! found it on opening: if two programs write to one prefix, one of them gets an error.
//!
//! Invariants: only one thread sends a segment at a time, so that an older state never replaces a
//! newer one. Data that could not be sent stays in memory, and the error is reported. After a
//! failed sync, every later sync fails.

mod layout;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, MutexGuard};

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path as Key;
use object_store::{GetRange, PutPayload};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Caps, Device, end_within, too_short, write_parts};
use tokio::runtime::Runtime;

use self::layout::{BYTES_MAX, full_bytes, name, number, object_of, parts, range_of};
use crate::fault::Fault;
use crate::key;
use crate::listing::LIST_MAX;
use crate::locks::{BucketLock, Ranked, RankedMutex};
use crate::place::BucketPlace;
use crate::session::Session;

/// The most segments in memory that are not full; beyond that, one is sent although it is not full.
const OPEN_MAX: usize = 6;
/// The number of objects that a truncation removes in parallel.
const AT_ONCE: usize = 4;
/// The length of cached blocks, from which shorter reads are served; at most [`BLOCKS_MAX`] are
/// cached.
const BLOCK_BYTES: u64 = 1 << 20;
const BLOCKS_MAX: usize = 8;

/// An output below a prefix.
pub(crate) struct BucketOutput {
    session: Arc<Session>,
    runtime: Arc<Runtime>,
    place: BucketPlace,
    path: PathBuf,
    state: RankedMutex<OutputState>,
    /// Notified when a segment was sent.
    sent: Condvar,
}

#[derive(Default)]
struct OutputState {
    bytes: u64,
    /// Lengths of the existing objects, by number: 0 is the head.
    stored: BTreeMap<u64, u64>,
    /// Segments in memory, by number.
    open: BTreeMap<u64, OpenSegment>,
    /// Cached blocks, least recently read first: the offset and the bytes.
    blocks: VecDeque<(u64, Bytes)>,
    /// Counts changes, so that no block is cached that was read before a change.
    epoch: u64,
    /// The number of segments that were sent.
    sends: u64,
    /// The error of a failed sync.
    failed: Option<Error>,
}

#[derive(Default)]
struct OpenSegment {
    bytes: Vec<u8>,
    /// The number of bytes that were written; some may be counted twice.
    written: u64,
    is_dirty: bool,
    is_being_sent: bool,
}

impl OutputState {
    fn is_being_sent(&self, number: u64) -> bool {
        self.open.get(&number).is_some_and(|segment| segment.is_being_sent)
    }
}

impl BucketOutput {
    /// Opens an output: lists the objects below its prefix.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when other objects are below the prefix; with the errors of the
    /// endpoint.
    pub fn open(session: Session, runtime: Arc<Runtime>, place: BucketPlace) -> Result<Self> {
        let path = place.path();
        let (session, state, sent) = (
            Arc::new(session),
            RankedMutex::new(BucketLock::Output, OutputState::default()),
            Condvar::new(),
        );
        let mut output = BucketOutput { session, runtime, place, path, state, sent };
        let stored = output.list()?;
        let last = stored.last_key_value().map_or(0, |(at, len)| range_of(*at).start + len);
        output.state = RankedMutex::new(
            BucketLock::Output,
            OutputState { bytes: last, stored, ..OutputState::default() },
        );
        Ok(output)
    }

    fn list(&self) -> Result<BTreeMap<u64, u64>> {
        let prefix = Key::from(self.place.prefix());
        let own = format!("{}/", prefix.as_ref());
        let found = self.runtime.block_on(self.session.list(&prefix, LIST_MAX, |meta| {
            let leaf = meta.location.as_ref().strip_prefix(own.trim_start_matches('/'));
            Some((leaf.and_then(number), meta.location.to_string(), meta.size))
        }));
        let mut stored = BTreeMap::new();
        for (number, key, bytes) in found.map_err(|fault| self.failed(&fault, "list", ""))? {
            let number = number.filter(|it| bytes <= full_bytes(*it));
            let Some(number) = number else {
                return Err(Error::new(
                    Kind::Refused,
                    "the prefix contains objects that do not belong to an output of 'pinstripe \
                     split'",
                )
                .at(&self.path)
                .expected(
                    "only the objects 'head' and 'log-...'",
                    format!("the object '{key}' of {bytes} bytes"),
                )
                .advice("give another prefix, for example s3://BUCKET/NAME"));
            };
            stored.insert(number, bytes);
        }
        Ok(stored)
    }

    fn key(&self, number: u64) -> Key {
        key::key(&self.place, &name(number))
    }

    fn failed(&self, fault: &Fault, act: &str, name: &str) -> Error {
        self.session.error(fault, act, self.path.join(name))
    }

    /// Reads a range of a segment's object.
    async fn fetch(&self, number: u64, range: Range<u64>) -> Result<Vec<u8>> {
        let many = range.end - range.start;
        let wanted = Some(GetRange::Bounded(range));
        let got = self.session.get(&self.key(number), wanted, many).await;
        match got {
            Ok(got) if got.bytes.len() as u64 == many => Ok(got.bytes),
            Ok(got) => Err(Error::corrupt(
                "the output became shorter while it was used",
                self.path.join(name(number)),
            )
            .expected(many, got.bytes.len())),
            Err(fault) => Err(self.failed(&fault, "read", &name(number))),
        }
    }

    /// Loads a segment into memory, with its stored bytes.
    fn load<'s>(
        &'s self,
        mut state: Ranked<MutexGuard<'s, OutputState>>,
        number: u64,
        is_replaced: bool,
    ) -> Result<Ranked<MutexGuard<'s, OutputState>>> {
        if state.open.contains_key(&number) {
            return Ok(state);
        }
        loop {
            let (stored, sends) = (state.stored.get(&number).copied().unwrap_or(0), state.sends);
            if stored == 0 || is_replaced {
                state.open.insert(number, OpenSegment::default());
                return Ok(state);
            }
            drop(state);
            let bytes = self.runtime.block_on(self.fetch(number, 0..stored))?;
            state = self.state.lock();
            if state.open.contains_key(&number) {
                return Ok(state);
            }
            // Otherwise another thread may have loaded and sent it since the request.
            if state.sends == sends {
                state.open.insert(number, OpenSegment { bytes, ..OpenSegment::default() });
                return Ok(state);
            }
        }
    }

    /// Sends a segment in its present state, when no other thread is sending it.
    fn send(&self, number: u64) -> Result<()> {
        let mut state = self.state.lock();
        let bytes = loop {
            match state.open.get_mut(&number) {
                Some(segment) if segment.is_being_sent => {
                    state = state.wait(&self.sent);
                }
                Some(segment) if segment.is_dirty => {
                    (segment.is_being_sent, segment.is_dirty) = (true, false);
                    break Bytes::copy_from_slice(&segment.bytes);
                }
                _ => return Ok(()),
            }
        };
        let is_ours = state.stored.contains_key(&number);
        drop(state);
        let (many, payload) = (bytes.len() as u64, PutPayload::from(bytes));
        debug_assert!(many <= full_bytes(number), "a segment has one object");
        let put = self.runtime.block_on(self.put(number, &payload, is_ours));
        let mut state = self.state.lock();
        debug_assert!(state.is_being_sent(number), "one thread at a time sends a segment");
        if let Some(segment) = state.open.get_mut(&number) {
            segment.is_being_sent = false;
            segment.is_dirty |= put.is_err();
            if !segment.is_dirty {
                state.open.remove(&number);
            }
        }
        if put.is_ok() {
            state.stored.insert(number, many);
            state.sends += 1;
        }
        drop(state);
        self.sent.notify_all();
        put.map_err(|fault| match fault {
            Fault::Exists => Error::new(Kind::Busy, "another program is writing to this output")
                .at(self.path.join(name(number)))
                .advice("wait until the other program ends, or give another prefix"),
            fault => self.failed(&fault, "write", &name(number)),
        })
    }

    /// Puts an object. Sends an object; overwrites an existing one only if that belongs to this
    /// output, or if the endpoint does not support the condition.
    async fn put(&self, number: u64, payload: &PutPayload, is_ours: bool) -> Result<(), Fault> {
        let key = self.key(number);
        if !is_ours {
            match self.session.create(&key, payload, None).await {
                Err(Fault::Refused(refusal)) if refusal.is_not_implemented() => {}
                created => return created.map(drop),
            }
        }
        self.session.put(&key, payload, None).await.map(drop)
    }

    fn write_part(&self, number: u64, range: Range<usize>, bytes: &[u8]) -> Result<()> {
        let full = full_bytes(number);
        debug_assert!(range.end as u64 <= full, "a part is within its segment");
        let is_whole = bytes.len() as u64 == full;
        let mut state = self.load(self.state.lock(), number, is_whole)?;
        debug_assert!(state.open.contains_key(&number), "the segment was loaded");
        state.epoch += 1;
        let at = range_of(number).start;
        state.blocks.retain(|(from, block)| {
            from + block.len() as u64 <= at || *from >= range_of(number).end
        });
        state.bytes = state.bytes.max(at + range.end as u64);
        let segment = state.open.entry(number).or_default();
        if segment.bytes.len() < range.end {
            segment.bytes.resize(range.end, 0);
        }
        segment.bytes[range].copy_from_slice(bytes);
        segment.written += bytes.len() as u64;
        segment.is_dirty = true;
        let is_full = number > 0 && segment.written >= full;
        // A segment that gathers no more writes is sent as it is, and fetched again for a further
        // write.
        let oldest = state.open.iter().find(|(_, it)| it.is_dirty && !it.is_being_sent);
        let oldest = oldest.map(|(number, _)| *number).filter(|_| state.open.len() > OPEN_MAX);
        drop(state);
        let send = if is_full { Some(number) } else { oldest };
        send.map_or(Ok(()), |number| self.send(number))
    }

    /// Reads a part of an object that is not in memory.
    fn read_part(&self, number: u64, range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let state = self.state.lock();
        let copy = |from: &[u8], out: &mut [u8]| {
            out.fill(0);
            let there = from.len().min(range.end).saturating_sub(range.start);
            out[..there].copy_from_slice(&from[range.start.min(from.len())..][..there]);
        };
        if let Some(segment) = state.open.get(&number) {
            copy(&segment.bytes, out);
            return Ok(());
        }
        let stored = state.stored.get(&number).copied().unwrap_or(0) as usize;
        let (start, end) = (range.start.min(stored), range.end.min(stored));
        out.fill(0);
        if start == end {
            return Ok(());
        }
        let at = range_of(number).start + start as u64;
        let inside = |(from, block): &&(u64, Bytes)| {
            *from <= at && at + (end - start) as u64 <= from + block.len() as u64
        };
        if let Some((from, block)) = state.blocks.iter().find(inside) {
            out[..end - start].copy_from_slice(&block[(at - from) as usize..][..end - start]);
            return Ok(());
        }
        let epoch = state.epoch;
        drop(state);
        let is_short = ((end - start) as u64) < BLOCK_BYTES;
        let last =
            if is_short { (start as u64 + BLOCK_BYTES).min(stored as u64) } else { end as u64 };
        let bytes = self.runtime.block_on(self.fetch(number, start as u64..last))?;
        out[..end - start].copy_from_slice(&bytes[..end - start]);
        if is_short {
            let mut state = self.state.lock();
            if state.epoch == epoch {
                state.blocks.push_back((at, Bytes::from(bytes)));
                while state.blocks.len() > BLOCKS_MAX {
                    state.blocks.pop_front();
                }
                debug_assert!(state.bytes >= at, "a block is within the output");
            }
        }
        Ok(())
    }

    /// Removes objects.
    fn remove(&self, numbers: &[u64]) -> Result<()> {
        let deletes = numbers.iter().map(|number| async move {
            let deleted = self.session.delete(&self.key(*number)).await;
            deleted.map_err(|fault| self.failed(&fault, "delete", &name(*number)))
        });
        let deletes = futures_util::stream::iter(deletes).buffered(AT_ONCE);
        let done: Vec<Result<()>> = self.runtime.block_on(deletes.collect());
        done.into_iter().collect()
    }

    /// Truncates the output.
    fn cut(&self, bytes: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.open.values().any(|segment| segment.is_being_sent) {
            state = state.wait(&self.sent);
        }
        state.epoch += 1;
        state.blocks.clear();
        let is_behind = |number: &u64| range_of(*number).start >= bytes;
        state.open.retain(|number, _| !is_behind(number));
        let behind: Vec<u64> = state.stored.keys().copied().filter(is_behind).collect();
        drop(state);
        // From the end on, so that an interrupted truncation leaves a prefix of the output.
        let behind: Vec<u64> = behind.into_iter().rev().collect();
        self.remove(&behind)?;
        let mut state = self.state.lock();
        state.stored.retain(|number, _| !behind.contains(number));
        state.bytes = bytes;
        let (last, inside) = object_of(bytes);
        let there = state.stored.get(&last).copied().unwrap_or(0);
        if there > inside || state.open.contains_key(&last) {
            state = self.load(state, last, false)?;
            if let Some(segment) = state.open.get_mut(&last) {
                segment.bytes.truncate(inside as usize);
                segment.is_dirty = true;
            }
        }
        Ok(())
    }
}

impl Device for BucketOutput {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = self.len()?;
        if buf.is_empty() {
            return Ok(());
        }
        if end_within(offset, buf.len(), len).is_none() {
            return Err(too_short(&self.path, offset, buf.len(), len));
        }
        for (number, range, at) in parts(offset, buf.len()) {
            self.read_part(number, range, &mut buf[at])?;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if end_within(offset, bytes.len(), BYTES_MAX).is_none() {
            return Err(Error::new(
                Kind::NoSpace,
                "the output would be longer than the maximum length of an output",
            )
            .at(&self.path));
        }
        parts(offset, bytes.len())
            .try_for_each(|(number, range, at)| self.write_part(number, range, &bytes[at]))
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state.lock().bytes)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        if bytes > BYTES_MAX {
            return Err(Error::new(
                Kind::NoSpace,
                "the output would be longer than the maximum length of an output",
            )
            .at(&self.path));
        }
        match self.len()? {
            now if bytes < now => self.cut(bytes),
            now if bytes > now => {
                // Its last byte sets the length; the bytes before it read as zeros.
                self.write_at(bytes - 1, &[0])
            }
            _ => Ok(()),
        }
    }

    fn sync(&self) -> Result<()> {
        let state = self.state.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.duplicate());
        }
        let numbers: Vec<u64> = state.open.keys().copied().collect();
        drop(state);
        // Few: a writer sends each segment that it fills.
        numbers.iter().try_for_each(|number| self.send(*number)).inspect_err(|error| {
            self.state.lock().failed.get_or_insert_with(|| error.duplicate());
        })
    }

    fn discard(&self, _range: Range<u64>) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "space in an output cannot be released").at(&self.path))
    }

    fn caps(&self) -> Caps {
        Caps { align_bytes: 4096, is_block_device: false, device: None }
    }

    fn place(&self) -> &Path {
        &self.path
    }
}
