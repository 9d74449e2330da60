//! Prefetches for a verb: lists kinds in parallel, and reads the small objects in them.
//!
//! A verb lists a few kinds one after the other, and reads a few objects of each kind. At 80 ms per
//! request, the verb would wait for seconds, although no answer depends on another. So the verb
//! announces its listings in advance. If the member is small, one listing of the entire prefix
//! answers for all kinds. The objects and the ends of index runs in the listing are fetched in
//! parallel, and so are the ends of packs that no index run lists, once the verb knows which these
//! are.
//!
//! Invariants: a prefetched listing was begun after the verb announced it, and answers as many
//! calls as the verb announced. Before its answer, each put, seal or removal by this process
//! discards everything that was prefetched, so that a listing after a put shows the new object.
//! Prefetched answers are also discarded after [`FRESH`]. Bytes are reused only if a new listing
//! shows the same entity tag, whether this run or another run on this host read them ([`Kept`]).
//! After a fault nothing is kept, and each call sends its own request.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join, join_all, ready};
use object_store::path::Path as Key;
use object_store::{GetRange, ObjectMeta};
use pinstripe_base::clock;
use pinstripe_member::{ExtentKind, ExtentName, PrefetchHint};
use tokio::runtime::Runtime;

use crate::fault::Fault;
use crate::kept::Kept;
use crate::key;
use crate::locks::{BucketLock, RankedMutex};
use crate::place::BucketPlace;
use crate::session::{Fetched, ObjectMark, Session, tag_of};
use crate::tails::{TAIL_BYTES, has_tail};

/// The age at which a prefetched answer is discarded.
const FRESH: Duration = Duration::from_secs(10);
/// The most keys of an entire prefix that are listed together: one page. Longer prefixes are listed
/// by kind.
const WHOLE_MAX: usize = 1000;
/// The most objects of one kind that are prefetched.
const FETCHED_MAX: usize = 64;
/// The largest object that is prefetched, the label included.
const OBJECT_MAX_BYTES: u64 = 64 << 10;
/// The size of the header of an extent, which every reader needs.
const HEADER_BYTES: u64 = 4096;
/// The most objects whose bytes are kept for the next listing that shows them.
const KNOWN_MAX: usize = 512;

/// Extents of a kind with their lengths, in name order.
pub type Listing = Vec<([u8; 16], u64)>;

/// The parts of a member that can send requests from any thread.
#[derive(Clone)]
pub(crate) struct Asker {
    pub session: Arc<Session>,
    pub place: BucketPlace,
    pub kept: Kept,
}

/// Prefetched answers of a member.
pub(crate) struct ListPrefetch {
    round: RankedMutex<Option<Arc<PrefetchRound>>>,
    known: Arc<RankedMutex<KnownObjects>>,
    /// The ends of extents that will be opened, with the time when they were announced.
    ends: RankedMutex<HashMap<ExtentName, (Instant, Fetching)>>,
}

impl Default for ListPrefetch {
    fn default() -> Self {
        ListPrefetch {
            round: RankedMutex::new(BucketLock::Round, None),
            known: Arc::new(RankedMutex::new(BucketLock::Known, KnownObjects::default())),
            ends: RankedMutex::new(BucketLock::Ends, HashMap::new()),
        }
    }
}

/// A fetch in progress; `None` if it failed.
type Fetching = Shared<BoxFuture<'static, Option<Arc<Fetched>>>>;

#[derive(Default)]
struct KnownObjects {
    /// The prefetched objects by name, each with its entity tag and its bytes.
    objects: HashMap<ExtentName, (String, Fetching)>,
    /// Extents whose ends were returned to a reader, and so need not be kept.
    opened: HashSet<ExtentName>,
    /// Whether the prefix has more keys than one page.
    is_large: bool,
}

/// The requests begun by one announcement.
struct PrefetchRound {
    began: Instant,
    left: RankedMutex<HashMap<ExtentKind, PrefetchHint>>,
    label: Option<Fetching>,
    seen: Shared<BoxFuture<'static, Option<Arc<RoundAnswers>>>>,
}

#[derive(Default)]
struct RoundAnswers {
    kinds: HashMap<ExtentKind, Vec<ListedExtent>>,
    objects: HashMap<ExtentName, Fetching>,
    /// Later listings, which were begun after the first ones.
    again: HashMap<ExtentKind, Shared<BoxFuture<'static, Option<Arc<Listing>>>>>,
}

