//! Complete stripe sets: the server lays strips and parity of a set that a host sends once, and
//! reads parts of sets, rebuilt from parity.
//!
//! Invariants: a set is acknowledged for a slot when its extent is durable on the slot's member. A
//! name is never given to another set: an extent that exists counts as written only if its header and
//! its trailer, which has the checksums of all strips, are those of this set.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_member::stripe_set::{HEADER_BYTES, SetKind};
use pinstripe_member::{ExtentKind, ExtentName, ExtentWriter, Member, Replace, SharedMember};
use pinstripe_remote::{
    PARTS_MAX_BYTES, RUN_MAX_BYTES, SET_HEADER, SUM_HEADER, SetHead, decode_parts, encode_laid,
    encode_part,
};
use pinstripe_stripe::{SetLayout, SetWriter, StripSink};
use tokio::sync::mpsc;
use twox_hash::XxHash3_128;

use crate::answer::bytes;
use crate::app::App;
use crate::body::{PIECES, Pieces};
use crate::checks::RunCheck;
use crate::extent::{end_put, judge_quota, length_of, own, wrong_sum};
use crate::role::Deed;
use crate::tokens::HostToken;

/// The longest request for parts: 29 bytes each.
const PARTS_BODY_MAX_BYTES: u64 = 128 << 10;
/// A request for at most this many bytes does not wait for others.
const SHORT_BYTES: u64 = 1 << 20;

/// A set that is being received.
struct IncomingSet {
    store: StoreId,
    name: ExtentName,
    set: SetId,
    kind: SetKind,
    head: SetHead,
    /// By slot: the member, or why the server does not have it.
    members: Vec<Result<SharedMember>>,
    sum: Option<String>,
    length: u64,
}

/// Lays a set; answers with the result of each slot.
pub(crate) async fn pack(
    app: &Arc<App>,
    token: &HostToken,
    served: usize,
    name: ExtentName,
    request: Request,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    app.require_of(token, served, Deed::Create, name)?;
    let length = length_of(&parts.headers, RUN_MAX_BYTES)?;
    let text = |header: &str| parts.headers.get(header).and_then(|value| value.to_str().ok());
    let head = SetHead::decode(text(SET_HEADER).unwrap_or_default())?;
    let volume = app.volumes[served].volume();
    let (kind, set) = match name {
        ExtentName::In(ExtentKind::Packs, id) if volume.is_store => (SetKind::Pack, SetId(id)),
        ExtentName::In(ExtentKind::Index, id) if volume.is_store => (SetKind::IndexRun, SetId(id)),
        _ => return Err(Error::new(Kind::Usage, "this name or volume has no stripe sets")),
    };
    let member = |number: &u16| volume.member(*number).cloned();
    let members: Vec<_> = head.members.iter().map(member).collect();
    let layout = SetLayout::new(head.geometry, set, length)?;
    let stored: u64 = (0..members.len()).map(|slot| layout.extent_bytes(slot)).sum();
    judge_quota(app, token, served, name, stored)?;
    own(app, token, served, name, (stored, [0; 16])).await?;
    let sum = text(SUM_HEADER).map(str::to_owned);
    let incoming = IncomingSet { store: volume.id, name, set, kind, head, members, sum, length };
    let laid = async {
        let _bulk = app.bulk().await?;
        let laid = receive(app, incoming, Pieces::new(body, length)).await?;
        let seal = |extent: LaidExtent| app.call(move || extent.seal());
        Ok(join_all(laid.into_iter().map(seal)).await)
    };
    let laid: Result<Vec<_>> = laid.await;
    let is_stored = laid.as_ref().is_ok_and(|slots| slots.iter().any(Result::is_ok));
    end_put(app, served, name, is_stored).await;
    Ok(bytes(encode_laid(laid?)))
}

/// Receives a run, and lays it as it arrives. Nothing is sealed if the run is not complete.
async fn receive(app: &Arc<App>, incoming: IncomingSet, pieces: Pieces) -> Result<Vec<LaidExtent>> {
    let (sender, receiver) = mpsc::channel(PIECES);
    pieces.feed(sender, app.call(move || lay(incoming, receiver))).await
}

