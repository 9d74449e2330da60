//! Requests that move the bytes of extents, and what is checked before a new one is accepted.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_RANGE, IF_NONE_MATCH, RANGE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_member::envelope::{self, OBJECT_MAX_BYTES, Object};
use pinstripe_member::gc::{DeletionStep, GcObject};
use pinstripe_member::session::{Session, Work};
use pinstripe_member::stripe_set::HEADER_BYTES;
use pinstripe_member::{ExtentKind, ExtentName, Member, Replace, SharedMember};
use pinstripe_remote::{
    EXTENT_MAX_BYTES, RANGES_MAX, RANGES_MAX_BYTES, SUM_HEADER, WantedRange, decode_ranges,
    encode_result, sum_of,
};
use tokio::sync::mpsc;
use twox_hash::XxHash3_128;

use crate::answer::bytes;
use crate::app::{Admitted, App, VolumeState};
use crate::body::{PIECES, Pieces, from_pieces};
use crate::checks::ExtentCheck;
use crate::ledger::Owned;
use crate::role::{Deed, TokenRole};
use crate::tokens::HostToken;
use crate::volume::ServedVolume;

/// The bytes that are read from a member at once.
const PIECE_BYTES: u64 = 1 << 20;
/// The longest request for several ranges.
const RANGES_BODY_MAX_BYTES: u64 = 34 * RANGES_MAX as u64 + 10;

/// Sends an extent, or one range of it.
pub(crate) async fn get(
    app: &Arc<App>,
    admitted: &Admitted,
    name: ExtentName,
    headers: &HeaderMap,
) -> Result<Response> {
    let member = Arc::clone(&admitted.member);
    let length = app.call(move || member.len(name)).await?;
    let range = match headers.get(RANGE) {
        None => None,
        Some(value) => match value.to_str().ok().and_then(|text| range_from(text, length)) {
            Some(range) => Some(range),
            None => {
                let error = Error::new(Kind::Corrupt, "the extent is too short for this range");
                return Err(error.expected("a range within it", format!("{length} bytes")));
            }
        },
    };
    let (start, end) = range.unwrap_or((0, length));
    let mut response = match end - start <= PIECE_BYTES {
        true => {
            let member = Arc::clone(&admitted.member);
            bytes(app.call(move || read(&*member, name, start, end)).await?)
        }
        false => Response::new(from_pieces(send(app, admitted, name, start, end))),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, (end - start).into());
    if range.is_some() {
        let text = format!("bytes {start}-{}/{length}", end - 1);
        headers.insert(CONTENT_RANGE, text.parse().expect("a header value"));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

fn read(member: &dyn Member, name: ExtentName, start: u64, end: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (end - start) as usize];
    member.read_at(name, start, &mut bytes)?;
    Ok(bytes)
}

/// Reads a long range piece by piece on another thread.
fn send(
    app: &Arc<App>,
    admitted: &Admitted,
    name: ExtentName,
    start: u64,
    end: u64,
) -> mpsc::Receiver<Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(2);
    let (app, member) = (Arc::clone(app), Arc::clone(&admitted.member));
    let (served, number) = (admitted.served, admitted.number);
    tokio::spawn(async move {
        let mut at = start;
        while at < end {
            let (member, next) = (Arc::clone(&member), (at + PIECE_BYTES).min(end));
            let piece = app.call(move || read(&*member, name, at, next)).await.map(Bytes::from);
            let piece = app.volumes[served].count_read(number, piece);
            let is_over = piece.is_err();
            if sender.send(piece).await.is_err() || is_over {
                return;
            }
            at = next;
        }
    });
    receiver
}

/// The half-open range that a header asks for; `None` if the extent does not have all of it.
fn range_from(text: &str, length: u64) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = match (first, last) {
        ("", last) => (length.saturating_sub(last.parse().ok()?), length),
        (first, "") => (first.parse().ok()?, length),
        (first, last) => (first.parse().ok()?, last.parse::<u64>().ok()?.checked_add(1)?),
    };
    (start < end && end <= length).then_some((start, end))
}

/// Sends several ranges or complete extents, in the order asked.
pub(crate) async fn read_many(
    app: &Arc<App>,
    admitted: &Admitted,
    request: Request,
) -> Result<Response> {
    let length = length_of(request.headers(), RANGES_BODY_MAX_BYTES)?;
    let body = Pieces::new(request.into_body(), length).whole().await?;
    let wanted = decode_ranges(&body).map_err(|error| Error::new(Kind::Usage, error.what()))?;
    let mut out = Vec::new();
    for it in wanted {
        let result = match app.require(admitted, Deed::Read, it.name) {
            Ok(()) => {
                let member = Arc::clone(&admitted.member);
                let read = app.call(move || read_one(&*member, &it)).await;
                app.volumes[admitted.served].count_read(admitted.number, read)
            }
            Err(error) => Err(error),
        };
        encode_result(&mut out, &result);
        if out.len() as u64 > RANGES_MAX_BYTES {
            break;
        }
    }
    Ok(bytes(out))
}

