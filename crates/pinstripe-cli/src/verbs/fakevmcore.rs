//! `pinstripe fakevmcore`: made-up bytes as a file, for whatever is to be tried on a huge one.

use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_base::error::Result;
use pinstripe_base::units::format_size;
use pinstripe_nbd::fuse::{DeviceMount, MountOptions};
use pinstripe_split::source::{Fake, FakeSpec, Millionths, SourceDevice};

use crate::args::{Size, one_line, size};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;
use crate::system;

/// The file's name.
const NAME: &str = "vmcore";

/// Mount a huge generated file in a directory, for testing programs
///
/// Mounts a file system with one read-only file, vmcore, which takes no space: its bytes are
/// generated when they are read, and are the same for the same options. Runs until the file system
/// is unmounted or an interrupt. 'pinstripe split' reads the same bytes without a file system as
/// fake:SIZE.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe fakevmcore /mnt/fake --size 1T --block-size 64K
  pinstripe fakevmcore /mnt/fake --size 100G --block-size 4K --zero 40% --entropy 0.5 --seed 7
  head -c 1G /mnt/fake/vmcore | sha256sum
  fusermount3 -u /mnt/fake")]
pub struct FakevmcoreArgs {
    /// An empty directory; the file appears in it while this runs
    #[arg(value_name = "MOUNTPOINT", value_hint = clap::ValueHint::DirPath)]
    mountpoint: PathBuf,

    /// Size of the file, as in 100G or 1T
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Size,

    /// Bytes of a block: a power of two from 512 to 16M
    ///
    /// No two blocks are equal, except blocks of zeros.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = Size(4096))]
    block_size: Size,

    /// Seed: another number gives other bytes
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Share of blocks that are all zeros, as in 40% or 0.4
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0%")]
    zero: Millionths,

    /// Share of random bytes in each other block, as in 50% or 0.5; the rest is words
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "100%")]
    entropy: Millionths,

    /// Bypass the page cache, so that every read generates the bytes again
    #[arg(long)]
    direct_io: bool,
}

fn share(text: &str) -> Result<Millionths, String> {
    text.parse().map_err(one_line)
}

impl FakevmcoreArgs {
    /// Shows the file until it is over.
    ///
    /// # Errors
    /// Those of [`Fake::new`], [`DeviceMount::new`] and [`DeviceMount::serve`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let spec = FakeSpec {
            bytes: self.size.0,
            block_bytes: self.block_size.0,
            seed: self.seed,
            zero: self.zero,
            entropy: self.entropy,
        };
        let device = SourceDevice::new(Box::new(Fake::new(spec)?))?;
        let threads = run.common.threads.map_or_else(system::cores, |threads| threads as usize);
        let options = MountOptions {
            name: NAME.to_owned(),
            threads,
            is_read_only: true,
            may_change: self.direct_io,
        };
        let stop = signals::catch()?;
        let mount = DeviceMount::new(Arc::new(device), &self.mountpoint, &options)?;
        let event = Event::new("mounted").with_path("path", mount.file());
        run.screen.event(&event.with("bytes", spec.bytes).with("spec", spec.to_string()))?;
        run.screen.say(&format!(
            "{} of {spec} at {} until it is unmounted, or an interrupt",
            format_size(spec.bytes),
            escape::path(mount.file()),
        ));
        run.screen.flush();
        mount.serve(stop)?;
        Ok(Ending::done(Event::default().with("bytes", spec.bytes)))
    }
}
