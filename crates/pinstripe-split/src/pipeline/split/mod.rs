//! Splits: workers turn the units of a source into batches, which are written to logs, and the logs
//! to outputs.
//!
//! ```text
//! units --> workers: zeros? codec, frames, hash --> queue --> writer of each log --> queues
//! ```
//!
//! With the layout `queue`, each output has a log and all share one queue, so that a batch goes to
//! whichever output is free. With the layout `ranges`, each output has a queue of its own. A
//! striped log has one writer for all outputs.
//!
//! Invariants: the number of buffers is fixed and buffers are reused, so memory does not grow with
//! the source. An index is written only when the batches that it lists are durable. The end pages
//! are written when everything else is durable on all outputs. The first error ends the run.

mod own;
mod striped;
mod tally;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::bounded;

use self::own::OwnWriter;
use self::striped::StripedWriter;
pub use self::tally::Spent;
pub(crate) use self::tally::{BlockTally, Stages};
use self::worker::Worker;
use crate::format::{End, FrameKind, Head, LogEnd, Manifest, PAGE_BYTES, PAGES_BYTES, SplitLayout};
use crate::outputs::batch::{batch_bytes_max, single};
use crate::outputs::log::Sets;
use crate::outputs::resume::LogProgress;
use crate::outputs::{TreeHash, UnitHash};
use crate::source::Units;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Along, Counter, Flow, Monitor};
use pinstripe_base::sync::into_inner;
use pinstripe_io::device::{AlignedBuf, BufferPool, Engine};
use pinstripe_io::write_queue::{QueueDevice, Returned, WriteQueue, WriteQueueSettings};
use pinstripe_stripe::{Abort, Codec, Geometry, Governor};

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodecChoice {
    /// The codec is chosen by how full the outputs' queues are.
    Auto,
    /// Always so.
    Fixed(Codec),
}

/// One output of a split.
pub(crate) struct OutputJob {
    /// The head.
    pub head: Head,
    /// The finished part of this output's log; the first output has the finished part of a striped
    /// log.
    pub begun: LogProgress,
    /// The name.
    pub name: String,
    /// The queue that writes the two pages and the log.
    pub log: QueueDevice,
    /// The queue that writes the source's bytes, if the layout is plain.
    pub plain: Option<QueueDevice>,
}

/// A split to be carried out.
pub(crate) struct SplitJob<'a> {
    /// The source: with ranges one entry for each output, otherwise one entry.
    pub units: &'a [Units],
    /// The outputs in the order of their numbers; there is at least one.
    pub outputs: Vec<OutputJob>,
    /// Settings of the outputs' queues.
    pub settings: WriteQueueSettings,
    /// Contributions of units to the hash that are known already.
    pub parts: Vec<(u64, UnitHash)>,
    /// The number of bytes of the source that the logs contain already.
    pub done_bytes: u64,
    /// How blocks are compressed.
    pub codec: CodecChoice,
    /// Threads.
    pub workers: usize,
    /// Batches in memory.
    pub buffers: usize,
}

/// A job whose outputs are open.
struct Running<'a> {
    units: &'a [Units],
    outputs: Vec<OpenOutput<'a>>,
    workers: usize,
    buffers: usize,
}

/// An output with its queues.
struct OpenOutput<'a> {
    head: Head,
    begun: LogProgress,
    log: WriteQueue<'a>,
    plain: Option<WriteQueue<'a>>,
}

impl OpenOutput<'_> {
    fn taken(&self) -> Taken {
        let log = self.log.traffic();
        let plain = self.plain.as_ref().map(WriteQueue::traffic).unwrap_or_default();
        Taken {
            written_bytes: log.written_bytes + plain.written_bytes,
            busy: log.busy.max(plain.busy),
            engine: self.log.engine(),
        }
    }
}

/// A unit in flight.
struct Unit {
    frames: AlignedBuf,
    /// The unit's bytes, for a plain output.
    plain: Option<AlignedBuf>,
    offset: u64,
    raw_bytes: u64,
}

