//! The signature that blkid(8) finds on a device, if blkid is installed: it knows formats that
//! pinstripe's own table does not contain.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};

/// Directories in which blkid may be installed; the library does not read `PATH`.
const PLACES: [&str; 6] = [
    "/usr/sbin/blkid",
    "/sbin/blkid",
    "/usr/bin/blkid",
    "/bin/blkid",
    "/usr/local/sbin/blkid",
    "/run/current-system/sw/bin/blkid",
];
/// The time after which blkid is killed; a device that does not respond within this time counts as
/// not examined.
const LONGEST: Duration = Duration::from_secs(30);
const PERIOD: Duration = Duration::from_millis(5);

/// Returns the signature that blkid finds; `None` if it finds nothing, or is not installed.
///
/// # Errors
/// Fails if blkid cannot examine the device, or does not end in time.
pub(super) fn probe(device: &Path) -> Result<Option<String>> {
    let Some(program) = PLACES.iter().map(PathBuf::from).find(|it| it.is_file()) else {
        return Ok(None);
    };
    let failed = |error| Error::io("cannot run", &program, error);
    let mut child = Command::new(&program)
        .args(["-p", "-o", "export"])
        .arg(device)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    // What it prints fits into the pipe, so that it ends without being read.
    let until = Instant::now() + LONGEST;
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if Instant::now() > until => {
                let _ = child.kill();
                let what = "blkid has not ended within 30 seconds";
                return Err(Error::new(Kind::Unanswered, what).at(device));
            }
            None => thread::sleep(PERIOD),
        }
    };
    let mut printed = Vec::new();
    if let Some(out) = &mut child.stdout {
        out.read_to_end(&mut printed).map_err(failed)?;
    }
    said(status.code(), &String::from_utf8_lossy(&printed))
        .map_err(|what| Error::new(Kind::Io, what).at(device))
}

/// Interprets blkid's exit code and its lines of `KEY=value`.
fn said(code: Option<i32>, printed: &str) -> std::result::Result<Option<String>, String> {
    match code {
        Some(0) => {
            let value = |key: &str| {
                let mut lines = printed.lines().filter_map(|it| it.split_once('='));
                lines.find(|(name, _)| *name == key).map(|(_, value)| value.replace('\\', ""))
            };
            let kind = value("TYPE").map(|it| format!("a signature '{it}'"));
            let table = || value("PTTYPE").map(|it| format!("a partition table '{it}'"));
            Ok(kind.or_else(table).map(|it| format!("{it}, according to blkid")))
        }
        Some(2) => Ok(None),
        Some(8) => {
            Ok(Some("several signatures that contradict each other, according to blkid".to_owned()))
        }
        Some(code) => Err(format!("blkid ended with exit code {code}")),
        None => Err("blkid was killed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_answers_are_understood() {
        let ext4 = "DEVNAME=/dev/x\nUUID=1\nBLOCK_SIZE=4096\nTYPE=ext4\nUSAGE=filesystem\n";
        let table = "DEVNAME=/dev/x\nPTUUID=1\nPTTYPE=gpt\n";
        // A part of a disk, of which only the entry in the disk's table is told.
        let part = "DEVNAME=/dev/x1\nPART_ENTRY_SCHEME=gpt\nPART_ENTRY_TYPE=0fc63daf\n";
        for (code, printed, wanted) in [
            (0, ext4, Some("a signature 'ext4', according to blkid")),
            (0, table, Some("a partition table 'gpt', according to blkid")),
            (0, part, None),
            (2, "", None),
        ] {
            assert_eq!(said(Some(code), printed).unwrap().as_deref(), wanted, "{printed}");
        }
        assert!(said(Some(8), "").unwrap().is_some());
        assert!(said(Some(4), "").is_err() && said(None, "").is_err());
    }
}
