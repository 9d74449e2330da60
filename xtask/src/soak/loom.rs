//! Runs the recorder's ring and the worker pool under loom, which tries the orders in which their
//! threads may run and see each other's writes. Wrong memory orderings that are inserted on purpose
//! must be found.

use crate::workspace::{Result, cargo, root_folder, succeeds};

/// The crates with loom models, and the wrong orderings that can be inserted in each.
const CRATES: [(&str, &[&str]); 2] =
    [("pinstripe-io", &["round"]), ("pinstripe-record", &["head"])];

/// Runs all models; returns false if one failed, or if an inserted wrong ordering was not found.
pub fn run() -> Result<bool> {
    let mut is_good = true;
    for (name, planted) in CRATES {
        println!("loom: {name}");
        is_good &= holds(name, None)?;
        for plant in planted {
            println!("loom: {name} with the wrong order '{plant}', which has to fail");
            if holds(name, Some(plant))? {
                println!("loom: the wrong order '{plant}' was not found");
                is_good = false;
            }
        }
    }
    Ok(is_good)
}

/// Whether the models of a crate pass, either unchanged or with an inserted wrong ordering. It is
/// an error if the models do not compile.
fn holds(name: &str, planted: Option<&str>) -> Result<bool> {
    let plant = planted.map(|it| format!(" --cfg planted=\"{it}\"")).unwrap_or_default();
    let test = |more: &[&str]| {
        let mut test = cargo();
        test.args(["test", "--package", name, "--lib", "--target-dir", "target/loom"]);
        test.args(more).env("RUSTFLAGS", format!("--cfg loom{plant}"));
        test.current_dir(root_folder()?);
        succeeds(&mut test)
    };
    if !test(&["--no-run"])? {
        return Err(format!("{name} does not build with loom"));
    }
    test(&["loom_"])
}
