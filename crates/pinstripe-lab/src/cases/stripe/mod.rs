//! Measures the granule of an array: short writes are faster with a short granule, long writes do
//! not depend on it, and `auto` should be as good as the best granule for each load. The same loads
//! can also measure any other setting of an array.

mod knob;
mod options;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_array::{BLOCK_BYTES, Level, Volume, check_create};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::random;
use pinstripe_base::units::format_size;
use pinstripe_io::device::{Access, Device, FileDevice, MemoryDevice, Policy, SharedDevice};

use self::knob::KnobValue;
use self::options::{NAMES, OPTIONS};
use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::arrays::{self, Cost, LOADS, Load, Requests, TABLE_BYTES};
use crate::io;
use crate::result::{Measured, Metric, Note, Parameter, Results};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "stripe",
    about: "Compare granules (values of stripe_size) of an array, with short and long writes and \
            reads",
    help: "\
The case creates an array of files in --dir, or in memory, and writes the complete array once. The members \
are distributed over several directories of --dir in turn. Each granule is then measured in turn on the same \
running array, with each of these loads:
  randwrite   write 4 KiB at random offsets
  write64k    write 64 KiB sequentially
  write1m     write 1 MiB sequentially
  randread    read 4 KiB at random offsets
  read1m      read 1 MiB sequentially
The granule is the unit in which parity is computed and members are read and written. The rate is the number \
of bytes transferred, divided by the time until they were durable. By default, one request is in flight; \
--workers 2 --depth 64 corresponds to numjobs=2 and iodepth=64 of fio. The table also shows the CPU time of \
a request. The table also shows the number of bytes that all members read and wrote for each requested byte, \
separately for data with parity and for the array log.

The first granule is the baseline: --granules 64K,4K shows the effect of a change from 64K to 4K. The option \
--knob compares values of another setting of an array in the same way, for example --knob chunk=64K,256K.",
    examples: "\
  pinstripe lab run stripe --members-in memory
  pinstripe lab run stripe --dir /srv --granules auto,4K,64K --loads randwrite,write1m
  pinstripe lab run stripe --dir /srv --granules 64K,4K --workers 2 --depth 64
  pinstripe lab run stripe --dir /srv --knob chunk=64K,256K
  pinstripe lab run stripe --dir /srv --knob consistency-policy=log,bitmap,none --loads randwrite
  pinstripe lab run stripe --dir /srv --level raid6 --members 6 --policy direct",
    options: OPTIONS,
    plan,
    tables,
    again: AGAIN,
};

const AGAIN: Again = Again {
    of_variant: |parameter| {
        let Parameter { name, value } = parameter;
        knob::is_knob(name).then(|| vec![("knob", format!("{name}={value}"))])
    },
    ..Again::BY_NAME
};

/// The most requests in flight; each request has its own thread.
const AT_ONCE_MAX: u64 = 1024;

/// The parameter that distinguishes granules.
const GRANULE: &str = "granule";

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let level: Level =
        values.text("level").unwrap_or_default().trim_start_matches("raid").parse()?;
    let base = arrays::making(level);
    let (knob, turns) = match values.text("knob") {
        Some(text) => knob::read(text, &base)?,
        None => (GRANULE.to_owned(), knob::granules(&values.words("granules"), &base)?),
    };
    let of_name = |name: &str| NAMES.iter().position(|it| *it == name);
    let loads: Vec<usize> = values.words("loads").into_iter().filter_map(of_name).collect();
    let members = values.count("members") as usize;
    if members <= level.parity() + 1 {
        return Err(Error::new(Kind::Usage, "this level needs more members")
            .expected(format!("at least {} members", level.parity() + 2), members));
    }
    let at_once = values.count(shared::THREADS.name) * values.count(shared::DEPTH.name);
    if at_once > AT_ONCE_MAX {
        return Err(Error::new(Kind::Usage, "too many requests would be in flight")
            .expected(format!("at most {AT_ONCE_MAX} requests in flight"), at_once)
            .advice("reduce --workers or --depth"));
    }
    let dirs = match (values.text("members-in"), &setting.device) {
        (Some("memory"), _) => Vec::new(),
        (_, Some(device)) => {
            let error = Error::new(Kind::Usage, "this case works in directories, not on a device");
            return Err(error.at(device));
        }
        _ => setting.dirs.clone(),
    };
    let ways = loads.iter().flat_map(|&load| (0..turns.len()).map(move |turn| (load, turn)));
    let stripe = Stripe {
        parameters: shared::parameters(OPTIONS, values),
        dirs,
        folders: Vec::new(),
        ways: ways.collect(),
        knob,
        turns,
        members,
        member_bytes: values.size("member-size"),
        requests: values.count("requests"),
        at_once: at_once as usize,
        policy: values.parsed("policy")?,
        seed: setting.seed,
        is_indirect: false,
        volumes: Vec::new(),
    };
    for array in stripe.arrays() {
        check_create(&stripe.turns[array].making, members, stripe.bytes_of_member(array))?;
    }
    Ok(Box::new(stripe))
}

