//! Restores from members that are far away: few long reads, and damage costs no more than it hit.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe::Store;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_member::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, Far, KeptLonger, Member,
    PlannedStep, PrefetchHint, Replace, ServerOfMember, SharedMember, batched_of,
};

use pinstripe_sim::{Ledger, Site, noise, restore};
use pinstripe_sim::{assert_same, look};

const SPAN_BYTES: u64 = 4 << 20;

/// Reads of packs: their length, and whether a plan named them.
type Reads = Arc<Mutex<Vec<(usize, bool)>>>;

/// A directory that says that it is far away.
struct Distant {
    inner: SharedMember,
    place: PathBuf,
    reads: Reads,
}

impl Distant {
    fn note(&self, name: ExtentName, bytes: usize, is_planned: bool) {
        if matches!(name, ExtentName::In(ExtentKind::Packs, _)) {
            self.reads.lock().unwrap().push((bytes, is_planned));
        }
    }
}

impl Member for Distant {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.inner.create(name, replace)
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        self.inner.put(name, bytes)
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.note(name, buf.len(), false);
        self.inner.read_at(name, offset, buf)
    }

    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        self.inner.read_at_hand(name, offset, buf)
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        self.inner.len(name)
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        self.inner.list(kind)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        self.inner.delete(name)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn sweep(&self) -> Result<u64> {
        self.inner.sweep()
    }

    fn caps(&self) -> Caps {
        let far = Far { seals: 8, extent_bytes: 16 << 20, reads: 16, span_bytes: SPAN_BYTES };
        Caps { far: Some(far), ..self.inner.caps() }
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        self.inner.batched().map(|_| self as &dyn BatchedMember)
    }
}

impl BatchedMember for Distant {
    fn put_ahead(&self, name: ExtentName, bytes: &[u8]) {
        batched_of(&self.inner).put_ahead(name, bytes);
    }

    fn plan(&self, steps: &[PlannedStep], members: usize) {
        batched_of(&self.inner).plan(steps, members);
    }

    fn list_next(&self, wanted: PrefetchHint, with_content: bool) {
        batched_of(&self.inner).list_next(wanted, with_content);
    }

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        self.note(name, bytes, true);
        batched_of(&self.inner).read_span(name, offset, bytes)
    }

    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        batched_of(&self.inner).read_whole(names, most_bytes)
    }

    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        batched_of(&self.inner).names(kind)
    }

    fn prefetch(&self, wanted: &[PrefetchHint]) {
        batched_of(&self.inner).prefetch(wanted);
    }

    fn open_ahead(&self, names: &[ExtentName]) {
        batched_of(&self.inner).open_ahead(names);
    }

    fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger> {
        batched_of(&self.inner).keep_longer(names)
    }

    fn latency(&self) -> Option<Duration> {
        batched_of(&self.inner).latency()
    }

    fn served(&self) -> Option<ServerOfMember> {
        None
    }
}

/// The members with these numbers are far away.
fn distant(mut store: Store, which: impl Fn(usize) -> bool) -> (Store, Reads) {
    let reads = Reads::default();
    for (number, slot) in store.member_slots.iter_mut().enumerate().filter(|it| which(it.0)) {
        let inner = slot.member.take().unwrap();
        let place = PathBuf::from(format!("far://member/{number}"));
        slot.member = Some(Arc::new(Distant { inner, place, reads: Arc::clone(&reads) }) as _);
    }
    (store, reads)
}

/// A store with files of 128 KiB; nothing compresses. A record holds about four of them.
fn many_files(members: usize, parity: u8) -> Site {
    let site = Site::with_chunks(members, parity, "64K");
    for file in 0..192 {
        fs::write(site.source().join(format!("f{file:03}")), noise(file, 128 << 10)).unwrap();
    }
    site.save();
    site
}

/// Restores everything, also what costs losses.
fn restored(store: &Store, site: &Site) -> (Ledger, PathBuf) {
    let (ledger, to) = (Ledger::new(), site.target());
    restore(store, "latest", &site.source(), &to, &ledger).unwrap();
    (ledger, to)
}

