//! Carries out one request on a device, and makes its reply.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::export::{Event, Export};
use crate::memory::Buffer;
use crate::protocol::{self, Command, Extent, Form, Request, flag};
use crate::queue::Job;
use crate::send_queue::{Chunk, Packet};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::Space;

/// The least length of a read for which holes are searched: for a shorter one, the search costs
/// more than sending the zeros.
const HOLES_FROM_BYTES: u32 = 64 << 10;
/// The most chunks of one reply; the rest of a read is sent as data.
const CHUNKS: usize = 64;
/// The most extents of one answer; the client asks again for the rest.
const EXTENTS: usize = 1024;

/// Zeros for writes, aligned so that a disk can take them without a copy.
#[repr(align(4096))]
struct Zeros([u8; 256 << 10]);
static ZEROS: Zeros = Zeros([0; 256 << 10]);

/// The context in which requests are carried out: an export and the form of replies.
pub(super) struct RequestExecutor<'a> {
    pub export: &'a Export,
    pub form: Form,
    pub monitor: &'a Monitor,
    /// Set when the server ends, so that waiting requests end early.
    pub is_ending: &'a AtomicBool,
}

/// Why a request failed, and at which offset, if that is known.
struct RequestFailure {
    error: Error,
    at: Option<u64>,
}

impl From<Error> for RequestFailure {
    fn from(error: Error) -> Self {
        RequestFailure { error, at: None }
    }
}