struct Stripe {
    parameters: Vec<Parameter>,
    /// None are memory.
    dirs: Vec<PathBuf>,
    folders: Vec<Folder>,
    /// The load and the value of each variant, by their numbers.
    ways: Vec<(usize, usize)>,
    /// The knob that the values belong to.
    knob: String,
    turns: Vec<KnobValue>,
    members: usize,
    member_bytes: u64,
    requests: u64,
    /// Requests in flight, each with a thread.
    at_once: usize,
    policy: Policy,
    seed: u64,
    /// Whether writes of a member go through the page cache in whole or in part, although they
    /// should bypass it.
    is_indirect: bool,
    /// The arrays: one for each value that cannot be changed on a running array, or one for all
    /// values.
    volumes: Vec<Volume>,
}

impl Stripe {
    /// The numbers of the arrays; each number is that of the first value for which the array is
    /// created.
    fn arrays(&self) -> std::ops::Range<usize> {
        let is_shared = self.turns.iter().all(KnobValue::is_turned);
        0..if is_shared { 1 } else { self.turns.len() }
    }

    fn bytes_of_member(&self, array: usize) -> u64 {
        self.member_bytes + self.turns[array].making.log_bytes + TABLE_BYTES
    }

    fn bytes(&self) -> u64 {
        self.members as u64 * self.arrays().map(|it| self.bytes_of_member(it)).sum::<u64>()
    }

    fn devices(&mut self, array: usize) -> Result<Vec<SharedDevice>> {
        let bytes = self.bytes_of_member(array);
        let mut is_indirect = false;
        let mut device = |number: usize| -> Result<SharedDevice> {
            let name = format!("member{array}.{number}");
            if self.folders.is_empty() {
                let device = MemoryDevice::with_limit(name, bytes);
                device.set_len(bytes)?;
                return Ok(Arc::new(device));
            }
            let path = self.folders[number % self.folders.len()].path(&name);
            let device = FileDevice::open(path, Access::CreateNew, self.policy)?;
            device.set_len(bytes)?;
            // The smallest write of an array is a block.
            let suits = io::suits_direct(&device.caps(), BLOCK_BYTES as usize);
            is_indirect |= self.policy.is_direct() && !(device.policy().is_direct() && suits);
            Ok(Arc::new(device))
        };
        let devices: Result<Vec<_>> = (0..self.members).map(&mut device).collect();
        self.is_indirect |= is_indirect;
        devices
    }

    /// The array on which a value is measured.
    fn volume(&self, turn: usize) -> &Volume {
        let at = turn.min(self.volumes.len().saturating_sub(1));
        self.volumes.get(at).expect("the array was started before the first run")
    }

    fn count(&self, load: Load, capacity: u64) -> u64 {
        if load.is_random { self.requests } else { capacity / load.bytes as u64 }
    }
}

impl Plan for Stripe {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |(load, turn): &(usize, usize)| {
            let (name, value) = (NAMES[*load], &self.turns[*turn].text);
            VariantSpec {
                name: format!("{name} {value}"),
                group: name.to_owned(),
                about: format!("{} with {} {value}", LOADS[*load].name, self.knob),
                parameters: vec![Parameter::new("load", name), Parameter::new(&self.knob, value)],
                metric: Metric::throughput(),
                place: PlaceNo::FIRST,
            }
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.dirs.clone()
    }

