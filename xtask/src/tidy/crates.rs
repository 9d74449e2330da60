//! Rules on dependencies between crates: which crate may depend on which, and which crates must not
//! depend on an asynchronous runtime.

use super::{Finding, rules};
use crate::workspace::Workspace;

/// Every forbidden edge.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut refuse = |what: String| findings.push(Finding::new("", 0, what));
    for id in &workspace.members {
        let Some(package) = workspace.packages.get(id) else { continue };
        let name = package.name.as_str();
        let Some((_, allowed)) = rules::CRATES.iter().find(|(known, _)| *known == name) else {
            refuse(format!("crate {name} has no line in CRATES of xtask/src/tidy/rules.rs"));
            continue;
        };
        for below in package.normal.union(&package.dev) {
            let below_name = workspace.packages.get(below).map_or("", |p| p.name.as_str());
            if workspace.members.contains(below) && !allowed.contains(&below_name) {
                refuse(format!("crate {name} depends on {below_name}; it may only on {allowed:?}"));
            }
        }
        if rules::SYNCHRONOUS.contains(&name) {
            for (below, way) in workspace.ways(&[id.clone()].into(), false) {
                let below = workspace.packages.get(&below).map_or("", |p| p.name.as_str());
                if rules::ASYNC_CRATES.contains(&below) {
                    let way = workspace.show_way(&way);
                    refuse(format!("crate {name} is synchronous but reaches {below}: {way}"));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;
    use crate::workspace::tests::made_up;

    #[test]
    fn the_plan_passes() {
        let ours = ["pinstripe-base", "pinstripe", "pinstripe-lab", "pinstripe-cli", "xtask"];
        let space = made_up(
            &ours,
            &[
                ("pinstripe-base", "MIT", &[], &[]),
                ("pinstripe", "MIT", &["pinstripe-base"], &["tokio"]),
                ("pinstripe-lab", "MIT", &["pinstripe"], &[]),
                ("pinstripe-cli", "MIT", &["pinstripe", "pinstripe-lab"], &[]),
                ("xtask", "MIT", &[], &[]),
                ("tokio", "MIT", &[], &[]),
            ],
        );
        assert_eq!(check(&space), []);
    }

    #[test]
    fn each_wrong_edge_is_named() {
        let space = made_up(
            &["pinstripe-base", "pinstripe", "xtask", "newcomer"],
            &[
                ("pinstripe-base", "MIT", &[], &["pinstripe"]),
                ("pinstripe", "MIT", &["pinstripe-base", "client"], &[]),
                ("client", "MIT", &["tokio"], &[]),
                ("tokio", "MIT", &[], &[]),
                ("xtask", "MIT", &["pinstripe"], &[]),
                ("newcomer", "MIT", &[], &[]),
            ],
        );
        let found = lines(check(&space)).join("\n");
        for part in [
            "pinstripe-base depends on pinstripe;",
            "xtask depends on pinstripe;",
            "pinstripe is synchronous but reaches tokio: pinstripe 1 -> client 1 -> tokio 1",
            "newcomer has no line",
        ] {
            assert!(found.contains(part), "{part} is not in:\n{found}");
        }
        assert_eq!(found.lines().count(), 4, "{found}");
    }
}
