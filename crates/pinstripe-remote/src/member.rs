//! A member behind a server: every call is one HTTP request, or a few.

#![allow(clippy::disallowed_methods, reason = "puts that are begun in advance have threads")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_member::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, Far, KeptLonger, Member,
    PlannedStep, PrefetchHint, Replace, ServerOfMember, SetServer,
};
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, IF_NONE_MATCH, RANGE};

use crate::answer::Unsure;
use crate::batches::{Planned, put_of};
use crate::client::RemoteClient;
use crate::look_messages::{LookRequest, MemberLook, OpenedExtent};
use crate::looks::Listing;
use crate::objects::ObjectStep;
use crate::place::ServedPlace;
use crate::protocol::{
    EXTENT_MAX_BYTES, LAST_HEADER, MemberProperties, PAGE_NAMES, RANGES_MAX, RANGES_MAX_BYTES,
    SUM_HEADER, WantedRange, decode_page, decode_results, encode_ranges, extent_path, sum_of,
};

/// The number of extents that are sealed, and of reads that are requested, in parallel: each has a
/// connection of its own.
const PARALLEL_CALLS: usize = 8;
/// The length that extents of packs should not exceed.
const EXTENT_BYTES: u64 = 16 << 20;
/// The length of long reads.
const SPAN_BYTES: u64 = 4 << 20;
/// How long the properties of a member are used without asking again.
const PROPERTIES_AGE: Duration = Duration::from_secs(5);

/// A put in progress: the bytes, and the thread that waits for its answer.
type Sending = (Bytes, JoinHandle<Result<()>>);

/// A member behind a server.
pub(crate) struct ServedMember(Arc<Inner>);

struct Inner {
    client: Arc<RemoteClient>,
    number: u16,
    /// The part of the URL that names the member.
    base: String,
    place: PathBuf,
    /// Whether something was deleted since the last sync.
    has_deleted: AtomicBool,
    /// Puts that were begun before the calls that wait for them.
    puts: Mutex<HashMap<ExtentName, Sending>>,
}

impl ServedMember {
    pub fn new(client: Arc<RemoteClient>, place: ServedPlace) -> Self {
        let base = format!("{}/{}", place.volume, place.member);
        let (number, place) = (place.member, place.path());
        let (has_deleted, puts) = (AtomicBool::new(false), Mutex::default());
        ServedMember(Arc::new(Inner { client, number, base, place, has_deleted, puts }))
    }

    fn read_many(&self, wanted: &[WantedRange]) -> Result<Vec<Result<Vec<u8>>>> {
        let body = encode_ranges(wanted);
        // The last one may begin just below the limit.
        let asked = wanted.iter().fold(0_u64, |sum, it| sum.saturating_add(it.bytes));
        let bytes = asked.min(2 * RANGES_MAX_BYTES) + body.len() as u64;
        let path = format!("{}/read", self.0.base);
        let answer =
            self.0.client.send(Method::POST, &path, bytes, |request| request.body(body.clone()))?;
        decode_results(&answer.body, wanted)
    }
}

impl Inner {
    fn url(&self, name: ExtentName) -> String {
        format!("{}/{}", self.base, extent_path(name))
    }

