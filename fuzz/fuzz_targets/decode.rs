//! Every codec's decoder on any bytes: the promised length or an error, and the same each time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_stripe::Decoder;

/// Longest raw length asked for: decoders fill it, and time is short.
const RAW_BYTES_MOST: u32 = 1 << 20;

fuzz_target!(|input: (u8, u32, &[u8])| {
    let (codec, raw_bytes, stored) = input;
    let (codec, raw_bytes) = (codec % 6, (raw_bytes % RAW_BYTES_MOST) as usize);
    let (mut first, mut second) = (Vec::new(), vec![0xaa; 100]);
    let mut decoder = Decoder::new();
    let done = decoder.decode(codec, stored, raw_bytes, &mut first);
    assert_eq!(first.len(), if done.is_ok() { raw_bytes } else { 0 });
    let again = decoder.decode(codec, stored, raw_bytes, &mut second);
    assert_eq!((done.is_ok(), &first), (again.is_ok(), &second));
});
