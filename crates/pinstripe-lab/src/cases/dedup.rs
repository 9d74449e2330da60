//! Measures the savings of every sort of dedup on a tree, by a survey of the library.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pinstripe::{Exclude, Limits, MEMORY_DEFAULT_BYTES, SURVEY_LENGTHS, Survey, analyze};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::{format_count, format_size};
use pinstripe_stats::Better;
use pinstripe_stripe::Count;

use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid, shared};
use crate::io::walkers;
use crate::result::{Measured, Metric, Parameter, Results, Run, Variant};
use crate::run::{CountedUnit, Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "dedup",
    about: "Show how much deduplication of whole files, fixed blocks and content-defined chunks \
            would save",
    help: "\
Reads a tree once and writes nothing. Compares three kinds of deduplication: of whole files (equal in name, \
size and content, or in content alone), of blocks of fixed length from 4 KiB to 1 MiB, and of \
content-defined chunks of the same average lengths. Holes of sparse files are not counted, and a file with \
several hard links counts once.

If --tree is given several times, the trees are measured separately, and then together as one tree. The \
measurement of all trees together also finds equal files and chunks in different trees. The difference \
between the result for all trees together and the results for the single trees is the space that one store \
for all trees would save.

The results are counts, not times, so other load does not disturb them. If --seen-memory is too small for \
the list of all distinct chunks, the result is estimated from a sample, and the table reports this.",
    examples: "\
  pinstripe lab run dedup --tree /home
  pinstripe lab run dedup --tree /srv/server1 --tree /srv/server2 --tree /srv/server3
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
        form: ValueForm::Paths,
        default: None,
        about: "A tree to read; several trees are measured separately and together [default: each \
                --dir separately]",
        more: "Give --tree once for each tree.",
    },
    CaseOption {
        name: "one-file-system",
        value: "",
        form: ValueForm::Flag,
        default: None,
        about: "Do not enter other file systems that are mounted below a tree",
        more: "",
    },
    CaseOption {
        name: "seen-memory",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("256M"),
        about: "Memory for the list of distinct chunks; if it is too small, the result is \
                estimated from a sample",
        more: "",
    },
];

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let trees: Vec<PathBuf> = values
        .texts("tree")
        .into_iter()
        .map(|tree| shared::existing_tree(Path::new(tree)))
        .collect::<Result<_>>()?;
    refuse_nested(&trees)?;
    let mut corpora: Vec<Vec<PathBuf>> = match trees.as_slice() {
        [] => setting.dirs.iter().map(|dir| vec![dir.clone()]).collect(),
        trees => trees.iter().map(|tree| vec![tree.clone()]).collect(),
    };
    if trees.len() > 1 {
        corpora.push(trees);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Box::new(Dedup {
        parameters: shared::parameters(OPTIONS, values),
        expected: vec![0; corpora.len()],
        corpora,
        one_file_system: values.has("one-file-system"),
        limits: Limits::new(cores, 1, values.size("seen-memory").max(MEMORY_DEFAULT_BYTES / 4)),
    }))
}

/// Refuses nested trees: content in both would be counted as its own copy.
fn refuse_nested(trees: &[PathBuf]) -> Result<()> {
    let whole = |tree: &PathBuf| std::fs::canonicalize(tree).unwrap_or_else(|_| tree.clone());
    let whole: Vec<PathBuf> = trees.iter().map(whole).collect();
    for (number, tree) in whole.iter().enumerate() {
        let others = whole.iter().enumerate().filter(|(other, _)| *other != number);
        if let Some((_, outer)) = others.into_iter().find(|(_, other)| tree.starts_with(other)) {
            let what = format!("this directory is inside {}, which is also given", outer.display());
            return Err(Error::new(Kind::Usage, what).at(&trees[number]));
        }
    }
    Ok(())
}

/// The name under which a table lists several trees.
fn name_of(trees: &[PathBuf]) -> String {
    match trees {
        [tree] => tree.to_string_lossy().into_owned(),
        trees => format!("all {} trees counted together", trees.len()),
    }
}

