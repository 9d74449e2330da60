//! `pinstripe array detail`: all information about one array, as `mdadm --detail` shows it.

use pinstripe_array::{Detail, SlotDetail, SlotStateDetail, WorkDetail, look_at_array};
use pinstripe_base::error::Result;
use pinstripe_base::units::{format_count, format_size};

use super::register::register;
use super::{scan, show, status};
use crate::args::Size;
use crate::escape;
use crate::event::Event;
use crate::exit;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::table::{self, Side};
use crate::time;

/// Show all details of one array, as mdadm --detail does
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array detail pool
  pinstripe array detail pool --json
  pinstripe array detail --scan --verbose
  pinstripe array detail --test pool >/dev/null || echo 'pool needs a look'")]
pub struct ArrayDetailArgs {
    /// Name of the array
    #[arg(value_name = "NAME", required_unless_present = "scan")]
    name: Option<String>,

    /// Print an ARRAY line for each registered array, as mdadm --detail --scan does
    #[arg(long, short)]
    scan: bool,

    /// Return exit code 4 if the array is degraded, and 15 if it has too few working members to be
    /// used
    ///
    /// Scripts can use --test in the same way as mdadm --detail --test. With --scan and --test, the
    /// exit code is that of the array in the worst state.
    #[arg(long, short)]
    test: bool,
}

impl ArrayDetailArgs {
    /// Shows it.
    ///
    /// # Errors
    /// Fails with the errors of [`look_at_array`].
    pub fn run(&self, run: &Run, is_verbose: bool) -> Result<Ending> {
        let register = register()?;
        let name = match &self.name {
            Some(name) if !self.scan => name,
            name => {
                let names = scan::names(name.as_ref(), &register)?;
                let mut worst = exit::DONE;
                let ending = scan::each(run, &names, |name| {
                    let found = look_at_array(name, &register)?;
                    worst = worst.max(self.code(&found));
                    run.screen.event(&show::event(Event::new("array"), &found))?;
                    for line in scan::of_detail(&found, is_verbose) {
                        run.screen.row(&line)?;
                    }
                    Ok(true)
                })?;
                let code = if ending.code == exit::DONE { worst } else { ending.code };
                return Ok(Ending { code, ..ending });
            }
        };
        let found = look_at_array(name, &register)?;
        for line in lines(&found) {
            run.screen.row(&line)?;
        }
        Ok(Ending { code: self.code(&found), facts: show::event(Event::default(), &found) })
    }

    fn code(&self, array: &Detail) -> u8 {
        match (array.is_usable, array.degraded()) {
            _ if !self.test => exit::DONE,
            (false, _) => exit::TOO_MANY_LOSSES,
            (true, 0) => exit::DONE,
            (true, _) => exit::DEGRADED,
        }
    }
}

fn lines(array: &Detail) -> Vec<String> {
    let count = |state: SlotStateDetail| array.slots.iter().filter(|it| it.state == state).count();
    let is_faulty = |it: &&SlotDetail| it.state == SlotStateDetail::Failed && it.device.is_some();
    let (active, failed) =
        (count(SlotStateDetail::InSync), array.slots.iter().filter(is_faulty).count());
    let replacements = array.slots.iter().filter(|slot| slot.replacement.is_some()).count();
    let filling = count(SlotStateDetail::Rebuilding) + replacements;
    let working = active + filling + array.spares.len();
    let mut fields = vec![
        ("Version", array.metadata.clone()),
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
    fields.extend(array.work.as_ref().map(|work| (status_word(work), status::progress(work))));
    if array.served.is_some() {
        fields.push(("Not Yet Written", format_size(array.dirty_bytes)));
    }
    if array.mismatches > 0 {
        fields.push(("Mismatches", format!("{} of 4 KiB", counted(array.mismatches, "block"))));
    }
    fields.push(("Name", array.name.clone()));
    fields.push(("UUID", scan::uuid(&array.array)));
    fields.push(("Events", array.generation.to_string()));
    let settings = array.settings.iter();
    fields.extend(settings.map(|(name, value)| (&**name, escape::text(value))));
    let mut lines = vec![format!("{}:", array.name)];
    lines.extend(show::fields(&fields));
    lines.push(String::new());
    lines.extend(slots(array));
    lines.extend(array.slots.iter().filter_map(failure));
    if array.served.is_some() {
        lines.push(String::new());
        lines.extend(traffic(array));
    }
    lines
}

/// mdadm's name for the progress of work.
fn status_word(work: &WorkDetail) -> &'static str {
    match &*work.kind {
        "recover" => "Rebuild Status",
        "resync" => "Resync Status",
        "reshape" => "Reshape Status",
        _ => "Check Status",
    }
}

