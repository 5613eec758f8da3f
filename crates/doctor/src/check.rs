//! The list of checks, and what a check is given.

use std::time::{Duration, SystemTime};

use seawall_probe::HostFiles;

use crate::finding::DoctorFinding;
use crate::web::{ForbiddenFetcher, HttpFetcher, HttpUrl};
use crate::{cpu, dns, identity, ports, sidecar, sockets};

/// What a check looks at.
pub struct CheckContext<'a> {
    /// The machine, or that of a test.
    pub files: &'a dyn HostFiles,
    /// Lets so much time pass, and says how much it was.
    pub wait: &'a dyn Fn(Duration) -> Duration,
    /// The time on a clock that does not jump.
    pub now: &'a dyn Fn() -> Duration,
    /// Names that the programs here look up.
    pub names: &'a [String],
    /// Where the resolver's configuration is.
    pub resolv_conf: &'a str,
    /// Servers, as this machine reaches them.
    pub web: &'a dyn HttpFetcher,
    /// The time of day, for comparing with what clouds state.
    pub wall: &'a dyn Fn() -> SystemTime,
    /// Variables of the environment, as programs here find them.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Envoy's admin port, where it is named.
    pub envoy_admin: Option<&'a HttpUrl>,
}

impl<'a> CheckContext<'a> {
    /// A machine on which no time passes, nobody looks any name up, and no server may be asked.
    #[must_use]
    pub fn of(files: &'a dyn HostFiles) -> Self {
        Self {
            files,
            wait: &|time| time,
            now: &|| Duration::ZERO,
            names: &[],
            resolv_conf: "/etc/resolv.conf",
            web: &ForbiddenFetcher,
            wall: &|| SystemTime::UNIX_EPOCH,
            environment: &|_| None,
            envoy_admin: None,
        }
    }
}

/// One thing that can be looked into by itself. Changes nothing, and takes no more than five seconds.
#[derive(Debug)]
pub struct DoctorCheck {
    /// Its name, which begins the name of each finding.
    pub id: &'static str,
    /// What it looks at, in a line.
    pub about: &'static str,
    /// What it can find, by name; one finding of each is told at every look, and of names one for each of them. If the first says that there
    /// is nothing to look at, or that it could not be asked, it is told alone.
    pub findings: &'static [&'static str],
    /// Looks, and judges.
    pub(crate) examine: fn(&CheckContext) -> Vec<DoctorFinding>,
}

impl DoctorCheck {
    /// Looks, and judges. What others have named is bounded in all that is said.
    #[must_use]
    pub fn findings_of(&self, site: &CheckContext) -> Vec<DoctorFinding> {
        (self.examine)(site).into_iter().map(DoctorFinding::bounded).collect()
    }
}

/// All of them, in the order in which they are run.
pub const ALL: &[DoctorCheck] =
    &[ports::CHECK, cpu::CHECK, sockets::CHECK, dns::CHECK, sidecar::CHECK, identity::CHECK];

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use seawall_probe::LocalFiles;
    use seawall_probe::files::fake::Texts;

    use super::*;
    use crate::finding::DoctorStatus;

    /// A site with one name to look up.
    fn nowhere() -> CheckContext<'static> {
        static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| vec!["a.example".to_owned()]);
        CheckContext { names: &NAMES, ..CheckContext::of(&LocalFiles) }
    }

    #[test]
    fn every_finding_has_a_name_of_its_own_that_its_check_begins() {
        let mut names: Vec<_> = ALL.iter().flat_map(|check| check.findings).collect();
        for check in ALL {
            let begins = |name: &&str| name.strip_prefix(check.id).is_some_and(|rest| rest.starts_with('.'));
            assert!(check.findings.iter().all(begins), "{}", check.id);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.iter().map(|check| check.findings.len()).sum::<usize>());
    }

    /// A check that finds nothing to read must not be taken for one that finds nothing wrong.
    #[test]
    fn nothing_is_ok_on_a_machine_that_says_nothing_and_no_finding_is_left_out() {
        for check in ALL {
            let waited = Cell::new(Duration::ZERO);
            let wait = |time| {
                waited.set(waited.get() + time);
                time
            };
            let found =
                check.findings_of(&CheckContext { files: &Texts::new(&[]), wait: &wait, ..nowhere() });
            let names: Vec<_> = found.iter().map(|finding| finding.id).collect();
            // Those that ask servers say that nobody can be asked, and no more.
            let told = if ["sidecar", "identity"].contains(&check.id) { 1 } else { check.findings.len() };
            assert_eq!(names, check.findings[..told]);
            let told = found.iter().filter(|finding| finding.status != DoctorStatus::Unknown);
            assert_eq!(told.collect::<Vec<_>>(), Vec::<&DoctorFinding>::new());
            assert!(waited.get() <= Duration::from_secs(2), "{}", check.id);
        }
    }
}
