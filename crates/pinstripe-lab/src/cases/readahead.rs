//! Measures sequential reads with read-ahead windows of several sizes, by several clients.

mod knob;
mod options;
mod published;

use std::path::PathBuf;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::parse_size;
use pinstripe_io::device::Policy;
use pinstripe_io::fault;

use self::knob::Knob;
use self::options::OPTIONS;
use self::published::beside_published;
use super::pool::CephPool;
use super::shared::{self, Folder};
use super::stored::{ReadThrough, read_through};
use super::{Again, Case, Setting, Values, grid, stored};
use crate::io::{
    self, Area, Content, Direction, Job, Order, Pattern, StoredFiles, Syncing, Target,
};
use crate::result::{Metric, Parameter, Results};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "readahead",
    about: "Read files sequentially with several read-ahead windows, with 1, 2 and 4 clients",
    help: "\
Each client is a thread that reads its own file from the first byte to the last. With the window 'kernel', \
the kernel reads ahead with its current setting. With any other window, pinstripe disables the read-ahead of \
the kernel (POSIX_FADV_RANDOM) and requests the bytes within the window ahead of the reads \
(POSIX_FADV_WILLNEED), so that any window can be tried without root.

With --through overlay, the case uses the read-ahead of 'pinstripe overlay' in its own process, without a \
mount; at most 64 records are read ahead for each client, with memory for 80 records. With --through store, \
the files are read from a backup that the case makes in the same directory, as 'pinstripe mount' reads them. \
With --through none, nothing is read ahead. The second table compares the results with results that were \
published in 2013 for a cluster of 24 servers.

With --engine ceph:POOL, each client reads objects of a Ceph cluster through librados, with its own \
connection; each object is one record long. The kernel does not read ahead on Ceph objects, so the window \
'kernel' has no effect on them. With any other window, pinstripe keeps requests for the window and for one \
more record in flight.

With --through kernel, each window is set in the kernel as read_ahead_kb of the disk or mount, which \
requires root. The old value of read_ahead_kb is restored at the end, also after an interrupt.",
    examples: "\
  pinstripe lab run readahead --dir /mnt/ceph
  pinstripe lab run readahead --windows kernel,1M,64M --clients 1,8 --record-size 1M
  pinstripe lab run readahead --through none,advice,overlay,store --windows kernel,256M
  pinstripe lab run readahead --engine ceph:data --through none,advice,overlay --windows 64M,256M
  pinstripe lab run readahead --through advice,kernel --windows kernel,128K,4M",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

/// Memory for the records of each client, in records: as much as an overlay has for its blocks.
const MEMORY_RECORDS: u64 = 80;

/// What reads ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReadAheadSource {
    /// The kernel, with its current setting.
    Kernel,
    /// The kernel, set to this window.
    SetKernel(ReadAheadWindow),
    /// This program, by posix_fadvise(2).
    Advice(ReadAheadWindow),
    /// The read-ahead of pinstripe's overlays.
    Overlay,
    /// The read-ahead of pinstripe's mounts, on a backup of the same files.
    Store,
}

impl ReadAheadSource {
    fn word(&self) -> String {
        match self {
            ReadAheadSource::Kernel => "kernel".to_owned(),
            ReadAheadSource::SetKernel(window) => format!("kernel {}", window.word),
            ReadAheadSource::Advice(window) => window.word.clone(),
            ReadAheadSource::Overlay => "overlay".to_owned(),
            ReadAheadSource::Store => "store".to_owned(),
        }
    }

    /// The advised window; `None` leaves read-ahead to the kernel, as an overlay does for the file
    /// below it.
    fn advised(&self) -> Option<u64> {
        match self {
            ReadAheadSource::Advice(window) => Some(window.bytes),
            ReadAheadSource::Kernel
            | ReadAheadSource::SetKernel(_)
            | ReadAheadSource::Overlay
            | ReadAheadSource::Store => None,
        }
    }
}

/// A window.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReadAheadWindow {
    /// The window as it was typed.
    word: String,
    bytes: u64,
}

impl ReadAheadWindow {
    /// Returns `None` for `kernel`, which leaves the kernel's setting unchanged.
    fn parse(word: &str) -> Result<Option<ReadAheadWindow>> {
        if word == "kernel" {
            return Ok(None);
        }
        Ok(Some(ReadAheadWindow { word: word.to_owned(), bytes: parse_size(word)? }))
    }
}

