//! Keys of objects, and the extents that these keys stand for.

use object_store::path::Path as Key;
use pinstripe_member::{ExtentKind, ExtentName};

use crate::place::BucketPlace;

/// The prefix of the keys of a probe, which are not part of a store.
pub(crate) const PROBE: &str = "probe-";

/// The key of a name below the member's prefix.
pub fn key(place: &BucketPlace, name: &str) -> Key {
    let prefix = place.prefix();
    Key::from(if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") })
}

/// A random key that no object has.
pub fn fresh(place: &BucketPlace) -> Key {
    let id = pinstripe_base::id::random::<16>().unwrap_or_default();
    key(place, &format!("{PROBE}{}", pinstripe_base::id::hex(&id)))
}

/// The extent of a kind that a key stands for; `None` for a foreign key.
pub fn extent(place: &BucketPlace, kind: ExtentKind, listed: &Key) -> Option<[u8; 16]> {
    let (_, leaf) = listed.as_ref().rsplit_once('/')?;
    let digits = leaf.as_bytes();
    if digits.len() != 32 || !digits.iter().all(|digit| b"0123456789abcdef".contains(digit)) {
        return None;
    }
    let mut id = [0; 16];
    for (byte, two) in id.iter_mut().zip(leaf.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()?;
    }
    (key(place, &ExtentName::In(kind, id).path()) == *listed).then_some(id)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::place::EndpointDefaults;

    #[test]
    fn keys_come_back_and_strangers_do_not() {
        for text in ["s3+http://h/bucket/a/b", "s3+http://h/bucket"] {
            let place = BucketPlace::parse(Path::new(text), &EndpointDefaults::default()).unwrap();
            for kind in [ExtentKind::Packs, ExtentKind::Snapshots] {
                let name = ExtentName::In(kind, [0xa7; 16]);
                let made = key(&place, &name.path());
                assert_eq!(extent(&place, kind, &made), Some([0xa7; 16]));
                assert_eq!(extent(&place, ExtentKind::Index, &made), None);
            }
            let long = "a".repeat(32);
            for odd in [
                "packs/ab/x".to_owned(),
                "x".to_owned(),
                format!("packs/{long}"),
                format!("packs/bb/{long}"),
                format!("packs/aa/{}", "A".repeat(32)),
                format!("packs/aa/x/{long}"),
            ] {
                assert_eq!(extent(&place, ExtentKind::Packs, &key(&place, &odd)), None, "{odd}");
            }
        }
    }
}
