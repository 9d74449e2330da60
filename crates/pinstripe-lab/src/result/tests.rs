//! Results come back as they were saved, and what is no result is refused by what it is.

use std::collections::BTreeMap;
use std::path::Path;

use pinstripe_base::error::Kind;
use pinstripe_stats::Finding;

use super::*;
use crate::guard::Disturbance;

/// Results of two variants with these values.
pub(crate) fn results(values: &[(&str, &[f64])]) -> Results {
    let run = |(order, value): (usize, &f64)| Run {
        order: order as u64,
        round: Some(order as u64),
        at_s: order as f64,
        seconds: 1.0,
        measured: Measured {
            value: *value,
            operations: 10,
            read_bytes: 0,
            written_bytes: 1_000_000_000,
            latency: BTreeMap::from([("write".to_owned(), {
                let mut histogram = Histogram::default();
                (1..=100).for_each(|it| histogram.record_many(it * 1000, 1));
                histogram
            })]),
            figures: BTreeMap::from([("sync_s".to_owned(), 0.25)]),
        },
        cpu_s: 0.5,
        device_read_bytes: Some(0),
        device_written_bytes: None,
        samples: vec![Sample {
            at_s: 0.1,
            mb_per_s: *value,
            dirty_bytes: Some(1),
            writeback_bytes: None,
            cpu_pressure: None,
            io_pressure: Some(0.5),
            memory_pressure: None,
        }],
        notes: vec![Note::AcceptedNotDurable],
        disturbances: Vec::new(),
        parts: Vec::new(),
    };
    let variant = |(name, values): &(&str, &[f64])| Variant {
        name: (*name).to_owned(),
        group: "all".to_owned(),
        about: "a test".to_owned(),
        parameters: vec![Parameter::new("dir", "/srv")],
        metric: Metric::throughput(),
        runs: values.iter().enumerate().map(run).collect(),
    };
    let mut results = Results {
        format: FORMAT.to_owned(),
        version: VERSION,
        program: "pinstripe 0.0.0".to_owned(),
        case: "test".to_owned(),
        command: ["pinstripe", "lab"].map(str::to_owned).to_vec(),
        parameters: vec![Parameter::new("block-size", "4K")],
        seed: 1,
        started_seconds: 1_700_000_000,
        elapsed_s: 9.0,
        is_complete: true,
        fingerprint: Fingerprint::take(&[]),
        hosts: Vec::new(),
        variants: values.iter().map(variant).collect(),
        verdicts: Vec::new(),
        notes: Vec::new(),
    };
    results.judge();
    results
}

const SLOW: [f64; 5] = [97.1, 99.8, 100.3, 101.9, 98.4];
const FAST: [f64; 5] = [110.2, 112.8, 109.1, 111.7, 113.9];

