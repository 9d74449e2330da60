//! Reads every 17th record and advises the kernel of the next ones, because the kernel's own
//! read-ahead does not recognize this pattern.

mod options;
mod published;

use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;
use pinstripe_io::device::{Access, FileDevice, Policy};
use pinstripe_io::fault;

use self::options::OPTIONS;
use self::published::tables;
use super::device;
use super::pool::CephPool;
use super::shared::{self, Folder};
use super::stored::{ReadThrough, read_through};
use super::{Again, Case, Setting, Values, stored};
use crate::io::{
    self, Area, Content, Direction, Job, Order, Pattern, StoredFiles, Syncing, Target,
};
use crate::result::{Metric, Parameter};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};

/// The case.
pub static CASE: Case = Case {
    name: "stride",
    about: "Read every 17th record, and advise the kernel to read 0 to 128 of the next records \
            ahead",
    help: "\
A client reads every 17th record of a file, in 17 passes, until each record was read once. The read-ahead of \
the kernel does not recognize reads of every 17th record. With k records ahead, the client advises the \
kernel to read the next k records (POSIX_FADV_WILLNEED), which the kernel does in the background. A hard \
disk, a network or a group of disks then gets k concurrent requests instead of one request at a time.

With --delay, each read of the file takes longer, as on a network; pinstripe itself then reads ahead, and \
keeps k + 1 records in flight. With --engine ceph:POOL, pinstripe reads objects of a Ceph cluster through \
librados, and also keeps k + 1 records in flight; each object is one record long. With --clients, several \
clients run concurrently, each with its own file; on Ceph, each client also has its own connection.

With --through overlay, the kernel gets no advice. The read-ahead of 'pinstripe overlay' runs in the process \
of the case, without a mount, and detects the stride; it reads at most 64 records ahead, with memory for 80 \
records. With --through store, the file is read from a backup that the case makes in the same directory; the \
backup is read in the same way as by 'pinstripe mount', with memory for 80 records. The table compares the \
results with results that were published in 2013 for a cluster of 24 servers.",
    examples: "\
  pinstripe lab run stride --dir /mnt/ceph
  pinstripe lab run stride --ahead 0,8,32 --record-size 1M --total-size 4G
  pinstripe lab run stride --delay 20ms --total-size 512M --through none,overlay,store
  pinstripe lab run stride --engine ceph:data --total-size 4G --through advice,overlay --clients 1,2,4",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

/// Memory for records of a backup, in records: as much as an overlay has for its blocks.
const MEMORY_RECORDS: u64 = 80;

/// What knows the next records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StrideSource {
    /// The program advises this number of records ahead.
    Advised(u64),
    /// The read-ahead of overlays.
    Overlay,
    /// The read-ahead of pinstripe's mounts, on a backup of the same files.
    Store,
}

impl StrideSource {
    fn word(self) -> String {
        match self {
            StrideSource::Advised(ahead) => ahead.to_string(),
            StrideSource::Overlay => "overlay".to_owned(),
            StrideSource::Store => "store".to_owned(),
        }
    }
}

/// The requested sources, each once.
fn ways(values: &Values) -> Vec<StrideSource> {
    let mut ways = Vec::new();
    for word in values.words("through") {
        match word {
            "none" => ways.push(StrideSource::Advised(0)),
            "overlay" => ways.push(StrideSource::Overlay),
            "store" => ways.push(StrideSource::Store),
            _ => ways.extend(values.counts("ahead").into_iter().map(StrideSource::Advised)),
        }
    }
    let mut once = Vec::new();
    ways.into_iter().for_each(|way| {
        if !once.contains(&way) {
            once.push(way)
        }
    });
    once
}

