//! A mount of a backed up tree and image, compared with `restic mount` and `borg mount` of the
//! same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pinstripe_base::units::{MIB, format_count, format_size};
use pinstripe_lab::{Align, Cell, Table};

use super::Settings;
use super::place::{MountedAt, Reads, cool};
use crate::Result;
use crate::cases::backup::image;
use crate::child;
use crate::tools::Tool;
use crate::trees;

/// The longest time in which a mount is ready.
const READY_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// What each tool is measured by; NaN where that failed.
#[derive(Default)]
struct Figures {
    ready: f64,
    first_list: f64,
    second_list: f64,
    tar: f64,
    in_order: f64,
    stride: f64,
}

pub(super) fn table(settings: &Settings) -> Result<Table> {
    let work = settings.bench.work.clone();
    let tree = match &settings.source {
        Some(tree) => tree.clone(),
        None => trees::kernel_source(&work)?,
    };
    let image = image::make(&work, settings.image_bytes)?;
    let (entries, bytes) = trees::measure(&tree)?;
    let native = Figures { ready: f64::NAN, ..figures(&tree, &image, None)? };
    let ours = pinstripe(settings, &tree, &image)?;
    let restic = restic(settings, &tree, &image);
    let restic = restic.or_else(|error| none_of("restic", error))?;
    let borg = borg(settings, &tree, &image);
    let borg = borg.or_else(|error| none_of("borg", error))?;
    let note = format!(
        "A tree of {} entries with {}, and an image of {}; stores and page cache warm, one run of \
         each, pinstripe first. The source itself is read for comparison.",
        format_count(entries),
        format_size(bytes),
        format_size(settings.image_bytes),
    );
    let columns = [
        ("measure", Align::Left),
        ("source", Align::Right),
        ("restic", Align::Right),
        ("borg", Align::Right),
        ("pinstripe", Align::Right),
        ("target", Align::Left),
        ("verdict", Align::Left),
    ];
    let mut table = Table::new("Mounts of a backup", note, &columns);
    let mut row = |what: &str, of: fn(&Figures) -> f64, decimals, wanted: Option<(f64, bool)>| {
        let cell = |figures: &Figures| match of(figures) {
            value if value.is_nan() => "".into(),
            value => Cell::Number(value, decimals),
        };
        let (target, verdict) = match wanted {
            None => (String::new(), ""),
            Some((limit, is_rate)) => {
                let is_met = if is_rate { of(&ours) >= limit } else { of(&ours) <= limit };
                let sign = if is_rate { ">=" } else { "<=" };
                (format!("{sign} {limit}"), if is_met { "reached" } else { "not reached" })
            }
        };
        let cells = [cell(&native), cell(&restic), cell(&borg), cell(&ours)];
        let [source, restic, borg, ours] = cells;
        table.row([what.into(), source, restic, borg, ours, target.into(), verdict.into()]);
    };
    row("ready, s", |it| it.ready, 2, Some((0.3, false)));
    row("ls -lR, first, s", |it| it.first_list, 2, Some((2.2, false)));
    row("ls -lR, again, s", |it| it.second_list, 2, Some((0.8, false)));
    row("tar of all, s", |it| it.tar, 2, Some((7.5, false)));
    row("image in order, MB/s", |it| it.in_order, 0, Some((900.0, true)));
    row("image, stride 17 x 4 MiB, MB/s", |it| it.stride, 0, None);
    Ok(table)
}

/// The figure of a peer that failed: none, and a line that says why. Ours have to be there.
fn figure(peer: Option<&str>, measured: Result<f64>) -> Result<f64> {
    match (peer, measured) {
        (Some(peer), Err(error)) => {
            eprintln!("{peer}: {error}");
            Ok(f64::NAN)
        }
        (_, measured) => measured,
    }
}

/// All figures of a peer that could not even be mounted.
fn none_of(peer: &str, error: String) -> Result<Figures> {
    let none = figure(Some(peer), Err(error))?;
    let (ready, first_list, second_list, tar) = (none, none, none, none);
    Ok(Figures { ready, first_list, second_list, tar, in_order: none, stride: none })
}

