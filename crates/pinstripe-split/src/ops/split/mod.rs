//! `split`: distributes one huge source over N outputs.
//!
//! Everything that can be refused is refused before an output is changed; an output is complete
//! only when all outputs are (doc/decisions/0018-split.md).

mod outputs;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outputs::{Target, check_paths, open_outputs, output_paths, write_heads};

use crate::format::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Head, Manifest, SplitLayout, unit_bytes};
use crate::outputs::batch::batch_bytes_max;
use crate::outputs::resume::{Resumed, resume};
use crate::outputs::{RemoteOutputs, SplitOutput};
use crate::pipeline::split::{CodecChoice, Spent, SplitJob};
use crate::source::{ByteSource, Units};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SplitId, random};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::units::{MIB, merged};
use pinstripe_io::device::{Engine, Policy};
use pinstripe_io::fault::Plan;
use pinstripe_io::write_queue::WriteQueueSettings;
use pinstripe_stripe::Geometry;

/// How the source is distributed over the outputs, as requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutChoice {
    /// Striped over all outputs, with or without parity.
    Stripes,
    /// Each batch goes to any output that is free.
    Queue,
    /// One contiguous range per output.
    Ranges,
}

/// Options of `split`.
pub struct SplitOptions {
    /// Files, block devices, directories in which a file is created, or places that `remote` opens.
    pub outputs: Vec<PathBuf>,
    /// The layout; by default stripes if there is parity, and a queue if there is none.
    pub spread: Option<LayoutChoice>,
    /// The number of outputs that may be lost.
    pub parity: u8,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// The compression of blocks.
    pub codec: CodecChoice,
    /// The caching policy of outputs.
    pub policy: Policy,
    /// How writes are carried out: by threads or by io_uring.
    pub engine: Engine,
    /// Writes in flight per output.
    pub depth: usize,
    /// The number of threads that read, hash and compress.
    pub workers: usize,
    /// The memory for all buffers together.
    pub memory_bytes: u64,
    /// Overwrite existing outputs.
    pub force: bool,
    /// Continue a split that was interrupted.
    pub resume: bool,
    /// When it begins.
    pub now_seconds: i64,
    /// Faults to inject on purpose, by number of the output.
    pub faults: Option<Plan>,
    /// Opens outputs that are not files or disks.
    pub remote: Option<Arc<dyn RemoteOutputs>>,
}

/// The result for one output.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Written {
    /// The path.
    pub path: PathBuf,
    /// Bytes that were written to the output.
    pub written_bytes: u64,
    /// Time during which a write to the output was in progress.
    #[serde(skip)]
    pub busy: Duration,
    /// The caching policy in use and the reason for it, if it is not the requested one.
    pub fallback: Option<String>,
}

/// The outcome.
#[derive(Debug, Clone)]
pub struct SplitOutcome {
    /// The head page that all outputs share.
    pub head: Head,
    /// The manifest of the split.
    pub manifest: Manifest,
    /// By output.
    pub outputs: Vec<Written>,
    /// Bytes of the source that the interrupted split had already written.
    pub resumed_bytes: u64,
    /// The time that workers spent, by stage.
    pub spent: Spent,
    /// The time that the split took.
    pub elapsed: Duration,
    /// How writes were carried out: by threads or by io_uring.
    pub engine: Engine,
}

/// The smallest number of batches in memory.
const BUFFERS_MIN: usize = 3;
/// The largest number of bytes of batches that wait for outputs.
const BUFFERED_BYTES: u64 = 48 * MIB;

