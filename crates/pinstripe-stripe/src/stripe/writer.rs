//! Distributes a byte run over slots as it arrives, with one row in memory at a time.
//!
//! Invariants: a strip's buffer goes to the sink as it was filled, without another copy. Each slot
//! gets header, strips and trailer in exactly this order. The extents do not depend on how the
//! bytes were divided into calls of `append`.
//!
//! Not in this module: I/O. A [`StripSink`] receives the buffers.

use std::ops::Range;

use pinstripe_kernel::parity;

use super::geometry::{Permutation, RowShape, SetLayout};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_member::stripe_set::{
    Checksum, Geometry, HEADER_BYTES, Header, LOGICAL_BYTES_MAX, SetKind, Trailer, checksum,
};

/// Receives the parts of the slots' extents.
pub trait StripSink {
    /// Takes the next part of a slot's extent; parts of one slot arrive in order.
    ///
    /// # Errors
    /// Fails with any error that prevents the set from being finished: the writer then stops with
    /// the same error. A sink that can continue without a member returns `Ok`.
    fn append(&mut self, slot: usize, bytes: Vec<u8>) -> Result<()>;

    /// Returns an empty buffer with room for `capacity` bytes; a sink that recycles buffers returns
    /// an old one.
    fn buffer(&mut self, capacity: usize) -> Vec<u8> {
        Vec::with_capacity(capacity)
    }

    /// Returns the receiver of the logical run, if a server lays the strips of this set; the sink
    /// gets no strips then. The answer is the same for all parts of one set.
    fn run(&mut self) -> Option<&mut dyn RunSink> {
        None
    }
}

/// Receives the logical run of a set whose strips a server lays.
pub trait RunSink {
    /// Takes the next bytes of the run.
    fn append(&mut self, bytes: &[u8]);

    /// Takes the range of the record index, at the end of the run.
    fn finish(&mut self, index: Range<u64>);
}

/// The lengths of a finished set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of the logical run.
    pub logical_bytes: u64,
    /// Length of each slot's extent in bytes, by slot number.
    pub extent_bytes: Vec<u64>,
}

/// Makes the extents of one stripe set. After an error the set is unusable: drop the writer and
/// leave the extents unsealed.
#[derive(Debug)]
pub struct SetWriter {
    store: StoreId,
    set: SetId,
    kind: SetKind,
    geometry: Geometry,
    /// The data strips of the row being filled; all but the last are full.
    strips: Vec<Vec<u8>>,
    /// The offset in the logical run of the row being filled.
    row_start: u64,
    position: u64,
    checksums: Vec<Checksum>,
    extent_bytes: Vec<u64>,
}

impl SetWriter {
    /// Makes a writer for a new set. Nothing is passed to a sink before the first row is full or
    /// the set is finished.
    pub fn new(store: StoreId, set: SetId, kind: SetKind, geometry: Geometry) -> Self {
        SetWriter {
            store,
            set,
            kind,
            geometry,
            strips: Vec::with_capacity(geometry.data()),
            row_start: 0,
            position: 0,
            checksums: Vec::new(),
            extent_bytes: vec![0; geometry.members()],
        }
    }

    /// The number of logical bytes so far, which is the offset of the next append.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Appends bytes to the run.
    ///
    /// # Errors
    /// Fails with the errors of the sink, or with [`Kind::Usage`] beyond 64 PiB.
    pub fn append(&mut self, mut bytes: &[u8], sink: &mut dyn StripSink) -> Result<()> {
        if bytes.len() as u64 > LOGICAL_BYTES_MAX - self.position {
            return Err(Error::new(Kind::Usage, "a stripe set can contain at most 64 PiB"));
        }
        if let Some(run) = sink.run() {
            run.append(bytes);
            self.position += bytes.len() as u64;
            return Ok(());
        }
        let strip_bytes = self.geometry.strip_bytes() as usize;
        while !bytes.is_empty() {
            if self.strips.last().is_none_or(|strip| strip.len() == strip_bytes) {
                let mut strip = sink.buffer(strip_bytes);
                strip.clear();
                self.strips.push(strip);
            }
            let strip = self.strips.last_mut().expect("one was pushed if there was none");
            let room = strip_bytes - strip.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            strip.extend_from_slice(now);
            bytes = later;
            self.position += now.len() as u64;
            debug_assert!(self.strips.len() <= self.geometry.data(), "a row has its data strips");
            if self.position - self.row_start == self.geometry.row_bytes() {
                let strips = std::mem::take(&mut self.strips);
                self.write_row(strips, sink)?;
            }
        }
        Ok(())
    }

