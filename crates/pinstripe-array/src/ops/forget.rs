//! Forgetting the name of an array: the register loses its entry, the devices are not changed.

use super::Register;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::control::Control;

/// The register's data about an array that was forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgotten {
    /// The devices of the array; the list is empty if the entry could not be read.
    pub devices: Vec<std::path::PathBuf>,
    /// The number of settings that were only in the register.
    pub settings: usize,
}

/// Removes the entry of an array, even an unreadable one. The devices are not changed.
///
/// # Errors
/// Fails with [`Kind::NotFound`] for an unknown name; with [`Kind::Busy`] while a process serves
/// the array.
pub fn forget(name: &str, register: &Register) -> Result<Forgotten> {
    super::register::check_name(name)?;
    if !register.has(name) {
        // Its error has the advice.
        register.read(name)?;
    }
    // Held until the entry is removed, so that no process begins to serve the array meanwhile.
    let held = Control::bind(&register.socket(name)?).map_err(|error| match error.kind() {
        Kind::Busy => Error::new(Kind::Busy, format!("array '{name}' is served"))
            .advice(format!("first stop the array with 'pinstripe array stop {name}'")),
        _ => error,
    })?;
    let known = register.read(name).ok();
    register.remove(name)?;
    drop(held);
    Ok(Forgotten {
        settings: known.as_ref().map_or(0, |it| it.settings.len()),
        devices: known.map(|it| it.devices).unwrap_or_default(),
    })
}
