//! Plans made up of numbers, on the order of runs, when they end, and what is kept of them.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_base::error::Error;

use super::station::notes;
use super::*;
use crate::guard::Limits;
use crate::result::{Measured, Metric, Note, Parameter};

/// Variants that give these values in turn, and what was called.
struct Made {
    groups: Vec<&'static str>,
    values: Box<dyn FnMut(usize, usize) -> f64>,
    counts: Vec<usize>,
    calls: Mutex<Vec<String>>,
    stop_after: Option<(usize, Arc<AtomicBool>)>,
    /// Runs after which the next one fails.
    fails_after: Option<usize>,
}

impl Made {
    fn new(groups: &[&'static str], values: impl FnMut(usize, usize) -> f64 + 'static) -> Self {
        Made {
            groups: groups.to_vec(),
            values: Box::new(values),
            counts: vec![0; groups.len()],
            calls: Mutex::default(),
            stop_after: None,
            fails_after: None,
        }
    }

    fn calls(&self) -> String {
        self.calls.lock().unwrap().join(" ")
    }

    fn call(&self, text: &str) {
        self.calls.lock().unwrap().push(text.to_owned());
    }
}

impl Plan for Made {
    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let head = |(at, group): (usize, &&str)| VariantSpec {
            name: format!("v{at}"),
            group: (*group).to_owned(),
            about: String::new(),
            parameters: Vec::new(),
            metric: Metric::throughput(),
            place: PlaceNo::FIRST,
        };
        self.groups.iter().enumerate().map(head).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn intents(&self) -> Vec<String> {
        Vec::new()
    }

    fn prepare(&mut self, _: &Live) -> Result<()> {
        self.call("prepare");
        Ok(())
    }

    fn ready(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, variant: VariantNo, number: u64, _: &Live) -> Result<Outcome> {
        self.call(&if number == u64::MAX {
            format!("w{}", variant.0)
        } else {
            variant.0.to_string()
        });
        if self.fails_after == Some(self.counts.iter().sum()) {
            return Err(Error::new(Kind::NoSpace, "full"));
        }
        self.counts[variant.0] += 1;
        if let Some((after, stop)) = &self.stop_after {
            stop.store(self.counts.iter().sum::<usize>() >= *after, Ordering::Relaxed);
        }
        Ok(Outcome {
            measured: Measured {
                value: (self.values)(variant.0, self.counts[variant.0]),
                ..Measured::default()
            },
            ..Outcome::default()
        })
    }