fn lay(incoming: IncomingSet, mut pieces: mpsc::Receiver<Bytes>) -> Result<Vec<LaidExtent>> {
    let IncomingSet { store, name, set, kind, head, members, sum, length } = incoming;
    let begin = |member: Result<SharedMember>| LaidExtent::begin(member, name);
    let mut extents = LaidExtents(members.into_iter().map(begin).collect());
    let mut writer = SetWriter::new(store, set, kind, head.geometry);
    let (mut check, mut hasher) = (RunCheck::default(), XxHash3_128::new());
    while let Some(piece) = pieces.blocking_recv() {
        hasher.write(&piece);
        check.append(&piece)?;
        writer.append(&piece, &mut extents)?;
    }
    if writer.position() != length {
        return Err(Error::new(Kind::Corrupt, "the body has another length than announced"));
    }
    if sum.is_some_and(|sum| sum != format!("{:032x}", hasher.finish_128())) {
        return Err(wrong_sum());
    }
    check.finish()?;
    let (start, bytes) = head.index;
    let outside = || Error::new(Kind::Usage, "the index of the records is outside of the run");
    let end = start.checked_add(bytes).filter(|end| *end <= length).ok_or_else(outside)?;
    writer.finish(start..end, &mut extents)?;
    Ok(extents.0)
}

/// The extent of one slot, unsealed.
struct LaidExtent {
    name: ExtentName,
    /// The member and the writer, or the first error of the member.
    writer: Result<(SharedMember, Box<dyn ExtentWriter>)>,
    /// The header, and what was last appended: the trailer at the end.
    header: Vec<u8>,
    last: Vec<u8>,
    length: u64,
}

impl LaidExtent {
    fn begin(member: Result<SharedMember>, name: ExtentName) -> Self {
        let begin = |member: SharedMember| {
            let writer = member.create(name, Replace::Never)?;
            Ok((member, writer))
        };
        let (header, last) = (Vec::new(), Vec::new());
        LaidExtent { name, writer: member.and_then(begin), header, last, length: 0 }
    }

    /// A member that fails gets no more bytes; the other members do.
    fn append(&mut self, bytes: Vec<u8>) {
        if let Ok((_, writer)) = &mut self.writer
            && let Err(error) = writer.append(&bytes)
        {
            self.writer = Err(error);
        }
        self.length += bytes.len() as u64;
        if self.header.is_empty() {
            self.header = bytes;
        } else {
            self.last = bytes;
        }
    }

    fn seal(self) -> Result<()> {
        let LaidExtent { name, writer, header, last, length } = self;
        let (member, writer) = writer?;
        match writer.seal() {
            // An earlier attempt of this request wrote it.
            Err(error)
                if error.kind() == Kind::Exists
                    && has(&*member, name, (&header, &last), length) =>
            {
                Ok(())
            }
            sealed => sealed,
        }
    }
}

/// Whether a member has an extent with this header and trailer, and this length.
fn has(
    member: &dyn Member,
    name: ExtentName,
    (header, trailer): (&[u8], &[u8]),
    length: u64,
) -> bool {
    let is_at = |offset: u64, wanted: &[u8]| {
        let mut there = vec![0; wanted.len()];
        member.read_at(name, offset, &mut there).is_ok() && there == wanted
    };
    debug_assert_eq!(header.len(), HEADER_BYTES);
    member.len(name).is_ok_and(|there| there == length)
        && is_at(0, header)
        && is_at(length - trailer.len() as u64, trailer)
}

struct LaidExtents(Vec<LaidExtent>);

impl StripSink for LaidExtents {
    fn append(&mut self, slot: usize, bytes: Vec<u8>) -> Result<()> {
        self.0[slot].append(bytes);
        Ok(())
    }
}

/// Answers with parts of sets, in the order asked.
pub(crate) async fn fetch(
    app: &Arc<App>,
    token: &HostToken,
    served: usize,
    request: Request,
) -> Result<Response> {
    let length = length_of(request.headers(), PARTS_BODY_MAX_BYTES)?;
    let body = Pieces::new(request.into_body(), length).whole().await?;
    let parts = decode_parts(&body).map_err(|error| Error::new(Kind::Usage, error.what()))?;
    let wanted_bytes: u64 = parts.iter().map(|part| u64::from(part.bytes)).sum();
    let _bulk = match wanted_bytes > SHORT_BYTES {
        true => Some(app.bulk().await?),
        false => None,
    };
    let mut out = Vec::new();
    for part in parts {
        let fetched = match app.require_of(token, served, Deed::Read, part.name) {
            Err(error) => Err(error),
            Ok(()) => {
                let (app_of_call, volume) = (Arc::clone(app), app.volumes[served].volume());
                let read = move || app_of_call.volumes[served].sets.fetch(&volume, &part);
                app.call(read).await
            }
        };
        encode_part(&mut out, &fetched);
        debug_assert!(out.len() as u64 <= 2 * PARTS_MAX_BYTES, "the parts are bounded");
    }
    Ok(bytes(out))
}
