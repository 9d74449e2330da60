//! The load of office programs on a file server, replayed from a load file of dbench; measures the
//! time of each sort of operation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::remove::remove_tree;

use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::histogram::Histogram;
use crate::io::loadfile::{self, KINDS, LoadOperation};
use crate::io::opmix::replay;
use crate::result::{Measured, Metric, Parameter, Results, Variant};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "opmix",
    about: "Replay a load file of dbench (operations of office programs on a file server), and \
            measure the time of each kind of operation",
    help: "\
Each client is a thread with its own directory, in which it repeats the operations of the load file: opens, \
stats, reads, writes, renames, locks and flushes. The table shows the count, mean time and longest time of \
each kind of operation, as dbench does, and also percentiles. An operation that is still running when the \
time is over is completed and counted, so that the longest stall is not cut off.

If --dir is given several times, the directories are measured in turn, and the first directory is the \
baseline. To measure the effect of a change, such as another file system or another setting of an array, \
give a directory without the change and one with the change. For each operation, the results of all \
directories are shown side by side.

The rate is the number of bytes read and written per second; only the operation Flush waits for the disk. A \
load file is a client.txt of dbench 3 or 4. Without a load file, a short generated load is used, whose \
results are not comparable with results of dbench.",
    examples: "\
  pinstripe lab run opmix --dir /srv --clients 1,10
  pinstripe lab run opmix --dir /mnt/before --dir /mnt/after --clients 10
  pinstripe lab run opmix --loadfile /usr/share/dbench/client.txt --run-time 60",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "loadfile",
        value: "FILE",
        form: ValueForm::Path,
        default: None,
        about: "Load file of dbench [default: a short generated load]",
        more: "",
    },
    shared::CLIENTS,
    CaseOption { about: "Duration of a run in seconds", ..shared::RUN_TIME },
];

/// The most bytes that the files of a client take, as an estimate.
const CLIENT_BYTES: u64 = 64 << 20;

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let clients = values.counts("clients");
    if clients.contains(&0) {
        return Err(Error::new(Kind::Usage, "at least one client is needed"));
    }
    let load = match values.text("loadfile").map(PathBuf::from) {
        None => loadfile::parse(&loadfile::made_up())?,
        Some(path) => {
            let text =
                std::fs::read(&path).map_err(|error| Error::io("cannot read", &path, error))?;
            loadfile::parse(&String::from_utf8_lossy(&text)).map_err(|error| error.at(&path))?
        }
    };
    Ok(Box::new(OpMix {
        parameters: shared::parameters(OPTIONS, values),
        places: places(setting)?,
        ways: ways(&clients, setting.dirs.len()),
        load,
        time: shared::seconds(values, "run-time")?,
    }))
}

/// The directories to work in.
fn places(setting: &Setting) -> Result<Vec<(PathBuf, Option<Folder>)>> {
    match &setting.device {
        Some(device) => {
            Err(Error::new(Kind::Usage, "this case works in directories, not on a device")
                .at(device))
        }
        None => Ok(setting.dirs.iter().map(|dir| (dir.clone(), None)).collect()),
    }
}

/// The number of clients and the number of the directory of each variant.
fn ways(clients: &[u64], places: usize) -> Vec<(u64, usize)> {
    clients.iter().flat_map(|&it| (0..places).map(move |place| (it, place))).collect()
}

struct OpMix {
    parameters: Vec<Parameter>,
    /// Directories to work in, each with the lab directory that was created in it.
    places: Vec<(PathBuf, Option<Folder>)>,
    ways: Vec<(u64, usize)>,
    load: Vec<LoadOperation>,
    time: Duration,
}

impl OpMix {
    fn base(&self, place: usize) -> PathBuf {
        let folder = self.places[place].1.as_ref();
        folder.expect("the folder was made before the first run").path("clients")
    }

    fn bytes(&self) -> u64 {
        self.ways.iter().map(|(clients, _)| clients).max().unwrap_or(&0) * CLIENT_BYTES
    }
}

