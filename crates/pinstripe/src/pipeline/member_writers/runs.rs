//! Stripe sets that a server lays: the host fills a set's logical run and sends it as one request.
//!
//! Invariants: each thread has at most one set in progress. A barrier waits for the sets that were
//! sealed before it. A set without a result of success from each of its members counts as short.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::free_space::FreeSpace;
use super::{MemberStanding, WritersShared};
use crate::pipeline::limits::LANE_SHARE;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_base::sync::lock;
use pinstripe_base::units::MIB;
use pinstripe_member::{ExtentName, Far, RunToLay, SetServer};
use pinstripe_stripe::{Geometry, RunSink, SetLayout};

/// The least length of the logical run of a pack.
const RUN_MIN_BYTES: u64 = 4 * MIB;

/// The logical run of a set that is being filled.
pub(super) struct OpenRun {
    server: Arc<dyn SetServer>,
    name: ExtentName,
    geometry: Geometry,
    /// The number of each member on the server, by slot.
    numbers: Vec<u16>,
    room: RunRoom,
    content: Mutex<(Vec<u8>, Range<u64>)>,
}

/// The members of a set, by slot, with the bytes that are reserved on each.
pub(super) struct RunRoom {
    pub members: Vec<(usize, FreeSpace)>,
    pub bytes: u64,
}

impl Drop for RunRoom {
    fn drop(&mut self) {
        self.members.iter().for_each(|(_, room)| room.release(self.bytes));
    }
}

impl OpenRun {
    /// Begins a set on the members of a server.
    pub fn begin(
        (server, numbers): (Arc<dyn SetServer>, Vec<u16>),
        name: ExtentName,
        geometry: Geometry,
        room: RunRoom,
    ) -> Arc<Self> {
        Arc::new(OpenRun { server, name, geometry, numbers, room, content: Mutex::default() })
    }

    /// Takes the content of the finished set.
    fn take(&self) -> Arc<RunToLay> {
        let (bytes, index) = mem::take(&mut *lock(&self.content));
        let (name, geometry, members) = (self.name, self.geometry, self.numbers.clone());
        Arc::new(RunToLay { name, geometry, members, index, bytes })
    }
}

/// Fills an open run.
pub(super) struct RunFiller(pub Arc<OpenRun>);

impl RunSink for RunFiller {
    fn append(&mut self, bytes: &[u8]) {
        lock(&self.0.content).0.extend_from_slice(bytes);
    }

    fn finish(&mut self, index: Range<u64>) {
        lock(&self.0.content).1 = index;
    }
}

/// The threads that send runs.
pub(super) struct RunThreads {
    /// The length that the logical run of a pack should not exceed.
    pub run_bytes: u64,
    runs: Sender<(u64, Arc<OpenRun>)>,
    sending: Arc<Mutex<Sending>>,
}

/// The runs that are being sent, and the barriers that wait for each.
#[derive(Default)]
struct Sending {
    last: u64,
    awaited: HashMap<u64, Vec<Sender<()>>>,
}

impl RunThreads {
    /// Starts the threads, which end when the [`RunThreads`] is dropped. All of them together use
    /// `queues_bytes` times [`LANE_SHARE`] of memory.
    pub fn start<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        far: Far,
        queues_bytes: u64,
        shared: &WritersShared<'a>,
    ) -> Self {
        let affordable = LANE_SHARE * queues_bytes;
        let threads = (affordable / RUN_MIN_BYTES).clamp(1, far.seals.max(1) as u64);
        let run_bytes = (affordable / threads).max(RUN_MIN_BYTES);
        // A run is passed on when a thread is free, so no further run is in memory.
        let (runs, taken) = bounded(0);
        let sending = Arc::<Mutex<Sending>>::default();
        for _ in 0..threads {
            let (taken, shared, sending) = (taken.clone(), shared.clone(), Arc::clone(&sending));
            scope.spawn(move || Self::run(&taken, &shared, &sending));
        }
        RunThreads { run_bytes, runs, sending }
    }

    fn run(
        taken: &Receiver<(u64, Arc<OpenRun>)>,
        shared: &WritersShared<'_>,
        sending: &Mutex<Sending>,
    ) {
        for (number, run) in taken {
            send(&run, shared);
            drop(run);
            lock(sending).awaited.remove(&number);
        }
    }

    /// Sends a run, once a thread is free.
    pub fn seal(&self, run: &Arc<OpenRun>) {
        let number = {
            let mut sending = lock(&self.sending);
            sending.last += 1;
            let number = sending.last;
            sending.awaited.insert(number, Vec::new());
            number
        };
        if self.runs.send((number, Arc::clone(run))).is_err() {
            // The threads panicked; the scope passes that on.
            lock(&self.sending).awaited.remove(&number);
        }
    }

    /// Makes a barrier wait for the runs that are being sent.
    pub fn hold(&self, barrier: &Sender<()>) {
        lock(&self.sending).awaited.values_mut().for_each(|it| it.push(barrier.clone()));
    }
}

/// Sends a run, and counts its results.
fn send(run: &OpenRun, shared: &WritersShared<'_>) {
    let to_lay = run.take();
    if shared.abort.is_raised() {
        shared.note_short(run.name);
        return;
    }
    let members = || run.room.members.iter();
    let results = run.server.lay(&to_lay).unwrap_or_else(|error| {
        members().map(|_| Err(error.duplicate())).collect::<Vec<Result<()>>>()
    });
    for (slot, ((number, room), result)) in members().zip(results).enumerate() {
        match result {
            Ok(()) => shared.monitor.add(Counter::WrittenBytes, extent_bytes(&to_lay, slot)),
            // A repair rebuilt it.
            Err(error) if error.kind() == Kind::Exists => {}
            Err(error) => {
                shared.note_short(run.name);
                fail(shared, *number, room, error);
            }
        }
    }
    if members().any(|(number, _)| shared.has_lost_extents(*number)) {
        shared.note_short(run.name);
    }
}

fn extent_bytes(run: &RunToLay, slot: usize) -> u64 {
    let ExtentName::In(_, set) = run.name else { return 0 };
    let set = pinstripe_base::id::SetId(set);
    SetLayout::new(run.geometry, set, run.bytes.len() as u64).map_or(0, |it| it.extent_bytes(slot))
}

fn fail(shared: &WritersShared<'_>, number: usize, room: &FreeSpace, error: Error) {
    let to = match error.kind() {
        Kind::NoSpace => MemberStanding::CutShort,
        _ => MemberStanding::Failed,
    };
    shared.fail(number, &room.member, error, to);
}
