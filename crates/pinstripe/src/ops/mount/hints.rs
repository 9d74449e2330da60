//! What programs say of their reads.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_prefetch::planner::Hint;

/// Reads a hint: the extended attribute `user.pinstripe.read`.
///
/// # Errors
/// [`Kind::Unsupported`] for other attributes, [`Kind::Usage`] for what is no hint.
pub(super) fn parse(name: &[u8], value: &[u8]) -> Result<(Hint, u64)> {
    pinstripe_prefetch::hint::parse(name, value).map_err(|refused| match refused {
        None => Error::new(Kind::Unsupported, "the file system is read-only"),
        Some(why) => Error::new(Kind::Usage, why),
    })
}
