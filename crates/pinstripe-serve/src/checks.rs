//! Checks of new stripe sets that need no key, made while the bytes arrive.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_member::record::{
    RECORD_HEAD_BYTES, RECORD_MAX_RAW_BYTES, longest, parse_clear, whole_bytes,
};
use pinstripe_member::stripe_set::{Checksum, FOOTER_BYTES, Footer, HEADER_BYTES, Header, Trailer};
use pinstripe_stripe::SetLayout;
use twox_hash::XxHash3_128;

fn refused(what: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, what)
}

/// Checks the records of a logical run: the run must be records without gaps, each with the right
/// checksums.
#[derive(Default)]
pub(crate) struct RunCheck {
    /// The bytes of the record that has not arrived completely.
    pending: Vec<u8>,
    offset: u64,
}

impl RunCheck {
    /// Takes the next bytes of the run.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] if a record is damaged.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(record) =
            next_record(&self.pending[at..]).map_err(|it| self.damaged(at, it))?
        {
            match parse_clear(record) {
                // A newer program's record: its head has the right checksum.
                Err(error) if error.kind() == Kind::Unsupported => {}
                Err(error) => return Err(self.damaged(at, error)),
                Ok(_) => {}
            }
            at += record.len();
        }
        self.pending.drain(..at);
        self.offset += at as u64;
        Ok(())
    }

    fn damaged(&self, at: usize, error: Error) -> Error {
        let offset = self.offset + at as u64;
        refused(format!("the record at byte {offset} of the run is damaged: {}", error.what()))
    }

    /// Takes the end of the run.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] if the last record is not complete.
    pub fn finish(self) -> Result<()> {
        match self.pending.is_empty() {
            true => Ok(()),
            false => Err(refused("the last record of the run is cut off")),
        }
    }
}

/// The record at the beginning of `bytes`; `None` if it has not arrived completely.
fn next_record(bytes: &[u8]) -> Result<Option<&[u8]>> {
    if bytes.len() < RECORD_HEAD_BYTES {
        return Ok(None);
    }
    let length = whole_bytes(bytes)?;
    if length > longest(RECORD_MAX_RAW_BYTES.into(), 1 << 16) {
        return Err(refused("impossible length"));
    }
    Ok(bytes.get(..length as usize))
}

/// Checks an extent of a stripe set: each strip must match its checksum in the trailer.
pub(crate) struct ExtentCheck {
    store: StoreId,
    set: SetId,
    length: u64,
    header: Header,
    rows: u64,
    last_strip_bytes: u64,
    /// The bytes of the strip that is arriving.
    strip: XxHash3_128,
    strip_left: u64,
    sums: Vec<Checksum>,
    /// Trailer and footer.
    tail: Vec<u8>,
}

impl ExtentCheck {
    /// Begins the check of an extent of this length.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if the header is not that of an extent of this store and set, or
    /// the length is not possible for its geometry.
    pub fn begin(store: StoreId, set: SetId, header: &[u8], length: u64) -> Result<Self> {
        let usage = |what: &str| Error::new(Kind::Usage, what);
        let header = Header::decode(header).map_err(|error| usage(error.what()))?;
        if header.store != store || header.set != set {
            return Err(usage("the extent belongs to another store or set"));
        }
        let (strip_bytes, geometry) = (u64::from(header.geometry.strip_bytes()), header.geometry);
        let shape = (0_u64..).map_while(|rows| {
            let frame = HEADER_BYTES as u64 + geometry.tail_bytes(rows);
            let full = rows.saturating_sub(1).checked_mul(strip_bytes)?;
            let last = length.checked_sub(frame.checked_add(full)?)?;
            Some((rows, last))
        });
        // Each further row takes more than the length of a strip.
        let (rows, last_strip_bytes) = shape
            .last()
            .filter(|(rows, last)| *last <= if *rows == 0 { 0 } else { strip_bytes })
            .ok_or_else(|| usage("an extent of this geometry cannot have this length"))?;
        let (strip, sums, tail) = (XxHash3_128::new(), Vec::new(), Vec::new());
        let strip_left = if rows == 1 { last_strip_bytes } else { strip_bytes };
        let check = ExtentCheck {
            store,
            set,
            length,
            header,
            rows,
            last_strip_bytes,
            strip,
            strip_left,
            sums,
            tail,
        };
        Ok(check.skip_empty())
    }

    /// The number of extents of the set.
    pub fn slots(&self) -> usize {
        self.header.geometry.members()
    }

    /// A last strip may have no bytes.
    fn skip_empty(mut self) -> Self {
        if self.rows > 0 && self.strip_left == 0 {
            self.end_strip();
        }
        self
    }

    fn end_strip(&mut self) {
        let strip = std::mem::replace(&mut self.strip, XxHash3_128::new());
        self.sums.push(strip.finish_128().to_le_bytes());
        let next = self.sums.len() as u64 + 1;
        let strip_bytes = u64::from(self.header.geometry.strip_bytes());
        self.strip_left = if next == self.rows { self.last_strip_bytes } else { strip_bytes };
        if next == self.rows && self.last_strip_bytes == 0 {
            self.end_strip();
        }
    }

