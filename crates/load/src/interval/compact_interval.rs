//! An interval as a short line of JSON: exact counts, and latencies as precise as the space allows.
//!
//! A pod may write a few kilobytes a second, and latencies with three significant digits alone take three times as much. So an
//! interval has three digits if they fit, else two, one, or none; with none, a time is known to a factor of two. Counts, sums,
//! smallest and largest values are always exact. [`IntervalStats`] reads either form, so the figures of many generators add up to
//! every request.

use serde::{Deserialize, Serialize};

use super::IntervalStats;
use crate::clock::Nanos;
use crate::duration_json::Nanoseconds;
use crate::stats::LoadStats;

/// The maximum number of significant digits of a latency.
const MOST_DIGITS: u8 = 3;

/// An [`IntervalStats`] in a short form. Read it as an [`IntervalStats`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CompactInterval {
    #[serde(rename = "start_seconds", with = "crate::duration_json")]
    from: Nanos,
    #[serde(rename = "end_seconds", with = "crate::duration_json")]
    to: Nanos,
    significant_digits: u8,
    packed_stats: String,
}

impl CompactInterval {
    /// Compacts an interval with the most significant digits that fit into `bytes` bytes of JSON. Returns `None` if even the
    /// coarsest form does not fit; a later attempt [together with the next interval](IntervalStats::append_next_interval) may fit.
    #[must_use]
    pub fn compacted_to_fit(interval: &IntervalStats, bytes: usize) -> Option<Self> {
        (0..=MOST_DIGITS).rev().map(|digits| Self::of(interval, digits)).find(|brief| brief.len() <= bytes)
    }

    /// Compacts an interval with this number of significant digits, at most three.
    fn of(interval: &IntervalStats, digits: u8) -> Self {
        let IntervalStats { from, to, stats } = interval;
        Self { from: *from, to: *to, significant_digits: digits, packed_stats: stats.packed(digits) }
    }

    /// Keeps the whole interval, as precise as it was measured.
    #[must_use]
    pub fn exact(interval: &IntervalStats) -> Self {
        Self::of(interval, MOST_DIGITS)
    }

    /// Returns the significant digits of its latencies.
    #[must_use]
    pub fn significant_digits(&self) -> u8 {
        self.significant_digits
    }

    /// Returns the number of its bytes as JSON.
    fn len(&self) -> usize {
        let Self { from, to, packed_stats, .. } = self;
        r#"{"start_seconds":,"end_seconds":,"significant_digits":0,"packed_stats":""}"#.len()
            + from.to_json().len()
            + to.to_json().len()
            + packed_stats.len()
    }
}

/// An interval as JSON: with all figures spelled out, or compact.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IntervalJson {
    #[serde(rename = "start_seconds", with = "crate::duration_json")]
    from: Nanos,
    #[serde(rename = "end_seconds", with = "crate::duration_json")]
    to: Nanos,
    stats: Option<LoadStats>,
    significant_digits: Option<u8>,
    packed_stats: Option<String>,
}

impl TryFrom<IntervalJson> for IntervalStats {
    type Error = &'static str;

