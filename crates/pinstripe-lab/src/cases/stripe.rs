//! The granule of an array: short writes want a short one, long writes do not mind, and `auto` is to be
//! as good as the best of each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pinstripe::array::geometry::Level;
use pinstripe::device::{Access, Device, FileDevice, MemoryDevice, Policy, SharedDevice};
use pinstripe::error::{Error, Kind, Result};
use pinstripe::pipeline::array::Volume;
use pinstripe::units::{format_size, parse_size};

use super::shared::{self, Folder};
use super::{Case, CaseOption, Form, Setting, Values, grid};
use crate::arrays::{self, LOADS, LOG_BYTES, Load, TABLE_BYTES};
use crate::result::{Metric, Parameter, Results};
use crate::run::{Head, Live, Outcome, Plan};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "stripe",
    about: "Hold granules of an array against each other, by short and long writes and reads",
    help: "\
An array is made of files in --dir, or of memory, and all of it written. Then each granule has its turn on \
the one running array, with each of these loads, by one thread:
  randwrite   4 KiB anywhere
  write64k    64 KiB in order
  write1m     1 MiB in order
  randread    4 KiB anywhere
  read1m      1 MiB in order
The granule is the unit in which parity is computed and members are read and written. A figure is bytes \
moved in the time until they were durable. Beside it stand the processor time of a request and what all \
members read and wrote for each byte: data with parity, and log.

The first granule is what others are judged by: --granules 64K,4K says what changing it does.",
    examples: "\
  pinstripe lab run stripe --members-in memory
  pinstripe lab run stripe --dir /srv --granules auto,4K,64K --loads randwrite,write1m
  pinstripe lab run stripe --dir /srv --level raid6 --members 6 --policy direct",
    options: OPTIONS,
    plan,
    tables,
};

/// Loads by their names here, in the order of [`LOADS`].
const NAMES: &[&str] = &["randwrite", "write64k", "write1m", "randread", "read1m"];

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "granules",
        value: "SIZE,...",
        form: Form::Text,
        default: Some("auto,4K,8K,16K,32K,64K"),
        about: "Granules; 'auto' lets each write choose",
        more: "",
    },
    CaseOption {
        name: "loads",
        value: "NAME,...",
        form: Form::SomeOf(NAMES),
        default: Some("randwrite,write64k,write1m,randread,read1m"),
        about: "What to do: randwrite, write64k, write1m, randread, read1m",
        more: "",
    },
    CaseOption {
        name: "level",
        value: "LEVEL",
        form: Form::OneOf(&["raid4", "raid5", "raid6"]),
        default: Some("raid5"),
        about: "Level of the array: raid4, raid5 or raid6",
        more: "",
    },
    CaseOption {
        name: "members",
        value: "N",
        form: Form::Count,
        default: Some("4"),
        about: "How many members",
        more: "",
    },
    CaseOption {
        name: "member-size",
        value: "SIZE",
        form: Form::Size,
        default: Some("128M"),
        about: "Bytes of data of each member; the log takes 64 MiB more",
        more: "",
    },
    CaseOption {
        name: "members-in",
        value: "WHERE",
        form: Form::OneOf(&["dir", "memory"]),
        default: Some("dir"),
        about: "Where members are: files in --dir, or memory",
        more: "With memory it is the array that is measured, not the disk.",
    },
    CaseOption {
        name: "requests",
        value: "N",
        form: Form::Count,
        default: Some("5000"),
        about: "Requests of a run of randwrite and randread; the others go over the array once",
        more: "",
    },
    shared::POLICY,
];

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let granule = |word: &str| match word {
        "auto" => Ok(None),
        size => parse_size(size).map(|it| Some(u32::try_from(it).unwrap_or(u32::MAX))),
    };
    let granules: Vec<Option<u32>> =
        values.words("granules").into_iter().map(granule).collect::<Result<_>>()?;
    let of_name = |name: &str| NAMES.iter().position(|it| *it == name);
    let loads: Vec<usize> = values.words("loads").into_iter().filter_map(of_name).collect();
    let level: Level =
        values.text("level").unwrap_or_default().trim_start_matches("raid").parse()?;
    let members = values.count("members") as usize;
    if members <= level.parity() + 1 {
        return Err(Error::new(Kind::Usage, "there are too few members for this level")
            .expected(format!("{} at least", level.parity() + 2), members));
    }
    let in_memory = values.text("members-in") == Some("memory");
    let dir = if in_memory { None } else { Some(shared::one_directory(setting)?) };
    let ways = loads.iter().flat_map(|&load| granules.iter().map(move |&it| (load, it)));
    Ok(Box::new(Stripe {
        parameters: shared::parameters(OPTIONS, values),
        dir,
        folder: None,
        ways: ways.collect(),
        level,
        members,
        member_bytes: values.size("member-size"),
        requests: values.count("requests"),
        policy: values.parsed("policy")?,
        seed: setting.seed,
        volume: None,
    }))
}

