//! The savings of every sort of dedup on a tree: the library's survey of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pinstripe::dedup::distinct::Count;
use pinstripe::ops::analyze;
use pinstripe::pipeline::limits::{Limits, MEMORY_DEFAULT_BYTES};
use pinstripe::pipeline::survey::{LENGTHS, Survey};
use pinstripe::walk::Exclude;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::{format_count, format_size};

use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid, shared};
use crate::io::walkers;
use crate::result::{Measured, Metric, Parameter, Results, Run, Variant};
use crate::run::{Live, Outcome, PlaceNo, Plan, Tally, VariantNo, VariantSpec};
use crate::stats::Better;
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "dedup",
    about: "Show what dedup would save on a tree: whole files, fixed blocks, content-defined chunks",
    help: "\
A tree is read once, nothing is written. The methods are compared: whole files that are the same by name, \
size and content, or by content alone; blocks of a fixed length from 4 KiB to 1 MiB; and content-defined \
chunks of such average lengths. Zeros that a sparse file does not store count as nothing, and a \
file with several names counts once.

These are counts, not times: a tree is read once, and other load cannot disturb that. Where distinct parts are \
too many for the memory, a sample is taken, and the table says so.",
    examples: "\
  pinstripe lab run dedup --tree /home
  pinstripe lab run dedup --dir /srv/a --dir /srv/b",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "tree",
        value: "DIR",
        form: ValueForm::Path,
        default: None,
        about: "The tree [default: each --dir]",
        more: "",
    },
    CaseOption {
        name: "one-file-system",
        value: "",
        form: ValueForm::Flag,
        default: None,
        about: "Do not enter mounted file systems",
        more: "",
    },
    CaseOption {
        name: "seen-memory",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("256M"),
        about: "Memory for the chunks seen; beyond it, a sample is taken",
        more: "",
    },
];

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let trees = match values.text("tree") {
        Some(tree) => vec![PathBuf::from(tree)],
        None => setting.dirs.clone(),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Box::new(Dedup {
        parameters: shared::parameters(OPTIONS, values),
        expected: vec![0; trees.len()],
        trees,
        one_file_system: values.has("one-file-system"),
        limits: Limits::new(cores, 1, values.size("seen-memory").max(MEMORY_DEFAULT_BYTES / 4)),
    }))
}

struct Dedup {
    parameters: Vec<Parameter>,
    trees: Vec<PathBuf>,
    one_file_system: bool,
    limits: Limits,
    /// Bytes of the files of each tree, about: some have several names, or holes.
    expected: Vec<u64>,
}

/// The name of one sort of dedup in tables, and in the names of its figures.
fn methods(survey: &Survey) -> Vec<(String, Count)> {
    let files = [
        ("whole files by name, size and content".to_owned(), survey.by_name),
        ("whole files by content".to_owned(), survey.by_content),
    ];
    let named = |what: &str, counts: &[Count]| -> Vec<(String, Count)> {
        let name = |bytes: u32| format!("{what} {}", format_size(u64::from(bytes)));
        counts.iter().zip(LENGTHS).map(|(count, bytes)| (name(bytes), *count)).collect()
    };
    let fixed = named("fixed blocks of", &survey.fixed);
    let defined = named("content-defined chunks around", &survey.defined);
    [files.to_vec(), fixed, defined].concat()
}

/// Share of bytes that need not be kept, in percent.
fn saved(all: f64, distinct: f64) -> f64 {
    if all > 0.0 { 100.0 * (1.0 - distinct / all) } else { 0.0 }
}

