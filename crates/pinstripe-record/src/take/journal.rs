//! The journal: an append-only file of records that vouch for durable data.
//!
//! ```text
//!   record   kind u8, 3 zeros, length u32, number u64, payload, checksum (16 bytes) of all before
//!   1 event      JSON: a take, file, gap, mark, an end
//!   2 progress   nanoseconds u64; for each file: number u32, count u32, count x (bytes u32, sum u64)
//! ```
//!
//! Numbers are little-endian. A progress record is written only when the payload that it covers is
//! durable. The payload of a file for which the journal vouches is the sum of all runs of the file.
//! Reading ends at the first incomplete record, because nothing after it was promised.

use pinstripe_base::checksum::{CHECKSUM_BYTES, checksum};
use pinstripe_base::error::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::folder::TakeFile;
use crate::header::LocalTime;
use crate::limits::JOURNAL_RECORD_BYTES;

const HEAD_BYTES: usize = 16;
const KIND_EVENT: u8 = 1;
const KIND_PROGRESS: u8 = 2;
const SUMMED_BYTES: usize = 12;

/// One run of payload bytes and its checksum, the first eight bytes of XXH3-128.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summed {
    /// The length.
    pub bytes: u32,
    /// The checksum.
    pub sum: u64,
}

impl Summed {
    /// Returns the run that consists of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = checksum(bytes);
        Summed { bytes: bytes.len() as u32, sum: u64::from_le_bytes([a, b, c, d, e, f, g, h]) }
    }
}

/// Data of one file that became durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressRun {
    /// The number of the file in the journal.
    pub piece: u32,
    /// The runs, which follow those already recorded.
    pub runs: Vec<Summed>,
}

/// The position of a piece that is after another piece in the same file. The piece before it is the
/// pre-roll, which is copied later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBehind {
    /// The number of the piece before this one.
    pub front: u32,
    /// The offset in the file at which the payload of this piece begins.
    pub payload_at: u64,
}

/// The events that a journal records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum JournalEvent {
    /// The journal of a directory begins.
    Begin {
        /// The id of the take.
        id: String,
        /// The number of the directory in the manifest.
        directory: u32,
    },
    /// A file begins.
    #[serde(rename = "piece")]
    File {
        /// The number.
        piece: u32,
        /// The stream.
        stream: u32,
        /// The number of the copy: 0, or 1 for the second copy of a mirror.
        copy: u32,
        /// The name.
        file: String,
        /// The first frame of the file in its stream.
        start_frame: u64,
        /// The position in the file, if the piece is not at the beginning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        behind: Option<FileBehind>,
    },
    /// Frames were lost, and are replaced by silence.
    Gap {
        /// The stream.
        stream: u32,
        /// The first of the lost frames.
        frame: u64,
        /// The number.
        frames: u64,
    },
    /// A place was marked in all streams.
    Mark {
        /// The text.
        text: String,
        /// The marked frame of each stream.
        frames: Vec<u64>,
    },
    /// An armed take begins.
    Start {
        /// Local time at the first frame of the take.
        started: LocalTime,
        /// The time of the first frame in seconds since 1970, UTC.
        started_seconds: i64,
        /// The moment of the first frame, in nanoseconds since the inputs were opened, like the
        /// times in progress records.
        at_nanos: u64,
    },
    /// Everything is durable, and every header is final.
    Complete,
}

/// One record, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalRecord {
    /// An event.
    Event(JournalEvent),
    /// Data that became durable.
    Progress {
        /// The time of the record, in nanoseconds since the take began.
        nanos: u64,
        /// By file.
        runs: Vec<ProgressRun>,
    },
}

impl JournalRecord {
    fn payload(&self) -> (u8, Vec<u8>) {
        match self {
            JournalRecord::Event(event) => {
                (KIND_EVENT, serde_json::to_vec(event).expect("an event has strings for keys"))
            }
            JournalRecord::Progress { nanos, runs } => {
                let mut out = nanos.to_le_bytes().to_vec();
                for file in runs {
                    out.extend(file.piece.to_le_bytes());
                    out.extend((file.runs.len() as u32).to_le_bytes());
                    for run in &file.runs {
                        out.extend(run.bytes.to_le_bytes());
                        out.extend(run.sum.to_le_bytes());
                    }
                }
                (KIND_PROGRESS, out)
            }
        }
    }

    fn encode(&self, number: u64) -> Vec<u8> {
        let (kind, payload) = self.payload();
        let mut out = Vec::with_capacity(HEAD_BYTES + payload.len() + CHECKSUM_BYTES);
        out.extend([kind, 0, 0, 0]);
        out.extend((payload.len() as u32).to_le_bytes());
        out.extend(number.to_le_bytes());
        out.extend(payload);
        let sum = checksum(&out);
        out.extend(sum);
        out
    }
}