    fn notes(&self) -> Vec<String> {
        let shared = self.members.div_ceil(self.dirs.len().max(1));
        match self.dirs.len() {
            0 => vec!["the members are in memory, so no disk is measured".to_owned()],
            _ if shared > 1 => vec![format!(
                "up to {shared} of the {} members are in the same directory, so they wait for each \
                 other",
                self.members
            )],
            _ => Vec::new(),
        }
    }

    fn intents(&self) -> Vec<String> {
        let of_each = self.bytes() / self.dirs.len().max(1) as u64;
        match self.dirs.len() {
            0 => vec![format!("use {} of memory", format_size(self.bytes()))],
            _ => self.dirs.iter().map(|dir| shared::intent(dir, CASE.name, of_each)).collect(),
        }
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        let of_each = self.bytes() / self.dirs.len().max(1) as u64;
        self.dirs.iter().map(|dir| (dir.clone(), of_each)).collect()
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        let of_each = self.bytes() / self.dirs.len().max(1) as u64;
        for dir in &self.dirs {
            self.folders.push(Folder::make(dir, CASE.name, of_each)?);
        }
        for array in self.arrays() {
            let devices = self.devices(array)?;
            self.volumes.push(arrays::start(devices, &self.turns[array].making, live)?);
        }
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        let (_, turn) = self.ways[variant.0];
        self.turns[turn].turn(self.volume(turn))
    }

    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome> {
        let (load, turn) = self.ways[variant.0];
        let load = LOADS[load];
        let volume = self.volume(turn);
        let requests = Requests {
            count: self.count(load, volume.len()?).max(1),
            at_once: self.at_once,
            seed: random::of_run(self.seed, number),
        };
        let cost = arrays::run(volume, load, requests, live)?;
        let notes = self.is_indirect.then_some(Note::NotDirect).into_iter().collect();
        Ok(Outcome { notes, ..outcome(&cost, load, requests.count) })
    }

    fn clean(&mut self) -> Result<()> {
        let stopped = self.volumes.drain(..).map(|it| it.stop()).fold(Ok(()), Result::and);
        let removed = self.folders.drain(..).map(|it| it.remove()).fold(Ok(()), Result::and);
        stopped.and(removed)
    }
}

fn outcome(cost: &Cost, load: Load, count: u64) -> Outcome {
    let bytes = cost.bytes as u64;
    let (kind, read, written) = match load.is_write {
        true => ("write", 0, bytes),
        false => ("read", bytes, 0),
    };
    let of_each = |moved: f64| moved / cost.bytes;
    Outcome {
        measured: Measured {
            value: cost.rate(),
            operations: count,
            read_bytes: read,
            written_bytes: written,
            figures: BTreeMap::from([
                ("cpu_us".to_owned(), cost.cpu_us()),
                ("members_read_of_each".to_owned(), of_each(cost.read)),
                ("members_written_of_each".to_owned(), of_each(cost.written)),
                ("log_written_of_each".to_owned(), of_each(cost.log)),
            ]),
            latency: BTreeMap::from([(kind.to_owned(), cost.times.clone())]),
        },
        beside_read_bytes: (cost.read as u64).saturating_sub(read),
        beside_written_bytes: ((cost.written + cost.log) as u64).saturating_sub(written),
        syncs: 1,
        ..Outcome::default()
    }
}

fn tables(results: &Results) -> Vec<Table> {
    // A file of results may hold anything.
    let knob = results.variants.first().and_then(|it| it.parameters.get(1));
    let knob = knob.map_or(GRANULE, |it| it.name.as_str());
    let ways = ["load", knob];
    let of = |title: &str, note: &str, name: &str| {
        grid::grid(results, title, note, ways, grid::named(name))
    };
    let per_byte = "The values are sums over all members, for each requested byte, without the \
                    tables of checksums.";
    vec![
        grid::grid(results, &format!("MB/s by load and {knob}"), "", ways, grid::value),
        of("CPU time of a request, us", "", "cpu_us"),
        of("Bytes read from members", per_byte, "members_read_of_each"),
        of("Bytes written to members", per_byte, "members_written_of_each"),
        of("Bytes written to logs", per_byte, "log_written_of_each"),
    ]
}

#[cfg(test)]
mod tests;