struct Dedup {
    parameters: Vec<Parameter>,
    /// The corpora: each is one tree, or several trees read as one.
    corpora: Vec<Vec<PathBuf>>,
    one_file_system: bool,
    limits: Limits,
    /// Approximate bytes of the files of each corpus: some files have several names, or holes.
    expected: Vec<u64>,
}

/// The methods of dedup, each with the name that it has in tables and in the names of its figures.
fn methods(survey: &Survey) -> Vec<(String, Count)> {
    let files = [
        ("complete files with the same name, size and content".to_owned(), survey.by_name),
        ("complete files with the same content".to_owned(), survey.by_content),
    ];
    let named = |what: &str, counts: &[Count]| -> Vec<(String, Count)> {
        counts
            .iter()
            .zip(SURVEY_LENGTHS)
            .map(|(count, bytes)| (of_length(what, bytes), *count))
            .collect()
    };
    let fixed = named("fixed blocks of", &survey.fixed);
    let defined = named(DEFINED, &survey.defined);
    [files.to_vec(), fixed, defined].concat()
}

/// The name of a method that depends on the length of its pieces.
fn of_length(what: &str, bytes: u32) -> String {
    format!("{what} {}", format_size(u64::from(bytes)))
}

/// The share of bytes that dedup saves, in percent.
fn saved(all: f64, distinct: f64) -> f64 {
    if all > 0.0 { 100.0 * (1.0 - distinct / all) } else { 0.0 }
}

