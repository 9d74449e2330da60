//! `pinstripe array create`.

use std::path::PathBuf;

use clap::ValueHint;
use clap::builder::PossibleValuesParser;
use pinstripe_array::{CreateRequest, Knob, Layout, Level, chunk_bytes_of, consistency_of, create};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::{KIB, MIB, format_size};

use super::register::register;
use crate::args::{Size, one_line, parsed, size};
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};

/// Create an array on files or disks
///
/// All existing data on the given files and disks is lost. Without --force, a device that contains
/// a file system, a volume or a member of another array is refused. A device that is in use is
/// always refused.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array create pool --level 5 --raid-devices 3 --size 1G a.img b.img c.img
  pinstripe array create pool -l 6 -n 4 -c 64 /dev/sdb /dev/sdc /dev/sdd /dev/sde
  pinstripe array create pool -l 10 -n 4 -p f2 /dev/sdb /dev/sdc /dev/sdd /dev/sde")]
pub struct ArrayCreateArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,

    /// RAID level: 0, 1, 4, 5, 6 or 10
    #[arg(long, short, value_name = "LEVEL", value_parser = parsed::<Level>)]
    level: Level,

    /// Number of members; the first N of the given devices become the members, in the given order
    #[arg(long, short = 'n', value_name = "N")]
    raid_devices: usize,

    /// Number of spares, which replace failed members; in the list of devices, the spares follow
    /// the members
    #[arg(long, short = 'x', value_name = "N", default_value_t = 0)]
    spare_devices: usize,

    /// Chunk size, as a number of KiB or with a unit, for example 64, 64K or 1M
    #[arg(long, short, value_name = "SIZE", value_parser = chunk, default_value_t = Size(512 * KIB))]
    chunk: Size,

    /// Layout: la, ra, ls, rs, parity-first or parity-last for level 5 and 6; n2, f2 or o2, or the
    /// same letters with another number of copies, for level 10 [default: ls for level 5 and 6, n2
    /// for level 10]
    #[arg(long, short = 'p', value_name = "LAYOUT")]
    layout: Option<String>,

    /// Create each device that does not exist as a file of this size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<Size>,

    /// Size of the array log on each member [default: 1/64 of the member, at most 64M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    log_size: Option<Size>,

    /// How parity becomes consistent again after a power cut: log (the array log is replayed),
    /// bitmap (the regions that were being written are resynced) or none (the complete array is
    /// resynced)
    #[arg(long, short = 'k', value_name = "POLICY", default_value = "log",
          value_parser = PossibleValuesParser::new(["log", "bitmap", "none"]))]
    consistency_policy: String,

    /// Granule (the size to which small writes are widened): auto, or a power of two from 4K to 1M
    ///
    /// 'pinstripe array set' can change the granule (stripe_size) while the array is in use.
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = granule)]
    stripe_size: Granule,

    /// Overwrite any data on the devices, and remove another array of the same name from the
    /// register of arrays
    #[arg(long)]
    force: bool,

    /// Files or disks: the members, followed by the spares; the word 'missing' leaves the slot of a
    /// member empty
    #[arg(value_name = "DEVICE", required = true, value_hint = ValueHint::FilePath)]
    devices: Vec<PathBuf>,
}

fn chunk(text: &str) -> std::result::Result<Size, String> {
    chunk_bytes_of(text).map(Size).map_err(one_line)
}

/// The unit of small writes; `None` adapts the unit to the writes.
#[derive(Debug, Clone, Copy)]
struct Granule(Option<u32>);

/// Reads a granule in the form of `array set`.
fn granule(text: &str) -> std::result::Result<Granule, String> {
    match Knob::parse("stripe_size", text).map_err(one_line)? {
        Knob::Granule(granule) => Ok(Granule(granule)),
        _ => Err("the stripe size must be auto, or a power of two from 4K to 1M".to_owned()),
    }
}

impl ArrayCreateArgs {
    /// Makes it.
    ///
    /// # Errors
    /// Fails with the errors of [`create`]; with [`Kind::Usage`] when the number of devices is
    /// wrong.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let wanted = self.raid_devices.saturating_add(self.spare_devices);
        if self.devices.len() != wanted {
            return Err(Error::new(
                Kind::Usage,
                "the number of given devices differs from the number of members and spares",
            )
            .expected(wanted, self.devices.len())
            .advice(
                "give one device for each member and each spare; write 'missing' for an absent \
                 member",
            ));
        }
        let (members, spares) = self.devices.split_at(self.raid_devices);
        let is_missing = |path: &PathBuf| path.as_os_str() == "missing";
        if spares.iter().any(is_missing) {
            return Err(Error::new(Kind::Usage, "a spare device cannot be 'missing'"));
        }
        let layout = match &self.layout {
            Some(text) => Layout::parse(self.level, text)?,
            None => Layout::default_of(self.level),
        };
        let wish = CreateRequest {
            name: self.name.clone(),
            level: self.level,
            layout,
            chunk_bytes: self.chunk.0,
            log_bytes: self.log_size.map(|size| size.0.next_multiple_of(MIB)),
            consistency: consistency_of(&self.consistency_policy)?,
            granule: self.stripe_size.0,
            members: members
                .iter()
                .map(|it| Some(it.clone()).filter(|it| !is_missing(it)))
                .collect(),
            spares: spares.to_vec(),
            file_bytes: self.size.map(|size| size.0),
            force: self.force,
        };
        let plan = run.common.device_faults()?;
        let made = create(&wish, &register()?, &plan, &run.monitor)?;
        run.screen.say(&format!(
            "created array {}: {} with {} and {} for data",
            made.name,
            self.level,
            counted(self.raid_devices as u64, "device"),
            format_size(made.capacity_bytes)
        ));
        Ok(Ending::done(Event::default().with_fields(&made)))
    }
}
