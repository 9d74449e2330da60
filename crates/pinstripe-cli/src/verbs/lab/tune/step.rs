//! The measurements of `tune`: which case, in which places, with which options, for how long.

use std::path::PathBuf;
use std::time::Duration;

use pinstripe_base::units::MIB;
use pinstripe_lab::Effort;

use super::super::quick;
use super::LabTuneArgs;

/// A case whose results determine settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Measures policy, depth, strip size and chunk.
    Quick,
    /// Measures the granule.
    Stripe,
    /// Measures the codec.
    Split,
    /// Measures the ring.
    RecordProbe,
}

/// A case with the places in which it is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub case: Case,
    pub dirs: Vec<PathBuf>,
}

/// The number of members of an array over `places` places: enough for RAID 5, and the same number
/// in each place.
fn members(places: usize) -> usize {
    if places < 3 { 4 } else { places }
}

/// Codecs to try. The codecs to compare; the first one is the default of `split`, with which the
/// others are compared.
const CODECS: &str = "auto,raw,lz4,snappy,zstd:-5,zstd:1";
/// Seconds of one run of `quick`, if there is time: many short rounds decide more than a few long
/// ones.
const QUICK_SECONDS: f64 = 0.3;
/// Seconds of a recording, if there is time.
const RECORD_SECONDS: f64 = 4.0;
/// The number of recordings that fit into the time budget; this determines the length of one.
const RECORDINGS: f64 = 22.0;

impl Case {
    /// The name of the case.
    pub fn name(self) -> &'static str {
        match self {
            Case::Quick => "quick",
            Case::Stripe => "stripe",
            Case::Split => "split",
            Case::RecordProbe => "record-probe",
        }
    }

    /// The seconds until the case's answers are reliable, on a disk of 2 GB/s.
    pub fn usual_seconds(self) -> u64 {
        match self {
            Case::Quick => 150,
            Case::Stripe => 90,
            Case::Split => 70,
            Case::RecordProbe => 110,
        }
    }

    /// The number of runs of each variant, within the budget.
    pub fn effort(self, budget: Duration) -> Effort {
        let effort = quick::effort(budget.as_secs());
        // Waiting for a quiet moment must not be what the time goes into.
        let patience = effort.patience.min(budget / 300);
        // Fewer rounds than the eight at least decide nothing.
        let usual = Effort { budget, patience, max_runs: 12, ..Effort::default() };
        match self {
            Case::Quick => Effort { budget, patience, ..effort },
            Case::Stripe | Case::Split => usual,
            // Nothing gets faster by having been done once, and a run is long.
            Case::RecordProbe => Effort { warm_up: 0, ..usual },
        }
    }
}

/// The steps, in this order: `quick` in each place, an array and a split over all places, and a
/// recording in the first.
pub fn steps(cases: &[Case], dirs: &[PathBuf]) -> Vec<Step> {
    let of_case = |case: &Case| -> Vec<Step> {
        let places: Vec<Vec<PathBuf>> = match case {
            Case::Quick => dirs.iter().map(|dir| vec![dir.clone()]).collect(),
            Case::Stripe | Case::Split => vec![dirs.to_vec()],
            Case::RecordProbe => vec![dirs.iter().take(1).cloned().collect()],
        };
        places.into_iter().map(|dirs| Step { case: *case, dirs }).collect()
    };
    let all = [Case::Quick, Case::Stripe, Case::Split, Case::RecordProbe];
    all.iter().filter(|case| cases.contains(case)).flat_map(of_case).collect()
}

impl Step {
    /// The options for the case of this step.
    pub fn given(&self, args: &LabTuneArgs, budget: Duration) -> Vec<(&'static str, String)> {
        let bytes = args.total_size.0;
        let text = |text: &str| text.to_owned();
        match self.case {
            Case::Quick => {
                let usual = self.case.usual_seconds() as f64;
                let seconds = QUICK_SECONDS * (budget.as_secs_f64() / usual).clamp(0.1, 1.0);
                vec![("total-size", bytes.to_string()), ("run-time", format!("{seconds:.2}"))]
            }
            Case::Stripe => vec![
                ("members", members(self.dirs.len()).to_string()),
                ("member-size", (bytes / 8).max(4 * MIB).to_string()),
            ],
            Case::Split => {
                let mut given = vec![
                    ("outputs", self.dirs.len().to_string()),
                    ("codecs", text(CODECS)),
                    ("data", text("dump")),
                    ("size", bytes.to_string()),
                ];
                let sample = args.sample.as_ref().map(|it| it.to_string_lossy().into_owned());
                given.extend(sample.map(|it| ("sample", it)));
                given
            }
            Case::RecordProbe => {
                let seconds = (budget.as_secs_f64() / RECORDINGS).clamp(0.1, RECORD_SECONDS);
                vec![
                    ("streams", args.streams.to_string()),
                    ("rate", args.rate.0.to_string()),
                    ("policies", text("recorder,recorder-direct")),
                    // As the verb has it by itself.
                    ("chunk", text("32K")),
                    ("under", text("storm")),
                    ("storm-size", (2 * bytes).to_string()),
                    ("run-time", format!("{seconds:.2}")),
                ]
            }
        }
    }

    /// The places as text for people.
    pub fn places(&self) -> String {
        let places: Vec<String> = self.dirs.iter().map(|it| it.display().to_string()).collect();
        places.join(", ")
    }
}

/// The time for the first of these steps: its share of the remaining time, so that time saved by
/// one step is available to the next.
pub fn share(steps: &[Step], left: Duration) -> Duration {
    let all: u64 = steps.iter().map(|it| it.case.usual_seconds()).sum();
    let own = steps.first().map_or(0, |it| it.case.usual_seconds());
    left.mul_f64(own as f64 / all.max(1) as f64)
}

/// The default time of all steps together.
pub fn usual_seconds(steps: &[Step]) -> u64 {
    steps.iter().map(|it| it.case.usual_seconds()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_is_run_in_each_place_and_the_rest_over_all_or_in_the_first() {
        let dirs = ["/a", "/b"].map(PathBuf::from);
        let all = [Case::RecordProbe, Case::Split, Case::Stripe, Case::Quick];
        let steps = steps(&all, &dirs);
        let shown: Vec<(&str, String)> =
            steps.iter().map(|it| (it.case.name(), it.places())).collect();
        let wanted = [
            ("quick", "/a"),
            ("quick", "/b"),
            ("stripe", "/a, /b"),
            ("split", "/a, /b"),
            ("record-probe", "/a"),
        ];
        assert_eq!(shown, wanted.map(|(case, places)| (case, places.to_owned())));
        assert_eq!(super::steps(&[Case::Split], &dirs).len(), 1);
        assert_eq!(usual_seconds(&steps), 570);
    }

    #[test]
    fn what_is_left_over_is_the_next_one_s() {
        let steps = steps(&[Case::Quick, Case::Stripe], &[PathBuf::from("/a")]);
        assert_eq!(share(&steps, Duration::from_secs(240)), Duration::from_secs(150));
        assert_eq!(share(&steps[1..], Duration::from_secs(200)), Duration::from_secs(200));
        assert_eq!(share(&[], Duration::from_secs(9)), Duration::ZERO);
    }

    #[test]
    fn every_place_has_as_many_members_as_any() {
        assert_eq!([1, 2, 3, 5].map(members), [4, 4, 3, 5]);
    }
}
