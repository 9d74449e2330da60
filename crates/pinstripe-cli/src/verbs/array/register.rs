//! The register of arrays that this user sees.

use pinstripe_array::Register;
use pinstripe_base::error::Result;

use crate::xdg;

/// The register of arrays by name: for root in the system's directories, for others in their own.
///
/// # Errors
/// Without a home.
pub fn register() -> Result<Register> {
    Ok(Register::new(xdg::lasting()?.join("arrays"), xdg::runtime()?))
}
