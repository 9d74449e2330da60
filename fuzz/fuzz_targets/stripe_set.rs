//! Header, trailer and footer of a stripe set: any bytes, with or without sound checksums. What
//! is read is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_member::stripe_set::{
    CHECKSUM_BYTES, FOOTER_BYTES, Footer, HEADER_BYTES, Header, Trailer, checksum,
};

/// The bytes behind `magic`, cut or filled to `len` with a sound checksum at their end.
fn block(magic: &[u8; 8], bytes: &[u8], len: usize) -> Vec<u8> {
    let mut block = [magic, bytes].concat();
    block.resize(len - CHECKSUM_BYTES, 0);
    block.extend_from_slice(&checksum(&block));
    block
}

fuzz_target!(|input: (u8, &[u8])| {
    let (what, bytes) = input;
    match what % 4 {
        0 => {
            let header = block(b"pstrSETh", bytes, HEADER_BYTES);
            if let Ok(decoded) = Header::decode(&header) {
                assert_eq!(decoded.encode(), header);
            }
        }
        1 => {
            let block = block(b"pstrSETf", bytes, FOOTER_BYTES);
            let _ = Footer::decode(&block);
        }
        2 => {
            let trailer = [b"pstrSETt", bytes].concat();
            let set_prefix = bytes.get(24..32).map_or([0; 8], |b| b.try_into().unwrap());
            let footer = Footer {
                trailer_bytes: trailer.len() as u64,
                checksum: checksum(&trailer),
                set_prefix,
            };
            if let Ok(decoded) = Trailer::decode(&trailer, &footer) {
                let again = decoded.encode();
                assert_eq!(again[..trailer.len()], trailer);
                let tail = &again[trailer.len()..];
                assert_eq!(Footer::decode(tail).ok(), Some(footer));
            }
        }
        _ => {
            let _ = (Header::decode(bytes), Footer::decode(bytes));
        }
    }
});