impl Plan for Dedup {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |tree: &PathBuf| {
            let name = tree.to_string_lossy().into_owned();
            VariantSpec {
                group: name.clone(),
                about: "bytes that content-defined chunks around 64 KiB save".to_owned(),
                parameters: vec![Parameter::new("tree", &name)],
                metric: Metric {
                    name: "saved".to_owned(),
                    unit: "% saved".to_owned(),
                    better: Better::Higher,
                },
                name,
                place: PlaceNo::FIRST,
            }
        };
        self.trees.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.trees.clone()
    }

    fn is_exact(&self) -> bool {
        true
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn intents(&self) -> Vec<String> {
        self.trees.iter().map(|tree| format!("read all of {}", tree.display())).collect()
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        for (tree, expected) in self.trees.iter().zip(&mut self.expected) {
            *expected = walkers::bytes_of(tree, self.one_file_system, live)?;
        }
        Ok(())
    }

    fn ready(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let options = analyze::AnalyzeOptions {
            path: &self.trees[variant.0],
            exclude: Exclude::default(),
            one_file_system: self.one_file_system,
            limits: self.limits,
            stop: live.stop(),
        };
        live.set_total(self.expected[variant.0]);
        let (survey, read_bytes, losses) =
            live.counting(Tally::Bytes, Counter::ReadBytes, |monitor| {
                let survey = analyze::run(options, monitor)?;
                let count = |counter| monitor.get(counter);
                Ok::<_, Error>((survey, count(Counter::ReadBytes), count(Counter::Losses)))
            })?;
        let mut figures = BTreeMap::new();
        for (name, count) in methods(&survey) {
            let sampled = count.sampled.max(1);
            for (what, number) in [
                ("objects", count.items),
                ("distinct", count.distinct_items),
                ("bytes", count.bytes),
                ("kept_bytes", count.distinct_bytes),
                ("sampled", sampled),
            ] {
                figures.insert(format!("{name}: {what}"), number as f64);
            }
        }
        let (tried, compressed) = (survey.tried_bytes, survey.compressed_bytes);
        figures.insert(
            "compressed_percent".to_owned(),
            100.0 - saved(tried as f64, compressed as f64),
        );
        figures.insert("losses".to_owned(), losses as f64);
        let chunks = survey.defined.get(2).copied().unwrap_or_default();
        Ok(Outcome {
            measured: Measured {
                value: saved(chunks.bytes as f64, chunks.distinct_bytes as f64),
                read_bytes,
                operations: survey.by_content.items,
                figures,
                ..Measured::default()
            },
            ..Outcome::default()
        })
    }

    fn check(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        Ok(())
    }

    fn clean(&mut self) -> Result<()> {
        Ok(())
    }
}

fn tables(results: &Results) -> Vec<Table> {
    results.variants.iter().filter_map(|it| Some(of_tree(it, it.runs.first()?))).collect()
}

fn of_tree(variant: &Variant, run: &Run) -> Table {
    let head = ["dedup", "objects", "distinct", "% fewer", "bytes", "kept", "% saved"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (method, _) in methods(&all_methods()) {
        let of = |what: &str| grid::named(&format!("{method}: {what}"))(run).unwrap_or(0.0);
        let mark = if of("sampled") > 1.0 { "~" } else { "" };
        rows.push(vec![
            method.clone(),
            format_count(of("objects") as u64),
            format!("{mark}{}", format_count(of("distinct") as u64)),
            format!("{:.2}", saved(of("objects"), of("distinct"))),
            format_size(of("bytes") as u64),
            format!("{mark}{}", format_size(of("kept_bytes") as u64)),
            format!("{:.2}", saved(of("bytes"), of("kept_bytes"))),
        ]);
    }
    let of = |name: &str| run.measured.figures.get(name).copied().unwrap_or(0.0);
    let mut note = format!(
        "New chunks of 64 KiB compress to {:.1} %. '~': estimated from a sample.",
        of("compressed_percent")
    );
    if of("losses") > 0.0 {
        note.push_str(&format!(" Entries that could not be read: {}.", of("losses")));
    }
    Table::from_rows(grid::parameter(variant, "tree"), note, rows)
}

/// A survey of nothing, for the names of its parts.
fn all_methods() -> Survey {
    let none = vec![Count::default(); LENGTHS.len()];
    Survey { fixed: none.clone(), defined: none, ..Survey::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    #[test]
    fn twins_are_found_by_every_sort_and_names_count_in_one_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        let mut noise = crate::random::Noise(5);
        let mut content = vec![0; 256 << 10];
        std::io::Read::read_exact(&mut noise, &mut content).unwrap();
        for name in ["one", "two"] {
            std::fs::write(tree.join(name), &content).unwrap();
        }
        let path = tree.to_string_lossy().into_owned();
        let results = measured(&CASE, dir.path(), &[("tree", &path)]);
        let run = &results.variants[0].runs[0];
        assert!((run.measured.value - 50.0).abs() < 1e-9, "{}", run.measured.value);
        assert!(run.is_valid() && run.measured.read_bytes == 512 << 10);
        let rows = tables(&results)[0].to_json()["rows"].clone();
        assert_eq!(rows.as_array().unwrap().len(), 12);
        assert_eq!(rows[0]["% saved"], 0.0, "their names differ");
        for row in 1..12 {
            assert_eq!(rows[row]["% saved"], 50.0, "{}", rows[row]);
        }
    }

    #[test]
    fn each_directory_is_a_tree_and_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "something").unwrap();
        let results = measured(&CASE, dir.path(), &[]);
        assert_eq!(results.variants[0].runs.len(), 1);
        assert_eq!(results.variants[0].runs[0].measured.operations, 1);
    }
}