const HEAD: [(&str, Side); 4] = [
    ("RaidDevice", Side::Right),
    ("State", Side::Left),
    ("Errors", Side::Right),
    ("Device", Side::Left),
];

fn slots(array: &Detail) -> Vec<String> {
    let row = |slot: &SlotDetail| {
        let state = match slot.state {
            SlotStateDetail::InSync => "active sync",
            SlotStateDetail::Rebuilding => "spare rebuilding",
            SlotStateDetail::Failed if slot.device.is_some() => "faulty",
            SlotStateDetail::Failed | SlotStateDetail::Missing => "removed",
        };
        let device = slot.device.as_ref().map(|it| escape::path(it)).unwrap_or_default();
        let errors = slot.errors.reads + slot.errors.checksums;
        vec![slot.slot.to_string(), state.to_owned(), errors.to_string(), device]
    };
    let replacement = |slot: &SlotDetail| {
        let device = escape::path(slot.replacement.as_ref()?);
        let state = "spare rebuilding".to_owned();
        Some(vec![slot.slot.to_string(), state, "0".to_owned(), device])
    };
    let both = |slot: &SlotDetail| [Some(row(slot)), replacement(slot)];
    let mut rows: Vec<_> = array.slots.iter().flat_map(both).flatten().collect();
    let spare = |path: &std::path::PathBuf| {
        vec!["-".to_owned(), "spare".to_owned(), "0".to_owned(), escape::path(path)]
    };
    rows.extend(array.spares.iter().map(spare));
    table::lines(&HEAD, &rows)
}

/// Why the last member of a slot failed.
fn failure(slot: &SlotDetail) -> Option<String> {
    let reason = escape::text(slot.reason.as_ref()?);
    let device = slot.device.as_ref().map(|it| format!(", {}", escape::path(it)));
    Some(format!("failed: slot {}{}: {reason}", slot.slot, device.unwrap_or_default()))
}

const TRAFFIC_HEAD: [(&str, Side); 7] = [
    ("slot", Side::Right),
    ("read", Side::Right),
    ("written", Side::Right),
    ("log", Side::Right),
    ("mean read", Side::Right),
    ("mean write", Side::Right),
    ("mean sync", Side::Right),
];

/// Formats the users' requests, the methods of parity, and the bytes moved on each member.
fn traffic(array: &Detail) -> Vec<String> {
    let of = |name: &str| array.counters.array.get(name).copied().unwrap_or(0);
    let mut lines = vec![
        format!(
            "requests of users: {} of {}, {} of {}, {}",
            counted(of("reads"), "read"),
            format_size(of("read_bytes")),
            counted(of("writes"), "write"),
            format_size(of("written_bytes")),
            counted(of("syncs"), "sync"),
        ),
        format!(
            "writes of stripes: {} full, {} read-modify-write, {} reconstruct-write, {} without \
             parity",
            format_count(of("full_pieces")),
            format_count(of("read_modify_write_pieces")),
            format_count(of("reconstruct_write_pieces")),
            format_count(of("plain_pieces")),
        ),
    ];
    let members = || array.counters.members.iter().flatten();
    let all = |name: &str| members().filter_map(|it| it.get(name)).sum::<u64>() as f64;
    if of("written_bytes") > 0 {
        let written = of("written_bytes") as f64;
        lines.push(format!(
            "for each byte that users wrote, {:.2} bytes were written to the data areas of \
             members, {:.2} to their logs and {:.2} to their tables",
            all("written_bytes") / written,
            all("log_written_bytes") / written,
            all("tables_written_bytes") / written,
        ));
    }
    let row = |(slot, member): (usize, &Option<std::collections::BTreeMap<String, u64>>)| {
        let of = |name: &str| member.as_ref()?.get(name).copied();
        let bytes = |name| of(name).map(format_size).unwrap_or_default();
        let micros = |name| of(name).map(|it| format!("{it} us")).unwrap_or_default();
        vec![
            slot.to_string(),
            bytes("read_bytes"),
            bytes("written_bytes"),
            bytes("log_written_bytes"),
            micros("reads_mean_us"),
            micros("writes_mean_us"),
            micros("syncs_mean_us"),
        ]
    };
    let rows: Vec<_> = array.counters.members.iter().enumerate().map(row).collect();
    lines.extend(table::lines(&TRAFFIC_HEAD, &rows));
    lines
}