/// Times everything but the readiness.
fn figures(tree: &Path, image: &Path, peer: Option<&str>) -> Result<Figures> {
    let shell = |line: &str| {
        let began = Instant::now();
        let status = Command::new("sh").arg("-c").arg(line).current_dir(tree).status();
        let seconds = match status {
            Ok(status) if status.success() => Ok(began.elapsed().as_secs_f64()),
            ended => Err(format!("'{line}' in {}: {ended:?}", tree.display())),
        };
        figure(peer, seconds)
    };
    let list = "ls -lR . > /dev/null";
    let (first_list, second_list) = (shell(list)?, shell(list)?);
    let tar = shell("tar -cf - . | cat > /dev/null")?;
    let rate = |length, distance| {
        let size = image.metadata().map_err(|e| format!("{}: {e}", image.display()))?.len();
        cool(image)?;
        Reads::stride(length, distance, size / distance, false).rate(image, &|_, _| true)
    };
    let stride = figure(peer, rate(4 * MIB, 17 * 4 * MIB))?;
    let in_order = figure(peer, rate(MIB, MIB))?;
    let figures = Figures { ready: f64::NAN, first_list, second_list, tar, in_order, stride };
    eprintln!("{}: ls {first_list:.2} {second_list:.2} s, tar {tar:.2} s", tree.display());
    Ok(figures)
}

fn pinstripe(settings: &Settings, tree: &Path, image: &Path) -> Result<Figures> {
    let tool = settings.bench.pinstripe()?.with_key_file();
    tool.make_empty()?;
    let mut backup = tool.back_up(tree);
    child::run(backup.arg(image), &tool.logs, "mount-backup")?;
    let place = MountedAt::new(&settings.bench.work, "mnt-pinstripe")?;
    let began = Instant::now();
    child::run(tool.command("mount").arg(&place.0), &tool.logs, "mount")?;
    let ready = began.elapsed().as_secs_f64();
    let latest = place.0.join("latest");
    Ok(Figures { ready, ..figures(&below(&latest, tree), &below(&latest, image), None)? })
}

fn restic(settings: &Settings, tree: &Path, image: &Path) -> Result<Figures> {
    let tool = settings.bench.restic()?;
    tool.make_empty()?;
    let logs = settings.bench.work.join("logs");
    child::run(tool.back_up(tree).arg(image), &logs, "restic-mount-backup")?;
    let place = MountedAt::new(&settings.bench.work, "mnt-restic")?;
    let latest = place.0.join("snapshots/latest");
    let began = Instant::now();
    let mut mount = tool.command("mount");
    let server = mount.arg(&place.0).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut server = Server(server.map_err(|error| format!("restic mount: {error}"))?);
    server.await_directory(&latest)?;
    let ready = began.elapsed().as_secs_f64();
    let peer = Some("restic");
    let figures = figures(&below(&latest, tree), &below(&latest, image), peer);
    drop(place);
    Ok(Figures { ready, ..figures? })
}

fn borg(settings: &Settings, tree: &Path, image: &Path) -> Result<Figures> {
    let (work, logs) = (&settings.bench.work, settings.bench.work.join("logs"));
    let repository = work.join("borg");
    trees::remove(&repository)?;
    let command = |verb: &str| {
        let mut command = Command::new("borg");
        command.env("BORG_PASSPHRASE", "lab").env("BORG_BASE_DIR", work.join("borg-base"));
        command.env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes").arg(verb);
        command
    };
    let mut init = command("init");
    child::run(init.args(["-e", "repokey"]).arg(&repository), &logs, "borg-init")?;
    let archive = format!("{}::one", repository.display());
    let mut create = command("create");
    child::run(create.arg(&archive).arg(tree).arg(image), &logs, "borg-create")?;
    let place = MountedAt::new(work, "mnt-borg")?;
    let began = Instant::now();
    child::run(command("mount").arg(&archive).arg(&place.0), &logs, "borg-mount")?;
    let ready = began.elapsed().as_secs_f64();
    let (tree, image) = (below(&place.0, tree), below(&place.0, image));
    Ok(Figures { ready, ..figures(&tree, &image, Some("borg"))? })
}

/// The place of a full path below a directory.
fn below(directory: &Path, path: &Path) -> PathBuf {
    directory.join(path.strip_prefix("/").unwrap_or(path))
}

/// A program that mounts and stays; ended when this is dropped.
struct Server(Child);

impl Server {
    /// Waits until it shows a directory. Nothing reports this, so the path is polled.
    fn await_directory(&mut self, place: &Path) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < READY_MAX {
            if fs::read_dir(place).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(format!("the server of {} ended: {status}", place.display()));
            }
            std::thread::sleep(POLL);
        }
        Err(format!("{} did not appear", place.display()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