impl RequestExecutor<'_> {
    /// Carries out a request that was checked and has its memory.
    pub fn execute(&self, job: Job) -> Packet {
        let Job { request, buffer } = job;
        match self.try_execute(&request, buffer) {
            Ok(packet) => {
                self.export.count(&request);
                packet
            }
            Err(RequestFailure { error, at }) => {
                let number = protocol::number_of(&error);
                let packet = self.error(&request, number, error.what(), at);
                let is_told_to_try = request.command == Command::WriteZeroes
                    && request.has(flag::FAST_ZERO)
                    && error.kind() == Kind::Unsupported;
                if is_told_to_try {
                    self.export.note(Event::Refused);
                } else {
                    self.export.note(Event::Failed);
                    self.monitor.loss(self.export.device().place(), error);
                }
                packet
            }
        }
    }

    /// Refuses a request that is invalid or not allowed.
    pub fn refuse(&self, request: &Request, number: u32) -> Packet {
        self.export.note(Event::Refused);
        let text = match number {
            protocol::error::EPERM => "the export is read-only",
            protocol::error::ENOSPC => "the request is beyond the end of the export",
            _ => "the request is unknown, has invalid flags, or is outside the export",
        };
        self.error(request, number, text, None)
    }

    fn error(&self, request: &Request, number: u32, text: &str, at: Option<u64>) -> Packet {
        let mut reply = Vec::new();
        self.form.error(&mut reply, request.cookie, number, text, at);
        Packet::Short(reply)
    }

    fn try_execute(
        &self,
        request: &Request,
        buffer: Option<Buffer>,
    ) -> Result<Packet, RequestFailure> {
        let device = self.export.device();
        // Those of a flush may be any.
        let range = request.offset..request.offset.saturating_add(request.len.into());
        match (request.command, buffer) {
            (Command::Read, Some(buffer)) => return self.read(request, buffer),
            (Command::Write, Some(buffer)) => device.write_at(request.offset, buffer.data())?,
            (Command::Flush, _) => device.sync()?,
            (Command::Trim, _) => match device.discard(range) {
                Err(error) if error.kind() == Kind::Unsupported => {} // It was a hint.
                other => other?,
            },
            (Command::WriteZeroes, _) => self.zero(request, range)?,
            (Command::BlockStatus, _) => return Ok(self.status(request, range)?),
            _ => {
                return Err(Error::new(Kind::Unsupported, "this is not a valid request").into());
            }
        }
        let changes =
            matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes);
        if changes && request.has(flag::FUA) {
            device.sync()?;
        }
        let mut reply = Vec::with_capacity(self.form.data_head_bytes());
        self.form.done(&mut reply, request.cookie);
        Ok(Packet::Short(reply))
    }

    fn read(&self, request: &Request, mut buffer: Buffer) -> Result<Packet, RequestFailure> {
        let may_have_chunks = self.form == Form::Structured
            && !request.has(flag::DF)
            && request.len >= HOLES_FROM_BYTES
            && self.export.knows_holes();
        if may_have_chunks {
            let runs =
                self.runs(request.offset..request.offset + u64::from(request.len), CHUNKS)?;
            if runs.iter().any(|run| run.is_hole) {
                return self.read_chunks(request, buffer, &runs);
            }
        }
        self.export.device().read_at(request.offset, buffer.data_mut())?;
        let mut head = Vec::with_capacity(self.form.data_head_bytes());
        self.form.data(&mut head, request.cookie, request.offset, request.len, true);
        Ok(Packet::data(buffer, &head))
    }

    fn read_chunks(
        &self,
        request: &Request,
        mut buffer: Buffer,
        runs: &[Extent],
    ) -> Result<Packet, RequestFailure> {
        let mut chunks = Vec::new();
        let (mut at, mut left) = (0, request.len as usize);
        let known: u32 = runs.iter().map(|run| run.bytes).sum();
        // A part that was not examined counts as data.
        let rest = Extent { bytes: request.len - known, is_hole: false };
        let rest = (rest.bytes > 0).then_some(rest);
        for run in runs.iter().copied().chain(rest) {
            let (offset, bytes) = (request.offset + at as u64, run.bytes as usize);
            let is_last = bytes == left;
            let (mut head, mut data) = (Vec::new(), at..at);
            if run.is_hole {
                protocol::hole(&mut head, request.cookie, offset, run.bytes, is_last);
            } else {
                data.end += bytes;
                let read =
                    self.export.device().read_at(offset, &mut buffer.data_mut()[data.clone()]);
                read.map_err(|error| RequestFailure { error, at: Some(offset) })?;
                self.form.data(&mut head, request.cookie, offset, run.bytes, is_last);
            }
            chunks.push(Chunk { head, data });
            (at, left) = (at + bytes, left - bytes);
        }
        Ok(Packet::Chunks { buffer, chunks })
    }

    fn zero(&self, request: &Request, range: Range<u64>) -> Result<()> {
        let space = if request.has(flag::NO_HOLE) { Space::Keep } else { Space::Free };
        match self.export.zero(range.clone(), space) {
            Err(error) if error.kind() == Kind::Unsupported && !request.has(flag::FAST_ZERO) => {}
            other => return other,
        }
        let mut at = range.start;
        while at < range.end {
            // It may be gigabytes.
            if self.is_ending.load(Ordering::Relaxed) {
                return Err(Error::new(Kind::Interrupted, "the server is shutting down"));
            }
            let bytes = (range.end - at).min(ZEROS.0.len() as u64);
            self.export.device().write_at(at, &ZEROS.0[..bytes as usize])?;
            at += bytes;
        }
        Ok(())
    }

    fn status(&self, request: &Request, range: Range<u64>) -> Result<Packet> {
        let most = if request.has(flag::REQ_ONE) { 1 } else { EXTENTS };
        let mut reply = Vec::new();
        protocol::status(&mut reply, request.cookie, &self.runs(range, most)?);
        Ok(Packet::Short(reply))
    }

    /// The first `most` runs of a range; the range is not longer than a request may be.
    /// Neighbouring runs are of different kinds.
    fn runs(&self, range: Range<u64>, most: usize) -> Result<Vec<Extent>> {
        let mut runs: Vec<Extent> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let run = self.export.run(at..range.end)?;
            let bytes = run.bytes.clamp(1, range.end - at) as u32;
            let is_full = runs.len() == most;
            match runs.last_mut() {
                Some(last) if last.is_hole == run.is_hole => last.bytes += bytes,
                _ if is_full => break,
                _ => runs.push(Extent { bytes, is_hole: run.is_hole }),
            }
            at += u64::from(bytes);
        }
        Ok(runs)
    }
}
