//! Reads and writes submitted to the kernel, several at a time (io_uring(7), Linux 5.6).
//!
//! Invariants: a submitted buffer belongs to the ring until its completion, in any case; a ring
//! that is dropped waits for transfers in flight, and leaks their buffers instead of freeing them
//! if it cannot wait; each buffer is returned once, moved completely or with an error.
//!
//! A transfer that the kernel cannot do by itself, such as the end of a file under a direct policy
//! or a write that it refuses, is done at once by the calling thread, as in [`Device::write_at`].
//!
//! Not in this module: threads. Only one thread uses a ring at a time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::{AlignedBuf, Device, FileDevice, WriteBuf};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};

/// The most bytes of one system call; the kernel accepts less than 2 GiB (read(2)).
const MOST_BYTES: usize = 1 << 30;
/// The polling interval if the kernel cannot wait with a timeout.
const GLANCE: Duration = Duration::from_micros(50);

/// An io_uring and the buffers that are in flight.
pub struct Ring {
    uring: IoUring,
    /// Transfers in flight by slot, a number that identifies a transfer to the kernel.
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Transfers that are completed but not reaped.
    landed: VecDeque<Completion>,
    /// Aligned memory of earlier copies, for reuse.
    copies: Vec<AlignedBuf>,
}

/// The outcome of a read or write.
#[derive(Debug)]
pub struct Completion {
    /// The token with which the transfer was submitted.
    pub token: u64,
    /// The buffer.
    pub buf: WriteBuf,
    /// Success only if all of the buffer was moved.
    pub result: Result<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FlightDirection {
    Read,
    Write,
}

struct Flight {
    /// Keeps the descriptor open.
    device: Arc<FileDevice>,
    direction: FlightDirection,
    offset: u64,
    token: u64,
    buf: WriteBuf,
    /// Used instead of `buf` if the disk cannot take the memory of `buf`.
    copy: Option<AlignedBuf>,
    /// The number of bytes that were moved so far.
    moved: usize,
    /// The number of bytes that the kernel is to move.
    goal: usize,
}

impl Ring {
    /// A ring that can have up to `depth` reads and writes in flight.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] if the kernel has no io_uring or does not allow this
    /// process to use io_uring.
    pub fn new(depth: usize) -> Result<Self> {
        let depth = depth.clamp(1, 1024);
        let uring = IoUring::new(depth as u32).map_err(unusable)?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe).map_err(unusable)?;
        if !probe.is_supported(opcode::Write::CODE) || !probe.is_supported(opcode::Read::CODE) {
            return Err(unusable(io::Error::from_raw_os_error(libc::ENOSYS)));
        }
        let flights = (0..depth).map(|_| None).collect();
        let free = (0..depth).rev().collect();
        Ok(Ring { uring, flights, free, landed: VecDeque::new(), copies: Vec::new() })
    }

    /// The number of reads and writes that were submitted and not reaped.
    pub fn in_flight(&self) -> usize {
        self.flying() + self.landed.len()
    }

    /// Begins to write the entire `buf` at `offset`. If `depth` transfers are in flight, it first
    /// waits for one of them. Errors come with the completion.
    pub fn submit_write(
        &mut self,
        device: &Arc<FileDevice>,
        offset: u64,
        buf: impl Into<WriteBuf>,
        token: u64,
    ) {
        self.submit(FlightDirection::Write, device, offset, buf.into(), token);
    }

    /// Begins to read into `buf`, to its full length, from `offset`; otherwise like
    /// [`submit_write`](Self::submit_write).
    pub fn submit_read(
        &mut self,
        device: &Arc<FileDevice>,
        offset: u64,
        buf: impl Into<WriteBuf>,
        token: u64,
    ) {
        self.submit(FlightDirection::Read, device, offset, buf.into(), token);
    }

    /// Waits for a read or write to end. Transfers end in any order.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] when nothing is in flight; with [`Kind::Io`] when the kernel's
    /// side of the ring is broken: the ring must then be dropped.
    pub fn reap(&mut self) -> Result<Completion> {
        loop {
            if let Some(landed) = self.landed.pop_front() {
                return Ok(landed);
            }
            if self.flying() == 0 {
                return Err(Error::new(Kind::Usage, "no request of io_uring is in flight"));
            }
            self.wait()?;
        }
    }