    fn clean(&mut self) -> Result<()> {
        self.call("clean");
        Ok(())
    }
}

/// Nothing that this machine does is a disturbance.
fn calm() -> Effort {
    let limits = Limits {
        others_cpu: 9.0,
        steal: 9.0,
        memory_pressure: 9.0,
        idle_io_pressure: 9.0,
        idle_cpu: 9.0,
        idle_cpu_pressure: 9.0,
        others_io: 9.0,
        free_io: u64::MAX >> 8,
    };
    Effort { warm_up: 0, patience: Duration::ZERO, limits, ..Effort::default() }
}

fn measured(plan: &mut Made, effort: Effort) -> Result<Results> {
    let stop = plan.stop_after.as_ref().map_or_else(Arc::default, |(_, stop)| Arc::clone(stop));
    let live = Arc::new(Live::new(stop));
    measure(plan, &effort, &Origin::default(), &live, &mut |_| Ok(()))
}

#[test]
fn rounds_go_there_and_back_after_a_warm_up() {
    let mut plan = Made::new(&["g", "g", "g"], |_, _| 5.0);
    let effort = Effort { warm_up: 1, ..calm().exactly(3) };
    let results = measured(&mut plan, effort).unwrap();
    assert_eq!(plan.calls(), "prepare w0 w1 w2 0 1 2 2 1 0 0 1 2 clean");
    assert!(results.is_complete);
    let orders: Vec<u64> = results.variants[2].runs.iter().map(|run| run.order).collect();
    assert_eq!(orders, [2, 3, 8]);
}

#[test]
fn a_group_goes_on_until_all_in_it_are_narrow() {
    // The second swings by a third until its tenth run; the third, in a group of its own, does not.
    let swings = |variant: usize, run: usize| match (variant, run) {
        (1, ..6) => 100.0 + 30.0 * (run % 2) as f64,
        _ => 100.0,
    };
    let mut plan = Made::new(&["g", "g", "h"], swings);
    let results = measured(&mut plan, Effort { min_runs: 3, ..calm() }).unwrap();
    let runs: Vec<usize> = results.variants.iter().map(|it| it.runs.len()).collect();
    assert_eq!(runs[0], runs[1], "compared ones are run as often");
    assert!(runs[0] > 6 && runs[0] < 20, "{runs:?}");
    assert_eq!(runs[2], 3);
}

/// Runs by variant of a race until it is known what is as good as the best but for 3 %.
fn raced(groups: &[&'static str], values: impl FnMut(usize, usize) -> f64 + 'static) -> Vec<usize> {
    let effort = Effort { max_runs: 30, until: Until::Settled(0.03), ..calm() };
    let results = measured(&mut Made::new(groups, values), effort).unwrap();
    results.variants.iter().map(|it| it.runs.len()).collect()
}

#[test]
fn a_race_ends_when_it_is_known_what_to_choose() {
    assert_eq!(raced(&["g", "g"], |variant, _| [99.5, 100.0][variant]), [8, 8]);
    // To leave what the baseline is takes more rounds than to keep it.
    assert_eq!(raced(&["g", "g"], |variant, _| [50.0, 100.0][variant]), [10, 10]);
    assert_eq!(raced(&["g"], |_, run| run as f64), [8], "nothing to choose from");
}

#[test]
fn whoever_is_shown_to_be_slower_leaves_the_race_and_other_groups_end_by_themselves() {
    // The second is 7 % slower than the third, but in every twentieth round.
    let values = |variant: usize, run: usize| match variant {
        0 => 50.0,
        1 if run % 20 == 5 => 103.0,
        1 => 93.0,
        _ => 100.0,
    };
    let runs = raced(&["g", "g", "g", "h", "h"], values);
    assert_eq!((runs[0], runs[3], runs[4]), (12, 8, 8), "{runs:?}");
    assert!(runs[1] > 12 && runs[1] < 30 && runs[1] == runs[2], "{runs:?}");
}

#[test]
fn a_race_that_nobody_wins_ends_at_the_most_runs() {
    let values = |variant: usize, run: usize| 100.0 + 20.0 * ((run * (variant + 1)) as f64).sin();
    assert_eq!(raced(&["g", "g"], values), [30, 30]);
}

#[test]
fn runs_know_their_round() {
    let mut plan = Made::new(&["g", "g"], |_, _| 5.0);
    let results = measured(&mut plan, calm().exactly(3)).unwrap();
    for variant in &results.variants {
        let rounds: Vec<Option<u64>> = variant.runs.iter().map(|run| run.round).collect();
        assert_eq!(rounds, [Some(0), Some(1), Some(2)]);
    }
}

#[test]
fn what_never_settles_ends_at_the_most_runs() {
    let mut plan = Made::new(&["g"], |_, run| if run % 2 == 0 { 1.0 } else { 100.0 });
    let results = measured(&mut plan, Effort { max_runs: 7, ..calm() }).unwrap();
    assert_eq!(results.variants[0].runs.len(), 7);
}

#[test]
fn when_the_time_is_over_each_has_been_run_once() {
    let mut plan = Made::new(&["g", "h"], |_, _| 1.0);
    let results = measured(&mut plan, Effort { budget: Duration::ZERO, ..calm() }).unwrap();
    assert!(results.is_complete);
    assert_eq!(results.variants.iter().map(|it| it.runs.len()).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn disturbed_runs_are_kept_and_made_again_as_often() {
    let mut plan = Made::new(&["g"], |_, _| 1.0);
    // No processor time at all may go to others, who use some.
    let limits = Limits { others_cpu: -9.0, ..calm().limits };
    let results = measured(&mut plan, Effort { limits, ..calm().exactly(2) }).unwrap();
    let variant = &results.variants[0];
    // Ticks are 10 ms: a run of no time at all may see none, and then cannot be judged.
    assert!((2..=4).contains(&variant.runs.len()), "{}", variant.runs.len());
    let disturbed = variant.runs.iter().filter(|run| !run.is_valid()).count();
    assert_eq!(variant.values().len() + disturbed, variant.runs.len());
    assert!(variant.values().len() == 2 || variant.runs.len() == 4);
}

#[test]
fn an_interrupt_keeps_what_was_measured_and_cleans_up() {
    let mut plan = Made::new(&["g", "g"], |_, _| 1.0);
    plan.stop_after = Some((3, Arc::default()));
    let results = measured(&mut plan, calm()).unwrap();
    assert!(!results.is_complete);
    assert_eq!(results.variants.iter().map(|it| it.runs.len()).sum::<usize>(), 3);
    assert!(plan.calls().ends_with("clean"));
}

#[test]
fn looks_at_a_race_grow_rarer() {
    let race = Effort { until: Until::Settled(0.03), ..calm() };
    let looks = |effort: Effort| {
        std::iter::successors(Some(5), move |round| Some(effort.next_look(*round))).take(8)
    };
    assert_eq!(looks(race).collect::<Vec<_>>(), [5, 6, 7, 8, 10, 12, 15, 18]);
    assert_eq!(looks(calm()).collect::<Vec<_>>(), [5, 6, 7, 8, 9, 10, 11, 12]);
}

#[test]
fn an_error_after_some_runs_hands_out_what_they_found() {
    let mut plan = Made::new(&["g"], |_, _| 1.0);
    plan.fails_after = Some(3);
    let live = Arc::new(Live::new(Arc::default()));
    let mut last = None;
    let mut each = |results: &Results| {
        last = Some((results.is_complete, results.variants[0].runs.len()));
        Ok(())
    };
    let found = measure(&mut plan, &calm(), &Origin::default(), &live, &mut each);
    assert_eq!(found.unwrap_err().kind(), Kind::NoSpace);
    assert_eq!(last, Some((false, 3)));
}

#[test]
fn an_error_cleans_up_and_is_told() {
    let mut plan = Made::new(&["g"], |_, _| 1.0);
    plan.fails_after = Some(0);
    assert_eq!(measured(&mut plan, calm()).unwrap_err().kind(), Kind::NoSpace);
    assert_eq!(plan.calls(), "prepare 0 clean");
}

#[test]
fn results_are_handed_out_as_they_come_and_the_stage_says_what_goes_on() {
    let mut plan = Made::new(&["g", "g"], |variant, _| {
        std::thread::sleep(Duration::from_millis(60));
        variant as f64 + 1.0
    });
    let live = Arc::new(Live::new(Arc::default()));
    let mut seen = Vec::new();
    let mut each = |results: &Results| {
        seen.push(results.variants.iter().map(|it| it.runs.len()).sum::<usize>());
        Ok(())
    };
    let (effort, every) = (calm().exactly(2), Duration::from_millis(100));
    let mut here = Here::new(&mut plan, &effort);
    let results =
        carried_out(&mut here, &effort, &Origin::default(), &live, every, &mut each).unwrap();
    assert_eq!((seen[0], seen[seen.len() - 1]), (1, 4));
    assert!(seen.len() > 2, "runs of longer than the interval are told meanwhile: {seen:?}");
    assert_eq!(results.verdicts.len(), 1);
    let stage = live.stage();
    assert_eq!((stage.label.as_str(), stage.runs, stage.runs_at_least), ("measuring", 3, 4));
}

#[test]
fn reads_that_never_met_the_disk_are_called_the_page_cache_s() {
    let of = |noted: Vec<Note>, read_bytes: u64, from_disk: Option<u64>| {
        let measured = Measured { read_bytes, ..Measured::default() };
        notes(&Outcome { measured, notes: noted, ..Outcome::default() }, from_disk)
    };
    assert_eq!(of(Vec::new(), 1000, Some(499)), [Note::PageCache]);
    assert_eq!(of(Vec::new(), 1000, Some(500)), []);
    assert_eq!(of(Vec::new(), 1000, None), []);
    assert_eq!(of(vec![Note::Wrapped], 0, Some(0)), [Note::Wrapped]);
}
