//! A member of a store in a pool of a Ceph cluster: `rados://POOL/NAMESPACE`.
//!
//! * The namespace `NAMESPACE` contains the label, as the object `pinstripe.member`.
//! * The namespace `NAMESPACE/packs` contains an object for each pack's extent, named
//!   by its 32 hex digits. Every other kind also has its own namespace, because listing a namespace
//!   lists all of it.
//! * The namespace `NAMESPACE/parts` contains the parts of extents that are longer than one request
//!   may be.
//!
//! An object is created by one exclusive create, so it appears complete and only one writer
//! succeeds. A longer extent is first written in parts, under names that are unique to the writer;
//! then the manifest object that identifies the parts is created. Acknowledged writes are durable
//! on as many disks as the pool has copies.
//!
//! Invariant: an object that begins with [`MAGIC`] is a manifest object; an extent whose own bytes
//! begin with [`MAGIC`] is always written in parts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, random};
use pinstripe_member::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, Far, KeptLonger, Member,
    PlannedStep, PrefetchHint, Replace, ServerOfMember, span_of,
};

use crate::cluster::{Cluster, PIECE_BYTES, Pool, WhenFull};
use crate::listing::names;
use crate::manifest::{MAGIC, MANIFEST_BYTES, Manifest, PART_BYTES};
use crate::many::side_by_side;

/// The longest extent that is stored in one object; the extents of packs have at most 64 MiB plus
/// their checksums.
const WHOLE_MAX_BYTES: usize = 72 << 20;
const _: () = assert!(WHOLE_MAX_BYTES <= PIECE_BYTES);
/// The number of bytes read from a small extent before its length is known.
const SHORT_BYTES: u64 = 256 << 10;
/// The number of extents that are sealed in parallel.
const PARALLEL_CALLS: usize = 8;
/// The length that extents of packs should not exceed.
const EXTENT_BYTES: u64 = 16 << 20;
/// The length of long reads.
const SPAN_BYTES: u64 = 4 << 20;

/// A member in a pool.
pub(crate) struct RadosMember {
    pools: Arc<Namespaces>,
}

/// The namespaces of a member, one for each kind.
struct Namespaces {
    label: Pool,
    kinds: Vec<Pool>,
    parts: Pool,
    place: PathBuf,
}

impl Namespaces {
    /// The namespace and the name of an extent's object.
    fn object(&self, name: ExtentName) -> (&Pool, String) {
        match name {
            ExtentName::Label => (&self.label, name.path()),
            ExtentName::In(kind, id) => (self.room(kind), SetId(id).to_string()),
        }
    }

    fn room(&self, kind: ExtentKind) -> &Pool {
        let at = ExtentKind::ALL.iter().position(|it| *it == kind);
        &self.kinds[at.expect("every kind is among them all")]
    }

    /// Replaces the object in an error by the extent, because the caller does not know the object.
    fn at(&self, name: ExtentName) -> impl Fn(Error) -> Error + '_ {
        move |error| error.at_instead(self.place.join(name.path()))
    }

    /// Returns the manifest of an extent that is stored in parts; `None` for any other extent.
    fn manifest(&self, name: ExtentName) -> Result<Option<Manifest>> {
        let (pool, object) = self.object(name);
        let mut bytes = [0; MANIFEST_BYTES + 1];
        let read = pool.read(&object, 0, &mut bytes).map_err(self.at(name))?;
        if bytes[..read].starts_with(MAGIC) && read != MANIFEST_BYTES {
            return Err(self.at(name)(Error::new(
                Kind::Corrupt,
                "the list of the parts of an object is damaged",
            )));
        }
        Ok(Manifest::decode(&bytes[..read]))
    }

    fn put(&self, name: ExtentName, bytes: &[u8], replace: Replace) -> Result<()> {
        let (pool, object) = self.object(name);
        let when_full = if name.may_use_reserve() { WhenFull::Write } else { WhenFull::Fail };
        let put = match replace {
            Replace::Never => pool.create(&object, bytes, when_full),
            Replace::Allowed => pool.replace(&object, bytes, when_full),
        };
        put.map_err(self.at(name))
    }

    /// Writes the parts of an extent, then its manifest object.
    fn put_long(&self, name: ExtentName, parts: &Parts, replace: Replace) -> Result<()> {
        let old = match replace {
            Replace::Allowed => self.manifest(name).unwrap_or_default(),
            Replace::Never => None,
        };
        self.put(name, &parts.manifest.encode(), replace)?;
        old.map_or(Ok(()), |old| self.remove_parts(&old))
    }

    fn remove_parts(&self, manifest: &Manifest) -> Result<()> {
        (0..manifest.parts()).try_for_each(|number| self.parts.remove(&manifest.part(number)))
    }

    /// Fills `buf` from an offset of the extent, by reading its parts.
    fn read_parts(&self, manifest: &Manifest, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let end = manifest.bytes.min(offset.saturating_add(buf.len() as u64));
        let mut at = offset;
        while at < end {
            let (number, from) = (at / PART_BYTES as u64, at % PART_BYTES as u64);
            let many = (end - at).min(PART_BYTES as u64 - from) as usize;
            let done = (at - offset) as usize;
            let piece = &mut buf[done..done + many];
            if self.parts.read(&manifest.part(number), from, piece)? != many {
                return Ok(done);
            }
            at += many as u64;
        }
        Ok(end.saturating_sub(offset) as usize)
    }
}

