//! `pinstripe hint`: announces reads to a mount or an overlay.

use std::fs::File;
use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_fuse::send_hint;
use pinstripe_prefetch::parse_hint;

use crate::event::Event;
use crate::run::{Ending, Run};

/// Tell 'pinstripe mount' or 'pinstripe overlay' in which order a file will be read
///
/// Read-ahead detects a fixed stride by itself within three reads. With a hint, read-ahead starts
/// at the first read, and also works for reads without a fixed stride. Sizes are in bytes, or have
/// a unit: K, M, G or T. A wrong hint only costs memory for a short time. Programs can send hints
/// by an ioctl, which doc/read-back.md describes.
#[derive(clap::Args)]
#[command(after_long_help = "\
Hints:
  sequential [OFFSET]               reads are sequential, beginning at OFFSET
  stride LENGTH DISTANCE [OFFSET]   read LENGTH bytes every DISTANCE bytes (-DISTANCE: backwards)
  will-need OFFSET LENGTH ...       prefetch these ranges immediately, if there is enough memory
  random                            reads have no pattern: prefetch nothing
  dont-need                         discard prefetched data

Examples:
  pinstripe hint /mnt/fast/disk.img stride 4M 68M
  pinstripe hint /mnt/fast/disk.img stride 4M -68M 1T
  pinstripe hint /mnt/backups/latest/db.sqlite will-need 0 1M 4G 1M")]
pub struct HintArgs {
    /// A file below a mountpoint of 'pinstripe mount' or 'pinstripe overlay'
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// One of the hints that 'pinstripe hint --help' lists
    #[arg(value_name = "HINT", required = true, allow_hyphen_values = true, num_args = 1..)]
    hint: Vec<String>,
}

impl HintArgs {
    /// Sends the hint.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for an unknown hint, [`Kind::Unsupported`] for a file that
    /// accepts no hints.
    pub fn run(&self, _: &Run) -> Result<Ending> {
        let hint = self.hint.join(" ");
        parse_hint(hint.as_bytes())
            .map_err(|wrong| wrong.advice("'pinstripe hint --help' lists the hints"))?;
        let file = File::open(&self.file)
            .map_err(|error| Error::of_named("cannot be opened", &self.file, error))?;
        send_hint(&file, &hint).map_err(|error| {
            let is_other = error.kind() == Kind::Unsupported;
            let error = error.at(&self.file);
            match is_other {
                true => error.advice(
                    "give a file below the mountpoint of 'pinstripe mount' or 'pinstripe overlay'",
                ),
                false => error,
            }
        })?;
        Ok(Ending::done(Event::default().with_path("file", &self.file)))
    }
}