/// The pool of `--engine`, if it names one.
fn pool(setting: &Setting, values: &Values) -> Result<Option<CephPool>> {
    let pool = CephPool::from_values(values)?;
    if pool.is_some() && (setting.device.is_some() || values.text("delay").is_some()) {
        return Err(Error::new(Kind::Usage, "--device and --delay cannot be used with a pool")
            .advice("leave out --device and --delay, or --engine"));
    }
    Ok(pool)
}

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let place = match &setting.device {
        Some(device) => device.clone(),
        None => shared::one_directory(setting)?,
    };
    let record_bytes = values.size("record-size");
    let bytes = values.size("total-size") / record_bytes.max(1) * record_bytes;
    if bytes == 0 {
        return Err(Error::new(Kind::Usage, "the file is smaller than one record")
            .advice("increase --total-size, or reduce --record-size"));
    }
    let delay = match values.text("delay") {
        Some(delay) => Some(format!("op=read,delay={delay}").parse()?),
        None => None,
    };
    let (ways, ceph) = (ways(values), pool(setting, values)?);
    let clients = values.counts("clients");
    if clients.contains(&0) || clients.iter().any(|it| *it > 1) && setting.device.is_some() {
        return Err(Error::new(Kind::Usage, "each client must have its own file")
            .advice("give at least one client, and with --device only one client"));
    }
    if ways.contains(&StrideSource::Store) && (setting.device.is_some() || ceph.is_some()) {
        return Err(Error::new(Kind::Usage, "--through store needs a directory for the backup")
            .advice("leave out --device and --engine, or leave out 'store' in --through"));
    }
    Ok(Box::new(Stride {
        parameters: shared::parameters(OPTIONS, values),
        place,
        is_device: setting.device.is_some(),
        folder: None,
        stride: values.count("stride"),
        record_bytes: record_bytes as usize,
        bytes,
        ways: clients.iter().flat_map(|&it| ways.iter().map(move |way| (it, *way))).collect(),
        ceph,
        delay,
        drops_cache: values.text("cache") == Some("drop"),
        seed: setting.seed,
        areas: Vec::new(),
        stored: None,
        ahead: Vec::new(),
    }))
}

struct Stride {
    parameters: Vec<Parameter>,
    place: PathBuf,
    is_device: bool,
    folder: Option<Folder>,
    stride: u64,
    record_bytes: usize,
    /// The number of bytes that each client reads.
    bytes: u64,
    /// The number of clients of each variant, and the source of knowledge about their next records.
    ways: Vec<(u64, StrideSource)>,
    ceph: Option<CephPool>,
    /// The layer in front of the file that makes its reads slow.
    delay: Option<fault::Plan>,
    drops_cache: bool,
    seed: u64,
    /// The area that each client reads, while it exists.
    areas: Vec<Area>,
    /// A backup of the areas.
    stored: Option<StoredFiles>,
    /// The areas or the backup, read through a new read-ahead that has no history.
    ahead: Vec<Area>,
}

impl Stride {
    fn job(&self, way: StrideSource) -> Job {
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
        match way {
            StrideSource::Overlay | StrideSource::Store => job,
            StrideSource::Advised(ahead) if self.delay.is_none() && self.ceph.is_none() => {
                Job { ahead, ..job }
            }
            // No kernel takes advice there.
            StrideSource::Advised(ahead) => Job { threads: ahead as usize + 1, ..job },
        }
    }

    /// The largest number of clients of a variant.
    fn clients(&self) -> u64 {
        self.ways.iter().map(|(clients, _)| *clients).max().unwrap_or(0)
    }

    fn has_store(&self) -> bool {
        self.ways.iter().any(|(_, way)| *way == StrideSource::Store)
    }

    /// Bytes that the files take.
    fn needed(&self) -> u64 {
        let bytes = self.clients() * self.bytes;
        bytes + if self.has_store() { stored::needed_bytes(bytes) } else { 0 }
    }

    /// The device, or files that are created, one for each client; the device or the files are full
    /// of content.
    fn paths(&mut self, live: &Live) -> Result<Vec<PathBuf>> {
        if self.is_device {
            let full = Some((Content::Noise, live));
            device::area(&self.place, &[0], self.bytes, Policy::Buffered, full)?;
            return Ok(vec![self.place.clone()]);
        }
        let (needed, clients) = (self.needed(), self.clients());
        let folder = self.folder.insert(Folder::make(&self.place, CASE.name, needed)?);
        let paths = folder.files("records", clients);
        Area::make(&paths, self.bytes, Content::Noise, Policy::Buffered, live)?;
        Ok(paths)
    }

    /// What each client reads.
    fn targets(&mut self, live: &Live) -> Result<Vec<Target>> {
        if let Some(ceph) = &self.ceph {
            let objects = ceph.fill(self.clients(), self.record_bytes, self.bytes, live)?;
            return Ok(objects.into_iter().map(Target::new).collect());
        }
        let delay = self.delay.clone();
        let target = |path: &PathBuf| {
            let Some(delay) = &delay else {
                return Target::open(path, Access::Read, Policy::Buffered);
            };
            let file = FileDevice::open(path, Access::Read, Policy::Direct)?;
            Ok(Target::new(Arc::new(fault::FaultyDevice::new(file, delay.clone()))))
        };
        self.paths(live)?.iter().map(target).collect()
    }

