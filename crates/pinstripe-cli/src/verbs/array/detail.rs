//! `pinstripe array detail`: all about one array, as `mdadm --detail` shows it.

use pinstripe::error::Result;
use pinstripe::ops::array::detail::{Detail, SlotDetail, SlotState};
use pinstripe::ops::array::open::look;
use pinstripe::units::{format_count, format_size};

use super::super::counted;
use super::{show, status};
use crate::args::Size;
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::table::{self, Side};
use crate::time;

/// Show all about one array, as mdadm --detail does
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array detail pool
  pinstripe array detail pool --json")]
pub struct Args {
    /// Which
    #[arg(value_name = "NAME")]
    name: String,
}

impl Args {
    /// Shows it.
    ///
    /// # Errors
    /// Those of [`look`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let found = look(&self.name, &super::register()?)?;
        for line in lines(&found) {
            run.screen.row(&line)?;
        }
        Ok(Ending::done(show::event(Event::default(), &found)))
    }
}

fn lines(array: &Detail) -> Vec<String> {
    let count = |state: SlotState| array.slots.iter().filter(|it| it.state == state).count();
    let is_faulty = |it: &&SlotDetail| it.state == SlotState::Failed && it.device.is_some();
    let (active, failed) = (count(SlotState::InSync), array.slots.iter().filter(is_faulty).count());
    let working = active + count(SlotState::Rebuilding) + array.spares.len();
    let mut fields = vec![
        ("Creation Time", time::date(array.made_seconds)),
        ("Raid Level", array.level.clone()),
        ("Array Size", show::blocks(array.capacity_bytes)),
        ("Used Dev Size", show::blocks(array.member_bytes)),
        ("Raid Devices", array.slots.len().to_string()),
        ("Total Devices", (working + failed).to_string()),
        ("State", array.state()),
        ("Active Devices", active.to_string()),
        ("Working Devices", working.to_string()),
        ("Failed Devices", failed.to_string()),
        ("Spare Devices", array.spares.len().to_string()),
        ("Layout", array.layout.clone()),
        ("Chunk Size", Size(array.chunk_bytes).to_string()),
        ("Consistency Policy", array.consistency.clone()),
    ];
    let process = array.served.as_ref().map(|it| ("Served By", format!("process {}", it.process)));
    fields.extend(process);
    let exports = array.served.iter().flat_map(|it| &it.exports);
    fields.extend(exports.map(|export| ("Export", escape::text(export))));
    fields.extend(array.work.as_ref().map(|work| ("Work", status::progress(work))));
    if array.served.is_some() {
        fields.push(("Not Yet Written", format_size(array.dirty_bytes)));
    }
    if array.mismatches > 0 {
        fields.push(("Mismatches", format!("{} of 4 KiB", counted(array.mismatches, "block"))));
    }
    fields.push(("UUID", array.array.clone()));
    fields.push(("Events", array.generation.to_string()));
    let counts = array.counters.array.iter();
    fields.extend(counts.map(|(name, count)| (&**name, format_count(*count))));
    let settings = array.settings.iter();
    fields.extend(settings.map(|(name, value)| (&**name, escape::text(value))));
    let mut lines = vec![format!("{}:", array.name)];
    lines.extend(show::fields(&fields));
    lines.push(String::new());
    lines.extend(slots(array));
    lines
}

const HEAD: [(&str, Side); 4] =
    [("slot", Side::Right), ("state", Side::Left), ("errors", Side::Right), ("device", Side::Left)];

fn slots(array: &Detail) -> Vec<String> {
    let row = |slot: &SlotDetail| {
        let state = match slot.state {
            SlotState::InSync => "active sync",
            SlotState::Rebuilding => "rebuilding",
            SlotState::Failed if slot.device.is_some() => "faulty",
            SlotState::Failed | SlotState::Missing => "removed",
        };
        let device = slot.device.as_ref().map(|it| escape::path(it)).unwrap_or_default();
        let errors = slot.errors.reads + slot.errors.checksums;
        vec![slot.slot.to_string(), state.to_owned(), errors.to_string(), device]
    };
    let mut rows: Vec<_> = array.slots.iter().map(row).collect();
    let spare = |path: &std::path::PathBuf| {
        vec!["-".to_owned(), "spare".to_owned(), "0".to_owned(), escape::path(path)]
    };
    rows.extend(array.spares.iter().map(spare));
    table::lines(&HEAD, &rows)
}