/// The requested sources of read-ahead, each once.
fn ways(values: &Values) -> Result<Vec<ReadAheadSource>> {
    let windows: Vec<Option<ReadAheadWindow>> =
        values.words("windows").into_iter().map(ReadAheadWindow::parse).collect::<Result<_>>()?;
    let each = |way: fn(ReadAheadWindow) -> ReadAheadSource| -> Vec<ReadAheadSource> {
        windows.iter().cloned().map(|it| it.map_or(ReadAheadSource::Kernel, way)).collect()
    };
    let mut ways: Vec<ReadAheadSource> = Vec::new();
    for word in values.words("through") {
        let of_word = match word {
            "none" => {
                vec![ReadAheadSource::Advice(ReadAheadWindow { word: "0".to_owned(), bytes: 0 })]
            }
            "overlay" => vec![ReadAheadSource::Overlay],
            "store" => vec![ReadAheadSource::Store],
            "kernel" => each(ReadAheadSource::SetKernel),
            _ => each(ReadAheadSource::Advice),
        };
        for way in of_word {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
    }
    Ok(ways)
}

/// The pool of `--engine`, if it names one.
fn pool(values: &Values) -> Result<Option<CephPool>> {
    let pool = CephPool::from_values(values)?;
    let of_directories = |word: &&str| ["store", "kernel"].contains(word);
    if pool.is_some() && values.words("through").iter().any(of_directories) {
        let what = "--through kernel and --through store cannot be used with a pool";
        return Err(Error::new(Kind::Usage, what)
            .advice("leave out 'kernel' and 'store' in --through, or leave out --engine"));
    }
    Ok(pool)
}

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let ceph = pool(values)?;
    let mut ways = ways(values)?;
    if ceph.is_some() {
        ways.retain(|way| *way == ReadAheadSource::Overlay || way.advised().is_some());
    }
    let clients = values.counts("clients");
    let record_bytes = values.size("record-size");
    let file_bytes = values.size("file-size") / record_bytes.max(1) * record_bytes;
    if file_bytes == 0 || clients.contains(&0) || ways.is_empty() {
        return Err(Error::new(Kind::Usage, "with these options, nothing would be read")
            .advice("increase --file-size, --windows or --clients, or reduce --record-size"));
    }
    Ok(Box::new(ReadAheadCase {
        parameters: shared::parameters(OPTIONS, values),
        dir: shared::one_directory(setting)?,
        folder: None,
        ways: clients
            .iter()
            .flat_map(|&it| ways.iter().map(move |way| (it, way.clone())))
            .collect(),
        file_bytes,
        record_bytes: record_bytes as usize,
        drops_cache: values.text("cache") == Some("drop"),
        ceph,
        seed: setting.seed,
        areas: Vec::new(),
        stored: None,
        ahead: Vec::new(),
        knob: None,
    }))
}

struct ReadAheadCase {
    parameters: Vec<Parameter>,
    dir: PathBuf,
    folder: Option<Folder>,
    /// The number of clients of each variant, and what reads ahead.
    ways: Vec<(u64, ReadAheadSource)>,
    file_bytes: u64,
    record_bytes: usize,
    drops_cache: bool,
    ceph: Option<CephPool>,
    seed: u64,
    /// The areas, one for each client.
    areas: Vec<Area>,
    /// A backup of the clients' files.
    stored: Option<StoredFiles>,
    /// The areas or the backup, read through a new read-ahead that has no history.
    ahead: Vec<Area>,
    knob: Option<Knob>,
}

impl ReadAheadCase {
    /// The largest number of clients of a variant.
    fn clients(&self) -> u64 {
        self.ways.iter().map(|(clients, _)| *clients).max().unwrap_or(0)
    }

    /// Bytes that the files take.
    fn needed(&self) -> u64 {
        let bytes = self.clients() * self.file_bytes;
        let is_stored = self.ways.iter().any(|(_, way)| *way == ReadAheadSource::Store);
        bytes + if is_stored { stored::needed_bytes(bytes) } else { 0 }
    }

    /// Returns the files of this number of clients, read through a new read-ahead without history;
    /// empty if the files are read directly.
    fn ahead(&self, clients: usize, way: &ReadAheadSource) -> Result<Vec<Area>> {
        let through = match (way, &self.stored) {
            (ReadAheadSource::Overlay, _) => ReadThrough::Overlay,
            (ReadAheadSource::Store, Some(stored)) => ReadThrough::Store(stored),
            _ => return Ok(Vec::new()),
        };
        read_through(through, &self.areas[..clients], (self.record_bytes, self.file_bytes))
    }