/// An extent as a listing shows it.
#[derive(Clone)]
struct ListedExtent {
    id: [u8; 16],
    bytes: u64,
    tag: Option<String>,
}

impl ListPrefetch {
    /// Prefetches the listings that a verb announces, unless they are already available. Listings
    /// that are available are not discarded.
    pub fn begin(&self, runtime: &Runtime, asker: &Asker, wanted: &[PrefetchHint]) {
        if wanted.is_empty() {
            return self.drop_all();
        }
        let mut round = self.round.lock();
        if round.as_ref().is_some_and(|round| round.is_fresh() && round.has(wanted)) {
            return;
        }
        let is_opening = wanted.iter().any(|hint| hint.label);
        let label = is_opening.then(|| fetch(runtime, asker, ExtentName::Label));
        let (asker, wanted) = (asker.clone(), wanted.to_vec());
        let left = wanted.iter().map(|hint| (hint.kind, *hint)).collect();
        let known = Arc::clone(&self.known);
        let seen =
            runtime.spawn(async move { look(asker, wanted, known).await.ok().map(Arc::new) });
        let seen = seen.map(|seen| seen.ok().flatten()).boxed().shared();
        let began = clock::monotonic();
        *round = Some(Arc::new(PrefetchRound {
            began,
            left: RankedMutex::new(BucketLock::Hints, left),
            label,
            seen,
        }));
    }

    /// Prefetches the ends of extents whose lengths are not known. Extents that were announced
    /// earlier and not opened are dropped.
    pub(crate) fn begin_ends(&self, runtime: &Runtime, asker: &Asker, names: &[ExtentName]) {
        let _entered = runtime.enter();
        let began = clock::monotonic();
        let ends = names.iter().map(|name| (*name, (began, begin_end(asker, *name))));
        *self.ends.lock() = ends.collect();
    }

    /// Discards all prefetched answers, because the member is about to change.
    pub fn drop_all(&self) {
        *self.round.lock() = None;
        self.ends.lock().clear();
    }

    fn current(&self) -> Option<Arc<PrefetchRound>> {
        self.round.lock().clone().filter(|round| round.is_fresh())
    }

    fn is_current(&self, round: &Arc<PrefetchRound>) -> bool {
        self.round.lock().as_ref().is_some_and(|now| Arc::ptr_eq(now, round))
    }

    /// The prefetched listing of a kind, if it was announced and not used up.
    pub fn list(&self, runtime: &Runtime, kind: ExtentKind) -> Option<Listing> {
        let round = self.current()?;
        let is_first = round.take(kind)?;
        let seen = runtime.block_on(round.seen.clone())?;
        debug_assert!(round.asks(kind), "the verb announced this listing");
        let listing = if is_first {
            seen.kinds.get(&kind)?.iter().map(|entry| (entry.id, entry.bytes)).collect()
        } else {
            let again = seen.again.get(&kind)?.clone();
            Listing::clone(&*runtime.block_on(again)?)
        };
        self.is_current(&round).then_some(listing)
    }

    /// The bytes of a small object, or of the end of an index run, that a listing showed.
    pub fn read(&self, runtime: &Runtime, name: ExtentName) -> Option<Arc<Fetched>> {
        let announced = self.ends.lock().remove(&name);
        if let Some((began, fetching)) = announced
            && clock::since(began) < FRESH
        {
            return runtime.block_on(fetching);
        }
        let round = self.current()?;
        let fetching = match name {
            ExtentName::Label => round.label.clone()?,
            ExtentName::In(kind, _) if is_fetched(kind) && round.asks(kind) => {
                runtime.block_on(round.seen.clone())?.objects.get(&name)?.clone()
            }
            ExtentName::In(..) => return None,
        };
        // An end is handed out once: when an extent is opened again, its end is requested again.
        if has_tail(name) && !self.known.lock().opened.insert(name) {
            return None;
        }
        let fetched = runtime.block_on(fetching)?;
        self.is_current(&round).then_some(fetched)
    }
}

impl PrefetchRound {
    fn is_fresh(&self) -> bool {
        clock::since(self.began) < FRESH
    }

    fn has(&self, wanted: &[PrefetchHint]) -> bool {
        let left = self.left.lock();
        wanted.iter().all(|it| {
            let there = left.get(&it.kind);
            there.is_some_and(|there| {
                there.times >= it.times && there.again >= it.again && there.label >= it.label
            })
        })
    }

    fn asks(&self, kind: ExtentKind) -> bool {
        self.left.lock().contains_key(&kind)
    }

