//! `pinstripe array set`: knobs by the names that md has in sysfs.

use pinstripe_array::{
    Knob, Request, check_knob_name, knob_values, look_at_array, reach_array, server_of,
};
use pinstripe_base::error::{Error, Kind, Result};

use super::register::register;
use super::{show, work};
use crate::event::Event;
use crate::run::{Ending, Run};

/// Show the knobs (settings) of an array, or change them while the array is in use
///
/// The knobs have the names that md uses in sysfs. The knob stripe_size is the granule (the size to
/// which small writes are widened): auto, or 4K to 1M. The knob stripe_cache_size is the number of
/// bytes that may wait to be written. The knob rmw_level determines when parity is updated by
/// read-modify-write: never (0), if it reads less data than reconstruct-write (1), or if it does
/// not read more data than reconstruct-write (2). The knobs sync_speed_min and sync_speed_max limit
/// the speed of a rebuild, resync, scrub or reshape on each member: a number of KiB per second, a
/// number with a unit, or max. The knob write_deadline is the number of milliseconds that a write
/// may wait for neighbouring writes. The knob sync_action starts a scrub (check), starts a scrub
/// that repairs (repair), or stops a scrub (idle). All other knobs are read-only.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array set pool
  pinstripe array set pool mismatch_cnt
  pinstripe array set pool stripe_size=16384 sync_speed_max=100M
  pinstripe array set pool stripe_size=auto")]
pub struct ArraySetArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,

    /// A knob to show (KNOB), or to set (KNOB=VALUE)
    #[arg(value_name = "KNOB[=VALUE]")]
    settings: Vec<String>,
}

impl ArraySetArgs {
    /// Sets the knobs that have a value, then shows the knobs that have none, or all if no knob is
    /// named.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for an unknown knob or an invalid value.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        let (set, shown): (Vec<_>, Vec<_>) = self.settings.iter().partition(|it| it.contains('='));
        let set: Vec<(&str, &str)> = set.iter().filter_map(|it| it.split_once('=')).collect();
        for (name, value) in &set {
            Knob::parse(name, value)?;
            if *name == "sync_action" && server_of(&self.name, &register)?.is_none() {
                return Err(Error::new(
                    Kind::Usage,
                    "the array is not served, so no check or repair of it is running",
                )
                .advice("check the array with 'pinstripe array scrub'"));
            }
        }
        if !set.is_empty() {
            let mut reached =
                reach_array(&self.name, &register, &run.common.device_faults()?, &run.monitor)?;
            let requests = set.iter().map(|(name, value)| {
                let (name, value) = ((*name).to_owned(), (*value).to_owned());
                Request::Set { name, value }
            });
            let done = work::ask_all(run, &mut reached, requests);
            reached.close()?;
            done?;
        }
        let mut facts = Event::default().with("set", set.len());
        if !shown.is_empty() || set.is_empty() {
            let values = knob_values(&look_at_array(&self.name, &register)?);
            shown.iter().try_for_each(|name| check_knob_name(name))?;
            let wanted = |name: &String| shown.is_empty() || shown.contains(&name);
            let lines: Vec<(&str, String)> = values
                .iter()
                .filter(|(name, _)| wanted(name))
                .map(|(name, value)| (&**name, value.clone()))
                .collect();
            match &shown[..] {
                [_] => run.screen.row(&lines[0].1)?,
                _ => {
                    for line in show::fields(&lines) {
                        run.screen.row(&line)?;
                    }
                }
            }
            let values: serde_json::Map<String, serde_json::Value> = lines
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone().into()))
                .collect();
            facts = facts.with("values", values);
        }
        Ok(Ending::done(facts))
    }
}