/// The values that all threads share.
struct Shared<'a> {
    head: &'a Head,
    codec: CodecChoice,
    governor: Governor,
    buffers: usize,
    frames: BufferPool,
    raw: BufferPool,
    abort: &'a Abort,
    hash: Mutex<TreeHash>,
    tally: Mutex<BlockTally>,
    stages: Stages,
    monitor: &'a Monitor,
}

impl Shared<'_> {
    /// Returns how full the outputs are, from 0 to 1: the fraction of the batches in memory that
    /// wait for outputs.
    fn fill(&self) -> f32 {
        1.0 - self.frames.free() as f32 / self.buffers.max(1) as f32
    }
}

/// Counts and times of the writes to one output.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// Bytes, pages included.
    pub written_bytes: u64,
    /// Time in which at least one write was in progress.
    pub busy: Duration,
    /// How writes are carried out: by threads or by io_uring.
    pub engine: Engine,
}

/// The outcome.
#[derive(Debug, Clone)]
pub(crate) struct WrittenOutputs {
    /// The manifest that all outputs have.
    pub manifest: Manifest,
    /// By output.
    pub taken: Vec<Taken>,
    /// The time that workers spent, by stage.
    pub spent: Spent,
}

impl SplitJob<'_> {
    /// Runs the split to its end. The outputs are complete and durable when this function returns.
    ///
    /// # Errors
    /// Fails with the first error of the source or of an output; no output has an end page then.
    pub fn run(self, monitor: &Monitor) -> Result<WrittenOutputs> {
        let abort = Abort::default();
        let raw_buffers = self.workers
            + self.outputs.iter().filter(|it| it.plain.is_some()).count().min(1) * self.buffers;
        let head = &self.outputs[0].head.clone();
        let shared = Shared {
            head,
            codec: self.codec,
            governor: Governor::new(self.workers),
            buffers: self.buffers,
            frames: BufferPool::new(self.buffers, batch_bytes_max(head.block_bytes)),
            // A plain output takes the source's bytes as they were read, others do not.
            raw: BufferPool::new(raw_buffers, head.unit_bytes() as usize),
            abort: &abort,
            hash: Mutex::default(),
            tally: Mutex::new(BlockTally::after(self.done_bytes)),
            stages: Stages::new(monitor),
            monitor,
        };
        {
            let mut hash = shared.hash.lock().expect("nobody else has it yet");
            self.parts.iter().for_each(|(unit, part)| hash.take(*unit, *part));
        }
        std::thread::scope(|scope| {
            let count = |flow: Arc<Flow>| {
                move |returned: Returned| {
                    let bytes = if returned.is_written { returned.buf.len() as u64 } else { 0 };
                    monitor.add(Counter::WrittenBytes, bytes);
                    flow.pass(bytes, Duration::ZERO);
                }
            };
            let SplitJob { units, outputs, settings, workers, buffers, .. } = self;
            let open = |output: OutputJob| {
                let OutputJob { head, begun, name, log, plain } = output;
                let flow = monitor.flow(Along::Output, name);
                let also = count(Arc::clone(&flow));
                let plain = plain.map(|it| WriteQueue::start(scope, it, settings, also));
                OpenOutput {
                    head,
                    begun,
                    log: WriteQueue::start(scope, log, settings, count(flow)),
                    plain,
                }
            };
            let outputs = outputs.into_iter().map(open).collect();
            Running { units, outputs, workers, buffers }.run(shared)
        })
    }
}