/// Splits a source; `open` opens the source, once for each range.
///
/// # Errors
/// Fails with [`Kind::Usage`] for impossible options, with [`Kind::Exists`] for outputs that exist,
/// with [`Kind::WrongMember`] when the split to resume is a different one, or with the first error
/// of the source or of an output; no output is complete after a failure.
pub fn run(
    open: &dyn Fn() -> Result<Box<dyn ByteSource>>,
    options: &SplitOptions,
    monitor: &Monitor,
) -> Result<SplitOutcome> {
    let began = clock::monotonic();
    let source = open()?;
    let paths = output_paths(options, source.place())?;
    let layout = layout(options, &*source)?;
    check_paths(&paths, layout, source.identity(), options)?;
    let mut heads = heads(&*source, layout, options, paths.len())?;
    let outputs = open_outputs(&paths, layout, options)?;
    let resumed = match options.resume {
        true => take_up(&outputs, &mut heads)?,
        false => {
            let source_bytes = source.length().unwrap_or(0);
            let ranges = heads.iter().map(|head| range_bytes(&heads, head, source_bytes));
            write_heads(&outputs, &heads, &ranges.collect::<Vec<_>>())?;
            Resumed::default()
        }
    };
    let done_bytes = resumed.done.iter().map(|range| range.end - range.start).sum();
    monitor.set_total(source.length().unwrap_or(0).saturating_sub(done_bytes), 0);
    let units = units(open, source, layout, &heads, &resumed)?;
    let outcome = job(&units, &heads, &outputs, resumed, options).run(monitor)?;
    let engine = outcome.taken.first().map_or(options.engine, |taken| taken.engine);
    let written = outputs.iter().zip(&outcome.taken).map(|(output, taken)| Written {
        path: output.path.clone(),
        written_bytes: taken.written_bytes,
        busy: taken.busy,
        fallback: output.fallback(),
    });
    Ok(SplitOutcome {
        head: heads[0].clone(),
        outputs: written.collect(),
        resumed_bytes: done_bytes,
        spent: outcome.spent,
        elapsed: clock::since(began),
        engine,
        manifest: outcome.manifest,
    })
}

fn layout(options: &SplitOptions, source: &dyn ByteSource) -> Result<SplitLayout> {
    let usage = |what: &str, advice: &str| Err(Error::new(Kind::Usage, what).advice(advice));
    let block = options.block_bytes;
    if !block.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block) {
        return Err(Error::new(Kind::Usage, "a block cannot have this size")
            .expected("a power of two from 4K to 16M", block));
    }
    let default = if options.parity > 0 { LayoutChoice::Stripes } else { LayoutChoice::Queue };
    match options.spread.unwrap_or(default) {
        LayoutChoice::Stripes => {
            let data = options.outputs.len() as u8 - options.parity;
            Geometry::new(data, options.parity, options.strip_bytes)?;
            Ok(SplitLayout::Stripes)
        }
        LayoutChoice::Queue | LayoutChoice::Ranges if options.parity > 0 => usage(
            "parity is possible only with --layout stripes",
            "leave out --layout, or leave out --parity",
        ),
        LayoutChoice::Queue => Ok(SplitLayout::Queue),
        LayoutChoice::Ranges if source.length().is_none() => usage(
            "the layout 'ranges' needs a source with a known length",
            "split a pipe with --layout queue or --layout stripes",
        ),
        LayoutChoice::Ranges
            if options.codec == CodecChoice::Fixed(pinstripe_stripe::Codec::Raw) =>
        {
            Ok(SplitLayout::Plain)
        }
        LayoutChoice::Ranges => Ok(SplitLayout::Ranges),
    }
}

fn heads(
    source: &dyn ByteSource,
    layout: SplitLayout,
    options: &SplitOptions,
    outputs: usize,
) -> Result<Vec<Head>> {
    let split = SplitId(random()?);
    let unit = u64::from(unit_bytes(options.block_bytes));
    let per = match (layout, source.length()) {
        (SplitLayout::Ranges | SplitLayout::Plain, Some(bytes)) => {
            bytes.div_ceil(unit).div_ceil(outputs as u64) * unit
        }
        _ => 0,
    };
    let codec = match options.codec {
        CodecChoice::Auto => "auto".to_owned(),
        CodecChoice::Fixed(codec) => codec.to_string(),
    };
    let striped = layout == SplitLayout::Stripes;
    let head = |output: usize| Head {
        split,
        layout,
        output: output as u8,
        outputs: outputs as u8,
        parity: options.parity,
        strip_bytes: if striped { options.strip_bytes } else { 0 },
        block_bytes: options.block_bytes,
        source_bytes: source.length(),
        first_byte: (output as u64 * per).min(source.length().unwrap_or(0)),
        made_seconds: options.now_seconds,
        identity: source.identity(),
        codec: codec.clone(),
        source: source.place().to_string_lossy().into_owned(),
    };
    Ok((0..outputs).map(head).collect())
}

