//! Prefetched listings: one request answers for several kinds of all members that a verb announced.
//!
//! A verb lists a few kinds on each member, one after the other, and reads the small objects in
//! them. It announces this in advance. The request is sent when the first of the announced listings
//! is needed, and covers everything that was announced until then.
//!
//! Invariants: an answer was requested after the verb announced the listing, and answers as many
//! calls as the verb announced; labels and listings that open a store are one state, which the first
//! announcement with `label` requests for all members. Only after a plan that says so does an
//! announcement keep answers that were requested before it. Each put, seal or removal by this
//! process discards all answers before it is answered itself, since the caller may list afterwards
//! what another process has put meanwhile. Answers are discarded after [`FRESH`].

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::Result;
use pinstripe_base::sync::lock;
use pinstripe_member::{ExtentKind, ExtentName, PrefetchHint};

use crate::look_messages::{KindLook, LookRequest, MemberLook, WantedKind};
use crate::protocol::MemberProperties;

/// The age at which an answer is discarded.
const FRESH: Duration = Duration::from_secs(10);
/// The age at which an answer for one step is discarded.
const FRESH_NEXT: Duration = Duration::from_secs(2);

/// Extents of a kind with their lengths, in name order.
pub(crate) type Listing = Vec<([u8; 16], u64)>;

/// The announced and the prefetched listings of all members of a volume.
#[derive(Default)]
pub(crate) struct Looks(Mutex<LookState>);

#[derive(Default)]
struct LookState {
    /// The listings that were announced and not requested yet.
    announced: HashMap<(u16, ExtentKind), Announced>,
    labels: bool,
    /// Whether labels were announced by a call of `prefetch`.
    is_open: bool,
    /// The members whose label was announced by a call of `prefetch` and not read since.
    promised_labels: BTreeSet<u16>,
    /// The members of the volume that are known.
    members: Vec<u16>,
    answers: HashMap<(u16, ExtentKind), Answered>,
    found_labels: HashMap<u16, (Instant, Vec<u8>)>,
    properties: HashMap<u16, (Instant, MemberProperties)>,
    /// The members for which the next announcement keeps the present answers.
    ahead: BTreeSet<u16>,
    /// Kinds whose listings are too long for a look.
    long: HashSet<ExtentKind>,
    /// The number of changes so far.
    changes: u64,
}

#[derive(Clone, Copy)]
struct Announced {
    times: u8,
    again: bool,
    content: bool,
    /// It answers the one call that follows, and no other.
    is_next: bool,
}

struct Answered {
    began: Instant,
    left: Announced,
    look: KindLook,
}

/// The number of changes by this process at some moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChangeCount(u64);

impl Looks {
    /// Announces listings of a member. An empty list discards what was prefetched from it.
    pub fn announce(&self, member: u16, wanted: &[PrefetchHint]) {
        let mut state = lock(&self.0);
        if !state.members.contains(&member) {
            state.members.push(member);
        }
        let is_ahead = state.ahead.remove(&member);
        if wanted.is_empty() {
            state.answers.retain(|(of, _), _| *of != member);
            state.announced.retain(|(of, _), _| *of != member);
            state.found_labels.remove(&member);
            return;
        }
        let opens = wanted.iter().any(|hint| hint.label);
        if opens {
            state.promised_labels.insert(member);
        }
        // The first member's announcement of opening has requested the same for this one, and a store
        // is searched for again when its keys are known.
        let is_open = opens && state.is_open && state.has_answers(member, wanted);
        if is_open || is_ahead && state.satisfies(member, wanted) {
            return;
        }
        state.labels |= opens;
        state.is_open |= opens;
        for hint in wanted {
            state.announce(member, Announced::of(hint, true, false), hint.kind);
        }
    }

    /// Announces the listing that comes next, unless it was announced before.
    pub(crate) fn announce_next(&self, member: u16, hint: PrefetchHint, content: bool) {
        let mut state = lock(&self.0);
        // A listing of packs may be long, and costs as much for each member as for all.
        let is_long = hint.kind == ExtentKind::Packs || state.long.contains(&hint.kind);
        let key = (member, hint.kind);
        let is_promised = state.announced.get(&key).is_some_and(|it| !it.is_next && it.times > 0)
            || state.answers.get(&key).is_some_and(|it| !it.left.is_next && it.can_answer());
        if !is_promised && !is_long {
            state.announce(member, Announced::of(&hint, content, true), hint.kind);
        }
        if hint.label && !(state.promised_labels.remove(&member) && state.has_label(member)) {
            state.found_labels.remove(&member);
            state.labels = true;
        }
    }

    /// Lets the next announcement keep the present answers, if it announces only those.
    pub fn keep(&self, member: u16, wanted: &[PrefetchHint]) {
        let mut state = lock(&self.0);
        if state.satisfies(member, wanted) {
            state.ahead.insert(member);
        }
    }