/// The longest pack of a member: that of content.
fn content_pack(site: &Site, member: usize) -> PathBuf {
    let mut files = std::collections::BTreeMap::new();
    pinstripe_sim::read_files(&site.members[member].join("packs"), &mut files);
    files.into_iter().max_by_key(|(_, bytes)| bytes.len()).unwrap().0
}

fn flip(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_far_store_is_restored_by_few_long_reads() {
    let site = many_files(1, 0);
    let (store, reads) = distant(site.store(), |_| true);
    let (ledger, to) = restored(&store, &site);
    ledger.assert_no_losses();
    assert_same(&look(&site.source()), &look(&to));
    let reads = std::mem::take(&mut *reads.lock().unwrap());
    let is_content = |read: &&(usize, bool)| read.1 && read.0 > 1 << 20;
    let spans: Vec<_> = reads.iter().filter(is_content).map(|read| read.0).collect();
    // 24 MiB in one pack: seven at most, and none that is hardly worth a round trip.
    assert!((6..=7).contains(&spans.len()), "{spans:?}");
    assert!(spans.iter().all(|bytes| *bytes > 3 << 20), "{spans:?}");
    let other: usize = reads.iter().filter(|read| !is_content(read)).map(|read| read.0).sum();
    assert!(other < 1 << 20, "{other} bytes of pages and trailers");
    assert!(ledger.get(Counter::FetchedBytes) < 25 << 20, "each record once");
    // One file is not all of them.
    let (ledger, to) = (Ledger::new(), site.target());
    restore(&store, "latest", &site.source().join("f100"), &to, &ledger).unwrap();
    ledger.assert_no_losses();
    assert!(ledger.get(Counter::FetchedBytes) < 3 << 20);
}

#[test]
fn near_members_are_read_instead_and_record_by_record() {
    let site = many_files(3, 1);
    let (store, reads) = distant(site.store(), |number| number == 0);
    let (ledger, to) = restored(&store, &site);
    ledger.assert_no_losses();
    assert_same(&look(&site.source()), &look(&to));
    assert_eq!(reads.lock().unwrap().iter().filter(|read| read.1).count(), 0);
}

#[test]
fn damage_within_a_span_costs_only_its_record() {
    let site = many_files(1, 0);
    let (store, _) = distant(site.store(), |_| true);
    flip(&content_pack(&site, 0), 9 << 20);
    let (ledger, to) = restored(&store, &site);
    let lost = ledger.losses().len();
    assert!((1..=8).contains(&lost), "{:#?}", ledger.losses());
    let there = fs::read_dir(site.source()).unwrap().flatten().filter(|file| {
        let to = to.join(file.file_name());
        fs::read(to).is_ok_and(|bytes| bytes == fs::read(file.path()).unwrap())
    });
    assert_eq!(there.count(), 192 - lost);
}

#[test]
fn damage_within_a_span_is_rebuilt_from_parity() {
    let site = many_files(3, 1);
    let (store, _) = distant(site.store(), |_| true);
    let wanted = look(&site.source());
    // Of some rows this member has the parity, which no restore asks for.
    (1..40).for_each(|at| flip(&content_pack(&site, 1), at << 18));
    let (ledger, to) = restored(&store, &site);
    ledger.assert_no_losses();
    assert!((1..40).contains(&ledger.get(Counter::RebuiltStrips)));
    assert_same(&wanted, &look(&to));
    // An extent that ends early, and one that is gone.
    let pack = content_pack(&site, 1);
    let file = fs::OpenOptions::new().write(true).open(&pack).unwrap();
    file.set_len(4 << 20).unwrap();
    let (store, _) = distant(site.store(), |_| true);
    let (ledger, to) = restored(&store, &site);
    ledger.assert_no_losses();
    assert_same(&wanted, &look(&to));
    fs::remove_file(&pack).unwrap();
    let (store, _) = distant(site.store(), |_| true);
    let (ledger, to) = restored(&store, &site);
    ledger.assert_no_losses();
    assert_same(&wanted, &look(&to));
}