impl Running<'_> {
    fn run(self, shared: Shared<'_>) -> Result<WrittenOutputs> {
        let logs = self.carry_out(&shared)?;
        let spent = shared.stages.spent();
        let tally = into_inner(shared.tally);
        let hash = into_inner(shared.hash);
        let blake3 = hash
            .finish()
            .ok_or_else(|| Error::new(Kind::Io, "a part of the source was not read"))?;
        let places: Vec<u64> = logs.iter().flat_map(|log| log.manifest_at.clone()).collect();
        let manifest = tally.manifest(blake3, logs.iter().map(|log| log.end).collect());
        self.finish(&manifest, &places)?;
        let taken = self.outputs.iter().map(OpenOutput::taken).collect();
        Ok(WrittenOutputs { manifest, taken, spent })
    }

    fn carry_out(&self, shared: &Shared<'_>) -> Result<Vec<Written>> {
        let queues = self.units.len();
        std::thread::scope(|scope| {
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..queues).map(|_| bounded::<Unit>(self.buffers)).unzip();
            let tag = shared.head.tag();
            let mut writers = Vec::new();
            if shared.head.layout == SplitLayout::Stripes {
                let sets = Sets::new(shared.head.split, geometry(shared.head)?);
                let queues = self.outputs.iter().map(|output| &output.log).collect();
                let begun = self.outputs[0].begun.clone();
                let writer = StripedWriter::new(sets, queues, tag, begun)?;
                let receiver = receivers[0].clone();
                writers.push(scope.spawn(move || {
                    let _guard = shared.abort.on_panic();
                    or_raise(shared.abort, writer.run(&receiver))
                }));
            } else {
                // Every output has a queue of its own, or all take from one.
                let queues = receivers.iter().chain(std::iter::repeat(&receivers[0]));
                for (output, queue) in self.outputs.iter().zip(queues) {
                    let OpenOutput { head, begun, log, plain } = output;
                    let writer =
                        OwnWriter::new(log, plain.as_ref(), head.first_byte, tag, begun.clone());
                    let receiver = queue.clone();
                    writers.push(scope.spawn(move || {
                        let _guard = shared.abort.on_panic();
                        or_raise(shared.abort, writer.run(&receiver))
                    }));
                }
            }
            drop(receivers);
            for first in 0..self.workers {
                let senders = senders.clone();
                scope.spawn(move || {
                    let _guard = shared.abort.on_panic();
                    if let Err(error) = Worker::new(shared, self.units, senders, first).run() {
                        shared.abort.raise(error);
                    }
                });
            }
            drop(senders);
            let written: Vec<_> = writers
                .into_iter()
                .filter_map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            shared.abort.check()?;
            Ok(written)
        })
    }

    /// Writes the manifest to all outputs, and then their end pages.
    fn finish(&self, manifest: &Manifest, places: &[u64]) -> Result<()> {
        let tag = self.outputs[0].head.tag();
        let mut frame = Vec::new();
        single(&mut frame, tag, FrameKind::Manifest, &manifest.encode(), 1);
        for (output, place) in self.outputs.iter().zip(places) {
            output.log.write(*place, frame.clone())?;
        }
        let logs = || self.outputs.iter().map(|output| &output.log);
        let plain = self.outputs.iter().filter_map(|output| output.plain.as_ref());
        logs().chain(plain).try_for_each(WriteQueue::barrier)?;
        for (OpenOutput { head, log, .. }, place) in self.outputs.iter().zip(places) {
            let end = End {
                split: head.split,
                output: head.output,
                manifest_at: *place,
                manifest_bytes: frame.len() as u64,
                log_bytes: place - PAGES_BYTES,
            };
            log.write(PAGE_BYTES as u64, end.encode())?;
        }
        logs().try_for_each(WriteQueue::barrier)
    }
}

/// Returns the geometry of a striped log.
///
/// # Errors
/// Fails with the errors of [`Geometry::new`].
pub fn geometry(head: &Head) -> Result<Geometry> {
    Geometry::new(head.outputs - head.parity, head.parity, head.strip_bytes)
}

/// The result of writing one log.
struct Written {
    end: LogEnd,
    /// The offsets of the manifests in the outputs of this log.
    manifest_at: Vec<u64>,
}

fn or_raise<T>(abort: &Abort, result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            abort.raise(error);
            None
        }
    }
}