    /// Uses a prefetched listing once. Returns true for the first listing and false for the later
    /// one.
    fn take(&self, kind: ExtentKind) -> Option<bool> {
        let mut left = self.left.lock();
        let hint = left.get_mut(&kind)?;
        if hint.times > 0 {
            hint.times -= 1;
            return Some(true);
        }
        std::mem::take(&mut hint.again).then_some(false)
    }
}

/// Whether the objects of a kind are fetched together with its listing.
fn is_fetched(kind: ExtentKind) -> bool {
    !matches!(kind, ExtentKind::Packs | ExtentKind::Scrub | ExtentKind::Strays)
}

/// Converts an object that was put to the form that fetching it would return.
pub(crate) fn as_fetched(name: ExtentName, e_tag: String, bytes: &[u8]) -> Fetched {
    let mark = ObjectMark { e_tag, modified: 0 };
    let (mut head, mut end) = (&bytes[..0], bytes);
    if has_tail(name) {
        head = bytes.first_chunk::<{ HEADER_BYTES as usize }>().map_or(bytes, |head| &head[..]);
        end = bytes.last_chunk::<{ TAIL_BYTES as usize }>().map_or(bytes, |end| &end[..]);
    }
    let (head, end) = (head.to_vec(), end.to_vec());
    Fetched { object_bytes: bytes.len() as u64, mark, head, bytes: end }
}

/// Sends the announced listings, and begins the fetches that depend on them.
async fn look(
    asker: Asker,
    wanted: Vec<PrefetchHint>,
    known: Arc<RankedMutex<KnownObjects>>,
) -> Result<RoundAnswers, Fault> {
    let mut seen =
        RoundAnswers { kinds: listed(&asker, &wanted, &known).await?, ..RoundAnswers::default() };
    for hint in wanted.iter().filter(|hint| hint.again) {
        let asker = asker.clone();
        let kind = hint.kind;
        if seen.kinds.get(&kind).is_some_and(|entries| !entries.is_empty()) {
            let again = tokio::spawn(async move {
                let listed = list_room(&asker, kind).await.ok()?;
                Some(Arc::new(listed.iter().map(|entry| (entry.id, entry.bytes)).collect()))
            });
            let again = again.map(|listed| listed.ok().flatten()).boxed().shared();
            seen.again.insert(kind, again);
        }
    }
    let mut known = known.lock();
    if known.objects.len() > KNOWN_MAX {
        known.objects.clear();
    }
    for (kind, entries) in seen.kinds.iter().filter(|(kind, _)| is_fetched(**kind)) {
        for entry in entries.iter().take(FETCHED_MAX) {
            let name = ExtentName::In(*kind, entry.id);
            if let Some(fetching) = known.fetching(&asker, name, entry) {
                seen.objects.insert(name, fetching);
            }
        }
    }
    Ok(seen)
}

impl KnownObjects {
    /// The fetch of an object that a listing shows; reuses an earlier fetch of the same object.
    fn fetching(
        &mut self,
        asker: &Asker,
        name: ExtentName,
        entry: &ListedExtent,
    ) -> Option<Fetching> {
        let is_short = has_tail(name) || entry.bytes <= OBJECT_MAX_BYTES;
        if !is_short || entry.bytes == 0 || self.opened.contains(&name) {
            return None;
        }
        if let (Some(tag), Some((known, fetching))) = (&entry.tag, self.objects.get(&name))
            && known == tag
            && !matches!(fetching.peek(), Some(None))
        {
            return Some(fetching.clone());
        }
        let kept =
            entry.tag.as_ref().and_then(|tag| asker.kept.get(&asker.place, name, tag, entry.bytes));
        debug_assert!(entry.bytes > 0, "an empty object has no bytes to fetch");
        let fetching = match kept {
            Some(kept) => ready(Some(Arc::new(kept))).boxed().shared(),
            None => begin(asker, name, entry.bytes),
        };
        if let Some(tag) = entry.tag.clone() {
            self.objects.insert(name, (tag, fetching.clone()));
        }
        Some(fetching)
    }
}