    /// Discards everything, because the volume is about to change.
    pub fn discard(&self) -> ChangeCount {
        let mut state = lock(&self.0);
        let members = std::mem::take(&mut state.members);
        // The space of a member is an estimate anyway.
        let properties = std::mem::take(&mut state.properties);
        let long = std::mem::take(&mut state.long);
        let changes = state.changes + 1;
        *state = LookState { members, properties, long, changes, ..LookState::default() };
        ChangeCount(changes)
    }

    /// Keeps the answers to a look that was made right after the last change of the volume, for the
    /// next announcement of these listings, unless this process has changed the volume since.
    pub fn install(
        &self,
        change: ChangeCount,
        began: Instant,
        hints: &[PrefetchHint],
        looks: Vec<MemberLook>,
    ) {
        let mut state = lock(&self.0);
        if ChangeCount(state.changes) != change {
            return;
        }
        state.ahead = looks.iter().map(|look| look.member).collect();
        let hint = |kind| hints.iter().find(|hint| hint.kind == kind);
        state.take(began, looks, |_, kind| hint(kind).map(|hint| Announced::of(hint, true, false)));
    }

    /// The space of a member, and when it was requested, if it is known.
    pub fn properties(&self, member: u16) -> Option<(Instant, MemberProperties)> {
        lock(&self.0).properties.get(&member).copied()
    }

    /// Sets the space of a member, as a request has just found it.
    pub(crate) fn set_properties(&self, member: u16, properties: MemberProperties) {
        lock(&self.0).properties.insert(member, (clock::monotonic(), properties));
    }

    /// The listing of a kind, if it was announced; `send` sends a request.
    pub fn list(
        &self,
        member: u16,
        kind: ExtentKind,
        send: impl Fn(&LookRequest) -> Result<Vec<MemberLook>>,
    ) -> Option<Listing> {
        let mut state = lock(&self.0);
        let is_new = state.announced.get(&(member, kind)).is_some_and(|it| it.times > 0);
        if is_new {
            state.request(&send)?;
        }
        let answered = state.answers.get_mut(&(member, kind)).filter(|it| it.is_fresh())?;
        if answered.left.times == 0 && std::mem::take(&mut answered.left.again) {
            return answered.look.again.take();
        }
        answered.left.times = answered.left.times.checked_sub(1)?;
        Some(answered.look.names.clone())
    }

    /// The bytes of a small extent that a listing showed, or of a label.
    pub fn read(
        &self,
        member: u16,
        name: ExtentName,
        send: impl Fn(&LookRequest) -> Result<Vec<MemberLook>>,
    ) -> Option<Vec<u8>> {
        let mut state = lock(&self.0);
        match name {
            ExtentName::Label => {
                if state.labels {
                    state.request(&send)?;
                }
                state.has_label(member).then(|| state.found_labels[&member].1.clone())
            }
            ExtentName::In(kind, id) => {
                let answered = state.answers.get(&(member, kind)).filter(|it| it.is_fresh())?;
                let found = answered.look.extents.binary_search_by(|(it, _)| it.cmp(&id)).ok()?;
                Some(answered.look.extents[found].1.clone())
            }
        }
    }

    /// The length of a small extent that a prefetched listing showed, or of a label. A listing for
    /// one step does not answer: a request for a length often tests whether the extent still exists.
    pub(crate) fn length(
        &self,
        member: u16,
        name: ExtentName,
        send: impl Fn(&LookRequest) -> Result<Vec<MemberLook>>,
    ) -> Option<u64> {
        if let ExtentName::In(kind, _) = name
            && lock(&self.0).answers.get(&(member, kind)).is_some_and(|it| it.left.is_next)
        {
            return None;
        }
        self.read(member, name, send).map(|bytes| bytes.len() as u64)
    }

    /// Whether a prefetched listing shows that a member lacks an object of the store's keys: a
    /// verb that opens a store tries a name that most stores do not have.
    pub(crate) fn lacks_key(&self, member: u16, name: ExtentName) -> bool {
        let ExtentName::In(ExtentKind::Keys, id) = name else { return false };
        let state = lock(&self.0);
        let answered = state.answers.get(&(member, ExtentKind::Keys));
        answered
            .filter(|it| it.is_fresh() && !it.left.is_next)
            .is_some_and(|it| it.look.names.binary_search_by(|(there, _)| there.cmp(&id)).is_err())
    }

