//! The register of arrays that this user sees.

use std::env;
use std::path::PathBuf;

use pinstripe_array::ops::Register;
use pinstripe_base::error::Result;

use crate::xdg;

/// The register of arrays by name: for root in the system's directories, for others in their own.
///
/// # Errors
/// Without a home.
pub fn register() -> Result<Register> {
    let is_root = rustix::process::geteuid().is_root();
    let own = |variable| env::var_os(variable).map(PathBuf::from).filter(|it| it.is_absolute());
    let state = match own("XDG_STATE_HOME") {
        None if is_root => PathBuf::from("/var/lib/pinstripe"),
        _ => xdg::state()?,
    };
    let runtime = match own("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("pinstripe"),
        None if is_root && own("XDG_STATE_HOME").is_none() => PathBuf::from("/run/pinstripe"),
        None => state.join("run"),
    };
    Ok(Register::new(state.join("arrays"), runtime))
}
