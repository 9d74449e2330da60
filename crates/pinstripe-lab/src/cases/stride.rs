//! Reading every 17th record while the next ones are advised ahead: what the kernel's own
//! read-ahead does not see.

use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;
use pinstripe_io::device::{Access, FileDevice, Policy};
use pinstripe_io::fault;

use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::io::{self, Area, Content, Direction, Job, Order, Pattern, Syncing, Target};
use crate::result::{Metric, Parameter, Results};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "stride",
    about: "Read every 17th record, with 0 to 128 of the next ones advised ahead",
    help: "\
One program reads a record, seeks over the next 16, and so on; in as many laps, until each record was \
read once. The kernel's read-ahead sees no order in that. With k records ahead, the program tells the \
kernel of the next k that it will read (POSIX_FADV_WILLNEED), which reads them meanwhile: on a disk \
with an arm, on a network or on many disks that makes the difference between one request at a time \
and k.

With --delay each read of the file takes so much longer, as on a network. Then pinstripe reads ahead \
itself: it has k + 1 records on their way at a time.",
    examples: "\
  pinstripe lab run stride --dir /mnt/ceph
  pinstripe lab run stride --ahead 0,8,32 --record-size 1M --total-size 4G
  pinstripe lab run stride --delay 20ms --total-size 512M",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "stride",
        value: "N",
        form: ValueForm::Count,
        default: Some("17"),
        about: "Read one of this many records",
        more: "",
    },
    CaseOption {
        name: "record-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("4M"),
        about: "Bytes of a record",
        more: "",
    },
    CaseOption {
        name: "total-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1G"),
        about: "Bytes of the file",
        more: "",
    },
    CaseOption {
        name: "ahead",
        value: "N,...",
        form: ValueForm::Counts,
        default: Some("0,1,4,16,64,128"),
        about: "Records ahead that are advised",
        more: "The first is the baseline of the others.",
    },
    CaseOption {
        name: "delay",
        value: "TIME",
        form: ValueForm::Text,
        default: None,
        about: "Time added to each read: 5ms, 100us",
        more: "",
    },
    shared::CACHE,
];

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let place = match &setting.device {
        Some(device) => device.clone(),
        None => shared::one_directory(setting)?,
    };
    let record_bytes = values.size("record-size");
    let bytes = values.size("total-size") / record_bytes.max(1) * record_bytes;
    if bytes == 0 {
        return Err(Error::new(Kind::Usage, "the file is smaller than one record")
            .advice("more with --total-size, or less with --record-size"));
    }
    let delay = match values.text("delay") {
        Some(delay) => Some(format!("op=read,delay={delay}").parse()?),
        None => None,
    };
    Ok(Box::new(Stride {
        parameters: shared::parameters(OPTIONS, values),
        place,
        is_device: setting.device.is_some(),
        folder: None,
        stride: values.count("stride"),
        record_bytes: record_bytes as usize,
        bytes,
        aheads: values.counts("ahead"),
        delay,
        drops_cache: values.text("cache") == Some("drop"),
        seed: setting.seed,
        area: None,
    }))
}

struct Stride {
    parameters: Vec<Parameter>,
    place: PathBuf,
    is_device: bool,
    folder: Option<Folder>,
    stride: u64,
    record_bytes: usize,
    bytes: u64,
    aheads: Vec<u64>,
    /// The layer in front of the file that makes its reads slow.
    delay: Option<fault::Plan>,
    drops_cache: bool,
    seed: u64,
    area: Option<Area>,
}

impl Stride {
    fn job(&self, ahead: u64) -> Job {
        let pattern = Pattern {
            order: Order::Strided(self.stride),
            direction: Direction::Read,
            block_bytes: self.record_bytes,
        };
        let job = Job {
            requests: Some(self.bytes / self.record_bytes as u64),
            syncing: Syncing::NEVER,
            seed: self.seed,
            ..Job::new(pattern)
        };
        match &self.delay {
            None => Job { ahead, ..job },
            Some(_) => Job { threads: ahead as usize + 1, ..job },
        }
    }

    /// The device, or a file that is made; either is full.
    fn path(&mut self, live: &Live) -> Result<PathBuf> {
        if self.is_device {
            let full = Some((Content::Noise, live));
            shared::device(&self.place, &[0], self.bytes, Policy::Buffered, full)?;
            return Ok(self.place.clone());
        }
        let folder = self.folder.insert(Folder::make(&self.place, CASE.name, self.bytes)?);
        let path = folder.path("records");
        let paths = [path.clone()];
        Area::make(&paths, self.bytes, Content::Noise, Policy::Buffered, live)?;
        Ok(path)
    }
}