    /// The end of an extent that a listing showed, with the extent's length. An end is handed out
    /// once: when an extent is opened again, it is requested again.
    pub(crate) fn take_end(&self, member: u16, name: ExtentName) -> Option<(u64, Vec<u8>)> {
        let ExtentName::In(kind, id) = name else { return None };
        let mut state = lock(&self.0);
        let answered = state.answers.get_mut(&(member, kind)).filter(|it| it.is_fresh())?;
        let KindLook { names, ends, .. } = &mut answered.look;
        let at = ends.iter().position(|(it, _)| *it == id)?;
        let length = names.binary_search_by(|(it, _)| it.cmp(&id)).ok().map(|at| names[at].1)?;
        Some((length, ends.swap_remove(at).1))
    }
}

impl Announced {
    fn of(hint: &PrefetchHint, content: bool, is_next: bool) -> Self {
        Announced { times: hint.times, again: hint.again, content, is_next }
    }
}

impl Answered {
    fn is_fresh(&self) -> bool {
        let limit = if self.left.is_next { FRESH_NEXT } else { FRESH };
        clock::since(self.began) < limit
    }

    fn can_answer(&self) -> bool {
        self.is_fresh() && (self.left.times > 0 || self.left.again)
    }
}

impl LookState {
    fn announce(&mut self, member: u16, announced: Announced, kind: ExtentKind) {
        self.answers.remove(&(member, kind));
        self.announced.insert((member, kind), announced);
    }

    fn has_label(&self, member: u16) -> bool {
        self.found_labels.get(&member).is_some_and(|(began, _)| clock::since(*began) < FRESH)
    }

    /// Whether there are answers for all of these listings, used up or not.
    fn has_answers(&self, member: u16, wanted: &[PrefetchHint]) -> bool {
        let is_fresh = |hint: &PrefetchHint| {
            let answered = self.answers.get(&(member, hint.kind));
            hint.maybe || answered.is_some_and(|it| !it.left.is_next && it.is_fresh())
        };
        self.has_label(member) && wanted.iter().all(is_fresh)
    }

    /// Whether the present answers answer these listings.
    fn satisfies(&self, member: u16, wanted: &[PrefetchHint]) -> bool {
        wanted.iter().all(|hint| {
            let answered = self.answers.get(&(member, hint.kind)).filter(|it| it.is_fresh());
            let is_answered = answered.is_some_and(|it| {
                let Announced { times, again, is_next, .. } = it.left;
                !is_next && times >= hint.times && again >= hint.again
            });
            (is_answered || hint.maybe) && (!hint.label || self.has_label(member))
        })
    }

    /// Requests everything that was announced; `None` if there is no answer. The lock is held
    /// meanwhile: other members wait for the same answer.
    fn request(&mut self, send: &impl Fn(&LookRequest) -> Result<Vec<MemberLook>>) -> Option<()> {
        let announced = std::mem::take(&mut self.announced);
        let labels = std::mem::take(&mut self.labels);
        let mut kinds: Vec<WantedKind> = Vec::new();
        for ((_, kind), Announced { again, content, .. }) in &announced {
            match kinds.iter_mut().find(|it| it.kind == *kind) {
                Some(it) => (it.again, it.content) = (it.again | again, it.content | content),
                None => kinds.push(WantedKind { kind: *kind, again: *again, content: *content }),
            }
        }
        kinds.sort_unstable_by_key(|it| it.kind);
        let members: BTreeSet<u16> = announced.keys().map(|(member, _)| *member).collect();
        // Opening reads the same of every member, and the server knows which there are.
        let members = if labels { Vec::new() } else { members.into_iter().collect() };
        let request = LookRequest { members, kinds, labels, opened: Vec::new() };
        let began = clock::monotonic();
        let looks = send(&request).ok()?;
        for WantedKind { kind, .. } in request.kinds {
            let is_omitted = |look: &MemberLook| look.kinds.iter().all(|(it, _)| *it != kind);
            if !looks.is_empty() && looks.iter().all(is_omitted) {
                self.long.insert(kind);
            }
        }
        let usual = |kind| announced.iter().find(|((_, of), _)| *of == kind).map(|(_, it)| *it);
        self.take(began, looks, |member, kind| {
            announced.get(&(member, kind)).copied().or_else(|| usual(kind))
        });
        Some(())
    }

    /// Takes in what members answered; `left` says how many calls the answer for a kind answers.
    fn take(
        &mut self,
        began: Instant,
        looks: Vec<MemberLook>,
        left: impl Fn(u16, ExtentKind) -> Option<Announced>,
    ) {
        for MemberLook { member, label, properties, kinds, .. } in looks {
            self.found_labels.extend(label.map(|label| (member, (began, label))));
            self.properties.extend(properties.map(|it| (member, (began, it))));
            for (kind, mut look) in kinds {
                let Some(left) = left(member, kind) else { continue };
                look.extents.sort_unstable_by_key(|(id, _)| *id);
                self.answers.insert((member, kind), Answered { began, left, look });
            }
        }
    }
}
