//! Reading every 17th record while the next ones are advised ahead: what the kernel's own
//! read-ahead does not see.

mod options;

use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;
use pinstripe_io::device::{Access, FileDevice, Policy, SharedDevice};
use pinstripe_io::fault;

use self::options::OPTIONS;
use super::shared::{self, Folder};
use super::{Again, Case, Setting, Values, grid, stored};
use crate::io::{
    self, AheadDevice, Area, CephDevice, Content, Direction, Job, Order, Pattern, StoredFiles,
    Syncing, Target,
};
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
itself: it has k + 1 records on their way at a time. So it does with --engine ceph:POOL, which reads \
objects of a Ceph cluster (of the length of a record each) through librados.

--through overlay adds a reader who tells nothing: the read-ahead of 'pinstripe overlay' finds the \
stride, in this process and without a mount, at most 64 records ahead in memory for 80. --through store \
reads the file from a backup instead, which is made for it in the same directory: as 'pinstripe mount' \
reads, by records of packs, within as much memory. The table has the figures that were published in 2013 \
for a cluster of 24 servers beside these.",
    examples: "\
  pinstripe lab run stride --dir /mnt/ceph
  pinstripe lab run stride --ahead 0,8,32 --record-size 1M --total-size 4G
  pinstripe lab run stride --delay 20ms --total-size 512M --through none,overlay,store
  pinstripe lab run stride --engine ceph:data --total-size 4G --through advice,overlay",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

/// Memory for records of a backup: as much as an overlay has for blocks.
const MEMORY_RECORDS: u64 = 80;

/// The configuration and name that clients of Ceph use unless told otherwise.
const CEPH_CONF: &str = "/etc/ceph/ceph.conf";
const CEPH_USER: &str = "client.admin";

/// MB/s by records advised, of 24 servers with a disk each, records of 4 MiB, stride 17 ("Read ahead
/// affect Ceph read performance much", ceph-devel, July 2013).
const PUBLISHED: [(&str, f64); 6] =
    [("0", 42.8), ("1", 100.7), ("4", 217.0), ("16", 498.0), ("64", 854.0), ("128", 950.0)];

/// What knows of the next records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The program, of so many.
    Advised(u64),
    /// The read-ahead of overlays.
    Overlay,
    /// The same of mounts, on a backup.
    Store,
}

impl Way {
    fn word(self) -> String {
        match self {
            Way::Advised(ahead) => ahead.to_string(),
            Way::Overlay => "overlay".to_owned(),
            Way::Store => "store".to_owned(),
        }
    }
}