fn read_one(member: &dyn Member, it: &WantedRange) -> Result<Vec<u8>> {
    if !it.is_whole {
        let end = it.offset.checked_add(it.bytes).filter(|_| it.bytes <= RANGES_MAX_BYTES);
        let end = end.ok_or_else(|| Error::new(Kind::Usage, "this range is too long"))?;
        return read(member, it.name, it.offset, end);
    }
    let length = member.len(it.name)?;
    if length > it.bytes.min(RANGES_MAX_BYTES) {
        return Err(Error::new(Kind::Corrupt, "the content is too long for a small object")
            .expected(format!("at most {} bytes", it.bytes), length));
    }
    read(member, it.name, 0, length)
}

/// The announced length of a body.
pub(crate) fn length_of(headers: &HeaderMap, most: u64) -> Result<u64> {
    let text = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length: Option<u64> = text.and_then(|text| text.parse().ok());
    let length =
        length.ok_or_else(|| Error::new(Kind::Usage, "a body needs a length in its header"))?;
    if length > most {
        return Err(Error::new(Kind::Usage, "the body is too long")
            .expected(format!("at most {most} bytes"), length));
    }
    Ok(length)
}

/// A new extent that is being received.
struct Incoming {
    member: SharedMember,
    name: ExtentName,
    replace: Replace,
    length: u64,
    sum: Option<String>,
}

