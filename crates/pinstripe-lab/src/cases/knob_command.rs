//! Measures each variant of any case also with a setting of the system, which a command of the user
//! sets before each run, and another command puts back after it.
//!
//! Invariants: a setting is put back before anything else happens, also after an error or an
//! interrupt, and also if the command that sets it fails, because it may have done a part of its
//! work; between two runs no setting is set.

use std::path::PathBuf;
use std::process::Command;

use pinstripe_base::error::{Error, Kind, Result};

use super::again::command_line;
use crate::program;
use crate::result::{Parameter, Variant};
use crate::run::{Live, Outcome, Plan, VariantNo, VariantSpec};

/// The name of the parameter of each variant.
const PARAMETER: &str = "knob-command";
/// Its value for variants that are measured without a setting.
const UNSET: &str = "none";

/// Two commands that a shell runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnobCommand {
    /// The command that sets something.
    pub before: String,
    /// The command that puts it back.
    pub after: String,
}

impl KnobCommand {
    /// As it is typed.
    fn typed(&self) -> String {
        command_line(&[self.before.clone(), self.after.clone()])
    }
}

/// Returns a plan that measures each variant of `plan` without a setting, and with each of these
/// settings. The variants with and without a setting take turns and are compared.
///
/// # Errors
/// [`Kind::Usage`] for an empty command, and for commands that are given twice.
pub fn with_knob_commands(plan: Box<dyn Plan>, knobs: Vec<KnobCommand>) -> Result<Box<dyn Plan>> {
    if knobs.is_empty() {
        return Ok(plan);
    }
    if knobs.iter().any(|it| it.before.trim().is_empty() || it.after.trim().is_empty()) {
        let error = Error::new(Kind::Usage, "a command of --knob-command is empty");
        return Err(error.advice("if there is nothing to put back, AFTER is 'true'"));
    }
    let plan = Turned { plan, knobs, to_put_back: None };
    let variants = plan.variants();
    for (at, variant) in variants.iter().enumerate() {
        if variants[..at].iter().any(|it| it.name == variant.name) {
            let what = format!("two variants have the same name '{}'", variant.name);
            return Err(Error::new(Kind::Usage, what).advice("give each --knob-command only once"));
        }
    }
    Ok(Box::new(plan))
}

/// The different settings of variants, in their order; empty if no setting was measured.
pub(super) fn settings(variants: &[Variant]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in variants.iter().filter_map(setting) {
        if !found.iter().any(|it| it == value) {
            found.push(value.to_owned());
        }
    }
    found
}

/// The setting with which a variant was measured; `None` if no setting was measured.
pub(super) fn setting(variant: &Variant) -> Option<&str> {
    let found = variant.parameters.iter().find(|it| it.name == PARAMETER);
    found.map(|it| it.value.as_str())
}

/// The title of the tables of the variants with a setting.
pub(super) fn title(setting: &str) -> String {
    match setting {
        UNSET => "without a knob command".to_owned(),
        set => format!("with the knob command {set}"),
    }
}

/// A plan in which each variant of another plan is followed by the same variant with each setting.
struct Turned {
    plan: Box<dyn Plan>,
    knobs: Vec<KnobCommand>,
    /// The setting that is set, or that was only partly set.
    to_put_back: Option<usize>,
}

impl Turned {
    /// The number of the variant of the inner plan, and the setting.
    fn parts(&self, variant: VariantNo) -> (VariantNo, Option<usize>) {
        let each = self.knobs.len() + 1;
        (VariantNo(variant.0 / each), (variant.0 % each).checked_sub(1))
    }

    fn set(&mut self, knob: usize, live: &Live) -> Result<()> {
        self.to_put_back = Some(knob);
        let text = &self.knobs[knob].before;
        let what = format!("BEFORE of --knob-command, '{text}',");
        program::run_step(&mut shell(text), &what, live)
            .map_err(|error| error.advice("run it by hand to see why it fails"))
    }

    fn put_back(&mut self) -> Result<()> {
        let Some(knob) = self.to_put_back.take() else { return Ok(()) };
        let text = &self.knobs[knob].after;
        let what = format!("AFTER of --knob-command, '{text}',");
        program::put_back(&mut shell(text), &what).map_err(|error| {
            error.advice(format!("the setting may not be put back: check it, and run: {text}"))
        })
    }