    /// Returns the areas of this number of clients, read through a new read-ahead without history;
    /// empty if the areas are read directly.
    fn ahead(&self, clients: usize, way: StrideSource) -> Result<Vec<Area>> {
        let through = match (way, &self.stored) {
            (StrideSource::Overlay, _) => ReadThrough::Overlay,
            (StrideSource::Store, Some(stored)) => ReadThrough::Store(stored),
            _ => return Ok(Vec::new()),
        };
        read_through(through, &self.areas[..clients], (self.record_bytes, self.bytes))
    }
}

impl Plan for Stride {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let is_one = self.ways.iter().all(|(clients, _)| *clients == 1);
        let spec = |(clients, way): &(u64, StrideSource)| {
            let (name, about) = match way {
                StrideSource::Advised(ahead) => {
                    (format!("{ahead} ahead"), format!("{ahead} advised ahead"))
                }
                StrideSource::Overlay => {
                    ("overlay".to_owned(), "detected by the read-ahead of the overlay".to_owned())
                }
                StrideSource::Store => (
                    "store".to_owned(),
                    "detected by the read-ahead of a mounted backup".to_owned(),
                ),
            };
            let group = match clients {
                1 => "1 client".to_owned(),
                many => format!("{many} clients"),
            };
            VariantSpec {
                name: if is_one { name } else { format!("{name}, {group}") },
                about: format!("{group}, every {}th record, {about}", self.stride),
                group,
                parameters: vec![
                    Parameter::new("ahead", way.word()),
                    Parameter::new("clients", clients),
                ],
                metric: Metric::throughput(),
                place: PlaceNo::FIRST,
            }
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        if self.ceph.is_some() { Vec::new() } else { vec![self.place.clone()] }
    }

    fn notes(&self) -> Vec<String> {
        let delay = self.parameters.iter().find(|it| it.name == "delay" && it.value != "none");
        let note = |it: &Parameter| {
            format!("each read is delayed: it takes {} longer than the disk needs", it.value)
        };
        delay.map(note).into_iter().collect()
    }

    fn intents(&self) -> Vec<String> {
        if let Some(ceph) = &self.ceph {
            return vec![ceph.intent(self.clients(), self.record_bytes, self.bytes)];
        }
        match self.is_device {
            true => vec![format!(
                "overwrite the first {} of {}",
                format_size(self.bytes),
                self.place.display()
            )],
            false => vec![shared::intent(&self.place, CASE.name, self.needed())],
        }
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        let needed = (self.place.clone(), self.needed());
        if self.is_device || self.ceph.is_some() { Vec::new() } else { vec![needed] }
    }

    fn may_begin(&self) -> Result<()> {
        if self.is_device { device::refuse_short(&self.place, self.bytes) } else { Ok(()) }
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        let targets = self.targets(live)?;
        if let (true, Some(folder)) = (self.has_store(), &self.folder) {
            let place = |target: &Target| target.device().place().to_path_buf();
            let paths: Vec<_> = targets.iter().map(place).collect();
            let memory = self.clients() * MEMORY_RECORDS * self.record_bytes as u64;
            let delay = self.delay.clone().unwrap_or_default();
            self.stored = Some(stored::back_up(folder, &paths, memory, &delay, live)?);
        }
        let area = |target| Area::new(vec![target], self.bytes);
        self.areas = targets.into_iter().map(area).collect();
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        // The last one's threads end before the next one is measured.
        self.ahead.clear();
        let (clients, way) = self.ways[variant.0];
        self.ahead = self.ahead(clients as usize, way)?;
        if !self.drops_cache {
            return Ok(());
        }
        self.stored.as_ref().map_or(Ok(()), StoredFiles::drop_cache)?;
        self.areas.iter().try_for_each(Area::drop_cache)
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let (clients, way) = self.ways[variant.0];
        let job = self.job(way);
        let areas = match &*self.ahead {
            [] => &self.areas[..clients as usize],
            ahead => ahead,
        };
        let done = io::run_each(&job, areas, live)?;
        Ok(shared::outcome(&done, &job, Policy::Buffered, false))
    }

