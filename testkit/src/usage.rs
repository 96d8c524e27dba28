//! CPU time and memory of processes, from `/proc`: known on Linux only.

use std::fs;
use std::ops::Sub;

use serde::Serialize;

/// CPU time and memory of processes, summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Usage {
    /// CPU seconds in user space.
    pub user_s: f64,
    /// CPU seconds in the kernel.
    pub system_s: f64,
    /// Resident memory now, bytes.
    pub rss: u64,
    /// The peak, bytes.
    pub peak_rss: u64,
}

impl Usage {
    /// The sum over these processes; `None` if one of them cannot be read.
    pub fn of(pids: impl IntoIterator<Item = u32>) -> Option<Usage> {
        pids.into_iter().try_fold(Usage::default(), |sum, pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let one = parse(&stat, &status, rustix::param::clock_ticks_per_second())?;
            Some(Usage {
                user_s: sum.user_s + one.user_s,
                system_s: sum.system_s + one.system_s,
                rss: sum.rss + one.rss,
                peak_rss: sum.peak_rss + one.peak_rss,
            })
        })
    }

    /// CPU seconds, user and kernel.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    /// CPU time for one of so many jobs, µs.
    pub fn cpu_us_each(&self, jobs: u64) -> f64 {
        self.cpu_s() * 1e6 / jobs.max(1) as f64
    }
}

/// The CPU time since `before`; the memory is the current one.
impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage {
            user_s: self.user_s - before.user_s,
            system_s: self.system_s - before.system_s,
            ..self
        }
    }
}

fn parse(stat: &str, status: &str, ticks_per_second: u64) -> Option<Usage> {
    // The name stands in parentheses and may contain any character, so parsing starts after the
    // last parenthesis.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<u64>().ok()? as f64 / ticks_per_second as f64);
    let (user_s, system_s) = (seconds()?, seconds()?);
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Usage { user_s, system_s, rss: bytes("VmRSS:")?, peak_rss: bytes("VmHWM:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 900 0 3 0 250 50 0 0 20 0 9 0 500 1 2";
        let status = "Name:\ta) b (c\nVmPeak:\t  99 kB\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n";
        let usage = parse(stat, status, 100).unwrap();
        assert_eq!(usage, Usage { user_s: 2.5, system_s: 0.5, rss: 1 << 20, peak_rss: 2 << 20 });
        assert_eq!(parse("7 (a) S 1", status, 100), None);
        assert_eq!(parse(stat, "", 100), None, "a zombie has no memory");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_known_and_no_other_number() {
        assert!(Usage::of([std::process::id()]).unwrap().rss > 0);
        assert_eq!(Usage::of([u32::MAX]), None);
    }
}
