//! The list of checks and the context of a check.

use std::time::{Duration, SystemTime};

use seawall_probe::HostFiles;

use crate::finding::DoctorFinding;
use crate::http_client::{ForbiddenFetcher, HttpFetcher, HttpUrl};
use crate::{cpu, dns, identity, ports, sidecar, sockets};

/// The view of the machine that a check gets.
pub struct CheckContext<'a> {
    /// The files of the machine, or those of a test.
    pub files: &'a dyn HostFiles,
    /// Waits for this time and returns the time that has passed.
    pub sleep: &'a dyn Fn(Duration) -> Duration,
    /// The monotonic time.
    pub now: &'a dyn Fn() -> Duration,
    /// The names from `--lookup`, which programs on this machine look up.
    pub names_to_look_up: &'a [String],
    /// The path of the resolver's configuration.
    pub resolv_conf_path: &'a str,
    /// The HTTP client.
    pub http_fetcher: &'a dyn HttpFetcher,
    /// The wall-clock time, for comparison with times that clouds report.
    pub wall: &'a dyn Fn() -> SystemTime,
    /// The environment variables of the programs on this machine.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Envoy's admin port, if the user named one.
    pub envoy_admin: Option<&'a HttpUrl>,
}

impl<'a> CheckContext<'a> {
    /// Returns a context for tests: time stands still, there are no names, and HTTP requests are forbidden.
    #[must_use]
    pub fn for_test(files: &'a dyn HostFiles) -> Self {
        Self {
            files,
            sleep: &|time| time,
            now: &|| Duration::ZERO,
            names_to_look_up: &[],
            resolv_conf_path: "/etc/resolv.conf",
            http_fetcher: &ForbiddenFetcher,
            wall: &|| SystemTime::UNIX_EPOCH,
            environment: &|_| None,
            envoy_admin: None,
        }
    }
}

/// A check that can run alone. It changes nothing and takes at most five seconds.
#[derive(Debug)]
pub struct DoctorCheck {
    /// The name of the check. The name of each finding starts with it.
    pub id: &'static str,
    /// The description in one line.
    pub about: &'static str,
    /// The names of the check's findings. Each run returns one finding per name, or one per looked-up name. If the first finding says that
    /// there is nothing to check, or that it is unknown, the run returns this finding alone.
    pub finding_ids: &'static [&'static str],
    /// Runs the check.
    pub(crate) examine: fn(&CheckContext) -> Vec<DoctorFinding>,
}

impl DoctorCheck {
    /// Runs the check and shortens the names in its findings.
    #[must_use]
    pub fn run(&self, site: &CheckContext) -> Vec<DoctorFinding> {
        (self.examine)(site).into_iter().map(DoctorFinding::bounded).collect()
    }
}

/// All checks in the order in which they run.
pub const ALL: &[DoctorCheck] =
    &[ports::CHECK, cpu::CHECK, sockets::CHECK, dns::CHECK, sidecar::CHECK, identity::CHECK];

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use seawall_probe::LocalFiles;
    use seawall_probe::file_reader::fake::Texts;

    use super::*;
    use crate::finding::DoctorStatus;

    /// Returns a context with one name to look up.
    fn nowhere() -> CheckContext<'static> {
        static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| vec!["a.example".to_owned()]);
        CheckContext { names_to_look_up: &NAMES, ..CheckContext::for_test(&LocalFiles) }
    }

    #[test]
    fn every_finding_has_a_name_of_its_own_that_its_check_begins() {
        let mut names: Vec<_> = ALL.iter().flat_map(|check| check.finding_ids).collect();
        for check in ALL {
            let begins = |name: &&str| name.strip_prefix(check.id).is_some_and(|rest| rest.starts_with('.'));
            assert!(check.finding_ids.iter().all(begins), "{}", check.id);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.iter().map(|check| check.finding_ids.len()).sum::<usize>());
    }

    /// A check that cannot read anything must not be ok.
    #[test]
    fn nothing_is_ok_on_a_machine_that_says_nothing_and_no_finding_is_left_out() {
        for check in ALL {
            let waited = Cell::new(Duration::ZERO);
            let wait = |time| {
                waited.set(waited.get() + time);
                time
            };
            let found = check.run(&CheckContext { files: &Texts::new(&[]), sleep: &wait, ..nowhere() });
            let names: Vec<_> = found.iter().map(|finding| finding.id).collect();
            // Checks that send requests report once that the requests are forbidden.
            let told = if ["sidecar", "identity"].contains(&check.id) { 1 } else { check.finding_ids.len() };
            assert_eq!(names, check.finding_ids[..told]);
            let told = found.iter().filter(|finding| finding.status != DoctorStatus::Unknown);
            assert_eq!(told.collect::<Vec<_>>(), Vec::<&DoctorFinding>::new());
            assert!(waited.get() <= Duration::from_secs(2), "{}", check.id);
        }
    }
}