    /// Whether the kernel's window is to be set.
    fn sets_kernel(&self) -> bool {
        self.ways.iter().any(|(_, way)| matches!(way, ReadAheadSource::SetKernel(_)))
    }

    fn job(&self, way: &ReadAheadSource) -> Job {
        let pattern = Pattern {
            order: Order::Sequential,
            direction: Direction::Read,
            block_bytes: self.record_bytes,
        };
        let ahead = way.advised().unwrap_or(0).div_ceil(self.record_bytes as u64);
        let job = Job {
            requests: Some(self.file_bytes / self.record_bytes as u64),
            syncing: Syncing::NEVER,
            seed: self.seed,
            ..Job::new(pattern)
        };
        match self.ceph.is_some() {
            // No kernel takes advice there.
            true => Job { threads: ahead as usize + 1, ..job },
            false => Job { ahead, ..job },
        }
    }
}

impl Plan for ReadAheadCase {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |(clients, way): &(u64, ReadAheadSource)| {
            let window = way.word();
            let group =
                if *clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
            VariantSpec {
                name: format!("{window}, {group}"),
                about: format!("{group}, window: {window}"),
                group,
                parameters: vec![
                    Parameter::new("window", &window),
                    Parameter::new("clients", clients),
                ],
                metric: Metric::throughput(),
                place: PlaceNo::FIRST,
            }
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        if self.ceph.is_some() { Vec::new() } else { vec![self.dir.clone()] }
    }

    fn intents(&self) -> Vec<String> {
        if let Some(ceph) = &self.ceph {
            return vec![ceph.intent(self.clients(), self.record_bytes, self.file_bytes)];
        }
        let mut intents = vec![shared::intent(&self.dir, CASE.name, self.needed())];
        if self.sets_kernel() {
            intents.push(
                "change read_ahead_kb of the disk or mount, and restore its old value at the end"
                    .to_owned(),
            );
        }
        intents
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        let needed = (self.dir.clone(), self.needed());
        if self.ceph.is_some() { Vec::new() } else { vec![needed] }
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        let (clients, needed) = (self.clients(), self.needed());
        let sets_kernel = self.sets_kernel();
        if let Some(ceph) = &self.ceph {
            let objects = ceph.fill(clients, self.record_bytes, self.file_bytes, live)?;
            let area = |objects| Area::new(vec![Target::new(objects)], self.file_bytes);
            self.areas = objects.into_iter().map(area).collect();
            return Ok(());
        }
        let folder = self.folder.insert(Folder::make(&self.dir, CASE.name, needed)?);
        if sets_kernel {
            self.knob = Some(Knob::for_dir(&self.dir)?);
        }
        let files = folder.files("client", clients);
        for path in &files {
            let (paths, policy) = ([path.clone()], Policy::Buffered);
            self.areas.push(Area::make(&paths, self.file_bytes, Content::Noise, policy, live)?);
        }
        if self.ways.iter().any(|(_, way)| *way == ReadAheadSource::Store) {
            let memory = clients * MEMORY_RECORDS * self.record_bytes as u64;
            let made = stored::back_up(folder, &files, memory, &fault::Plan::default(), live)?;
            self.stored = Some(made);
        }
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        // The last one's threads end before the next one is measured.
        self.ahead.clear();
        let (clients, way) = &self.ways[variant.0];
        if let Some(knob) = &self.knob {
            match way {
                ReadAheadSource::SetKernel(window) => {
                    knob.set(&(window.bytes >> 10).to_string())?
                }
                _ => knob.set(&knob.found)?,
            }
        }
        let is_left_to_kernel = way.advised().is_none();
        for target in self.areas.iter().flat_map(Area::targets) {
            target.read_ahead(is_left_to_kernel);
        }
        self.ahead = self.ahead(*clients as usize, way)?;
        if !self.drops_cache {
            return Ok(());
        }
        self.stored.as_ref().map_or(Ok(()), StoredFiles::drop_cache)?;
        self.areas.iter().try_for_each(Area::drop_cache)
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let (clients, way) = &self.ways[variant.0];
        let job = self.job(way);
        let areas = match &*self.ahead {
            [] => &self.areas[..*clients as usize],
            ahead => ahead,
        };
        let done = io::run_each(&job, areas, live)?;
        Ok(shared::outcome(&done, &job, Policy::Buffered, false))
    }

