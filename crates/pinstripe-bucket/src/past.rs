//! A bucket in a past state: for each key, the version that was the newest at a given time.
//!
//! Invariants: a delete marker hides a key only from the marker's own time on. Later writes of any
//! writer are not shown. Nothing is written. Versions are listed once; later changes of the
//! versions are not noticed.

use std::collections::BTreeMap;

use object_store::ObjectMeta;
use object_store::path::Path as Key;
use tokio::sync::OnceCell;

use crate::signed::tagged;
use crate::utc;

/// The content of a bucket below a prefix at a time.
pub struct Past {
    /// Seconds since 1970.
    pub at: i64,
    pub prefix: String,
    pub seen: OnceCell<BTreeMap<Key, Version>>,
}

/// The version of an object that was current at that time.
#[derive(Clone)]
pub struct Version {
    pub id: String,
    bytes: u64,
    e_tag: Option<String>,
    modified: i64,
}

/// An entry of a listing: a version of a key, or a delete marker.
pub(crate) struct Entry {
    pub key: String,
    pub modified: i64,
    /// The position in the listing, which has the newest entry first.
    pub turn: usize,
    pub version: Option<Version>,
}

impl Past {
    /// The objects below a prefix at a time in the past.
    pub fn new(at: i64, prefix: &str) -> Self {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Past { at, prefix, seen: OnceCell::new() }
    }
}

pub(crate) const ODD: &str = "the listing of versions is invalid";

impl Version {
    /// The metadata that a present listing would return.
    pub(crate) fn meta(&self, key: &Key) -> ObjectMeta {
        ObjectMeta {
            location: key.clone(),
            last_modified: std::time::SystemTime::UNIX_EPOCH
                .checked_add(std::time::Duration::from_secs(self.modified.max(0) as u64))
                .unwrap_or(std::time::SystemTime::UNIX_EPOCH)
                .into(),
            size: self.bytes,
            e_tag: self.e_tag.clone(),
            version: Some(self.id.clone()),
        }
    }
}

/// The entries of a page; `None` if the text is not a page of versions.
pub(crate) fn entries(page: &str, before: usize) -> Option<Vec<Entry>> {
    let mut found = Vec::new();
    let mut rest = page;
    loop {
        let version = rest.find("<Version>");
        let mark = rest.find("<DeleteMarker>");
        let (at, tag) = match (version, mark) {
            (None, None) => return Some(found),
            (Some(at), None) => (at, "Version"),
            (None, Some(at)) => (at, "DeleteMarker"),
            (Some(one), Some(other)) => {
                if one < other {
                    (one, "Version")
                } else {
                    (other, "DeleteMarker")
                }
            }
        };
        let (inner, behind) = rest.get(at + tag.len() + 2..)?.split_once(&format!("</{tag}>"))?;
        rest = behind;
        let (id, modified) = (tagged(inner, "VersionId")?, tagged(inner, "LastModified")?);
        let modified = made_at(&id, utc::read(&modified)?);
        let version = match tag {
            "Version" => Some(Version {
                id,
                bytes: tagged(inner, "Size")?.parse().ok()?,
                e_tag: tagged(inner, "ETag"),
                modified,
            }),
            _ => None,
        };
        let turn = before + found.len();
        found.push(Entry { key: tagged(inner, "Key")?, modified, turn, version });
    }
}

/// When a version was created, in seconds since 1970. S3 reports this time directly. For an old
/// version, versitygw reports when it was superseded; but its version ids are ULIDs, which begin
/// with the time of creation.
fn made_at(id: &str, modified: i64) -> i64 {
    const DIGITS: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let digit = |c: char| DIGITS.find(c).map(|digit| digit as i64);
    let is_ulid =
        id.len() == 26 && id.starts_with(|c| c <= '7') && id.chars().all(|c| digit(c).is_some());
    if !is_ulid {
        return modified;
    }
    let millis = id.chars().take(10).filter_map(digit).fold(0_i64, |time, digit| time << 5 | digit);
    // An id in the form of a ULID may contain no time on other servers.
    let drawn = millis / 1000;
    if (modified - YEAR * 100..=modified + 60).contains(&drawn) && drawn > YEAR * 40 {
        drawn
    } else {
        modified
    }
}

const YEAR: i64 = 365 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_an_id_counts_where_there_is_one() {
        // 2016-07-30T23:54:10.259Z, from the specification of ULIDs.
        let ulid = "01ARYZ6S410000000000000000";
        assert_eq!(made_at(ulid, 1_800_000_000), 1_469_918_176);
        for (id, modified) in [
            ("null", 1_800_000_000),
            ("3/L4kqtJlcpXroDTDmJ+rmSpXd3dIbrHY+MTRCxf3vjVBH40Nr8X8gdRQBpUMLUo", 1_800_000_000),
            ("01arYZ6S410000000000000000", 1_800_000_000),
            // From after the version itself, or from long before there were such ids.
            (ulid, 1_400_000_000),
            ("00000000010000000000000000", 1_800_000_000),
            ("ZZZZZZZZZZZZZZZZZZZZZZZZZZ", 1_800_000_000),
        ] {
            assert_eq!(made_at(id, modified), modified, "{id}");
        }
    }

    #[test]
    fn a_page_of_versions_is_read() {
        let page = "<ListVersionsResult><Version><Key>a&amp;b</Key><VersionId>v2</VersionId>\
            <LastModified>2026-11-25T10:00:00.000Z</LastModified><ETag>&quot;x&quot;</ETag>\
            <Size>7</Size></Version><DeleteMarker><Key>c</Key><VersionId>m</VersionId>\
            <LastModified>2026-11-25T10:00:01Z</LastModified></DeleteMarker></ListVersionsResult>";
        let found = entries(page, 5).unwrap();
        assert_eq!((found.len(), found[0].turn, found[1].turn), (2, 5, 6));
        let version = found[0].version.as_ref().unwrap();
        assert_eq!((&*found[0].key, &*version.id, version.bytes), ("a&b", "v2", 7));
        assert_eq!(version.e_tag.as_deref(), Some("\"x\""));
        assert!(found[1].version.is_none());
        assert_eq!(found[1].modified, found[0].modified + 1);
        for odd in [
            page.replace("</Version>", ""),
            page.replace("10:00:00.000Z", "soon"),
            page.replace("<Size>7</Size>", ""),
            page.replace("<Size>7", "<Size>-7"),
        ] {
            assert!(entries(&odd, 0).is_none(), "{odd}");
        }
        assert!(entries("<ListVersionsResult></ListVersionsResult>", 0).unwrap().is_empty());
    }
}
