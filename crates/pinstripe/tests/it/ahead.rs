//! Read-ahead of cat, dump, restore and join, by counts and gates and not by the clock: what comes
//! next is asked for while something else is on its way, and nothing is read twice for it.

use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pinstripe::{Limits, Store, cat, dump, restore};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::device::{Access, Caps as DeviceCaps, Device, FileDevice, Policy, SharedDevice};
use pinstripe_member::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, Member, Replace, SharedMember,
};
use pinstripe_split::{JoinTarget, Reader};

use crate::split::made::{Made, Shape};
use pinstripe_sim::{Ledger, Site, limits, noise};
use pinstripe_sim::{assert_same, look};

/// Far more than anything here takes: when it passes, nothing was asked for ahead.
const DEADLINE: Duration = Duration::from_secs(60);

/// Counts reads, and holds the first ones back until there are so many at a time.
#[derive(Default)]
struct Gate {
    state: Mutex<Passage>,
    changed: Condvar,
}

#[derive(Default)]
struct Passage {
    /// Reads that must stand at the gate together before it opens; none for an open one.
    wanted: usize,
    waiting: usize,
    /// It opened because nothing more came.
    is_forced: bool,
    calls: u64,
    bytes: u64,
}

impl Gate {
    fn close(&self, wanted: usize) {
        let mut state = self.state.lock().unwrap();
        (state.wanted, state.calls, state.bytes) = (wanted, 0, 0);
    }

    #[track_caller]
    fn assert_opened(&self) {
        let state = self.state.lock().unwrap();
        assert!(state.wanted == 0 && !state.is_forced, "never so many reads at a time");
    }

    /// Takes in a read.
    fn pass(&self, bytes: usize) {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        state.bytes += bytes as u64;
        state.waiting += 1;
        if state.waiting >= state.wanted {
            state.wanted = 0;
        }
        self.changed.notify_all();
        let held = |state: &mut Passage| state.wanted > 0;
        let (mut state, _) = self.changed.wait_timeout_while(state, DEADLINE, held).unwrap();
        state.waiting -= 1;
        if state.wanted > 0 {
            (state.wanted, state.is_forced) = (0, true);
            self.changed.notify_all();
        }
    }

    /// Waits until so many bytes were asked for.
    fn wait_for_bytes(&self, bytes: u64) -> u64 {
        let state = self.state.lock().unwrap();
        let few = |state: &mut Passage| state.bytes < bytes;
        self.changed.wait_timeout_while(state, DEADLINE, few).unwrap().0.bytes
    }

    fn read(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap();
        (state.calls, state.bytes)
    }
}

/// A member whose packs of content are read through a gate.
struct Gated {
    inner: SharedMember,
    gate: Arc<Gate>,
}

/// No footer is longer.
const FOOTER_MOST: u64 = 4096;

/// Packs of pages are shorter.
const CONTENT_BYTES: u64 = 2 << 20;

impl Member for Gated {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.inner.create(name, replace)
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        self.inner.put(name, bytes)
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        if matches!(name, ExtentName::In(ExtentKind::Packs, _)) {
            let extent_bytes = self.inner.len(name)?;
            // Header, footer and trailer are read by the one thread that opens a pack, and others wait
            // for it.
            let end = offset + buf.len() as u64;
            let is_end = offset == 0 || end + FOOTER_MOST >= extent_bytes;
            if extent_bytes > CONTENT_BYTES && !is_end {
                self.gate.pass(buf.len());
            }
        }
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
        self.inner.caps()
    }

    fn place(&self) -> &Path {
        self.inner.place()
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        None
    }
}

fn gated(mut store: Store) -> (Store, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    for slot in &mut store.member_slots {
        let inner = slot.member.take().unwrap();
        slot.member = Some(Arc::new(Gated { inner, gate: Arc::clone(&gate) }) as SharedMember);
    }
    (store, gate)
}

/// A store with two files, `a` and `b`, of so many MiB each; nothing compresses.
fn two_files(mib: usize, chunking: &str) -> Site {
    let site = Site::with_chunks(3, 1, chunking);
    for (seed, name) in [(1, "a"), (2, "b")] {
        fs::write(site.source().join(name), noise(seed, mib << 20)).unwrap();
    }
    site.save();
    site
}

fn cat(
    store: &Store,
    site: &Site,
    names: &[&str],
    limits: Limits,
    out: &mut dyn FnMut(&[u8]),
) -> Ledger {
    let path = |name: &&str| site.source().join(name).as_os_str().as_bytes().to_vec();
    let files: Vec<_> = names.iter().map(|name| ("latest".to_owned(), path(name))).collect();
    let options = cat::CatOptions::new(&files, limits);
    let ledger = Ledger::new();
    let mut give = |bytes: &[u8]| {
        out(bytes);
        Ok(())
    };
    cat::run(store, &options, &ledger.monitor, &mut give).unwrap();
    ledger.assert_clean();
    ledger
}

