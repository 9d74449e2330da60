//! Before a device is overwritten: is it free, and is it the one that is meant?

use std::io::{IsTerminal, Write};
use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;
use pinstripe_lab::safety::{Consent, SafetyReport, examine};

use crate::escape;

/// Makes sure of a device; its serial number is asked for at a terminal unless it was given.
///
/// # Errors
/// [`Kind::Refused`] with the reasons.
pub fn ask(device: &Path, consent: Consent<'_>) -> Result<()> {
    let examined = examine(device)?;
    let is_asked = consent.serial.is_none()
        && passes_but_for_its_number(&examined, consent)
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
    answered.map_err(|error| Error::io("cannot ask about", device, error))?;
    examined.allow(Consent { serial: Some(&typed), ..consent })
}

/// Looks at a device as [`ask`] does, without asking: what would be needed is told.
///
/// # Errors
/// [`Kind::Refused`] when it must not be touched whatever serial number is typed.
pub fn look(device: &Path, consent: Consent<'_>) -> Result<SafetyReport> {
    let examined = examine(device)?;
    match passes_but_for_its_number(&examined, consent) {
        true => Ok(examined),
        false => Err(examined
            .allow(consent)
            .err()
            .unwrap_or_else(|| Error::new(Kind::Refused, "must not be overwritten").at(device))),
    }
}

/// Whether nothing speaks against it but a serial number that is still to be typed.
fn passes_but_for_its_number(examined: &SafetyReport, consent: Consent<'_>) -> bool {
    let is_blank = examined.written_at.is_none() || consent.overwrite_unknown;
    examined.objections.is_empty() && is_blank
}
