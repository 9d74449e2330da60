//! The writers of a directory move data from rings to files: one thread through the page cache, or
//! several threads with direct I/O.

#![allow(
    clippy::disallowed_methods,
    reason = "this module polls ring buffers: a producer must not make a system call to wake it"
)]

mod spans;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};

use super::directory::TakeDirectory;
use super::gate::Fate;
use super::headroom::keep_for_file;
use super::roll::fill_fronts;
use super::shared::SharedTake;
use super::stream_copy::StreamCopy;
use super::stream_file::StreamFile;
use crate::limits::DRAIN_BYTES;
use crate::realtime;
use crate::ring::Found;
use crate::shares::dealt;

const PAGE: u64 = 4096;
/// The longest time between two reads of the rings. Nothing wakes the writer, because a producer
/// would have to make a system call for each block.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOK_SOONEST: Duration = Duration::from_millis(2);
/// The age from which less than a chunk is written, if commits are more frequent than this.
const AGE_LEAST: Duration = Duration::from_millis(500);

/// Moves data from rings to files until every copy of this directory has ended and no more copies are
/// handed over.
pub(crate) fn write_directory(
    shared: &SharedTake,
    directory: &TakeDirectory,
    copies: Vec<StreamCopy>,
) {
    let writers = shared.settings.writes.writers().min(copies.len()).max(1);
    std::thread::scope(|scope| {
        let filling = scope.spawn(|| fill_fronts(shared, directory));
        std::thread::scope(|scope| {
            for share in dealt(copies, writers) {
                scope.spawn(|| write_share(shared, directory, share));
            }
        });
        directory.fronts.end();
        // A panic is reported where it happened.
        let _ = filling.join();
    });
    directory.writer_ended.set();
}

fn write_share(shared: &SharedTake, directory: &TakeDirectory, copies: Vec<StreamCopy>) {
    if shared.settings.is_realtime {
        if let Err(error) = realtime::run_first(realtime::WRITING) {
            shared.note_refusal("the writer thread does not have real-time priority", &error);
        }
        if let Err(error) = realtime::be_served_first() {
            shared.note_refusal("the writer thread does not have the real-time I/O class", &error);
        }
    }
    let silence = vec![0; DRAIN_BYTES as usize];
    let loud = vec![128; DRAIN_BYTES as usize];
    let mut writer = EngineWriter { shared, directory, silence, loud };
    writer.run(copies);
}

struct EngineWriter<'a> {
    shared: &'a SharedTake,
    directory: &'a TakeDirectory,
    silence: Vec<u8>,
    /// The silence value of unsigned 8-bit samples.
    loud: Vec<u8>,
}

/// The result of serving a copy once.
enum CopyTurn {
    Worked,
    Idle,
    Over,
}

