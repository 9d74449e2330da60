//! Answers a look: listings of several members, with the bytes of the small extents in them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::{ExtentKind, ExtentName, SharedMember};
use pinstripe_remote::{
    KindLook, LOOK_END_BYTES, LOOK_ENDS, LOOK_EXTENT_BYTES, LOOK_EXTENTS, LOOK_HEAD_BYTES,
    LOOK_MAX_BYTES, LOOK_NAMES, LookRequest, MemberLook, OpenedExtent, WantedKind,
};

use tokio::time::timeout;

use crate::answer::bytes;
use crate::app::{App, properties_for};
use crate::body::Pieces;
use crate::extent::length_of;
use crate::role::Deed;
use crate::tokens::HostToken;

/// The longest request for a look.
const BODY_MAX_BYTES: u64 = 1024;
/// How much later than the first member each member may answer.
const LATE: Duration = Duration::from_secs(2);

/// Reads listings and small extents of the members that a request names, or of all.
pub(crate) async fn look(
    app: &Arc<App>,
    token: &HostToken,
    served: usize,
    request: Request,
) -> Result<Response> {
    let length = length_of(request.headers(), BODY_MAX_BYTES)?;
    let body = Pieces::new(request.into_body(), length).whole().await?;
    let wanted =
        LookRequest::decode(&body).map_err(|error| Error::new(Kind::Usage, error.what()))?;
    Ok(bytes(answer(app, token, served, wanted).await?))
}

/// The answers of the members that a request names, or of all.
pub(crate) async fn answer(
    app: &Arc<App>,
    token: &HostToken,
    served: usize,
    wanted: LookRequest,
) -> Result<Vec<u8>> {
    let wanted = Arc::new(wanted);
    let volume = app.volumes[served].volume();
    let members = &volume.members;
    let is_wanted = |number: &u16| wanted.members.is_empty() || wanted.members.contains(number);
    let looks = members.iter().filter(|(number, _)| is_wanted(number)).map(|(number, member)| {
        let look = OneLook {
            app: Arc::clone(app),
            token: token.clone(),
            served,
            number: *number,
            member: Arc::clone(member),
            wanted: Arc::clone(&wanted),
        };
        app.call(move || Ok(look.run()))
    });
    let mut out = Vec::new();
    for look in without_late(looks.collect()).await? {
        let before = out.len();
        look.encode(&mut out);
        // A member whose answer does not fit is read by requests of its own.
        if out.len() > LOOK_MAX_BYTES {
            out.truncate(before);
        }
    }
    Ok(out)
}

/// The looks of the members that answer, by number. A member that is much later than another one is
/// omitted: the client requests it by itself, and does not take all members for silent.
async fn without_late(
    mut looks: FuturesUnordered<impl Future<Output = Result<MemberLook>>>,
) -> Result<Vec<MemberLook>> {
    let (mut found, mut first) = (Vec::new(), None);
    loop {
        let next = match first {
            None => looks.next().await,
            Some(first) => {
                let left = LATE.saturating_sub(clock::since(first));
                timeout(left, looks.next()).await.unwrap_or_default()
            }
        };
        let Some(look) = next else { break };
        found.push(look?);
        first.get_or_insert_with(clock::monotonic);
    }
    found.sort_by_key(|look| look.member);
    Ok(found)
}

/// The part of a look that concerns one member.
struct OneLook {
    app: Arc<App>,
    token: HostToken,
    served: usize,
    number: u16,
    member: SharedMember,
    wanted: Arc<LookRequest>,
}

impl OneLook {
    /// Omits each listing and extent that cannot be read: the client requests it again, and gets the
    /// error.
    fn run(&self) -> MemberLook {
        let label = self.wanted.labels.then(|| self.read(ExtentName::Label)).flatten();
        let kinds = self.wanted.kinds.iter();
        let mut kinds: Vec<_> = kinds.filter_map(|it| Some((it.kind, self.list(*it)?))).collect();
        // Each of these listings begins when the first ones are complete.
        for (kind, look) in &mut kinds {
            if self.wanted.kinds.iter().any(|it| it.kind == *kind && it.again) {
                look.again = self.names(*kind);
            }
        }
        let properties =
            self.wanted.labels.then(|| properties_for(&self.token, self.member.caps()));
        let opened = self.wanted.opened.iter().filter_map(|name| self.open(*name)).collect();
        MemberLook { member: self.number, label, properties, kinds, opened }
    }

    /// The data that a read returned; a read that failed is counted.
    fn counted<T>(&self, read: Result<T>) -> Option<T> {
        self.app.volumes[self.served].count_read(self.number, read).ok()
    }

    fn names(&self, kind: ExtentKind) -> Option<Vec<([u8; 16], u64)>> {
        let mut names = self.counted(self.member.list(kind))?;
        self.app.retain_visible(&self.token, self.served, kind, &mut names);
        (names.len() <= LOOK_NAMES).then_some(names)
    }

    fn list(&self, WantedKind { kind, content, .. }: WantedKind) -> Option<KindLook> {
        let names = self.names(kind)?;
        let has_objects =
            !matches!(kind, ExtentKind::Packs | ExtentKind::Scrub | ExtentKind::Strays);
        if !content || !has_objects {
            return Some(KindLook { names, ..KindLook::default() });
        }
        let is_short = |(_, bytes): &&([u8; 16], u64)| *bytes <= LOOK_EXTENT_BYTES;
        let short = names.iter().filter(is_short).take(LOOK_EXTENTS);
        let read = |(id, _): &([u8; 16], u64)| Some((*id, self.read(ExtentName::In(kind, *id))?));
        let extents = short.filter_map(read).collect();
        let long = names.iter().filter(|it| kind == ExtentKind::Index && !is_short(it));
        let end = |(id, bytes): &([u8; 16], u64)| {
            let name = ExtentName::In(kind, *id);
            Some((*id, self.read_part(name, bytes - LOOK_END_BYTES, LOOK_END_BYTES)?))
        };
        let ends = long.take(LOOK_ENDS).filter_map(end).collect();
        Some(KindLook { names, extents, ends, again: None })
    }

    fn open(&self, name: ExtentName) -> Option<OpenedExtent> {
        self.app.require_of(&self.token, self.served, Deed::Read, name).ok()?;
        let length = self.counted(self.member.len(name))?;
        let (of_head, of_end) = (length.min(LOOK_HEAD_BYTES), length.min(LOOK_END_BYTES));
        let head = self.read_part(name, 0, of_head)?;
        let end = self.read_part(name, length - of_end, of_end)?;
        Some(OpenedExtent { name, length, head, end })
    }

    fn read(&self, name: ExtentName) -> Option<Vec<u8>> {
        self.app.require_of(&self.token, self.served, Deed::Read, name).ok()?;
        let length = self.counted(self.member.len(name));
        let length = length.filter(|length| *length <= LOOK_EXTENT_BYTES)?;
        self.read_part(name, 0, length)
    }

    fn read_part(&self, name: ExtentName, offset: u64, length: u64) -> Option<Vec<u8>> {
        self.app.require_of(&self.token, self.served, Deed::Read, name).ok()?;
        let mut bytes = vec![0; length as usize];
        self.counted(self.member.read_at(name, offset, &mut bytes)).map(|()| bytes)
    }
}