    fn at(&self, name: ExtentName) -> impl Fn(Error) -> Error + '_ {
        move |error| error.at_instead(self.place.join(name.path()))
    }

    /// The prefetched bytes of an extent.
    fn prefetched(&self, name: ExtentName) -> Option<Vec<u8>> {
        self.client.looks.read(self.number, name, |request| self.client.look(request))
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        let looks = &self.client.looks;
        if let Some(length) = looks.length(self.number, name, |request| self.client.look(request)) {
            return Ok(length);
        }
        if let Some((length, end)) = self.client.looks.take_end(self.number, name) {
            let extent = OpenedExtent { name, length, head: Vec::new(), end };
            self.client.ends.keep(self.number, extent);
            return Ok(length);
        }
        if name.is_of_set()
            && let Some(length) = self.open(name)?
        {
            return Ok(length);
        }
        let answer = self.client.send(Method::HEAD, &self.url(name), 0, |request| request)?;
        let length = answer.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        length.and_then(|text| text.parse().ok()).ok_or_else(|| {
            Error::corrupt("the server gave no length", self.place.join(name.path()))
        })
    }

    /// Requests the parts of an extent that a reader needs, from all members of the volume. Returns
    /// the length of the extent on this member, if it has the extent.
    fn open(&self, name: ExtentName) -> Result<Option<u64>> {
        let (members, kinds) = (Vec::new(), Vec::new());
        let request = LookRequest { members, kinds, labels: false, opened: vec![name] };
        let mut length = None;
        for MemberLook { member, opened, .. } in self.client.look(&request)? {
            for extent in opened.into_iter().filter(|extent| extent.name == name) {
                length = length.or((member == self.number).then_some(extent.length));
                self.client.ends.keep(member, extent);
            }
        }
        Ok(length)
    }

    /// Sends a complete extent; durable when this returns.
    fn put(&self, name: ExtentName, bytes: &Bytes, replace: Replace) -> Result<()> {
        let length = bytes.len() as u64;
        if length > EXTENT_MAX_BYTES {
            return Err(Error::new(Kind::Usage, "this extent is too long for a server")
                .at(self.place.join(name.path()))
                .expected(format!("at most {EXTENT_MAX_BYTES} bytes"), length));
        }
        let _ = self.client.looks.discard();
        self.client.ends.forget(self.number, name);
        let sum = sum_of(bytes);
        let sent = self.client.send_counted(Method::PUT, &self.url(name), length, |request| {
            // An empty body would be sent without a length.
            let request = request.header(SUM_HEADER, &sum).header(CONTENT_LENGTH, length);
            let request = request.body(bytes.clone());
            match replace {
                Replace::Never => request.header(IF_NONE_MATCH, "*"),
                Replace::Allowed => request,
            }
        });
        // A listing that was requested meanwhile may lack this extent.
        let _ = self.client.looks.discard();
        self.believe(name, bytes, sent.map(drop))
    }

    /// The result of a put, when the server has answered.
    fn believe(&self, name: ExtentName, bytes: &[u8], sent: Result<(), Unsure>) -> Result<()> {
        match sent {
            Ok(()) => Ok(()),
            // An attempt without an answer may have created it.
            Err(Unsure { error, is_unsure: true })
                if error.kind() == Kind::Exists && self.has(name, bytes)? =>
            {
                Ok(())
            }
            Err(Unsure { error, .. }) => Err(self.at(name)(error)),
        }
    }

    /// Carries out a step that was planned for all members.
    fn planned(&self, step: &ObjectStep) -> Option<Planned> {
        let RemoteClient { looks, batches, .. } = &*self.client;
        batches.carry_out(self.number, step, looks, |request| self.client.objects(request))
    }

    /// Whether an extent has exactly these bytes.
    fn has(&self, name: ExtentName, bytes: &[u8]) -> Result<bool> {
        if self.len(name).map_err(self.at(name))? != bytes.len() as u64 {
            return Ok(false);
        }
        let answer =
            self.client.send(Method::GET, &self.url(name), bytes.len() as u64, |request| request);
        Ok(answer.map_err(self.at(name))?.body == bytes)
    }

    fn list(&self, kind: ExtentKind) -> Result<Listing> {
        let looks = &self.client.looks;
        if let Some(found) = looks.list(self.number, kind, |request| self.client.look(request)) {
            return Ok(found);
        }
        let mut found = Listing::new();
        loop {
            let after = found.last().map(|(id, _)| *id);
            let from = after.map(|id| format!("?after={}", pinstripe_base::id::hex(&id)));
            let path = format!("{}/list/{}{}", self.base, kind.dir(), from.unwrap_or_default());
            let bytes = PAGE_NAMES as u64 * 24;
            let answer = self.client.send(Method::GET, &path, bytes, |request| request);
            let answer = answer.map_err(|error| error.at_instead(self.place.join(kind.dir())))?;
            let page = decode_page(&answer.body, after).map_err(|error| error.at(&self.place))?;
            let is_last = answer.headers.contains_key(LAST_HEADER);
            if page.is_empty() && !is_last {
                return Err(Error::corrupt("the server's listing does not end", &self.place));
            }
            found.extend(page);
            pinstripe_member::goes_on();
            if is_last {
                return Ok(found);
            }
        }
    }

    fn properties(&self) -> Result<MemberProperties> {
        if let Some((when, properties)) = self.client.looks.properties(self.number)
            && clock::since(when) < PROPERTIES_AGE
        {
            return Ok(properties);
        }
        let path = format!("{}/properties", self.base);
        let answer = self.client.send(Method::GET, &path, 0, |request| request)?;
        let properties: MemberProperties = serde_json::from_slice(&answer.body)
            .map_err(|_| Error::corrupt("the server's answer is not valid", &self.place))?;
        self.client.looks.set_properties(self.number, properties);
        Ok(properties)
    }
}

