//! Measures how many rows per second can be written into the catalogue of a backup: by one writer,
//! and by 37 at once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use pinstripe::{Store, rebuild_catalog};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_stats::Better;

use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::catalog::{self, STREAMS, Workload};
use crate::result::{Measured, Metric, Parameter, Results};
use crate::run::{CountedUnit, Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "catalog",
    about: "Write the catalogue (list of files) of a backup with 1 and with 37 writers, and \
            measure the rows per second",
    help: "\
Generates in memory the catalogue (list of files) of fifteen machines with 37 file systems in total. Names, \
sizes and hashes are realistic; about half of the files have distinct content. Concurrent writers then write \
the catalogue into a new store of four members with parity 1. Each file system becomes one snapshot, and all \
snapshots are durable at the end of a run. The variant 'view' creates the SQL view of all snapshots, with \
one writer.",
    examples: "\
  pinstripe lab run catalog --dir /srv
  pinstripe lab run catalog --rows 13753410 --writers 1,37",
    options: OPTIONS,
    plan,
    tables,
    again: AGAIN,
};

/// A variant is a number of writers, or the view; the view needs rows that a writer has written.
const AGAIN: Again = Again {
    of_variant: |parameter| {
        let Parameter { name, value } = parameter;
        (name == "what").then(|| match value.split_once(' ') {
            Some((writers, _)) => {
                vec![("writers", writers.to_owned()), ("no-view", String::new())]
            }
            None => vec![("writers", "1".to_owned())],
        })
    },
    ..Again::BY_NAME
};

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "rows",
        value: "N",
        form: ValueForm::Count,
        default: Some("200000"),
        about: "Number of rows in the catalogue; each row describes one file",
        more: "The generated catalogue is modelled on a real one, which had 13753410 rows.",
    },
    CaseOption {
        name: "writers",
        value: "N,...",
        form: ValueForm::Counts,
        default: Some("1,37"),
        about: "Numbers of concurrent writers to compare, each at most 37",
        more: "The first value is the baseline, with which the other values are compared.",
    },
    CaseOption {
        name: "no-view",
        value: "",
        form: ValueForm::Flag,
        default: None,
        about: "Do not measure the SQL view",
        more: "",
    },
];

/// With fewer rows, some streams would be nearly empty.
const ROWS_MIN: u64 = STREAMS as u64 * 100;
/// Bytes that a row takes on all members and in the view, rounded up.
const ROW_BYTES: u64 = 600;

#[derive(Clone, Copy, PartialEq)]
enum CatalogWay {
    Writers(usize),
    View,
}

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let writers = values.counts("writers");
    if writers.iter().any(|it| !(1..=STREAMS as u64).contains(it)) {
        return Err(Error::new(Kind::Usage, "the number of writers must be from 1 to 37"));
    }
    let rows = values.count("rows");
    if rows < ROWS_MIN {
        return Err(Error::new(Kind::Usage, "--rows is too small").expected(ROWS_MIN, rows));
    }
    let mut ways: Vec<CatalogWay> =
        writers.into_iter().map(|it| CatalogWay::Writers(it as usize)).collect();
    if !values.has("no-view") {
        ways.push(CatalogWay::View);
    }
    Ok(Box::new(CatalogCase {
        parameters: shared::parameters(OPTIONS, values),
        dir: shared::one_directory(setting)?,
        folder: None,
        ways,
        rows,
        seed: setting.seed,
        workload: None,
        store: None,
    }))
}

struct CatalogCase {
    parameters: Vec<Parameter>,
    dir: PathBuf,
    folder: Option<Folder>,
    ways: Vec<CatalogWay>,
    rows: u64,
    seed: u64,
    workload: Option<Workload>,
    /// The store that the next run fills or reads.
    store: Option<Store>,
}

impl CatalogCase {
    fn path(&self, name: &str) -> PathBuf {
        let folder = self.folder.as_ref().expect("the folder was made before the first run");
        folder.path(name)
    }

    fn workload(&self) -> &Workload {
        self.workload.as_ref().expect("rows were made up before the first run")
    }

    fn write(&self, writers: usize, live: &Live) -> Result<Outcome> {
        let store = self.store.as_ref().expect("a store was made for this run");
        let written = catalog::write_streams(self.workload(), store, writers, live)?;
        Ok(self.outcome(written.seconds, written.bytes))
    }

    fn view(&self, live: &Live) -> Result<Outcome> {
        let store = self.store.as_ref().expect("a store was filled for this run");
        let (path, began) = (self.path("view.sqlite"), Instant::now());
        let counter = Counter::CataloguedVersions;
        let found = live.counting(CountedUnit::Items, counter, |monitor| {
            drop(rebuild_catalog(store, &path, monitor)?);
            Ok::<_, Error>(monitor.get(counter))
        })?;
        let seconds = began.elapsed().as_secs_f64();
        if found != self.rows {
            let error = Error::new(
                Kind::Corrupt,
                "the number of rows in the view differs from the number of rows written",
            );
            return Err(error.at(path).expected(self.rows, found));
        }
        let bytes = std::fs::metadata(&path).map_or(0, |it| it.len());
        Ok(self.outcome(seconds, bytes))
    }

