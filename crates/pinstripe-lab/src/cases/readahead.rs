//! Reading in order with windows of read-ahead of several sizes, by several clients.

use std::fs;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::parse_size;
use pinstripe_io::device::Policy;

use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::fingerprint::number_of;
use crate::io::{self, Area, Content, Direction, Job, Order, Pattern, Syncing};
use crate::result::{Metric, Parameter, Results};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "readahead",
    about: "Read in order with several windows of read-ahead, by 1, 2 and 4 clients",
    help: "\
Each client is a thread that reads a file of its own from the first byte to the last. The window 'kernel' \
leaves read-ahead to the kernel as it is set. Other windows are pinstripe's own: the kernel is told not to \
read ahead (POSIX_FADV_RANDOM), and of the bytes within the window as they will be read \
(POSIX_FADV_WILLNEED). So any window can be tried without root.

With --by kernel the window is the kernel's own, read_ahead_kb of the disk or mount, which only root may \
set. It is put back at the end, also after an interrupt.",
    examples: "\
  pinstripe lab run readahead --dir /mnt/ceph
  pinstripe lab run readahead --windows kernel,1M,64M --clients 1,8 --record-size 1M
  pinstripe lab run readahead --by kernel --windows kernel,128K,4M",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "windows",
        value: "SIZE,...",
        form: ValueForm::Text,
        default: Some("kernel,0,4M,16M,64M,256M"),
        about: "Windows of read-ahead; 'kernel' is the present setting",
        more: "The first is the baseline of the others.",
    },
    CaseOption {
        name: "clients",
        value: "N,...",
        form: ValueForm::Counts,
        default: Some("1,2,4"),
        about: "Concurrent clients",
        more: "",
    },
    CaseOption {
        name: "file-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("256M"),
        about: "Bytes of each client's file",
        more: "",
    },
    CaseOption {
        name: "record-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("4M"),
        about: "Bytes of each read",
        more: "",
    },
    CaseOption {
        name: "by",
        value: "WHOM",
        form: ValueForm::OneOf(&["advice", "kernel"]),
        default: Some("advice"),
        about: "What reads ahead: pinstripe by advice, or the kernel",
        more: "",
    },
    shared::CACHE,
];

/// A window.
#[derive(Debug, Clone)]
struct Window {
    /// As it was typed.
    word: String,
    /// None leaves it to the kernel.
    bytes: Option<u64>,
}

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let window = |word: &str| -> Result<Window> {
        let bytes = if word == "kernel" { None } else { Some(parse_size(word)?) };
        Ok(Window { word: word.to_owned(), bytes })
    };
    let windows: Vec<Window> =
        values.words("windows").into_iter().map(window).collect::<Result<_>>()?;
    let clients = values.counts("clients");
    let record_bytes = values.size("record-size");
    let file_bytes = values.size("file-size") / record_bytes.max(1) * record_bytes;
    if file_bytes == 0 || clients.contains(&0) {
        return Err(Error::new(Kind::Usage, "there is nothing to read")
            .advice("more with --file-size or --clients, or less with --record-size"));
    }
    Ok(Box::new(ReadAhead {
        parameters: shared::parameters(OPTIONS, values),
        dir: shared::one_directory(setting)?,
        folder: None,
        ways: clients
            .iter()
            .flat_map(|&it| windows.iter().map(move |window| (it, window.clone())))
            .collect(),
        file_bytes,
        record_bytes: record_bytes as usize,
        by_kernel: values.text("by") == Some("kernel"),
        drops_cache: values.text("cache") == Some("drop"),
        seed: setting.seed,
        areas: Vec::new(),
        knob: None,
    }))
}

struct ReadAhead {
    parameters: Vec<Parameter>,
    dir: PathBuf,
    folder: Option<Folder>,
    /// Clients and window of each variant.
    ways: Vec<(u64, Window)>,
    file_bytes: u64,
    record_bytes: usize,
    by_kernel: bool,
    drops_cache: bool,
    seed: u64,
    /// One for each client.
    areas: Vec<Area>,
    knob: Option<Knob>,
}

/// The kernel's window for one disk or mount. Put back when it is dropped.
struct Knob {
    path: PathBuf,
    found: String,
}

impl Knob {
    /// That of the disk or mount that a directory is on.
    fn of(dir: &Path) -> Result<Knob> {
        let (major, minor) = number_of(dir)
            .ok_or_else(|| Error::new(Kind::Unsupported, "has no device number").at(dir))?;
        let path = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
        let found = fs::read_to_string(&path).map_err(|error| {
            Error::io("cannot be read, so there is no window to set", &path, error)
                .advice("leave out --by kernel")
        })?;
        Ok(Knob { path, found: found.trim().to_owned() })
    }

    fn set(&self, kib: &str) -> Result<()> {
        fs::write(&self.path, kib).map_err(|error| {
            Error::io("cannot be set", &self.path, error)
                .advice("only root may set the kernel's read-ahead: leave out --by kernel")
        })
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        // What could not be set was not changed either.
        let _ = fs::write(&self.path, &self.found);
    }
}

