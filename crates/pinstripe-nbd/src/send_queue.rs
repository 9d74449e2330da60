//! Replies to be sent to a client: any thread adds its reply, and one thread at a time sends all of
//! them.
//!
//! Invariants: packets are sent completely and in the order in which they were added; after one
//! that cannot be sent no more are sent, and the socket is shut down, so that its reader notices.

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown};

use crate::memory::{Buffer, HEAD_ROOM};
use pinstripe_base::sync::{lock, wait};

/// The most packets that may wait; a thread with one more waits for room.
const PACKETS: usize = 256;
/// The most pieces that are passed to the system at a time; the system accepts at most 1024
/// (IOV_MAX).
const SLICES: usize = 512;

/// A reply, which is sent in one piece.
pub(super) enum Packet {
    /// A reply that has no data.
    Short(Vec<u8>),
    /// A reply with its data, from `start` on.
    Data { buffer: Buffer, start: usize },
    /// A reply that has several chunks.
    Chunks { buffer: Buffer, chunks: Vec<Chunk> },
}

/// A head, followed by a part of the data.
pub(super) struct Chunk {
    pub head: Vec<u8>,
    pub data: Range<usize>,
}

/// Replies of one connection that wait to be sent.
pub(super) struct SendQueue<'a> {
    socket: &'a OwnedFd,
    state: Mutex<SendState>,
    /// Notifies that the queue has room.
    sent: Condvar,
}

#[derive(Default)]
struct SendState {
    packets: Vec<Packet>,
    /// The number of threads that wait for room; without any, the system call for the notification
    /// is saved.
    waiting: usize,
    is_sending: bool,
    is_broken: bool,
}

impl<'a> SendQueue<'a> {
    pub fn new(socket: &'a OwnedFd) -> Self {
        SendQueue { socket, state: Mutex::default(), sent: Condvar::new() }
    }

    /// Adds a packet without sending it, unless many are waiting; returns how many packets wait.
    pub fn put(&self, packet: Packet) -> usize {
        let mut state = self.state();
        while state.packets.len() >= PACKETS {
            if state.is_sending {
                state.waiting += 1;
                state = wait(&self.sent, state);
                state.waiting -= 1;
            } else {
                self.send_all(state);
                state = self.state();
            }
        }
        if !state.is_broken {
            state.packets.push(packet);
        }
        debug_assert!(state.packets.len() <= PACKETS, "no more packets wait than may");
        debug_assert!(!state.is_broken || state.packets.is_empty(), "nothing is sent any more");
        state.packets.len()
    }

    /// Sends all packets, unless another thread is sending: that thread then sends these as well.
    pub fn flush(&self) {
        let state = self.state();
        if !state.is_sending && !state.packets.is_empty() {
            self.send_all(state);
        }
    }

    fn send_all<'s>(&'s self, mut state: MutexGuard<'s, SendState>) {
        let mut batch = Vec::new();
        debug_assert!(!state.is_sending, "one thread sends at a time");
        state.is_sending = true;
        while !state.packets.is_empty() {
            std::mem::swap(&mut batch, &mut state.packets);
            let (is_broken, waiting) = (state.is_broken, state.waiting);
            drop(state);
            if waiting > 0 {
                self.sent.notify_all();
            }
            let is_sent = !is_broken && self.send(&batch).is_ok();
            batch.clear();
            state = self.state();
            if !is_sent {
                state.is_broken = true;
                state.packets.clear();
                // A client that gets no more replies need not be read from.
                let _ = shutdown(self.socket, Shutdown::Both);
            }
        }
        state.is_sending = false;
        if state.waiting > 0 {
            self.sent.notify_all();
        }
    }

    fn send(&self, packets: &[Packet]) -> rustix::io::Result<()> {
        let mut slices = Vec::with_capacity(packets.len());
        for packet in packets {
            match packet {
                Packet::Short(bytes) => slices.push(IoSlice::new(bytes)),
                Packet::Data { buffer, start } => {
                    slices.push(IoSlice::new(&buffer.all()[*start..]))
                }
                Packet::Chunks { buffer, chunks } => {
                    for Chunk { head, data } in chunks {
                        slices.push(IoSlice::new(head));
                        if !data.is_empty() {
                            slices.push(IoSlice::new(&buffer.data()[data.clone()]));
                        }
                    }
                }
            }
        }
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let some = &rest[..rest.len().min(SLICES)];
            let flags = SendFlags::NOSIGNAL;
            match sendmsg(self.socket, some, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => IoSlice::advance_slices(&mut rest, sent),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, SendState> {
        lock(&self.state)
    }
}

impl Packet {
    /// A packet of data, with its head stored before the data.
    pub fn data(mut buffer: Buffer, head: &[u8]) -> Self {
        debug_assert!(head.len() <= HEAD_ROOM, "the head fits before the data");
        let start = HEAD_ROOM - head.len();
        buffer.all_mut()[start..HEAD_ROOM].copy_from_slice(head);
        Packet::Data { buffer, start }
    }
}
