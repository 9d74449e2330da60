//! The index of a pack: any bytes give an index or an error, and what is read is written again
//! as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_member::pack_index::PackIndex;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(index) = PackIndex::decode(bytes) {
        assert_eq!(index.encode(), bytes);
    }
});