/// The ways that were asked for, each once.
fn ways(values: &Values) -> Vec<Way> {
    let mut ways = Vec::new();
    for word in values.words("through") {
        match word {
            "none" => ways.push(Way::Advised(0)),
            "overlay" => ways.push(Way::Overlay),
            "store" => ways.push(Way::Store),
            _ => ways.extend(values.counts("ahead").into_iter().map(Way::Advised)),
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

/// A pool, and how its cluster is reached.
struct CephPool {
    pool: String,
    conf: PathBuf,
    user: String,
}

/// The pool of `--engine`, if it names one.
fn ceph(setting: &Setting, values: &Values) -> Result<Option<CephPool>> {
    let engine = values.text("engine").unwrap_or("file");
    let pool = match engine.strip_prefix("ceph:") {
        Some(pool) if !pool.is_empty() && !pool.starts_with('/') => pool.to_owned(),
        None if engine == "file" => return Ok(None),
        _ => {
            return Err(Error::new(Kind::Usage, format!("there is no engine '{engine}'"))
                .advice("file, ceph:POOL or ceph:POOL/NAMESPACE"));
        }
    };
    if setting.device.is_some() || values.text("delay").is_some() {
        return Err(Error::new(Kind::Usage, "a pool has neither a device nor a delay of ours")
            .advice("leave out --device and --delay, or --engine"));
    }
    let conf = values.text("ceph-conf").unwrap_or(CEPH_CONF).into();
    let user = values.text("ceph-user").unwrap_or(CEPH_USER).to_owned();
    Ok(Some(CephPool { pool, conf, user }))
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
            .advice("more with --total-size, or less with --record-size"));
    }
    let delay = match values.text("delay") {
        Some(delay) => Some(format!("op=read,delay={delay}").parse()?),
        None => None,
    };
    let (ways, ceph) = (ways(values), ceph(setting, values)?);
    if ways.contains(&Way::Store) && (setting.device.is_some() || ceph.is_some()) {
        return Err(Error::new(Kind::Usage, "a backup is made in a directory")
            .advice("leave out --device and --engine, or 'store' of --through"));
    }
    Ok(Box::new(Stride {
        parameters: shared::parameters(OPTIONS, values),
        place,
        is_device: setting.device.is_some(),
        folder: None,
        stride: values.count("stride"),
        record_bytes: record_bytes as usize,
        bytes,
        ways,
        ceph,
        delay,
        drops_cache: values.text("cache") == Some("drop"),
        seed: setting.seed,
        device: None,
        area: None,
        stored: None,
        ahead: None,
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
    ways: Vec<Way>,
    ceph: Option<CephPool>,
    /// The layer in front of the file that makes its reads slow.
    delay: Option<fault::Plan>,
    drops_cache: bool,
    seed: u64,
    /// What is read, while it is there.
    device: Option<SharedDevice>,
    area: Option<Area>,
    /// A backup of it.
    stored: Option<StoredFiles>,
    /// Either through read-ahead that has seen nothing yet.
    ahead: Option<Area>,
}

impl Stride {
    fn job(&self, way: Way) -> Job {
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
            Way::Overlay | Way::Store => job,
            Way::Advised(ahead) if self.delay.is_none() && self.ceph.is_none() => {
                Job { ahead, ..job }
            }
            // No kernel takes advice there.
            Way::Advised(ahead) => Job { threads: ahead as usize + 1, ..job },
        }
    }

    /// Bytes that files take.
    fn needed(&self) -> u64 {
        let is_stored = self.ways.contains(&Way::Store);
        self.bytes + if is_stored { stored::needed_bytes(self.bytes) } else { 0 }
    }

    /// Objects of a pool, full.
    fn objects(&self, ceph: &CephPool, live: &Live) -> Result<SharedDevice> {
        let bytes = self.record_bytes as u64;
        let objects = Arc::new(CephDevice::new(&ceph.pool, &ceph.conf, &ceph.user, bytes)?);
        let target = Target::of(Arc::clone(&objects) as SharedDevice);
        Area::new(vec![target], self.bytes).fill(Content::Noise, live)?;
        Ok(objects)
    }

    /// The device, or a file that is made; either is full.
    fn path(&mut self, live: &Live) -> Result<PathBuf> {
        if self.is_device {
            let full = Some((Content::Noise, live));
            shared::device(&self.place, &[0], self.bytes, Policy::Buffered, full)?;
            return Ok(self.place.clone());
        }
        let needed = self.needed();
        let folder = self.folder.insert(Folder::make(&self.place, CASE.name, needed)?);
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
        let spec = |way: &Way| {
            let (name, about) = match way {
                Way::Advised(ahead) => (format!("{ahead} ahead"), format!("{ahead} advised ahead")),
                Way::Overlay => {
                    ("overlay".to_owned(), "found by the overlay's read-ahead".to_owned())
                }
                Way::Store => ("store".to_owned(), "found by the mount's, of a backup".to_owned()),
            };
            VariantSpec {
                name,
                group: "stride".to_owned(),
                about: format!("every {}th record, {about}", self.stride),
                parameters: vec![Parameter::new("ahead", way.word())],
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
        let note =
            |it: &Parameter| format!("each read takes {} longer than the disk does", it.value);
        delay.map(note).into_iter().collect()
    }

    fn intents(&self) -> Vec<String> {
        if let Some(ceph) = &self.ceph {
            let (count, bytes) = (self.bytes / self.record_bytes as u64, self.bytes);
            let bytes = format_size(bytes);
            return vec![format!("make {count} objects, {bytes}, in the pool {}", ceph.pool)];
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

    fn prepare(&mut self, live: &Live) -> Result<()> {
        let target = match (&self.ceph, &self.delay) {
            (Some(ceph), _) => Target::of(self.objects(ceph, live)?),
            (None, None) => Target::open(&self.path(live)?, Access::Read, Policy::Buffered)?,
            (None, Some(delay)) => {
                let delay = delay.clone();
                let file = FileDevice::open(&self.path(live)?, Access::Read, Policy::Direct)?;
                Target::of(Arc::new(fault::FaultyDevice::new(file, delay)))
            }
        };
        self.device = Some(target.shared());
        if let (true, Some(folder)) = (self.ways.contains(&Way::Store), &self.folder) {
            let paths = [target.device().place().to_path_buf()];
            let memory = MEMORY_RECORDS * self.record_bytes as u64;
            let delay = self.delay.clone().unwrap_or_default();
            self.stored = Some(stored::back_up(folder, &paths, memory, &delay, live)?);
        }
        self.area = Some(Area::new(vec![target], self.bytes));
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        // The last one's threads end before the next one is measured.
        self.ahead = None;
        let device = match (self.ways[variant.0], &self.device, &self.stored) {
            (Way::Overlay, Some(device), _) => {
                let ahead = AheadDevice::new(Arc::clone(device), self.record_bytes as u64)?;
                Some(Arc::new(ahead) as SharedDevice)
            }
            (Way::Store, Some(device), Some(stored)) => {
                stored.open(&[device.place().to_path_buf()])?.pop()
            }
            _ => None,
        };
        self.ahead = device.map(|device| Area::new(vec![Target::of(device)], self.bytes));
        if !self.drops_cache {
            return Ok(());
        }
        self.stored.as_ref().map_or(Ok(()), StoredFiles::drop_cache)?;
        self.area.as_ref().map_or(Ok(()), Area::drop_cache)
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let job = self.job(self.ways[variant.0]);
        let area = self.ahead.as_ref().or(self.area.as_ref());
        let done = io::run(&job, area.expect("it was opened before the first run"), live)?;
        Ok(shared::outcome(&done, &job, Policy::Buffered, false))
    }

    fn clean(&mut self) -> Result<()> {
        // The last that holds objects of a pool removes them.
        (self.area, self.ahead, self.device, self.stored) = (None, None, None, None);
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

/// Records ahead, MB/s, and how many times that is of the first, beside what was published.
fn tables(results: &Results) -> Vec<Table> {
    let head = ["records ahead", "MB/s", "times", "24 servers, 2013", "times"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let figures = results.variants.iter().map(|it| (it, grid::figure(it, grid::value)));
    let figures: Vec<_> = figures.collect();
    let first = figures.first().and_then(|(_, figure)| *figure);
    for (variant, figure) in figures {
        let times = figure.zip(first).map(|(it, first)| it.over(first));
        let times = times.map_or("-".to_owned(), |it| it.derive(|it| format!("{it:.1}")));
        let ahead = grid::parameter(variant, "ahead");
        let published = PUBLISHED.iter().find(|(known, _)| *known == ahead);
        let [rate, gain] = published.map_or(["-".to_owned(), "-".to_owned()], |(_, rate)| {
            [format!("{rate:.1}"), format!("{:.1}", rate / PUBLISHED[0].1)]
        });
        rows.push(vec![ahead.to_owned(), grid::cell(figure), times, rate, gain]);
    }
    let note =
        "2013: stride 17 of 4 MiB records on a Ceph cluster (ceph-devel), as published there.";
    vec![Table::from_rows("Stride reads by records advised ahead", note, rows)]
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
    fn a_pool_of_a_real_cluster_is_read_like_a_file_and_left_empty() {
        let test = "a_pool_of_a_real_cluster_is_read_like_a_file_and_left_empty";
        let Some(conf) = std::env::var_os("PINSTRIPE_CEPH_CONF") else {
            let reason = "PINSTRIPE_CEPH_CONF names no cluster (its ceph.conf)";
            return pinstripe_testing::skipped(test, reason);
        };
        let (dir, conf) = (tempfile::tempdir().unwrap(), conf.into_string().unwrap());
        let namespace = format!("data/lab.{}", std::process::id());
        let engine = format!("ceph:{namespace}");
        let ceph = [("engine", &*engine), ("ceph-conf", &*conf), ("through", "advice,overlay")];
        let results = measured(&CASE, dir.path(), &[&SMALL[..], &ceph].concat());
        for variant in &results.variants {
            assert_eq!(variant.runs[0].measured.read_bytes, 4 << 20, "{}", variant.name);
        }
        let listed = std::process::Command::new("rados")
            .args(["-c", &conf, "-p", "data", "-N", namespace.trim_start_matches("data/"), "ls"])
            .output();
        let listed = listed.unwrap();
        assert!(listed.status.success());
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "");
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
