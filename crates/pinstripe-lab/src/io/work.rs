//! Carries out a job: each worker takes the next request, makes it, and measures its time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{into_inner, lock};
use pinstripe_io::device::{AlignedBuf, Completion, Ring};

use super::{Area, Done, Engine, Job, Request};
use crate::histogram::Histogram;
use crate::run::Live;

/// Carries out a job on an area, and returns its figures.
///
/// # Errors
/// [`Kind::Usage`] for an inconsistent job; [`Kind::Interrupted`] after a stop request; otherwise
/// the errors of the device. The first error ends the job.
pub fn run(job: &Job, area: &Area, live: &Live) -> Result<Done> {
    job.check(area)?;
    let shared = JobShared {
        job,
        area,
        live,
        blocks: area.blocks(job.pattern.block_bytes),
        next: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        failure: Mutex::new(None),
        start: Barrier::new(job.threads),
    };
    let parts: Vec<WorkerPart> = thread::scope(|scope| {
        let spawn = |number| {
            let shared = &shared;
            scope.spawn(move || shared.work(number as u64))
        };
        let workers: Vec<_> = (0..job.threads).map(spawn).collect();
        // A worker that panicked has a mistake of ours: pass it on.
        workers
            .into_iter()
            .map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    if let Some(error) = into_inner(shared.failure) {
        return Err(error);
    }
    live.check()?;
    let mut done = Done::default();
    parts.iter().for_each(|part| done.merge(&part.done));
    let began = parts.iter().map(|part| part.began).min();
    let ended = parts.iter().map(|part| part.ended).max();
    let span = began.zip(ended).map(|(began, ended)| ended.duration_since(began));
    done.seconds = span.unwrap_or_default().as_secs_f64();
    done.has_wrapped = job.pattern.wraps() && done.requests > shared.blocks;
    if job.syncing.at_end {
        let began = Instant::now();
        sync_all(job, area, &mut done.syncs)?;
        done.sync_s = began.elapsed().as_secs_f64();
    }
    Ok(done)
}

pub(super) fn sync_all(job: &Job, area: &Area, times: &mut Histogram) -> Result<()> {
    for target in area.targets() {
        times.record(target.sync(job.syncing.is_full)?);
    }
    Ok(())
}

/// The shared state of all workers of a job.
struct JobShared<'a> {
    job: &'a Job,
    area: &'a Area,
    live: &'a Live,
    blocks: u64,
    /// The number of the next request.
    next: AtomicU64,
    /// Whether the time has elapsed or a request failed.
    is_over: AtomicBool,
    failure: Mutex<Option<Error>>,
    start: Barrier,
}

/// The results of one worker.
struct WorkerPart {
    done: Done,
    began: Instant,
    ended: Instant,
}

impl JobShared<'_> {
    fn work(&self, number: u64) -> WorkerPart {
        // A worker that cannot begin still enters the barrier: the others wait for all.
        let ready = JobWorker::new(self, number);
        self.start.wait();
        let began = Instant::now();
        let mut done = Done::default();
        let worked = ready.and_then(|mut worker| match self.job.engine {
            Engine::Psync => worker.one_by_one(began, &mut done),
            Engine::Uring => worker.side_by_side(began, &mut done),
        });
        if let Err(error) = worked {
            self.is_over.store(true, Ordering::Relaxed);
            let mut failure = lock(&self.failure);
            failure.get_or_insert(error);
        }
        WorkerPart { done, began, ended: Instant::now() }
    }

    /// The next request with its number; `None` when there were enough requests or the time has
    /// elapsed.
    fn next(&self, began: Instant, now: Instant) -> Option<(u64, Request)> {
        let is_late = self.job.time.is_some_and(|time| now.duration_since(began) >= time);
        if is_late || self.is_ended() {
            return None;
        }
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        if self.job.requests.is_some_and(|most| n >= most) {
            return None;
        }
        Some((n, self.job.pattern.request(n, self.blocks, self.job.seed)))
    }

    /// Whether a request failed, or a stop was requested.
    fn is_ended(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.live.is_stopped()
    }

    /// Returns a completion that arrives before a request is due; `None` if no completion arrives.
    fn land_until(&self, ring: &mut Ring, due: Instant) -> Result<Option<Completion>> {
        if ring.in_flight() > 0 {
            return ring.reap_until(due);
        }
        sleep_until(due, self.live);
        Ok(None)
    }

    /// When a request is due; `None` without a rate.
    fn due(&self, n: u64, began: Instant) -> Option<Instant> {
        self.job.rate.map(|rate| began + Duration::from_secs_f64(n as f64 / rate))
    }

    /// Advises the kernel about future reads, so that it knows `ahead` requests beyond this one.
    /// The kernel is advised only once about each request.
    fn advise(&self, n: u64) {
        let ahead = self.job.ahead;
        let first = if n == 0 { 1 } else { n + ahead };
        let end = self.job.requests.unwrap_or(u64::MAX).min(n + ahead + 1);
        for number in first.max(n + 1)..end {
            let request = self.job.pattern.request(number, self.blocks, self.job.seed);
            let block_bytes = self.job.pattern.block_bytes;
            let (target, offset) = self.area.place(request.block, block_bytes);
            target.will_read(offset, block_bytes);
        }
    }

    /// Records a finished request: its bytes and its time, and carries out the steps that follow
    /// it.
    fn account(&self, n: u64, request: Request, time: Duration, done: &mut Done) -> Result<()> {
        let bytes = self.job.pattern.block_bytes as u64;
        done.requests += 1;
        if request.is_write {
            done.written_bytes += bytes;
            done.writes.record(time);
        } else {
            done.read_bytes += bytes;
            done.reads.record(time);
        }
        self.live.moved(bytes);
        match self.job.syncing.every {
            Some(every) if (n + 1).is_multiple_of(every) => {
                sync_all(self.job, self.area, &mut done.syncs)
            }
            _ => Ok(()),
        }
    }
}

