//! The reader under every decoder: whatever is taken in whatever order stays within the bytes,
//! and each varint has one form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_base::wire::{Reader, Writer};

fuzz_target!(|input: (Vec<u8>, &[u8])| {
    let (steps, bytes) = input;
    let mut reader = Reader::new(bytes, "input");
    for step in steps {
        let at = reader.position();
        let mut again = Vec::new();
        let mut writer = Writer::new(&mut again);
        let taken = match step % 8 {
            0 => reader.u8().map(|value| writer.u8(value)),
            1 => reader.u32().map(|value| writer.u32(value)),
            2 => reader.i64().map(|value| writer.i64(value)),
            3 => reader.varint().map(|value| writer.varint(value)),
            4 => reader.signed_varint().map(|value| writer.signed_varint(value)),
            5 => reader.bytes().map(|value| writer.bytes(value)),
            6 => reader.take(usize::from(step)).map(|value| writer.raw(value)),
            _ => reader.count(usize::from(step)).map(|value| writer.varint(value as u64)),
        }
        .is_ok();
        assert!(reader.position() + reader.remaining() == bytes.len());
        assert!(!taken || again == bytes[at..reader.position()]);
    }
});