impl Plan for Dedup {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |trees: &Vec<PathBuf>| {
            let name = name_of(trees);
            let tree = |tree: &PathBuf| Parameter::new("tree", tree.to_string_lossy());
            VariantSpec {
                group: name.clone(),
                about: "bytes saved by content-defined chunks of about 64 KiB".to_owned(),
                parameters: trees.iter().map(tree).collect(),
                metric: Metric {
                    name: "saved by chunks of 64 KiB".to_owned(),
                    unit: "% saved by 64 KiB chunks".to_owned(),
                    better: Better::Higher,
                },
                name,
                place: PlaceNo::FIRST,
            }
        };
        self.corpora.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        let alone = self.corpora.iter().filter(|it| it.len() == 1);
        alone.flatten().cloned().collect()
    }

    fn is_exact(&self) -> bool {
        true
    }

    fn intents(&self) -> Vec<String> {
        let times = if self.corpora.iter().any(|it| it.len() > 1) { ", twice" } else { "" };
        let intent = |tree: &PathBuf| format!("read all files of {}{times}", tree.display());
        self.places().iter().map(intent).collect()
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        for (trees, expected) in self.corpora.iter().zip(&mut self.expected) {
            for tree in trees {
                *expected += walkers::bytes_of(tree, self.one_file_system, live)?;
            }
        }
        Ok(())
    }

    fn ready(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let options = analyze::AnalyzeOptions {
            paths: &self.corpora[variant.0],
            exclude: Exclude::default(),
            one_file_system: self.one_file_system,
            limits: self.limits,
            stop: live.stop(),
        };
        live.set_total(self.expected[variant.0]);
        let (survey, read_bytes, losses) =
            live.counting(CountedUnit::Bytes, Counter::ReadBytes, |monitor| {
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
        let chunks = survey.defined.get(SHOWN).copied().unwrap_or_default();
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

    fn clean(&mut self) -> Result<()> {
        Ok(())
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let measured: Vec<(&Variant, &Run)> =
        results.variants.iter().filter_map(|it| Some((it, it.runs.first()?))).collect();
    let summary = (measured.len() > 1).then(|| summary(&measured));
    summary.into_iter().chain(measured.iter().map(|(it, run)| of_tree(it, run))).collect()
}

/// A table that compares the trees, with the most commonly requested methods first.
fn summary(measured: &[(&Variant, &Run)]) -> Table {
    let ways = [
        "complete files with the same name, size and content",
        "complete files with the same content",
    ];
    let defined = of_length(DEFINED, SURVEY_LENGTHS[SHOWN]);
    let ways = [ways[0], ways[1], defined.as_str()];
    let mut head =
        ["tree", "files", "distinct files", "% fewer", "bytes"].map(str::to_owned).to_vec();
    head.extend(ways.map(|way| format!("% saved by {way}")));
    let mut rows = vec![head];
    for (variant, run) in measured {
        let of = |way: &str, what: &str| grid::named(&format!("{way}: {what}"))(run).unwrap_or(0.0);
        let (files, distinct) = (of(ways[0], "objects"), of(ways[0], "distinct"));
        let mut row = vec![
            variant.name.clone(),
            format_count(files as u64),
            format_count(distinct as u64),
            format!("{:.2}", saved(files, distinct)),
            format_size(of(ways[0], "bytes") as u64),
        ];
        let cell = |way: &str| format!("{:.2}", saved(of(way, "bytes"), of(way, "kept_bytes")));
        row.extend(ways.map(cell));
        rows.push(row);
    }
    let note = "Distinct files differ in name, size or content.";
    Table::from_rows("Trees side by side", note, rows)
}

/// The beginning of the name of methods that cut by content.
const DEFINED: &str = "content-defined chunks around";
/// The index in [`LENGTHS`] of the chunk length for which a tree's main figure is reported.
const SHOWN: usize = 2;

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
        "New chunks of 64 KiB can be compressed to {:.1} % of their size. Values with '~' are \
         estimated from a sample.",
        of("compressed_percent")
    );
    if of("losses") > 0.0 {
        note.push_str(&format!(" Number of entries that could not be read: {}.", of("losses")));
    }
    Table::from_rows(&variant.name, note, rows)
}

/// An empty survey, which supplies the names of all methods.
fn all_methods() -> Survey {
    let none = vec![Count::default(); SURVEY_LENGTHS.len()];
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
        let mut noise = pinstripe_base::random::Noise(5);
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
    fn several_trees_are_read_alone_and_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let trees = ["a", "b"].map(|name| dir.path().join(name));
        let mut content = vec![0; 128 << 10];
        std::io::Read::read_exact(&mut pinstripe_base::random::Noise(5), &mut content).unwrap();
        for tree in &trees {
            std::fs::create_dir(tree).unwrap();
            std::fs::write(tree.join("same"), &content).unwrap();
        }
        let given = trees.each_ref().map(|tree| ("tree", tree.to_str().unwrap()));
        let results = measured(&CASE, dir.path(), &given);
        let saved: Vec<f64> = results.variants.iter().map(|it| it.runs[0].measured.value).collect();
        assert_eq!(saved, [0.0, 0.0, 50.0]);
        assert_eq!(results.variants[2].name, "all 2 trees counted together");
        let tables = tables(&results);
        assert_eq!(tables.len(), 4);
        let row = tables[0].to_json()["rows"][2].clone();
        assert_eq!((&row["files"], &row["% fewer"]), (&2.0.into(), &50.0.into()), "{row}");
        // Its last column is what the tree's own table says of the same method.
        let defined = "content-defined chunks around 64.0 KiB";
        assert_eq!(row[format!("% saved by {defined}")], 50.0, "{row}");
        let own = tables[3].to_json()["rows"].as_array().unwrap().clone();
        let own = own.iter().find(|it| it["dedup"] == defined).unwrap();
        assert_eq!(own["% saved"], 50.0);
        // Each way to measure it again names both.
        let words = crate::cases::again(&results).unwrap();
        assert_eq!(words.iter().filter(|it| *it == "--tree").count(), 2, "{words:?}");
        let of_one = crate::cases::alone(&results, &results.variants[1]).unwrap();
        assert_eq!(of_one.iter().filter(|it| *it == "--tree").count(), 1, "{of_one:?}");
        assert!(of_one.contains(&trees[1].to_str().unwrap().to_owned()));
        let of_all = crate::cases::alone(&results, &results.variants[2]).unwrap();
        assert_eq!(of_all.iter().filter(|it| *it == "--tree").count(), 2, "{of_all:?}");
        // One within another would count twice.
        let within = [("tree", dir.path().to_str().unwrap()), given[0]];
        let values = Values::read(OPTIONS, &within).unwrap();
        assert_eq!(plan(&Setting::default(), &values).err().unwrap().kind(), Kind::Usage);
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
