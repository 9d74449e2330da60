//! Nodes of a tree: any bytes give children in order or an error, and what is read is written
//! again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_member::tree::{decode_node, encode_node};

fuzz_target!(|bytes: &[u8]| {
    let node = [b"N", bytes].concat();
    if let Ok(children) = decode_node(&node) {
        assert_eq!(encode_node(&children), node);
    }
});