impl RadosMember {
    /// Opens the member in a namespace of a pool; only its label shows whether a member exists
    /// there.
    ///
    /// # Errors
    /// The errors of [`Cluster::pool`].
    pub fn open(cluster: &Arc<Cluster>, pool: &str, namespace: &str, place: &Path) -> Result<Self> {
        let of = |part: &str| cluster.pool(pool, &format!("{namespace}/{part}"));
        let kinds = ExtentKind::ALL.iter().map(|kind| of(kind.dir())).collect::<Result<_>>()?;
        let (label, parts) = (cluster.pool(pool, namespace)?, of("parts")?);
        let place = place.to_path_buf();
        Ok(RadosMember { pools: Arc::new(Namespaces { label, kinds, parts, place }) })
    }

    /// Checks that the namespace is empty.
    ///
    /// # Errors
    /// [`Kind::Refused`] if it is not empty; the errors of the cluster.
    pub fn require_empty(&self) -> Result<()> {
        let Namespaces { label, kinds, parts, place } = &*self.pools;
        for pool in [label, parts].into_iter().chain(kinds) {
            let mut first = None;
            pool.list(&mut |object| {
                first = Some(object.to_owned());
                false
            })?;
            if let Some(first) = first {
                return Err(Error::new(Kind::Refused, "the namespace is not empty")
                    .at(place)
                    .expected("no objects", format!("'{first}'"))
                    .advice("give another namespace, for example rados://POOL/NAMESPACE"));
            }
        }
        Ok(())
    }

    /// Reads a complete extent of at most this length, by one request if it is in one object that
    /// is as short as most.
    fn read_short(&self, name: ExtentName, most_bytes: u64) -> Result<Vec<u8>> {
        let pools = &*self.pools;
        let (pool, object) = pools.object(name);
        let mut whole = vec![0; most_bytes.min(SHORT_BYTES) as usize + 1];
        let read = pool.read(&object, 0, &mut whole).map_err(pools.at(name))?;
        let is_in_parts = read == MANIFEST_BYTES && whole.starts_with(MAGIC);
        if read < whole.len() && !is_in_parts {
            whole.truncate(read);
            return Ok(whole);
        }
        let bytes = self.len(name)?;
        if bytes > most_bytes {
            return Err(Error::corrupt(
                "the content is too long for a small object",
                pools.place.join(name.path()),
            )
            .expected(format!("an object of at most {most_bytes} bytes"), bytes));
        }
        whole.resize(bytes as usize, 0);
        self.read_at(name, 0, &mut whole)?;
        Ok(whole)
    }

    fn ids(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        let names = names(self.pools.room(kind))?;
        let ids = names.iter().filter_map(|name| SetId::from_hex(name).map(|id| id.0));
        let mut ids: Vec<_> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}

impl Member for RadosMember {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        let pools = Arc::clone(&self.pools);
        Ok(Box::new(RadosWriter { pools, name, replace, bytes: Vec::new(), parts: None }))
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        let mut writer = self.create(name, Replace::Never)?;
        writer.append(bytes)?;
        writer.seal()
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let pools = &*self.pools;
        let (pool, object) = pools.object(name);
        let wanted = buf.len();
        let end = offset.checked_add(wanted as u64).filter(|end| *end <= i64::MAX as u64);
        let too_short = |found: u64| {
            let end = u128::from(offset) + wanted as u128;
            Err(Error::corrupt("the extent is too short", pools.place.join(name.path()))
                .expected(format!("an extent of {end} bytes or more"), found))
        };
        let Some(end) = end.filter(|_| wanted > 0) else {
            let found = self.len(name)?;
            return if wanted == 0 { Ok(()) } else { too_short(found) };
        };
        // What lies within the length of a list of parts may be one.
        let mut read = 0;
        if end > MANIFEST_BYTES as u64 {
            read = pool.read(&object, offset, buf).map_err(pools.at(name))?;
            if read == wanted {
                return Ok(());
            }
        }
        match pools.manifest(name)? {
            Some(manifest) => {
                read = pools.read_parts(&manifest, offset, buf).map_err(pools.at(name))?;
            }
            None if end <= MANIFEST_BYTES as u64 => {
                read = pool.read(&object, offset, buf).map_err(pools.at(name))?;
            }
            None => {}
        }
        if read == wanted { Ok(()) } else { too_short(self.len(name)?) }
    }