    /// Like [`reap`](Self::reap), but waits at most until `moment`; returns `None` if nothing ended
    /// by then, or nothing is in flight.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] as [`reap`](Self::reap).
    pub fn reap_until(&mut self, moment: Instant) -> Result<Option<Completion>> {
        loop {
            self.collect();
            let landed = self.landed.pop_front();
            let left = moment.saturating_duration_since(clock::monotonic());
            if landed.is_some() || left.is_zero() || self.flying() == 0 {
                return Ok(landed);
            }
            self.wait_for(left)?;
        }
    }

    fn flying(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    fn submit(
        &mut self,
        direction: FlightDirection,
        device: &Arc<FileDevice>,
        offset: u64,
        buf: WriteBuf,
        token: u64,
    ) {
        let way = device.way(offset, &buf);
        let (goal, needs_copy) = (way.len, way.needs_copy);
        let device = Arc::clone(device);
        let mut flight =
            Flight { device, direction, offset, token, buf, copy: None, moved: 0, goal };
        if goal > 0 && needs_copy {
            let mut copy = self.copy_of(goal);
            copy.set_len(goal);
            if direction == FlightDirection::Write {
                copy.copy_from_slice(&flight.buf[..goal]);
            }
            flight.copy = Some(copy);
        }
        while goal > 0 && self.free.is_empty() {
            if let Err(error) = self.wait() {
                let Flight { token, buf, .. } = flight;
                self.landed.push_back(Completion { token, buf, result: Err(error) });
                return;
            }
        }
        if goal == 0 {
            return self.land(flight, Ok(()));
        }
        let slot = self.free.pop().expect("waited until one was free");
        self.fly(slot, flight);
        // Entries that the kernel does not take now are offered again by the next wait.
        let _ = self.uring.submit();
    }

    /// Memory for an aligned copy of any length.
    fn copy_of(&mut self, len: usize) -> AlignedBuf {
        let used = self.copies.pop().filter(|copy| copy.capacity() >= len);
        used.unwrap_or_else(|| AlignedBuf::new(len))
    }

    /// Puts the rest of a transfer into the submission queue.
    fn fly(&mut self, slot: usize, mut flight: Flight) {
        let entry = flight.entry().user_data(slot as u64);
        self.flights[slot] = Some(flight);
        // SAFETY: the descriptor and the memory that the entry names belong to the flight, which
        // stays in its slot, and its memory in place, until the kernel has said that it is done.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        pushed.expect("there is an entry for each slot");
    }

    /// Submits the entries that the kernel has not taken yet, waits for one to end, and collects
    /// it.
    fn wait(&mut self) -> Result<()> {
        self.uring.submit_and_wait(1).map(drop).or_else(passing)?;
        self.collect();
        Ok(())
    }

    /// Like [`wait`](Self::wait), but not longer than `left`.
    fn wait_for(&mut self, left: Duration) -> Result<()> {
        if !self.uring.params().is_feature_ext_arg() {
            // Before Linux 5.11 a wait has no timeout: poll instead.
            self.uring.submit().map(drop).or_else(passing)?;
            std::thread::sleep(left.min(GLANCE));
            return Ok(());
        }
        let left = types::Timespec::from(left);
        let arguments = types::SubmitArgs::new().timespec(&left);
        self.uring.submitter().submit_with_args(1, &arguments).map(drop).or_else(passing)
    }

    /// Collects the transfers that have ended.
    fn collect(&mut self) {
        loop {
            let next = self.uring.completion().next();
            let Some(entry) = next else { return };
            self.take_in(entry.user_data() as usize, entry.result());
        }
    }

    /// Continues a transfer after the kernel's answer.
    fn take_in(&mut self, slot: usize, result: i32) {
        let Some(mut flight) = self.flights.get_mut(slot).and_then(Option::take) else { return };
        match flight.progress(result) {
            FlightProgress::Again => self.fly(slot, flight),
            FlightProgress::Over(result) => {
                self.free.push(slot);
                self.land(flight, result);
            }
        }
    }

    /// Ends a transfer; the calling thread moves the bytes that the kernel did not move.
    fn land(&mut self, mut flight: Flight, result: Result<()>) {
        if let Some(copy) = flight.copy.take() {
            if flight.direction == FlightDirection::Read {
                flight.buf[..flight.moved].copy_from_slice(&copy[..flight.moved]);
            }
            self.copies.push(copy);
        }
        let result = result.and_then(|()| flight.move_rest());
        let Flight { token, buf, .. } = flight;
        self.landed.push_back(Completion { token, buf, result });
    }
}

/// The next step of a transfer after the kernel's answer.
enum FlightProgress {
    Again,
    Over(Result<()>),
}

impl Flight {
    fn entry(&mut self) -> squeue::Entry {
        let way = self.device.way(self.offset, &self.buf);
        let (fd, flags) = (types::Fd(way.file.as_raw_fd()), way.flags);
        let memory: &mut [u8] = self.copy.as_deref_mut().unwrap_or(&mut self.buf);
        let rest = &mut memory[self.moved..self.goal];
        let len = rest.len().min(MOST_BYTES) as u32;
        let at = self.offset + self.moved as u64;
        match self.direction {
            FlightDirection::Read => {
                opcode::Read::new(fd, rest.as_mut_ptr(), len).offset(at).rw_flags(flags).build()
            }
            FlightDirection::Write => {
                opcode::Write::new(fd, rest.as_ptr(), len).offset(at).rw_flags(flags).build()
            }
        }
    }