impl Plan for Stride {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |ahead: &u64| VariantSpec {
            name: format!("{ahead} ahead"),
            group: "stride".to_owned(),
            about: format!("every {}th record, {ahead} advised ahead", self.stride),
            parameters: vec![Parameter::new("ahead", ahead)],
            metric: Metric::throughput(),
            place: PlaceNo::FIRST,
        };
        self.aheads.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.place.clone()]
    }

    fn notes(&self) -> Vec<String> {
        let delay = self.parameters.iter().find(|it| it.name == "delay" && it.value != "none");
        let note =
            |it: &Parameter| format!("each read takes {} longer than the disk does", it.value);
        delay.map(note).into_iter().collect()
    }

    fn intents(&self) -> Vec<String> {
        match self.is_device {
            true => vec![format!(
                "overwrite the first {} of {}",
                format_size(self.bytes),
                self.place.display()
            )],
            false => vec![shared::intent(&self.place, CASE.name, self.bytes)],
        }
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        let needed = (self.place.clone(), self.bytes);
        if self.is_device { Vec::new() } else { vec![needed] }
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        let path = self.path(live)?;
        let target = match &self.delay {
            None => Target::open(&path, Access::Read, Policy::Buffered)?,
            Some(delay) => {
                let file = FileDevice::open(&path, Access::Read, Policy::Direct)?;
                Target::of(Arc::new(fault::FaultyDevice::new(file, delay.clone())))
            }
        };
        self.area = Some(Area::new(vec![target], self.bytes));
        Ok(())
    }

    fn ready(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        match &self.area {
            Some(area) if self.drops_cache => area.drop_cache(),
            _ => Ok(()),
        }
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let job = self.job(self.aheads[variant.0]);
        let area = self.area.as_ref().expect("the file was opened before the first run");
        let done = io::run(&job, area, live)?;
        Ok(shared::outcome(&done, &job, Policy::Buffered, false))
    }

    fn check(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        Ok(())
    }

    fn clean(&mut self) -> Result<()> {
        self.area = None;
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

/// Records ahead, MB/s, and how many times that is of the first.
fn tables(results: &Results) -> Vec<Table> {
    let mut rows = vec![["records ahead", "MB/s", "times"].map(str::to_owned).to_vec()];
    let figures = results.variants.iter().map(|it| (it, grid::figure(it, grid::value)));
    let figures: Vec<_> = figures.collect();
    let first = figures.first().and_then(|(_, figure)| *figure);
    for (variant, figure) in figures {
        let times = figure.zip(first).map(|(it, first)| it.over(first));
        let times = times.map_or("-".to_owned(), |it| it.derive(|it| format!("{it:.1}")));
        rows.push(vec![grid::parameter(variant, "ahead").to_owned(), grid::cell(figure), times]);
    }
    vec![Table::from_rows("Stride reads by records advised ahead", "", rows)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    const SMALL: [(&str, &str); 3] =
        [("record-size", "64K"), ("total-size", "4M"), ("ahead", "0,3,128")];

    #[test]
    fn each_record_is_read_once_however_many_are_advised() {
        for more in [&[][..], &[("delay", "100us")], &[("cache", "keep")]] {
            let dir = tempfile::tempdir().unwrap();
            let results = measured(&CASE, dir.path(), &[&SMALL[..], more].concat());
            for variant in &results.variants {
                let run = &variant.runs[0];
                assert_eq!(
                    (run.measured.read_bytes, run.measured.operations),
                    (4 << 20, 64),
                    "{}",
                    variant.name
                );
                assert!(run.measured.value > 0.0);
            }
            let shown = tables(&results)[0].shown();
            // In brackets where the machine was busy.
            assert_eq!(shown[1][2].trim_matches(['(', ')']), "1.0");
            assert_eq!(shown[3][0], "128");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_slow_device_is_read_by_as_many_as_are_ahead_and_one() {
        let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
        let values = Values::read(OPTIONS, &[("delay", "1ms")]).unwrap();
        assert!(plan(&setting, &values).unwrap().notes()[0].contains("1ms longer"));
        for bad in [("delay", "soon"), ("total-size", "1M")] {
            let values = Values::read(OPTIONS, &[bad]).unwrap();
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage);
        }
    }
}
