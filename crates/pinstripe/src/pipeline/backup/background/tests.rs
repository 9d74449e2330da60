//! What watching costs a member that is far away.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use super::*;
use crate::ops::init::{InitOptions, run_with};
use crate::store::objects::Quorum;
use crate::store::{OpenOptions, deletion};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{CondemnationId, SessionId};
use pinstripe_base::sync::lock;
use pinstripe_member::gc::{DeletionStep, Lists};
use pinstripe_member::label::MemberFacts;
use pinstripe_member::{
    BatchedMember, Caps, ExtentName, ExtentWriter, KeptLonger, Member, MemoryMember, NewMember,
    Places, PlannedStep, RemoteMembers, Replace, ServerOfMember, SharedMember, each_whole, span_of,
};

/// A member that counts listings as a bucket is asked for them: one for all that will be asked.
struct Far {
    inner: MemoryMember,
    lists: AtomicU64,
    counted: Mutex<BTreeMap<ExtentKind, u8>>,
    /// Steps of deletion that are put are there already, and gone when they are looked at.
    takes_away: AtomicBool,
}

impl Far {
    fn changes(&self) {
        lock(&self.counted).clear();
    }
}

impl Member for Far {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.changes();
        self.inner.create(name, replace)
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        self.changes();
        let is_step = matches!(name, ExtentName::In(ExtentKind::Gc, _));
        match is_step && self.takes_away.load(Ordering::Relaxed) {
            true => Err(Error::new(Kind::Exists, "an extent has this name")),
            false => self.inner.put(name, bytes),
        }
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, buf)
    }

    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        self.inner.read_at_hand(name, offset, buf)
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        self.inner.len(name)
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        match lock(&self.counted).get_mut(&kind) {
            Some(left) if *left > 0 => *left -= 1,
            _ => drop(self.lists.fetch_add(1, Ordering::Relaxed)),
        }
        self.inner.list(kind)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        self.changes();
        self.inner.delete(name)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn sweep(&self) -> Result<u64> {
        self.inner.sweep()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn place(&self) -> &Path {
        self.inner.place()
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        Some(self)
    }
}

impl BatchedMember for Far {
    fn put_ahead(&self, _: ExtentName, _: &[u8]) {}

    fn plan(&self, _: &[PlannedStep], _: usize) {}

    fn list_next(&self, _: PrefetchHint, _: bool) {}

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        span_of(self, name, offset, bytes)
    }

    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        each_whole(self, names, most_bytes)
    }

    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        Ok(self.list(kind)?.into_iter().map(|(id, _)| id).collect())
    }

    fn prefetch(&self, wanted: &[PrefetchHint]) {
        let mut counted = lock(&self.counted);
        let left = |kind| counted.get(kind).is_some_and(|left| *left > 0);
        if !wanted.is_empty() && wanted.iter().all(|glance| left(&glance.kind)) {
            return;
        }
        counted.clear();
        if !wanted.is_empty() {
            self.lists.fetch_add(1, Ordering::Relaxed);
            counted.extend(wanted.iter().map(|glance| (glance.kind, glance.times)));
        }
    }

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

struct One(Arc<Far>);

impl RemoteMembers for One {
    fn open(&self, _: &Path) -> Result<SharedMember> {
        Ok(Arc::clone(&self.0) as SharedMember)
    }

    fn create(&self, _: &Path) -> Result<NewMember> {
        let member = Arc::clone(&self.0) as SharedMember;
        Ok(NewMember { member, facts: MemberFacts::default() })
    }

    fn fate(&self, _: &Path) -> Result<String> {
        Ok("far".to_owned())
    }
}

/// A store of one far member.
fn far_store() -> (Arc<Far>, Store) {
    let place = PathBuf::from("far://member");
    let member = Arc::new(Far {
        inner: MemoryMember::new(&place),
        lists: AtomicU64::new(0),
        counted: Mutex::default(),
        takes_away: AtomicBool::new(false),
    });
    let remote: Arc<dyn RemoteMembers> = Arc::new(One(Arc::clone(&member)));
    let options = InitOptions::plain(vec![place.clone()], 0);
    run_with(&options, &Places { remote: Some(Arc::clone(&remote)), steps: None }).unwrap();
    let open = OpenOptions { remote: Some(remote), ..OpenOptions::default() };
    (member, Store::open_with(&place, open).unwrap())
}

/// An answer whose own answer was lost is sent again. Meanwhile gc may have read it, ended what it
/// had condemned, and removed the answer: backups ended with "this extent does not exist" then.
#[test]
fn an_answer_that_gc_has_read_and_removed_is_given() {
    let (member, store) = far_store();
    let monitor = Monitor::default();
    let index = Index::load(&store, &monitor).unwrap();
    let step = DeletionStep::Condemned(Lists::default());
    let (case, gc) = (CondemnationId([7; 16]), SessionId([8; 16]));
    deletion::put(&store, case, gc, step, Quorum::Backup).unwrap();
    member.takes_away.store(true, Ordering::Relaxed);
    let mut acknowledger = Acknowledger::new(SessionId([1; 16]));
    acknowledger.poll(&store, &index).unwrap();
    // It is not put once more.
    member.takes_away.store(false, Ordering::Relaxed);
    acknowledger.poll(&store, &index).unwrap();
    assert_eq!(member.inner.list(ExtentKind::Gc).unwrap().len(), 1);
}

#[test]
fn a_backup_that_waits_lists_at_most_150_times_an_hour() {
    let (member, store) = far_store();
    let monitor = Monitor::default();
    let index = Index::load(&store, &monitor).unwrap();
    let mut acknowledger = Acknowledger::new(SessionId([1; 16]));
    let before = member.lists.load(Ordering::Relaxed);
    let (mut passed, mut looks) = (Duration::ZERO, 0);
    watch_while(&store, &index, &mut acknowledger, &Abort::default(), |pause| {
        passed += pause;
        looks += 1;
        passed < Duration::from_secs(3600)
    });
    let lists = member.lists.load(Ordering::Relaxed) - before;
    assert!(lists <= 150, "{lists} listings in {looks} looks");
    // A gc that waits for a minute is answered.
    assert!(looks >= 60, "{looks} looks");
}
