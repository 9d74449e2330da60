//! Listings of keys below a prefix.
//!
//! An endpoint lists a thousand keys per page, and returns with each page the token of the next
//! one: a member with 100,000 packs takes a hundred round trips. The keys of a kind begin with the
//! digits of ids, which are evenly distributed, so the first page shows how long the listing is. A
//! long listing is split: it is read by sixteen parallel listings, one for each first digit.

use std::time::Duration;

use futures_util::future::try_join_all;
use object_store::ObjectMeta;
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::path::Path as Key;
use pinstripe_base::clock;
use pinstripe_member::goes_on;

use crate::attempts::Attempts;
use crate::endpoint::Load;
use crate::fault::Fault;
use crate::session::{ATTEMPT, Session};

/// Keys in a page of a listing.
pub const PAGE: usize = 1000;
/// An endless listing is abandoned after this number of keys, which no member has.
pub(crate) const LIST_MAX: usize = 8 << 20;
/// The number of times that a listing is begun if it fails midway.
const LIST_STARTS: usize = 6;
/// A kind whose first page ends before this byte of the ids has more than three pages. The pages of
/// a kind that is shorter are requested one after the other, which takes fewer requests.
const LONG_ROOM: u8 = 0x55;
const DIGITS: [char; 16] =
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

/// Whether a listing should end after its first page, because the caller will list it in parts.
type IsLong<'a> = &'a (dyn Fn(&ObjectMeta) -> bool + Sync);

impl Session {
    /// A page of the objects and common prefixes directly below a prefix, which ends with a slash
    /// or is empty. `token` is the one that the previous page returned.
    pub(crate) async fn list_below(
        &self,
        prefix: &str,
        token: Option<String>,
        most: usize,
    ) -> Result<PaginatedListResult, Fault> {
        self.send(Load::default(), || async {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                max_keys: Some(most),
                ..PaginatedListOptions::default()
            };
            self.page(prefix, options, token.clone()).await
        })
        .await
    }

    /// The results of `keep` for every key below a prefix, in any order. If `most` is given, the
    /// listing may end after this many keys. A listing that fails midway begins again from the
    /// start, because only the endpoint knows the order.
    pub async fn list<T>(
        &self,
        prefix: &Key,
        most: usize,
        keep: impl Fn(&ObjectMeta) -> Option<T>,
    ) -> Result<Vec<T>, Fault> {
        if let Some(past) = &self.past {
            let there = past.list(self, prefix.as_ref()).await?;
            return Ok(there.iter().filter_map(&keep).collect());
        }
        let listed = self.list_from(&directory(prefix), most, &keep, &|_| false).await?;
        Ok(listed.unwrap_or_default())
    }

    /// The results of `keep` for all keys of a kind, which begin with ids in hexadecimal digits.
    pub(crate) async fn list_room<T>(
        &self,
        room: &Key,
        keep: impl Fn(&ObjectMeta) -> Option<T>,
    ) -> Result<Vec<T>, Fault> {
        if self.past.is_some() {
            return self.list(room, LIST_MAX, keep).await;
        }
        let directory = directory(room);
        let is_long = |last: &ObjectMeta| {
            let digits = last.location.as_ref().strip_prefix(&directory).and_then(|id| id.get(..2));
            digits.and_then(|it| u8::from_str_radix(it, 16).ok()).is_some_and(|it| it < LONG_ROOM)
        };
        if let Some(kept) = self.list_from(&directory, LIST_MAX, &keep, &is_long).await? {
            return Ok(kept);
        }
        let (keep, directory) = (&keep, &directory);
        let parts = DIGITS.map(|digit| async move {
            self.list_from(&format!("{directory}{digit}"), LIST_MAX, keep, &|_| false).await
        });
        Ok(try_join_all(parts).await?.into_iter().flatten().flatten().collect())
    }

    /// The results of `keep` for keys that begin with a text; `None` if more pages follow and
    /// `is_long` is true for the last key of the first page.
    async fn list_from<T>(
        &self,
        beginning: &str,
        most: usize,
        keep: &impl Fn(&ObjectMeta) -> Option<T>,
        is_long: IsLong<'_>,
    ) -> Result<Option<Vec<T>>, Fault> {
        let mut attempts = Attempts::for_endpoint(&self.endpoint, Duration::ZERO)?;
        let mut broken_off = 0;
        loop {
            let (mut kept, mut seen, mut next) = (Vec::new(), 0_usize, None);
            let (fault, halved) = loop {
                let is_first = next.is_none();
                let permit = self.endpoint.window.enter().await;
                let halved = permit.halved;
                let page = tokio::time::timeout(
                    ATTEMPT,
                    self.page(beginning, PaginatedListOptions::default(), next),
                )
                .await;
                drop(permit);
                let page = match page {
                    Err(_) => break (Fault::Late, halved),
                    Ok(Err(error)) => break (Fault::from_error(&error), halved),
                    Ok(Ok(page)) => page,
                };
                let objects = page.result.objects;
                seen += objects.len();
                kept.extend(objects.iter().filter_map(keep));
                debug_assert!(kept.len() <= seen, "each key is kept once");
                next = page.page_token;
                if next.is_none() || seen >= most {
                    self.good_answer();
                    return Ok(Some(kept));
                }
                if is_first && objects.last().is_some_and(is_long) {
                    return Ok(None);
                }
                if !objects.is_empty() {
                    // A long listing is one call that makes progress.
                    goes_on();
                    attempts.began = clock::monotonic();
                } else if attempts.left().is_zero() {
                    break (Fault::Late, halved);
                }
            };
            broken_off += usize::from(seen > 0);
            if broken_off == LIST_STARTS {
                return Err(fault);
            }
            attempts.next(&self.endpoint, fault, halved).await?;
        }
    }

    /// The page after the one that returned `token`, with keys that begin with a text.
    async fn page(
        &self,
        beginning: &str,
        options: PaginatedListOptions,
        token: Option<String>,
    ) -> object_store::Result<PaginatedListResult> {
        let is_flat = options.delimiter.is_none();
        let options = PaginatedListOptions { page_token: token.clone(), ..options };
        let whole = (!beginning.is_empty()).then_some(beginning);
        match (self.client.list_paginated(whole, options).await, &self.signed) {
            // A foreign key that cannot be a path.
            (Err(object_store::Error::InvalidPath { .. }), Some(signed)) if is_flat => {
                signed.own_page(beginning, token).await
            }
            (page, _) => page,
        }
    }
}

/// The text with which all keys below a prefix begin.
fn directory(prefix: &Key) -> String {
    if prefix.as_ref().is_empty() { String::new() } else { format!("{prefix}/") }
}