/// The extents of kinds: from one listing of the entire prefix, if that is short; else from
/// parallel listings.
async fn listed(
    asker: &Asker,
    wanted: &[PrefetchHint],
    known: &RankedMutex<KnownObjects>,
) -> Result<HashMap<ExtentKind, Vec<ListedExtent>>, Fault> {
    if wanted.len() > 1 && !known.lock().is_large {
        let prefix = Key::from(asker.place.prefix());
        let metas = asker.session.list(&prefix, WHOLE_MAX, |meta| Some(meta.clone())).await?;
        if metas.len() < WHOLE_MAX {
            let kind = |it: &PrefetchHint| (it.kind, entries(asker, it.kind, &metas));
            return Ok(wanted.iter().map(kind).collect());
        }
        known.lock().is_large = true;
    }
    let kinds = wanted.iter().filter(|it| !it.maybe).map(|it| it.kind);
    let lists = kinds.map(|kind| async move { (kind, list_room(asker, kind).await) });
    let lists = join_all(lists).await;
    lists.into_iter().map(|(kind, listed)| Ok((kind, listed?))).collect()
}

async fn list_room(asker: &Asker, kind: ExtentKind) -> Result<Vec<ListedExtent>, Fault> {
    let prefix = key::key(&asker.place, kind.dir());
    let metas = asker.session.list_room(&prefix, |meta| entry(asker, kind, meta)).await?;
    Ok(sorted(metas))
}

fn entries(asker: &Asker, kind: ExtentKind, metas: &[ObjectMeta]) -> Vec<ListedExtent> {
    sorted(metas.iter().filter_map(|meta| entry(asker, kind, meta)).collect())
}

fn entry(asker: &Asker, kind: ExtentKind, meta: &ObjectMeta) -> Option<ListedExtent> {
    let id = key::extent(&asker.place, kind, &meta.location)?;
    Some(ListedExtent { id, bytes: meta.size, tag: tag_of(meta.e_tag.as_deref()) })
}

fn sorted(mut entries: Vec<ListedExtent>) -> Vec<ListedExtent> {
    entries.sort_unstable_by_key(|entry| (entry.id, entry.bytes));
    entries.dedup_by_key(|entry| entry.id);
    debug_assert!(entries.is_sorted_by_key(|entry| entry.id), "in the order of ids");
    entries
}

fn fetch(runtime: &Runtime, asker: &Asker, name: ExtentName) -> Fetching {
    let _entered = runtime.enter();
    begin(asker, name, 0)
}

/// Begins to fetch the end of an extent of unknown length, and the header of the extent if the end
/// does not include it.
fn begin_end(asker: &Asker, name: ExtentName) -> Fetching {
    let Asker { session, place, .. } = asker.clone();
    let fetched = tokio::spawn(async move {
        let key = key::key(&place, &name.path());
        let end = session.get(&key, Some(GetRange::Suffix(TAIL_BYTES)), TAIL_BYTES).await.ok()?;
        let head = match end.object_bytes > TAIL_BYTES {
            true => header(&session, &key).await,
            false => Vec::new(),
        };
        Some(Arc::new(Fetched { head, ..end }))
    });
    fetched.map(|got| got.ok().flatten()).boxed().shared()
}

/// The header of an extent, or empty after an error: the reader then requests the header itself.
async fn header(session: &Session, key: &Key) -> Vec<u8> {
    let range = Some(GetRange::Bounded(0..HEADER_BYTES));
    session.get(key, range, HEADER_BYTES).await.map(|got| got.bytes).unwrap_or_default()
}

/// Begins to fetch an object or, for an extent that is opened by its end, that end and, if
/// necessary, the header.
fn begin(asker: &Asker, name: ExtentName, bytes: u64) -> Fetching {
    let own = asker.clone();
    let Asker { session, place, .. } = asker.clone();
    let fetched = tokio::spawn(async move {
        let key = key::key(&place, &name.path());
        if !has_tail(name) {
            let got = session.get(&key, None, OBJECT_MAX_BYTES).await.ok()?;
            let is_whole = got.bytes.len() as u64 == got.object_bytes;
            own.kept.put(&own.place, name, &got);
            return is_whole.then(|| Arc::new(got));
        }
        let head = async {
            match bytes > TAIL_BYTES {
                true => header(&session, &key).await,
                false => Vec::new(),
            }
        };
        // Not every endpoint supports ranges from the end; the listing has the length.
        let end = GetRange::Bounded(bytes.saturating_sub(TAIL_BYTES)..bytes);
        let tail = session.get(&key, Some(end), TAIL_BYTES);
        let (tail, head) = join(tail, head).await;
        let fetched = Fetched { head, ..tail.ok()? };
        own.kept.put(&own.place, name, &fetched);
        Some(Arc::new(fetched))
    });
    fetched.map(|got| got.ok().flatten()).boxed().shared()
}