    fn progress(&mut self, result: i32) -> FlightProgress {
        if let Ok(moved @ 1..) = usize::try_from(result) {
            self.moved += moved;
            let way = self.device.way(self.offset, &self.buf);
            let is_whole = self.moved >= self.goal;
            // Ended within a block: only the cache can continue from there.
            let is_stuck = !self.moved.is_multiple_of(way.block_bytes);
            return if is_whole || is_stuck {
                FlightProgress::Over(Ok(()))
            } else {
                FlightProgress::Again
            };
        }
        match -result {
            libc::EINTR | libc::EAGAIN => FlightProgress::Again,
            // The end of a file; or a way that is refused, and the device knows another one.
            0 | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS => FlightProgress::Over(Ok(())),
            number => {
                let error = io::Error::from_raw_os_error(number);
                let what = match self.direction {
                    FlightDirection::Read => "cannot read",
                    FlightDirection::Write => "cannot write",
                };
                FlightProgress::Over(Err(Error::io(what, self.device.place(), error)))
            }
        }
    }

    /// Moves the rest of the bytes in this thread.
    fn move_rest(&mut self) -> Result<()> {
        let at = self.offset.wrapping_add(self.moved as u64);
        match self.direction {
            FlightDirection::Read => self.device.read_at(at, &mut self.buf[self.moved..]),
            FlightDirection::Write => self.device.write_at(at, &self.buf[self.moved..]),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.flying() > 0 {
            if self.wait().is_err() {
                // The kernel may still use this memory, so it must never be freed.
                std::mem::forget(std::mem::take(&mut self.flights));
                break;
            }
        }
    }
}

/// Accepts errors that do not mean a failure of the ring: interrupted, timed out, or temporarily
/// short of memory or room. After an accepted error, finished entries are collected first.
fn passing(error: io::Error) -> Result<()> {
    match error.raw_os_error() {
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME) => Ok(()),
        _ => Err(Error::new(Kind::Io, format!("io_uring failed: {error}"))
            .advice("use the engine 'threads' instead")),
    }
}

/// The error for a system without a usable io_uring.
fn unusable(error: io::Error) -> Error {
    let number = error.raw_os_error();
    let kind = match number {
        // Not built in or too old; forbidden by seccomp or kernel.io_uring_disabled; short of
        // locked memory, which kernels before 5.12 counted rings as.
        Some(libc::ENOSYS | libc::EINVAL | libc::EPERM | libc::EACCES | libc::ENOMEM) => {
            Kind::Unsupported
        }
        _ => Kind::Io,
    };
    Error::new(kind, format!("io_uring cannot be used here: {error}"))
        .advice("use the engine 'threads' instead")
}

#[cfg(test)]
mod tests;
