//! Reads the workspace from cargo, and calls cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The result of a task: whether it succeeded, or the reason why it could not be carried out.
pub type Result<T> = std::result::Result<T, String>;

/// The platforms of the releases; crates for other platforms are never built, so they are not
/// checked.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The workspace as cargo resolves it, with every feature enabled.
pub struct Workspace {
    /// The directory that contains the top-level `Cargo.toml`.
    pub root: PathBuf,
    /// The directory in which cargo builds.
    pub target: PathBuf,
    /// All packages of the dependency graph, by their ids.
    pub packages: BTreeMap<String, Package>,
    /// The ids of the workspace's own packages.
    pub members: BTreeSet<String>,
}

/// One package of the dependency graph.
#[derive(Default)]
pub struct Package {
    /// The package's name in the registry.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The licence that the package's manifest states.
    pub licence: Option<String>,
    /// The features that the package itself declares.
    pub features: BTreeSet<String>,
    /// The ids of the packages with which it is built, on any of the release platforms.
    pub normal: BTreeSet<String>,
    /// The ids of the packages with which only its tests and benches are built.
    pub dev: BTreeSet<String>,
}

impl Workspace {
    /// Asks cargo.
    pub fn load() -> Result<Workspace> {
        let mut whole: Option<Workspace> = None;
        for platform in PLATFORMS {
            let args = ["metadata", "--format-version=1", "--all-features", "--filter-platform"];
            let mut command = cargo();
            command.args(args).arg(platform).current_dir(root_folder()?);
            let output = command.output().map_err(|error| format!("cannot run cargo: {error}"))?;
            if !output.status.success() {
                let message = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(format!("cargo metadata failed:\n{message}"));
            }
            let value: Value = serde_json::from_slice(&output.stdout)
                .map_err(|error| format!("cargo metadata wrote bad JSON: {error}"))?;
            let part = Workspace::from_metadata(&value)?;
            match &mut whole {
                None => whole = Some(part),
                Some(whole) => whole.merge(part),
            }
        }
        whole.ok_or_else(|| "no platform to check".to_owned())
    }

    /// Reads the output of `cargo metadata`.
    pub fn from_metadata(value: &Value) -> Result<Workspace> {
        let folder = |key: &str| {
            let text = value[key].as_str().ok_or(format!("cargo metadata without {key}"))?;
            Ok::<_, String>(PathBuf::from(text))
        };
        let mut packages = BTreeMap::new();
        for node in list(&value["resolve"]["nodes"]) {
            let mut package = Package::default();
            for dependency in list(&node["deps"]) {
                let id = text(&dependency["pkg"]);
                for kind in list(&dependency["dep_kinds"]) {
                    let only_tests = kind["kind"].as_str() == Some("dev");
                    let edges = if only_tests { &mut package.dev } else { &mut package.normal };
                    edges.insert(id.clone());
                }
            }
            packages.insert(text(&node["id"]), package);
        }
        for entry in list(&value["packages"]) {
            if let Some(package) = packages.get_mut(&text(&entry["id"])) {
                package.name = text(&entry["name"]);
                package.version = text(&entry["version"]);
                package.licence = entry["license"].as_str().map(str::to_owned);
                let features = entry["features"].as_object();
                package.features = features.into_iter().flatten().map(|(k, _)| k.clone()).collect();
            }
        }
        Ok(Workspace {
            root: folder("workspace_root")?,
            target: folder("target_directory")?,
            packages,
            members: list(&value["workspace_members"]).map(text).collect(),
        })
    }

    fn merge(&mut self, other: Workspace) {
        for (id, package) in other.packages {
            match self.packages.get_mut(&id) {
                Some(known) => {
                    known.normal.extend(package.normal);
                    known.dev.extend(package.dev);
                }
                None => {
                    self.packages.insert(id, package);
                }
            }
        }
    }

    /// Returns the workspace's package with this name.
    pub fn member(&self, name: &str) -> Option<(&String, &Package)> {
        let ours = self.members.iter().filter_map(|id| Some((id, self.packages.get(id)?)));
        ours.into_iter().find(|(_, package)| package.name == name)
    }

