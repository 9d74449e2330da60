//! Pages of entries: any bytes give entries or an error, and what is read means the same when it
//! is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_member::entry::{PageWriter, decode_page};

fuzz_target!(|bytes: &[u8]| {
    let page = [b"P", bytes].concat();
    if let Ok(entries) = decode_page(&page) {
        let mut writer = PageWriter::default();
        entries.iter().for_each(|entry| writer.push(entry));
        let (again, _, count) = writer.take();
        assert_eq!(count, entries.len() as u64);
        assert_eq!(decode_page(&again).ok(), Some(entries));
    }
});