/// Decodes the record with this number at the beginning of `bytes`; also returns the length of the
/// record. Returns `None` if the record is incomplete.
pub fn decode_journal(bytes: &[u8], number: u64) -> Option<(JournalRecord, usize)> {
    let head = bytes.get(..HEAD_BYTES)?;
    let length = u32::from_le_bytes(head[4..8].try_into().ok()?) as usize;
    if length > JOURNAL_RECORD_BYTES || head[8..] != number.to_le_bytes() {
        return None;
    }
    let end = HEAD_BYTES + length;
    let whole = bytes.get(..end + CHECKSUM_BYTES)?;
    if checksum(&whole[..end]) != whole[end..] {
        return None;
    }
    let payload = &whole[HEAD_BYTES..end];
    let record = match head[0] {
        KIND_EVENT => JournalRecord::Event(serde_json::from_slice(payload).ok()?),
        KIND_PROGRESS => decode_progress(payload)?,
        _ => return None,
    };
    Some((record, end + CHECKSUM_BYTES))
}

fn decode_progress(payload: &[u8]) -> Option<JournalRecord> {
    let (nanos, mut rest) = payload.split_first_chunk::<8>()?;
    let mut runs = Vec::new();
    while !rest.is_empty() {
        let (piece, behind) = rest.split_first_chunk::<4>()?;
        let (count, behind) = behind.split_first_chunk::<4>()?;
        let bytes = (u32::from_le_bytes(*count) as usize).checked_mul(SUMMED_BYTES)?;
        let (sums, behind) = behind.split_at_checked(bytes)?;
        let run = |it: &[u8]| Summed {
            bytes: u32::from_le_bytes([it[0], it[1], it[2], it[3]]),
            sum: u64::from_le_bytes([it[4], it[5], it[6], it[7], it[8], it[9], it[10], it[11]]),
        };
        runs.push(ProgressRun {
            piece: u32::from_le_bytes(*piece),
            runs: sums.chunks_exact(SUMMED_BYTES).map(run).collect(),
        });
        rest = behind;
    }
    Some(JournalRecord::Progress { nanos: u64::from_le_bytes(*nanos), runs })
}

/// A journal that is open for writing.
pub struct Journal {
    file: TakeFile,
    at: u64,
    number: u64,
    waiting: Vec<u8>,
    /// The error of a failed sync, after which a later sync would not make the same data durable.
    failure: Option<Error>,
    /// The length of the file, including the zeros that are written ahead.
    room_to: u64,
    /// The length of the longest commit so far, in bytes.
    longest_bytes: u64,
}

/// The number of zeros that are written ahead at a time.
const ROOM_BYTES: u64 = 1 << 20;
/// The number of commits (each of the longest length so far) for which space is written ahead: a
/// minute of commits.
const COMMITS_AHEAD: u64 = 60;
/// The smallest number of commits for which there must be space on a full disk; with less, the
/// journal could not record the end of the take.
const COMMITS_LEAST: u64 = 8;

impl Journal {
    /// Creates an empty journal in a new file.
    pub fn new(file: TakeFile) -> Self {
        Journal {
            file,
            at: 0,
            number: 0,
            waiting: Vec::new(),
            failure: None,
            room_to: 0,
            longest_bytes: 0,
        }
    }

    /// The file.
    pub fn file(&self) -> &TakeFile {
        &self.file
    }

    /// Adds a record; a long progress record is split into several. The record becomes durable with
    /// the next [`commit`](Self::commit).
    pub fn add(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Progress { nanos, runs } => {
                let mut part = Vec::new();
                let mut bytes = 0;
                for file in runs {
                    for some in file.runs.chunks(JOURNAL_RECORD_BYTES / 4 / SUMMED_BYTES) {
                        let more = 8 + SUMMED_BYTES * some.len();
                        if bytes + more > JOURNAL_RECORD_BYTES - 8 {
                            self.put(&JournalRecord::Progress {
                                nanos,
                                runs: std::mem::take(&mut part),
                            });
                            bytes = 0;
                        }
                        bytes += more;
                        part.push(ProgressRun { piece: file.piece, runs: some.to_vec() });
                    }
                }
                if !part.is_empty() {
                    self.put(&JournalRecord::Progress { nanos, runs: part });
                }
            }
            event => self.put(&event),
        }
    }

    fn put(&mut self, record: &JournalRecord) {
        let bytes = record.encode(self.number);
        debug_assert!(bytes.len() >= HEAD_BYTES + CHECKSUM_BYTES, "a record has a head and a sum");
        self.waiting.extend(bytes);
        self.number += 1;
    }

    /// Makes all added records durable.
    ///
    /// # Errors
    /// Returns errors as the system reports them. After a failed sync, every commit fails: the
    /// kernel reports a write error only once, and a later sync may succeed without the data.
    pub fn commit(&mut self) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.duplicate());
        }
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.longest_bytes = self.longest_bytes.max(self.waiting.len() as u64);
        // If a full disk has no room to extend the file, the records themselves may still fit.
        let _ = self.make_room(self.at + self.waiting.len() as u64);
        self.file.device().write_at(self.at, &self.waiting)?;
        debug_assert!(self.failure.is_none(), "nothing is written after a sync that failed");
        self.at += self.waiting.len() as u64;
        self.waiting.clear();
        self.file.device().sync().inspect_err(|error| self.failure = Some(error.duplicate()))
    }
}

