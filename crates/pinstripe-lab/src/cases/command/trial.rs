//! The variants of the case: each command with each combination of the values of its parameters.

use pinstripe_base::error::{Error, Kind, Result};

use super::parameters::{self, Chosen, Sweep, substituted, twice, uses};
use crate::cases::Values;
use crate::result::Parameter;

/// One variant: a command in which all parameters are replaced, and the commands that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trial {
    pub name: String,
    pub command: String,
    pub prepare: Option<String>,
    pub conclude: Option<String>,
    pub setup: Option<String>,
    pub cleanup: Option<String>,
    /// The options that measure it alone.
    pub parameters: Vec<Parameter>,
}

/// A command before its parameters are replaced.
struct Template<'a> {
    command: &'a str,
    name: Option<&'a str>,
    prepare: Option<&'a str>,
    conclude: Option<&'a str>,
    setup: Option<&'a str>,
    cleanup: Option<&'a str>,
}

/// Returns all variants; the reference is the first.
///
/// # Errors
/// [`Kind::Usage`] for commands, names and parameters that do not fit together.
pub(super) fn all(values: &Values) -> Result<Vec<Trial>> {
    let sweeps = parameters::read(values)?;
    let templates = templates(values)?;
    refuse_unused(&sweeps, &templates)?;
    let mut trials: Vec<(usize, Trial)> = Vec::new();
    for (number, template) in templates.iter().enumerate() {
        let used: Vec<&Sweep> = sweeps.iter().filter(|it| template.uses(&it.name)).collect();
        let made = parameters::combinations(&used)?;
        trials.extend(made.iter().map(|chosen| (number, template.trial(chosen))));
        parameters::refuse_many(trials.len())?;
    }
    let names: Vec<&str> = trials.iter().map(|(_, it)| it.name.as_str()).collect();
    if let Some(name) = twice(&names) {
        let error = Error::new(Kind::Usage, format!("two commands have the same name '{name}'"));
        return Err(error.advice("give each command a name of its own with --command-name"));
    }
    if let Some(reference) = values.text("reference") {
        let is_first = first(reference, &templates, &trials)?;
        // The sort is stable: all others keep their order.
        trials.sort_by_key(|it| !is_first(it));
    }
    Ok(trials.into_iter().map(|(_, it)| it).collect())
}

/// Returns whether a variant is one of the reference.
fn first(
    reference: &str,
    templates: &[Template<'_>],
    trials: &[(usize, Trial)],
) -> Result<impl Fn(&(usize, Trial)) -> bool + use<>> {
    let is_it = |it: &Template<'_>| it.name == Some(reference) || it.command == reference;
    let number = templates.iter().position(is_it);
    let name = trials.iter().find(|(_, it)| it.name == reference).map(|(_, it)| it.name.clone());
    if number.is_none() && name.is_none() {
        let what = format!("the reference '{reference}' is not one of the commands");
        let names: Vec<&str> = trials.iter().map(|(_, it)| it.name.as_str()).collect();
        let advice = format!("the names are {}", names.join(", "));
        return Err(Error::new(Kind::Usage, what).advice(advice));
    }
    Ok(move |(at, trial): &(usize, Trial)| match &name {
        Some(name) => trial.name == *name,
        None => Some(*at) == number,
    })
}

fn templates(values: &Values) -> Result<Vec<Template<'_>>> {
    let commands = values.texts("command");
    if commands.is_empty() {
        return Err(Error::new(Kind::Usage, "no command is given")
            .advice("pinstripe lab run command 'COMMAND' 'COMMAND'"));
    }
    for name in ["command", "command-name", "prepare", "conclude", "setup", "cleanup", "shell"] {
        if values.texts(name).iter().any(|it| it.trim().is_empty()) {
            let option = if name == "command" { name.to_owned() } else { format!("--{name}") };
            return Err(Error::new(Kind::Usage, format!("the text of {option} is empty")));
        }
    }
    let names = of_each(values, "command-name", commands.len(), false)?;
    let prepare = of_each(values, "prepare", commands.len(), true)?;
    let conclude = of_each(values, "conclude", commands.len(), true)?;
    let template = |at: usize| Template {
        command: commands[at],
        name: names.get(at).copied(),
        prepare: prepare.get(at).or(prepare.first()).copied(),
        conclude: conclude.get(at).or(conclude.first()).copied(),
        setup: values.text("setup"),
        cleanup: values.text("cleanup"),
    };
    Ok((0..commands.len()).map(template).collect())
}

/// The values of an option that is given once for each command, or also once for all.
fn of_each<'a>(
    values: &'a Values,
    name: &str,
    commands: usize,
    may_be_shared: bool,
) -> Result<Vec<&'a str>> {
    let given = values.texts(name);
    if given.is_empty() || given.len() == commands || may_be_shared && given.len() == 1 {
        return Ok(given);
    }
    let times = given.len();
    let what = format!("--{name} is given {times} times for {commands} commands");
    let once = if may_be_shared { "once for all commands, or " } else { "" };
    Err(Error::new(Kind::Usage, what).advice(format!("give it {once}once for each command")))
}

/// Fails if a parameter is in no command.
fn refuse_unused(sweeps: &[Sweep], templates: &[Template<'_>]) -> Result<()> {
    let is_unused = |it: &&Sweep| !templates.iter().any(|template| template.uses(&it.name));
    let Some(sweep) = sweeps.iter().find(is_unused) else { return Ok(()) };
    let what = format!("no command uses the parameter '{}'", sweep.name);
    Err(Error::new(Kind::Usage, what).advice(format!("write {{{}}} in a command", sweep.name)))
}

impl Template<'_> {
    fn uses(&self, parameter: &str) -> bool {
        let others = [self.prepare, self.conclude, self.setup, self.cleanup];
        others.into_iter().flatten().chain([self.command]).any(|it| uses(it, parameter))
    }

    fn trial(&self, chosen: &Chosen) -> Trial {
        let of = |text: Option<&str>| text.map(|it| substituted(it, chosen));
        let template = self.name.unwrap_or(self.command);
        let mut name = substituted(template, chosen);
        for (parameter, value) in chosen.iter().filter(|(it, _)| !uses(template, it)) {
            name += &format!(", {parameter}={value}");
        }
        let own = [
            ("command", Some(self.command)),
            ("command-name", self.name),
            ("prepare", self.prepare),
            ("conclude", self.conclude),
        ];
        let own = own.into_iter().filter_map(|(name, it)| Some(Parameter::new(name, it?)));
        let value = |(name, value): &(String, String)| {
            Parameter::new("parameter-list", format!("{name} {}", value.replace(',', "\\,")))
        };
        Trial {
            name,
            command: substituted(self.command, chosen),
            prepare: of(self.prepare),
            conclude: of(self.conclude),
            setup: of(self.setup),
            cleanup: of(self.cleanup),
            parameters: own.chain(chosen.iter().map(value)).collect(),
        }
    }
}