    /// Puts the setting back if a step failed. An interrupt is not reported as an error, so that
    /// its setting is put back in `clean`, which reports a failure.
    fn settled<T>(&mut self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error.kind() {
            Kind::Interrupted => error,
            _ => match self.put_back() {
                Ok(()) => error,
                Err(after) => {
                    let advice = after.advice_text().unwrap_or_default();
                    error.advice_instead(format!("{after}; {advice}"))
                }
            },
        })
    }
}

/// A command of the user.
fn shell(text: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", text]);
    command
}

impl Plan for Turned {
    fn parameters(&self) -> Vec<Parameter> {
        let own = self.knobs.iter().map(|it| Parameter::new(PARAMETER, it.typed()));
        self.plan.parameters().into_iter().chain(own).collect()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let each = |spec: VariantSpec| {
            let with = |value: &str, name: String, about: String| VariantSpec {
                parameters: [spec.parameters.clone(), vec![Parameter::new(PARAMETER, value)]]
                    .concat(),
                group: spec.name.clone(),
                name,
                about,
                ..spec.clone()
            };
            let set = self.knobs.iter().map(|knob| {
                let name = format!("{}, {}", spec.name, knob.before);
                let about = format!("{}, after the command '{}'", spec.about, knob.before);
                with(&knob.typed(), name, about)
            });
            let unset = with(UNSET, spec.name.clone(), spec.about.clone());
            std::iter::once(unset).chain(set).collect::<Vec<_>>()
        };
        self.plan.variants().into_iter().flat_map(each).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.plan.places()
    }

    fn notes(&self) -> Vec<String> {
        self.plan.notes()
    }

    fn intents(&self) -> Vec<String> {
        let intent = |it: &KnobCommand| {
            format!("run '{}' before runs, and '{}' after each of them", it.before, it.after)
        };
        self.plan.intents().into_iter().chain(self.knobs.iter().map(intent)).collect()
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        self.plan.room()
    }

    fn may_begin(&self) -> Result<()> {
        self.plan.may_begin()
    }

    fn is_exact(&self) -> bool {
        self.plan.is_exact()
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        self.plan.prepare(live)
    }

    fn ready(&mut self, variant: VariantNo, live: &Live) -> Result<()> {
        let (inner, knob) = self.parts(variant);
        let set = knob.map_or(Ok(()), |knob| self.set(knob, live));
        let ready = set.and_then(|()| self.plan.ready(inner, live));
        self.settled(ready)
    }

    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome> {
        let ran = self.plan.run(self.parts(variant).0, number, live);
        self.settled(ran)
    }

    fn check(&mut self, variant: VariantNo, live: &Live) -> Result<()> {
        let checked = self.plan.check(self.parts(variant).0, live);
        self.settled(checked)?;
        self.put_back()
    }

    fn clean(&mut self) -> Result<()> {
        let put_back = self.put_back();
        put_back.and(self.plan.clean())
    }
}

