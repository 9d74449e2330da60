//! Lists of chunks: any bytes give rows or an error, and what is read is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_base::wire::{Reader, Writer};
use pinstripe_member::entry::{read_chunks, write_chunks};

fuzz_target!(|bytes: &[u8]| {
    let mut reader = Reader::new(bytes, "input");
    if let Ok(rows) = read_chunks(&mut reader) {
        let mut again = Vec::new();
        write_chunks(&mut Writer::new(&mut again), &rows);
        assert_eq!(again, bytes[..reader.position()]);
    }
});
