//! Sealed snapshots: any bytes inside a sound seal, any blob in a sound frame. What is read is
//! what stood inside the seal.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pinstripe_base::id::{SnapshotId, StoreId};
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Encryption, Padding};
use pinstripe_member::snapshot::frame_sealed;
use pinstripe_stripe::{Opener, Sealer};

const STORE: StoreId = StoreId([1; 16]);
const SNAPSHOT: SnapshotId = SnapshotId([2; 16]);
const SEAL: Encryption = Encryption::Aes256Gcm;

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::generate_sealing(STORE).unwrap());

fuzz_target!(|input: (bool, &[u8])| {
    let (is_sealed, bytes) = input;
    let blob = if is_sealed {
        let context = [&b"snapshot"[..], &STORE.0, &SNAPSHOT.0].concat();
        let sealer = Sealer::new(SEAL, Padding::None, &KEYS).unwrap();
        sealer.blob(&context, bytes).unwrap()
    } else {
        bytes.to_vec()
    };
    let framed = frame_sealed(STORE, SNAPSHOT, SEAL, &blob);
    match Opener::new(&KEYS).snapshot(&framed) {
        Ok(snapshot) => {
            assert!(is_sealed && (snapshot.store, snapshot.id) == (STORE, SNAPSHOT));
            assert_eq!(snapshot.encode_fields(), bytes);
        }
        Err(error) => drop(error.to_string()),
    }
    // It is refused without the keys, and under other ones.
    assert!(Opener::locked().snapshot(&framed).is_err());
    assert!(Opener::clear().snapshot(&framed).is_err());
});
