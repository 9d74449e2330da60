//! `pinstripe array forget`: removes a name from the register.

use pinstripe_array::forget;
use pinstripe_base::error::Result;

use super::register::register;
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};

/// Remove the name of an array from the register of arrays, without changing its devices
///
/// The devices with their superblocks and data are not changed, so 'pinstripe array assemble' can
/// register the array again. Settings of the array that are stored only in the register are lost.
/// The command is refused while a process serves the array.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array forget pool
  pinstripe array forget pool && pinstripe array assemble tank /dev/sdb /dev/sdc    another name")]
pub struct ArrayForgetArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,
}

impl ArrayForgetArgs {
    /// Forgets it.
    ///
    /// # Errors
    /// Fails with the errors of [`forget`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let forgotten = forget(&self.name, &register()?)?;
        let devices = forgotten.devices.iter().map(|it| escape::path(it)).collect::<Vec<_>>();
        run.screen.say(&format!(
            "the array {} is removed from the register; its devices, superblocks and data were not \
             changed",
            self.name
        ));
        if !devices.is_empty() {
            run.screen.say(&format!(
                "to register the array again, run 'pinstripe array assemble {} {}'",
                self.name,
                devices.join(" ")
            ));
        }
        if forgotten.settings > 0 {
            let settings = counted(forgotten.settings as u64, "setting");
            run.screen.say(&format!(
                "the register no longer has {settings} made with 'pinstripe array set'"
            ));
        }
        let facts = Event::default().with("name", &*self.name);
        Ok(Ending::done(facts.with("devices", forgotten.devices.len())))
    }
}
