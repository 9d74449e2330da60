//! Serves an array by NBD and as a file by FUSE, and answers requests on its control socket.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe_array::{
    ArrayMetadata, ControlHandler, Detail, Register, Reply, Request, RequestFailure, Served,
    events_between, open_md, start_volume,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::{Stop, lock};
use pinstripe_io::control::{Answer, Control, Lines};
use pinstripe_io::device::Sparse;
use pinstripe_io::fault::Plan;
use pinstripe_nbd::{self as nbd, Address, DeviceMount, MountOptions, Server};

use crate::jobs::{Job, run_until_first_exit};

/// The interval at which an array's generation is recorded in the register.
const REGISTER_EVERY: Duration = Duration::from_secs(1);
/// The interval at which an array is checked for events.
const EVENTS_POLL: Duration = Duration::from_millis(100);

/// How an array is served.
#[derive(Debug, Clone)]
pub struct Serving {
    /// The name.
    pub name: String,
    /// The addresses for NBD clients.
    pub nbd: Vec<Address>,
    /// The directory in which the array is a file.
    pub fuse: Option<PathBuf>,
    /// Whether clients may only read.
    pub is_read_only: bool,
    /// Whether an md array may be written.
    pub writes_md: bool,
    /// Settings for NBD clients.
    pub settings: nbd::Settings,
    /// The number of threads that answer the kernel's file system calls.
    pub threads: usize,
}

/// The resources that serving uses.
pub struct ServeContext<'a> {
    /// The register of arrays.
    pub register: &'a Register,
    /// Faults that are planned for members of the array.
    pub faults: &'a Plan,
    /// Receives problems.
    pub monitor: &'a Monitor,
    /// Any thread can set it to end the service.
    pub stop: &'a Stop,
}

/// Serves an array until `stop` is set or a client asks to stop it, and then closes it cleanly.
/// `ready` is called with the array's addresses and length once all addresses work.
///
/// # Errors
/// Fails with [`Kind::Busy`] when the array is already served; with the errors of the devices,
/// addresses and mountpoint; with the reason why the array could not be closed cleanly.
pub fn serve(
    serving: &Serving,
    context: &ServeContext<'_>,
    ready: &mut dyn FnMut(&Served, u64),
) -> Result<()> {
    let entry = context.register.read(&serving.name)?;
    let control = Control::bind(&context.register.socket(&serving.name)?)?;
    let (device, controller): (Arc<dyn Sparse>, Box<dyn ControlHandler>) = match entry.metadata {
        ArrayMetadata::Pinstripe => {
            let controller =
                start_volume(&serving.name, context.register, context.faults, context.monitor)?;
            (Arc::clone(&controller.volume) as _, Box::new(controller))
        }
        ArrayMetadata::Md => {
            let controller = open_md(&entry, serving.writes_md, context.faults, context.monitor)?;
            (Arc::clone(&controller.array) as _, Box::new(controller))
        }
    };
    let is_read_only =
        serving.is_read_only || entry.metadata == ArrayMetadata::Md && !serving.writes_md;
    let exports = Exports::open(serving, device, is_read_only);
    let failures = Mutex::new(FailureLog::default());
    let done = exports.and_then(|exports| {
        let served = exports.reached();
        controller.served_as(served.clone());
        ready(&served, exports.bytes);
        exports.serve(serving, context, (&*controller, &control), &failures)
    });
    let closed = controller.close();
    lock(&failures).report(&controller.detail(), context.monitor);
    drop(controller);
    let ended = done.and(closed);
    control.conclude(&line(&match &ended {
        Ok(()) => Reply::Done { said: format!("array {} is stopped", serving.name) },
        Err(error) => Reply::Failed(RequestFailure::from(error)),
    }));
    ended
}

/// The exports of an array, by NBD and by FUSE.
struct Exports {
    bytes: u64,
    nbd: Option<Server>,
    devices: [nbd::Export; 2],
    file: Option<DeviceMount>,
}

impl Exports {
    fn open(serving: &Serving, device: Arc<dyn Sparse>, is_read_only: bool) -> Result<Self> {
        let nbd = match serving.nbd.is_empty() {
            true => None,
            false => Some(Server::bind(&serving.nbd)?),
        };
        let devices = ["", &serving.name].map(|name| {
            // An array frees nothing by TRIM, and zeros are faster than data only where nothing was
            // written.
            let export = nbd::Export::sparse(name, Arc::clone(&device));
            let export = export.without_trim().without_fast_zero();
            if is_read_only { export.read_only() } else { export }
        });
        let bytes = device.len()?;
        let options = MountOptions {
            name: serving.name.clone(),
            threads: serving.threads,
            is_read_only,
            may_change: true,
        };
        let mount = |at: &PathBuf| DeviceMount::new(device, at, &options);
        let file = serving.fuse.as_ref().map(mount).transpose()?;
        Ok(Exports { bytes, nbd, devices, file })
    }

    fn reached(&self) -> Served {
        let addresses = self.nbd.iter().flat_map(|it| it.addresses()).map(ToString::to_string);
        let files = self.file.iter().map(|file| file.file().display().to_string());
        Served { process: std::process::id(), exports: addresses.chain(files).collect() }
    }

