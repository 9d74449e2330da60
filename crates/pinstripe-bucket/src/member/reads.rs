//! The reads of a member: ends of extents, blocks of extents that are read sequentially, and
//! ranges.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use object_store::GetRange;
use pinstripe_base::error::{Error, Result};
use pinstripe_member::label::MemberAbility;
use pinstripe_member::{ExtentName, Member};

use super::{BucketMember, Inner};
use crate::blocks::{self, BLOCK_BYTES};
use crate::fault::Fault;
use crate::place::Provider;
use crate::session::Fetched;
use crate::tails::{TAIL_BYTES, Tail, has_tail};

impl Inner {
    /// Whether the last bytes of an object can be requested without knowing its length: according
    /// to the label, or before that is read, to the kind of service.
    pub(super) fn has_ranges_from_the_end(&self) -> bool {
        let is_azure = self.place.provider() == Provider::Azure;
        !is_azure && self.facts().knows(MemberAbility::RangesFromTheEnd) != Some(false)
    }
}

impl BucketMember {
    /// Fetches the end of an extent; forgets the cached bytes of the extent.
    pub(super) fn tail(&self, name: ExtentName) -> Result<Arc<Tail>, Fault> {
        let Inner { session, runtime, tails, blocks, prefetch, number, .. } = &*self.0;
        tails.drop_held(name);
        blocks.forget((*number, name));
        let epoch = tails.epoch();
        if let Some(got) = prefetch.read(runtime, name) {
            blocks.learn((*number, name), got.object_bytes);
            let (head, bytes) = (got.head.clone(), got.bytes.clone());
            let tail = Tail { extent_bytes: got.object_bytes, head, bytes };
            return Ok(tails.keep(name, tail, epoch));
        }
        let range = if self.0.has_ranges_from_the_end() {
            GetRange::Suffix(TAIL_BYTES)
        } else {
            // Without ranges from the end the length costs a request of its own.
            let bytes = runtime.block_on(session.len(&self.key(name)))?;
            if bytes == 0 {
                return Ok(Arc::new(Tail::without_bytes(0)));
            }
            GetRange::Bounded(bytes.saturating_sub(TAIL_BYTES)..bytes)
        };
        let got = runtime.block_on(session.get(&self.key(name), Some(range), TAIL_BYTES));
        let tail = match got {
            Ok(got) => Tail { extent_bytes: got.object_bytes, head: got.head, bytes: got.bytes },
            // A range from the end fails on an empty object.
            Err(Fault::Odd(_) | Fault::Refused(_)) => {
                let extent_bytes = runtime.block_on(session.len(&self.key(name)))?;
                return Ok(Arc::new(Tail::without_bytes(extent_bytes)));
            }
            Err(fault) => return Err(fault),
        };
        blocks.learn((*number, name), tail.extent_bytes);
        Ok(tails.keep(name, tail, epoch))
    }

    /// Reads a range from the cached blocks, if it should be read in blocks and the blocks contain
    /// it.
    pub(super) fn read_blocks(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Option<()> {
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

    /// Reads a non-empty range of an extent in one request.
    pub(super) fn get(&self, name: ExtentName, range: Range<u64>) -> Result<Fetched> {
        let Inner { session, runtime, .. } = &*self.0;
        let wanted = range.end - range.start;
        let too_short = |found| self.too_short(name, range.start, wanted as usize, found);
        let asked = Some(GetRange::Bounded(range.clone()));
        match runtime.block_on(session.get(&self.key(name), asked, wanted)) {
            Ok(got) if got.bytes.len() as u64 == wanted => Ok(got),
            Ok(got) => Err(too_short(got.object_bytes)),
            // For a range beyond the end, endpoints return a status that the client does not
            // decode.
            Err(fault @ (Fault::Odd(_) | Fault::Refused(_))) => match self.len(name) {
                Ok(found) if found < range.end => Err(too_short(found)),
                _ => Err(self.failed(&fault, "read", name)),
            },
            Err(fault) => Err(self.failed(&fault, "read", name)),
        }
    }

    pub(super) fn too_short(
        &self,
        name: ExtentName,
        offset: u64,
        wanted: usize,
        found: u64,
    ) -> Error {
        let end = u128::from(offset) + wanted as u128;
        Error::corrupt("the extent is too short", self.0.path.join(name.path()))
            .expected(format!("{end} bytes or more"), found)
    }
}