impl Plan for OpMix {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |(clients, place): &(u64, usize)| {
            let group =
                if *clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
            let dir = self.places[*place].0.to_string_lossy();
            VariantSpec {
                name: match self.places.len() {
                    1 => group.clone(),
                    _ => format!("{group} {dir}"),
                },
                about: format!("a repeated load; operations: {}", self.load.len()),
                parameters: vec![Parameter::new("clients", clients), Parameter::new("dir", &dir)],
                metric: Metric::throughput(),
                group,
                place: PlaceNo(*place),
            }
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.places.iter().map(|(dir, _)| dir.clone()).collect()
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "only the operation Flush waits for the disk; data that other operations write is \
             accepted, but not yet durable"
                .to_owned(),
        ]
    }

    fn intents(&self) -> Vec<String> {
        let intent = |(dir, _): &(PathBuf, _)| shared::intent(dir, CASE.name, self.bytes());
        self.places.iter().map(intent).collect()
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        self.places.iter().map(|(dir, _)| (dir.clone(), self.bytes())).collect()
    }

    fn prepare(&mut self, _: &Live) -> Result<()> {
        let bytes = self.bytes();
        for (dir, folder) in &mut self.places {
            *folder = Some(Folder::make(dir, CASE.name, bytes)?);
        }
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        let base = self.base(self.ways[variant.0].1);
        match remove_tree(&base) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("cannot remove", &base, error))
            }
            _ => Ok(()),
        }
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let (clients, place) = self.ways[variant.0];
        let replayed = replay(&self.load, &self.base(place), clients as usize, self.time, live)?;
        let bytes = replayed.read_bytes + replayed.written_bytes;
        let count = |name: &str| {
            let times = KINDS.iter().zip(&replayed.times).find(|(kind, _)| **kind == name);
            times.map_or(0, |(_, times)| times.count())
        };
        let latency = KINDS.iter().zip(&replayed.times).filter(|(_, it)| !it.is_empty());
        Ok(Outcome {
            measured: Measured {
                value: bytes as f64 / replayed.seconds.max(1e-9) / 1e6,
                operations: replayed.times.iter().map(|it| it.count()).sum(),
                read_bytes: replayed.read_bytes,
                written_bytes: replayed.written_bytes,
                figures: BTreeMap::from([("surprises".to_owned(), replayed.surprises as f64)]),
                latency: latency.map(|(kind, it)| ((*kind).to_owned(), it.clone())).collect(),
            },
            // Names and sizes go to the journal as well.
            beside_written_bytes: replayed.written_bytes,
            syncs: count("Flush"),
            ..Outcome::default()
        })
    }

    fn clean(&mut self) -> Result<()> {
        let folders = self.places.iter_mut().filter_map(|(_, folder)| folder.take());
        folders.map(|it| it.remove()).fold(Ok(()), Result::and)
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let groups = grid::different(results, "clients").into_iter();
    let of_group = |clients: &str| -> Vec<&Variant> {
        let all = results.variants.iter().filter(|it| !it.runs.is_empty());
        all.filter(|it| grid::parameter(it, "clients") == clients).collect()
    };
    let side_by_side = groups.filter_map(|it| before_and_after(&of_group(it)));
    let alone = results.variants.iter().filter(|it| !it.runs.is_empty()).map(operations);
    side_by_side.chain(alone).collect()
}

/// Compares the mean and the longest time of each operation in the first directory and in each
/// other directory; `None` if there is only one directory.
fn before_and_after(variants: &[&Variant]) -> Option<Table> {
    let [first, _, ..] = variants else { return None };
    let mut head = vec!["Operation".to_owned()];
    for variant in variants {
        let dir = grid::parameter(variant, "dir");
        head.extend([format!("AvgLat ms {dir}"), format!("MaxLat ms {dir}")]);
    }
    let mut rows = vec![head];
    for kind in KINDS {
        let times: Vec<Histogram> = variants.iter().map(|it| times_of(it, kind)).collect();
        if times.iter().all(Histogram::is_empty) {
            continue;
        }
        let cells = times.iter().flat_map(|it| match it.is_empty() {
            true => ["-", "-"].map(str::to_owned),
            false => [millis(it.mean()), millis(it.max())],
        });
        rows.push(std::iter::once(kind.to_owned()).chain(cells).collect());
    }
    let disturbed = variants.iter().any(|it| it.values().is_empty());
    let note = match disturbed {
        true => {
            "Every run in one directory was disturbed, so the times of that directory include all \
             its runs."
        }
        false => {
            "The times are from all runs that count. The runs in the different directories \
             alternated."
        }
    };
    Some(Table::from_rows(&format!("{}, side by side", first.group), note, rows))
}

