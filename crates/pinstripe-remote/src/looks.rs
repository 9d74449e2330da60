//! Prefetched listings: one request answers for several kinds of all members that a verb announced.
//!
//! A verb lists a few kinds on each member, one after the other, and reads the small objects in
//! them. It announces this in advance. The request is sent when the first of the announced listings
//! is needed, and covers everything that was announced until then.
//!
//! Invariants: an answer was requested after the verb announced the listing, and answers as many
//! calls as the verb announced; labels and listings that open a store are one state, which the first
//! announcement with `label` requests for all members. Each put, seal or removal by this process
//! discards all answers before it is answered itself. Answers are discarded after [`FRESH`].

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::Result;
use pinstripe_base::sync::lock;
use pinstripe_member::{ExtentKind, ExtentName, PrefetchHint};

use crate::protocol::{KindLook, LookRequest, MemberLook, MemberProperties};

/// The age at which an answer is discarded.
const FRESH: Duration = Duration::from_secs(10);

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
    /// The members of the volume that are known.
    members: Vec<u16>,
    answers: HashMap<(u16, ExtentKind), Answered>,
    found_labels: HashMap<u16, Vec<u8>>,
    properties: HashMap<u16, (Instant, MemberProperties)>,
    began: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Announced {
    times: u8,
    again: bool,
}

struct Answered {
    left: Announced,
    look: KindLook,
}

impl Looks {
    /// Announces listings of a member. An empty list discards what was prefetched from it.
    pub fn announce(&self, member: u16, wanted: &[PrefetchHint]) {
        let mut state = lock(&self.0);
        if !state.members.contains(&member) {
            state.members.push(member);
        }
        if wanted.is_empty() {
            state.answers.retain(|(of, _), _| *of != member);
            state.announced.retain(|(of, _), _| *of != member);
            state.found_labels.remove(&member);
            return;
        }
        let opens = wanted.iter().any(|hint| hint.label);
        // The first member's announcement of opening has requested the same for this one.
        let is_answered = opens
            && state.is_fresh()
            && state.found_labels.contains_key(&member)
            && wanted.iter().all(|hint| state.answers.contains_key(&(member, hint.kind)));
        if is_answered {
            return;
        }
        state.labels |= opens;
        for hint in wanted {
            let announced = Announced { times: hint.times, again: hint.again };
            state.answers.remove(&(member, hint.kind));
            state.announced.insert((member, hint.kind), announced);
        }
    }

    /// Discards everything, because the volume is about to change.
    pub fn discard(&self) {
        let mut state = lock(&self.0);
        let members = std::mem::take(&mut state.members);
        // The space of a member is an estimate anyway.
        let properties = std::mem::take(&mut state.properties);
        *state = LookState { members, properties, ..LookState::default() };
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
        let fresh = state.is_fresh();
        let answered = state.answers.get_mut(&(member, kind)).filter(|_| fresh)?;
        if answered.left.times == 0 && std::mem::take(&mut answered.left.again) {
            // One later listing: the same for all members that announced it.
            state.announce_again(kind);
            state.request(&send)?;
        }
        let answered = state.answers.get_mut(&(member, kind))?;
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
                let fresh = state.is_fresh();
                state.found_labels.get(&member).filter(|_| fresh).cloned()
            }
            ExtentName::In(kind, id) => {
                let answered = state.answers.get(&(member, kind)).filter(|_| state.is_fresh())?;
                let found = answered.look.extents.binary_search_by(|(it, _)| it.cmp(&id)).ok()?;
                Some(answered.look.extents[found].1.clone())
            }
        }
    }
}

impl LookState {
    fn is_fresh(&self) -> bool {
        self.began.is_some_and(|began| clock::since(began) < FRESH)
    }

    fn announce_again(&mut self, kind: ExtentKind) {
        for ((member, of), answered) in &mut self.answers {
            if *of == kind {
                answered.left.again = false;
                let announced = Announced { times: 1, again: false };
                self.announced.insert((*member, kind), announced);
            }
        }
    }

    /// Requests everything that was announced; `None` if there is no answer. The lock is held
    /// meanwhile: other members wait for the same answer.
    fn request(&mut self, send: &impl Fn(&LookRequest) -> Result<Vec<MemberLook>>) -> Option<()> {
        let announced = std::mem::take(&mut self.announced);
        let labels = std::mem::take(&mut self.labels);
        let mut kinds: Vec<ExtentKind> = announced.keys().map(|(_, kind)| *kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut members: Vec<u16> = announced.keys().map(|(member, _)| *member).collect();
        members.sort_unstable();
        members.dedup();
        // Opening reads the same of every member, and the server knows which there are.
        let request =
            LookRequest { members: if labels { Vec::new() } else { members }, kinds, labels };
        let began = clock::monotonic();
        let looks = send(&request).ok()?;
        self.began = Some(began);
        let usual =
            |kind: &ExtentKind| announced.iter().find(|((_, of), _)| of == kind).map(|(_, it)| *it);
        for MemberLook { member, label, properties, kinds } in looks {
            self.found_labels.extend(label.map(|label| (member, label)));
            self.properties.extend(properties.map(|it| (member, (began, it))));
            for (kind, mut look) in kinds {
                let left = announced.get(&(member, kind)).copied().or_else(|| usual(&kind));
                let Some(left) = left else { continue };
                look.extents.sort_unstable_by_key(|(id, _)| *id);
                self.answers.insert((member, kind), Answered { left, look });
            }
        }
        Some(())
    }
}