impl EngineWriter<'_> {
    fn run(&mut self, mut copies: Vec<StreamCopy>) {
        let mut told = 0;
        while !self.shared.all_over.is_set() {
            copies.extend(self.directory.take_handed());
            if self.directory.has_failed() {
                copies.drain(..).for_each(|copy| self.leave(copy));
            }
            let mut is_idle = true;
            let mut failure = None;
            copies.retain_mut(|copy| match self.turn(copy) {
                _ if failure.is_some() => true,
                Ok(CopyTurn::Idle) => true,
                Ok(CopyTurn::Worked) => {
                    is_idle = false;
                    true
                }
                Ok(CopyTurn::Over) => {
                    copy.piece.end(None);
                    copy.consumer.detach();
                    self.one_less();
                    false
                }
                Err(error) => {
                    failure = Some(error);
                    true
                }
            });
            if let Some(error) = failure {
                self.directory.fail(error);
            }
            let time = realtime::thread_time().as_nanos() as u64;
            let spent = time - std::mem::replace(&mut told, time);
            self.directory.figures.writer_cpu_nanos.fetch_add(spent, Ordering::Relaxed);
            if is_idle {
                self.sleep(self.until_due(&copies));
            }
        }
    }

    /// Waits, and notes how late the thread ran again: a process that is stopped, or gets no
    /// processor, is not blamed on the disk.
    fn sleep(&self, time: Duration) {
        let began = clock::monotonic();
        std::thread::sleep(time);
        let late = clock::since(began).saturating_sub(time).as_nanos() as u64;
        self.directory.figures.longest_absence_nanos.fetch_max(late, Ordering::Relaxed);
    }

    /// The time until a stream with the usual rate has produced a chunk.
    fn until_due(&self, copies: &[StreamCopy]) -> Duration {
        let due = copies.iter().map(|copy| {
            let fill = copy.consumer.ring().fill_bytes();
            let missing = self.shared.settings.chunk_bytes.saturating_sub(fill);
            Duration::from_secs_f64(copy.piece.facts.shape.seconds(missing))
        });
        due.min().unwrap_or(LOOK_EVERY).clamp(LOOK_SOONEST, LOOK_EVERY)
    }

    /// Writes or drops one run of data of a copy, if there is enough data.
    fn turn(&self, copy: &mut StreamCopy) -> Result<CopyTurn> {
        let now = self.shared.now();
        copy.consumer.ring().note_time(now);
        // The ring first: a gate is only changed behind all that is in the ring by then.
        let (bytes, all) = match copy.consumer.peek() {
            Found::End => return self.pass_end(copy),
            Found::Gap(bytes) => return self.pass_gap(copy, bytes),
            Found::Bytes { bytes, all } => (bytes, all),
        };
        let is_due = all || bytes >= self.shared.settings.chunk_bytes;
        // Data that has waited for a second is written, even if it is less than a page: otherwise a
        // source that pauses would leave its last samples here, where no commit makes them durable.
        let all = all || (!is_due && self.has_waited(copy, now));
        if bytes == 0 || !(is_due || all) {
            return Ok(CopyTurn::Idle);
        }
        let span = self.shared.streams[copy.stream as usize].gate.span_at(copy.at);
        match span.fate {
            Fate::Recorded => {
                self.enter(copy, span)?;
                match self.write_bytes(copy, bytes.min(span.left), all || span.left <= bytes) {
                    Err(error) if is_at_size_limit(&error, &copy.piece) => self.go_on_here(copy),
                    written => written,
                }
            }
            Fate::Waiting | Fate::Dropped => {
                self.leave_span(copy, span);
                self.pass_bytes(copy, bytes.min(span.left).min(DRAIN_BYTES))
            }
            Fate::Over => Ok(CopyTurn::Over),
        }
    }

    /// Whether the oldest sample of the copy is older than the commit interval.
    fn has_waited(&self, copy: &StreamCopy, now: Duration) -> bool {
        let came = copy.consumer.ring().all_before(copy.at, now);
        now.saturating_sub(came) >= self.shared.settings.commit_every.max(AGE_LEAST)
    }

    fn begin_piece(&self, copy: &mut StreamCopy, frame: u64) -> Result<()> {
        keep_for_file(self.shared, self.directory)?;
        let ids = (copy.stream, copy.copy);
        let next = self.shared.new_piece(self.directory, ids, frame)?;
        copy.piece.end(None);
        copy.piece = next;
        Ok(())
    }

    /// Begins a new file in the same directory, because the current one may not grow.
    fn go_on_here(&self, copy: &mut StreamCopy) -> Result<CopyTurn> {
        keep_for_file(self.shared, self.directory)?;
        let left = copy.piece.give_back().unwrap_or_else(|| copy.partial.clone());
        let frame = copy.piece.position() / copy.piece.facts.shape.frame_bytes();
        let next = self.go_on(self.directory, copy, (frame, &left))?;
        copy.piece.end(None);
        copy.piece = next;
        Ok(CopyTurn::Worked)
    }

    fn write_bytes(&self, copy: &mut StreamCopy, bytes: u64, all: bool) -> Result<CopyTurn> {
        let room = self.room(copy)?;
        let mut most = bytes.min(DRAIN_BYTES.max(self.shared.settings.chunk_bytes)).min(room);
        let end = copy.piece.payload_at + copy.piece.written_bytes() + most;
        if !all && most < room && most > end % PAGE {
            // Whole pages: a page that is written in two parts is touched twice.
            most -= end % PAGE;
        }
        let count = {
            let run = copy.consumer.bytes(most);
            self.measure(copy, run);
            self.write(copy, run)?;
            run.len() as u64
        };
        keep_partial(copy, count);
        copy.consumer.take(count);
        copy.at += count;
        Ok(CopyTurn::Worked)
    }

    /// Measures the level of a run of samples, for one copy only and only while a client displays
    /// levels.
    fn measure(&self, copy: &StreamCopy, run: &[u8]) {
        if copy.copy == 0 && self.shared.is_metered.load(Ordering::Relaxed) {
            let format = copy.piece.facts.shape.format;
            let phase = (copy.at % u64::from(format.bytes())) as usize;
            self.shared.streams[copy.stream as usize].meter.add(format, phase, run);
        }
    }

    fn silence_of(&self, byte: u8) -> &[u8] {
        if byte == 0 { &self.silence } else { &self.loud }
    }

    fn write(&self, copy: &StreamCopy, bytes: &[u8]) -> Result<()> {
        self.timed(|| copy.piece.write(bytes))?;
        self.directory.figures.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Carries out a write and records its time.
    fn timed(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let began = clock::monotonic();
        write()?;
        let nanos = clock::since(began).as_nanos() as u64;
        let figures = &self.directory.figures;
        figures.longest_write_nanos.fetch_max(nanos, Ordering::Relaxed);
        figures.writing_nanos.fetch_add(nanos, Ordering::Relaxed);
        figures.writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The number of bytes that the current file can still contain. A new file is begun if the
    /// current one is full.
    fn room(&self, copy: &mut StreamCopy) -> Result<u64> {
        let stream = &self.shared.streams[copy.stream as usize];
        let frame_bytes = copy.piece.facts.shape.frame_bytes();
        let written = copy.piece.written_in_file();
        let room = stream.segment_frames.saturating_mul(frame_bytes).saturating_sub(written);
        if room > 0 || !written.is_multiple_of(frame_bytes) {
            return Ok(room.max(frame_bytes - written % frame_bytes));
        }
        self.begin_piece(copy, copy.piece.file_start() + copy.piece.frames(written))?;
        self.room(copy)
    }

    /// Records that a copy has ended; the take ends with the last copy.
    fn one_less(&self) {
        if self.shared.copies_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.all_over.set();
        }
    }

    /// Removes a copy from a directory that is given up: it continues in another directory, or
    /// ends.
    fn leave(&self, mut copy: StreamCopy) {
        let why = self.directory.failure().map_or_else(String::new, |it| it.to_string());
        let mut left = copy.partial.clone();
        if !copy.piece.is_ended() {
            // Bytes that are in its encoder but not in its file continue with the stream.
            left = copy.piece.give_back().unwrap_or(left);
            // A piece of a stream that is not recorded was not cut short.
            copy.piece.end((!copy.piece.is_idle()).then_some(why));
        }
        // The pre-roll in this directory is lost.
        copy.roll = None;
        let frame_bytes = copy.piece.facts.shape.frame_bytes();
        let frame = copy.piece.position() / frame_bytes;
        let copies = &self.shared.streams[copy.stream as usize].copies;
        // Decremented at once, so that if the directories of two copies fail together, one of the
        // copies moves to another directory.
        let is_mirrored = copies.fetch_sub(1, Ordering::AcqRel) > 1;
        // A second copy in a directory that already has one protects from nothing.
        let others = self.shared.directories.iter().filter(|it| !it.has_failed() && !is_mirrored);
        let mut others: Vec<_> = others.collect();
        others.sort_by_key(|it| it.pieces().len());
        for directory in others {
            match self.go_on(directory, &copy, (frame, &left)) {
                Ok(piece) => {
                    copies.fetch_add(1, Ordering::AcqRel);
                    copy.piece = piece;
                    directory.hand_over(copy);
                    return;
                }
                Err(error) => directory.fail(error),
            }
        }
        copy.consumer.detach();
        if !is_mirrored {
            self.report_end(&copy.piece.facts.name, frame);
        }
        self.one_less();
    }

    /// Continues a copy in a new file in another directory, with the remaining data of the previous
    /// file.
    fn go_on(
        &self,
        directory: &TakeDirectory,
        copy: &StreamCopy,
        (frame, left): (u64, &[u8]),
    ) -> Result<Arc<StreamFile>> {
        let piece = self.shared.new_piece(directory, (copy.stream, copy.copy), frame)?;
        piece.set_idle(copy.piece.is_idle());
        let written = left.chunks(DRAIN_BYTES as usize).try_for_each(|it| piece.write(it));
        if let Err(error) = &written {
            piece.give_back();
            piece.end(Some(error.to_string()));
        }
        written.map(|()| piece)
    }

    /// Reports that a stream has ended because no directory can take it any more.
    fn report_end(&self, name: &str, frame: u64) {
        self.shared.cut_streams.fetch_add(1, Ordering::AcqRel);
        let is_removed = self.directory.failure().is_some_and(|it| it.kind() == Kind::NotFound);
        let advice = match is_removed {
            true => {
                "the files of this stream were lost with their directory; to record a mirror, give \
                 a second directory with --to"
            }
            false => {
                "the recording is complete up to that frame; to record a mirror, give a second \
                 directory with --to"
            }
        };
        let what = format!("the recording of stream '{name}' ended at frame {frame}");
        let error = Error::new(Kind::NoSpace, what).advice(advice);
        self.shared.monitor.loss(self.directory.folder.path(), error);
    }
}

/// Whether a write failed because the file has the greatest size that its file system (4 GiB on
/// FAT32) or the limit of the process allows. A file that can take nothing at all is a failure.
fn is_at_size_limit(error: &Error, piece: &StreamFile) -> bool {
    error.raw_os_error() == Some(libc::EFBIG) && piece.written_bytes() > 0
}

/// Keeps the bytes after the last complete frame of the data that is about to be consumed.
fn keep_partial(copy: &mut StreamCopy, count: u64) {
    let frame_bytes = copy.piece.facts.shape.frame_bytes();
    let behind = copy.piece.written_bytes() % frame_bytes;
    let run = copy.consumer.bytes(count);
    let from_run = behind.min(run.len() as u64) as usize;
    let kept = (behind as usize - from_run).min(copy.partial.len());
    copy.partial.drain(..copy.partial.len() - kept);
    copy.partial.extend_from_slice(&run[run.len() - from_run..]);
}
