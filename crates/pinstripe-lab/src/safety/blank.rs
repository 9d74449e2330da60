//! Whether a device is blank as far as samples can show: all bytes that are read are zero.
//!
//! Only this check finds formats that are in no table, and data in the middle of a device without a
//! header.

use pinstripe_base::error::Result;
use pinstripe_io::device::Device;

/// The number of bytes that are read completely at each end.
const END_BYTES: u64 = 1 << 20;
/// The number of samples between the two ends.
const SAMPLES: u64 = 64;
/// The length of a sample in bytes.
const SAMPLE_BYTES: u64 = 4 << 10;

/// The offset of the first nonzero byte among the bytes that are read; `None` if all are zero.
///
/// # Errors
/// The errors of the device.
pub(super) fn written_at(device: &dyn Device, len: u64) -> Result<Option<u64>> {
    let mut buffer = vec![0; END_BYTES as usize];
    for (at, bytes) in places(len) {
        let piece = &mut buffer[..bytes as usize];
        device.read_at(at, piece)?;
        if let Some(found) = piece.iter().position(|it| *it != 0) {
            return Ok(Some(at + found as u64));
        }
    }
    Ok(None)
}

/// The offsets and lengths that are read, in order: both ends, and samples at equal distances.
fn places(len: u64) -> Vec<(u64, u64)> {
    let mut places = vec![(0, len.min(END_BYTES))];
    let last = len.saturating_sub(END_BYTES).max(len.min(END_BYTES));
    let between = last.saturating_sub(END_BYTES);
    if between > 0 {
        let step = (between / SAMPLES).max(SAMPLE_BYTES);
        let samples = (0..SAMPLES).map(|number| END_BYTES + number * step);
        places.extend(
            samples.take_while(|at| *at < last).map(|at| (at, SAMPLE_BYTES.min(last - at))),
        );
    }
    places.extend((last < len).then_some((last, len - last)));
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_io::device::MemoryDevice;

    #[test]
    fn both_ends_are_read_whole_and_the_rest_in_samples() {
        const GIB: u64 = 1 << 30;
        for len in [0, 1, 512, 1 << 20, (1 << 20) + 512, 2 << 20, 5 << 20, GIB, 3 * GIB + 512] {
            let places = places(len);
            let mut until = 0;
            for (at, bytes) in &places {
                assert!(*at >= until && at + bytes <= len, "{len}: {places:?}");
                until = at + bytes;
            }
            assert_eq!(until, len, "the end is read: {len}");
            assert_eq!(places[0], (0, len.min(END_BYTES)));
        }
        let far = places(GIB);
        assert_eq!(far.len() as u64, SAMPLES + 2);
        let gap = far.windows(2).map(|it| it[1].0 - it[0].0).max();
        assert!(gap.is_some_and(|it| it <= GIB / SAMPLES), "{gap:?}");
    }

    #[test]
    fn the_first_byte_that_is_not_zero_is_told() {
        let device = MemoryDevice::new("memory");
        let len = 64 << 20;
        device.set_len(len).unwrap();
        assert_eq!(written_at(&device, len).unwrap(), None);
        // Random bytes in the middle only, as long as the distance of two samples.
        let middle = vec![7; 1 << 20];
        device.write_at(30 << 20, &middle).unwrap();
        let found = written_at(&device, len).unwrap().unwrap();
        assert!((30 << 20..31 << 20).contains(&found), "{found}");
        device.write_at(len - 1, &[1]).unwrap();
        device.write_at(30 << 20, &vec![0; 1 << 20]).unwrap();
        assert_eq!(written_at(&device, len).unwrap(), Some(len - 1));
    }
}