    /// Ends the run. `index` is the range of the record index in the run; empty if there is no
    /// index.
    ///
    /// # Errors
    /// Fails with the errors of the sink, or with [`Kind::Usage`] when the index is not within the
    /// run.
    pub fn finish(mut self, index: Range<u64>, sink: &mut dyn StripSink) -> Result<Summary> {
        if index.start > index.end || index.end > self.position {
            return Err(Error::new(
                Kind::Usage,
                "the index of the records is outside of the stripe set",
            ));
        }
        let index = if index.is_empty() { 0..0 } else { index };
        if let Some(run) = sink.run() {
            run.finish(index);
            let layout = SetLayout::new(self.geometry, self.set, self.position)?;
            let extent_bytes = (0..self.geometry.members()).map(|it| layout.extent_bytes(it));
            let extent_bytes = extent_bytes.collect();
            return Ok(Summary { logical_bytes: self.position, extent_bytes });
        }
        if !self.strips.is_empty() {
            let strips = self.cut_short_row(sink);
            self.write_row(strips, sink)?;
        }
        // An empty set has no row that would have written them.
        if self.position == 0 {
            self.write_headers(sink)?;
        }
        let trailer = Trailer {
            store: self.store,
            set: self.set,
            kind: self.kind,
            geometry: self.geometry,
            logical_bytes: self.position,
            index,
            checksums: std::mem::take(&mut self.checksums),
        };
        debug_assert!(self.strips.is_empty(), "every row was written");
        let tail = trailer.encode();
        for slot in 0..self.geometry.members() {
            self.send(slot, tail.clone(), sink)?;
        }
        Ok(Summary { logical_bytes: self.position, extent_bytes: self.extent_bytes })
    }

    /// Redistributes the bytes of the unfinished row: a short row spreads them over all strips,
    /// while a row is first filled strip after strip.
    fn cut_short_row(&mut self, sink: &mut dyn StripSink) -> Vec<Vec<u8>> {
        let filled = std::mem::take(&mut self.strips);
        let shape = self.row_shape();
        let mut strips = Vec::with_capacity(self.geometry.data());
        for position in 0..self.geometry.data() {
            let logical = shape.strip_logical(position);
            let (mut at, end) = (logical.start - self.row_start, logical.end - self.row_start);
            let mut strip = sink.buffer((end - at) as usize);
            strip.clear();
            while at < end {
                let source = &filled[(at / u64::from(self.geometry.strip_bytes())) as usize];
                let from = (at % u64::from(self.geometry.strip_bytes())) as usize;
                let len = (source.len() - from).min((end - at) as usize);
                strip.extend_from_slice(&source[from..from + len]);
                at += len as u64;
            }
            strips.push(strip);
        }
        strips
    }

    fn row_shape(&self) -> RowShape {
        RowShape::new(self.geometry, self.row_start, self.position - self.row_start)
    }

    /// Computes parity and checksums of a row and passes it to the sink, preceded by the headers if
    /// it is the first row.
    fn write_row(&mut self, mut strips: Vec<Vec<u8>>, sink: &mut dyn StripSink) -> Result<()> {
        if self.row_start == 0 {
            self.write_headers(sink)?;
        }
        let shape = self.row_shape();
        if self.geometry.parity() > 0 {
            let mut parities: Vec<Vec<u8>> = (0..self.geometry.parity())
                .map(|_| {
                    let mut strip = sink.buffer(shape.strip_bytes as usize);
                    strip.resize(shape.strip_bytes as usize, 0);
                    strip
                })
                .collect();
            let data: Vec<&[u8]> = strips.iter().map(Vec::as_slice).collect();
            let mut parity: Vec<&mut [u8]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
            parity::encode(&data, &mut parity);
            strips.append(&mut parities);
        }

        let slots = self.geometry.members();
        let row = self.row_start / self.geometry.row_bytes();
        let permutation = Permutation::new(self.set, row, slots);
        // The trailer lists checksums by slot; strips come by position.
        let first = self.checksums.len();
        self.checksums.resize(first + slots, Checksum::default());
        for (strip, slot) in strips.into_iter().zip(permutation.slots()) {
            self.checksums[first + slot] = checksum(&strip);
            self.send(slot, strip, sink)?;
        }
        let rows = self.checksums.len() / slots;
        debug_assert_eq!(rows as u64, row + 1, "the trailer has a checksum of each strip");
        self.row_start = self.position;
        Ok(())
    }

    fn write_headers(&mut self, sink: &mut dyn StripSink) -> Result<()> {
        for slot in 0..self.geometry.members() {
            let header = Header {
                store: self.store,
                set: self.set,
                kind: self.kind,
                geometry: self.geometry,
                slot: slot as u8,
            };
            let bytes = header.encode();
            debug_assert_eq!(bytes.len(), HEADER_BYTES);
            self.send(slot, bytes, sink)?;
        }
        Ok(())
    }

    fn send(&mut self, slot: usize, bytes: Vec<u8>, sink: &mut dyn StripSink) -> Result<()> {
        self.extent_bytes[slot] += bytes.len() as u64;
        if bytes.is_empty() { Ok(()) } else { sink.append(slot, bytes) }
    }
}