struct Stripe {
    parameters: Vec<Parameter>,
    /// None is memory.
    dir: Option<PathBuf>,
    folder: Option<Folder>,
    /// Load, by its number, and granule of each variant.
    ways: Vec<(usize, Option<u32>)>,
    level: Level,
    members: usize,
    member_bytes: u64,
    requests: u64,
    policy: Policy,
    seed: u64,
    volume: Option<Volume>,
}

impl Stripe {
    fn devices(&mut self) -> Result<Vec<SharedDevice>> {
        let bytes = self.member_bytes + LOG_BYTES + TABLE_BYTES;
        let count = self.members as u64;
        let Some(dir) = &self.dir else {
            let memory = |number: u64| -> Result<SharedDevice> {
                let device = MemoryDevice::with_limit(format!("member{number}"), bytes);
                device.set_len(bytes)?;
                Ok(Arc::new(device))
            };
            return (0..count).map(memory).collect();
        };
        let folder = self.folder.insert(Folder::make(dir, CASE.name, count * bytes)?);
        let file = |path: PathBuf| -> Result<SharedDevice> {
            let device = FileDevice::open(path, Access::CreateNew, self.policy)?;
            device.set_len(bytes)?;
            Ok(Arc::new(device))
        };
        folder.files("member", count).into_iter().map(file).collect()
    }

    fn count(&self, load: Load, capacity: u64) -> u64 {
        if load.is_random { self.requests } else { capacity / load.bytes as u64 }
    }
}

fn name_of(granule: Option<u32>) -> String {
    granule.map_or("auto".to_owned(), |bytes| format!("{}K", bytes >> 10))
}

impl Plan for Stripe {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn heads(&self) -> Vec<Head> {
        let head = |(load, granule): &(usize, Option<u32>)| {
            let (name, granule) = (NAMES[*load], name_of(*granule));
            Head {
                name: format!("{name} {granule}"),
                group: name.to_owned(),
                about: format!("{} with granule {granule}", LOADS[*load].name),
                parameters: vec![Parameter::new("load", name), Parameter::new("granule", granule)],
                metric: Metric::throughput(),
            }
        };
        self.ways.iter().map(head).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.dir.iter().cloned().collect()
    }

    fn intents(&self) -> Vec<String> {
        let of_each = self.member_bytes + LOG_BYTES + TABLE_BYTES;
        let bytes = self.members as u64 * of_each;
        match &self.dir {
            Some(dir) => vec![shared::intent(dir, CASE.name, bytes)],
            None => vec![format!("take {} of memory", format_size(bytes))],
        }
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        let devices = self.devices()?;
        self.volume = Some(arrays::start(devices, self.level, live)?);
        Ok(())
    }

    fn ready(&mut self, variant: usize, _: &Live) -> Result<()> {
        let (_, granule) = self.ways[variant];
        let volume = self.volume.as_ref().expect("the array was started before the first run");
        volume.with(|flusher| flusher.set_granule(granule))
    }

