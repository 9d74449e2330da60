//! Records: any bytes, and any head and table under sound checksums. What is read is written
//! again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_base::checksum::checksum;
use pinstripe_member::record::{CHUNK_ROW_BYTES, RECORD_HEAD_BYTES, parse, write_head};

/// Makes every checksum right, so that what they guard is looked at.
fn seal(bytes: &mut [u8]) {
    let Some(&count) = bytes.get(16) else { return };
    let stored_at = RECORD_HEAD_BYTES + usize::from(count) * CHUNK_ROW_BYTES;
    if bytes.len() < stored_at {
        return;
    }
    let stored_bytes = (bytes.len() - stored_at) as u32;
    bytes[..4].copy_from_slice(b"psRC");
    bytes[12..16].copy_from_slice(&stored_bytes.to_le_bytes());
    bytes[16..20].copy_from_slice(&u32::from(count).to_le_bytes());
    let sum = checksum(&bytes[stored_at..]);
    bytes[24..40].copy_from_slice(&sum);
    let sum = checksum(&[&bytes[..40], &bytes[RECORD_HEAD_BYTES..stored_at]].concat());
    bytes[40..56].copy_from_slice(&sum);
}

fuzz_target!(|input: (bool, &[u8])| {
    let mut bytes = input.1.to_vec();
    if input.0 {
        seal(&mut bytes);
    }
    if let Ok((head, stored)) = parse(&bytes) {
        let chunk_bytes: u64 = head.chunks.iter().map(|chunk| u64::from(chunk.raw_bytes)).sum();
        assert!(head.chunks.is_empty() || chunk_bytes == u64::from(head.raw_bytes));
        let mut again = Vec::new();
        write_head(&mut again, head.kind, head.codec, &head.chunks, head.raw_bytes, stored);
        again.extend_from_slice(stored);
        assert!(bytes.starts_with(&again));
    }
});