    fn clean(&mut self) -> Result<()> {
        // The last that holds objects of a pool removes them.
        (self.ahead, self.areas, self.stored) = (Vec::new(), Vec::new(), None);
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::pool::testing::RealPool;
    use crate::cases::tests::{assert_each_client_read, measured};
    use crate::table::Table;

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
    fn an_overlay_reads_each_record_once_too_and_published_figures_stand_beside() {
        for more in [&[][..], &[("delay", "100us")]] {
            let dir = tempfile::tempdir().unwrap();
            let through = [("through", "none,advice,overlay,store")];
            let given = [&SMALL[..], more, &through].concat();
            let results = measured(&CASE, dir.path(), &given);
            let names: Vec<&str> = results.variants.iter().map(|it| &*it.name).collect();
            assert_eq!(names, ["0 ahead", "3 ahead", "128 ahead", "overlay", "store"]);
            for variant in &results.variants[3..] {
                assert_eq!(variant.runs[0].measured.read_bytes, 4 << 20, "{}", variant.name);
            }
            let shown = tables(&results)[0].shown();
            assert_eq!(shown[3][3..], ["950.0", "22.2"]);
            assert_eq!(shown[4][0], "overlay");
            assert_eq!(shown[4][3..], ["-", "-"]);
            assert_eq!(shown[5][0], "store");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn clients_read_a_file_each_and_have_a_table_by_their_number() {
        let dir = tempfile::tempdir().unwrap();
        let more = [("clients", "1,2"), ("through", "advice,overlay,store")];
        let results =
            measured(&CASE, dir.path(), &[&SMALL[..2], &[("ahead", "0,3")], &more].concat());
        assert_eq!(results.variants[7].name, "store, 2 clients");
        assert_each_client_read(&results, 4 << 20);
        let shown: Vec<_> = tables(&results).iter().map(Table::shown).collect();
        assert_eq!((shown.len(), shown[0].len(), shown[1].len()), (2, 5, 5));
        assert_eq!(shown[0][1][3..], ["42.8", "1.0"]);
        assert_eq!(shown[1][1][3..], ["-", "-"], "published of one client");
        let setting = Setting { device: Some("/dev/none".into()), ..Setting::default() };
        for (setting, clients) in [(&setting, "2"), (&Setting::default(), "0")] {
            let values = Values::read(OPTIONS, &[("clients", clients)]).unwrap();
            let dirs = vec![dir.path().to_owned()];
            let refused = plan(&Setting { dirs, ..setting.clone() }, &values).err().unwrap();
            assert_eq!(refused.kind(), Kind::Usage, "{clients}");
        }
    }

    #[test]
    #[ignore = "with --all: it needs a Ceph"]
    fn a_pool_of_a_real_cluster_is_read_like_a_file_and_left_empty() {
        let test = "a_pool_of_a_real_cluster_is_read_like_a_file_and_left_empty";
        let Some(pool) = RealPool::parse(test, "lab") else { return };
        let (dir, more) = (tempfile::tempdir().unwrap(), [("clients", "1,2")]);
        let through = [("through", "advice,overlay")];
        let given = [&SMALL[..], &pool.given(), &through, &more].concat();
        let results = measured(&CASE, dir.path(), &given);
        assert_each_client_read(&results, 4 << 20);
        pool.assert_empty();
    }

    #[test]
    fn engines_that_are_none_and_clusters_that_are_not_there_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let setting = Setting { dirs: vec![dir.path().to_owned()], ..Setting::default() };
        for bad in ["tape", "ceph:", "ceph:/x"] {
            let values = Values::read(OPTIONS, &[("engine", bad)]).unwrap();
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{bad}");
        }
        for more in [("delay", "1ms"), ("through", "overlay,store")] {
            let values = Values::read(OPTIONS, &[("engine", "ceph:data"), more]).unwrap();
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{more:?}");
        }
        let missing = dir.path().join("ceph.conf");
        let given = [("engine", "ceph:data"), ("ceph-conf", missing.to_str().unwrap())];
        let values = Values::read(OPTIONS, &given).unwrap();
        let mut planned = plan(&setting, &values).unwrap();
        assert!(planned.intents()[0].contains("256 objects"), "{:?}", planned.intents());
        let refused = planned.prepare(&Live::new(Arc::default())).unwrap_err();
        assert!(matches!(refused.kind(), Kind::NotFound | Kind::Unsupported), "{refused}");
        planned.clean().unwrap();
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