impl Member for ServedMember {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        let inner = Arc::clone(&self.0);
        Ok(Box::new(ServedWriter { inner, name, replace, bytes: Vec::new() }))
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        let begun = lock(&self.0.puts).remove(&name);
        match begun {
            Some((sent, sending)) if sent == bytes => {
                let ended = |_| Error::new(Kind::Io, "the put ended without a result");
                sending.join().map_err(ended)?
            }
            _ => match self.0.planned(&put_of(name, bytes)) {
                Some(planned) => self.0.believe(name, bytes, planned),
                None => self.0.put(name, &Bytes::copy_from_slice(bytes), Replace::Never),
            },
        }
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (place, wanted) = (|| self.0.place.join(name.path()), buf.len());
        let end = offset.checked_add(buf.len() as u64);
        let too_short = |found: u64| {
            let end = u128::from(offset) + wanted as u128;
            Err(Error::corrupt("the extent is too short", place())
                .expected(format!("an extent of {end} bytes or more"), found))
        };
        let Some(end) = end.filter(|_| !buf.is_empty()) else {
            let found = self.len(name)?;
            return if buf.is_empty() { Ok(()) } else { too_short(found) };
        };
        if let Some(bytes) = self.0.prefetched(name) {
            let part = usize::try_from(offset).ok().and_then(|from| bytes.get(from..end as usize));
            let Some(part) = part else { return too_short(bytes.len() as u64) };
            buf.copy_from_slice(part);
            return Ok(());
        }
        if self.0.client.ends.read(self.0.number, name, offset, buf) {
            return Ok(());
        }
        let range = format!("bytes={offset}-{}", end - 1);
        let answer =
            self.0.client.send(Method::GET, &self.0.url(name), buf.len() as u64, |request| {
                request.header(RANGE, &range)
            });
        let answer = match answer {
            Err(error) if error.kind() == Kind::Corrupt => return too_short(self.len(name)?),
            answer => answer.map_err(self.0.at(name))?,
        };
        if answer.status != 206 || answer.body.len() != buf.len() {
            return too_short(answer.body.len() as u64);
        }
        buf.copy_from_slice(&answer.body);
        Ok(())
    }

    fn read_at_hand(&self, _: ExtentName, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        self.0.len(name).map_err(self.0.at(name))
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        self.0.list(kind)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        self.0.client.ends.forget(self.0.number, name);
        let deleted = self.0.planned(&ObjectStep::Delete(name)).unwrap_or_else(|| {
            let _ = self.0.client.looks.discard();
            let url = self.0.url(name);
            let deleted = self.0.client.send_counted(Method::DELETE, &url, 0, |request| request);
            let _ = self.0.client.looks.discard();
            deleted.map(drop)
        });
        deleted.map_err(|unsure| self.0.at(name)(unsure.error))?;
        self.0.has_deleted.store(true, Ordering::Release);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        // Answered writes are durable.
        if !self.0.has_deleted.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let path = format!("{}/sync", self.0.base);
        let synced = self.0.client.send(Method::POST, &path, 0, |request| request);
        synced.map(drop).map_err(|error| {
            self.0.has_deleted.store(true, Ordering::Release);
            error.at_instead(&self.0.place)
        })
    }

    fn sweep(&self) -> Result<u64> {
        // Unsealed data belongs to the server, and only an admin may have it removed.
        if self.0.properties()?.is_append_only {
            return Ok(0);
        }
        let path = format!("{}/sweep", self.0.base);
        let swept = self.0.client.send(Method::POST, &path, 0, |request| request);
        let answer = swept.map_err(|error| error.at_instead(&self.0.place))?;
        let count = std::str::from_utf8(&answer.body).ok().and_then(|text| text.parse().ok());
        count.ok_or_else(|| Error::corrupt("the server's answer is not valid", &self.0.place))
    }

    fn caps(&self) -> Caps {
        let properties = self.0.properties().ok();
        let far = Some(Far {
            seals: PARALLEL_CALLS,
            extent_bytes: EXTENT_BYTES,
            reads: PARALLEL_CALLS,
            span_bytes: SPAN_BYTES,
        });
        Caps {
            device: None,
            free_bytes: properties.and_then(|it| it.free_bytes),
            is_full: properties.is_some_and(|it| it.is_full),
            is_append_only: properties.is_some_and(|it| it.is_append_only),
            far,
        }
    }

    fn place(&self) -> &Path {
        &self.0.place
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        Some(self)
    }
}