    fn serve(
        self,
        serving: &Serving,
        context: &ServeContext<'_>,
        (controller, control): (&dyn ControlHandler, &Control),
        failures: &Mutex<FailureLog>,
    ) -> Result<()> {
        let Exports { nbd, devices, file, .. } = self;
        let (stop, devices) = (context.stop, &devices);
        let openers = file.as_ref().map(|file| (file.file().to_owned(), file.openers()));
        let answer = |text: &str, lines: &Lines<'_>| {
            answer_line(controller, text, lines, (stop, openers.as_ref()))
        };
        let mut jobs: Vec<Job<'_>> = vec![
            Box::new(|| control.serve(stop, &answer)),
            Box::new(|| {
                // Nothing wakes it: generations change in the middle of writes, which must not wait.
                while !stop.wait(REGISTER_EVERY) {
                    controller.note_generation();
                    lock(failures).report(&controller.detail(), context.monitor);
                }
                Ok(())
            }),
        ];
        if let Some(server) = &nbd {
            let settings = &serving.settings;
            jobs.push(Box::new(move || server.serve(devices, settings, context.monitor, stop)));
        }
        if let Some(file) = file {
            jobs.push(Box::new(move || file.serve(stop)));
        }
        run_until_first_exit(stop, jobs)
    }
}

/// Reports which members failed, and why, in the log of the process that serves.
#[derive(Default)]
struct FailureLog {
    /// The array when it was examined last.
    before: Option<Detail>,
}

impl FailureLog {
    /// Reports the failures since the last time.
    fn report(&mut self, now: &Detail, monitor: &Monitor) {
        let before = self.before.replace(now.clone());
        let mut told: Vec<(Option<PathBuf>, Option<String>)> = Vec::new();
        match &before {
            Some(before) => {
                let failed = events_between(before, now).into_iter();
                let failed = failed.filter(|it| matches!(&*it.what, "Fail" | "FailSpare"));
                told.extend(failed.map(|it| (it.device, it.reason)));
            }
            None => {
                let failed = now.slots.iter().filter(|slot| slot.reason.is_some());
                told.extend(failed.map(|slot| (slot.device.clone(), slot.reason.clone())));
            }
        }
        let last = before.and_then(|before| before.reports.last().map(|it| it.number));
        for it in now.reports.iter().filter(|it| Some(it.number) > last && !it.is_finished) {
            // A rebuild of a slot that failed is among the events; a replace is not.
            if it.kind == "recover" && told.iter().all(|(device, _)| *device != it.device) {
                told.push((it.device.clone(), it.reason.clone()));
            }
        }
        for (device, reason) in told {
            let reason = reason.map(|it| format!(": {it}")).unwrap_or_default();
            let error = Error::new(
                Kind::Io,
                format!("the device has failed, and the array no longer uses it{reason}"),
            );
            let place = device.unwrap_or_else(|| PathBuf::from(format!("array {}", now.name)));
            monitor.warning(place, error);
        }
    }
}

/// The path of an array's file, and the number of times it is open.
type Openers = (PathBuf, Arc<AtomicUsize>);

/// Refuses to stop an array while a program has its file open, or a file system is mounted on a
/// loop device of it: data that is not written through yet would be lost.
fn refuse_used(openers: Option<&Openers>, force: bool) -> Result<()> {
    match openers.filter(|(_, count)| !force && count.load(Ordering::Relaxed) > 0) {
        None => Ok(()),
        Some((file, _)) => Err(Error::new(
            Kind::Busy,
            "a program has this file open, or it is the backing file of a loop device",
        )
        .at(file)
        .advice(
            "unmount the file and stop the programs that use it ('losetup --associated FILE' lists \
             its loop devices), then stop the array; to stop the array anyway, use --force",
        )),
    }
}

/// Answers one line.
fn answer_line(
    controller: &dyn ControlHandler,
    text: &str,
    lines: &Lines<'_>,
    (stop, openers): (&Stop, Option<&Openers>),
) -> Answer {
    let reply = match serde_json::from_str(text) {
        Ok(Request::Stop { force }) => match refuse_used(openers, force) {
            Ok(()) => {
                stop.set();
                return Answer::Deferred;
            }
            Err(error) => Err(error),
        },
        Ok(Request::Events) => {
            // A client that follows events ends by disconnecting, which is not an error.
            let _ = report_events(controller, lines);
            return Answer::Sent;
        }
        Ok(request) => controller.answer(&request),
        Err(error) => {
            Err(Error::new(Kind::Unsupported, format!("this is not a valid request: {error}")))
        }
    };
    let reply = reply.unwrap_or_else(|error| Reply::Failed(RequestFailure::from(&error)));
    let _ = lines.send(&line(&reply));
    Answer::Sent
}

fn report_events(controller: &dyn ControlHandler, lines: &Lines<'_>) -> Result<()> {
    let mut before = controller.detail();
    // The first line promises that every later change is reported.
    lines.send(&line(&Reply::Detail(Box::new(before.clone()))))?;
    loop {
        let is_over = lines.is_over_within(EVENTS_POLL);
        // Once more at the end, for what happened since the last time.
        let now = controller.detail();
        for event in events_between(&before, &now) {
            lines.send(&line(&Reply::Event(event)))?;
        }
        if is_over {
            return Ok(());
        }
        before = now;
    }
}

fn line(reply: &Reply) -> String {
    serde_json::to_string(reply).expect("a reply is plain text")
}
