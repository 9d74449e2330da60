//! An extent that is being written to a bucket: it is buffered until it is complete, and then sent
//! in one request.
//!
//! A long extent is instead sent in parts while it grows. The object appears when it is complete,
//! and not if its writer is dropped. Not every endpoint supports a condition for completing the
//! parts, so the name is checked first; extents of this length have random names.

use std::sync::Arc;

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path as Key;
use object_store::{MultipartId, PutPayload};
use pinstripe_base::error::Result;
use pinstripe_member::{ExtentName, ExtentWriter, Replace};

use crate::endpoint::Load;
use crate::fault::Fault;
use crate::inner::{EXTENT_BYTES, Inner};

/// Extents up to this length are sent in one request: a pack's extent has at most 64 MiB and its
/// checksums.
const WHOLE_MAX_BYTES: usize = 72 << 20;
/// An extent of at least this length gets memory for a full pack's extent.
const LONG_BYTES: usize = 1 << 20;
/// Bytes of one part of a longer extent.
const PART_BYTES: usize = 16 << 20;

/// A writer of one extent.
pub(crate) struct BucketWriter {
    member: Arc<Inner>,
    key: Key,
    extent: ExtentName,
    replace: Replace,
    bytes: Vec<u8>,
    upload: Option<Upload>,
}

/// A multipart upload, and the parts of it that were sent.
struct Upload {
    id: MultipartId,
    parts: Vec<PartId>,
    bytes: u64,
}

impl BucketWriter {
    pub fn new(member: Arc<Inner>, key: Key, extent: ExtentName, replace: Replace) -> Self {
        BucketWriter { member, key, extent, replace, bytes: Vec::new(), upload: None }
    }

    fn send_part(&mut self, part: Vec<u8>) -> Result<(), Fault> {
        let Self { member, key, upload, .. } = self;
        let (session, many) = (&member.session, part.len() as u64);
        member.runtime.block_on(async {
            if upload.is_none() {
                session.require_present()?;
                let id =
                    session.send(Load::default(), || session.client.create_multipart(key)).await?;
                *upload = Some(Upload { id, parts: Vec::new(), bytes: 0 });
            }
            let Some(Upload { id, parts, bytes }) = upload else { return Ok(()) };
            let payload = PutPayload::from(part);
            let send = || session.client.put_part(key, id, parts.len(), payload.clone());
            let part = session.send(Load::up(many), send).await?;
            parts.push(part);
            *bytes += many;
            Ok(())
        })
    }

    fn finish(&mut self) -> Result<(), Fault> {
        let rest = std::mem::take(&mut self.bytes);
        if self.upload.is_some() {
            if !rest.is_empty() {
                self.send_part(rest)?;
            }
            return self.complete();
        }
        let Self { member, key, replace, extent, .. } = self;
        let rest = Bytes::from(rest);
        let (payload, lock) = (PutPayload::from(rest.clone()), member.lock(*extent));
        let (lock, session) = (lock.as_ref(), &member.session);
        let send = || async {
            match replace {
                Replace::Never => session.create(key, &payload, lock).await,
                Replace::Allowed => session.put(key, &payload, lock).await,
            }
        };
        let tag = member.runtime.block_on(member.with_reserve(*extent, None, send))?;
        member.keep(*extent, tag, &rest);
        Ok(())
    }

    fn complete(&mut self) -> Result<(), Fault> {
        let Self { member, key, replace, upload, extent, .. } = self;
        let lock = member.lock(*extent);
        let (session, Some(Upload { id, parts, bytes })) = (&member.session, &*upload) else {
            return Ok(());
        };
        debug_assert!(!parts.is_empty(), "an upload begins with its first part");
        member.runtime.block_on(async {
            if *replace == Replace::Never {
                match session.len(key).await {
                    Err(Fault::Missing) => {}
                    Ok(_) => return Err(Fault::Exists),
                    Err(fault) => return Err(fault),
                }
            }
            let send = || async {
                session.client.complete_multipart(key, id, parts.clone()).await.map(drop)
            };
            match session.send(Load::default(), send).await {
                // An earlier attempt may have completed it, and its answer was lost.
                Err(Fault::Missing) if session.len(key).await == Ok(*bytes) => {}
                done => done?,
            }
            // A multipart upload is locked when it is complete, and reported as present once it is
            // locked.
            match &lock {
                Some(lock) => session.signed(Load::default(), &lock.extend(key)).await.map(drop),
                None => Ok(()),
            }
        })?;
        self.upload = None;
        Ok(())
    }
}

impl ExtentWriter for BucketWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        // Growth by doubling would take twice the memory of the content.
        if self.bytes.len() >= LONG_BYTES && self.bytes.capacity() < EXTENT_BYTES as usize {
            self.bytes.reserve_exact(EXTENT_BYTES as usize - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        while self.bytes.len() > WHOLE_MAX_BYTES
            || self.upload.is_some() && self.bytes.len() >= PART_BYTES
        {
            let rest = self.bytes.split_off(PART_BYTES);
            let part = std::mem::replace(&mut self.bytes, rest);
            let sent = self.send_part(part);
            sent.map_err(|fault| self.member.error(&fault, "write", &self.extent.path()))?;
        }
        debug_assert!(self.bytes.len() <= WHOLE_MAX_BYTES, "memory is bounded");
        Ok(())
    }

    fn seal(mut self: Box<Self>) -> Result<()> {
        let done = self.finish();
        // A reader may have cached some of the previous extent meanwhile.
        self.member.forget(self.extent);
        self.member.prefetch.drop_all();
        done.map_err(|fault| self.member.error(&fault, "write", &self.extent.path()))
    }
}

impl Drop for BucketWriter {
    fn drop(&mut self) {
        if let Some(Upload { id, .. }) = self.upload.take() {
            let (session, key) = (&self.member.session, &self.key);
            // The bucket's lifecycle rule for incomplete uploads removes the rest.
            let abort = session.send(Load::default(), || session.client.abort_multipart(key, &id));
            let _ = self.member.runtime.block_on(abort);
        }
    }
}