#[test]
fn a_file_gives_back_what_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let results = results(&[("a", &SLOW), ("b", &FAST)]);
    save(&results, &path).unwrap();
    assert_eq!(load(&path).unwrap(), results);
    // Saved again in place, with nothing left beside.
    save(&results, &path).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn the_serial_number_of_a_disk_is_kept_nowhere() {
    let mut results = results(&[("a", &SLOW)]);
    results.command =
        ["lab", "--serial", "WD-123", "--serial=WD-123", "--dir", "."].map(str::to_owned).to_vec();
    let text = serde_json::to_string(&results).unwrap();
    // As older versions wrote it.
    let disk = r#"{"name":"sda","model":"M","serial":"WD-123","bytes":1,"is_rotational":true,"settings":{}}"#;
    let place = format!(
        r#""places":[{{"path":"/srv","file_system":null,"mount_options":null,"space":null,"disk":{disk}}}]"#
    );
    let read = file::parse(text.replace(r#""places":[]"#, &place).as_bytes()).unwrap();
    assert_eq!(read.command, ["lab", "--dir", "."]);
    let disk = read.fingerprint.places[0].disk.as_ref().unwrap();
    assert!(disk.identity.as_ref().is_some_and(|it| it.starts_with('#')), "{disk:?}");
    assert!(!serde_json::to_string(&read).unwrap().contains("WD-123"));
}

#[test]
fn disturbed_runs_count_for_nothing() {
    let mut results = results(&[("a", &SLOW), ("b", &FAST)]);
    assert_eq!(results.verdicts[0].verdict.finding, Finding::Faster);
    let disturbed = Disturbance { kind: "steal".to_owned(), what: "much".to_owned() };
    for run in &mut results.variants[1].runs[..3] {
        run.disturbances.push(disturbed.clone());
    }
    results.judge();
    assert_eq!(results.verdicts[0].verdict.finding, Finding::TooFewRuns);
    let variant = results.variant("b").unwrap();
    assert_eq!(variant.values(), FAST[3..]);
    assert_eq!(variant.latency("write").unwrap().count(), 200);
    assert!(variant.latency("read").is_none());
    assert_eq!(variant.runs[0].cpu_s_per_gb(), Some(0.5));
}

fn refused(text: &str) -> (Kind, String) {
    let error = file::parse(text.as_bytes()).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn newer_and_damaged_files_are_refused_by_what_they_are() {
    let text = serde_json::to_string_pretty(&results(&[("a", &SLOW)])).unwrap();
    let newer = text.replacen("\"version\": 1", "\"version\": 2", 1);
    assert_eq!(refused(&newer).0, Kind::Unsupported);
    assert!(refused(&newer).1.contains("newer version"));
    let cut = refused(&text[..text.len() / 2]);
    assert!(cut.0 == Kind::Corrupt && cut.1.contains("line"), "{}", cut.1);
    let wrong = refused(&text.replacen("\"seed\": 1", "\"seed\": -1", 1));
    assert!(wrong.0 == Kind::Corrupt && wrong.1.contains("line"), "{}", wrong.1);
    assert!(refused("{\"fio version\": \"fio-3.33\"}").1.contains("not a file of results"));
    for (text, what) in
        [("", "is empty"), ("[]", "not a file of results"), ("\u{1f}\u{8b}", "not a file of")]
    {
        assert!(refused(text).0 == Kind::Corrupt && refused(text).1.contains(what), "{text:?}");
    }
    let nothing = format!("{{\"format\":\"{FORMAT}\",\"version\":0}}");
    assert!(refused(&nothing).1.contains("have no version"));
    let none = load(Path::new("/nowhere/at/all")).unwrap_err();
    assert_eq!(none.kind(), Kind::NotFound);
}

#[test]
fn a_history_grows_by_lines_and_shows_where_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/history.jsonl");
    assert_eq!(read_history(&path).unwrap(), []);
    for (day, level) in
        [100.0, 101.0, 99.5, 100.5, 100.2, 80.0, 81.0, 79.5, 80.3, 80.1].iter().enumerate()
    {
        let mut results = results(&[("a", &[*level; 3])]);
        results.started_seconds += day as i64 * 86_400;
        append(&results, &path).unwrap();
    }
    // Another parameter is another series, and so is another place.
    let mut other = results(&[("a", &SLOW), ("none", &[])]);
    other.parameters[0].value = "8K".to_owned();
    append(&other, &path).unwrap();
    let mut elsewhere = results(&[("a", &SLOW)]);
    elsewhere.variants[0].parameters[0].value = "/mnt".to_owned();
    append(&elsewhere, &path).unwrap();
    let all = changes(read_history(&path).unwrap(), 1);
    assert_eq!(all.len(), 3);
    let long = all.iter().find(|series| series.entries.len() == 10).unwrap();
    assert_eq!(long.changes.len(), 1);
    let change = long.change_at(5).unwrap();
    assert_eq!((change.verdict.finding, change.verdict.runs), (Finding::Slower, (5, 5)));
    assert!(change.verdict.interval.unwrap().contains(0.8), "{change:?}");
    assert_eq!(change.differences, [] as [&str; 0]);
}

#[test]
fn a_damaged_line_of_the_history_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.jsonl");
    append(&results(&[("a", &SLOW)]), &path).unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    for (bad, kind) in
        [("{\"version\":1,\n", Kind::Corrupt), ("{\"version\":9}\n", Kind::Unsupported)]
    {
        std::fs::write(&path, format!("{good}{bad}")).unwrap();
        let error = read_history(&path).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}

#[test]
fn results_are_compared_variant_by_variant_with_what_else_is_different() {
    let before = results(&[("a", &SLOW), ("b", &SLOW), ("gone", &SLOW)]);
    let mut after = results(&[("a", &FAST), ("b", &SLOW), ("new", &SLOW)]);
    after.parameters[0].value = "8K".to_owned();
    after.fingerprint.machine.kernel = "9.9".to_owned();
    let found = compare(&before, &after, &[]);
    let findings: Vec<Finding> = found.verdicts.iter().map(|it| it.verdict.finding).collect();
    assert_eq!(findings, [Finding::Estimate; 2], "two executions are two draws");
    let speed = found.verdicts[0].verdict.speed.unwrap();
    assert!((speed - 111.7 / 99.8).abs() < 1e-9, "{speed}");
    assert_eq!(found.unmatched, ["new", "gone"]);
    assert_eq!(found.differences.len(), 2, "{:?}", found.differences);
    assert_eq!(found.differences[1], "block-size: before 4K, now 8K");
    assert_eq!(compare(&before, &before, &[]).differences, [] as [&str; 0]);
    let sides = found.sides.iter().map(|it| (it.before, it.after, it.metric.unit.as_str()));
    let wanted = [(Some(99.8), Some(111.7), "MB/s"), (Some(99.8), Some(99.8), "MB/s")];
    assert_eq!(sides.collect::<Vec<_>>(), wanted);
}

#[test]
fn sides_without_a_question_in_common_are_refused_with_what_they_have() {
    let before = results(&[("a", &SLOW), ("b", &SLOW), ("c", &SLOW), ("d", &SLOW), ("e", &SLOW)]);
    let mut after = results(&[("a", &FAST)]);
    let refused =
        |after: &Results| compare(&before, after, &[]).refuse_unrelated(&[&before], &[after]);
    assert!(refused(&after).is_ok());
    // A variant of the same name, but of another case.
    after.case = "other".to_owned();
    let error = refused(&after).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    let told = "A measured test (a, b, c and 2 more), and B measured other (a)";
    assert!(error.what().ends_with(told), "{error}");
    after.case = before.case.clone();
    after.variants[0].metric = Metric::time();
    assert!(refused(&after).is_err(), "seconds are not held against bytes a second");
}

#[test]
fn a_series_is_named_by_the_values_of_its_own_variant() {
    let named = |all: &[(&str, &str)]| -> Vec<Parameter> {
        all.iter().map(|(name, value)| Parameter::new(name, value)).collect()
    };
    let mut entry = entries(&executions(&[1.0], 0)[0]).remove(0);
    for (all, own) in [
        (
            &[("tree", "t1"), ("tree", "t2"), ("seen-memory", "1M"), ("tree", "t1")][..],
            &[("seen-memory", "1M"), ("tree", "t1")][..],
        ),
        (
            &[
                ("tree", "t1"),
                ("tree", "t2"),
                ("seen-memory", "1M"),
                ("tree", "t1"),
                ("tree", "t2"),
            ],
            &[("seen-memory", "1M"), ("tree", "t1"), ("tree", "t2")],
        ),
        (
            &[("modes", "seqrd,rndrd"), ("files", "2"), ("modes", "seqrd"), ("dir", "/srv")],
            &[("files", "2"), ("modes", "seqrd"), ("dir", "/srv")],
        ),
        (&[("tree", "t1"), ("tree", "t2"), ("tree", "t1")], &[("tree", "t1"), ("tree", "t2")]),
    ] {
        entry.parameters = named(all);
        assert_eq!(entry.own_parameters(), named(own), "{all:?}");
    }
}

#[test]
fn a_line_that_stands_in_the_history_twice_is_one_execution() {
    let known = executions(&[1.0, 1.1, 0.9], 0);
    let once: Vec<Entry> = known.iter().flat_map(entries).collect();
    let twice = [&once[..], &once[..]].concat();
    assert_eq!(changes(twice, 1), changes(once, 1));
}

/// Executions whose one variant is at each of these levels, an hour apart.
fn executions(levels: &[f64], first_hour: i64) -> Vec<Results> {
    let at = |(hour, level): (usize, &f64)| {
        let mut made = results(&[("a", &SLOW.map(|it| it * level))]);
        made.started_seconds += (first_hour + hour as i64) * 3600;
        made
    };
    levels.iter().enumerate().map(at).collect()
}

#[test]
fn three_executions_a_side_are_judged_and_fewer_only_by_what_the_history_knows() {
    let finding = |before: &[Results], after: &[Results], history: &[Entry]| {
        let (before, after): (Vec<&Results>, Vec<&Results>) =
            (before.iter().collect(), after.iter().collect());
        let found = compare_executions(&before, &after, history);
        found.verdicts[0].verdict
    };
    let before = executions(&[1.0, 1.04, 0.97], 100);
    let after = executions(&[1.3, 1.35, 1.26], 200);
    let judged = finding(&before, &after, &[]);
    assert_eq!((judged.finding, judged.runs), (Finding::Faster, (3, 3)));
    // The same runs, but executions that lie as far apart as both sides.
    let wild = executions(&[1.0, 1.4, 0.8], 100);
    assert_eq!(finding(&wild, &after, &[]).finding, Finding::CannotTell);
    assert_eq!(finding(&before[..2], &after[..2], &[]).finding, Finding::Estimate);
    let known = executions(&[1.0, 1.02, 0.99, 1.01, 0.98, 1.0, 1.01], 0);
    let history: Vec<Entry> = known.iter().flat_map(entries).collect();
    assert_eq!(finding(&before[..2], &after[..2], &history).finding, Finding::Faster);
    let one = finding(&before[..1], &after[..1], &history);
    assert_eq!((one.finding, one.p), (Finding::Estimate, None));
    assert!(one.interval.unwrap().low > 1.2, "{one:?}");
    // An execution that is compared is no earlier one.
    let own: Vec<Entry> = before.iter().chain(&after).flat_map(entries).collect();
    assert_eq!(finding(&before[..2], &after[..2], &own[..2]).finding, Finding::Estimate);
}

#[test]
fn results_of_older_versions_are_read_and_judged_anew() {
    let new = results(&[("a", &SLOW), ("b", &FAST)]);
    let mut old = serde_json::to_value(&new).unwrap();
    let verdict = &mut old["verdicts"][0]["verdict"];
    verdict["finding"] = "no_difference".into();
    verdict.as_object_mut().unwrap().remove("basis");
    verdict["interval"].as_object_mut().unwrap().remove("level");
    let read = file::parse(old.to_string().as_bytes()).unwrap();
    assert_eq!(read, new);
}

#[test]
fn a_verb_s_default_is_what_others_are_held_against() {
    let runs: Vec<f64> = (0..9).map(|it| 100.0 + f64::from(it)).collect();
    let mut made = results(&[("1", &runs), ("4", &runs), ("8", &runs)]);
    made.case = "quick".to_owned();
    for variant in &mut made.variants {
        variant.group = "write 1 MiB blocks sequentially, direct".to_owned();
        variant.parameters = vec![Parameter::new("depth", &variant.name)];
    }
    made.judge();
    let compared: Vec<(&str, &str)> =
        made.verdicts.iter().map(|it| (&*it.candidate, &*it.baseline)).collect();
    assert_eq!(compared, [("1", "4"), ("8", "4")]);
    assert!(made.verdicts.iter().all(|it| it.verdict.finding == Finding::AsGood));
}

/// Results of two hosts, of which each has half of every value.
pub(crate) fn of_two_hosts(values: &[f64]) -> Results {
    let mut results = results(&[("a", values)]);
    let host = |address: &str, name: &str| Host {
        address: address.to_owned(),
        name: name.to_owned(),
        clock: Some(ClockDifference {
            offset_s: -1.5e-3,
            doubt_s: 8e-5,
            round_trip_s: 1.6e-4,
            exchanges: 16,
        }),
        fingerprint: Fingerprint::take(&[]),
        lost: None,
    };
    results.hosts = vec![host("h1:1", "one"), host("h2:1", "two")];
    for run in results.variants.iter_mut().flat_map(|it| &mut it.runs) {
        let mut own = run.clone();
        own.measured.value /= 2.0;
        let part = |host| Part { host, began_s: 0.001, run: Some(own.clone()) };
        run.parts = vec![part(0), part(1)];
        for (name, value) in
            [(Part::FIRST_DONE, 3.0), (Part::LAST_DONE, 9.0), (Part::UNTIL_LAST, 70.5)]
        {
            run.measured.figures.insert(name.to_owned(), value);
        }
    }
    results
}

#[test]
fn what_hosts_found_is_kept_and_is_a_result_of_each() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let mut results = of_two_hosts(&[100.0, 102.0, 98.0]);
    results.hosts[1].lost = Some("gone".to_owned());
    results.variants[0].runs[2].parts[1].run = None;
    results.variants[0].runs[2].disturbances =
        vec![Disturbance { kind: Part::HOST_LOST.to_owned(), what: "h2:1 was lost".to_owned() }];
    results.judge();
    save(&results, &path).unwrap();
    assert_eq!(load(&path).unwrap(), results);
    let own = |host| results.of_host(host).unwrap();
    assert_eq!(own(0).variants[0].values(), [50.0, 51.0, 49.0]);
    assert_eq!(own(1).variants[0].values(), [50.0, 51.0]);
    assert!(own(0).is_complete && !own(1).is_complete);
    assert_eq!(
        results.lost_hosts().map(|(it, why)| (&*it.address, why)).next(),
        Some(("h2:1", "gone"))
    );
    // Noise may be accepted; the sum without a host is none.
    results.accept_noise();
    assert_eq!(results.variants[0].values(), [100.0, 102.0]);
    // In a page with as little as there is room for.
    let (page, _) = embed(std::slice::from_ref(&results), 20_000);
    std::fs::write(&path, format!("<html>{page}")).unwrap();
    assert_eq!(load(&path).unwrap().hosts, results.hosts);
}

#[test]
fn results_of_one_machine_are_as_they_were_before_there_were_hosts() {
    let text = serde_json::to_string(&results(&[("slow", &SLOW)])).unwrap();
    assert!(!text.contains("\"hosts\"") && !text.contains("\"parts\""));
    let read: Results = serde_json::from_str(&text).unwrap();
    assert!(read.hosts.is_empty() && read.variants[0].runs[0].parts.is_empty());
}
