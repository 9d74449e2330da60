//! A split opened for reading: the present outputs, the place of every unit, and the bytes of the
//! source.
//!
//! Invariants: outputs may be given in any order. The content of a missing output is rebuilt from
//! parity, or reported as lost range by range. An unfinished split is never treated as complete,
//! but its durable part is found.

use std::ops::Range;

use super::indexes::indexed;
use super::log::{Log, OwnLog, Sets, StripedLog};
use super::output::SplitOutput;
use super::scan::scan;
use super::unit::{self, RawSidecar, Unit, UnitReader, UnitSource};
use crate::format::{BatchPlace, Head, Manifest, PAGES_BYTES, SplitLayout};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{AlignedBuf, SharedDevice};
use pinstripe_stripe::Geometry;

/// The place of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The number of the log, which is the number of the output if each output has a log of its
    /// own.
    pub log: usize,
    /// The place of the batch in its log.
    pub place: BatchPlace,
}

/// An open split. A split opened for reading; any number of threads may read through it.
pub struct Reader {
    head: Head,
    manifest: Option<Manifest>,
    /// The outputs by number; `None` for an output that is missing.
    outputs: Vec<Option<SplitOutput>>,
    /// The logs by number of the output, or a single striped log.
    logs: Vec<Option<Box<dyn Log>>>,
    /// The batches, in the order of the source.
    batches: Vec<Located>,
    /// Defects that were found in the present outputs.
    troubles: Vec<Error>,
}

impl Reader {
    /// Opens a split from its outputs, in any order: for each the device with the pages and, if the
    /// layout is plain, the device with the bytes.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when no output has an intact head, with [`Kind::WrongMember`]
    /// for an output of another split, with [`Kind::Usage`] for an output that is given twice, or
    /// with the errors of the devices. It is not an error if more outputs are missing than parity
    /// replaces; see [`require_enough`](Self::require_enough).
    pub fn open(devices: Vec<(SharedDevice, Option<SharedDevice>)>) -> Result<Self> {
        let open = |(device, plain)| SplitOutput::open(device, plain);
        let opened: Vec<SplitOutput> = devices.into_iter().map(open).collect::<Result<_>>()?;
        let head = common_head(&opened)?;
        let (outputs, troubles) = by_number(&head, opened)?;
        let mut reader = Reader {
            head,
            manifest: None,
            outputs,
            logs: Vec::new(),
            batches: Vec::new(),
            troubles,
        };
        reader.manifest = reader.find_manifest();
        reader.open_logs()?;
        reader.locate()?;
        Ok(reader)
    }

    /// The fields of the head that all outputs share.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The manifest of the split, or `None` when the split was not finished.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// The numbers of the outputs that are missing.
    pub fn missing(&self) -> Vec<usize> {
        (0..self.outputs.len()).filter(|number| self.outputs[*number].is_none()).collect()
    }

    /// Refuses a split that parity cannot rebuild completely.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`] when the log is striped and more outputs are missing than
    /// parity replaces: most outputs then hold part of each batch.
    pub(crate) fn require_enough(&self) -> Result<()> {
        let Head { layout, outputs, parity, .. } = self.head;
        let missing = self.missing().len();
        if layout != SplitLayout::Stripes || missing <= usize::from(parity) {
            return Ok(());
        }
        Err(Error::new(Kind::TooManyLosses, "too many outputs are missing")
            .expected(format!("at most {parity} missing outputs of {outputs}"), missing)
            .advice(
                "give all existing outputs, or read the bytes of the present outputs with \
                 --best-effort",
            ))
    }

    /// Defects of outputs that were found on opening.
    pub fn troubles(&self) -> &[Error] {
        &self.troubles
    }

    /// The outputs, by number.
    pub fn outputs(&self) -> &[Option<SplitOutput>] {
        &self.outputs
    }

    /// Batches in the order of the source.
    pub fn batches(&self) -> &[Located] {
        &self.batches
    }

    /// Length of the source: from the manifest, or as it was known in advance, or up to the end of
    /// the last batch.
    pub fn source_bytes(&self) -> u64 {
        let reach = || self.batches.iter().map(|it| end_of(&it.place)).max().unwrap_or(0);
        let known = self.manifest.as_ref().map(|manifest| manifest.source_bytes);
        known.or(self.head.source_bytes).unwrap_or_else(reach)
    }

    /// The ranges of the source that no batch contains.
    pub fn absent(&self) -> Vec<Range<u64>> {
        let mut absent = Vec::new();
        let mut next = 0;
        let end = std::iter::once(self.source_bytes()..self.source_bytes());
        let there = self.batches.iter().map(|it| it.place.offset..end_of(&it.place));
        for range in there.chain(end) {
            if range.start > next {
                absent.push(next..range.start);
            }
            next = next.max(range.end);
        }
        absent
    }

    /// Returns the striped log, if the layout has one.
    pub fn striped(&self) -> Result<Option<StripedLog>> {
        match self.head.layout {
            SplitLayout::Stripes => self.striped_log().map(Some),
            _ => Ok(None),
        }
    }