    /// Takes the next bytes behind the header.
    pub fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && (self.sums.len() as u64) < self.rows {
            let now = (self.strip_left.min(bytes.len() as u64)) as usize;
            self.strip.write(&bytes[..now]);
            self.strip_left -= now as u64;
            bytes = &bytes[now..];
            if self.strip_left == 0 {
                self.end_strip();
            }
        }
        self.tail.extend_from_slice(bytes);
    }

    /// Compares the strips with the trailer.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] if the trailer is damaged, is that of another set, or has
    /// another checksum of a strip.
    pub fn finish(self) -> Result<()> {
        let Header { geometry, slot, kind, .. } = self.header;
        let slot = usize::from(slot);
        let (trailer, footer) = self
            .tail
            .split_last_chunk::<FOOTER_BYTES>()
            .ok_or_else(|| refused("the extent has no footer"))?;
        let footer = Footer::decode(footer).map_err(|error| refused(error.what()))?;
        let trailer = Trailer::decode(trailer, &footer).map_err(|error| refused(error.what()))?;
        let is_its = trailer.store == self.store && trailer.set == self.set;
        let layout = SetLayout::new(geometry, self.set, trailer.logical_bytes)?;
        let fits = is_its
            && (trailer.kind, trailer.geometry) == (kind, geometry)
            && slot < geometry.members()
            && layout.rows() == self.rows
            && layout.extent_bytes(slot) == self.length;
        if !fits {
            return Err(refused("the trailer of the extent belongs to another extent"));
        }
        let is_damaged = |row: &u64| *trailer.checksum(*row, slot) != self.sums[*row as usize];
        match (0..self.rows).find(is_damaged) {
            None => Ok(()),
            Some(row) => Err(refused(format!(
                "the strip of row {row} does not match its checksum in the trailer"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use pinstripe_member::record::{RecordKind, write_head};
    use pinstripe_member::stripe_set::SetKind;
    use pinstripe_stripe::{Geometry, SetWriter, StripSink};

    use super::*;

    const STORE: StoreId = StoreId([1; 16]);
    const SET: SetId = SetId([2; 16]);

    struct Extents(Vec<Vec<u8>>);

    impl StripSink for Extents {
        fn append(&mut self, slot: usize, bytes: Vec<u8>) -> Result<()> {
            self.0[slot].extend(bytes);
            Ok(())
        }
    }

    fn extents(bytes: usize) -> Vec<Vec<u8>> {
        let geometry = Geometry::new(2, 1, 4096).unwrap();
        let mut sink = Extents(vec![Vec::new(); 3]);
        let mut writer = SetWriter::new(STORE, SET, SetKind::Pack, geometry);
        let run: Vec<u8> = (0..bytes).map(|at| (at * 7) as u8).collect();
        writer.append(&run, &mut sink).unwrap();
        writer.finish(0..0, &mut sink).unwrap();
        sink.0
    }

    fn check(extent: &[u8]) -> Result<()> {
        let (header, rest) = extent.split_at(HEADER_BYTES.min(extent.len()));
        let mut check = ExtentCheck::begin(STORE, SET, header, extent.len() as u64)?;
        rest.chunks(1000).for_each(|piece| check.append(piece));
        check.finish()
    }

    #[test]
    fn each_extent_of_a_set_of_any_length_is_sound() {
        for bytes in [0, 1, 64, 100, 4096, 8191, 8192, 8193, 12_288, 50_000, 81_920] {
            for (slot, extent) in extents(bytes).iter().enumerate() {
                check(extent).unwrap_or_else(|error| panic!("{bytes} bytes, slot {slot}: {error}"));
            }
        }
    }

    #[test]
    fn a_changed_byte_or_another_length_is_refused() {
        let extent = &extents(20_000)[1];
        for at in (0..extent.len()).step_by(97).chain(extent.len() - 170..extent.len()) {
            let mut changed = extent.clone();
            changed[at] ^= 4;
            assert!(check(&changed).is_err(), "{at}");
        }
        for cut in (0..extent.len()).step_by(61) {
            assert!(check(&extent[..cut]).is_err(), "{cut}");
        }
        assert!(check(&[&extent[..], &[0]].concat()).is_err());
        let other = ExtentCheck::begin(STORE, SetId([3; 16]), &extent[..HEADER_BYTES], 9);
        assert!(other.is_err());
    }

    fn record(body: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        write_head(&mut record, RecordKind::PackIndex, 0, &[], body.len() as u32, body);
        record.extend_from_slice(body);
        record
    }

    #[test]
    fn a_run_of_records_is_sound_and_a_changed_byte_is_found() {
        let run = [record(b"one"), record(&[7; 3000]), record(b"")].concat();
        let check = |run: &[u8], step: usize| {
            let mut check = RunCheck::default();
            run.chunks(step).try_for_each(|piece| check.append(piece))?;
            check.finish()
        };
        for step in [1, 64, 65, 1000, 10_000] {
            check(&run, step).unwrap();
        }
        // Bytes 56..64 of a head are zero, and the version may be a newer one.
        for at in 0..run.len() {
            let mut changed = run.clone();
            changed[at] ^= 1;
            assert!(check(&changed, 100).is_err(), "{at}");
        }
        for cut in (1..run.len()).filter(|cut| ![67, 67 + 3064].contains(cut)) {
            assert!(check(&run[..cut], 100).is_err(), "{cut}");
        }
    }
}