    fn clean(&mut self) -> Result<()> {
        (self.ahead, self.areas, self.stored) = (Vec::new(), Vec::new(), None);
        self.knob = None;
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let note = "Each value is the total rate of all clients.";
    let ways = ["window", "clients"];
    let grid = grid::grid(
        results,
        "MB/s by read-ahead window and number of clients",
        note,
        ways,
        grid::value,
    );
    std::iter::once(grid).chain(beside_published(results)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::pool::testing::RealPool;
    use crate::cases::tests::{assert_each_client_read, measured};

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
        assert_each_client_read(&results, 1 << 20);
        let table = tables(&results)[0].to_json();
        assert_eq!(table["columns"], serde_json::json!(["window", "clients 1", "clients 2"]));
        assert_eq!(table["rows"].as_array().unwrap().len(), 4);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn overlay_and_backup_read_each_file_once_too_and_published_figures_stand_beside() {
        let dir = tempfile::tempdir().unwrap();
        let more = [("through", "none,advice,overlay,store"), ("windows", "kernel,0,256M")];
        let results = measured(&CASE, dir.path(), &[&SMALL[..2], &SMALL[3..], &more].concat());
        let names: Vec<&str> = results.variants.iter().map(|it| &*it.name).collect();
        let of_one =
            ["0", "kernel", "256M", "overlay", "store"].map(|it| format!("{it}, 1 client"));
        assert_eq!(names[..5], of_one);
        assert_each_client_read(&results, 1 << 20);
        let shown = tables(&results)[1].shown();
        assert_eq!(
            shown[0],
            ["window", "1 client", "2 clients", "2013: 1 client", "2013: 2 clients"]
        );
        assert_eq!(
            (&*shown[2][0], &shown[2][3..]),
            ("kernel", &["180", "324"].map(str::to_owned)[..])
        );
        assert_eq!(
            (&*shown[3][0], &shown[3][3..]),
            ("256M", &["645", "1023"].map(str::to_owned)[..])
        );
        assert_eq!((&*shown[5][0], &shown[5][3..]), ("store", &["-", "-"].map(str::to_owned)[..]));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_window_is_advised_or_the_kernel_is_set_to_it() {
        let given = [("through", "advice,kernel"), ("windows", "kernel,0,4M")];
        let ways = ways(&Values::read(OPTIONS, &given).unwrap()).unwrap();
        let told: Vec<_> = ways.iter().map(|it| (it.word(), it.advised())).collect();
        let told: Vec<_> = told.iter().map(|(word, advised)| (&**word, *advised)).collect();
        let advised = [("kernel", None), ("0", Some(0)), ("4M", Some(4 << 20))];
        assert_eq!(told[..3], advised);
        assert_eq!(told[3..], [("kernel 0", None), ("kernel 4M", None)]);
    }

    #[test]
    #[ignore = "with --all: it needs a Ceph"]
    fn a_pool_of_a_real_cluster_is_read_like_files_and_left_empty() {
        let test = "a_pool_of_a_real_cluster_is_read_like_files_and_left_empty";
        let Some(pool) = RealPool::parse(test, "ahead") else { return };
        let (dir, through) = (tempfile::tempdir().unwrap(), [("through", "advice,overlay")]);
        let given = [&SMALL[..], &pool.given(), &through].concat();
        let results = measured(&CASE, dir.path(), &given);
        let names: Vec<&str> = results.variants.iter().map(|it| &*it.name).collect();
        assert_eq!(names[..4], ["0", "64K", "1M", "overlay"].map(|it| format!("{it}, 1 client")));
        assert_eq!(results.variants.len(), 8, "'kernel' is none");
        assert_each_client_read(&results, 1 << 20);
        pool.assert_empty();
    }

    #[test]
    fn windows_that_are_none_and_nobody_who_reads_are_refused() {
        let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
        for bad in [("windows", "kernel,wide"), ("clients", "0"), ("file-size", "1K")] {
            let values = Values::read(OPTIONS, &[bad]).unwrap();
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{bad:?}");
        }
        let [tape, pool] = ["tape", "ceph:data"].map(|it| ("engine", it));
        for bad in [
            [tape, ("through", "advice")],
            [pool, ("through", "kernel")],
            [pool, ("windows", "kernel")],
        ] {
            let values = Values::read(OPTIONS, &bad).unwrap();
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{bad:?}");
        }
        let values = Values::read(OPTIONS, &[pool, ("through", "store,advice")]).unwrap();
        assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage);
        let values = Values::read(OPTIONS, &[pool, ("clients", "1,3")]).unwrap();
        let planned = plan(&setting, &values).unwrap();
        assert!(planned.intents()[0].starts_with("create 192 objects"), "{:?}", planned.intents());
        assert!(planned.places().is_empty() && planned.room().is_empty());
    }
}
