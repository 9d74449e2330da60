//! The heads and ends of extents that are being opened.
//!
//! A reader that opens an extent asks for its length, reads its trailer at the end, and then reads
//! the header of the same extent on each member that it reads from. One request answers all of this
//! for all members of a volume.
//!
//! Invariants: a head or an end answers one read, and none after [`FRESH`], so that an extent that is
//! opened again is requested again; it never answers whether an extent exists. What this process
//! puts or removes is dropped.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::sync::lock;
use pinstripe_member::ExtentName;

use crate::look_messages::OpenedExtent;

const FRESH: Duration = Duration::from_secs(10);
/// The most extents that are kept.
const KEPT_MAX: usize = 256;

/// The heads and ends of a volume's extents, by member.
#[derive(Default)]
pub(crate) struct Ends(Mutex<HashMap<(u16, ExtentName), Kept>>);

struct Kept {
    when: Instant,
    extent: OpenedExtent,
}

impl Ends {
    /// Keeps the parts of an extent on a member.
    pub fn keep(&self, member: u16, extent: OpenedExtent) {
        let mut kept = lock(&self.0);
        kept.retain(|_, it| clock::since(it.when) < FRESH);
        if kept.len() < KEPT_MAX {
            kept.insert((member, extent.name), Kept { when: clock::monotonic(), extent });
        }
    }

    /// Drops what is kept of an extent on a member.
    pub fn forget(&self, member: u16, name: ExtentName) {
        lock(&self.0).remove(&(member, name));
    }

    /// Fills `buf` from a part that is kept; the part is dropped then.
    pub fn read(&self, member: u16, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        let mut kept = lock(&self.0);
        let Some(it) = kept.get_mut(&(member, name)).filter(|it| clock::since(it.when) < FRESH)
        else {
            return false;
        };
        let OpenedExtent { length, head, end, .. } = &mut it.extent;
        let end_start = length.saturating_sub(end.len() as u64);
        for (start, part) in [(0, head), (end_start, end)] {
            let from = offset.checked_sub(start).and_then(|from| usize::try_from(from).ok());
            let found = from.and_then(|from| part.get(from..from.checked_add(buf.len())?));
            if let Some(found) = found {
                buf.copy_from_slice(found);
                part.clear();
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use pinstripe_member::ExtentKind;

    use super::*;

    #[test]
    fn a_part_answers_one_read() {
        let name = ExtentName::In(ExtentKind::Packs, [1; 16]);
        let extent = || OpenedExtent {
            name,
            length: 100,
            head: (0..10).collect(),
            end: (90..100).collect(),
        };
        let ends = Ends::default();
        ends.keep(2, extent());
        let mut two = [0; 2];
        assert!(!ends.read(1, name, 0, &mut two));
        assert!(!ends.read(2, name, 9, &mut two));
        assert!(!ends.read(2, name, 89, &mut two));
        assert!(!ends.read(2, name, u64::MAX, &mut two));
        assert!(ends.read(2, name, 98, &mut two));
        assert_eq!(two, [98, 99]);
        assert!(!ends.read(2, name, 98, &mut two));
        assert!(ends.read(2, name, 8, &mut two));
        assert_eq!(two, [8, 9]);
        ends.keep(2, extent());
        ends.forget(2, name);
        assert!(!ends.read(2, name, 8, &mut two));
    }
}
