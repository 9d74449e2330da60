//! Blocks in Snappy's format against libsnappy.

use std::ffi::{c_char, c_int};

use pinstripe_stripe::{Codec, Decoder};

use crate::blocks::each_of_a_split;

#[link(name = "snappy")]
unsafe extern "C" {
    fn snappy_max_compressed_length(raw_bytes: usize) -> usize;
    fn snappy_compress(
        from: *const c_char,
        from_bytes: usize,
        to: *mut c_char,
        to_bytes: *mut usize,
    ) -> c_int;
    fn snappy_uncompress(
        from: *const c_char,
        from_bytes: usize,
        to: *mut c_char,
        to_bytes: *mut usize,
    ) -> c_int;
}

/// The output of libsnappy for `raw`.
fn their_stream(raw: &[u8]) -> Vec<u8> {
    // SAFETY: it only computes.
    let mut out_bytes = unsafe { snappy_max_compressed_length(raw.len()) };
    let mut out = vec![0; out_bytes];
    let (from, to) = (raw.as_ptr().cast(), out.as_mut_ptr().cast());
    // SAFETY: both lengths are those of their buffers, the second as long as libsnappy asks for.
    let code = unsafe { snappy_compress(from, raw.len(), to, &mut out_bytes) };
    assert_eq!(code, 0);
    out.truncate(out_bytes);
    out
}

/// The bytes that libsnappy decodes `stored` to, if it accepts it and it fits `room` bytes.
fn their_bytes(stored: &[u8], room: usize) -> Option<Vec<u8>> {
    let (mut out, mut out_bytes) = (vec![0; room], room);
    let (from, to) = (stored.as_ptr().cast(), out.as_mut_ptr().cast());
    // SAFETY: both lengths are those of their buffers, which live through the call.
    let code = unsafe { snappy_uncompress(from, stored.len(), to, &mut out_bytes) };
    out.truncate(out_bytes);
    (code == 0).then_some(out)
}

#[test]
fn libsnappy_decodes_the_blocks_of_a_split_and_we_decode_its() {
    let (mut decoder, mut ours) = (Decoder::default(), Vec::new());
    for block_bytes in [4 << 10, 64 << 10, 4 << 20] {
        each_of_a_split(Codec::Snappy, block_bytes, |stored, raw| {
            assert!(their_bytes(stored, raw.len()).as_deref() == Some(raw), "{block_bytes}");
            let theirs = their_stream(raw);
            decoder.decode(Codec::Snappy.id(), &theirs, raw.len(), &mut ours).unwrap();
            assert!(ours == raw, "{block_bytes}");
        });
    }
}
