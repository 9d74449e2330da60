//! One execution of a case against another: variants of one name, and what else is different.

use super::{Compared, Results};
use crate::stats;

/// What two results say of each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The second against the first, for each variant that both have.
    pub verdicts: Vec<Compared>,
    /// What else is different, for people: parameters, the machine, disks and their settings.
    pub differences: Vec<String>,
    /// Names of variants that only one has.
    pub unmatched: Vec<String>,
}

/// Compares results: the first are the baseline.
pub fn compare(baseline: &Results, candidate: &Results) -> Comparison {
    let mut verdicts = Vec::new();
    let mut unmatched = Vec::new();
    for variant in &candidate.variants {
        let other = baseline.variant(&variant.name).filter(|it| it.metric == variant.metric);
        let Some(other) = other else {
            unmatched.push(variant.name.clone());
            continue;
        };
        let (these, those) = (variant.values(), other.values());
        verdicts.push(Compared {
            group: variant.name.clone(),
            candidate: variant.name.clone(),
            baseline: "before".to_owned(),
            verdict: stats::judge(&these, &those, variant.metric.better, candidate.seed),
        });
    }
    let missing = baseline
        .variants
        .iter()
        .filter(|it| candidate.variant(&it.name).is_none_or(|other| other.metric != it.metric));
    for variant in missing {
        if !unmatched.contains(&variant.name) {
            unmatched.push(variant.name.clone());
        }
    }
    Comparison { verdicts, differences: differences(baseline, candidate), unmatched }
}

fn differences(baseline: &Results, candidate: &Results) -> Vec<String> {
    let mut found = Vec::new();
    let mut tell = |name: &str, before: Option<&str>, after: Option<&str>| {
        if before != after {
            let shown = |it: Option<&str>| it.unwrap_or("nothing").to_owned();
            found.push(format!("{name}: {} before, {} now", shown(before), shown(after)));
        }
    };
    let (old, new) = (&baseline.fingerprint, &candidate.fingerprint);
    tell("program", Some(&baseline.program), Some(&candidate.program));
    tell("case", Some(&baseline.case), Some(&candidate.case));
    tell("host", old.host.as_deref(), new.host.as_deref());
    tell("processor", Some(&old.machine.processor), Some(&new.machine.processor));
    tell("kernel", Some(&old.machine.kernel), Some(&new.machine.kernel));
    tell("governor", old.governor.as_deref(), new.governor.as_deref());
    let value = |results: &Results, name: &str| {
        results.parameters.iter().find(|it| it.name == name).map(|it| it.value.clone())
    };
    let mut names: Vec<&str> = Vec::new();
    for parameter in baseline.parameters.iter().chain(&candidate.parameters) {
        if !names.contains(&parameter.name.as_str()) {
            names.push(&parameter.name);
        }
    }
    for name in names {
        tell(name, value(baseline, name).as_deref(), value(candidate, name).as_deref());
    }
    for (old, new) in old.places.iter().zip(&new.places) {
        tell("place", Some(&old.path), Some(&new.path));
        tell("file system", old.file_system.as_deref(), new.file_system.as_deref());
        tell("mount options", old.mount_options.as_deref(), new.mount_options.as_deref());
        let (Some(old), Some(new)) = (&old.disk, &new.disk) else { continue };
        tell("disk", Some(&old.name), Some(&new.name));
        tell("model", old.model.as_deref(), new.model.as_deref());
        for name in old
            .settings
            .keys()
            .chain(new.settings.keys().filter(|it| !old.settings.contains_key(*it)))
        {
            let of =
                |settings: &std::collections::BTreeMap<String, String>| settings.get(name).cloned();
            tell(name, of(&old.settings).as_deref(), of(&new.settings).as_deref());
        }
    }
    found
}
