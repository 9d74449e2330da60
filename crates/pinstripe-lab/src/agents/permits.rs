//! The actions that the owner of a machine permits to coordinators: cases in some directories, and
//! on devices and pools only if the owner named them.
//!
//! Invariants: every path given to a case is within a directory of the agent, after all symbolic
//! links are resolved; a device or a Ceph pool was named when the agent was started; no other
//! program is run; no file system is created or mounted.

use std::fs;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};

use super::message::Assignment;
use crate::cases::{self, Case, CaseOption, Setting, ValueForm, Values};
use crate::safety::{Consent, examine};

/// The actions permitted to coordinators.
#[derive(Debug, Clone, Default)]
pub struct Permits {
    /// Absolute paths without symbolic links.
    dirs: Vec<PathBuf>,
    devices: Vec<PermittedDevice>,
    pools: Vec<String>,
}

/// A device that may be overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermittedDevice {
    /// The path.
    pub path: PathBuf,
    /// The serial number, typed by the user who started the agent.
    pub serial: String,
}

/// A case that may be planned.
pub struct Permitted {
    /// The case.
    pub case: &'static Case,
    /// The options.
    pub values: Values,
    /// Where it works.
    pub setting: Setting,
}

impl Permits {
    /// Permits cases in these directories, on these devices and in these Ceph pools.
    ///
    /// # Errors
    /// [`Kind::Usage`] if no directory is given, or a path is not a directory; other errors as the
    /// system reports them.
    pub fn new(
        dirs: &[PathBuf],
        devices: Vec<PermittedDevice>,
        pools: Vec<String>,
    ) -> Result<Permits> {
        if dirs.is_empty() {
            return Err(Error::new(Kind::Usage, "an agent needs a working directory")
                .advice("give a directory with --dir"));
        }
        let whole = |dir: &PathBuf| {
            let whole = fs::canonicalize(dir);
            let whole =
                whole.map_err(|error| Error::io("this directory cannot be used", dir, error))?;
            match whole.is_dir() {
                true => Ok(whole),
                false => Err(Error::new(Kind::Usage, "this is not a directory").at(dir)),
            }
        };
        let dirs = dirs.iter().map(whole).collect::<Result<_>>()?;
        Ok(Permits { dirs, devices, pools })
    }

    /// The permitted directories, as absolute paths.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Returns the case of an assignment, if the assignment is permitted.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the assignment is not permitted; the errors of the case's options.
    pub fn check(&self, asked: &Assignment) -> Result<Permitted> {
        let case = cases::find(&asked.case)?;
        if case.name == "fs" {
            return Err(refused("the case 'fs' creates and mounts file systems"));
        }
        if case.name == "command" {
            return Err(refused("the case 'command' runs other programs"));
        }
        let options = self.options(case, &asked.options)?;
        let given: Vec<(&str, &str)> =
            options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let values = Values::read(case.options, &given)?;
        let device = asked.device.as_ref().map(|it| self.device(Path::new(it))).transpose()?;
        let dirs = match (&device, asked.dirs.as_slice()) {
            (Some(_), _) => Vec::new(),
            (None, []) => self.dirs[..1].to_vec(),
            (None, dirs) => dirs.iter().map(|it| self.within(it)).collect::<Result<_>>()?,
        };
        if let Some(dir) = dirs.iter().find(|it| !it.is_dir()) {
            return Err(Error::new(Kind::Usage, "this is not a directory").at(dir));
        }
        Ok(Permitted { case, values, setting: Setting { dirs, device, seed: asked.seed } })
    }

    /// Returns the options with their paths resolved on this machine.
    fn options(
        &self,
        case: &'static Case,
        asked: &[(String, String)],
    ) -> Result<Vec<(&'static str, String)>> {
        let option = |(name, value): &(String, String)| {
            let found = case.options.iter().find(|it| it.name == name);
            let found = found.ok_or_else(|| {
                Error::new(Kind::Usage, format!("this case has no option --{name}"))
            })?;
            Ok((found.name, self.value(found, value)?))
        };
        asked.iter().map(option).collect()
    }

    fn value(&self, option: &CaseOption, value: &str) -> Result<String> {
        let pool = || value.strip_prefix("ceph:").map(|it| it.split('/').next().unwrap_or(it));
        match (option.form, option.name) {
            (ValueForm::Path | ValueForm::Paths, _) => {
                let path = self.within(value)?.into_os_string().into_string();
                path.map_err(|_| Error::new(Kind::Usage, "the path is not valid UTF-8"))
            }
            (_, "cross-check") => Err(refused("--cross-check runs a program")),
            (_, "engine") if pool().is_some_and(|it| !self.pools.iter().any(|own| own == it)) => {
                Err(refused("the case would write objects to a Ceph pool")
                    .advice("start the agent with --allow-ceph POOL"))
            }
            _ => Ok(value.to_owned()),
        }
    }

    /// Resolves a path, with its symbolic links, within one of the permitted directories; a
    /// relative path is below the first directory.
    fn within(&self, path: &str) -> Result<PathBuf> {
        let path = self.dirs[0].join(path);
        let whole = fs::canonicalize(&path);
        let whole =
            whole.map_err(|error| Error::io("this directory cannot be used", &path, error))?;
        match self.dirs.iter().any(|dir| whole.starts_with(dir)) {
            true => Ok(whole),
            false => {
                let error =
                    refused("this path is outside the directories that the agent may use").at(path);
                Err(error.advice("start the agent with --dir DIR"))
            }
        }
    }