    /// Returns a buffer that holds any batch.
    pub fn buffer(&self) -> AlignedBuf {
        unit::buffer(&self.head)
    }

    /// Reads one batch; see [`UnitReader::read`].
    ///
    /// # Errors
    /// As there. A missing log is a loss, but not an error.
    pub fn read(
        &self,
        located: &Located,
        units: &mut UnitReader,
        out: &mut AlignedBuf,
    ) -> Result<Unit> {
        self.read_with(located, out, |source, out| units.read(source, &located.place, out))
    }

    /// Reads the bytes of a batch from its log into `out`, for
    /// [`read_fetched`](Self::read_fetched); returns whether the read succeeded.
    pub(crate) fn fetch(&self, located: &Located, out: &mut Vec<u8>) -> bool {
        let log = self.logs[located.log].as_ref();
        log.is_some_and(|log| unit::fetch(&**log, &located.place, out))
    }

    /// Like [`read`](Self::read), for a batch whose bytes were fetched; `None` if fetching failed.
    pub(crate) fn read_fetched(
        &self,
        located: &Located,
        fetched: Option<&[u8]>,
        units: &mut UnitReader,
        out: &mut AlignedBuf,
    ) -> Result<Unit> {
        self.read_with(located, out, |source, out| {
            units.read_fetched(fetched, source, &located.place, out)
        })
    }

    fn read_with(
        &self,
        located: &Located,
        out: &mut AlignedBuf,
        read: impl FnOnce(UnitSource<'_>, &mut AlignedBuf) -> Result<Unit>,
    ) -> Result<Unit> {
        let Some(log) = &self.logs[located.log] else {
            out.clear();
            return Ok(Unit::lost(located.place.offset..end_of(&located.place)));
        };
        let sidecar = self.sidecar(located);
        read(UnitSource { log: &**log, tag: self.head.tag(), sidecar: sidecar.as_ref() }, out)
    }

    /// Returns the place of a batch's bytes if they are in a plain output and not in the log.
    fn sidecar(&self, located: &Located) -> Option<RawSidecar<'_>> {
        let output = self.outputs[located.log.min(self.outputs.len() - 1)].as_ref()?;
        let first_byte = output.head.as_ref().ok()?.first_byte;
        Some(RawSidecar { device: output.plain.as_ref()?, first_byte })
    }

    /// Whether a plain output holds bytes other than zeros where its batch says zeros. A join is
    /// not affected by such bytes, but concatenating the plain outputs would not give the source.
    pub(crate) fn has_stray_bytes(&self, located: &Located, zeros: &[Range<u64>]) -> bool {
        let Some(sidecar) = self.sidecar(located) else { return false };
        zeros.iter().any(|range| !sidecar.is_zeros(range))
    }

