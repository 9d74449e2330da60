//! A page says what the results say, is well formed and small, and is read back as what it was made
//! of.

mod browser;
mod made_up;
mod markup;

use made_up::{Wish, before, depths, of, results};

use super::*;
use crate::guard::Disturbance;
use crate::result::{Note, Parameter, Thinned, Variant, load, load_all, put, save};

/// What `fio --rw=write --bs=64k --size=4m --end_fsync=1 --output-format=json` printed.
const FIO: &str = include_str!("../../../tests/data/fio-3.33.json");

/// The page without its style and its data.
fn bare(results: &Results) -> String {
    let page = page(std::slice::from_ref(results), None, &[]);
    let (before, rest) = page.split_once("<style>").unwrap();
    let (_, rest) = rest.split_once("</style>").unwrap();
    let (inner, _) = rest.split_once("<script").unwrap();
    format!("{before}{inner}").replace("><", ">\n<")
}

/// The text of a page, without tags.
fn words(page: &str) -> String {
    let parts = page.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    let text = parts.collect::<Vec<_>>().join("");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Results of a case with tables of its own: so many loads with so many granules each.
fn tables(loads: usize, granules: usize) -> Results {
    let mut results = depths(loads);
    results.case = "stripe".to_owned();
    for (at, variant) in results.variants.iter_mut().enumerate() {
        let granule = format!("{}K", 4 << (at % granules));
        variant.parameters =
            vec![Parameter::new("load", &variant.group), Parameter::new("granule", granule)];
    }
    results
}

/// Results with so many variants in pairs, each of so many runs, all as large as they get.
fn large(pairs: usize, runs: u64) -> Results {
    let names: Vec<(String, String)> = (0..pairs * 2)
        .map(|at| (format!("group {} way {}", at / 2, at % 2), format!("group {}", at / 2)))
        .collect();
    let wishes: Vec<Wish> = names
        .iter()
        .map(|(name, group)| Wish {
            name,
            group,
            policy: "direct",
            kind: "write",
            level: 400.0,
            note: None,
            stalls: true,
        })
        .collect();
    of(&wishes, runs, 300, 500)
}

#[test]
fn the_page_is_as_it_was() {
    insta::assert_snapshot!(bare(&results()));
}

#[test]
fn the_answer_comes_first_with_its_doubt() {
    let text = words(&bare(&results()));
    for part in [
        "1 MiB writes: direct is 1.2",
        "× of buffered (95 % interval 1.",
        "6 and 7 runs)",
        "slower: dsync 0.2",
        "random reads: it is undecided which of direct and buffered is faster: 1.0",
        "41 of 42 runs count, because 1 was disturbed by other programs.",
        "The noise is 1 %",
        "Use policy direct.",
        "No difference was found: keep the present setting.",
        "accepted, not durable",
        "n = 7); but no request waited until",
        "6 of 7 runs count",
        "pinstripe lab run fileio --dir /srv/data --block-size 1M --workers 4 --seed 7",
        "This page contains the complete data of its results.",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn what_nothing_waited_for_is_not_called_the_better_setting() {
    let mut results = results();
    for run in &mut results.variants[1].runs {
        run.notes = vec![Note::AcceptedNotDurable];
    }
    let text = words(&bare(&results));
    assert!(text.contains("but no request waited until its bytes were on the disk"), "{text}");
    assert!(text.contains("Keep policy buffered. direct is faster"), "{text}");
}

#[test]
fn a_single_setting_is_advised_as_it_is_everywhere() {
    let mut results = results();
    results.variants.iter_mut().for_each(|it| it.parameters.truncate(1));
    assert_eq!(crate::advice::advise(&results), [], "seven runs without rounds show nothing");
    for variant in &mut results.variants {
        variant.runs.retain(|it| it.disturbances.is_empty());
        variant.runs.extend(variant.runs.clone());
        (0..).zip(&mut variant.runs).for_each(|(at, run)| run.round = Some(at));
    }
    results.judge();
    let text = words(&bare(&results));
    let advised = crate::advice::advise(&results);
    let is_decided: Vec<bool> = advised.iter().map(|it| it.is_decided).collect();
    assert_eq!(is_decided, [true, false]);
    for it in advised {
        let wanted = match it.is_decided {
            true => format!("Use {} {}. Evidence: {}.", it.setting, it.value, it.evidence),
            false => format!(
                "than {} {}, but this value was not found to be as good as all others. Evidence: \
                 {}.",
                it.setting, it.value, it.evidence
            ),
        };
        assert!(text.contains(&wanted), "{wanted}\n{text}");
    }
}

#[test]
fn nothing_that_counts_is_said_to_be_nothing() {
    let mut results = results();
    let what = "much".to_owned();
    let disturbance = Disturbance { kind: "steal".to_owned(), what };
    let runs = results.variants.iter_mut().flat_map(|it| &mut it.runs);
    runs.for_each(|run| run.disturbances = vec![disturbance.clone()]);
    results.is_complete = false;
    results.judge();
    let text = words(&bare(&results));
    for part in [
        "No verdict is possible: none of 42 runs counts; the most frequent reason \
         (42 times) is: much.",
        "Recommended settings Too few runs count. Measure again",
        "buffered 0 of 7 runs count (41",
        "0 of 42 runs count",
        "The measurement was interrupted",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let mut none = results.clone();
    none.variants.clear();
    none.judge();
    markup::elements(&page(&[none], None, &[]));
    // Where some count, each group says how many.
    results.variants[3..5]
        .iter_mut()
        .flat_map(|it| &mut it.runs)
        .for_each(|run| run.disturbances.clear());
    results.judge();
    let text = words(&bare(&results));
    for part in [
        "1 MiB writes: too few runs that count: direct, dsync.",
        "kept buffered: no run counts.",
        "No difference was found: keep the present setting.",
        "Too few runs count for: 1 MiB writes. Measure again",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_page_of_accepted_noise_says_everywhere_that_it_was_accepted() {
    let mut results = results();
    let runs = results.variants.iter_mut().flat_map(|it| &mut it.runs);
    runs.skip(1).for_each(|run| {
        let what = "others took 30 % of the processors".to_owned();
        run.disturbances = vec![Disturbance { kind: "cpu".to_owned(), what }];
    });
    results.accept_noise();
    let page = bare(&results);
    let text = words(&page);
    for part in [
        "All 42 runs count, including 41 disturbed runs, because disturbed runs were accepted.",
        "41 of 42 runs were disturbed, and count anyway, because of --accept-noise:",
        "this run counts although it was disturbed: others took 30 % of the processors",
        "--accept-noise --seed 7",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("does not count") && !page.contains("class=\"cross\""), "{text}");
    // Of a machine that was lost, the sum is still none.
    results.variants[0].runs[1].notes.clear();
    results.judge();
    let text = words(&bare(&results));
    let told = "41 of 42 runs count, including 40 disturbed runs that were accepted; 1 does not.";
    assert!(text.contains(told), "{text}");
}

#[test]
fn nothing_is_better_than_the_best_where_medians_and_rounds_differ() {
    let slow = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0];
    let shares = [1.03, 1.03, 1.03, 1.03, 0.98, 1.03, 0.57, 0.51, 0.47];
    let other: Vec<f64> = slow.iter().zip(shares).map(|(it, share)| it * share).collect();
    let results = crate::result::tests::results(&[("a", &slow), ("b", &other)]);
    let medians: Vec<f64> =
        results.variants.iter().map(|it| it.summary().unwrap().median).collect();
    assert!(medians[0] > medians[1], "{medians:?}");
    let panels = panel::panels(&results, None);
    let members = &panels[0].members;
    let told: Vec<(bool, String)> =
        members.iter().map(|it| (it.is_best, format!("{:.2}", it.factor.unwrap()))).collect();
    assert_eq!(told, [(false, "0.97".to_owned()), (true, "1.00".to_owned())]);
    // It is the one that the sentence calls faster, by the same figure.
    let speed = results.verdicts[0].verdict.speed.unwrap();
    assert!((members[0].factor.unwrap() * speed - 1.0).abs() < 1e-9);
    // A variant without a run that counts is neither.
    let mut disturbed = results.clone();
    for run in &mut disturbed.variants[1].runs {
        run.disturbances = vec![Disturbance { kind: "cpu".to_owned(), what: "much".to_owned() }];
    }
    let panels = panel::panels(&disturbed, None);
    assert_eq!((panels[0].members[0].is_best, panels[0].members[1].factor), (true, None));
}

#[test]
fn a_difference_that_may_be_there_is_told_by_the_figure_of_the_sentence() {
    let text = words(&bare(&results()));
    let (_, rest) = text.split_once("A difference of up to ").unwrap();
    let (told, _) = rest.split_once(" % is still possible").unwrap();
    let made = results();
    let open = made.verdicts.iter().find(|it| it.candidate == "random reads direct").unwrap();
    let sentence = crate::show::sentence(open);
    assert!(sentence.contains(&format!("{told} to")) || sentence.contains(&format!("+{told} %")));
}

#[test]
fn every_table_has_a_caption_and_heads_that_say_what_they_are_of() {
    let (first, mut second) = (results(), results());
    second.started_seconds += 86_400;
    let page = page(&[first, second], None, &[]);
    let content = page.split_once("<script").unwrap().0;
    let tables: Vec<&str> = content.split("<table").skip(1).collect();
    assert!(tables.len() > 2);
    for table in tables {
        let table = table.split_once("</table>").unwrap().0;
        assert!(table.contains("<caption"), "{table}");
        for head in table.split("<th ").skip(1) {
            assert!(head.split_once('>').unwrap().0.contains("scope="), "{head}");
        }
        assert!(!table.contains("<th>"), "{table}");
    }
}

#[test]
fn pages_are_well_formed_whatever_names_are_in_them() {
    let mut results = results();
    let nasty = "<script>alert('1')</script> & \"two\" -->";
    results.variants[0].name = nasty.to_owned();
    results.variants[3].group = nasty.to_owned();
    results.variants[4].group = nasty.to_owned();
    results.variants[1].about = nasty.to_owned();
    results.case = nasty.to_owned();
    results.notes.push(nasty.to_owned());
    results.command.push(nasty.to_owned());
    results.fingerprint.places[0].path = nasty.to_owned();
    results.variants[1].runs[3].disturbances[0].what = nasty.to_owned();
    results.variants[1].parameters[0].value = nasty.to_owned();
    results.judge();
    let page = page(&[results.clone(), results], Some(nasty), &[]);
    let elements = markup::elements(&page);
    let scripts = elements.iter().filter(|it| *it == "script").count();
    assert_eq!(scripts, 3, "two that hold the data, one that copies commands");
    assert!(elements.iter().filter(|it| *it == "svg").count() > 20);
    assert!(!page.contains("http"), "nothing from outside");
}

#[test]
fn a_page_names_the_files_of_its_results_and_links_lead_somewhere() {
    let (first, mut second) = (results(), results());
    second.started_seconds += 7;
    let files = ["before.json", "after.json"].map(str::to_owned);
    let page = page_of_files(&[first.clone(), second], &files, None, &[]);
    let text = words(&page.replace("><", ">\n<"));
    for part in [
        "A before.json: fileio, 2023-11-14 22:13:20 UTC",
        "B after.json: fileio, 2023-11-14 22:13:27 UTC",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let content = page.split_once("<script").unwrap().0;
    let values = |name: &str| -> Vec<&str> {
        let rest = content.split(name).skip(1);
        rest.filter_map(|it| it.split_once('"').map(|(value, _)| value)).collect()
    };
    let places = values(" id=\"");
    let mut sorted = places.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), places.len(), "no place has the name of another: {places:?}");
    let links = values(" href=\"#");
    assert!(links.len() > 8, "{links:?}");
    for link in links {
        assert!(places.contains(&link), "{link} leads nowhere: {places:?}");
    }
    for part in ["<main id=\"results\">", "<header>", "<footer", "class=\"skip\"", "<caption"] {
        assert!(content.contains(part), "{part}");
    }
    // Of one alone its file stands in the line below the title.
    let alone = page_of_files(&[first], &files[..1], None, &[]);
    assert!(words(&alone).contains("22:13:20 UTC, from before.json"));
}

#[test]
fn bars_stand_on_an_axis_with_its_unit() {
    let page = bare(&results());
    let rows = page.matches("class=\"scale\"").count();
    assert!(rows >= 2, "one for each group: {rows}");
    assert!(
        page.contains("<td class=\"unit\" colspan=\"10\">MB/s</td>".replace("><", ">\n<").as_str())
    );
}

#[test]
fn a_page_is_read_back_as_the_results_it_was_made_of() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one.html"), dir.path().join("two.html"));
    let mut results = large(1, 3);
    results.variants.iter_mut().flat_map(|it| &mut it.runs).for_each(|run| run.samples.truncate(9));
    results.notes.push("</script><script>".to_owned());
    put(page(std::slice::from_ref(&results), None, &[]).as_bytes(), &one).unwrap();
    assert_eq!(load(&one).unwrap(), results);
    assert_eq!(page(&load_all(&one).unwrap(), None, &[]), std::fs::read_to_string(&one).unwrap());
    put(page(&[results.clone(), results.clone()], None, &[]).as_bytes(), &two).unwrap();
    assert_eq!(load_all(&two).unwrap(), [results.clone(), results.clone()]);
    assert!(load(&two).unwrap_err().to_string().contains("contains 2 results"));
    let plain = dir.path().join("plain.json");
    save(&results, &plain).unwrap();
    assert_eq!(load_all(&plain).unwrap(), [results]);
}

#[test]
fn loads_are_drawn_against_what_they_cost_with_the_knee() {
    let text = words(&bare(&depths(2)));
    for part in [
        "Throughput against latency",
        "read 4 KiB at random offsets p50 p99 numbers: depth",
        "Knee at depth 8: 4",
        "p99 4",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // A group that differs in something else has no such figure.
    assert!(!words(&bare(&results())).contains("Throughput against latency"));
}

#[test]
fn the_tables_of_a_case_are_on_its_page() {
    let text = words(&bare(&tables(2, 4)));
    for part in [
        "Tables of the case",
        "MB/s by load and granule",
        "granule 4K",
        "CPU time of a request, us",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // That of iozone has none of its own.
    let mut plain = results();
    plain.case = "iozone".to_owned();
    assert!(!words(&bare(&plain)).contains("Tables of the case"));
}

#[test]
fn a_history_is_drawn_with_what_changed_and_what_changed_with_it() {
    let results = results();
    let history = before(&results);
    let page = page(std::slice::from_ref(&results), None, &history);
    markup::elements(&page);
    let text = words(&page);
    for part in [
        "15 times since 2023-10-31",
        "1 since 2023-11-08 22:13 UTC: 1.2",
        "of before (8 and 7 executions, 95 % interval 1.2",
        "Other changes at the same time: kernel: before 6.1.0, now 6.12.0.",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // Of other settings, another place or a later time nothing is shown.
    let mut other = results.clone();
    other.parameters[0].value = "2M".to_owned();
    assert!(!words(&super::page(&[other], None, &history)).contains("History"));
    let mut elsewhere = results.clone();
    elsewhere.fingerprint.places[0].path = "/mnt".to_owned();
    assert!(!words(&super::page(&[elsewhere], None, &history)).contains("History"));
    let mut first = results;
    first.started_seconds -= 99 * 86_400;
    assert!(!words(&super::page(&[first], None, &history)).contains("History"));
}

#[test]
fn what_fio_does_not_tell_is_not_made_up() {
    let results = crate::fio::import(&[FIO]).unwrap();
    let text = crate::show::show(&results, crate::show::OutputFormat::Text);
    assert!(text.contains("requests. seed 1."), "{text}");
    assert!(text.contains("The results do not describe the machine"), "{text}");
    let page = page(&[results], None, &[]);
    // What follows is the raw JSON.
    let page = page.split_once("<script").unwrap().0;
    for made_up in ["unknown", "0 cores", "0 threads", "0 B"] {
        assert!(!text.contains(made_up) && !page.contains(made_up), "{made_up}");
    }
}

#[test]
fn several_results_are_held_against_the_first_before_each_is_shown() {
    let first = results();
    let mut second = first.clone();
    second.started_seconds += 86_400;
    second.fingerprint.machine.kernel = "6.18".to_owned();
    second.variants[0].runs.iter_mut().for_each(|run| run.measured.value *= 1.3);
    second.variants[2].runs.iter_mut().for_each(|run| run.measured.value *= 0.8);
    second.judge();
    let page = page(&[first.clone(), second, depths(1)], None, &[]);
    markup::elements(&page);
    let text = words(&page);
    let found = crate::result::compare(&first, &one_of(&page, 1), &[]);
    let speed = found.verdicts[0].verdict.speed.unwrap();
    for part in [
        &*format!(
            "B against A: estimates only: 1 MiB writes buffered {speed:.2}× (1 and 1 executions)"
        ),
        "1 MiB writes dsync 0.80× (1 and 1 executions)",
        "and 2 more; there is no verdict, because the spread between repeated executions is not \
         known",
        "C against A: no variant is in both results.",
        "Other differences in B ('before' is A): kernel: before 6.12.0, now 6.18.",
        "A: fileio 2023-11-14 22:13:20 UTC",
        "C: quick",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("C of A"), "what nothing was measured of has no column");
    assert!(text.find("B against A").unwrap() < text.find("Recommended settings").unwrap());
}

/// One of the results that a page holds.
fn one_of(page: &str, at: usize) -> Results {
    let dir = tempfile::tempdir().unwrap();
    put(page.as_bytes(), &dir.path().join("page.html")).unwrap();
    load_all(&dir.path().join("page.html")).unwrap().swap_remove(at)
}

#[test]
#[ignore = "with --all: it takes 9 s"]
fn several_results_make_a_small_page_however_many_they_are() {
    for (all, left_out) in [
        (vec![large(4, 6); 2], None),
        (vec![large(8, 6); 5], Some(ResultDetail::NoFigures)),
        (vec![large(50, 5); 4], Some(ResultDetail::Across)),
    ] {
        let page = page(&all, None, &[]);
        assert!(page.len() < MOST_BYTES, "{left_out:?}: {} bytes", page.len());
        let told = [ResultDetail::Across, ResultDetail::NoFigures];
        let told = told.into_iter().find(|it| it.left_out().is_some_and(|it| page.contains(it)));
        assert_eq!(told, left_out);
        assert!(page.contains("B</b> against"));
        markup::elements(&page);
    }
}

#[test]
fn pages_that_are_damaged_or_not_ours_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.html");
    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        load(&path).unwrap_err().to_string()
    };
    let whole = page(&[results()], None, &[]);
    let cut = whole.split_once("\"variants\"").unwrap().0;
    assert!(refused(cut).contains("incomplete"));
    assert!(refused("<!DOCTYPE html><p>hello</p>").contains("this page contains no results"));
    let newer = whole.replacen("\"version\":1", "\"version\":2", 1);
    assert!(refused(&newer).contains("newer version"));
}

/// The parts that a page says it left out.
fn told(page: &str) -> Thinned {
    use Thinned::{Coarse, NoLatency, NoSamples, Nothing, Whole};
    let all = [Whole, Coarse, NoSamples, NoLatency, Nothing];
    all.into_iter().find(|it| page.contains(it.text())).unwrap()
}

#[test]
#[ignore = "with --all: it takes 10 s"]
fn pages_stay_small_and_say_what_they_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.html");
    for (results, what) in [
        (results(), Thinned::Whole),
        (large(3, 7), Thinned::Coarse),
        (large(4, 16), Thinned::NoSamples),
        (large(8, 20), Thinned::NoLatency),
        (large(150, 5), Thinned::Nothing),
    ] {
        let page = page(std::slice::from_ref(&results), None, &[]);
        assert!(page.len() < MOST_BYTES, "{what:?}: {} bytes", page.len());
        assert_eq!(told(&page), what);
        markup::elements(&page);
        if what == Thinned::Nothing {
            continue;
        }
        put(page.as_bytes(), &path).unwrap();
        let back = load(&path).unwrap();
        assert_eq!(back.verdicts, results.verdicts);
        for (ours, theirs) in back.variants.iter().zip(&results.variants) {
            assert_eq!(ours.values(), theirs.values());
            let max = |it: &Variant| it.latency("write").and_then(|it| it.max());
            assert!(what == Thinned::NoLatency || max(ours) == max(theirs));
        }
    }
}
