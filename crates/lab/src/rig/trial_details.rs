//! Summarises a trial in addition to its blocks: the most frequent failure, and the response times of the other requests. These
//! functions are pure.

use std::time::Duration;

use seawall_load::request_failure_reason::{OutcomeClass, RequestFault};
use seawall_load::stats::LoadStats;
use seawall_search::observation::TrialDetails;

/// Summarises a load by its figures.
#[must_use]
pub fn summarize(total: &LoadStats) -> TrialDetails {
    TrialDetails { most_frequent_failure: failing(total), median_and_p99: quantiles(total) }
}

/// Returns the most frequent failure. Requests that were outstanding at the end were closed by this side and are not failures.
fn failing(total: &LoadStats) -> Option<(String, f64)> {
    let statuses =
        total.statuses.iter().filter(|(status, _)| OutcomeClass::of_status(*status) != OutcomeClass::Good);
    let answers = statuses.map(|(status, count)| (format!("status {status}"), count));
    // The text of an example names its request, so its index identifies the kind of failure.
    let kinds = total.failure_examples.iter().zip(total.failures).enumerate();
    let faults = kinds.filter(|(kind, _)| *kind != RequestFault::Aborted.kind_index()).filter_map(
        |(_, (example, count))| Some((example.as_ref().filter(|_| count > 0)?.to_string(), count)),
    );
    let ways: Vec<_> = answers.chain(faults).collect();
    let all: u64 = ways.iter().map(|(_, count)| count).sum();
    let (words, most) = ways.into_iter().max_by_key(|(_, count)| *count)?;
    Some((words, most as f64 / all as f64))
}

fn quantiles(total: &LoadStats) -> Option<[f64; 2]> {
    let response = &total.times_of_class(OutcomeClass::Good).response_time;
    let seconds = |quantile| Duration::from_nanos(response.quantile(quantile)).as_secs_f64();
    (response.count() > 0).then(|| [0.5, 0.99].map(seconds))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use seawall_load::stats::FinishedRequest;

    use super::*;

    fn ended(outcomes: &[Result<u16, RequestFault>]) -> LoadStats {
        let mut total = LoadStats::default();
        for (at, outcome) in (1..).zip(outcomes) {
            let end = 1_000_000 * at;
            total.record_finished(&FinishedRequest {
                target_index: 0,
                outcome: *outcome,
                due: 0,
                sent_at: Some(0),
                first_response_byte_at: None,
                end,
                bytes_in: 0,
                bytes_out: 0,
            });
        }
        total
    }

    #[test]
    fn the_commonest_failure_is_told_and_what_was_given_up_is_none() {
        let refused = RequestFault::Connect(ErrorKind::ConnectionRefused);
        let outcomes = [Ok(503), Err(refused), Ok(200), Err(refused), Err(refused)];
        assert_eq!(failing(&ended(&outcomes)), Some(("connect: connection refused".to_owned(), 0.75)));
        assert_eq!(
            failing(&ended(&[Ok(200), Ok(404), Err(RequestFault::Aborted)])),
            Some(("status 404".to_owned(), 1.0))
        );
        let mut aborted = ended(&[Ok(200), Err(RequestFault::Aborted)]);
        assert_eq!(failing(&aborted), None);
        let named = format!("GET http://127.0.0.1/: {}", RequestFault::Aborted);
        aborted.failure_examples[RequestFault::Aborted.kind_index()] = Some(named.into());
        assert_eq!(failing(&aborted), None, "a load names the request of the failure");
    }

    #[test]
    fn response_times_are_those_of_good_answers() {
        let [median, slow] = quantiles(&ended(&[Ok(200), Ok(200), Ok(200), Ok(503)])).unwrap();
        assert!((median - 0.002).abs() < 1e-4 && (slow - 0.003).abs() < 1e-4, "{median} {slow}");
        assert_eq!(quantiles(&ended(&[Ok(503)])), None);
    }
}
