//! `pinstripe array examine`: the superblocks of devices, as `mdadm --examine` shows them.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_array::{
    Examined, FoundSuperblock, Layout, Level, MD_SECTOR_BYTES, MdRole, MdSuperblock,
    SPARE_POSITION, Slot, Superblock, consistency_text, examine, registered_devices,
    scan_devices as devices_scan,
};
use pinstripe_base::error::Result;
use pinstripe_base::id::hex;

use super::register::register;
use super::{scan, show};
use crate::args::Size;
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::time;

/// Show the superblocks that pinstripe or md has written to devices
///
/// The devices are only read, so a device that is in use can be examined as well.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array examine /dev/sdb /dev/sdc
  pinstripe array examine a.img --json
  pinstripe array examine --scan /dev/sd?")]
pub struct ArrayExamineArgs {
    /// Files or disks
    #[arg(value_name = "DEVICE", required_unless_present = "scan",
          value_hint = ValueHint::FilePath)]
    devices: Vec<PathBuf>,

    /// Print an ARRAY line for each array on the devices, as mdadm --examine --scan does; if no
    /// device is given, the devices of all registered arrays are examined
    #[arg(long, short)]
    scan: bool,
}

type Fields = Vec<(&'static str, String)>;

impl ArrayExamineArgs {
    /// Shows the superblocks, one after the other.
    ///
    /// # Errors
    /// Fails with the first of the errors of [`examine`], after all devices were shown.
    pub fn run(&self, run: &Run, is_verbose: bool) -> Result<Ending> {
        if self.scan {
            return self.run_scan(run, is_verbose);
        }
        let mut failed = None;
        for device in &self.devices {
            let examined = match examine(device) {
                Ok(examined) => examined,
                Err(error) => {
                    if let Some(error) = failed.replace(error) {
                        run.monitor.warning(device, error);
                    }
                    continue;
                }
            };
            let fields = match &examined.found {
                FoundSuperblock::Ours(superblock, readable) => ours(superblock, *readable)?,
                FoundSuperblock::Md(superblock) => of_md(superblock),
            };
            run.screen.event(&event(&examined))?;
            run.screen.row(&format!("{}:", escape::path(device)))?;
            for line in show::fields(&fields) {
                run.screen.row(&line)?;
            }
        }
        let facts = Event::default().with("devices", self.devices.len());
        failed.map_or(Ok(Ending::done(facts)), Err)
    }

    /// Shows each array that has a member on the devices, once.
    fn run_scan(&self, run: &Run, is_verbose: bool) -> Result<Ending> {
        let devices = match self.devices.is_empty() {
            true => registered_devices(&register()?)?,
            false => self.devices.clone(),
        };
        let found = devices_scan(&devices);
        for array in &found.arrays {
            run.screen.event(&scan::event(array))?;
            for line in scan::of_devices(array, is_verbose) {
                run.screen.row(&line)?;
            }
        }
        if found.arrays.is_empty() && found.failed.is_empty() {
            let searched = counted(devices.len() as u64, "device");
            run.monitor.note(&format!("no array was found on {searched}"));
        }
        let mut failures = scan::Failures::default();
        for (device, error) in found.failed {
            failures.report(run, device, error);
        }
        Ok(failures.ending(found.arrays.len() as u64))
    }
}

fn event(examined: &Examined) -> Event {
    let event = Event::new("superblock").with_path("path", &examined.path);
    let event = event.with("bytes", examined.bytes);
    match &examined.found {
        FoundSuperblock::Ours(it, readable) => event
            .with("metadata", "pinstripe")
            .with("array", it.array.to_string())
            .with("name", &*it.name)
            .with("member", it.member.to_string())
            .with("slot", (it.slot != SPARE_POSITION).then_some(it.slot))
            .with("generation", it.generation)
            .with("level", it.level)
            .with("slots", it.slots.len())
            .with("chunk_bytes", it.chunk_bytes)
            .with("member_bytes", it.data_bytes)
            .with("is_clean", it.is_clean)
            .with("copies", *readable),
        FoundSuperblock::Md(it) => event
            .with("metadata", format!("md {}", it.device.place.version))
            .with("array", hex(&it.array.set_uuid))
            .with("name", it.name())
            .with("member", hex(&it.device.uuid))
            .with("slot", role(it).1)
            .with("generation", it.state.events)
            .with("level", it.array.level)
            .with("slots", it.array.members)
            .with("chunk_bytes", u64::from(it.array.chunk_sectors) * MD_SECTOR_BYTES)
            .with("member_bytes", it.array.size_sectors * MD_SECTOR_BYTES)
            .with("is_clean", it.is_clean()),
    }
}

fn ours(it: &Superblock, readable: usize) -> Result<Fields> {
    let level = Level::from_number(it.level.into())?;
    let role = match it.slot {
        SPARE_POSITION => "spare".to_owned(),
        slot => format!("Active device {slot}"),
    };
    let letter = |slot: &Slot| match slot {
        Slot::Present(_) => 'A',
        Slot::Rebuilding(_) => 'R',
        Slot::Missing | Slot::Failed(_) => '.',
    };
    Ok(vec![
        ("Magic", "PSarray".to_owned()),
        ("Version", "pinstripe 1".to_owned()),
        ("Array UUID", scan::uuid(&it.array.to_string())),
        ("Name", it.name.clone()),
        ("Creation Time", time::date(it.made_seconds)),
        ("Raid Level", level.to_string()),
        ("Raid Devices", it.slots.len().to_string()),
        ("Used Dev Size", show::blocks(it.data_bytes)),
        ("Data Offset", show::blocks(it.areas.data_at)),
        ("Log", show::blocks(it.areas.log_bytes)),
        ("Layout", Layout::from_number(level, it.layout)?.to_string()),
        ("Chunk Size", Size(it.chunk_bytes.into()).to_string()),
        ("Consistency Policy", consistency_text(it.consistency).to_owned()),
        ("State", if it.is_clean { "clean" } else { "active" }.to_owned()),
        ("Device UUID", scan::uuid(&it.member.to_string())),
        ("Events", it.generation.to_string()),
        ("Superblocks", format!("{readable} of the 2 superblocks can be read")),
        ("Device Role", role),
        (
            "Array State",
            format!("{} ('A' active, '.' missing, 'R' replacing)", picture(&it.slots, letter)),
        ),
    ])
}

fn picture<T>(all: &[T], letter: impl Fn(&T) -> char) -> String {
    all.iter().map(letter).collect()
}

fn of_md(it: &MdSuperblock) -> Fields {
    // Levels and layouts that are not served are shown by their numbers.
    let level = Level::from_number(it.array.level);
    let layout = level.as_ref().map(|level| Layout::from_number(*level, it.array.layout));
    let layout = match layout {
        Ok(Ok(layout)) => layout.to_string(),
        _ => it.array.layout.to_string(),
    };
    let level = level.map_or_else(|_| it.array.level.to_string(), |level| level.to_string());
    let sectors = |count: u64| show::blocks(count * MD_SECTOR_BYTES);
    // Seconds are the low 40 bits.
    let seconds = |time: u64| (time & ((1 << 40) - 1)) as i64;
    let members: Vec<u16> = (0..it.array.members as u16).collect();
    let is_there = |slot: &u16| it.roles.contains(slot);
    vec![
        ("Magic", "a92b4efc".to_owned()),
        ("Version", it.device.place.version.to_string()),
        ("Feature Map", format!("{:#x}", it.array.features)),
        ("Array UUID", md_uuid(&it.array.set_uuid)),
        ("Name", escape::text(&it.name())),
        ("Creation Time", time::date(seconds(it.array.created))),
        ("Raid Level", level),
        ("Raid Devices", it.array.members.to_string()),
        ("Avail Dev Size", sectors(it.device.data_sectors)),
        ("Used Dev Size", sectors(it.array.size_sectors)),
        ("Data Offset", sectors(it.device.data_offset_sectors)),
        ("State", if it.is_clean() { "clean" } else { "active" }.to_owned()),
        ("Device UUID", md_uuid(&it.device.uuid)),
        ("Update Time", time::date(seconds(it.state.updated))),
        ("Events", it.state.events.to_string()),
        ("Layout", layout),
        ("Chunk Size", Size(u64::from(it.array.chunk_sectors) * MD_SECTOR_BYTES).to_string()),
        ("Device Role", role(it).0),
        (
            "Array State",
            format!(
                "{} ('A' active, '.' missing)",
                picture(&members, |slot| if is_there(slot) { 'A' } else { '.' })
            ),
        ),
    ]
}

fn role(it: &MdSuperblock) -> (String, Option<u16>) {
    match it.role() {
        MdRole::Member(slot) => (format!("Active device {slot}"), Some(slot)),
        MdRole::Journal => ("Journal".to_owned(), None),
        MdRole::Faulty => ("Faulty".to_owned(), None),
        MdRole::Spare => ("spare".to_owned(), None),
    }
}

/// Formats the id as four words, as mdadm does.
fn md_uuid(bytes: &[u8; 16]) -> String {
    bytes.chunks(4).map(hex).collect::<Vec<_>>().join(":")
}