impl ReadAhead {
    fn job(&self, window: Option<u64>) -> Job {
        let pattern = Pattern {
            order: Order::Sequential,
            direction: Direction::Read,
            block_bytes: self.record_bytes,
        };
        let own = window.filter(|_| !self.by_kernel).unwrap_or(0);
        Job {
            requests: Some(self.file_bytes / self.record_bytes as u64),
            syncing: Syncing::NEVER,
            seed: self.seed,
            ahead: own.div_ceil(self.record_bytes as u64),
            ..Job::new(pattern)
        }
    }
}

impl Plan for ReadAhead {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |(clients, window): &(u64, Window)| {
            let window = &window.word;
            let group =
                if *clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
            VariantSpec {
                name: format!("{window}, {group}"),
                about: format!("{group}, window: {window}"),
                group,
                parameters: vec![
                    Parameter::new("window", window),
                    Parameter::new("clients", clients),
                ],
                metric: Metric::throughput(),
                place: PlaceNo::FIRST,
            }
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.dir.clone()]
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn intents(&self) -> Vec<String> {
        let clients = self.ways.iter().map(|(clients, _)| *clients).max().unwrap_or(0);
        let mut intents = vec![shared::intent(&self.dir, CASE.name, clients * self.file_bytes)];
        if self.by_kernel {
            intents.push(
                "set read_ahead_kb of the disk or mount, and put it back at the end".to_owned(),
            );
        }
        intents
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        let clients = self.ways.iter().map(|(clients, _)| *clients).max().unwrap_or(0);
        vec![(self.dir.clone(), clients * self.file_bytes)]
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        let clients = self.ways.iter().map(|(clients, _)| *clients).max().unwrap_or(0);
        let folder =
            self.folder.insert(Folder::make(&self.dir, CASE.name, clients * self.file_bytes)?);
        if self.by_kernel {
            self.knob = Some(Knob::of(&self.dir)?);
        }
        for path in folder.files("client", clients) {
            let (paths, policy) = ([path], Policy::Buffered);
            self.areas.push(Area::make(&paths, self.file_bytes, Content::Noise, policy, live)?);
        }
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        let window = self.ways[variant.0].1.bytes;
        if let Some(knob) = &self.knob {
            let kib = window.map_or(knob.found.clone(), |it| (it >> 10).to_string());
            knob.set(&kib)?;
        }
        let is_left_to_kernel = window.is_none() || self.by_kernel;
        for target in self.areas.iter().flat_map(Area::targets) {
            target.read_ahead(is_left_to_kernel);
        }
        match self.drops_cache {
            true => self.areas.iter().try_for_each(Area::drop_cache),
            false => Ok(()),
        }
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let (clients, window) = &self.ways[variant.0];
        let job = self.job(window.bytes);
        let done = io::run_each(&job, &self.areas[..*clients as usize], live)?;
        Ok(shared::outcome(&done, &job, Policy::Buffered, false))
    }

    fn check(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        Ok(())
    }

    fn clean(&mut self) -> Result<()> {
        self.areas.clear();
        self.knob = None;
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let note = "All clients together.";
    vec![grid::grid(
        results,
        "MB/s by window and clients",
        note,
        ["window", "clients"],
        grid::value,
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    const SMALL: [(&str, &str); 4] = [
        ("record-size", "64K"),
        ("file-size", "1M"),
        ("windows", "kernel,0,64K,1M"),
        ("clients", "1,2"),
    ];

    #[test]
    fn each_client_reads_its_own_file_once_with_every_window() {
        let dir = tempfile::tempdir().unwrap();
        let results = measured(&CASE, dir.path(), &SMALL);
        assert_eq!(results.variants.len(), 8);
        for variant in &results.variants {
            let clients: u64 = grid::parameter(variant, "clients").parse().unwrap();
            assert_eq!(variant.runs[0].measured.read_bytes, clients << 20, "{}", variant.name);
        }
        let table = tables(&results)[0].to_json();
        assert_eq!(table["columns"], serde_json::json!(["window", "clients 1", "clients 2"]));
        assert_eq!(table["rows"].as_array().unwrap().len(), 4);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_knob_is_put_back_whatever_was_set() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("read_ahead_kb");
        fs::write(&path, "128\n").unwrap();
        let knob = Knob { path: path.clone(), found: "128".to_owned() };
        knob.set("4096").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "4096");
        drop(knob);
        assert_eq!(fs::read_to_string(&path).unwrap(), "128");
    }

    #[test]
    fn windows_that_are_none_and_nobody_who_reads_are_refused() {
        let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
        for bad in [("windows", "kernel,wide"), ("clients", "0"), ("file-size", "1K")] {
            let values = Values::read(OPTIONS, &[bad]).unwrap();
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{bad:?}");
        }
    }
}