impl Journal {
    /// Writes zeros ahead, so that a commit changes neither the length of the file nor its blocks.
    /// A commit then does not wait for the file system's own journal, which may have to write the
    /// data of other files first.
    fn make_room(&mut self, end: u64) -> Result<()> {
        let zeros = vec![0; ROOM_BYTES as usize];
        while self.room_to < end {
            self.file.device().write_at(self.room_to, &zeros)?;
            self.room_to += ROOM_BYTES;
        }
        Ok(())
    }

    /// Keeps space ahead for a minute of commits, and writes a part of it at each call, so that the
    /// last records can be written even if the disk is full by then.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] if so little space is left that the take must end; earlier failures are
    /// not errors.
    pub(crate) fn keep_ahead(&mut self) -> Result<()> {
        let wanted = (self.longest_bytes * COMMITS_AHEAD).max(ROOM_BYTES / 2);
        let ahead = self.room_to.saturating_sub(self.at);
        if ahead >= wanted {
            return Ok(());
        }
        let least = (self.longest_bytes * COMMITS_LEAST).max(ROOM_BYTES / 16);
        match self.make_room(self.room_to + 1) {
            Err(error) if ahead < least => Err(error.advice(
                "free space on the disk; the recorder ended the take while the disk still had \
                 enough space to complete the take",
            )),
            _ => Ok(()),
        }
    }

    /// Removes the zeros that were written ahead, when no more records follow.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn finish(&mut self) -> Result<()> {
        self.commit()?;
        self.file.device().set_len(self.at)?;
        self.file.device().sync()
    }
}

/// Reads a journal record by record, with only one record in memory.
pub(crate) struct JournalReader<'a> {
    file: &'a TakeFile,
    length: u64,
    at: u64,
    number: u64,
    buffer: Vec<u8>,
}