/// Finds what the outputs of an interrupted split contain.
fn take_up(outputs: &[Target], heads: &mut [Head]) -> Result<Resumed> {
    let mut opened = Vec::with_capacity(outputs.len());
    for (output, head) in outputs.iter().zip(&mut *heads) {
        let found = SplitOutput::open(output.log.clone(), output.plain.clone())?;
        let old = match &found.head {
            Ok(old) => old.clone(),
            Err(error) => {
                return Err(error
                    .duplicate()
                    .advice("start the split from the beginning with --force"));
            }
        };
        let is_same = (old.layout, old.output, old.outputs, old.parity)
            == (head.layout, head.output, head.outputs, head.parity)
            && old.block_bytes == head.block_bytes
            && (old.strip_bytes, old.first_byte) == (head.strip_bytes, head.first_byte)
            && old.identity == head.identity;
        if !is_same {
            return Err(Error::new(
                Kind::WrongMember,
                "this output does not belong to the split that was interrupted",
            )
            .at(&output.path)
            .advice(
                "give the same source, the same outputs in the same order, and the same options; \
                 if the source has changed, start the split from the beginning with --force",
            ));
        }
        *head = old;
        opened.push(found);
    }
    for (output, head) in opened.iter().zip(&*heads) {
        heads[0].belongs_with(head).map_err(|error| error.at(output.place()))?;
    }
    resume(&opened, &heads[0])
}

fn units(
    open: &dyn Fn() -> Result<Box<dyn ByteSource>>,
    source: Box<dyn ByteSource>,
    layout: SplitLayout,
    heads: &[Head],
    resumed: &Resumed,
) -> Result<Vec<Units>> {
    let unit = u64::from(heads[0].unit_bytes());
    if !matches!(layout, SplitLayout::Ranges | SplitLayout::Plain) {
        return Ok(vec![Units::new(source, unit, resumed.done.clone())?]);
    }
    let bytes = source.length().unwrap_or(0);
    drop(source);
    let of = |head: &Head| {
        let end = head.first_byte + range_bytes(heads, head, bytes);
        let mut done = vec![0..head.first_byte, end..bytes];
        let own = resumed.done.iter().map(|it| it.start.max(head.first_byte)..it.end.min(end));
        done.splice(1..1, own);
        done.retain(|range| range.start < range.end);
        let again = open()?;
        if again.identity() != head.identity {
            return Err(Error::new(Kind::Changed, "the source changed while it was being opened")
                .at(again.place()));
        }
        Units::new(again, unit, merged(done))
    };
    heads.iter().map(of).collect()
}

/// Length of the range of the source that an output holds.
fn range_bytes(heads: &[Head], head: &Head, source_bytes: u64) -> u64 {
    let next = heads.get(usize::from(head.output) + 1).map_or(source_bytes, |it| it.first_byte);
    next - head.first_byte
}

/// Returns the job that the pipeline carries out.
fn job<'j>(
    units: &'j [Units],
    heads: &[Head],
    outputs: &[Target],
    resumed: Resumed,
    options: &SplitOptions,
) -> SplitJob<'j> {
    // By log: one for each output, or one for all.
    let mut begun = resumed.begun.into_iter();
    let mut output = |(output, head): (&Target, &Head)| {
        output.job(head.clone(), begun.next().unwrap_or_default())
    };
    let jobs = outputs.iter().zip(heads).map(&mut output).collect();
    let batch = batch_bytes_max(options.block_bytes) as u64;
    let unit = u64::from(unit_bytes(options.block_bytes));
    let (workers, buffers) = budget(options, outputs.len(), unit, batch);
    SplitJob {
        units,
        outputs: jobs,
        settings: WriteQueueSettings { engine: options.engine, depth: options.depth, queued: 2 },
        parts: resumed.parts,
        done_bytes: resumed.done.iter().map(|range| range.end - range.start).sum(),
        codec: options.codec,
        workers,
        buffers,
    }
}

/// Returns the number of workers and the number of batches in memory; the batches take at most 48
/// MiB and one batch for each worker, even if the budget is larger. More batches would only fill
/// the outputs' queues.
fn budget(options: &SplitOptions, outputs: usize, unit: u64, batch: u64) -> (usize, usize) {
    // A worker holds a unit, and what it becomes; a plain output's batches have their unit with
    // them.
    let memory = options.memory_bytes.max(64 * MIB);
    let affordable = (memory / 4 / (unit + batch)).max(1) as usize;
    let workers = options.workers.clamp(1, affordable);
    let left = memory.saturating_sub(workers as u64 * (unit + batch)) / 2;
    let most = (left / batch).min(BUFFERED_BYTES / batch) as usize + workers;
    (workers, most.min(outputs * (options.depth + 1) + workers).max(BUFFERS_MIN))
}
