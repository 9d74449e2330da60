//! Results inside a page: JSON in a script element that browsers do not run, so that the page can
//! be read back.
//!
//! Invariant: the element contains no `<`, so nothing in it can end the element.

use std::io::{self, Write};

use pinstripe_base::error::{Error, Kind, Result};

use super::{Results, Run, Sample, file};

const BEGIN: &str = "<script type=\"application/json\" class=\"pinstripe-lab-results\">";
const END: &str = "</script>";

/// How much was left out of results so that they fit into a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thinned {
    /// Nothing.
    Whole,
    /// Single samples and histogram buckets are left out: the course of a run is shown in coarser
    /// steps.
    Coarse,
    /// All samples and some buckets of histograms are left out.
    NoSamples,
    /// All samples and all histograms are left out.
    NoLatency,
    /// All.
    Nothing,
}

impl Thinned {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Thinned::Whole => "This page contains the complete data of its results.",
            Thinned::Coarse => {
                "This page contains the data of its results; to keep the page small, samples over \
                 time and latencies of requests are stored in coarser steps."
            }
            Thinned::NoSamples => {
                "This page contains the data of its results; to keep the page small, it has no \
                 samples over time, and stores latencies of requests in coarser steps."
            }
            Thinned::NoLatency => {
                "This page contains the values of all runs; to keep the page small, it has no \
                 samples over time and no latencies of requests."
            }
            Thinned::Nothing => {
                "The data of the results is too large for this page: keep the file of results."
            }
        }
    }
}

/// Encodes results as elements of a page that together take at most `room` bytes; as much as
/// necessary is left out.
pub(crate) fn embed(all: &[Results], room: usize) -> (String, Thinned) {
    let tries: [(Thinned, usize, u32); 8] = [
        (Thinned::Whole, usize::MAX, u32::MAX),
        (Thinned::Coarse, 100, 8),
        (Thinned::Coarse, 40, 4),
        (Thinned::Coarse, 20, 2),
        (Thinned::Coarse, 10, 2),
        (Thinned::NoSamples, 0, 2),
        (Thinned::NoSamples, 0, 1),
        (Thinned::NoLatency, 0, 0),
    ];
    for (thinned, samples, buckets) in tries {
        let mut text = String::new();
        let has_room = all.iter().all(|results| {
            let left = room.saturating_sub(text.len());
            let element = element(&thin(results, thinned, samples, buckets), left);
            element.map(|it| text += &it).is_some()
        });
        if has_room {
            return (text, thinned);
        }
    }
    (String::new(), Thinned::Nothing)
}

/// Encodes results as an element of at most `room` bytes; `None` if it would be longer.
fn element(results: &Results, room: usize) -> Option<String> {
    // Results that are much too long are not written to their end.
    let mut bytes = Bounded { bytes: Vec::new(), room };
    serde_json::to_writer(&mut bytes, results).ok()?;
    let text = String::from_utf8(bytes.bytes).expect("JSON is UTF-8");
    // In JSON this character occurs in strings only.
    let element = format!("{BEGIN}{}{END}\n", text.replace('<', "\\u003c"));
    debug_assert!(
        !element[BEGIN.len()..element.len() - END.len() - 1].contains('<'),
        "nothing ends it"
    );
    (element.len() <= room).then_some(element)
}

/// A buffer that refuses bytes beyond `room`.
struct Bounded {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn thin(results: &Results, thinned: Thinned, samples: usize, buckets: u32) -> Results {
    let mut results = results.clone();
    if thinned == Thinned::Whole {
        return results;
    }
    let runs = results.variants.iter_mut().flat_map(|it| &mut it.runs);
    runs.for_each(|run| thin_run(run, samples, buckets));
    let note = "the results were read from a report page, so samples over time and latencies of \
                requests are coarser or missing";
    if !results.notes.iter().any(|it| it == note) {
        results.notes.push(note.to_owned());
    }
    results
}

fn thin_run(run: &mut Run, samples: usize, buckets: u32) {
    run.samples = Sample::coarser(&run.samples, samples);
    run.samples.iter_mut().for_each(round);
    match buckets {
        0 => run.measured.latency.clear(),
        _ => run.measured.latency.values_mut().for_each(|times| *times = times.coarser(buckets)),
    }
    let parts = run.parts.iter_mut().filter_map(|it| it.run.as_mut());
    parts.for_each(|part| thin_run(part, samples, buckets));
}

/// Rounds the values of a sample to three decimals; more digits carry no information.
fn round(sample: &mut Sample) {
    let Sample { at_s, mb_per_s, cpu_pressure, io_pressure, memory_pressure, .. } = sample;
    let pressures = [cpu_pressure, io_pressure, memory_pressure].into_iter().flatten();
    [at_s, mb_per_s].into_iter().chain(pressures).for_each(|it| *it = (*it * 1e3).round() / 1e3);
}

/// Whether a file is a page with results.
pub(super) fn is_page(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"<")
}

/// Reads all results that a page contains.
///
/// # Errors
/// [`Kind::Corrupt`] if the page contains no results, or is cut off; otherwise the errors of
/// damaged results.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Results>> {
    let text = String::from_utf8_lossy(bytes);
    let elements = text.split(BEGIN).skip(1).map(|rest| {
        let inner = rest.split_once(END).map(|(inner, _)| inner);
        let inner =
            inner.ok_or_else(|| Error::new(Kind::Corrupt, "the report page is incomplete"))?;
        file::parse(inner.as_bytes())
    });
    let all = elements.collect::<Result<Vec<Results>>>()?;
    match all.is_empty() {
        true => Err(Error::new(Kind::Corrupt, "this page contains no results").advice(
            "a page of 'pinstripe lab report' contains its results, unless the page is incomplete \
             or the results were too large for it",
        )),
        false => Ok(all),
    }
}