    /// Returns a device that was named when the agent was started and that may be overwritten now.
    fn device(&self, asked: &Path) -> Result<PathBuf> {
        let own = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let found = self.devices.iter().find(|it| own(&it.path) == own(asked));
        let found = found.ok_or_else(|| {
            let error = refused("the case would overwrite the device").at(asked);
            error.advice("start the agent with --allow-device DEV=SERIAL")
        })?;
        let path = own(&found.path);
        let consent = Consent { serial: Some(&found.serial), overwrite_unknown: false };
        examine(&path)?.allow(consent)?;
        Ok(path)
    }
}

fn refused(what: &str) -> Error {
    Error::new(Kind::Refused, format!("the agent does not permit this: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(case: &str, options: &[(&str, &str)], dirs: &[&str]) -> Assignment {
        let own = |it: &(&str, &str)| (it.0.to_owned(), it.1.to_owned());
        Assignment {
            case: case.to_owned(),
            options: options.iter().map(own).collect(),
            dirs: dirs.iter().map(|it| (*it).to_owned()).collect(),
            ..Assignment::default()
        }
    }

    #[test]
    fn an_agent_stays_within_its_directories() {
        let outside = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(outside.path().join("load"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).unwrap();
        let permits = Permits::new(&[dir.path().to_path_buf()], Vec::new(), Vec::new()).unwrap();
        let dirs = |asked: Assignment| permits.check(&asked).map(|it| it.setting.dirs);
        let whole = fs::canonicalize(dir.path()).unwrap();
        assert_eq!(dirs(asked("fileio", &[], &[])).unwrap(), std::slice::from_ref(&whole));
        for name in ["inner", "./inner/../inner", inner.to_str().unwrap()] {
            assert_eq!(
                dirs(asked("fileio", &[], &[name])).unwrap(),
                [whole.join("inner")],
                "{name}"
            );
        }
        let outer = outside.path().to_str().unwrap();
        for name in [outer, "..", "link", "/", "inner/../..", &format!("{}x", whole.display())] {
            let kind = dirs(asked("fileio", &[], &[name])).unwrap_err().kind();
            assert!([Kind::Refused, Kind::NotFound].contains(&kind), "{name}: {kind:?}");
        }
        // Paths among the options too.
        let load = format!("{outer}/load");
        for path in [load.as_str(), "link/load", "/etc/passwd"] {
            let found = permits.check(&asked("opmix", &[("loadfile", path)], &[])).err().unwrap();
            assert_eq!(found.kind(), Kind::Refused, "{path}");
        }
        let tree = permits.check(&asked("walk", &[("tree", "inner")], &[])).unwrap();
        assert_eq!(tree.values.text("tree"), whole.join("inner").to_str());
    }

    #[test]
    fn nothing_that_was_not_named_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().to_path_buf()];
        let permits = Permits::new(&dirs, Vec::new(), vec!["bench".to_owned()]).unwrap();
        let kind = |asked: Assignment| permits.check(&asked).err().map(|it| it.kind());
        let device =
            Assignment { device: Some("/dev/null".to_owned()), ..asked("slices", &[], &[]) };
        assert_eq!(kind(device), Some(Kind::Refused));
        assert_eq!(kind(asked("fs", &[], &[])), Some(Kind::Refused));
        assert_eq!(kind(asked("nothing", &[], &[])), Some(Kind::NotFound));
        assert_eq!(kind(asked("fileio", &[("nothing", "1")], &[])), Some(Kind::Usage));
        assert_eq!(kind(asked("fileio", &[("cross-check", "fio")], &[])), Some(Kind::Refused));
        assert_eq!(kind(asked("stride", &[("engine", "file")], &[])), None);
        for (pool, found) in [("bench", None), ("bench/mine", None), ("rbd", Some(Kind::Refused))] {
            let engine = format!("ceph:{pool}");
            assert_eq!(kind(asked("stride", &[("engine", &engine)], &[])), found, "{pool}");
        }
        assert_eq!(Permits::new(&[], Vec::new(), Vec::new()).unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn a_device_that_was_named_is_examined_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let named = PermittedDevice { path: "/dev/null".into(), serial: "1".to_owned() };
        let permits = Permits::new(&[dir.path().to_path_buf()], vec![named], Vec::new()).unwrap();
        let device =
            Assignment { device: Some("/dev/null".to_owned()), ..asked("slices", &[], &[]) };
        let error = permits.check(&device).err().unwrap();
        assert!(error.to_string().contains("not a block device"), "{error}");
    }

    /// An option of a new case may be a path, a program or a place that this room does not know: whoever
    /// adds one looks here, and adds it to what is known to be none.
    #[test]
    fn every_option_that_is_a_word_is_known() {
        let known = [
            "candidates",
            "ceph-user",
            "codecs",
            "content",
            "delay",
            "engine",
            "granules",
            "knob",
            "windows",
        ];
        // The case 'command' is refused.
        let permitted = cases::ALL.iter().filter(|it| it.name != "command");
        let words = permitted.flat_map(|case| case.options);
        let words = words.filter(|it| it.form == ValueForm::Text).map(|it| it.name);
        let mut unknown: Vec<&str> = words.filter(|it| !known.contains(it)).collect();
        unknown.dedup();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
