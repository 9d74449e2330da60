//! The other activity of the machine during a run: it decides which runs are void, before their
//! figures are examined.

use std::fs;

/// The greatest share of all processors' time that a hypervisor may take in a valid run; the lab's
/// limit.
const STEAL_PERCENT: f64 = 2.0;
/// The same for programs of others.
const OTHERS_PERCENT: f64 = 20.0;

/// Counters of the kernel at one moment, in ticks.
#[derive(Clone, Copy, Default)]
pub struct Ticks {
    all: u64,
    stolen: u64,
    /// In programs, not in the kernel, whose own threads write back what we wrote.
    of_programs: u64,
    own: u64,
}

/// Shares of the time of all processors, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OtherLoad {
    pub steal: f64,
    pub others: f64,
}

impl Ticks {
    /// Now.
    pub fn now() -> Ticks {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Ticks::of(&stat, &own).unwrap_or_default()
    }

    fn of(stat: &str, own: &str) -> Option<Ticks> {
        let line = stat.lines().find_map(|it| it.strip_prefix("cpu "))?;
        let fields: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; the time of guests is in user already.
        let [user, nice, .., stolen] = *fields.get(..8)? else { return None };
        // Behind the name, which may have blanks, utime is the 12th field.
        let own = own.rsplit_once(") ")?.1.split_whitespace().nth(11)?.parse().ok()?;
        Some(Ticks { all: fields[..8].iter().sum(), stolen, of_programs: user + nice, own })
    }

    /// The load of other processes since then.
    pub fn beside(self, now: Ticks) -> OtherLoad {
        let percent =
            |ticks: u64| 100.0 * ticks as f64 / now.all.saturating_sub(self.all).max(1) as f64;
        let (programs, own) = (now.of_programs - self.of_programs, now.own - self.own);
        OtherLoad {
            steal: percent(now.stolen - self.stolen),
            others: percent(programs.saturating_sub(own)),
        }
    }
}

impl OtherLoad {
    /// Whether so much else happened that the run says nothing.
    pub fn is_void(self) -> bool {
        self.steal > STEAL_PERCENT || self.others > OTHERS_PERCENT
    }
}

/// The most memory that this process had since [`forget_peak`], in bytes; `None` if the kernel does
/// not report it.
pub fn peak_bytes() -> Option<u64> {
    of_status(&status()?, "VmHWM:")
}

/// The memory that this process has.
pub fn resident_bytes() -> Option<u64> {
    of_status(&status()?, "VmRSS:")
}

/// Has the kernel begin anew with the most memory (proc(5), clear_refs).
pub fn forget_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

fn status() -> Option<String> {
    fs::read_to_string("/proc/self/status").ok()
}

fn of_status(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|it| it.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|it| it << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_beside_others_are_void_and_the_kernel_s_own_work_is_not_that_of_others() {
        let own = |ticks: u64| format!("7 (a b) c) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 9 0 0");
        let before = Ticks::of("cpu  100 0 100 800 0 0 0 0 0 0\n", &own(50)).unwrap();
        let after = |stat: &str, ticks| Ticks::of(stat, &own(ticks)).unwrap();
        // 1000 ticks more: 300 of programs, of which 250 are ours; 600 of the kernel.
        let found = before.beside(after("cpu  400 0 700 890 0 0 0 10 0 0\n", 300));
        assert_eq!(found, OtherLoad { steal: 1.0, others: 5.0 });
        assert!(!found.is_void());
        assert!(before.beside(after("cpu  400 0 600 890 0 0 0 110 0 0\n", 300)).is_void());
        assert!(before.beside(after("cpu  600 0 500 890 0 0 0 10 0 0\n", 300)).is_void());
    }

    /// Tests beside this one have the peak forgotten: the two are not compared.
    #[test]
    fn memory_is_told_in_bytes() {
        let of = |name| of_status("Name:\tVmRSS\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n", name);
        assert_eq!(
            (of("VmHWM:"), of("VmRSS:"), of("VmPeak:")),
            (Some(2 << 20), Some(1 << 20), None)
        );
        assert!(peak_bytes() > Some(1 << 20) && resident_bytes() > Some(1 << 20));
    }
}
