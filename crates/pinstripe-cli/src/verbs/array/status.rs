//! `pinstripe array status`: all arrays as `/proc/mdstat` shows them.

use pinstripe_array::{Detail, SlotDetail, SlotStateDetail, WorkDetail, look_at_array};
use pinstripe_base::error::Result;
use pinstripe_base::units::{KIB, counted};

use super::register::register;
use super::show;
use crate::escape;
use crate::event::Event;
use crate::exit;
use crate::run::{Ending, Run};

/// Show the registered arrays, in the form of /proc/mdstat
///
/// The line of an array shows its name, whether a process serves it, its level, and its devices
/// with their slots. (F) marks a failed device, (S) marks a spare, and (R) marks a device that is
/// being rebuilt or that will replace the member of its slot. [4/3] means that 3 of 4 members work;
/// [UUU_] shows for each slot whether its member works (U) or not (_).
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array status
  pinstripe array status pool --json")]
pub struct ArrayStatusArgs {
    /// Show only this array
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl ArrayStatusArgs {
    /// Shows them.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) for an unknown name.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        let names = match &self.name {
            Some(name) => vec![name.clone()],
            None => register.names()?,
        };
        let (mut shown, mut unusable, mut unreadable) = (0_u64, 0_u64, 0_u64);
        for name in &names {
            match look_at_array(name, &register) {
                Ok(found) => {
                    run.screen.event(&show::event(Event::new("array"), &found))?;
                    for line in lines(&found) {
                        run.screen.row(&line)?;
                    }
                    shown += 1;
                    unusable += u64::from(!found.is_usable);
                }
                Err(error) if self.name.is_some() => return Err(error),
                Err(error) => {
                    run.monitor.warning(name, error);
                    unreadable += 1;
                }
            }
        }
        if names.is_empty() {
            run.screen.say("no array is registered; see 'pinstripe array create --help'");
        }
        let code = if unreadable + unusable > 0 { exit::TOO_MANY_LOSSES } else { exit::DONE };
        let facts = Event::default().with("arrays", shown).with("unreadable", unreadable);
        Ok(Ending { code, facts })
    }
}

/// The ending of a verb with the state of the array; the summary has all details.
pub fn ending(run: &Run, array: &Detail) -> Ending {
    for line in lines(array) {
        run.screen.say(&line);
    }
    Ending::done(show::event(Event::default(), array))
}

/// The lines of `/proc/mdstat` about one array.
pub fn lines(array: &Detail) -> Vec<String> {
    let served = if array.served.is_some() { "active" } else { "inactive" };
    let members = array.slots.iter().flat_map(|slot| [member(slot), replacement(slot)]).flatten();
    let spares = array.spares.iter().map(|path| format!("{}(S)", escape::path(path)));
    let devices = members.chain(spares).collect::<Vec<_>>().join(" ");
    let mut lines = vec![format!("{} : {served} {} {devices}", array.name, array.level)];
    let chunk = match &*array.level {
        "raid1" => String::new(),
        _ => format!(", {}k chunk", array.chunk_bytes / KIB),
    };
    let layout = match &*array.layout {
        "default" => String::new(),
        layout => format!(", {layout}"),
    };
    let good = array.slots.len() - array.degraded();
    lines.push(format!(
        "      {} blocks{chunk}{layout} [{}/{good}] [{}]",
        array.capacity_bytes / KIB,
        array.slots.len(),
        array.picture()
    ));
    lines.extend(array.work.as_ref().map(|work| format!("      {}", progress(work))));
    lines.extend(redundancy(array).map(|why| format!("      {why}")));
    lines
}

/// The reason why an array cannot be used, or why it stays degraded.
fn redundancy(array: &Detail) -> Option<String> {
    let stays = "the array stays degraded";
    let degraded = array.degraded();
    if !array.is_usable {
        let missing = counted(degraded as u64, "member", "members");
        return Some(format!(
            "the array cannot be used, because {missing} are missing or outdated; attach the \
             missing devices"
        ));
    }
    if degraded == 0 || array.level == "raid0" {
        return None;
    }
    if array.metadata != "pinstripe" {
        return Some(format!(
            "{stays}, because this is an md array: manage its members with mdadm"
        ));
    }
    let is_filling = array.work.as_ref().is_some_and(|work| work.kind == "recover");
    let is_waiting = is_filling || !array.spares.is_empty();
    match (&array.served, is_waiting) {
        (Some(_), true) => None,
        (None, true) => Some(format!(
            "{stays}, because no process serves the array; to serve it, run 'pinstripe array serve \
             {}'",
            array.name
        )),
        (_, false) => Some(format!(
            "{stays}, because no device replaces {}; to add a device, run 'pinstripe array manage \
             {} --add DEVICE'",
            counted(degraded as u64, "missing member", "missing members"),
            array.name
        )),
    }
}

fn member(slot: &SlotDetail) -> Option<String> {
    let device = escape::path(slot.device.as_ref()?);
    let mark = match slot.state {
        SlotStateDetail::InSync => "",
        SlotStateDetail::Rebuilding => "(R)",
        SlotStateDetail::Failed => "(F)",
        SlotStateDetail::Missing => return None,
    };
    Some(format!("{device}[{}]{mark}", slot.slot))
}

fn replacement(slot: &SlotDetail) -> Option<String> {
    let device = slot.replacement.as_ref()?;
    Some(format!("{}[{}](R)", escape::path(device), slot.slot))
}

/// Formats the progress as `[==>.....] recovery = 12.6% (370/2929) finish=1.5min speed=33440K/sec`.
pub fn progress(work: &WorkDetail) -> String {
    const BAR: u64 = 20;
    let all = work.all_bytes.max(1);
    let full = (u128::from(work.done_bytes) * u128::from(BAR) / u128::from(all)) as usize;
    let full = full.min(BAR as usize);
    let bar = format!("{}>{}", "=".repeat(full), ".".repeat(BAR as usize - full));
    let share = 100.0 * work.done_bytes as f64 / all as f64;
    let line = format!(
        "[{bar}]  {} = {share:.1}% ({}/{})",
        // md's file has another word for this than its sync_action.
        if work.kind == "recover" { "recovery" } else { &work.kind },
        work.done_bytes / KIB,
        work.all_bytes / KIB
    );
    if work.bytes_per_second == 0 {
        return format!("{line} pending");
    }
    let left = work.all_bytes.saturating_sub(work.done_bytes) as f64;
    let minutes = left / work.bytes_per_second as f64 / 60.0;
    format!("{line} finish={minutes:.1}min speed={}K/sec", work.bytes_per_second / KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_looks_as_in_mdstat() {
        let work = WorkDetail {
            kind: "recover".into(),
            done_bytes: 37_043_392 << 10,
            all_bytes: 292_945_152 << 10,
            bytes_per_second: 33_440 << 10,
        };
        assert_eq!(
            progress(&work),
            "[==>..................]  recovery = 12.6% (37043392/292945152) finish=127.5min speed=33440K/sec"
        );
        let pending = WorkDetail { bytes_per_second: 0, done_bytes: 0, ..work };
        assert!(progress(&pending).ends_with("= 0.0% (0/292945152) pending"));
    }
}
