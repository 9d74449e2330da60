//! `pinstripe array serve --all`: serves every registered array as if it were served alone.
//!
//! Each array has one thread; the arrays share only the process and the signal that ends it. If an
//! array cannot be served, or is stopped, the others are not affected.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use pinstripe_array::{Register, Served};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{Stop, into_inner, lock};
use pinstripe_base::units::format_size;

use super::scan::Failures;
use super::serving::{ServeContext, Serving, serve};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// The word in addresses and mountpoints that is replaced by the array's name.
pub const NAME_WORD: &str = "{name}";

/// Serves all arrays that no other process serves, until all were stopped or `stop` is set.
/// `serving` returns how to serve the array of a name.
///
/// # Errors
/// Fails when no array is registered, or threads or directories cannot be created.
pub fn serve_all(
    run: &Run,
    register: &Register,
    stop: &Stop,
    serving: &(dyn Fn(&str) -> Result<Serving> + Sync),
) -> Result<Ending> {
    let names = register.names()?;
    if names.is_empty() {
        return Err(Error::new(Kind::NotFound, "no array is registered").advice(
            "create an array with 'pinstripe array create', or assemble one with 'pinstripe array \
             assemble'",
        ));
    }
    let failures = Mutex::new(Failures::default());
    let stops = names.iter().map(|_| Stop::new()).collect::<Result<Vec<_>>>()?;
    let left = Mutex::new(names.len());
    std::thread::scope(|scope| {
        for (name, own_stop) in names.iter().zip(&stops) {
            let (failures, left) = (&failures, &left);
            let work = move || {
                if let Err(error) = serve_one(run, register, name, own_stop, serving) {
                    lock(failures).report(run, name, error);
                }
                let mut left = lock(left);
                *left -= 1;
                if *left == 0 {
                    // The last one was stopped: nothing is left to wait for.
                    stop.set();
                }
            };
            let started = std::thread::Builder::new().name(format!("array {name}"));
            if let Err(error) = started.spawn_scoped(scope, work) {
                lock(failures).report(run, name, Error::io("cannot start a thread", "/", error));
                *lock(left) -= 1;
            }
        }
        if *lock(&left) > 0 {
            stop.wait(Duration::MAX);
        }
        stops.iter().for_each(Stop::set);
    });
    let failures = into_inner(failures);
    let served = names.len() as u64 - failures.count();
    Ok(failures.ending(served))
}

fn serve_one(
    run: &Run,
    register: &Register,
    name: &str,
    stop: &Stop,
    serving: &dyn Fn(&str) -> Result<Serving>,
) -> Result<()> {
    let serving = serving(name)?;
    if let Some(mountpoint) = &serving.fuse {
        fs::create_dir_all(mountpoint)
            .map_err(|error| Error::io("cannot create the directory", mountpoint, error))?;
    }
    let faults = run.common.device_faults()?;
    let context = ServeContext { register, faults: &faults, monitor: &run.monitor, stop };
    serve(&serving, &context, &mut |served, bytes| announce(run, name, served, bytes))
}

/// Replaces the word for the name in an address or path by the array's name.
///
/// # Errors
/// Fails with [`Kind::Usage`] for a text without `{name}`, which would be the same for all arrays.
pub fn with_name(text: &str, name: &str) -> Result<String> {
    match text.contains(NAME_WORD) {
        true => Ok(text.replace(NAME_WORD, name)),
        false => Err(Error::new(
            Kind::Usage,
            format!("the address or mountpoint '{text}' would be the same for all arrays"),
        )
        .advice(format!("write '{NAME_WORD}' in place of the array's name"))),
    }
}

/// The mountpoint of an array.
///
/// # Errors
/// Fails with the errors of [`with_name`]; with [`Kind::Usage`] for a path that is not UTF-8.
pub fn mountpoint(path: &std::path::Path, name: &str) -> Result<PathBuf> {
    let text = path.to_str().ok_or_else(|| {
        Error::new(Kind::Usage, "the mountpoints of all arrays must be UTF-8").at(path)
    })?;
    with_name(text, name).map(PathBuf::from)
}

/// Reports that clients can connect to an array, and where.
pub fn announce(run: &Run, name: &str, served: &Served, bytes: u64) {
    let event = Event::new("serving").with("name", name).with("bytes", bytes);
    // A failure is remembered and reported at the end.
    let _ = run.screen.event(&event.with("exports", served.exports.clone()));
    run.screen
        .say(&format!("array {name} (size {}) is served at these addresses:", format_size(bytes)));
    for export in &served.exports {
        run.screen.say(&format!("  {}", escape::text(export)));
    }
    run.screen
        .say(&format!("it is served until an interrupt (Ctrl-C) or 'pinstripe array stop {name}'"));
    run.screen.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_array_has_an_address_of_its_own() {
        assert_eq!(with_name("unix:/run/{name}.sock", "pool").unwrap(), "unix:/run/pool.sock");
        assert_eq!(with_name("tcp:localhost", "pool").unwrap_err().kind(), Kind::Usage);
        assert_eq!(mountpoint("/m/{name}".as_ref(), "a").unwrap(), PathBuf::from("/m/a"));
    }
}
