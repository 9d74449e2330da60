//! `pinstripe array assemble`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_array::{
    Register, assemble, assemble_md, detail_of_devices, scan_devices as devices_scan, server_of,
};
use pinstripe_base::error::{Error, Kind, Result};

use super::register::register;
use super::{scan, status};
use crate::run::{Ending, Run};

/// Assemble an array from its devices, and register it under a name
///
/// The devices may be given in any order. An array that was created by md (metadata 0.90, 1.0, 1.1
/// or 1.2) can be assembled as well. After a power cut, 'array assemble' replays the array log (a
/// log of the writes that were in progress). If no device is given, the devices that are registered
/// under the name of the array are used. With --scan, all registered arrays that no process serves
/// are assembled. With --scan and --device, the arrays on the devices of --device are assembled as
/// well, each under the name in its superblock.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array assemble pool /dev/sdb /dev/sdc /dev/sdd
  pinstripe array assemble pool
  pinstripe array assemble --scan
  pinstripe array assemble --scan --device /dev/sdb --device /dev/sdc")]
pub struct ArrayAssembleArgs {
    /// Name of the array
    #[arg(value_name = "NAME", required_unless_present = "scan")]
    name: Option<String>,

    /// The files or disks of the array
    #[arg(value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    devices: Vec<PathBuf>,

    /// Assemble all registered arrays that no process serves
    #[arg(long, short, conflicts_with = "name")]
    scan: bool,

    /// With --scan, also search this file or disk for arrays; may be given several times
    #[arg(long = "device", value_name = "DEVICE", conflicts_with = "name",
          value_hint = ValueHint::FilePath)]
    searched: Vec<PathBuf>,

    /// Assemble the array without unusable devices, and use parity that may be stale: data that was
    /// being written during a power cut may then be wrong. With --force, 'assemble' and a later
    /// 'serve' also accept an array created by md that is dirty and degraded, or that has a journal
    #[arg(long)]
    force: bool,
}

impl ArrayAssembleArgs {
    /// Assembles one array, or all arrays, and closes them again.
    ///
    /// # Errors
    /// Fails with the errors of [`assemble`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        let Some(name) = &self.name else { return self.assemble_all(run, &register) };
        self.assemble_one(run, name, &self.devices, &register)?;
        let found = detail_of_devices(name, &register)?;
        Ok(status::ending(run, &found))
    }

    fn assemble_one(
        &self,
        run: &Run,
        name: &str,
        devices: &[PathBuf],
        register: &Register,
    ) -> Result<()> {
        if assemble_md(name, devices, self.force, register, &run.monitor)? {
            return Ok(());
        }
        let plan = run.common.device_faults()?;
        assemble(name, devices, self.force, register, &plan, &run.monitor)?.stop()
    }

    /// Assembles all arrays without a server: registered ones, and those found on devices.
    fn assemble_all(&self, run: &Run, register: &Register) -> Result<Ending> {
        let found = devices_scan(&self.searched);
        let mut failures = scan::Failures::default();
        for (device, error) in found.failed {
            failures.report(run, device, error);
        }
        let mut arrays: Vec<(String, Vec<PathBuf>)> = Vec::new();
        for array in &found.arrays {
            match array.register_name().and_then(|name| own_name(name, &array.array, register)) {
                Ok(name) => arrays.push((name, array.devices.clone())),
                Err(error) => failures.report(run, &array.devices[0], error),
            }
        }
        for name in register.names()? {
            if !arrays.iter().any(|(found, _)| *found == name) {
                arrays.push((name, Vec::new()));
            }
        }
        let mut done = 0;
        for (name, devices) in &arrays {
            match self.assemble_unserved(run, name, devices, register) {
                Ok(assembled) => done += u64::from(assembled),
                Err(error) => failures.report(run, name, error),
            }
        }
        if arrays.is_empty() {
            run.screen.say("no array is registered, and no array was found on the devices");
        }
        Ok(failures.ending(done))
    }

    /// Assembles an array unless a process serves it; returns whether it did.
    fn assemble_unserved(
        &self,
        run: &Run,
        name: &str,
        devices: &[PathBuf],
        register: &Register,
    ) -> Result<bool> {
        if register.has(name) && server_of(name, register)?.is_some() {
            run.screen.say(&format!("array {name} is already served"));
            return Ok(false);
        }
        self.assemble_one(run, name, devices, register)?;
        let found = detail_of_devices(name, register)?;
        run.screen.event(&super::show::event(crate::event::Event::new("array"), &found))?;
        for line in status::lines(&found) {
            run.screen.row(&line)?;
        }
        Ok(true)
    }
}

/// The name under which a found array is, or can be, registered.
fn own_name(name: &str, array: &str, register: &Register) -> Result<String> {
    for known in register.names()? {
        if register.read(&known).is_ok_and(|it| it.array == array) {
            return Ok(known);
        }
    }
    match register.has(name) {
        false => Ok(name.to_owned()),
        true => Err(Error::new(
            Kind::Exists,
            format!("another array is registered with the name '{name}'"),
        )
        .advice("choose another name with 'pinstripe array assemble NAME DEVICE...'")),
    }
}
