//! `pinstripe join`: restores the source from the outputs of `split`.

use std::fs;
use std::io::IsTerminal;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::hex;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::format_size;
use pinstripe_io::device::{Access, Device, FileDevice, Policy};
use pinstripe_split::{
    JoinOptions, JoinTarget, Joined, Reader, join, open_outputs, require_complete,
};

use crate::args::refuse_option;
use crate::args::{parsed, range};
use crate::event::Event;
use crate::run::progress::Gauge;
use crate::run::{Ending, Run};
use crate::system;
use crate::time;
use crate::verbs::array::signature;

/// Join the outputs of 'pinstripe split' to restore the source
///
/// The outputs may be given in any order. With parity P, any P outputs may be missing or damaged.
/// Each block is compared with its checksum, and the complete result is compared with the BLAKE3
/// hash of the source. Holes of the source become holes of the restored file.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe join /mnt/?/disk.img.split-* -o disk.img
  pinstripe join /mnt/a/pool /mnt/b/pool | zfs receive pool/back
  pinstripe join a b c d -o part --range 10G..11G
  pinstripe join a b d -o rescued.img --best-effort     # c is lost, and there is no parity")]
pub struct JoinArgs {
    /// Outputs of one split
    #[arg(value_name = "OUT", required = true, value_hint = clap::ValueHint::FilePath)]
    outputs: Vec<PathBuf>,

    /// Where to write: a file, a block device, or '-' for standard output
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// Write only the bytes from A to B (B excluded) of the source, for example 1G..2G, 4096.. or
    /// ..1M
    #[arg(long, value_name = "A..B", value_parser = range)]
    range: Option<crate::args::ByteRange>,

    /// Write zeros in place of lost bytes, report the lost bytes, and continue
    #[arg(long)]
    best_effort: bool,

    /// Overwrite an existing file, or a device that contains a file system or other known data
    #[arg(long)]
    force: bool,

    /// Write policy for the output file: a value of 'pinstripe split --policy'
    #[arg(long, value_name = "NAME", default_value = "direct", value_parser = parsed::<Policy>)]
    policy: Policy,
}

impl JoinArgs {
    /// Joins.
    ///
    /// # Errors
    /// Fails with the errors of [`join()`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        refuse_option(
            !run.common.store.is_empty(),
            "--store",
            "give the outputs of 'pinstripe split'",
        )?;
        let (outputs, remote) = (run.each_place(&self.outputs)?, run.remote_outputs());
        let faults = run.common.device_faults()?;
        let reader = open_outputs(&outputs, remote.as_deref(), &faults, &run.monitor)?;
        let range = self.range.map(|it| it.resolve(reader.source_bytes()));
        let options = JoinOptions {
            range,
            best_effort: self.best_effort,
            workers: run.common.threads.map_or_else(system::cores, |threads| threads as usize),
        };
        require_complete(&reader, self.best_effort)?;
        let joined = match self.output == Path::new("-") {
            true => to_stdout(run, &reader, &options)?,
            false => self.to_file(run, &reader, &options)?,
        };
        Ok(Ending::done(facts(&reader, &joined)))
    }

    fn to_file(&self, run: &Run, reader: &Reader, options: &JoinOptions) -> Result<Joined> {
        // A device or pipe is written directly: a new file must not replace its name.
        let is_device = fs::metadata(&self.output).is_ok_and(|it| !it.is_file());
        if !is_device && self.output.exists() && !self.force {
            return Err(Error::new(Kind::Exists, "the file already exists")
                .at(&self.output)
                .advice(
                    "nothing was written; give another file, or overwrite the existing file with \
                     --force",
                ));
        }
        for output in &self.outputs {
            if is_same_file(output, &self.output) {
                return Err(Error::new(Kind::Usage, "the file is one of the outputs of the split")
                    .at(&self.output)
                    .advice("nothing was written; give another file"));
            }
        }
        let range = options.range.clone().unwrap_or(0..reader.source_bytes());
        let (path, access) = match is_device {
            true => (self.output.clone(), Access::Write),
            false => (unfinished(&self.output), Access::Create),
        };
        let device = Arc::new(FileDevice::open(&path, access, self.policy)?);
        if device.caps().is_block_device {
            refuse_disk(&device, range.end - range.start, self.force)?;
        }
        let written = self.write(run, reader, options, &device, is_device, &range);
        let joined = match written {
            Ok(joined) => joined,
            Err(error) => {
                if !is_device {
                    let _ = fs::remove_file(&path);
                }
                return Err(error);
            }
        };
        if !is_device {
            let failed = |error| Error::io("cannot rename the completed file", &self.output, error);
            fs::rename(&path, &self.output).map_err(failed)?;
        }
        let bytes = range.end - range.start;
        run.screen.say(&format!(
            "joined {} into {} in {}, {}",
            format_size(bytes),
            self.output.display(),
            time::span(run.elapsed()),
            time::rate(bytes, run.elapsed()),
        ));
        Ok(joined)
    }

    fn write(
        &self,
        run: &Run,
        reader: &Reader,
        options: &JoinOptions,
        device: &Arc<FileDevice>,
        is_device: bool,
        range: &Range<u64>,
    ) -> Result<Joined> {
        if !is_device {
            device.set_len(0)?;
            device.set_len(range.end - range.start)?;
        }
        let ticker = run.ticker(GAUGE);
        let target = JoinTarget::Device { device: Arc::clone(device).into(), is_blank: !is_device };
        let joined = join(reader, options, target, &run.monitor)?;
        device.sync()?;
        drop(ticker);
        Ok(joined)
    }
}

