//! The deadlines of members, and the places that are silent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pinstripe_base::error::Error;
use pinstripe_base::ranked::RankedMutex;
use pinstripe_base::units::MIB;

pinstripe_base::lock_ranks! {
    /// The locks of a member's calls.
    pub(super) enum MemberCallsLock {
        /// The lock of the buffers for the next reads.
        Buffers,
        /// The lock of the set of silent places.
        Silent,
    }
}

/// The least number of bytes per second that a member must transfer: the time for an operation's
/// bytes at this rate is added to its deadline.
const DATA_BYTES_PER_SECOND: u64 = MIB;
/// The deadline of operations after an interrupt by the user.
const INTERRUPTED: Duration = Duration::from_millis(700);

/// The deadlines of members, and the functions that receive reports about silent members.
#[derive(Clone)]
pub struct Deadlines(Arc<WatchTerms>);

/// Receives reports about members that did not answer.
type Tell = Box<dyn Fn(&Path, Error) + Send + Sync>;
/// Receives reports about members that answer again.
type TellReturn = Box<dyn Fn(&Path) + Send + Sync>;

struct WatchTerms {
    control: Duration,
    interrupted: Arc<AtomicBool>,
    /// Places of silent members: they get no further calls until they return.
    silent: RankedMutex<MemberCallsLock, BTreeMap<PathBuf, Query>>,
    tell: Tell,
    /// `None` if a silent member stays silent to the end.
    tell_return: Option<TellReturn>,
}

/// Whether a silent member has a query whose answer can bring it back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Query {
    Idle,
    Waiting,
}

impl Deadlines {
    /// Sets deadlines: `control` for an operation, and longer for one that transfers many bytes.
    /// Once `interrupted` is set, no call waits longer than 0.7 seconds. `tell` receives each
    /// member that did not answer, once per member, from any thread.
    pub fn new(
        control: Duration,
        interrupted: Arc<AtomicBool>,
        tell: impl Fn(&Path, Error) + Send + Sync + 'static,
    ) -> Self {
        Self::with(control, interrupted, Box::new(tell), None)
    }

    /// Sets deadlines for a verb that writes nothing: a silent member is used again when an
    /// abandoned call or query succeeds. `tell_return` then receives the member, and `tell` receives
    /// it each time it becomes silent again.
    pub fn of_reader(
        control: Duration,
        interrupted: Arc<AtomicBool>,
        tell: impl Fn(&Path, Error) + Send + Sync + 'static,
        tell_return: impl Fn(&Path) + Send + Sync + 'static,
    ) -> Self {
        Self::with(control, interrupted, Box::new(tell), Some(Box::new(tell_return)))
    }

    fn with(
        control: Duration,
        interrupted: Arc<AtomicBool>,
        tell: Tell,
        tell_return: Option<TellReturn>,
    ) -> Self {
        let silent = RankedMutex::new(MemberCallsLock::Silent, BTreeMap::new());
        Deadlines(Arc::new(WatchTerms { control, interrupted, silent, tell, tell_return }))
    }

    /// The deadline of an operation that transfers no data.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.0.control
    }

    /// Whether the member at a place is silent.
    pub fn is_silent(&self, place: &Path) -> bool {
        self.0.silent.lock().contains_key(place)
    }

    /// The number of places that are silent now.
    #[must_use]
    pub fn silent_places(&self) -> usize {
        self.0.silent.lock().len()
    }

    /// Reports, once, that a place did not answer.
    pub(super) fn give_up(&self, place: &Path, error: Error) {
        let mut silent = self.0.silent.lock();
        let is_news = !silent.contains_key(place);
        silent.entry(place.to_path_buf()).or_insert(Query::Idle);
        drop(silent);
        if is_news {
            (self.0.tell)(place, error);
        }
    }

    /// Sets the state of a silent place's query, if the place is silent. Returns whether it changed.
    pub(super) fn set_query(&self, place: &Path, to: Query) -> bool {
        let mut silent = self.0.silent.lock();
        silent.get_mut(place).is_some_and(|query| std::mem::replace(query, to) != to)
    }

    /// Whether a silent member may be used again.
    pub(super) fn allows_return(&self) -> bool {
        self.0.tell_return.is_some()
    }

    /// Reports, once, that a place answers again.
    pub(super) fn take_back(&self, place: &Path) {
        let was_silent = self.0.silent.lock().remove(place).is_some();
        if let (true, Some(tell)) = (was_silent, &self.0.tell_return) {
            tell(place);
        }
    }

    /// The deadline of an operation that transfers this many bytes.
    pub(super) fn for_bytes(&self, bytes: u64) -> Duration {
        self.0.control + Duration::from_secs(bytes / DATA_BYTES_PER_SECOND)
    }

    /// The deadline at this moment: shorter after an interrupt.
    pub(super) fn now(&self, bytes: u64) -> Duration {
        let full = self.for_bytes(bytes);
        if self.is_interrupted() { full.min(INTERRUPTED) } else { full }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.0.interrupted.load(Ordering::Relaxed)
    }
}
