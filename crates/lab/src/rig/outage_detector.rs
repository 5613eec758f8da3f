//! Detects a target that is gone, from the last ended requests without a connection. These functions are pure.

use seawall_cause::observed_requests::ObservedOutcome;
use seawall_load::clock::{Nanos, SECOND};
use seawall_load::completed_request::CompletedRequest;

use super::experiment_conversion;

/// The time without any connection from which the target counts as gone. A cap that refuses connections lets others through
/// meanwhile.
const LONG: Nanos = 3 * SECOND / 10;
const ROW: u64 = 3;

/// The state of the detection.
#[derive(Debug, Default)]
pub(super) struct OutageDetector {
    /// The time when a request with a connection last ended.
    there: Nanos,
    /// The time when the last request without a connection ended.
    last: Nanos,
    /// The number of requests without a connection since then.
    row: u64,
}

impl OutageDetector {
    /// Records ended requests.
    pub(super) fn record(&mut self, fates: &[CompletedRequest]) {
        for fate in fates {
            if is_target_absent(experiment_conversion::observed_outcome(fate)) {
                self.row += 1;
                self.last = self.last.max(fate.end);
            } else {
                (self.row, self.there) = (0, self.there.max(fate.end));
            }
        }
    }

    /// Returns true if the target is gone.
    pub(super) fn is_target_down(&self) -> bool {
        self.row >= ROW && self.last.saturating_sub(self.there) >= LONG
    }
}

/// Returns true if an outcome shows that the target is gone. A connect that times out may wait for its turn; a refused or
/// silently closed connection does not.
fn is_target_absent(how: ObservedOutcome) -> bool {
    matches!(how, ObservedOutcome::ConnectionRefused | ObservedOutcome::Cut)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use seawall_load::request_failure_reason::RequestFault;

    use super::*;

    const REFUSED: Result<u16, RequestFault> = Err(RequestFault::Connect(ErrorKind::ConnectionRefused));

    /// Returns true if the target is gone after these outcomes, which are a tenth of a second apart.
    fn is_away(outcomes: &[Result<u16, RequestFault>]) -> bool {
        let fate = |(at, outcome): (Nanos, &Result<u16, RequestFault>)| {
            let end = at * SECOND / 10;
            CompletedRequest {
                target_index: 0,
                due: end,
                sent_at: Some(end),
                generator_lag: 0,
                end,
                outcome: *outcome,
                response_body_bytes: 0,
                retries: 0,
                connection_timings: None,
            }
        };
        let mut away = OutageDetector::default();
        away.record(&(1..).zip(outcomes).map(fate).collect::<Vec<_>>());
        away.is_target_down()
    }

    #[test]
    fn nobody_is_there_once_all_connections_are_refused_for_a_while() {
        assert!(is_away(&[Ok(200), REFUSED, REFUSED, REFUSED]));
        assert!(!is_away(&[Ok(200), REFUSED, REFUSED]), "too few, and too soon");
        assert!(is_away(&[REFUSED, REFUSED, REFUSED]), "from the begin on");
    }

    #[test]
    fn whoever_lets_some_through_or_refuses_with_an_answer_or_lets_them_wait_is_there() {
        assert!(!is_away(&[REFUSED, REFUSED, REFUSED, Ok(200), REFUSED]));
        assert!(!is_away(&[Ok(200), Ok(503), Ok(503), Ok(503), Ok(503), Ok(503)]));
        assert!(!is_away(&[
            Ok(200),
            Err(RequestFault::Timeout),
            Err(RequestFault::Timeout),
            Err(RequestFault::Timeout),
            Err(RequestFault::Timeout)
        ]));
        assert!(!is_away(&[]));
    }
}
