//! A run to try the view and the lines on.

use seawall_load::clock::{Nanos, SECOND};
use seawall_load::interval::IntervalStats;
use seawall_load::interval_row::{LiveRowBuilder, LiveRowHistory, RunInfo, RunStatus};
use seawall_load::request_failure_reason::RequestFault;
use seawall_load::stats::{FinishedRequest, LoadStats};

use crate::attack::generator_pods::{AttackPodStatus, PodTracker};

pub(super) fn sample_run_info() -> RunInfo {
    RunInfo {
        target: "GET http://127.0.0.1:8080/token".to_owned(),
        load_description: "open loop at 1000/s".to_owned(),
        end: Some(60 * SECOND),
        max_requests: None,
        max_in_flight: 4096,
        is_open_loop: true,
        steerable: true,
        warm_up_end: 0,
    }
}

pub(super) fn sample_run_status(elapsed: Nanos) -> RunStatus {
    RunStatus { elapsed, in_flight: 12, connections: 64, ending: false }
}

/// The n-th second, in which 1000 were sent: 990 good, in waves of eight seconds; 6 timed out, 4 refused.
fn second(n: u64) -> IntervalStats {
    let mut stats = LoadStats { sent: 1000, ..LoadStats::default() };
    let mut finish = |outcome, end| {
        let (target, due, sent, first_byte) = (0, 0, Some(1_000), None);
        stats.record_finished(&FinishedRequest {
            target_index: target,
            outcome,
            due,
            sent_at: sent,
            first_response_byte_at: first_byte,
            end,
            bytes_in: 1,
            bytes_out: 0,
        });
    };
    (0..990).for_each(|i| finish(Ok(200), 100_000 + i * (1 + n % 8) * 1_000));
    (0..6).for_each(|_| finish(Err(RequestFault::Timeout), SECOND));
    (0..4).for_each(|_| finish(Ok(503), 50_000));
    (0..1000).for_each(|i| stats.send_lag.record(i * 20));
    IntervalStats { from: (n - 1) * SECOND, to: n * SECOND, stats }
}

/// So many pods at 12 s, of which the second is lost and the third late.
pub(super) fn sample_pod_tracker(many: usize) -> PodTracker {
    let row = |index| AttackPodStatus {
        index,
        name: format!("seawall-attack-x7k2w-{index}"),
        sent: 1200,
        good: 1188,
        response_time_p99: 5_030_000,
        generator_lag_p99: 19_800,
        reported_until: if index == 2 { 9 * SECOND } else { 12 * SECOND },
        lost_reason: (index == 1).then(|| "ended by signal 9, after 4.2s".to_owned()),
        ..AttackPodStatus::default()
    };
    PodTracker::from_rows((0..many).map(row).collect())
}

/// So many such seconds.
pub(super) fn sample_history(seconds: u64) -> LiveRowHistory {
    let (mut meter, mut history) = (LiveRowBuilder::default(), LiveRowHistory::default());
    (1..=seconds)
        .filter_map(|at| {
            meter.add_interval(&second(at), sample_run_status(at * SECOND), |at| Some(at / 1_000_000))
        })
        .for_each(|row| history.push(row));
    history
}
