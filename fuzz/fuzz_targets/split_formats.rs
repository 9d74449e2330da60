//! The content of a split's outputs: pages, frames, batches, indexes, manifests. Any bytes, and
//! any body in a sound frame. What is read is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_member::envelope::{self, Object};
use pinstripe_member::stripe_set::checksum;
use pinstripe_split::{
    BatchExtent, FRAME_BYTES, Frame, LogIndex, Manifest, OutputEnd, OutputHead, PAGE_BYTES, Tag,
};

/// A page with this body, cut or filled up.
fn page(object: Object, bytes: &[u8]) -> Vec<u8> {
    let envelope_bytes = envelope::close(object, &[]).len();
    let mut body = bytes.to_vec();
    body.resize(PAGE_BYTES - envelope_bytes, 0);
    envelope::close(object, &body)
}

/// A head of these bytes with magic and checksum made right, and its tag.
fn frame(bytes: &[u8]) -> ([u8; FRAME_BYTES], Tag) {
    let mut head = [0; FRAME_BYTES];
    let len = bytes.len().min(FRAME_BYTES);
    head[..len].copy_from_slice(&bytes[..len]);
    head[..5].copy_from_slice(b"psFR\x01");
    let sum = checksum(&head[..56]);
    head[56..].copy_from_slice(&sum[..8]);
    (head, *head[32..].first_chunk().expect("it is longer"))
}

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, bytes) = input;
    match kind % 7 {
        0 => {
            let page = page(Object::SplitHead, bytes);
            if let Ok(head) = OutputHead::decode(&page) {
                assert!(head.encode() == page);
                assert!(head.belongs_with(&head).is_ok());
            }
        }
        1 => {
            let page = page(Object::SplitEnd, bytes);
            if let Ok(end) = OutputEnd::decode(&page) {
                assert!(end.is_some_and(|end| end.encode() == page));
            }
        }
        2 => {
            let (head, tag) = frame(bytes);
            if let Ok(frame) = Frame::decode(&head, tag) {
                assert_eq!(frame.encode(tag), head);
                let _ = frame.verify(bytes);
            }
            assert!(Frame::decode(&head, tag.map(|byte| !byte)).is_err());
        }
        3 => {
            if let Ok(batch) = BatchExtent::decode(bytes) {
                assert_eq!(batch.encode(), bytes);
            }
        }
        4 => {
            if let Ok(index) = LogIndex::decode(bytes) {
                assert_eq!(index.encode(), bytes);
            }
        }
        5 => {
            if let Ok(manifest) = Manifest::decode(bytes) {
                assert_eq!(manifest.encode(), bytes);
            }
        }
        _ => {
            drop((OutputHead::decode(bytes), OutputEnd::decode(bytes)));
            if let Some(at) = Frame::find(bytes) {
                assert!(bytes[at..].starts_with(b"psFR"));
            }
        }
    }
});