fn millis(time: Option<Duration>) -> String {
    format!("{:.3}", time.unwrap_or_default().as_secs_f64() * 1e3)
}

/// A table of operations as dbench shows it, with percentiles added.
fn operations(variant: &Variant) -> Table {
    let head = ["Operation", "Count", "AvgLat ms", "MaxLat ms", "p50", "p99", "p99.9"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for kind in KINDS {
        let times = times_of(variant, kind);
        if times.is_empty() {
            continue;
        }
        let of = |q: f64| grid::quantile_text(&times, q);
        let count = times.count().to_string();
        let (mean, most) = (millis(times.mean()), millis(times.max()));
        rows.push(vec![kind.to_owned(), count, mean, most, of(0.5), of(0.99), of(0.999)]);
    }
    let surprises = grid::figure(variant, grid::named("surprises")).map_or(0.0, |it| it.value);
    let mut note = match variant.values().is_empty() {
        true => "The times are from all runs, because every run was disturbed.".to_owned(),
        false => "The times are from all runs that count.".to_owned(),
    };
    if surprises > 0.0 {
        note += &format!(
            " In a run, {surprises:.0} operations had another result than in the load file."
        );
    }
    Table::from_rows(&variant.name, note, rows)
}

/// The times of one sort of operation in the runs that count, or in all runs if none counts.
fn times_of(variant: &Variant, kind: &str) -> Histogram {
    let counts = !variant.values().is_empty();
    let runs = variant.runs.iter().filter(|run| run.is_valid() || !counts);
    let mut all = Histogram::default();
    runs.filter_map(|run| run.measured.latency.get(kind)).for_each(|one| all.merge(one));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    #[test]
    fn every_sort_of_operation_has_its_count_and_times() {
        let dir = tempfile::tempdir().unwrap();
        let results = measured(&CASE, dir.path(), &[("clients", "1,3"), ("run-time", "0.3")]);
        assert_eq!(results.variants.len(), 2);
        for variant in &results.variants {
            let run = &variant.runs[0];
            assert!(
                run.measured.value > 0.0 && run.measured.latency.contains_key("NTCreateX"),
                "{}",
                variant.name
            );
            assert_eq!(run.measured.figures["surprises"], 0.0);
            let table = operations(variant).to_json();
            assert_eq!(table["columns"][1], "Count");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn several_directories_take_turns_and_stand_side_by_side() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let places = dirs.each_ref().map(|dir| dir.path().to_path_buf());
        let setting = Setting { dirs: places.to_vec(), ..Setting::default() };
        let given = [("clients", "2"), ("run-time", "0.2")];
        let results = crate::cases::tests::measured_in(&CASE, &setting, &given);
        let name = |dir: &PathBuf| format!("2 clients {}", dir.display());
        let names: Vec<&str> = results.variants.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, places.each_ref().map(name));
        assert_eq!(results.verdicts.len(), 1, "the second is judged by the first");
        let tables = tables(&results);
        let table = tables[0].to_json();
        assert_eq!(table["columns"].as_array().unwrap().len(), 5);
        assert_eq!(table["columns"][1], format!("AvgLat ms {}", places[0].display()));
        let operations = table["rows"].as_array().unwrap();
        assert!(operations.iter().any(|it| it["Operation"] == "NTCreateX"));
        assert_eq!(tables.len(), 3, "and each by itself, as dbench shows it");
        assert!(dirs.iter().all(|it| std::fs::read_dir(it.path()).unwrap().count() == 0));
    }

    #[test]
    fn a_load_file_is_read_and_one_that_is_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("load.txt");
        let text = path.to_string_lossy().into_owned();
        let setting = Setting { dirs: vec![dir.path().to_path_buf()], ..Setting::default() };
        let refused = |given: &[(&str, &str)]| {
            plan(&setting, &Values::read(OPTIONS, given).unwrap()).err().map(|it| it.kind())
        };
        assert_eq!(refused(&[("loadfile", &text)]), Some(Kind::NotFound));
        std::fs::write(&path, "SMBwrite 1 2 3\n").unwrap();
        assert_eq!(refused(&[("loadfile", &text)]), Some(Kind::Corrupt));
        std::fs::write(&path, "Mkdir \"\\a\" NT_STATUS_OK\n").unwrap();
        assert_eq!(refused(&[("loadfile", &text)]), None);
        assert_eq!(refused(&[("clients", "0")]), Some(Kind::Usage));
    }
}
