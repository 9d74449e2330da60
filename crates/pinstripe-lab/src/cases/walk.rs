//! Measures how fast a tree is walked, with the metadata of every entry: by pinstripe, by nftw(3),
//! and by find(1).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pinstripe::recommended_threads;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_stats::Better;

use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::io::walkers;
use crate::result::{Measured, Metric, Parameter, Results};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "walk",
    about: "Walk a tree and stat every entry, with pinstripe's walker, nftw(3) and find(1)",
    help: "\
Walks a complete tree and stats every entry (name, size, times), without reading file contents. Without \
--tree, the case creates a tree with the number of directories given by --directories, ten directories in \
each parent, and ten empty files in each directory. After the first walk, all metadata is cached, so later \
walks measure the CPU, not the disk.

The walker 'walker' is the walker of pinstripe, with one thread and with its default number of threads; \
'nftw' is the walker of the C library. A walk ends with its last entry, without waiting for idle threads, as \
in a backup.",
    examples: "\
  pinstripe lab run walk --tree /usr
  pinstripe lab run walk --dir /srv --directories 20000
  pinstripe lab run walk --threads-each 1,2,8 --walkers walker",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

const WALKERS: &[&str] = &["walker", "nftw", "find"];
const FILES_OF_EACH: u64 = 10;

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "tree",
        value: "DIR",
        form: ValueForm::Path,
        default: None,
        about: "The tree to walk [default: a tree that is generated in --dir]",
        more: "The tree must not change during the case: if a walker finds a different number of \
               entries, the case ends.",
    },
    CaseOption {
        name: "directories",
        value: "N",
        form: ValueForm::Count,
        default: Some("2000"),
        about: "Number of directories in the generated tree, with ten files in each directory",
        more: "",
    },
    CaseOption {
        name: "walkers",
        value: "NAME,...",
        form: ValueForm::SomeOf(WALKERS),
        default: Some("nftw,find,walker"),
        about: "Walkers to compare: nftw, find, walker",
        more: "The first value is the baseline, with which the other values are compared.",
    },
    CaseOption {
        name: "threads-each",
        value: "N,...",
        form: ValueForm::Counts,
        default: None,
        about: "Numbers of threads of the walker to compare [default: 1, and the default of the \
                walker]",
        more: "",
    },
];

/// A program that walks, and its number of threads.
type WalkProgram = (&'static str, usize);

/// Another walker: its name, its number of threads, and its function, which returns the number of
/// entries that it saw.
pub type OtherWalker = (&'static str, usize, fn(&Path) -> Result<u64>);

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    beside(setting, values, &[])
}

/// Returns the case with other walkers, which are run in turn with its own walker.
///
/// # Errors
/// [`Kind::Usage`] for invalid options.
pub fn beside(
    setting: &Setting,
    values: &Values,
    others: &'static [OtherWalker],
) -> Result<Box<dyn Plan>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match values.has("threads-each") {
        true => values.counts("threads-each"),
        false => vec![1, recommended_threads(false, cores) as u64],
    };
    if threads.contains(&0) {
        return Err(Error::new(Kind::Usage, "a walker needs at least one thread"));
    }
    let known = |name: &str| WALKERS.iter().find(|it| **it == name).copied();
    let mut ways: Vec<WalkProgram> = Vec::new();
    for walker in values.words("walkers").into_iter().filter_map(known) {
        match walker {
            "walker" => ways.extend(threads.iter().map(|&it| (walker, it as usize))),
            _ => ways.push((walker, 1)),
        }
    }
    ways.dedup();
    ways.extend(others.iter().map(|(name, threads, _)| (*name, *threads)));
    let tree =
        values.text("tree").map(|tree| shared::existing_tree(Path::new(tree))).transpose()?;
    let dir = if tree.is_none() { Some(shared::one_directory(setting)?) } else { None };
    Ok(Box::new(WalkCase {
        parameters: shared::parameters(OPTIONS, values),
        dir,
        tree,
        directories: values.count("directories"),
        folder: None,
        ways,
        others,
        entries: 0,
    }))
}

struct WalkCase {
    parameters: Vec<Parameter>,
    /// The directory in which a tree is created; `None` if an existing tree is used.
    dir: Option<PathBuf>,
    tree: Option<PathBuf>,
    directories: u64,
    folder: Option<Folder>,
    ways: Vec<WalkProgram>,
    others: &'static [OtherWalker],
    /// The entries that every walker must see.
    entries: u64,
}

impl WalkCase {
    fn tree(&self) -> PathBuf {
        let made = || self.folder.as_ref().map(|it| it.path("tree"));
        self.tree.clone().or_else(made).expect("a tree was named or made before the first run")
    }
}

