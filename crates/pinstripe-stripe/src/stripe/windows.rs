//! Reads strips of remote members together with the bytes that follow them in their extents.
//!
//! A pass over a set, row by row, reads one strip after the other from each member. On a remote
//! member each read is a round trip and a paid request, so a long part of the extent is read in one
//! request and serves the following rows too.
//!
//! Invariants: bytes that are returned were read by this pass; wrong bytes are not returned twice,
//! since each strip is requested once.

use super::reader::SetReader;
use super::report::ErasureReason;
use pinstripe_member::is_remote;

/// The largest part of an extent that is read in one request.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// The last part that was read from each member.
#[derive(Default)]
pub(super) struct Windows(Vec<MemberWindow>);

struct MemberWindow {
    member: usize,
    start: u64,
    bytes: Vec<u8>,
}

impl MemberWindow {
    fn get(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(bytes)?)
    }
}

impl Windows {
    /// Fills `buf` from a member's extent, whose strips end at `end`. If a part cannot be read in
    /// one request, it is read strip by strip.
    pub(super) fn read(
        &mut self,
        set: &SetReader,
        member: usize,
        (offset, end): (u64, u64),
        buf: &mut [u8],
    ) -> Result<(), ErasureReason> {
        let Some(there) = set.member(member).filter(|there| is_remote(there.place())) else {
            return set.read_from(member, offset, buf);
        };
        let held = self.0.iter().find(|window| window.member == member);
        if let Some(held) = held.and_then(|window| window.get(offset, buf.len())) {
            buf.copy_from_slice(held);
            return Ok(());
        }
        self.0.retain(|window| window.member != member);
        let wanted = WINDOW_BYTES.max(buf.len() as u64).min(end.saturating_sub(offset));
        let window = match there.read_span(set.name(), offset, wanted as usize) {
            Ok(bytes) => MemberWindow { member, start: offset, bytes },
            Err(_) => return set.read_from(member, offset, buf),
        };
        match window.get(offset, buf.len()) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return set.read_from(member, offset, buf),
        }
        self.0.push(window);
        Ok(())
    }
}
