//! mdadm's `--scan`: applies a verb to all arrays.

use pinstripe_array::{Detail, Register, ScannedArray, SlotStateDetail};
use pinstripe_base::error::{Error, Result};

use crate::escape;
use crate::event::Event;
use crate::exit;
use crate::run::{Ending, Run};

/// Runs a verb for every name. A failure is reported and the other names are still processed; the
/// exit code is that of the first failure.
///
/// # Errors
/// Fails when standard output cannot be written.
pub fn each(
    run: &Run,
    names: &[String],
    mut act: impl FnMut(&str) -> Result<bool>,
) -> Result<Ending> {
    let (mut done, mut failed) = (0_u64, Failures::default());
    for name in names {
        match act(name) {
            Ok(acted) => done += u64::from(acted),
            Err(error) => failed.report(run, name, error),
        }
    }
    if names.is_empty() {
        run.screen.say("no array is registered; see 'pinstripe array create --help'");
    }
    Ok(failed.ending(done))
}

/// The failures of a verb for some of several arrays.
#[derive(Default)]
pub struct Failures {
    count: u64,
    code: u8,
}

impl Failures {
    /// Reports one.
    pub fn report(&mut self, run: &Run, place: impl AsRef<std::path::Path>, error: Error) {
        if self.count == 0 {
            self.code = exit::of_error(error.kind());
        }
        self.count += 1;
        run.monitor.warning(place.as_ref(), error);
    }

    /// The number of failures that were reported.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The ending of a verb that was applied to `arrays` arrays.
    pub fn ending(self, arrays: u64) -> Ending {
        let code = if self.count == 0 { exit::DONE } else { self.code };
        Ending { code, facts: Event::default().with("arrays", arrays).with("failed", self.count) }
    }
}

/// The given name, or all registered names.
///
/// # Errors
/// Fails when the register cannot be read.
pub fn names(given: Option<&String>, register: &Register) -> Result<Vec<String>> {
    given.map_or_else(|| register.names(), |name| Ok(vec![name.clone()]))
}

/// The `ARRAY` lines, in mdadm's form, for a registered array.
pub fn of_detail(array: &Detail, is_verbose: bool) -> Vec<String> {
    let id = uuid(&array.array);
    let devices = array.slots.iter().filter(|it| it.state != SlotStateDetail::Missing);
    let devices = devices.filter_map(|it| it.device.as_deref());
    let devices = devices.chain(array.spares.iter().map(AsRef::as_ref)).map(escape::path);
    let spares = array.spares.len();
    let word = if array.is_usable { "ARRAY" } else { "INACTIVE-ARRAY" };
    let name = &array.name;
    let shape = (&*array.level, array.slots.len());
    lines([word, name, &array.metadata, name, &id], shape, spares, is_verbose, devices.collect())
}

/// The `ARRAY` lines, in mdadm's form, for an array that was found on devices.
pub fn of_devices(array: &ScannedArray, is_verbose: bool) -> Vec<String> {
    let name = escape::text(&array.name);
    let own = array.register_name().map_or_else(|_| name.clone(), str::to_owned);
    let devices = array.devices.iter().map(|it| escape::path(it)).collect();
    let shape = (&*array.level, array.raid_devices);
    let words = ["ARRAY", &own, &array.metadata, &name, &array.uuid()];
    lines(words, shape, array.spares, is_verbose, devices)
}

/// The event of an array that was found on devices.
pub fn event(array: &ScannedArray) -> Event {
    Event::new("scanned_array")
        .with("name", &*array.name)
        .with("metadata", &*array.metadata)
        .with("array", &*array.array)
        .with("level", &*array.level)
        .with("slots", array.raid_devices)
        .with("spares", array.spares)
        .with(
            "devices",
            array.devices.iter().map(|it| it.display().to_string()).collect::<Vec<_>>(),
        )
}

fn lines(
    [word, device, metadata, name, uuid]: [&str; 5],
    (level, members): (&str, usize),
    spares: usize,
    is_verbose: bool,
    devices: Vec<String>,
) -> Vec<String> {
    let shape =
        if is_verbose { format!(" level={level} num-devices={members}") } else { String::new() };
    let spares = if spares > 0 { format!(" spares={spares}") } else { String::new() };
    let first =
        format!("{word} {device}{shape} metadata={metadata}{spares} name={name} UUID={uuid}");
    let devices = is_verbose.then(|| format!("   devices={}", devices.join(",")));
    [first].into_iter().chain(devices).collect()
}

/// Formats the id as four words, as mdadm does.
pub fn uuid(id: &str) -> String {
    let words = id.as_bytes().chunks(8).map(String::from_utf8_lossy);
    words.collect::<Vec<_>>().join(":")
}
