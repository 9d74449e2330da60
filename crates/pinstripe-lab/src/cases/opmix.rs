//! The load of office programs on a file server, by a load file of dbench: time of each sort of
//! operation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};

use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::display;
use crate::histogram::Histogram;
use crate::io::loadfile::{self, KINDS, Operation};
use crate::io::opmix::replay;
use crate::result::{Measured, Metric, Parameter, Results, Variant};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "opmix",
    about: "Replay the operations of office programs on a file server, from a load file of dbench, \
        and time each kind",
    help: "\
Each client is a thread with a directory of its own, in which it repeats what the load file lists: opens, \
stats, reads, writes, renames, locks, flushes. The table has the count of each kind, its mean \
time and its longest, as dbench shows them, and percentiles beside them. An operation that is still going \
on when the time is over is waited for and counts in full, so that the longest stall is not cut off.

A figure is bytes read and written per second; nothing waits for the disk but Flush. Load files are those \
of dbench 3 and 4 (client.txt); without one a short load is made up, which is not comparable with it.",
    examples: "\
  pinstripe lab run opmix --dir /srv --clients 1,10
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
        about: "Load file [default: a short generated load]",
        more: "",
    },
    CaseOption {
        name: "clients",
        value: "N,...",
        form: ValueForm::Counts,
        default: Some("1,10"),
        about: "Concurrent clients",
        more: "",
    },
    CaseOption {
        name: "run-time",
        value: "S",
        form: ValueForm::Number,
        default: Some("10"),
        about: "Duration of a run in seconds",
        more: "",
    },
];

/// Bytes that a client's files take at most, as far as one can tell.
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
        dir: shared::one_directory(setting)?,
        folder: None,
        clients,
        load,
        time: shared::seconds(values, "run-time")?,
    }))
}

struct OpMix {
    parameters: Vec<Parameter>,
    dir: PathBuf,
    folder: Option<Folder>,
    clients: Vec<u64>,
    load: Vec<Operation>,
    time: Duration,
}

impl OpMix {
    fn base(&self) -> PathBuf {
        self.folder.as_ref().expect("the folder was made before the first run").path("clients")
    }

    fn bytes(&self) -> u64 {
        self.clients.iter().max().unwrap_or(&0) * CLIENT_BYTES
    }
}

impl Plan for OpMix {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |clients: &u64| {
            let name =
                if *clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
            VariantSpec {
                group: name.clone(),
                about: format!("a repeated load; operations: {}", self.load.len()),
                parameters: vec![Parameter::new("clients", clients)],
                metric: Metric::throughput(),
                name,
                place: PlaceNo::FIRST,
            }
        };
        self.clients.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.dir.clone()]
    }

    fn notes(&self) -> Vec<String> {
        vec!["only Flush waits for the disk: all else is accepted, not durable".to_owned()]
    }

    fn intents(&self) -> Vec<String> {
        vec![shared::intent(&self.dir, CASE.name, self.bytes())]
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn prepare(&mut self, _: &Live) -> Result<()> {
        self.folder = Some(Folder::make(&self.dir, CASE.name, self.bytes())?);
        Ok(())
    }

    fn ready(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        let base = self.base();
        match std::fs::remove_dir_all(&base) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("cannot remove", &base, error))
            }
            _ => Ok(()),
        }
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let clients = self.clients[variant.0] as usize;
        let replayed = replay(&self.load, &self.base(), clients, self.time, live)?;
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

    fn check(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        Ok(())
    }

    fn clean(&mut self) -> Result<()> {
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

fn tables(results: &Results) -> Vec<Table> {
    results.variants.iter().filter(|it| !it.runs.is_empty()).map(operations).collect()
}

/// As dbench shows it, with percentiles.
fn operations(variant: &Variant) -> Table {
    let head = ["Operation", "Count", "AvgLat ms", "MaxLat ms", "p50", "p99", "p99.9"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for kind in KINDS {
        let times = times_of(variant, kind);
        if times.is_empty() {
            continue;
        }
        let millis =
            |it: Option<Duration>| format!("{:.3}", it.unwrap_or_default().as_secs_f64() * 1e3);
        let of = |q: f64| times.quantile(q).map_or("-".to_owned(), display::duration);
        let count = times.count().to_string();
        let (mean, most) = (millis(times.mean()), millis(times.max()));
        rows.push(vec![kind.to_owned(), count, mean, most, of(0.5), of(0.99), of(0.999)]);
    }
    let surprises = grid::figure(variant, grid::named("surprises")).map_or(0.0, |it| it.value);
    let mut note = match variant.values().is_empty() {
        true => "All runs together: every one was disturbed.".to_owned(),
        false => "All runs that count together.".to_owned(),
    };
    if surprises > 0.0 {
        note += &format!(
            " Operations of a run with another result than in the load file: {surprises:.0}."
        );
    }
    Table::from_rows(&variant.name, note, rows)
}

/// Times of one sort in the runs that count, or in all of them where none does.
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