    /// Fills `buf` from an offset of the source, and reads only the batches that contain this
    /// range.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] beyond the end, or with [`Kind::TooManyLosses`] when part of the
    /// range is lost; the error has the first lost range.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let wanted = offset..offset.saturating_add(buf.len() as u64);
        if wanted.end > self.source_bytes() {
            return Err(Error::new(Kind::Usage, "the read is beyond the end of the source")
                .expected(format!("within {}", self.source_bytes()), wanted.end));
        }
        buf.fill(0);
        let (mut units, mut raw) = (UnitReader::default(), self.buffer());
        let (mut next, overlaps) =
            (offset, |lost: &Range<u64>| lost.start < wanted.end && wanted.start < lost.end);
        for located in self.batches_in(&wanted) {
            let place = located.place;
            if place.offset > next {
                break;
            }
            let unit = self.read(located, &mut units, &mut raw)?;
            if let Some(lost) = unit.lost.iter().find(|lost| overlaps(lost)) {
                return Err(lost_range(lost));
            }
            let here = place.offset.max(offset)..end_of(&place).min(wanted.end);
            if !raw.is_empty() && !here.is_empty() {
                let from = (here.start - place.offset) as usize;
                let bytes = (here.end - here.start) as usize;
                let to = (here.start - offset) as usize;
                buf[to..to + bytes].copy_from_slice(&raw[from..from + bytes]);
            }
            next = next.max(here.end);
        }
        match next < wanted.end {
            true => Err(lost_range(&(next..wanted.end))),
            false => Ok(()),
        }
    }

    /// Returns the batches that overlap a range of the source, in order.
    pub(crate) fn batches_in(&self, range: &Range<u64>) -> &[Located] {
        let start = self.batches.partition_point(|it| end_of(&it.place) <= range.start);
        let end = self.batches.partition_point(|it| it.place.offset < range.end);
        &self.batches[start.min(end)..end]
    }

    fn find_manifest(&mut self) -> Option<Manifest> {
        let mut found = None;
        for output in self.outputs.iter().flatten() {
            match output.manifest(self.head.tag()) {
                Ok(Some(manifest)) => found = found.or(Some(manifest)),
                Ok(None) => {}
                Err(error) => self.troubles.push(error),
            }
        }
        // Ends are written when all outputs are durable, so one of them vouches for all.
        found
    }

    fn open_logs(&mut self) -> Result<()> {
        if self.head.layout == SplitLayout::Stripes {
            self.logs = vec![Some(Box::new(self.striped_log()?))];
            return Ok(());
        }
        let told = |number: usize| Some(self.manifest.as_ref()?.logs.get(number)?.log_bytes);
        let log = |(number, output): (usize, &Option<SplitOutput>)| {
            let output = output.as_ref()?;
            let there = output.bytes.saturating_sub(PAGES_BYTES);
            let bytes = told(number).map_or(there, |told| told.min(there));
            Some(Box::new(OwnLog { device: output.device.clone(), bytes }) as Box<dyn Log>)
        };
        self.logs = self.outputs.iter().enumerate().map(log).collect();
        Ok(())
    }

    fn striped_log(&self) -> Result<StripedLog> {
        let Head { split, outputs, parity, strip_bytes, .. } = self.head;
        let geometry = Geometry::new(outputs - parity, parity, strip_bytes)?;
        let devices = self.outputs.iter().map(|it| it.as_ref().map(|it| it.device.clone()));
        let told = self.manifest.as_ref().and_then(|it| it.logs.first()).map(|it| it.log_bytes);
        StripedLog::new(Sets::new(split, geometry), devices.collect(), told)
    }

    /// Finds all batches through the indexes, or frame by frame if the indexes cannot be read.
    fn locate(&mut self) -> Result<()> {
        let tag = self.head.tag();
        let mut batches = Vec::new();
        for (number, log) in self.logs.iter().enumerate() {
            let Some(log) = log else { continue };
            let end = self.manifest.as_ref().and_then(|manifest| manifest.logs.get(number));
            let indexed = end.map(|end| indexed(&**log, tag, end));
            let places = match indexed {
                Some(Ok(places)) => places,
                other => {
                    if let Some(Err(error)) = other {
                        self.troubles.push(error);
                    }
                    scan(&**log, tag)?.batches.into_iter().map(|(place, _)| place).collect()
                }
            };
            batches.extend(places.into_iter().map(|place| Located { log: number, place }));
        }
        let unit_bytes = self.head.unit_bytes();
        batches.retain(|it: &Located| it.place.is_of(unit_bytes));
        batches.sort_by_key(|it| (it.place.offset, it.place.raw_bytes));
        // A resumed split may have written one twice.
        batches.dedup_by(|later, one| later.place.offset < end_of(&one.place));
        self.batches = batches;
        Ok(())
    }
}

fn end_of(place: &BatchPlace) -> u64 {
    place.offset + place.raw_bytes
}

fn lost_range(lost: &Range<u64>) -> Error {
    Error::new(
        Kind::TooManyLosses,
        format!("the bytes {}..{} of the source are lost", lost.start, lost.end),
    )
}

/// Returns the head of the first output whose head is intact; all intact heads must belong to the
/// same split.
fn common_head(outputs: &[SplitOutput]) -> Result<Head> {
    let mut heads = outputs.iter().filter_map(|it| Some((it.head.as_ref().ok()?, it)));
    let Some((first, _)) = heads.next() else {
        return Err(match outputs.iter().find_map(|it| it.head.as_ref().err()) {
            Some(error) => error
                .duplicate()
                .advice("check whether these files are outputs of 'pinstripe split'"),
            None => Error::new(Kind::Usage, "no output was given"),
        });
    };
    for (head, output) in heads {
        first.belongs_with(head).map_err(|error| error.at(output.place()))?;
    }
    Ok(first.clone())
}

/// Sorts outputs into their slots by number. An output without an intact page is put into the only
/// gap, if exactly one is left.
fn by_number(
    head: &Head,
    opened: Vec<SplitOutput>,
) -> Result<(Vec<Option<SplitOutput>>, Vec<Error>)> {
    let mut outputs: Vec<Option<SplitOutput>> = (0..head.outputs).map(|_| None).collect();
    let (mut troubles, mut nameless) = (Vec::new(), Vec::new());
    for output in opened {
        if let Err(error) = &output.head {
            troubles.push(error.duplicate());
        }
        let Some(number) = output.number(head.split).filter(|it| *it < outputs.len()) else {
            nameless.push(output);
            continue;
        };
        if let Some(other) = &outputs[number] {
            return Err(Error::new(Kind::Usage, format!("output {number} was given twice"))
                .at(output.place())
                .expected(
                    format!("an output other than {}", other.place().display()),
                    "the same output",
                ));
        }
        outputs[number] = Some(output);
    }
    let gaps: Vec<usize> = (0..outputs.len()).filter(|number| outputs[*number].is_none()).collect();
    if let ([gap], 1) = (&*gaps, nameless.len()) {
        outputs[*gap] = nameless.pop();
    }
    Ok((outputs, troubles))
}