impl Plan for WalkCase {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |(walker, threads): &WalkProgram| VariantSpec {
            name: match *walker {
                "walker" => format!("walker, {threads}"),
                other => other.to_owned(),
            },
            group: "walk".to_owned(),
            about: format!(
                "the attributes of every entry are read (stat) by {walker}, threads: {threads}"
            ),
            parameters: vec![Parameter::new("walker", walker), Parameter::new("threads", threads)],
            metric: Metric {
                name: "entries".to_owned(),
                unit: "entries/s".to_owned(),
                better: Better::Higher,
            },
            place: PlaceNo::FIRST,
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.tree.iter().chain(&self.dir).cloned().collect()
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "the metadata of the tree was in memory, because the tree had been walked once before"
                .to_owned(),
        ]
    }

    fn intents(&self) -> Vec<String> {
        match (&self.dir, &self.tree) {
            (Some(dir), _) => vec![shared::intent(dir, CASE.name, 0)],
            (None, tree) => {
                tree.iter().map(|it| format!("walk the complete tree {}", it.display())).collect()
            }
        }
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        if let Some(dir) = &self.dir {
            let folder = self.folder.insert(Folder::make(dir, CASE.name, 0)?);
            walkers::make_tree(&folder.path("tree"), self.directories, FILES_OF_EACH, live)?;
        }
        (self.entries, _) = walkers::by_walker(&self.tree(), 1, live)?;
        Ok(())
    }

    fn ready(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let (walker, threads) = self.ways[variant.0];
        let (tree, children, began) = (self.tree(), children_cpu(), Instant::now());
        let (seen, time) = match walker {
            "walker" => walkers::by_walker(&tree, threads, live)?,
            "nftw" => (walkers::by_nftw(&tree)?, began.elapsed()),
            // It does not say how many it saw: that it sees all is its own affair.
            "find" => walkers::by_find(&tree).map(|()| (self.entries, began.elapsed()))?,
            other => {
                let walk = self.others.iter().find(|it| it.0 == other);
                let (_, _, walk) = walk.expect("a way is one of the case or one of the others");
                (walk(&tree)?, began.elapsed())
            }
        };
        let (seconds, other) = (time.as_secs_f64(), children_cpu() - children);
        if walker != "walker" {
            // The count of such a walk is known only at its end.
            live.counted(seen);
        }
        if seen != self.entries {
            let error = Error::new(Kind::Changed, "the number of entries of the tree has changed");
            return Err(error.at(tree).expected(self.entries, seen));
        }
        Ok(Outcome {
            measured: Measured {
                value: seen as f64 / seconds.max(1e-9),
                operations: seen,
                figures: BTreeMap::from([("entries".to_owned(), seen as f64)]),
                ..Measured::default()
            },
            other_cpu_s: other.as_secs_f64(),
            ..Outcome::default()
        })
    }

    fn clean(&mut self) -> Result<()> {
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

/// Processor time of the child processes that have ended.
fn children_cpu() -> Duration {
    // SAFETY: getrusage fills the struct, for which zeros are a value, and keeps no pointer to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let time = |it: libc::timeval| Duration::new(it.tv_sec as u64, it.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn tables(results: &Results) -> Vec<Table> {
    let head = ["walker", "threads", "entries", "entries/s", "CPU time of each entry, us"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for variant in &results.variants {
        let of_each = |run: &crate::result::Run| {
            Some(run.cpu_s * 1e6 / run.measured.operations.max(1) as f64)
        };
        rows.push(vec![
            grid::parameter(variant, "walker").to_owned(),
            grid::parameter(variant, "threads").to_owned(),
            grid::cell(grid::figure(variant, grid::named("entries"))),
            grid::cell(grid::figure(variant, grid::value)),
            grid::cell(grid::figure(variant, of_each)),
        ]);
    }
    vec![Table::from_rows("Walks", "The CPU time is the sum over all threads.", rows)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    #[test]
    fn everybody_sees_every_entry_of_the_tree_that_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let results =
            measured(&CASE, dir.path(), &[("directories", "12"), ("threads-each", "1,3")]);
        let names: Vec<&str> = results.variants.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["nftw", "find", "walker, 1", "walker, 3"]);
        for variant in &results.variants {
            assert_eq!(variant.runs[0].measured.operations, 12 + 120, "{}", variant.name);
        }
        assert_eq!(tables(&results)[0].to_json()["rows"][3]["threads"], 3.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_tree_that_is_named_is_left_as_it_is_and_one_that_changes_ends_the_case() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let tree = dir.path().to_string_lossy().into_owned();
        let results = measured(&CASE, dir.path(), &[("tree", &tree), ("walkers", "nftw")]);
        assert_eq!(results.variants[0].runs[0].measured.operations, 2);
        let values = Values::read(OPTIONS, &[("tree", &tree), ("walkers", "nftw")]).unwrap();
        let mut plan = plan(&Setting::default(), &values).unwrap();
        let live = Live::new(Default::default());
        plan.prepare(&live).unwrap();
        std::fs::write(dir.path().join("more"), "").unwrap();
        assert_eq!(plan.run(VariantNo(0), 0, &live).unwrap_err().kind(), Kind::Changed);
        plan.clean().unwrap();
        assert!(dir.path().join("file").exists());
    }
}
