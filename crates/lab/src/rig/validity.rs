//! The reasons why a load is invalid, in words.
//!
//! A [`Judgement`] says when this machine was the limit of an attack, whose reader also sees the send lag. A search sees only
//! blocks, so a lag that distorts them counts against the load here.

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::time::Duration;

use seawall_load::request_failure_reason::RequestFault;
use seawall_load::stats::LoadStats;
use seawall_search::observation::BLOCK_SECONDS;

use crate::generator_verdict::GeneratorVerdict;
use crate::trial_judgement::Judgement;
use seawall_probe::generator::{SOCKETS_CHECK, TIME_WAIT_SECONDS};

/// The largest valid lag, as a share of the longest wanted response time and of a block, which is the resolution of growth. If 1
/// % of the requests are sent later, the late responses and the requests in flight say more about this machine than about the
/// target.
const LAG: (f64, f64) = (0.25, 1.0);
/// The smallest lag that can make a load invalid.
pub(super) const MIN_LAG_LIMIT: Duration = Duration::from_millis(1);

/// The limits on this machine within which a load is valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct ValidityLimits {
    /// The largest valid lag.
    lag: Duration,
    /// The requests in flight for which there are descriptors; none if the number does not matter.
    room: Option<u64>,
}

impl ValidityLimits {
    /// Creates the limits for a load in which responses are late after this bound.
    pub(super) fn new(bound: Option<Duration>, room: Option<u64>) -> Self {
        let block = Duration::from_secs_f64(LAG.1 * BLOCK_SECONDS);
        let lag = bound.map_or(block, |bound| bound.mul_f64(LAG.0).min(block));
        Self { lag: lag.max(MIN_LAG_LIMIT), room }
    }

    /// Returns the reasons why these figures are invalid, apart from [`ValidityLimits::delay_reason`]; none if they are valid.
    /// [`port_shortage`] or the inquiry reports requests without a port.
    pub(super) fn invalid_reason(
        self,
        judgement: &Judgement,
        total: &LoadStats,
        no_port: u64,
    ) -> Option<String> {
        let ports_alone = total.fault_count(RequestFault::Local(ErrorKind::Other)) <= no_port;
        let limiting =
            judgement.reasons.iter().filter(|reason| reason.verdict == GeneratorVerdict::GeneratorLimited);
        let others = limiting.filter(|reason| !(ports_alone && reason.check == SOCKETS_CHECK.id));
        let measured = others.map(|reason| reason.measured.clone());
        join_reasons(measured.chain(self.crowded(total)))
    }

    /// Returns how late this machine was, if that distorts the measurement.
    pub(super) fn delay_reason(self, total: &LoadStats) -> Option<String> {
        let lag = Duration::from_nanos(total.generator_lag.quantile(0.99));
        let allowed = self.lag;
        (lag > allowed).then(|| {
            format!("this machine sent 1 % of the requests {lag:.1?} or more after their scheduled time; the limit is {allowed:.1?}")
        })
    }

    fn crowded(self, total: &LoadStats) -> Option<String> {
        let peak = total.in_flight_peak;
        let room = self.room.filter(|room| peak > *room)?;
        Some(format!(
            "{peak} requests in flight exceed the {room} connections that the open-files limit allows"
        ))
    }
}

/// The share of requests without a port above which the load is invalid, as for the sockets check of `seawall_probe`.
const LACK: f64 = 0.01;

/// Returns the reason why a lack of ports makes a trial invalid. `fails` means that the trial is bad by its errors; then one
/// request without a port is too many.
pub(super) fn port_shortage(
    no_port: u64,
    requests: u64,
    fails: bool,
    range: Option<RangeInclusive<u16>>,
) -> Option<String> {
    (no_port > 0 && (fails || no_port as f64 > LACK * requests as f64)).then(|| {
        let range = range.map_or_else(String::new, |range| {
            let lasting = range.len() as f64 / TIME_WAIT_SECONDS;
            let (first, last) = range.into_inner();
            format!(" (the ephemeral ports {first}-{last} suffice for {lasting:.0} new connections/s to one destination)")
        });
        format!("{no_port} requests found no free local port{range}")
    })
}