struct JobWorker<'a> {
    shared: &'a JobShared<'a>,
    /// One buffer for each request in flight.
    buffers: Vec<AlignedBuf>,
    ring: Option<Ring>,
}

impl<'a> JobWorker<'a> {
    fn new(shared: &'a JobShared<'a>, number: u64) -> Result<Self> {
        let job = shared.job;
        let (ring, depth) = match job.engine {
            Engine::Psync => (None, 1),
            Engine::Uring => (Some(Ring::new(job.depth)?), job.depth),
        };
        let mut buffers: Vec<AlignedBuf> =
            (0..depth).map(|_| AlignedBuf::new(job.pattern.block_bytes)).collect();
        for (at, buffer) in buffers.iter_mut().enumerate() {
            buffer.set_len(job.pattern.block_bytes);
            job.content.fill(buffer, job.seed ^ (number << 32 | at as u64));
        }
        Ok(JobWorker { shared, buffers, ring })
    }

    /// Makes each request after the previous one is done.
    fn one_by_one(&mut self, began: Instant, done: &mut Done) -> Result<()> {
        let shared = self.shared;
        let job = shared.job;
        let buffer = &mut self.buffers[0];
        let mut now = began;
        while let Some((n, request)) = shared.next(began, now) {
            let due = shared.due(n, began);
            if let Some(due) = due {
                sleep_until(due, shared.live);
            }
            if request.is_write {
                job.content.mark(buffer, n, job.seed);
            }
            let (target, offset) = shared.area.place(request.block, job.pattern.block_bytes);
            let submitted = Instant::now();
            shared.advise(n);
            match request.is_write {
                true => target.device().write_at(offset, buffer)?,
                false => target.device().read_at(offset, buffer)?,
            }
            now = Instant::now();
            if let Some(due) = due {
                done.responses.record(now.saturating_duration_since(due));
            }
            shared.account(n, request, now - submitted, done)?;
        }
        Ok(())
    }

    /// Keeps as many requests in flight as there are buffers.
    fn side_by_side(&mut self, began: Instant, done: &mut Done) -> Result<()> {
        let shared = self.shared;
        let mut ring = self.ring.take().expect("the engine has made a ring");
        let mut flights: Vec<Option<(u64, Request, Instant)>> = vec![None; self.buffers.len()];
        let mut free: VecDeque<(usize, AlignedBuf)> =
            std::mem::take(&mut self.buffers).into_iter().enumerate().collect();
        let mut now = began;
        // Taken, and due later.
        let mut waiting: Option<(u64, Request)> = None;
        let mut is_over = false;
        loop {
            while !is_over && !free.is_empty() {
                let next = waiting.take().or_else(|| shared.next(began, now));
                let Some((n, request)) = next else {
                    is_over = true;
                    break;
                };
                now = Instant::now();
                if shared.due(n, began).is_some_and(|due| due > now) {
                    waiting = Some((n, request));
                    break;
                }
                let (slot, buffer) = free.pop_front().expect("it was looked that there is one");
                flights[slot] = Some((n, request, now));
                submit(shared, &mut ring, slot, buffer, n, request)?;
            }
            let due = waiting.and_then(|(n, _)| shared.due(n, began));
            let landed = match due.filter(|_| !free.is_empty()) {
                None if ring.in_flight() == 0 => return Ok(()),
                None => ring.reap()?,
                Some(due) => match shared.land_until(&mut ring, due)? {
                    Some(landed) => landed,
                    None => {
                        is_over |= shared.is_ended();
                        waiting = waiting.filter(|_| !is_over);
                        continue;
                    }
                },
            };
            now = Instant::now();
            landed.result?;
            let slot = landed.token as usize;
            let pinstripe_io::device::WriteBuf::Aligned(buffer) = landed.buf else {
                unreachable!("only aligned buffers were handed in")
            };
            free.push_back((slot, buffer));
            if let Some((n, request, submitted)) = flights[slot].take() {
                if let Some(due) = shared.due(n, began) {
                    done.responses.record(now.saturating_duration_since(due));
                }
                shared.account(n, request, now - submitted, done)?;
            }
        }
    }
}

fn submit(
    shared: &JobShared<'_>,
    ring: &mut Ring,
    slot: usize,
    mut buffer: AlignedBuf,
    n: u64,
    request: Request,
) -> Result<()> {
    let job = shared.job;
    let (target, offset) = shared.area.place(request.block, job.pattern.block_bytes);
    let file = target.file.as_ref().ok_or_else(|| {
        Error::new(Kind::Usage, "io_uring works only on files and disks").advice("use psync")
    })?;
    if request.is_write {
        job.content.mark(&mut buffer, n, job.seed);
        ring.submit_write(file, offset, buffer, slot as u64);
    } else {
        ring.submit_read(file, offset, buffer, slot as u64);
    }
    Ok(())
}

/// Sleeps in short pieces, so that it ends soon after a stop request.
fn sleep_until(due: Instant, live: &Live) {
    const PIECE: Duration = Duration::from_millis(100);
    while !live.is_stopped() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(PIECE));
    }
}
