//! Reads the trailer of an extent from its name alone.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_member::stripe_set::{FOOTER_BYTES, Footer, HEADER_BYTES, Header, Trailer};
use pinstripe_member::{ExtentName, Member, is_remote};

/// The number of bytes at an extent's end that are read first, in the hope that they include the
/// complete trailer: the trailer of a 64 MiB pack with strips of 256 KiB on 4 members has 5.6 KiB.
const TAIL_GUESS_BYTES: u64 = 16 << 10;

/// Reads the trailer of one member's extent and compares its store and set ids.
pub(super) fn read_trailer(
    member: &dyn Member,
    name: ExtentName,
    store: StoreId,
    set: SetId,
) -> Result<Trailer> {
    let place = member.place().join(name.path());
    let at_place = |error: Error| error.at(&place);
    let extent_bytes = member.len(name).map_err(at_place)?;
    let mut tail = vec![0; FOOTER_BYTES];
    let footer_at = extent_bytes.saturating_sub(FOOTER_BYTES as u64);
    // The cache of this host may have only the end of a remote extent.
    let is_at_hand = is_remote(member.place()) && member.read_at_hand(name, footer_at, &mut tail);
    if !is_at_hand {
        let guess = extent_bytes.min(TAIL_GUESS_BYTES);
        tail.resize(guess as usize, 0);
        member.read_at(name, extent_bytes - guess, &mut tail).map_err(at_place)?;
    }

    let footer_at = tail.len().saturating_sub(FOOTER_BYTES);
    let footer = Footer::decode(&tail[footer_at..]).map_err(at_place)?;
    let room = extent_bytes.saturating_sub((HEADER_BYTES + FOOTER_BYTES) as u64);
    if footer.trailer_bytes > room {
        return Err(Error::corrupt("the trailer is longer than the extent", &place)
            .expected(format!("at most {room} bytes"), footer.trailer_bytes));
    }
    tail.truncate(footer_at);
    if footer.trailer_bytes > footer_at as u64 {
        tail = vec![0; footer.trailer_bytes as usize];
        let start = extent_bytes - FOOTER_BYTES as u64 - footer.trailer_bytes;
        member.read_at(name, start, &mut tail).map_err(at_place)?;
    }
    let start = tail.len() - footer.trailer_bytes as usize;
    let trailer = Trailer::decode(&tail[start..], &footer).map_err(at_place)?;
    if trailer.store != store || trailer.set != set {
        let name = |store: StoreId, set: SetId| format!("store {store} set {set}");
        return Err(Error::new(Kind::WrongMember, "the extent belongs to another store or set")
            .at(&place)
            .expected(name(store, set), name(trailer.store, trailer.set)));
    }
    Ok(trailer)
}

/// Returns how many bytes at an extent's end are its trailer and footer, if these and the header
/// are intact and belong to this set: a host may cache them.
#[must_use]
pub fn sound_end(set: SetId, header: &[u8], end: &[u8]) -> Option<usize> {
    let header = Header::decode(header).ok()?;
    let (before, footer) = end.split_last_chunk::<FOOTER_BYTES>()?;
    let footer = Footer::decode(footer).ok()?;
    let start = before.len().checked_sub(usize::try_from(footer.trailer_bytes).ok()?)?;
    let trailer = Trailer::decode(&before[start..], &footer).ok()?;
    let is_its = header.set == set && trailer.set == set && header.store == trailer.store;
    is_its.then_some(end.len() - start)
}

/// The rank of an error when no member has an intact trailer: the error with the highest rank is
/// reported.
pub(super) fn gravity(error: &Error) -> u8 {
    match error.kind() {
        Kind::NotFound => 0,
        Kind::Corrupt => 2,
        Kind::WrongMember => 3,
        Kind::Unsupported => 4,
        _ => 1,
    }
}
