//! The checks before a device is overwritten: the device must be free, and must be the intended
//! one.

use std::io::{IsTerminal, Write};
use std::path::Path;

use pinstripe_base::error::{Error, Result};
use pinstripe_base::units::format_size;
use pinstripe_lab::{Consent, examine_places};

use crate::escape;

/// Confirms that a device may be overwritten; asks for its serial number at a terminal unless it
/// was given.
///
/// # Errors
/// Fails with [`Kind::Refused`](pinstripe_base::error::Kind::Refused), with the reasons.
pub fn ask(device: &Path, consent: Consent<'_>) -> Result<()> {
    let examined = examine_places(device)?;
    let is_asked = consent.serial.is_none()
        && examined.allow_to_ask(consent).is_ok()
        && std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal();
    if !is_asked {
        return examined.allow(consent);
    }
    let place = escape::path(device);
    let size = format_size(examined.bytes);
    let question =
        format!("{place} ({size}) will be overwritten. Type its serial number to continue: ");
    let mut typed = String::new();
    let answered = std::io::stderr()
        .write_all(question.as_bytes())
        .and_then(|()| std::io::stdin().read_line(&mut typed));
    answered.map_err(|error| Error::io("cannot ask for the serial number of", device, error))?;
    examined.allow(Consent { serial: Some(&typed), ..consent })
}

/// Checks a device as [`ask`] does, without asking. Returns whether the serial number must be
/// typed.
///
/// # Errors
/// Fails with [`Kind::Refused`](pinstripe_base::error::Kind::Refused) if the device must never be
/// overwritten, or if another serial number was given.
pub fn check(device: &Path, consent: Consent<'_>) -> Result<bool> {
    examine_places(device)?.allow_to_ask(consent)?;
    Ok(consent.serial.is_none())
}
