//! `pinstripe array serve`: serves an array as a network block device, and as a file.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_nbd::{Address, Settings};

use super::register::register;
use super::serve_all::{announce, mountpoint, serve_all, with_name};
use super::serving::{ServeContext, Serving, serve};
use crate::args::parsed;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;
use crate::system;

/// Serve an array by NBD or as a file, until the array is stopped
///
/// The process runs until it receives an interrupt, SIGTERM or a request of 'pinstripe array stop';
/// it then writes all data and closes the array. An array created by md is served read-only unless
/// --write is given. Data that a client has flushed is durable, even if the process is killed
/// later. While clients use the array, other array verbs send their requests to the serving
/// process, through a control socket. With --all, one process serves every registered array that no
/// other process serves. In the values of --nbd and --fuse, {name} stands for the name of the
/// array.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array serve pool --nbd unix:/run/user/1000/pool
  pinstripe array serve pool --nbd tcp:127.0.0.1:10809 --read-only
  pinstripe array serve pool --fuse /mnt/pool
  pinstripe array serve --all --nbd unix:/run/user/1000/{name}
  nbdinfo nbd+unix:///?socket=/run/user/1000/pool
  losetup --find --show /mnt/pool/pool")]
pub struct ArrayServeArgs {
    /// Name of the array
    #[arg(value_name = "NAME", required_unless_present = "all")]
    name: Option<String>,

    /// Serve all registered arrays that no other process serves, and create mountpoint directories
    /// that do not exist
    #[arg(long, conflicts_with = "name")]
    all: bool,

    /// Address of the NBD export: unix:PATH, tcp:HOST or tcp:HOST:PORT; may be given several times
    #[arg(long, value_name = "ADDRESS", value_parser = parsed::<Address>)]
    nbd: Vec<Address>,

    /// An empty directory; the array appears in it as a file that has the name of the array
    #[arg(long, value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    fuse: Option<PathBuf>,

    /// Export the array read-only
    #[arg(long)]
    read_only: bool,

    /// Let clients write to an array created by md, which is read-only by default; no member may be
    /// missing, and the array must be clean; the array is marked clean again when the process ends
    #[arg(long, conflicts_with = "read_only")]
    write: bool,
}

impl ArrayServeArgs {
    /// Serves the array until it is stopped.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if neither NBD nor FUSE is requested; with the errors of
    /// [`serve`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        if self.nbd.is_empty() && self.fuse.is_none() {
            return Err(Error::new(Kind::Usage, "neither an address nor a mountpoint was given")
                .advice(
                    "give an address with --nbd ADDRESS, or a mountpoint with --fuse MOUNTPOINT",
                ));
        }
        let stop = signals::catch()?;
        let register = register()?;
        let Some(name) = &self.name else {
            // A pattern without the name is refused before anything is served.
            self.serving_by_pattern(run, "name")?;
            return serve_all(run, &register, stop, &|name| self.serving_by_pattern(run, name));
        };
        let context = ServeContext {
            register: &register,
            faults: &run.common.device_faults()?,
            monitor: &run.monitor,
            stop,
        };
        let serving = self.serving(run, name, self.nbd.clone(), self.fuse.clone());
        serve(&serving, &context, &mut |served, bytes| announce(run, name, served, bytes))?;
        Ok(Ending::done(Event::default().with("name", &**name)))
    }

    fn serving(&self, run: &Run, name: &str, nbd: Vec<Address>, fuse: Option<PathBuf>) -> Serving {
        let threads = run.common.threads.map_or_else(system::cores, |threads| threads as usize);
        Serving {
            name: name.to_owned(),
            nbd,
            fuse,
            is_read_only: self.read_only,
            writes_md: self.write,
            settings: Settings { memory_bytes: run.common.memory.0, ..Settings::default() },
            threads,
        }
    }

    /// The settings with which `--all` serves the array of this name.
    fn serving_by_pattern(&self, run: &Run, name: &str) -> Result<Serving> {
        let address = |it: &Address| with_name(&it.to_string(), name)?.parse();
        let nbd = self.nbd.iter().map(address).collect::<Result<Vec<_>>>()?;
        let fuse = self.fuse.as_deref().map(|it| mountpoint(it, name)).transpose()?;
        Ok(self.serving(run, name, nbd, fuse))
    }
}