    fn try_from(told: IntervalJson) -> Result<Self, Self::Error> {
        let IntervalJson { from, to, stats, significant_digits, packed_stats } = told;
        let stats = match (stats, significant_digits, packed_stats) {
            (Some(stats), None, None) => Some(stats),
            (None, Some(digits @ 0..=MOST_DIGITS), Some(packed)) => LoadStats::unpacked(&packed, digits),
            _ => None,
        };
        stats.map(|stats| Self { from, to, stats }).ok_or("the numbers of the interval contradict each other")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::SECOND;
    use crate::request_failure_reason::{OutcomeClass, RequestFault, WrongAnswer};
    use crate::stats::{FinishedRequest, LatencyHistogram};

    /// The space for one interval in a pod's line for a second, without the text around the interval.
    const ROOM: usize = 4096 - 256;

    /// Returns a request whose times are spread over this number of octaves from a microsecond on.
    fn finished(random: &mut fastrand::Rng, octaves: u32) -> FinishedRequest {
        let mut took = || 1000 * (1 << random.u32(..octaves.max(1))) + random.u64(..1000);
        let (wait, first, body) = (took(), took(), took());
        let faults = [
            RequestFault::Timeout,
            RequestFault::ClosedEarly,
            RequestFault::Truncated,
            RequestFault::NoConnection,
            RequestFault::Dropped,
            RequestFault::WrongAnswer(WrongAnswer::Grpc(14)),
        ];
        let outcome = match random.u32(..10) {
            0 => Err(faults[random.usize(..faults.len())]),
            1 => Ok(random.u16(300..340)),
            _ => Ok(200),
        };
        let was_sent = outcome.err().is_none_or(RequestFault::was_attempted);
        FinishedRequest {
            target_index: 0,
            outcome,
            due: SECOND,
            sent_at: was_sent.then_some(SECOND + wait),
            first_response_byte_at: outcome.is_ok().then_some(SECOND + wait + first),
            end: SECOND + wait + first + body,
            bytes_in: random.u64(..100_000),
            bytes_out: 7,
        }
    }

    fn interval(seed: u64, hits: u64, octaves: u32) -> IntervalStats {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut stats =
            LoadStats { in_flight_peak: seed >> 40, output_blocked_time: seed >> 30, ..LoadStats::default() };
        for _ in 0..hits {
            let one = finished(&mut random, octaves);
            if let Err(RequestFault::WrongAnswer(_)) = one.outcome {
                let (status, reason) =
                    if random.bool() { (200, "body lacks \"ok\"") } else { (204, "status is not 200") };
                stats.record_wrong_answer(status, reason);
            }
            stats.record_finished(&one);
            let Some(sent) = one.sent_at else { continue };
            stats.sent += 1;
            stats.send_lag.record(sent - one.due);
            stats.generator_lag.record((sent - one.due) / 3);
            stats.write.record((sent - one.due) / 2);
            if random.u32(..3) == 0 {
                stats.connect.record(one.end - sent);
                stats.tls.record((one.end - sent) * 2);
            }
        }
        IntervalStats { from: 7 * SECOND, to: 8 * SECOND, stats }
    }

    fn histograms(stats: &LoadStats) -> Vec<LatencyHistogram> {
        let LoadStats { send_lag, generator_lag, write, first_byte, body, connect, tls, .. } = stats;
        let all = [send_lag, generator_lag, write, first_byte, body, connect, tls].into_iter().cloned();
        let classes = OutcomeClass::ALL.map(|class| stats.times_of_class(class));
        let classes =
            classes.into_iter().flat_map(|times| [times.service_time.clone(), times.response_time.clone()]);
        all.chain(classes).collect()
    }

    /// Returns the parts that are exact however coarse an interval is.
    #[expect(clippy::type_complexity, reason = "it is only compared")]
    fn exact(
        stats: &LoadStats,
    ) -> (Vec<(u64, i128, u64, u64)>, Vec<(u16, u64)>, [u64; RequestFault::KIND_COUNT], Vec<u64>) {
        let times = |one: &LatencyHistogram| (one.count(), one.distribution().sum(), one.min(), one.max());
        let LoadStats {
            sent,
            completed,
            bytes_in,
            bytes_out,
            in_flight_peak,
            output_blocked_time: output_blocked,
            ..
        } = *stats;
        (
            histograms(stats).iter().map(times).collect(),
            stats.statuses.iter().chain(stats.wrong_answer_statuses.iter()).collect(),
            stats.failures,
            stats
                .wrong_answers
                .iter()
                .map(|(_, count)| count)
                .chain([sent, completed, bytes_in, bytes_out, in_flight_peak, output_blocked])
                .collect(),
        )
    }

    fn read(brief: &CompactInterval) -> IntervalStats {
        let line = serde_json::to_string(brief).unwrap();
        assert_eq!(line.len(), brief.len());
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn with_three_digits_all_of_an_interval_returns() {
        for hits in [0, 1, 3000] {
            let whole = interval(3, hits, 20);
            assert_eq!(read(&CompactInterval::exact(&whole)), whole);
        }
    }

    #[test]
    fn quantiles_are_never_understated_and_overstated_by_no_more_than_the_digits() {
        let whole = interval(5, 5000, 20);
        for (digits, error) in [(3, 0.001), (2, 0.01), (1, 0.0625), (0, 1.0)] {
            let brief = read(&CompactInterval::of(&whole, digits));
            for (coarse, fine) in histograms(&brief.stats).iter().zip(histograms(&whole.stats)) {
                for q in [0.0, 0.01, 0.5, 0.99, 1.0] {
                    let (coarse, fine) = (coarse.quantile(q), fine.quantile(q));
                    let most = (fine as f64 * (1.0 + error)).ceil() as u64;
                    assert!(
                        (fine..=most).contains(&coarse),
                        "{digits} digits, p{q}: {fine} told as {coarse}"
                    );
                }
            }
        }
    }

    #[test]
    fn figures_that_do_not_fit_together_are_refused() {
        let good = serde_json::to_string(&CompactInterval::of(&interval(1, 100, 5), 2)).unwrap();
        assert!(serde_json::from_str::<IntervalStats>(&good).is_ok());
        for (told, other) in [
            ("\"significant_digits\":2", "\"significant_digits\":4"),
            ("\"significant_digits\":2", "\"stats\":null"),
        ] {
            assert!(serde_json::from_str::<IntervalStats>(&good.replace(told, other)).is_err(), "{other}");
        }
        let CompactInterval { packed_stats: packed, .. } = CompactInterval::of(&interval(1, 100, 5), 2);
        for cut in 0..packed.len() {
            assert!(LoadStats::unpacked(&packed[..cut], 2).is_none());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn any_interval_fits_into_what_a_pod_may_write_and_loses_no_count(
            seed: u64,
            hits in prop_oneof![0..500_u64, 500..40_000_u64],
            octaves in 1..34_u32,
        ) {
            let whole = interval(seed, hits, octaves);
            let brief = CompactInterval::compacted_to_fit(&whole, ROOM).expect("it fits");
            let read = read(&brief);
            prop_assert_eq!(exact(&read.stats), exact(&whole.stats));
            let spelled = serde_json::to_string(&read).unwrap();
            prop_assert_eq!(serde_json::from_str::<IntervalStats>(&spelled).unwrap(), read.clone(), "it can be written down again");

            // The sum is correct whatever the number of digits of each interval is.
            let mut sum = read;
            let other = interval(!seed, 300, 20);
            sum.stats.merge_concurrent(&IntervalStats::try_from(told(&CompactInterval::of(&other, 1))).unwrap().stats);
            let mut expected = whole.stats;
            expected.merge_concurrent(&other.stats);
            prop_assert_eq!(exact(&sum.stats), exact(&expected));
        }
    }

    fn told(brief: &CompactInterval) -> IntervalJson {
        serde_json::from_value(serde_json::to_value(brief).unwrap()).unwrap()
    }
}
