//! Measures the strengths of a disk, and recommends settings, in five minutes and without any
//! option.

mod alone;
mod probes;

use std::path::PathBuf;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::random;
use pinstripe_base::units::format_size;
use pinstripe_io::device::{Access, Policy};

use self::probes::Probe;
use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Elsewhere, Setting, ValueForm, Values, fileio};
use crate::io::{self, Area, Content};
use crate::result::Parameter;
use crate::run::{Live, Outcome, Plan, VariantNo, VariantSpec};

/// The case.
pub static CASE: Case = Case {
    name: "quick",
    about: "Measure in five minutes how fast a disk is, and which settings suit it",
    help: "\
Measures the write rate of new files with each write policy, the best number and the best size of concurrent \
requests, the read rate, and the time until a single block is durable. The variants form groups; the \
variants of one group differ in only one setting. The baseline of a group is the variant with the default \
setting of 'pinstripe split', or the first variant if the group has no such variant.\n\n'pinstripe lab quick \
DIR' makes the same measurements, and also writes an HTML page with the results.",
    examples: "  pinstripe lab run quick --dir /srv\n  pinstripe lab quick /srv",
    options: OPTIONS,
    plan,
    tables: super::no_tables,
    again: AGAIN,
};

/// A single question is repeated by the case `fileio`.
const AGAIN: Again = Again {
    elsewhere: Some(Elsewhere { case: &fileio::CASE, options: alone::alone }),
    ..Again::BY_NAME
};

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "total-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("512M"),
        about: "Size of the file that is written and read; twice this much space is needed",
        more: "",
    },
    CaseOption { default: Some("0.3"), ..shared::RUN_TIME },
];

/// The size of the largest request; the file size is a multiple of it.
const ALIGN_BYTES: u64 = 4 << 20;

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    if setting.device.is_some() || setting.dirs.len() > 1 {
        let error = Error::new(Kind::Usage, "the case 'quick' can measure only one directory");
        return Err(
            error.advice("to measure a device, run 'pinstripe lab run fileio --device DEV'")
        );
    }
    let time = Duration::try_from_secs_f64(values.number("run-time"))
        .map_err(|_| Error::new(Kind::Usage, "--run-time is too long"))?;
    let bytes = shared::file_bytes(values.size("total-size"), 1, ALIGN_BYTES)?;
    Ok(Box::new(QuickPlan {
        dir: setting.dirs.first().cloned().unwrap_or_else(|| PathBuf::from(".")),
        bytes,
        time,
        seed: setting.seed,
        probes: probes::all(),
        folder: None,
        area: None,
    }))
}

struct QuickPlan {
    dir: PathBuf,
    bytes: u64,
    time: Duration,
    seed: u64,
    probes: Vec<Probe>,
    folder: Option<Folder>,
    /// The files that the next run works on.
    area: Option<Area>,
}

impl QuickPlan {
    fn file(&self, name: &str) -> Vec<PathBuf> {
        self.folder.iter().flat_map(|folder| folder.files(name, 1)).collect()
    }
}

impl Plan for QuickPlan {
    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter::new("total-size", self.bytes),
            Parameter::new("run-time", self.time.as_secs_f64()),
        ]
    }

    fn variants(&self) -> Vec<VariantSpec> {
        self.probes.iter().map(Probe::spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.dir.clone()]
    }

    fn intents(&self) -> Vec<String> {
        vec![format!(
            "create up to {} of files in a new directory pinstripe-lab-quick@* in {}, and remove \
             that directory at the end",
            format_size(2 * self.bytes),
            self.dir.display()
        )]
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        vec![(self.dir.clone(), 2 * self.bytes)]
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        self.folder = Some(Folder::make(&self.dir, CASE.name, 2 * self.bytes)?);
        Area::make(&self.file("old"), self.bytes, Content::Noise, Policy::Buffered, live).map(drop)
    }

    fn ready(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        let probe = &self.probes[variant.0];
        self.area = None;
        shared::remove_files(&self.file("new"))?;
        let (name, access) = match probe.makes_a_file() {
            true => ("new", Access::Create),
            false => ("old", Access::Write),
        };
        let area = Area::open(&self.file(name), self.bytes, access, probe.policy)?;
        area.drop_cache()?;
        self.area = Some(area);
        Ok(())
    }

    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome> {
        let probe = &self.probes[variant.0];
        let seed = random::of_run(self.seed, number);
        let job = probe.job(seed, self.bytes, self.time);
        let area = self.area.as_ref().expect("it was opened when the run was made ready");
        let done = io::run(&job, area, live)?;
        let is_direct = area.is_direct(job.pattern.block_bytes);
        let mut outcome = shared::outcome(&done, &job, probe.policy, is_direct);
        if probe.spec().metric.unit == "1/s" {
            outcome.measured.value = done.requests as f64 / (done.seconds + done.sync_s).max(1e-9);
        }
        Ok(outcome)
    }

    fn clean(&mut self) -> Result<()> {
        self.area = None;
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    #[test]
    fn every_question_is_asked_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let small = [("total-size", "8M"), ("run-time", "0.02")];
        let results = measured(&CASE, dir.path(), &small);
        assert!(results.variants.len() > 20);
        for variant in &results.variants {
            assert!(variant.runs[0].measured.value > 0.0, "{}", variant.name);
            assert!(variant.runs[0].measured.operations > 0, "{}", variant.name);
            assert_eq!(variant.parameters.len(), 1, "{}", variant.name);
        }
        let names: Vec<&str> = results.variants.iter().map(|it| it.name.as_str()).collect();
        assert!(
            names.contains(&"write sequentially, direct, 4 at a time: strip-size 256K"),
            "{names:?}"
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn it_looks_at_one_directory() {
        let values = Values::read(OPTIONS, &[]).unwrap();
        let dirs = vec![PathBuf::from("/a"), PathBuf::from("/b")];
        let setting = Setting { dirs, ..Setting::default() };
        assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage);
    }
}