    fn outcome(&self, seconds: f64, bytes: u64) -> Outcome {
        Outcome {
            measured: Measured {
                value: self.rows as f64 / seconds.max(1e-9),
                operations: self.rows,
                written_bytes: bytes,
                figures: BTreeMap::from([(
                    "bytes_of_each_row".to_owned(),
                    bytes as f64 / self.rows as f64,
                )]),
                ..Measured::default()
            },
            // Each file is synced, with its name; a database writes its journal as well.
            beside_written_bytes: 2 * bytes,
            beside_read_bytes: bytes,
            syncs: STREAMS as u64 * 16,
            ..Outcome::default()
        }
    }
}

impl Plan for CatalogCase {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |way: &CatalogWay| {
            let (name, group, about) = match way {
                CatalogWay::Writers(1) => {
                    ("1 writer".to_owned(), "streams", "one writer writes the rows of all streams")
                }
                CatalogWay::Writers(writers) => (
                    format!("{writers} writers"),
                    "streams",
                    "several writers write the rows of all streams",
                ),
                CatalogWay::View => ("view".to_owned(), "view", "rebuilding the SQL view"),
            };
            let (group, about) = (group.to_owned(), about.to_owned());
            let parameters = vec![Parameter::new("what", &name)];
            let metric = Metric {
                name: "rows".to_owned(),
                unit: "rows/s".to_owned(),
                better: Better::Higher,
            };
            VariantSpec { name, group, about, parameters, metric, place: PlaceNo::FIRST }
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.dir.clone()]
    }

    fn intents(&self) -> Vec<String> {
        vec![shared::intent(&self.dir, CASE.name, self.rows * ROW_BYTES)]
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        vec![(self.dir.clone(), self.rows * ROW_BYTES)]
    }

    fn prepare(&mut self, _: &Live) -> Result<()> {
        self.folder = Some(Folder::make(&self.dir, CASE.name, self.rows * ROW_BYTES)?);
        self.workload = Some(Workload::make(self.rows as usize, self.seed));
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, live: &Live) -> Result<()> {
        let is_filled = matches!(self.ways[variant.0], CatalogWay::View);
        self.store = None;
        let store = catalog::new_store(&self.path("store"))?;
        if is_filled {
            shared::remove_files(&[self.path("view.sqlite")])?;
            catalog::write_streams(self.workload(), &store, STREAMS, live)?;
        }
        // The run must not pay for the sync of earlier writes.
        rustix::fs::sync();
        self.store = Some(store);
        Ok(())
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        match self.ways[variant.0] {
            CatalogWay::Writers(writers) => self.write(writers, live),
            CatalogWay::View => self.view(live),
        }
    }

    fn clean(&mut self) -> Result<()> {
        (self.store, self.workload) = (None, None);
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let head = ["what", "rows", "rows/s", "minutes for 13,753,410", "bytes of each row"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for variant in &results.variants {
        let figure = grid::figure(variant, grid::value);
        let minutes = |rate: f64| format!("{:.1}", catalog::ROWS as f64 / rate / 60.0);
        let whole = figure.map(|it| it.derive(minutes));
        rows.push(vec![
            variant.name.clone(),
            variant.runs.first().map_or("-".to_owned(), |it| it.measured.operations.to_string()),
            grid::cell(figure),
            whole.unwrap_or("-".to_owned()),
            grid::cell(grid::figure(variant, grid::named("bytes_of_each_row"))),
        ]);
    }
    let note = "The time starts when all rows are in memory, and ends when all rows are durable.";
    vec![Table::from_rows("Inserting rows into the catalog", note, rows)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    #[test]
    fn all_rows_are_written_by_one_and_by_many_and_the_view_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let results = measured(&CASE, dir.path(), &[("rows", "4000"), ("writers", "1,5")]);
        let names: Vec<&str> = results.variants.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["1 writer", "5 writers", "view"]);
        for variant in &results.variants {
            let run = &variant.runs[0];
            assert!(
                run.measured.operations == 4000 && run.measured.value > 0.0,
                "{}",
                variant.name
            );
        }
        assert_eq!(tables(&results)[0].to_json()["rows"][2]["rows"], 4000.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn more_writers_than_streams_and_too_few_rows_are_refused() {
        let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
        for bad in [("writers", "0"), ("writers", "38"), ("rows", "3699")] {
            let values = Values::read(OPTIONS, &[bad]).unwrap();
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{bad:?}");
        }
    }
}
