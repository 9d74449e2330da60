//! Every codec, there and back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_stripe::{Codec, Decoder, Encoder};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (codec, times, bytes) = input;
    // Content that repeats is what the codecs are for.
    let raw = bytes.repeat(usize::from(times % 64) + 1);
    let codecs = [
        Codec::Raw,
        Codec::Zstd { level: 1 },
        Codec::Zstd { level: -5 },
        Codec::Zstd { level: 6 },
        Codec::Lz4,
        Codec::Snappy,
        Codec::Lzo,
    ];
    let codec = codecs[usize::from(codec) % codecs.len()];
    let (mut out, mut back) = (Vec::new(), Vec::new());
    let mut encoder = Encoder::new(codec).expect("the levels are allowed");
    let encoded = encoder.encode(&raw, &mut out).expect("short records can be encoded");
    let stored = encoded.stored(&raw, &out);
    assert!(stored.len() <= raw.len());
    Decoder::new().decode(encoded.codec_id(), stored, raw.len(), &mut back).expect("it decodes");
    assert!(back == raw);
});
