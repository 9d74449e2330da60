//! Key rings, key slots, removed ones and what stands inside a ring's seal: any bytes, and any body
//! in a sound frame. What is read is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_member::envelope::{self, Object};
use pinstripe_member::key_ring::{KeyRing, KeySlot};
use pinstripe_member::keys::Keys;
use pinstripe_member::removed_slot::RemovedSlot;

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, bytes) = input;
    match kind % 6 {
        0 => drop((KeySlot::decode(bytes), KeyRing::decode(bytes))),
        1 => {
            let framed = envelope::close(Object::KeySlot, bytes);
            if let Ok(slot) = KeySlot::decode(&framed) {
                assert_eq!(slot.encode(), framed);
            }
        }
        2 => {
            let framed = envelope::close(Object::Keys, bytes);
            if let Ok(ring) = KeyRing::decode(&framed) {
                assert_eq!(ring.encode(), framed);
            }
        }
        3 => {
            let framed = envelope::close(Object::RemovedSlot, bytes);
            if let Ok(removed) = RemovedSlot::decode(&framed) {
                assert_eq!(removed.encode(), framed);
            }
        }
        4 => drop(Keys::decode_ring(bytes)),
        _ => {
            let framed = envelope::close_version(Object::Keys, 1, bytes);
            if let Ok(keys) = Keys::decode(&framed) {
                assert_eq!(keys.encode(), framed);
            }
        }
    }
});
