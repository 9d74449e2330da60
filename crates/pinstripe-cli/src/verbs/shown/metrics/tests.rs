use std::collections::{BTreeMap, BTreeSet};

use super::super::status::{CacheFigures, SourceFigures, StreamFigures};
use super::*;

/// A path with everything that a label must not hold as it is.
const PATH: &str = "/a \"b\"\\n\\\n{c=\"d\"},\r\u{85}";

fn full() -> ShownStatus {
    let mut status = ShownStatus::new("mount", Path::new(PATH), "x", Duration::from_secs(5));
    status.memory.held_bytes = 5;
    status.memory.budget_bytes = u64::MAX;
    status.snapshots = Some(3);
    status.source = Some(SourceFigures { median_seconds: 0.0004, ..SourceFigures::default() });
    status.cache = Some(CacheFigures::default());
    let stream =
        |stride_bytes, ahead| StreamFigures { stride_bytes, ahead, record_bytes: 4, used: 9 };
    let streams = vec![stream(-8, 5), stream(4, 1), stream(-8, 6)];
    for inode in [7, 8] {
        let path = PATH.to_owned();
        let file = FileFigures { path, inode, streams: streams.clone(), ..FileFigures::default() };
        status.files.push(file);
    }
    for number in [0, 1] {
        let place = "m".to_owned();
        status.members.push(MemberFigures { number, place, ..MemberFigures::default() });
    }
    status
}

/// A sample: its labels in their order, with their values, and its value.
type Sample = (Vec<(String, String)>, f64);

/// Reads a page by the rules of the format, and holds it against them: a help and a type before the
/// samples of each family, families whole and once, names and labels of their characters, no sample
/// twice, counters named so.
fn read(page: &str) -> BTreeMap<String, Vec<Sample>> {
    assert!(page.ends_with('\n'));
    let mut families: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    let (mut family, mut has_type) = (String::new(), false);
    // Only a line feed ends a line.
    for line in page[..page.len() - 1].split('\n') {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(is_name(name) && !text.is_empty() && !text.contains('\\'), "{line}");
            assert!(families.insert(name.to_owned(), Vec::new()).is_none(), "{name} twice");
            (family, has_type) = (name.to_owned(), false);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(name == family && !has_type && families[name].is_empty(), "{line}");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            has_type = true;
        } else {
            let (name, rest) = line.split_once('{').unwrap();
            assert!(name == family && has_type, "{line}");
            let (labels, value) = read_labels(rest);
            let value = value.strip_prefix(' ').unwrap().parse().unwrap();
            let samples = families.get_mut(name).unwrap();
            assert!(samples.iter().all(|(other, _)| *other != labels), "{line} twice");
            samples.push((labels, value));
        }
    }
    families
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !text.starts_with(|first: char| first.is_ascii_digit())
}

/// Labels up to the closing brace, and what follows it.
fn read_labels(mut text: &str) -> (Vec<(String, String)>, &str) {
    let (mut labels, mut names) = (Vec::new(), BTreeSet::new());
    loop {
        let (name, rest) = text.split_once("=\"").unwrap();
        assert!(is_name(name) && names.insert(name.to_owned()), "{name}");
        let (mut value, mut characters) = (String::new(), rest.char_indices());
        let end = loop {
            match characters.next().expect("the value ends") {
                (at, '"') => break at,
                (_, '\\') => match characters.next().unwrap().1 {
                    'n' => value.push('\n'),
                    other => {
                        assert!(other == '\\' || other == '"', "\\{other}");
                        value.push(other);
                    }
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        text = &rest[end + 1..];
        match text.split_at(1) {
            (",", rest) => text = rest,
            ("}", rest) => return (labels, rest),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_page_keeps_the_rules_of_the_format() {
    let families = read(&text(&full()));
    for (name, samples) in &families {
        assert!(!samples.is_empty(), "{name}");
        for (labels, _) in samples {
            assert_eq!(labels[0], ("verb".to_owned(), "mount".to_owned()));
            assert_eq!(labels[1], ("mountpoint".to_owned(), PATH.to_owned()));
        }
    }
    let of = |name: &str| &families[&format!("pinstripe_shown_{name}")];
    assert_eq!(of("memory_held_bytes")[0].1, 5.0);
    assert_eq!(of("memory_budget_bytes")[0].1, u64::MAX as f64);
    assert_eq!(of("source_median_seconds")[0].1, 0.0004);
    assert_eq!(of("file_hits_total").len(), 2);
    assert_eq!(of("member_in_flight").len(), 2);
    let windows: Vec<_> = of("stream_window_records").iter().map(|(_, value)| *value).collect();
    assert_eq!(windows, [11.0, 1.0, 11.0, 1.0], "streams of one pattern are one sample");
    let (labels, _) = &of("stream_count")[0];
    assert_eq!(labels[2], ("path".to_owned(), PATH.to_owned()));
    assert_eq!(labels[4], ("stride_bytes".to_owned(), "-8".to_owned()));
}

#[test]
fn what_there_is_none_of_is_left_out() {
    let families = read(&text(&ShownStatus::default()));
    let has = |part: &str| families.keys().any(|name| name.contains(part));
    assert!(
        has("memory") && !["source", "cache", "file", "member", "stream"].iter().any(|it| has(it))
    );
}

#[test]
fn the_page_of_documentation_names_each_figure_and_no_other() {
    let page = include_str!("../../../../../../doc/read-back.md");
    let (_, table) = page.split_once("| name, after `pinstripe_shown_`").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let names = |row: &str| {
        let cell = row.split('|').nth(1).unwrap().to_owned();
        let quoted: Vec<_> = cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        quoted.into_iter().map(|name| format!("pinstripe_shown_{name}"))
    };
    let listed: BTreeSet<String> =
        table.lines().filter(|row| row.starts_with("| `")).flat_map(names).collect();
    assert_eq!(listed, read(&text(&full())).into_keys().collect());
}

#[test]
fn figures_go_to_an_address_or_into_a_file() {
    let read = |text: &str| text.parse::<MetricsPlace>();
    let address = |text: &str| MetricsPlace::Address(text.parse().unwrap());
    assert_eq!(read("127.0.0.1:9100").unwrap(), address("127.0.0.1:9100"));
    assert_eq!(read("[::1]:0").unwrap(), address("[::1]:0"));
    assert!(matches!(read("localhost:9100"), Ok(MetricsPlace::Address(it)) if it.port() == 9100));
    for file in ["figures", "./127.0.0.1:9100", "a:b", "9100"] {
        assert_eq!(read(file).unwrap(), MetricsPlace::File(file.into()));
    }
    assert!(read("localhost:many").is_err() && read("").is_err());
}
