//! Every form shows every figure with what it needs to be believed.

use super::*;
use crate::guard::Disturbance;
use crate::result::tests::{of_two_hosts, results};

fn shown() -> Results {
    let mut results = results(&[
        ("a, b", &[97.1, 99.8, 100.3, 101.9, 98.4]),
        ("c", &[110.2, 112.8, 109.1, 111.7, 113.9]),
    ]);
    let what = "the hypervisor took 9 % of the CPU time (steal)".to_owned();
    results.variants[1].runs[0].disturbances = vec![Disturbance { kind: "steal".to_owned(), what }];
    results.judge();
    results
}

#[test]
fn text_has_values_intervals_verdict_and_disturbances() {
    let text = show(&shown(), OutputFormat::Text);
    for part in [
        "lab test",
        "a, b",
        "99.8",
        "112",
        "5 of 5",
        "4 of 5",
        "accepted, not durable",
        "c is 12.5 % faster than a, b (95 %:",
        "1 of 10 runs were disturbed",
        "the hypervisor took 9 % of the CPU time (steal) (once)",
        "block-size 4K",
        "seed 1",
        "Measured on",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_variant_without_a_run_that_counts_says_so() {
    let mut results = shown();
    let disturbance = results.variants[1].runs[0].disturbances[0].clone();
    results.variants[1].runs.iter_mut().for_each(|it| it.disturbances = vec![disturbance.clone()]);
    results.judge();
    results.is_complete = false;
    let text = show(&results, OutputFormat::Text);
    assert!(text.contains("(disturbed: 112)") && text.contains("0 of 5"), "{text}");
    assert!(text.contains("too few runs count to compare c with a, b"), "{text}");
    assert!(text.contains("interrupted"), "{text}");
}

#[test]
fn a_comparison_tells_the_figures_of_both_sides_with_their_unit() {
    let before = results(&[("seqrd", &[97.1, 99.8, 100.3, 101.9, 98.4])]);
    let after = results(&[("seqrd", &[110.2, 112.8, 109.1, 111.7, 113.9])]);
    let found = crate::result::compare(&before, &after, &[]);
    let line = sides_line(&found.verdicts[0], &found.sides[0]);
    let wanted = "seqrd: A 99.8 MB/s, B 112 MB/s; the estimated difference of B from A is +11.9 % \
                  (1 and 1 executions); ";
    assert!(line.starts_with(wanted), "{line}");
    let mut none = found.sides[0].clone();
    none.before = None;
    let line = sides_line(&found.verdicts[0], &none);
    assert!(line.starts_with("seqrd: A (no run counts), B 112 MB/s; "), "{line}");
}

#[test]
fn tables_for_spreadsheets_have_plain_figures_below_their_heads() {
    let mut results = shown();
    results.case = "stride".to_owned();
    let text = show(&results, OutputFormat::TableCsv);
    let tables: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(tables.len(), 2, "that of all variants, and the case's own: {text}");
    assert!(tables[0].starts_with("table,variant,MB/s,"), "{text}");
    assert!(tables[0].contains("\nlab stride,\"a, b\",99.8,"), "{text}");
    assert!(tables[1].starts_with("table,records ahead,MB/s,"), "{text}");
}

#[test]
fn comparisons_of_too_few_runs_are_told_in_one_line() {
    let values = &[1.0, 1.1, 1.2, 1.3, 1.4][..];
    let made = results(&[("a", values), ("b", &values[..1]), ("c", &values[..2]), ("d", values)]);
    let lines = verdict_lines(&made);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("it is undecided which of d and a is faster"), "{lines:?}");
    assert!(lines[1].starts_with("too few runs count for 2 of 3 comparisons"), "{lines:?}");
}

#[test]
fn csv_has_a_line_for_each_run_with_as_many_cells_as_the_head() {
    let text = show(&shown(), OutputFormat::Csv);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 11);
    assert!(lines[1].starts_with("test,\"a, b\",all,0,"), "{}", lines[1]);
    let cells = lines[0].split(',').count();
    let plain = text.replace("\"a, b\"", "a");
    assert!(plain.lines().skip(1).all(|line| {
        // 'accepted, not durable' is quoted as well.
        line.replace("\"accepted, not durable\"", "x").split(',').count() == cells
    }));
    assert!(lines[6].contains(",false,steal,"), "{}", lines[6]);
}

#[test]
fn markdown_is_a_table_and_json_is_what_is_saved() {
    let results = shown();
    let text = show(&results, OutputFormat::Markdown);
    assert!(text.contains("| variant ") && text.contains("- c is 12.5 % faster"), "{text}");
    let back: Results = serde_json::from_str(&show(&results, OutputFormat::Json)).unwrap();
    assert_eq!(back, results);
}

#[test]
fn hosts_are_shown_each_and_together() {
    let mut results = of_two_hosts(&[100.0, 102.0, 98.0, 104.0, 96.0, 101.0]);
    let text = show(&results, OutputFormat::Text);
    for part in [
        "hosts\n",
        "by host\n",
        "-1.5 ms",
        "80 us",
        "160 us",
        "a        h1:1",
        "a        h2:1",
        "50.2",
        "a: the first host was done after 3.00 s, and the last host after 9.00 s",
        "transferred 70.5 MB/s",
        "h2:1: ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("LOST"));
    results.hosts[1].lost = Some("the peer has closed the connection".to_owned());
    let text = show(&results, OutputFormat::Text);
    assert!(text.contains("LOST: the peer has closed the connection"), "{text}");
    assert!(text.contains("h2:1 was lost: the peer has closed the connection"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&show(&results, OutputFormat::Json)).unwrap();
    assert_eq!(json["hosts"][0]["clock"]["exchanges"], 16);
    let line = clock_line(&results.hosts[0]);
    let wanted = "h1:1 (one): the clock of this host differs by -1.5 ms from the clock of the \
                  coordinator, with an error of at most 80 us (round trip 160 us, 16 exchanges)";
    assert_eq!(line, wanted);
    // One by itself has no such tables.
    assert!(host_tables(&results.of_host(0).unwrap()).is_empty());
}