    fn run(&mut self, variant: usize, number: u64, live: &Live) -> Result<Outcome> {
        let (load, _) = self.ways[variant];
        let load = LOADS[load];
        let volume = self.volume.as_ref().expect("the array was started before the first run");
        let count = self.count(load, volume.len()?).max(1);
        let seed = self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let cost = arrays::run(volume, load, count, seed, live)?;
        let bytes = cost.bytes as u64;
        let (kind, read, written) = match load.is_write {
            true => ("write", 0, bytes),
            false => ("read", bytes, 0),
        };
        let of_each = |moved: f64| moved / cost.bytes;
        Ok(Outcome {
            value: cost.rate(),
            operations: count,
            read_bytes: read,
            written_bytes: written,
            beside_read_bytes: (cost.read as u64).saturating_sub(read),
            beside_written_bytes: ((cost.written + cost.log) as u64).saturating_sub(written),
            syncs: 1,
            figures: BTreeMap::from([
                ("cpu_us".to_owned(), cost.cpu_us()),
                ("members_read_of_each".to_owned(), of_each(cost.read)),
                ("members_written_of_each".to_owned(), of_each(cost.written)),
                ("log_written_of_each".to_owned(), of_each(cost.log)),
            ]),
            latency: BTreeMap::from([(kind.to_owned(), cost.times)]),
            ..Outcome::default()
        })
    }

    fn clean(&mut self) -> Result<()> {
        let stopped = self.volume.take().map_or(Ok(()), |volume| volume.stop());
        let removed = self.folder.take().map_or(Ok(()), |folder| folder.remove());
        stopped.and(removed)
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let ways = ["load", "granule"];
    let of = |title: &str, note: &str, name: &str| {
        grid::grid(results, title, note, ways, grid::named(name))
    };
    let per_byte = "Of all members together, for each byte of the user; without tables.";
    vec![
        grid::grid(results, "MB/s by load and granule", "", ways, grid::value),
        of("CPU us of a request", "", "cpu_us"),
        of("Bytes read of members", per_byte, "members_read_of_each"),
        of("Bytes written to members", per_byte, "members_written_of_each"),
        of("Bytes written to logs", per_byte, "log_written_of_each"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    const SMALL: [(&str, &str); 3] =
        [("granules", "auto,4K,64K"), ("member-size", "4M"), ("requests", "50")];

    #[test]
    fn every_load_is_made_with_every_granule_in_memory_and_on_files() {
        for place in ["memory", "dir"] {
            let dir = tempfile::tempdir().unwrap();
            let results =
                measured(&CASE, dir.path(), &[&SMALL[..], &[("members-in", place)]].concat());
            assert_eq!(results.variants.len(), 15);
            for variant in &results.variants {
                let run = &variant.runs[0];
                let is_write = grid::parameter(variant, "load").contains("write");
                assert_eq!(run.written_bytes > 0, is_write, "{}", variant.name);
                assert_eq!(run.read_bytes > 0, !is_write, "{}", variant.name);
            }
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn parity_is_seen_in_what_members_write_and_nothing_in_what_reads_do() {
        let dir = tempfile::tempdir().unwrap();
        let small = [&SMALL[..], &[("members-in", "memory"), ("loads", "write1m,read1m")]].concat();
        let results = measured(&CASE, dir.path(), &small);
        let of = |name: &str, figure: &str| results.variant(name).unwrap().runs[0].figures[figure];
        let written = of("write1m auto", "members_written_of_each");
        assert!((written - 4.0 / 3.0).abs() < 0.05, "{written}");
        assert_eq!(of("read1m auto", "members_written_of_each"), 0.0);
        assert_eq!(tables(&results)[0].to_json()["rows"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn too_few_members_and_granules_that_are_none_are_refused() {
        let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
        for bad in [("members", "2"), ("granules", "auto,wide")] {
            let values = Values::read(OPTIONS, &[bad]).unwrap();
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{bad:?}");
        }
    }
}
