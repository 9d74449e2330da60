//! Measures how often the statistics are wrong, by simulation; `doc/lab.md` quotes the results.

use pinstripe_base::random::Noise;

use super::simulated::{SpeedNoise, normal, speed};
use super::*;

/// The true median, estimated from a great number of values.
fn truth(kind: SpeedNoise, share: f64) -> f64 {
    let mut noise = Noise(99);
    let samples: Vec<f64> = (0..40_001).map(|_| speed(kind, share, &mut noise)).collect();
    median(&samples).unwrap()
}

/// The share of intervals that contain the true value, when runs are made until the interval is
/// narrow.
fn coverage(kind: SpeedNoise, share: f64, stop: Option<f64>, (least, most): (usize, usize)) -> f64 {
    const TIMES: usize = 3000;
    let truth = truth(kind, share);
    let mut noise = Noise(7);
    let mut holds = || {
        let mut samples = Vec::new();
        loop {
            samples.push(speed(kind, share, &mut noise));
            if samples.len() < least {
                continue;
            }
            let found = median_interval(&samples).unwrap();
            let is_narrow = |share| found.half_width(median(&samples).unwrap()) <= share;
            if samples.len() >= most || stop.is_some_and(is_narrow) {
                return found.contains(truth);
            }
        }
    };
    (0..TIMES).filter(|_| holds()).count() as f64 / TIMES as f64
}

#[test]
fn what_is_said_to_be_95_percent_is_93_to_97() {
    for kind in [SpeedNoise::Plain, SpeedNoise::Stalls] {
        for runs in [6, 7, 8, 10, 20] {
            let found = coverage(kind, 0.08, None, (runs, runs));
            assert!((0.93..=0.975).contains(&found), "{kind:?}, {runs} runs: {found}");
        }
    }
}

#[test]
fn it_still_is_when_measuring_stops_as_soon_as_it_is_narrow() {
    for kind in [SpeedNoise::Plain, SpeedNoise::Stalls] {
        for share in [0.03, 0.08, 0.10, 0.15] {
            let found = coverage(kind, share, Some(0.05), (8, 20));
            assert!((0.925..=0.975).contains(&found), "{kind:?}, noise {share}: {found}");
        }
    }
}

#[test]
fn fewer_runs_cover_as_often_as_their_level_says() {
    for (runs, level) in [(2, 0.5), (3, 0.75), (4, 0.875), (5, 0.9375)] {
        let found = coverage(SpeedNoise::Plain, 0.08, None, (runs, runs));
        assert!((found - level).abs() < 0.02, "{runs} runs: {found}");
    }
}

/// How often one of `variants` equal variants is reported as different from the first, in a group
/// that is judged once.
fn false_groups(
    variants: usize,
    rounds: usize,
    kind: SpeedNoise,
    share: f64,
    groups: usize,
) -> usize {
    let mut noise = Noise(3);
    let mut is_false = || {
        let runs: Vec<Vec<f64>> = (0..variants)
            .map(|_| (0..rounds).map(|_| speed(kind, share, &mut noise)).collect())
            .collect();
        let pairs = |at: usize| -> Vec<(f64, f64)> {
            runs[at].iter().copied().zip(runs[0].iter().copied()).collect()
        };
        let mut verdicts: Vec<Verdict> =
            (1..variants).filter_map(|at| judge_pairs(&pairs(at), Better::Higher)).collect();
        correct(&mut verdicts.iter_mut().collect::<Vec<_>>());
        verdicts.iter().any(Verdict::is_different)
    };
    (0..groups).filter(|_| is_false()).count()
}

#[test]
fn of_equal_variants_a_group_of_any_size_sees_a_difference_in_at_most_five_of_a_hundred() {
    for (variants, rounds) in [(2, 8), (2, 12), (4, 10), (14, 12), (14, 20)] {
        for (kind, share) in [(SpeedNoise::Plain, 0.05), (SpeedNoise::Stalls, 0.10)] {
            let found = false_groups(variants, rounds, kind, share, 1000);
            assert!(found <= 60, "{variants} variants, {rounds} rounds, {kind:?}: {found} of 1000");
        }
    }
}

#[test]
fn equal_lots_of_runs_are_seldom_called_different_and_a_tenth_is_found() {
    let mut noise = Noise(11);
    let mut count = |level: f64| {
        let mut lot = |level: f64| -> Vec<f64> {
            (0..7).map(|_| level * speed(SpeedNoise::Plain, 0.04, &mut noise)).collect()
        };
        let differs = |_: &u32| judge(&lot(level), &lot(1.0), Better::Higher).is_different();
        (0..200).filter(differs).count()
    };
    let (equal, slower) = (count(1.0), count(0.9));
    assert!(equal <= 10, "{equal} of 200 equal ones");
    assert!(slower >= 170, "{slower} of 200 that are a tenth slower");
}

#[test]
fn the_interval_of_a_ratio_covers_as_often_as_it_says() {
    let mut noise = Noise(13);
    for runs in [4, 5, 6, 7, 12] {
        let mut lot = || -> Vec<f64> {
            (0..runs).map(|_| speed(SpeedNoise::Stalls, 0.08, &mut noise)).collect()
        };
        let holds = |_: &u32| ratio_interval(&lot(), &lot()).unwrap().contains(1.0);
        let found = (0..2000).filter(holds).count() as f64 / 2000.0;
        assert!((0.915..=0.98).contains(&found), "{runs} runs: {found}");
    }
}

/// Simulates executions of the same variant: the runs of each have 5 % noise around a level that
/// varies by `between`. Returns how many of 1000 comparisons, with `sides` executions on each side,
/// report a difference.
fn false_comparisons(sides: usize, between: f64) -> usize {
    let mut noise = Noise(17);
    let mut execution = || {
        let level = (between * normal(&mut noise)).exp();
        let runs: Vec<f64> =
            (0..7).map(|_| level * speed(SpeedNoise::Plain, 0.05, &mut noise)).collect();
        median(&runs).unwrap()
    };
    let mut side = || (0..sides).map(|_| execution()).collect::<Vec<_>>();
    let mut differs =
        || judge_executions(&side(), &side(), Better::Higher, Spread::default()).is_different();
    (0..1000).filter(|_| differs()).count()
}

#[test]
fn equal_executions_are_called_different_in_five_of_a_hundred_however_far_they_lie_apart() {
    for sides in [3, 5] {
        for between in [0.0, 0.02, 0.05, 0.10] {
            let found = false_comparisons(sides, between);
            assert!(found <= 65, "{sides} a side, {between} between: {found} of 1000");
        }
    }
    assert_eq!(false_comparisons(1, 0.10), 0, "one execution each is never a verdict");
    assert_eq!(false_comparisons(2, 0.10), 0, "nor are two, where nothing else is known");
}
