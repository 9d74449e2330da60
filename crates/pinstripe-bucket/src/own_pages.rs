//! Reads pages of listings without the client.
//!
//! The client rejects an entire page if one key cannot be a path, such as `a/../b`. Keys that
//! cannot be paths are foreign: the store creates none, and they must not hide the store's own
//! keys.

use object_store::list::PaginatedListResult;
use object_store::path::Path as Key;
use object_store::{ListResult, ObjectMeta};

use crate::signed::{Ask, Signed, tagged};
use crate::utc;

impl Signed {
    /// The page after the one that returned `token`, with those keys that begin with a text and are
    /// paths.
    ///
    /// # Errors
    /// Fails with the errors of the endpoint; fails also for a malformed page.
    pub(crate) async fn own_page(
        &self,
        beginning: &str,
        token: Option<String>,
    ) -> object_store::Result<PaginatedListResult> {
        let mut query = vec![("list-type", "2".to_owned()), ("prefix", beginning.to_owned())];
        query.extend(token.map(|token| ("continuation-token", token)));
        let page = self.call(Ask { method: "GET", query, ..Ask::default() }).await?.text().await?;
        objects(&page).ok_or_else(|| object_store::Error::Generic {
            store: "S3",
            source: "an invalid listing".into(),
        })
    }
}

/// The objects of a page whose keys are paths; `None` if the text is not a page of a listing.
fn objects(page: &str) -> Option<PaginatedListResult> {
    let mut objects = Vec::new();
    let mut rest = page;
    while let Some((_, behind)) = rest.split_once("<Contents>") {
        let (inner, behind) = behind.split_once("</Contents>")?;
        rest = behind;
        let Ok(location) = Key::parse(tagged(inner, "Key")?) else { continue };
        let modified = u64::try_from(utc::read(&tagged(inner, "LastModified")?)?).ok()?;
        let modified = std::time::Duration::from_secs(modified);
        objects.push(ObjectMeta {
            location,
            last_modified: std::time::UNIX_EPOCH.checked_add(modified)?.into(),
            size: tagged(inner, "Size")?.parse().ok()?,
            e_tag: tagged(inner, "ETag"),
            version: None,
        });
    }
    let is_cut = tagged(page, "IsTruncated").is_some_and(|it| it == "true");
    // Without the next token the page would look like the last one.
    let page_token = match is_cut {
        true => Some(tagged(page, "NextContinuationToken")?),
        false => None,
    };
    let result =
        ListResult { common_prefixes: Vec::new(), objects, extensions: Default::default() };
    Some(PaginatedListResult { result, page_token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_no_paths_are_passed_over() {
        let object = |key: &str| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>2026-11-25T10:00:00.000Z</LastModified>\
                 <ETag>&quot;x&quot;</ETag><Size>7</Size></Contents>"
            )
        };
        let end = "<IsTruncated>true</IsTruncated><NextContinuationToken>n</NextContinuationToken>";
        let all = [object("p/a&amp;b"), object("p/../c"), object("p//d"), object("p/e")].concat();
        let page = format!("<ListBucketResult>{all}{end}</ListBucketResult>");
        let read = objects(&page).unwrap();
        let keys: Vec<_> = read.result.objects.iter().map(|it| it.location.as_ref()).collect();
        assert_eq!(keys, ["p/a&b", "p/e"]);
        assert_eq!((read.page_token.as_deref(), read.result.objects[0].size), (Some("n"), 7));
        assert_eq!(read.result.objects[0].e_tag.as_deref(), Some("\"x\""));
        for odd in [
            page.replace("</Contents>", ""),
            page.replace("<Size>7", "<Size>-7"),
            page.replace("NextContinuationToken", "Next"),
        ] {
            assert!(objects(&odd).is_none(), "{odd}");
        }
    }
}
