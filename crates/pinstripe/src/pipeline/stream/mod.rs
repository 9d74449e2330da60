//! Content in order: many threads fetch and decode records in advance, and the caller gets the
//! bytes of files one after the other.
//!
//! ```text
//! feed (one thread: walks the tree, names chunks) --> runner (fetch, decode, check)
//!        |                                                |
//!        +--> items in order --> caller  <-- waits for ---+
//! ```
//!
//! Invariants: bytes are output in the order in which the feed requested them, after each chunk was
//! verified against its id. Decoded records take no more memory than the budget, whichever side is
//! slow. A record that several requests need is decoded once, and kept until its memory is needed.
//! Chunks that are planned together are fetched in the order of the packs. The feed knows what will
//! be read, so no planner has to predict it (decision 0039). The stream never decides what damage
//! means: the caller gets the error at the damaged position.

mod decoded;
mod feed;

use std::ops::Range;

use crossbeam_channel::{Receiver, bounded};
use pinstripe_prefetch::{Pinned, Runner};

pub(crate) use decoded::DecodedRecords;
pub use decoded::decoded_bytes;
pub(crate) use feed::Feed;
pub use feed::Holes;

use crate::pipeline::limits::Limits;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader, RecordPlace};
use pinstripe_base::error::{Error, Result};
use pinstripe_member::keys::Keys;
use pinstripe_member::record::ChunkRow;

/// Where content comes from.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// Reads records.
    pub packs: &'a PackReader<'a>,
    /// The index, which finds chunks in packs.
    pub index: &'a Index<'a>,
    /// The keys, with which chunks are verified.
    pub keys: &'a Keys,
    /// Threads and memory.
    pub limits: Limits,
}

/// A part of the output, in the order in which the feed named it.
pub(crate) enum StreamPart<'o, T> {
    /// A mark that the feed put between pieces of content: an entry, or the end of one.
    Mark(T),
    /// Content.
    Bytes(&'o [u8]),
    /// A number of zero bytes: a hole.
    Zeros(u64),
    /// A number of lost bytes, and the error.
    Lost(u64, Error),
}

/// The runner that fetches records.
type RecordRunner<'a> = Runner<DecodedRecords<'a>>;

/// A record that will be read soon.
type Record<'r, 'a> = Pinned<'r, DecodedRecords<'a>>;

/// An item that the caller has not received yet.
enum StreamItem<'r, 'a, T> {
    Mark(T),
    Chunk { record: Record<'r, 'a>, raw_offset: u32, row: ChunkRow, part: Range<u32> },
    Zeros(u64),
    Lost(u64, Error),
}

/// The largest number of items between feed and caller; items without content are small.
const ITEMS_QUEUED: usize = 1024;

/// Runs `produce`, which fills the feed, on a thread of its own, and passes the whole output to
/// `consume` in order.
///
/// # Errors
/// Fails with the first error of `consume`, which ends everything, or otherwise with that of
/// `produce`.
pub fn stream<T: Send>(
    origin: Origin<'_>,
    produce: impl FnOnce(&mut Feed<'_, '_, T>) -> Result<()> + Send,
    consume: &mut dyn FnMut(StreamPart<'_, T>) -> Result<()>,
) -> Result<()> {
    let records = DecodedRecords::new(origin.packs, origin.index, origin.keys);
    let threads = origin.limits.fetchers.max(origin.limits.workers);
    Runner::scoped(records, origin.limits.ahead_bytes(), threads, |runner| {
        std::thread::scope(|scope| {
            let (items, wanted) = bounded::<StreamItem<'_, '_, T>>(ITEMS_QUEUED);
            let producer = scope.spawn(move || Feed::new(origin, runner, items).run(produce));
            // An early end drops the receiver, which ends the feed. An item that was sent at that
            // very moment may stay in the queue, and with it the room it takes: the feed must not
            // wait for that.
            let ended = runner.end_on_drop();
            hand_out(origin, wanted, consume)?;
            drop(ended);
            producer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

fn hand_out<T>(
    origin: Origin<'_>,
    wanted: Receiver<StreamItem<'_, '_, T>>,
    consume: &mut dyn FnMut(StreamPart<'_, T>) -> Result<()>,
) -> Result<()> {
    for item in &wanted {
        match item {
            StreamItem::Mark(mark) => consume(StreamPart::Mark(mark))?,
            StreamItem::Zeros(bytes) => consume(StreamPart::Zeros(bytes))?,
            StreamItem::Lost(bytes, error) => consume(StreamPart::Lost(bytes, error))?,
            StreamItem::Chunk { record, raw_offset, row, part } => {
                let bytes = u64::from(part.end - part.start);
                let part = part.start as usize..part.end as usize;
                let decoded = record.get();
                let chunk = match &decoded {
                    Ok(decoded) => decoded.chunk(raw_offset, &row),
                    Err(error) => Err(error.duplicate()),
                };
                match chunk {
                    Ok(chunk) => consume(StreamPart::Bytes(&chunk[part]))?,
                    Err(error) => match elsewhere(origin, record.key(), &row) {
                        Some(chunk) => consume(StreamPart::Bytes(&chunk[part]))?,
                        None => consume(StreamPart::Lost(bytes, error))?,
                    },
                }
            }
        }
    }
    Ok(())
}

/// Reads a chunk from another pack, when it cannot be read where the index found it first.
fn elsewhere(origin: Origin<'_>, tried: RecordPlace, row: &ChunkRow) -> Option<Vec<u8>> {
    let mut reader = ChunkReader::new(origin.packs, origin.index);
    let chunk = reader.read_elsewhere(&row.id, tried)?;
    (chunk.len() == row.raw_bytes as usize).then_some(chunk)
}