#[test]
fn cat_asks_for_the_next_chunks_while_earlier_ones_are_consumed() {
    let site = two_files(12, "64K");
    let (store, gate) = gated(site.store());
    // At least so many records at a time, with six of these threads or more.
    gate.close(6);
    let mut asked = None;
    let ledger = cat(&store, &site, &["a", "b"], limits(), &mut |_| {
        // A third of all is on its way before the consumer has taken its first bytes.
        asked.get_or_insert_with(|| gate.wait_for_bytes(8 << 20));
    });
    gate.assert_opened();
    assert!(asked.unwrap() >= 8 << 20);
    assert_eq!(ledger.get(Counter::RestoredBytes), 24 << 20);
    assert!(ledger.get(Counter::FetchedBytes) < 25 << 20, "each record once");
}

#[test]
fn cat_reads_again_only_what_its_memory_could_not_keep() {
    // More chunks than the feed may be ahead of the consumer.
    let site = two_files(20, "8K");
    let (store, _) = gated(site.store());
    let names = ["a", "b", "a"];
    let mut wanted = Vec::new();
    for name in names {
        wanted.extend(fs::read(site.source().join(name)).unwrap());
    }
    // A quarter of the memory is for records: room for both files, or for less than one.
    for (memory, most) in [(256_u64, 41_u64), (16, 62)] {
        let mut out = Vec::new();
        let limits = Limits::new(2, 4, memory << 20);
        let ledger = cat(&store, &site, &names, limits, &mut |bytes| out.extend_from_slice(bytes));
        assert!(out == wanted, "{memory} MiB");
        let fetched = ledger.get(Counter::FetchedBytes);
        assert!(fetched < most << 20, "{memory} MiB: {fetched}");
        assert_eq!(fetched > 60 << 20, memory == 16, "{memory} MiB: {fetched}");
    }
}

#[test]
fn a_dump_reads_each_record_once() {
    let site = two_files(12, "64K");
    let (store, gate) = gated(site.store());
    gate.close(6);
    let options = dump::DumpOptions {
        snapshot: "latest".into(),
        path: b"",
        fill_holes: false,
        limits: limits(),
    };
    let (ledger, mut bytes) = (Ledger::new(), 0);
    dump::run(&store, &options, &ledger.monitor, &mut |piece| {
        bytes += piece.len();
        Ok(())
    })
    .unwrap();
    ledger.assert_clean();
    gate.assert_opened();
    assert!(bytes > 24 << 20);
    assert!(ledger.get(Counter::FetchedBytes) < 25 << 20);
}

#[test]
fn a_restore_reads_ahead_of_its_decoders_and_each_record_once() {
    let site = two_files(12, "64K");
    let (store, gate) = gated(site.store());
    // Two threads decode; the others of these six read ahead of them.
    gate.close(6);
    let options = |to: &Path, limits| {
        let (path, to) = (site.source().as_os_str().as_bytes().to_vec(), to.to_path_buf());
        move |store: &Store, ledger: &Ledger| {
            let options = restore::RestoreOptions::new("latest", &path, &to, limits);
            restore::run(store, &options, &ledger.monitor).unwrap();
        }
    };
    // Little memory means few records at a time, and no other bytes.
    for limits in [limits(), Limits::new(2, 4, 1 << 20)] {
        let (to, ledger) = (site.target(), Ledger::new());
        options(&to, limits)(&store, &ledger);
        ledger.assert_no_losses();
        gate.assert_opened();
        assert_same(&look(&site.source()), &look(&to));
        assert!(ledger.get(Counter::FetchedBytes) < 25 << 20);
        let (_, bytes) = gate.read();
        assert!(bytes < 26 << 20, "{bytes}");
        gate.close(0);
    }
}

/// An output that is read through a gate.
struct GatedDevice {
    inner: FileDevice,
    gate: Arc<Gate>,
}

impl Device for GatedDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.gate.pass(buf.len());
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.inner.write_long_at(offset, parts)
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.set_len(bytes)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.inner.discard(range)
    }

    fn caps(&self) -> DeviceCaps {
        self.inner.caps()
    }

    fn place(&self) -> &Path {
        self.inner.place()
    }
}

#[test]
fn a_join_keeps_more_outputs_busy_than_it_has_workers() {
    let made = Made::new(&Shape::of_logs(6, "fake:48M,block=4K,seed=3"));
    let gate = Arc::new(Gate::default());
    let open = |path: &std::path::PathBuf| {
        let inner = FileDevice::open(path, Access::Read, Policy::Buffered).unwrap();
        (Arc::new(GatedDevice { inner, gate: Arc::clone(&gate) }) as SharedDevice, None)
    };
    let reader = Reader::open(made.paths().iter().map(open).collect()).unwrap();
    let stored: u64 = reader.batches().iter().map(|it| it.place.log_bytes).sum();
    for workers in [2, 6, 9] {
        gate.close(6);
        let options = pinstripe_split::JoinOptions { range: None, best_effort: false, workers };
        let mut out = Vec::new();
        let target = JoinTarget::Stream(&mut |bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        });
        pinstripe_split::join(&reader, &options, target, &Monitor::default()).unwrap();
        gate.assert_opened();
        assert!(out == made.source, "{workers} workers");
        assert_eq!(gate.read(), (reader.batches().len() as u64, stored), "each batch once");
    }
}