    /// Returns the shortest path of dependencies from `from` to each package that it needs,
    /// including both ends. Test dependencies count only for the packages in `from`, and only if
    /// `with_dev` is set.
    pub fn ways(&self, from: &BTreeSet<String>, with_dev: bool) -> BTreeMap<String, Vec<String>> {
        let mut ways: BTreeMap<String, Vec<String>> =
            from.iter().map(|id| (id.clone(), vec![id.clone()])).collect();
        let mut reached: Vec<String> = from.iter().cloned().collect();
        let mut next = 0;
        while next < reached.len() {
            let id = reached[next].clone();
            next += 1;
            let Some(package) = self.packages.get(&id) else { continue };
            let tests = package.dev.iter().filter(|_| with_dev && from.contains(&id));
            for below in package.normal.iter().chain(tests) {
                if !ways.contains_key(below) {
                    let mut way = ways[&id].clone();
                    way.push(below.clone());
                    ways.insert(below.clone(), way);
                    reached.push(below.clone());
                }
            }
        }
        ways
    }

    /// The names of the packages on a path, for messages.
    pub fn show_way(&self, way: &[String]) -> String {
        let name = |id: &String| match self.packages.get(id) {
            Some(package) => format!("{} {}", package.name, package.version),
            None => id.clone(),
        };
        way.iter().map(name).collect::<Vec<_>>().join(" -> ")
    }
}

/// The `cargo` that runs this program, ready for arguments.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// Whether a program can be run with these arguments.
pub fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Runs a command whose output goes to this program's output; returns whether it succeeded.
pub fn succeeds(command: &mut Command) -> Result<bool> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("cannot run {name}: {error}"))?;
    Ok(status.success())
}

/// The directory that contains the top-level `Cargo.toml`.
pub fn root_folder() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_path_buf).ok_or_else(|| "xtask has no parent folder".to_owned())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    /// Makes a workspace from `(name, licence, needs, needs for tests)`; the names in `ours` are
    /// its members.
    pub fn made_up(ours: &[&str], graph: &[(&str, &str, &[&str], &[&str])]) -> Workspace {
        let nodes: Vec<Value> = graph
            .iter()
            .map(|(name, _, needs, dev)| {
                let edge = |kind: Value| {
                    move |to: &&str| json!({"pkg": to, "dep_kinds": [{"kind": kind.clone()}]})
                };
                let normal = needs.iter().map(edge(Value::Null));
                let tests = dev.iter().map(edge(json!("dev")));
                json!({"id": name, "deps": normal.chain(tests).collect::<Vec<_>>()})
            })
            .collect();
        let packages: Vec<Value> = graph
            .iter()
            .map(|(name, licence, ..)| {
                let licence = if licence.is_empty() { Value::Null } else { json!(licence) };
                json!({"id": name, "name": name, "version": "1", "license": licence})
            })
            .collect();
        let value = json!({
            "workspace_root": "root", "target_directory": "target", "packages": packages,
            "workspace_members": ours, "resolve": {"nodes": nodes},
        });
        Workspace::from_metadata(&value).unwrap()
    }

    #[test]
    fn ways_follow_test_dependencies_of_ours_only() {
        let space = made_up(
            &["ours"],
            &[
                ("ours", "MIT", &["a"], &["t"]),
                ("a", "MIT", &["b"], &["never"]),
                ("b", "MIT", &[], &[]),
                ("t", "MIT", &["b"], &[]),
                ("never", "MIT", &[], &[]),
            ],
        );
        let ways = space.ways(&space.members, true);
        assert_eq!(ways["b"].len(), 3);
        assert!(ways.contains_key("t") && !ways.contains_key("never"));
        assert!(!space.ways(&space.members, false).contains_key("t"));
        assert_eq!(space.show_way(&ways["b"]), "ours 1 -> a 1 -> b 1");
    }
}