impl<'a> JournalReader<'a> {
    /// From the beginning.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn new(file: &'a TakeFile) -> Result<Self> {
        let length = file.device().len()?;
        Ok(JournalReader { file, length, at: 0, number: 0, buffer: Vec::new() })
    }

    /// Returns the next record; `None` at the end, or at an incomplete record.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn next_record(&mut self) -> Result<Option<JournalRecord>> {
        let mut head = [0; HEAD_BYTES];
        if self.at + HEAD_BYTES as u64 > self.length {
            return Ok(None);
        }
        self.file.device().read_at(self.at, &mut head)?;
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let whole = HEAD_BYTES + length + CHECKSUM_BYTES;
        if length > JOURNAL_RECORD_BYTES || self.at + whole as u64 > self.length {
            return Ok(None);
        }
        self.buffer.resize(whole, 0);
        self.file.device().read_at(self.at, &mut self.buffer)?;
        let Some((record, bytes)) = decode_journal(&self.buffer, self.number) else {
            return Ok(None);
        };
        self.at += bytes as u64;
        self.number += 1;
        Ok(Some(record))
    }

    /// Reads the first event, which identifies the take of this journal; returns the number of the
    /// directory.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if the journal belongs to another take, or if it has no such event.
    pub fn begin(&mut self, id: &str) -> Result<u32> {
        match self.next_record()? {
            Some(JournalRecord::Event(JournalEvent::Begin { id: found, directory }))
                if found == id =>
            {
                Ok(directory)
            }
            _ => Err(Error::new(Kind::Corrupt, "this journal does not belong to this take")
                .at(self.file.device().place())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pinstripe_io::device::MemoryDevice;
    use pinstripe_io::fault::{CutDevice, Power};

    use super::*;

    fn records() -> Vec<JournalRecord> {
        let event = JournalEvent::Begin { id: "ab".to_owned(), directory: 0 };
        let run = |bytes: &[u8]| Summed::from_bytes(bytes);
        vec![
            JournalRecord::Event(event),
            JournalRecord::Progress {
                nanos: 7,
                runs: vec![
                    ProgressRun { piece: 0, runs: vec![run(b"abc"), run(b"")] },
                    ProgressRun { piece: 9, runs: vec![run(b"x")] },
                ],
            },
            JournalRecord::Event(JournalEvent::Gap { stream: 1, frame: 2, frames: 3 }),
        ]
    }

    fn file() -> TakeFile {
        TakeFile::of_device(Arc::new(MemoryDevice::new("journal")))
    }

    fn read(file: &TakeFile) -> Vec<JournalRecord> {
        let mut reader = JournalReader::new(file).unwrap();
        std::iter::from_fn(|| reader.next_record().unwrap()).collect()
    }

    #[test]
    fn records_are_read_as_they_were_written_up_to_the_first_that_is_not_whole() {
        let mut journal = Journal::new(file());
        records().into_iter().for_each(|it| journal.add(it));
        journal.commit().unwrap();
        let length = journal.at;
        assert_eq!(read(journal.file()), records());
        // Zeros of a reservation behind it are no records.
        journal.file().device().set_len(length + 100_000).unwrap();
        assert_eq!(read(journal.file()), records());
        for cut in [0, 1, 15, 16, length - 1] {
            journal.file().device().set_len(cut).unwrap();
            assert!(read(journal.file()).len() < 3);
            journal.at = 0;
            journal.number = 0;
            records().into_iter().for_each(|it| journal.add(it));
            journal.commit().unwrap();
        }
    }

    #[test]
    fn records_whose_sync_failed_are_never_called_durable() {
        // Zeros ahead are the first step, the write is the second, and the power goes at the sync.
        let power = Arc::new(Power::new(2));
        let device = CutDevice::new(MemoryDevice::new("journal"), power);
        let mut journal = Journal::new(TakeFile::of_device(Arc::new(device)));
        records().into_iter().for_each(|it| journal.add(it));
        assert!(journal.commit().is_err());
        assert!(journal.waiting.is_empty(), "they were written");
        assert!(journal.commit().is_err());
        journal.add(records().remove(0));
        assert!(journal.commit().is_err());
    }

    #[test]
    fn every_flipped_bit_ends_the_reading_there() {
        let mut journal = Journal::new(file());
        records().into_iter().for_each(|it| journal.add(it));
        let whole = journal.waiting.clone();
        let first = records()[0].encode(0).len();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            let file = file();
            file.device().write_at(0, &bytes).unwrap();
            let found = read(&file);
            assert!(found.len() < 3 && records().starts_with(&found), "{at}");
            assert_eq!(found.is_empty(), at < first);
        }
    }

    #[test]
    fn long_progress_becomes_several_records() {
        let runs = vec![Summed { bytes: 1, sum: 2 }; 1_000_000];
        let files = vec![ProgressRun { piece: 3, runs }; 2];
        let mut journal = Journal::new(file());
        journal.add(JournalRecord::Progress { nanos: 1, runs: files });
        journal.commit().unwrap();
        let found = read(journal.file());
        let count: usize = found
            .iter()
            .map(|it| match it {
                JournalRecord::Progress { runs, .. } => runs.iter().map(|it| it.runs.len()).sum(),
                JournalRecord::Event(_) => 0,
            })
            .sum();
        assert!(found.len() > 1);
        assert_eq!(count, 2_000_000);
    }

    #[test]
    fn on_a_disk_that_fills_up_there_is_room_for_the_records_of_the_end() {
        let disk = MemoryDevice::with_limit("journal", 3 << 20);
        let mut journal = Journal::new(TakeFile::of_device(Arc::new(disk)));
        let second = || JournalRecord::Progress {
            nanos: 1,
            runs: vec![ProgressRun { piece: 0, runs: vec![Summed { bytes: 1, sum: 2 }; 2000] }],
        };
        let mut seconds = 0;
        while journal.keep_ahead().is_ok() {
            journal.add(second());
            journal.commit().expect("it is not yet said that the disk is full");
            seconds += 1;
        }
        assert!(seconds > 60, "{seconds}");
        for _ in 0..COMMITS_LEAST - 1 {
            journal.add(second());
            journal.commit().expect("room was kept for it");
        }
        journal.finish().unwrap();
        assert_eq!(read(journal.file()).len() as u64, seconds + COMMITS_LEAST - 1);
    }
}