/// Writes the source to standard output, in order.
pub fn to_stdout(run: &Run, reader: &Reader, options: &JoinOptions) -> Result<Joined> {
    refuse_option(
        run.common.json,
        "--json",
        "standard output is used for the content: give a file with -o",
    )?;
    let ticker = (!std::io::stdout().is_terminal()).then(|| run.ticker(GAUGE));
    let screen = Arc::clone(&run.screen);
    let mut write = move |bytes: &[u8]| screen.content(bytes);
    let joined = join(reader, options, JoinTarget::Stream(&mut write), &run.monitor)?;
    drop(ticker);
    Ok(joined)
}

/// Refuses a disk that is too short, or that carries known content, before the first byte is
/// written.
fn refuse_disk(device: &FileDevice, bytes: u64, force: bool) -> Result<()> {
    let len = device.len()?;
    if len < bytes {
        return Err(Error::new(Kind::NoSpace, "the device is too small")
            .at(device.place())
            .expected(format!("{bytes} bytes or more"), len)
            .advice(
                "nothing was written; give a larger device, or choose a part of the source with \
                 --range",
            ));
    }
    match signature(device)? {
        Some(found) if !force => {
            Err(Error::new(Kind::Refused, format!("the device contains {found}"))
                .at(device.place())
                .advice(
                    "nothing was written; give another device, or overwrite this one with --force",
                ))
        }
        _ => Ok(()),
    }
}

/// The temporary name of a file that is not complete.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    name.into()
}

fn is_same_file(left: &Path, right: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (fs::metadata(left), fs::metadata(right)) {
        (Ok(left), Ok(right)) => (left.dev(), left.ino()) == (right.dev(), right.ino()),
        _ => false,
    }
}

/// The facts for the summary event.
pub fn facts(reader: &Reader, joined: &Joined) -> Event {
    let lost: u64 = joined.lost.iter().map(|it| it.end - it.start).sum();
    Event::default()
        .with("split", reader.head().split.to_string())
        .with("source_bytes", reader.source_bytes())
        .with("missing_outputs", reader.missing().len() as u64)
        .with("healed_batches", joined.healed)
        .with("lost_bytes", lost)
        .with_some("blake3", joined.blake3.map(|it| hex(&it)))
}

/// The progress of writing content.
pub const GAUGE: Gauge = Gauge {
    label: "joining",
    done_bytes: |monitor| monitor.get(Counter::RestoredBytes),
    passes: 1,
};