impl BatchedMember for ServedMember {
    fn put_ahead(&self, name: ExtentName, bytes: &[u8]) {
        if self.0.client.batches.has(self.0.number, &put_of(name, bytes)) {
            return;
        }
        let (inner, bytes) = (Arc::clone(&self.0), Bytes::copy_from_slice(bytes));
        let sent = bytes.clone();
        let spawned = std::thread::Builder::new()
            .name("put".to_owned())
            .spawn(move || inner.put(name, &sent, Replace::Never));
        // Without a thread, the call of `put` sends the request.
        if let Ok(sending) = spawned {
            lock(&self.0.puts).insert(name, (bytes, sending));
        }
    }

    fn plan(&self, steps: &[PlannedStep], members: usize) {
        let RemoteClient { looks, batches, .. } = &*self.0.client;
        match steps {
            [PlannedStep::Look(wanted)] => looks.keep(self.0.number, wanted),
            steps => batches.plan(self.0.number, steps, members),
        }
    }

    fn list_next(&self, wanted: PrefetchHint, with_content: bool) {
        self.0.client.looks.announce_next(self.0.number, wanted, with_content);
    }

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        pinstripe_member::span_of(self, name, offset, bytes)
    }

    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        let whole = |name: &ExtentName| WantedRange {
            name: *name,
            offset: 0,
            bytes: most_bytes.min(RANGES_MAX_BYTES),
            is_whole: true,
        };
        if let [name] = names
            && self.0.client.looks.lacks_key(self.0.number, *name)
        {
            let missing = Error::new(Kind::NotFound, "no such extent");
            return vec![Err(missing.at(self.0.place.join(name.path())))];
        }
        // If all are prefetched, no request is needed.
        let known: Option<Vec<_>> = names.iter().map(|name| self.0.prefetched(*name)).collect();
        if let Some(known) = known.filter(|all| all.iter().all(|it| it.len() as u64 <= most_bytes))
        {
            return known.into_iter().map(Ok).collect();
        }
        let wanted: Vec<_> = names.iter().map(whole).collect();
        let mut results = Vec::with_capacity(names.len());
        while results.len() < names.len() {
            let rest = &wanted[results.len()..];
            let rest = &rest[..rest.len().min(RANGES_MAX)];
            match self.read_many(rest) {
                Ok(read) => {
                    let named = read.into_iter().zip(rest);
                    results.extend(named.map(|(read, it)| read.map_err(self.0.at(it.name))));
                }
                Err(error) => {
                    let error = error.at(&self.0.place);
                    results.resize_with(names.len(), || Err(error.duplicate()));
                }
            }
        }
        results
    }

    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        Ok(self.0.list(kind)?.into_iter().map(|(id, _)| id).collect())
    }

    fn prefetch(&self, wanted: &[PrefetchHint]) {
        self.0.client.looks.announce(self.0.number, wanted);
    }

    fn open_ahead(&self, _: &[ExtentName]) {}

    fn keep_longer(&self, _: &[ExtentName]) -> Result<KeptLonger> {
        Ok(KeptLonger::default())
    }

    fn latency(&self) -> Option<Duration> {
        None
    }

    fn served(&self) -> Option<ServerOfMember> {
        let server: Arc<dyn SetServer> = Arc::<RemoteClient>::clone(&self.0.client);
        Some(ServerOfMember { server, member: self.0.number })
    }
}

/// An extent that is being written: it is kept in memory until it is complete.
struct ServedWriter {
    inner: Arc<Inner>,
    name: ExtentName,
    replace: Replace,
    bytes: Vec<u8>,
}

impl ExtentWriter for ServedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(self: Box<Self>) -> Result<()> {
        self.inner.put(self.name, &Bytes::from(self.bytes), self.replace)
    }
}