/// Accepts an extent; it is durable when this returns.
pub(crate) async fn put(
    app: &Arc<App>,
    admitted: &Admitted,
    name: ExtentName,
    request: Request,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    let replace = match headers.get(IF_NONE_MATCH).map(|value| value.as_bytes()) {
        Some(b"*") => Replace::Never,
        None => Replace::Allowed,
        Some(_) => return Err(Error::new(Kind::Usage, "If-None-Match can only be '*'")),
    };
    let deed = if replace == Replace::Never { Deed::Create } else { Deed::Replace };
    app.require(admitted, deed, name)?;
    let is_set = name.is_of_set();
    let most = if is_set { EXTENT_MAX_BYTES } else { OBJECT_MAX_BYTES };
    let length = length_of(headers, most)?;
    let sum = headers.get(SUM_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let member = Arc::clone(&admitted.member);
    let incoming = Incoming { member, name, replace, length, sum };
    let pieces = Pieces::new(body, length);
    if is_set {
        put_set(app, admitted, incoming, pieces).await?;
    } else {
        put_object(app, admitted, incoming, pieces).await?;
    }
    let mut response = bytes(Vec::new());
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

pub(crate) fn wrong_sum() -> Error {
    Error::new(Kind::Corrupt, "the bytes that arrived do not match their checksum")
}

/// Accepts an extent of a stripe set, piece by piece.
async fn put_set(
    app: &Arc<App>,
    admitted: &Admitted,
    incoming: Incoming,
    mut pieces: Pieces,
) -> Result<()> {
    let Incoming { name, length, .. } = incoming;
    let volume = app.volumes[admitted.served].volume();
    let token = &admitted.token;
    let mut first = Vec::new();
    while first.len() < HEADER_BYTES
        && let Some(piece) = pieces.next().await?
    {
        first.extend_from_slice(&piece);
    }
    let (mut check, mut stored) = (None, length);
    if let ExtentName::In(_, id) = name
        && volume.is_store
    {
        let header = first.get(..HEADER_BYTES).unwrap_or_default();
        let begun = ExtentCheck::begin(volume.id, SetId(id), header, length)?;
        // The other extents of the set have about the same length.
        stored = length.saturating_mul(begun.slots().min(volume.members.len()) as u64);
        // A move of an extent with damage that cannot be repaired must not fail.
        check = Some(begun).filter(|_| token.role != TokenRole::Admin);
    }
    judge_quota(app, token, admitted.served, name, stored)?;
    own(app, token, admitted.served, name, (stored, [0; 16])).await?;
    let put = async {
        let _bulk = app.bulk().await?;
        let (sender, receiver) = mpsc::channel(PIECES);
        let writing = app.call(move || write(&incoming, check, Bytes::from(first), receiver));
        pieces.feed(sender, writing).await
    };
    let put = put.await;
    end_put(app, admitted.served, name, put.is_ok()).await;
    put
}

/// Refuses what would exceed the quota of the token's host.
pub(crate) fn judge_quota(
    app: &App,
    token: &HostToken,
    served: usize,
    name: ExtentName,
    bytes: u64,
) -> Result<()> {
    let ledger = &app.volumes[served].ledger;
    let is_exceeded = token.quota_bytes.is_some_and(|quota| {
        !(ledger.is_of(name, &token.host) && ledger.is_counted(name))
            && ledger.used_bytes(&token.host).saturating_add(bytes) > quota
    });
    if !is_exceeded {
        return Ok(());
    }
    let what = format!("the quota of host '{}' is used up", token.host);
    Err(Error::new(Kind::NoSpace, what)
        .advice("the server's administrator can give the host a larger quota"))
}

fn write(
    incoming: &Incoming,
    mut check: Option<ExtentCheck>,
    first: Bytes,
    mut pieces: mpsc::Receiver<Bytes>,
) -> Result<()> {
    let Incoming { member, name, replace, length, sum } = incoming;
    let mut writer = member.create(*name, *replace)?;
    let (mut hasher, mut moved) = (XxHash3_128::new(), 0);
    let mut next = Some(first);
    while let Some(piece) = next {
        hasher.write(&piece);
        if let Some(check) = &mut check {
            // The header was checked before.
            let header_left = (HEADER_BYTES as u64).saturating_sub(moved) as usize;
            check.append(piece.get(header_left..).unwrap_or_default());
        }
        moved += piece.len() as u64;
        writer.append(&piece)?;
        next = pieces.blocking_recv();
    }
    if moved != *length {
        return Err(Error::new(Kind::Corrupt, "the body has another length than announced"));
    }
    if sum.as_ref().is_some_and(|sum| *sum != format!("{:032x}", hasher.finish_128())) {
        return Err(wrong_sum());
    }
    check.map_or(Ok(()), ExtentCheck::finish)?;
    writer.seal()
}

/// Accepts a small object.
async fn put_object(
    app: &Arc<App>,
    admitted: &Admitted,
    incoming: Incoming,
    pieces: Pieces,
) -> Result<()> {
    let content = pieces.whole().await?;
    let Incoming { member, name, replace, sum, .. } = incoming;
    if sum.is_some_and(|sum| sum != sum_of(&content)) {
        return Err(wrong_sum());
    }
    accept_object(app, &admitted.token, admitted.served, name, &content).await?;
    let put = app.call(move || match replace {
        Replace::Never => member.put(name, &content),
        Replace::Allowed => {
            let mut writer = member.create(name, replace)?;
            writer.append(&content)?;
            writer.seal()
        }
    });
    let put = put.await;
    end_put(app, admitted.served, name, put.is_ok()).await;
    put
}

/// Judges a new small object, and records that the token's host puts it. The caller has checked the
/// role, and puts the object next.
pub(crate) async fn accept_object(
    app: &Arc<App>,
    token: &HostToken,
    served: usize,
    name: ExtentName,
    content: &[u8],
) -> Result<()> {
    let volume = &app.volumes[served];
    let commit = match volume.volume().is_store {
        true => judge_new(volume, token, name, content)?,
        false => [0; 16],
    };
    own(app, token, served, name, (0, commit)).await
}

/// Records that the token's host puts an object with this length and commit. An existing object
/// without an owner does not become the host's.
pub(crate) async fn own(
    app: &Arc<App>,
    token: &HostToken,
    served: usize,
    name: ExtentName,
    (bytes, commit): (u64, [u8; 16]),
) -> Result<()> {
    let served = &app.volumes[served];
    if name == ExtentName::Label || served.ledger.is_counted(name) {
        return Ok(());
    }
    let has = |length: Result<u64>| length.is_ok().then_some(());
    if any_member(app, &served.volume(), name, has).await?.is_none() {
        let host = token.host.clone();
        served.ledger.record(name, Owned { host, commit, bytes, seconds: clock::now().0 })?;
    }
    Ok(())
}

/// Asks all members at once for the length of an extent, and returns what `found` makes of the first
/// answer that it takes. Members that do not answer cost the time of one.
async fn any_member<T>(
    app: &App,
    volume: &ServedVolume,
    name: ExtentName,
    found: impl Fn(Result<u64>) -> Option<T>,
) -> Result<Option<T>> {
    let length = |member: &SharedMember| {
        let member = Arc::clone(member);
        app.call(move || Ok(member.len(name)))
    };
    let mut lengths: FuturesUnordered<_> = volume.members.values().map(length).collect();
    while let Some(length) = lengths.next().await {
        if let Some(found) = found(length?) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Ends the put of an object or of an extent of a stripe set. One that failed on every member is not
/// counted for the quota, or as a backup.
pub(crate) async fn end_put(app: &App, served: usize, name: ExtentName, is_stored: bool) {
    let served = &app.volumes[served];
    if is_stored {
        return served.ledger.confirm(name);
    }
    let volume = served.volume();
    // A member that does not say that it lacks the extent may have it.
    let may_have = |length: Result<u64>| match length {
        Err(error) if error.kind() == Kind::NotFound => None,
        _ => Some(()),
    };
    let is_complete = volume.absent.is_empty();
    if is_complete && matches!(any_member(app, &volume, name, may_have).await, Ok(None)) {
        served.ledger.withdraw(name);
    }
}

/// Refuses a new small object that its kind or the token's role does not allow. Returns the object
/// that a session will commit.
fn judge_new(
    served: &VolumeState,
    token: &HostToken,
    name: ExtentName,
    content: &[u8],
) -> Result<[u8; 16]> {
    let odd = |what: &str| Error::new(Kind::Usage, format!("this object is not {what}"));
    envelope::open_any(content).map_err(|error| Error::new(Kind::Usage, error.what()))?;
    let ExtentName::In(kind, id) = name else { return Ok([0; 16]) };
    if kind == ExtentKind::Snapshots && served.ledger.is_fenced(id) {
        return Err(Error::new(Kind::NotAllowed, "the server's administrator ended this backup")
            .advice("ask the administrator, and run the backup again"));
    }
    if token.role == TokenRole::Admin {
        let commit = Session::decode(content).ok().filter(|_| kind == ExtentKind::Sessions);
        return Ok(commit.map_or([0; 16], |session| session.commit));
    }
    let forbidden = |what: &str| {
        let role = token.role;
        Err(Error::new(Kind::NotAllowed, format!("a token with the role {role} may not {what}")))
    };
    match kind {
        ExtentKind::Snapshots if !envelope::is_of(Object::Snapshot, content) => {
            forbidden("end another host's backup")
        }
        ExtentKind::Snapshots if !served.ledger.commits(&token.host, id) => {
            forbidden("put a snapshot that no session of its host announced")
        }
        ExtentKind::Sessions => {
            let session = Session::decode(content).map_err(|_| odd("a session"))?;
            if session.id.0 != id || session.store != served.volume().id {
                return Err(odd("the session that its name says"));
            }
            match session.work == Work::Backup {
                true if served.ledger.is_promised_to_other(&token.host, session.commit) => {
                    forbidden("announce the snapshot of another host's session")
                }
                true => Ok(session.commit),
                false => forbidden("begin this work"),
            }
        }
        ExtentKind::Gc => {
            let object = GcObject::decode(content).map_err(|_| odd("a step of a deletion"))?;
            let DeletionStep::Ack { session, .. } = &object.step else {
                return forbidden("delete");
            };
            let session = ExtentName::In(ExtentKind::Sessions, session.0);
            let is_own = served.ledger.is_of(session, &token.host);
            match is_own && object.name() == id && object.store == served.volume().id {
                true => Ok([0; 16]),
                false => forbidden("answer for another session"),
            }
        }
        ExtentKind::Checkpoints if !envelope::is_of(Object::Checkpoint, content) => {
            Err(odd("a checkpoint"))
        }
        ExtentKind::Heartbeats if !envelope::is_of(Object::Heartbeat, content) => {
            Err(odd("a heartbeat"))
        }
        _ => Ok([0; 16]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_within_the_extent() {
        for (text, found) in [
            ("bytes=0-9", Some((0, 10))),
            ("bytes=9-9", Some((9, 10))),
            ("bytes=4-", Some((4, 10))),
            ("bytes=-3", Some((7, 10))),
            ("bytes=-10", Some((0, 10))),
            ("bytes=-11", Some((0, 10))),
            ("bytes=-0", None),
            ("bytes=0-10", None),
            ("bytes=10-", None),
            ("bytes=5-4", None),
            ("bytes=0-18446744073709551615", None),
            ("bytes=9223372036854775808-9223372036854775809", None),
            ("bytes=0-1,3-4", None),
            ("items=0-1", None),
            ("bytes=a-b", None),
        ] {
            assert_eq!(range_from(text, 10), found, "{text}");
        }
    }
}
