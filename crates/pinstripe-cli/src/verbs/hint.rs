//! `pinstripe hint`: tells a mount or an overlay what will be read.

use std::fs::File;
use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_fuse::send_hint;
use pinstripe_prefetch::hint::parse;

use crate::event::Event;
use crate::run::{Ending, Run};

/// Tell 'mount' or 'overlay' how a file will be read
///
/// Read-ahead finds fixed strides by itself within three reads; a hint spares these, and serves
/// what has no stride. Sizes are bytes, with K, M, G or T. A hint that is wrong costs memory for a
/// short while and no more. Any program can send one by an ioctl, as doc/read-back.md tells.
#[derive(clap::Args)]
#[command(after_long_help = "\
Hints:
  sequential [OFFSET]               in order from there on
  stride LENGTH DISTANCE [OFFSET]   records, DISTANCE from one beginning to the next, or -DISTANCE
  will-need OFFSET LENGTH ...       these ranges; as many as the memory holds are fetched at once
  random                            nothing is foreseeable: fetch nothing ahead
  dont-need                         drop what was fetched ahead

Examples:
  pinstripe hint /mnt/fast/disk.img stride 4M 68M
  pinstripe hint /mnt/fast/disk.img stride 4M -68M 1T
  pinstripe hint /mnt/backups/latest/db.sqlite will-need 0 1M 4G 1M")]
pub struct HintArgs {
    /// A file of a mount or an overlay
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// What will be read
    #[arg(value_name = "HINT", required = true, allow_hyphen_values = true, num_args = 1..)]
    hint: Vec<String>,
}

impl HintArgs {
    /// Passes it on.
    ///
    /// # Errors
    /// [`Kind::Usage`] for what is no hint, [`Kind::Unsupported`] for a file that takes none.
    pub fn run(&self, _: &Run) -> Result<Ending> {
        let hint = self.hint.join(" ");
        parse(hint.as_bytes())
            .map_err(|wrong| wrong.advice("'pinstripe hint --help' lists the hints"))?;
        let file = File::open(&self.file)
            .map_err(|error| Error::io("cannot be opened", &self.file, error))?;
        send_hint(&file, &hint).map_err(|error| {
            let is_other = error.kind() == Kind::Unsupported;
            let error = error.at(&self.file);
            match is_other {
                true => error.advice("name a file below the mountpoint of 'mount' or 'overlay'"),
                false => error,
            }
        })?;
        Ok(Ending::done(Event::default().with_path("file", &self.file)))
    }
}