impl Drop for Turned {
    /// Restores the setting after a panic. A failure is not reported, because the run has ended.
    fn drop(&mut self) {
        let _ = self.put_back();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::cases::tests::effort;
    use crate::cases::{Setting, Values, find};
    use crate::result::Results;
    use crate::run::{Effort, Origin, measure};

    fn knob(before: &str, after: &str) -> KnobCommand {
        KnobCommand { before: before.to_owned(), after: after.to_owned() }
    }

    /// Measures two commands, each of which adds a letter to the file `log`, with knobs.
    fn measured(
        dir: &Path,
        given: &[(&str, &str)],
        knobs: &[KnobCommand],
        live: &Arc<Live>,
    ) -> Result<Results> {
        let case = find("command").unwrap();
        let values = Values::read(case.options, given).unwrap();
        let setting = Setting { dirs: vec![dir.to_owned()], ..Setting::default() };
        let plan = (case.plan)(&setting, &values).unwrap();
        let mut plan = with_knob_commands(plan, knobs.to_vec()).unwrap();
        let (accepts_noise, budget) = (true, std::time::Duration::MAX);
        let effort = Effort { accepts_noise, budget, ..effort().exactly(2) };
        let origin = Origin { case: case.name.to_owned(), ..Origin::default() };
        measure(plan.as_mut(), &effort, &origin, live, &mut |_| Ok(()))
    }

    fn logging(dir: &Path, word: &str) -> String {
        format!("printf '%s ' {word} >> {}", dir.join("log").display())
    }

    fn log(dir: &Path) -> String {
        fs::read_to_string(dir.join("log")).unwrap_or_default()
    }

    #[test]
    fn a_setting_is_set_before_each_run_and_put_back_after_it_in_turns() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let texts = ["run", "prepare", "conclude", "set", "back"].map(|it| logging(dir, it));
        let [run, prepare, conclude, set, back] = &texts;
        let given = [("command", &**run), ("prepare", prepare), ("conclude", conclude)];
        let live = Arc::new(Live::new(Arc::default()));
        let results = measured(dir, &given, &[knob(set, back)], &live).unwrap();
        let (without, with) = ("prepare run conclude ", "set prepare run conclude back ");
        assert_eq!(log(dir), [without, with, with, without].concat(), "A B B A");
        let names: Vec<&str> = results.variants.iter().map(|it| &*it.name).collect();
        assert_eq!(names, [run.clone(), format!("{run}, {set}")]);
        assert_eq!(results.verdicts.len(), 1);
        assert_eq!(results.verdicts[0].baseline, *run);
        assert_eq!(results.groups(), [run]);
        // A table for each setting.
        let tables = crate::cases::tables(&results);
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].title(), "Commands, without a knob command");
        assert!(tables[1].title().contains("printf"), "{}", tables[1].title());
        assert_eq!(tables[1].shown().len(), 2);
    }

    #[test]
    fn a_setting_is_put_back_after_a_failure_of_any_step() {
        let live = || Arc::new(Live::new(Arc::default()));
        for (given, set_fails) in [
            (&[("command", "false")][..], false),
            (&[("command", "true"), ("prepare", "false")], false),
            (&[("command", "true")], true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let dir = dir.path();
            let set = logging(dir, "set") + if set_fails { "; echo no >&2; exit 4" } else { "" };
            let failing = format!("test ! -e log || ! {}", logging(dir, "failed"));
            // The first variant runs without a setting: what fails there fails before anything is set.
            let given: Vec<(&str, &str)> = given
                .iter()
                .map(|(name, text)| (*name, if *text == "false" { &*failing } else { text }))
                .collect();
            let back = logging(dir, "back");
            let error = measured(dir, &given, &[knob(&set, &back)], &live()).unwrap_err();
            assert_eq!(error.kind(), Kind::Io);
            let wanted = if set_fails { "set back " } else { "set failed back " };
            assert_eq!(log(dir), wanted, "{given:?}");
            if set_fails {
                assert!(error.to_string().contains("failed with exit code 4: no"), "{error}");
            }
        }
    }

    #[test]
    fn a_setting_that_cannot_be_put_back_is_an_error_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let live = Arc::new(Live::new(Arc::default()));
        let given = [("command", "true")];
        let error = measured(dir.path(), &given, &[knob("true", "exit 5")], &live).unwrap_err();
        assert!(error.what().contains("'exit 5', failed with exit code 5"), "{error}");
        assert!(error.advice_text().unwrap().ends_with("run: exit 5"), "{error:?}");
        // Both fail: the first error is reported, and the other one in its advice.
        let error = measured(dir.path(), &given, &[knob("exit 3", "exit 5")], &live).unwrap_err();
        assert!(error.what().contains("exit code 3"), "{error}");
        assert!(error.advice_text().unwrap().contains("exit code 5"), "{error:?}");
    }

    #[test]
    fn a_setting_is_put_back_after_an_interrupt() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let live = Arc::new(Live::new(Arc::default()));
        let (set, back) = (logging(dir, "set"), logging(dir, "back"));
        // Only the run with the setting lasts.
        let command = "test ! -e log || sleep 1000";
        let stopper = {
            let (live, log) = (Arc::clone(&live), dir.join("log"));
            std::thread::spawn(move || {
                while !log.exists() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                live.stop().store(true, std::sync::atomic::Ordering::Relaxed);
            })
        };
        let given = [("command", command)];
        let results = measured(dir, &given, &[knob(&set, &back)], &live).unwrap();
        stopper.join().unwrap();
        assert!(!results.is_complete);
        assert_eq!(log(dir), "set back ");
    }

    #[test]
    fn commands_that_are_empty_or_given_twice_are_refused() {
        let case = find("command").unwrap();
        let values = Values::read(case.options, &[("command", "true")]).unwrap();
        let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
        let some = knob("true", "true");
        for bad in [vec![knob("", "true")], vec![knob("true", " ")], vec![some.clone(), some]] {
            let plan = (case.plan)(&setting, &values).unwrap();
            let refused = with_knob_commands(plan, bad).err().unwrap();
            assert_eq!(refused.kind(), Kind::Usage);
        }
    }
}