    fn read_at_hand(&self, _: ExtentName, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        let (pool, object) = self.pools.object(name);
        let bytes = pool.size(&object).map_err(self.pools.at(name))?;
        if bytes != MANIFEST_BYTES as u64 {
            return Ok(bytes);
        }
        Ok(self.pools.manifest(name)?.map_or(bytes, |manifest| manifest.bytes))
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        let ids = self.ids(kind)?;
        let lengths = side_by_side(&ids, |id| self.len(ExtentName::In(kind, *id)));
        let found = ids.into_iter().zip(lengths).filter_map(|(id, length)| match length {
            Ok(bytes) => Some(Ok((id, bytes))),
            // Removed meanwhile.
            Err(error) if error.kind() == Kind::NotFound => None,
            Err(error) => Some(Err(error)),
        });
        found.collect()
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        let (pool, object) = self.pools.object(name);
        let manifest = match self.pools.manifest(name) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            // Its parts stay behind: what they belong to is not known.
            Err(error) if error.kind() == Kind::Corrupt => None,
            found => found?,
        };
        // The extent goes first: an existing extent is complete.
        pool.remove(&object).map_err(self.pools.at(name))?;
        manifest.map_or(Ok(()), |it| self.pools.remove_parts(&it).map_err(self.pools.at(name)))
    }

    fn sync(&self) -> Result<()> {
        Ok(()) // Answered writes are durable.
    }

    fn sweep(&self) -> Result<u64> {
        Ok(0) // Parts without an object that names them may have a live writer.
    }

    fn caps(&self) -> Caps {
        let extent_bytes = EXTENT_BYTES;
        let far = Some(Far {
            seals: PARALLEL_CALLS,
            extent_bytes,
            reads: PARALLEL_CALLS,
            span_bytes: SPAN_BYTES,
        });
        Caps { device: None, free_bytes: None, is_full: false, is_append_only: false, far }
    }

    fn place(&self) -> &Path {
        &self.pools.place
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        Some(self)
    }
}

impl BatchedMember for RadosMember {
    fn put_ahead(&self, _: ExtentName, _: &[u8]) {}

    fn plan(&self, _: &[PlannedStep], _: usize) {}

    fn list_next(&self, _: PrefetchHint, _: bool) {}

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        span_of(self, name, offset, bytes)
    }

    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        side_by_side(names, |name| self.read_short(*name, most_bytes))
    }

    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        self.ids(kind)
    }

    fn prefetch(&self, _: &[PrefetchHint]) {}

    fn open_ahead(&self, _: &[ExtentName]) {}

    fn keep_longer(&self, _: &[ExtentName]) -> Result<KeptLonger> {
        Ok(KeptLonger::default())
    }

    fn latency(&self) -> Option<Duration> {
        None
    }

    fn served(&self) -> Option<ServerOfMember> {
        None
    }
}

/// An extent that is being written: it is kept in memory until it is complete, or sent in parts.
struct RadosWriter {
    pools: Arc<Namespaces>,
    name: ExtentName,
    replace: Replace,
    bytes: Vec<u8>,
    parts: Option<Parts>,
}

/// Parts that were written.
struct Parts {
    manifest: Manifest,
    /// Whether the manifest object was created; if not, the parts are removed when this value is
    /// dropped.
    is_named: bool,
}

impl RadosWriter {
    fn send_part(&mut self, part: &[u8]) -> Result<()> {
        if self.parts.is_none() {
            let manifest = Manifest { bytes: 0, writer: random()? };
            self.parts = Some(Parts { manifest, is_named: false });
        }
        let Some(parts) = &mut self.parts else { return Ok(()) };
        let number = parts.manifest.bytes / PART_BYTES as u64;
        let object = parts.manifest.part(number);
        // Counted first, so that one that failed midway is removed with the others.
        parts.manifest.bytes += part.len() as u64;
        self.pools.parts.replace(&object, part, WhenFull::Fail).map_err(self.pools.at(self.name))
    }
}

impl ExtentWriter for RadosWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        while self.bytes.len() > WHOLE_MAX_BYTES
            || self.parts.is_some() && self.bytes.len() > PART_BYTES
        {
            let rest = self.bytes.split_off(PART_BYTES);
            let part = std::mem::replace(&mut self.bytes, rest);
            self.send_part(&part)?;
        }
        Ok(())
    }

    fn seal(mut self: Box<Self>) -> Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        if self.parts.is_none() && !bytes.starts_with(MAGIC) {
            return match self.replace {
                Replace::Never => self.pools.put(self.name, &bytes, Replace::Never),
                Replace::Allowed => {
                    let old = self.pools.manifest(self.name).unwrap_or_default();
                    self.pools.put(self.name, &bytes, Replace::Allowed)?;
                    old.map_or(Ok(()), |old| self.pools.remove_parts(&old))
                }
            };
        }
        bytes.chunks(PART_BYTES).try_for_each(|part| self.send_part(part))?;
        let Some(parts) = &mut self.parts else { return Ok(()) };
        self.pools.put_long(self.name, parts, self.replace)?;
        parts.is_named = true;
        Ok(())
    }
}

impl Drop for RadosWriter {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.as_ref().filter(|parts| !parts.is_named) {
            // Parts that cannot be removed now stay, and no object names them.
            let _ = self.pools.remove_parts(&parts.manifest);
        }
    }
}
