//! `pinstripe array probe`: measures whether two devices share a disk.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use pinstripe_array::{ProbeEffort, ProbeVerdict, Probed, probe_devices};
use pinstripe_base::error::Result;

use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;

/// Measure whether two devices are on the same disk; members of an array should be on different
/// disks
///
/// The probe compares the rate of random reads of each device alone with the rate of random reads
/// of both devices at the same time. Two partitions of one hard disk share its heads, so each
/// partition is read at only half of its rate if both are read at the same time. The information of
/// the operating system about the disks is shown as well. Nothing is written. Solid-state disks and
/// caches have no heads that move, so the measurement shows little about them; in this case, the
/// output contains a note.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array probe /dev/sdb /dev/sdc
  pinstripe array probe /dev/sdb1 /dev/sdb2 --rounds 15 --json")]
pub struct ArrayProbeArgs {
    /// Two or more files or disks; each pair of them is measured
    #[arg(value_name = "DEVICE", required = true, num_args = 2.., value_hint = ValueHint::FilePath)]
    devices: Vec<PathBuf>,

    /// Number of rounds, each of 0.9 seconds
    #[arg(long, value_name = "N", default_value_t = 7,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,

    /// Duration of each of the three parts of a round, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300, hide = true)]
    part: u64,
}

impl ArrayProbeArgs {
    /// Measures each pair.
    ///
    /// # Errors
    /// Fails with the errors of the devices.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let stop = signals::catch()?;
        let part = Duration::from_millis(self.part);
        let effort = ProbeEffort { rounds: self.rounds as usize, part, ..ProbeEffort::default() };
        let mut shared = 0;
        for (number, one) in self.devices.iter().enumerate() {
            for other in &self.devices[number + 1..] {
                let probed = probe_devices([one, other], effort, stop.as_flag())?;
                shared += u64::from(is_shared(&probed));
                run.screen.event(&Event::new("pair").with_fields(&probed))?;
                for line in lines(&probed) {
                    run.screen.row(&line)?;
                }
            }
        }
        Ok(Ending::done(Event::default().with("shared_pairs", shared)))
    }
}

fn is_shared(probed: &Probed) -> bool {
    probed.same_disk.is_some() || probed.verdict == ProbeVerdict::Shared
}

fn lines(probed: &Probed) -> Vec<String> {
    let [one, other] = [0, 1].map(|number| escape::path(&probed.devices[number]));
    let mut lines = vec![format!("{one} and {other}:")];
    lines.push(match &probed.same_disk {
        Some(disk) => format!("  the system reports that both devices are on {disk}"),
        None => "  the system does not report that both devices are on one disk".to_owned(),
    });
    let [low, high] = probed.kept_range.map(|share| share * 100.0);
    let [a, b] = probed.alone_reads_per_second;
    lines.push(format!(
        "  read alone: {a:.0} and {b:.0} reads/s; read at the same time: {:.0} % of these rates \
         (middle half of {} rounds: {low:.0} to {high:.0} %)",
        probed.kept * 100.0,
        probed.rounds
    ));
    lines.push(format!("  {}", verdict(probed)));
    lines
}

fn verdict(probed: &Probed) -> &'static str {
    match probed.verdict {
        _ if !probed.is_direct => {
            "no result, because reads of these devices cannot bypass the page cache"
        }
        _ if probed.has_no_arm => {
            "no result, because a read rate this high is reached only by memory, a cache or a \
             solid-state disk"
        }
        ProbeVerdict::Shared => {
            "the devices wait for each other, so they share a disk or the connection of a disk"
        }
        ProbeVerdict::Apart => {
            "the devices do not wait for each other, so they are on separate disks"
        }
        ProbeVerdict::Unclear => {
            "the rounds gave different results: try again while the disks are idle, with a larger \
             value of --rounds"
        }
    }
}
