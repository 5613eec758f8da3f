//! One early line about a run in which no request gets a connection, such as a run to a closed port.
//!
//! The run goes on, because a server may be about to start. Without this line, a user of a long run learns of it from the summary.

use seawall_load::clock::SECOND;
use seawall_load::interval::IntervalStats;
use seawall_load::request_failure_reason::RequestFault;

/// Watches a run until a request gets a connection or the line is due.
#[derive(Debug, Default)]
pub(super) struct UnreachableWarning {
    failed: u64,
    example: Option<String>,
    is_decided: bool,
}

impl UnreachableWarning {
    /// Looks at the next interval. Returns the line once: after the first second, if no request had a connection by then.
    pub(super) fn check_interval(&mut self, interval: &IntervalStats) -> Option<String> {
        let stats = &interval.stats;
        self.is_decided |= stats.sent > 0;
        if self.is_decided {
            return None;
        }
        self.failed = self.failed.saturating_add(stats.no_connection);
        let is_unsent =
            |kind: &usize| RequestFault::NOT_ATTEMPTED.iter().all(|fault| fault.kind_index() != *kind);
        let mut kinds = (0..RequestFault::KIND_COUNT).filter(is_unsent);
        let example = kinds.find_map(|kind| stats.failure_examples[kind].as_ref());
        self.example = self.example.take().or_else(|| example.map(ToString::to_string));
        if self.failed == 0 || interval.to < SECOND {
            return None;
        }
        self.is_decided = true;
        let example = self.example.as_deref().unwrap_or_default();
        let failed = self.failed;
        Some(format!(
            "no connection so far; {failed} requests failed, such as {example}. The run goes on; --max-errors 10 ends such \
             a run early"
        ))
    }
}

#[cfg(test)]
mod tests {
    use seawall_load::stats::LoadStats;

    use super::*;

    fn interval(from: u64, to: u64, sent: u64, refused: u64) -> IntervalStats {
        let mut stats = LoadStats { sent, no_connection: refused, ..LoadStats::default() };
        if refused > 0 {
            let fault = RequestFault::Connect(std::io::ErrorKind::ConnectionRefused);
            stats.failure_examples[fault.kind_index()] = Some(fault.to_string().into());
        }
        IntervalStats { from: from * SECOND / 2, to: to * SECOND / 2, stats }
    }

    #[test]
    fn a_first_second_of_refused_connections_is_said_once() {
        let mut warning = UnreachableWarning::default();
        assert_eq!(warning.check_interval(&interval(0, 1, 0, 20)), None, "half a second");
        let said = warning.check_interval(&interval(1, 2, 0, 30)).unwrap();
        assert!(said.starts_with("no connection so far; 50 requests failed, such as connect: "), "{said}");
        assert_eq!(warning.check_interval(&interval(2, 3, 0, 30)), None, "said already");
    }

    #[test]
    fn a_run_with_a_connection_is_not_called_unreachable() {
        let mut warning = UnreachableWarning::default();
        assert_eq!(warning.check_interval(&interval(0, 2, 1, 99)), None);
        assert_eq!(warning.check_interval(&interval(2, 4, 0, 99)), None);
        assert_eq!(
            UnreachableWarning::default().check_interval(&interval(0, 2, 0, 0)),
            None,
            "nothing was due"
        );
    }
}
