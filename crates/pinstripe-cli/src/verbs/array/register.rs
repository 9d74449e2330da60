//! The register of arrays that this user sees.

use pinstripe_array::Register;
use pinstripe_base::error::Result;

use crate::xdg;

/// The register of arrays by name: root's is in the system's directories, that of others in the
/// user's directories.
///
/// # Errors
/// Fails without a home.
pub fn register() -> Result<Register> {
    Ok(Register::new(xdg::lasting()?.join("arrays"), xdg::runtime()?))
}