/// Joins all reasons into one; none without reasons.
pub(super) fn join_reasons(reasons: impl IntoIterator<Item = String>) -> Option<String> {
    let reasons: Vec<_> = reasons.into_iter().collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use seawall_load::stats::FinishedRequest;

    use super::*;
    use crate::generator_verdict::VerdictReason;

    fn judged(verdict: GeneratorVerdict) -> Judgement {
        Judgement::from_reasons(vec![VerdictReason::new("a check", verdict, "what was measured".into())])
    }

    fn against(limits: ValidityLimits, total: &LoadStats) -> Option<String> {
        limits.invalid_reason(&judged(GeneratorVerdict::Valid), total, 0).or(limits.delay_reason(total))
    }

    #[test]
    fn what_limited_the_generator_is_said_and_what_only_coloured_its_figures_is_not() {
        let limits = ValidityLimits::new(None, None);
        let of = |verdict| limits.invalid_reason(&judged(verdict), &LoadStats::default(), 0);
        assert_eq!(of(GeneratorVerdict::GeneratorLimited).as_deref(), Some("what was measured"));
        assert_eq!([of(GeneratorVerdict::Degraded), of(GeneratorVerdict::Valid)], [None, None]);
    }

    #[test]
    fn ports_that_were_missing_are_not_the_machines_word_on_sockets_and_files_are() {
        let reason =
            VerdictReason::new(SOCKETS_CHECK.id, GeneratorVerdict::GeneratorLimited, "no sockets".into());
        let judgement = Judgement::from_reasons(vec![reason]);
        let of = |no_port| {
            let mut total = LoadStats::default();
            for _ in 0..3 {
                total.record_finished(&finished(RequestFault::Local(ErrorKind::AddrNotAvailable)));
            }
            ValidityLimits::new(None, None).invalid_reason(&judgement, &total, no_port)
        };
        assert_eq!((of(3), of(2).as_deref()), (None, Some("no sockets")));
    }

    fn finished(fault: RequestFault) -> FinishedRequest {
        FinishedRequest {
            target_index: 0,
            outcome: Err(fault),
            due: 0,
            sent_at: None,
            first_response_byte_at: None,
            end: 1,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    #[test]
    fn a_trial_without_ports_says_so_with_how_many_there_are() {
        let said = port_shortage(40, 100, false, Some(20_000..=20_599)).unwrap();
        assert!(
            said.starts_with(
                "40 requests found no free local port (the ephemeral ports 20000-20599 suffice for"
            ),
            "{said}"
        );
        assert!(said.contains("suffice for 10 new"), "{said}");
        assert_eq!(
            port_shortage(40, 100, false, None).as_deref(),
            Some("40 requests found no free local port")
        );
        let said = |no_port, fails| port_shortage(no_port, 1000, fails, None).is_some();
        assert_eq!(
            [said(10, false), said(11, false), said(1, true), said(0, true)],
            [false, true, true, false]
        );
    }

    #[test]
    fn lag_counts_when_it_is_much_of_what_is_measured() {
        let mut total = LoadStats::default();
        total.generator_lag.record(5_000_000);
        let bound = |ms| ValidityLimits::new(Some(Duration::from_millis(ms)), None);
        assert_eq!(against(bound(250), &total), None);
        assert_eq!(against(ValidityLimits::new(None, None), &total), None);
        assert!(against(bound(15), &total).is_some_and(|why| why.contains("5.0ms")));
        total.generator_lag.record(70_000_000);
        assert!(against(ValidityLimits::new(None, None), &total).is_some());
    }

    #[test]
    fn who_has_no_descriptors_left_has_not_found_the_targets_limit() {
        let total = LoadStats { in_flight_peak: 400, ..LoadStats::default() };
        assert!(
            against(ValidityLimits::new(None, Some(399)), &total)
                .is_some_and(|why| why.contains("open-files limit"))
        );
        assert_eq!(
            [Some(400), None].map(|room| against(ValidityLimits::new(None, room), &total)),
            [None, None]
        );
    }
}
