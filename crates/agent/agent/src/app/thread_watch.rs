//! Watches the traffic threads: connects the server's watchdog with the redirect, the log, the metrics and the health pages.

use std::fmt;
use std::sync::Arc;

use anyhow::Context;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use seawall_core::Clock;
use seawall_identity::redirected_connections::RedirectHandle;
use seawall_observe::metrics::write::{collector_from_fn, write_gauge};
use seawall_server::time_at_limits::TimeAtLimitMeter;
use seawall_server::watchdog::{ThreadHeartbeat, ThreadState, TrafficThreadHealth, Watchdog};

use super::detected_cpu_and_memory::read_file_or_none;
use super::hang_history::HangHistory;
use crate::log::AgentLog;

/// The stack size of the watchdog's thread, in bytes. The thread needs most of the stack to format a log line.
const STACK: usize = 64 * 1024;

/// The heartbeats and the health of the traffic threads, and the inputs of their watchdog.
pub(super) struct ThreadWatch {
    pub(super) heartbeats: Vec<Arc<ThreadHeartbeat>>,
    pub(super) health: Arc<TrafficThreadHealth>,
    capacity: Arc<TimeAtLimitMeter>,
    hangs: Arc<HangHistory>,
}

impl ThreadWatch {
    pub(super) fn new(clock: &Clock, threads: usize, capacity: TimeAtLimitMeter, hangs: HangHistory) -> Self {
        Self {
            heartbeats: (0..threads).map(|_| Arc::default()).collect(),
            health: Arc::new(TrafficThreadHealth::new(clock.clone())),
            capacity: Arc::new(capacity),
            hangs: Arc::new(hangs),
        }
    }

    /// Starts the watchdog's thread. This thread ends when the last traffic thread has ended.
    ///
    /// # Errors
    /// The thread cannot start.
    pub(super) fn start_watchdog(
        self,
        redirect: Option<Arc<RedirectHandle>>,
        log: AgentLog,
    ) -> anyhow::Result<()> {
        let Self { heartbeats, health, capacity, hangs } = self;
        let watchdog = Watchdog {
            heartbeats,
            health,
            on_healthy_check: Box::new(redirect_heartbeat(redirect)),
            on_check: Box::new(move |span| capacity.count_time_at_limits(span)),
            on_hang: Box::new(move |hung| {
                hangs.record(&hung);
                tracing::error!(
                    thread = hung.number,
                    activity = hung.activity.name(),
                    state = %hung.kernel_state.letter,
                    "a traffic thread hangs; the agent aborts, so that the kubelet restarts the agent"
                );
                // This call waits only for a limited time, even if no program reads the log.
                log.flush_with_timeout();
            }),
            read_thread_state: |kernel_thread| {
                ThreadState::parse(&read_file_or_none(&format!("/proc/self/task/{kernel_thread}/stat"))?)
            },
        };
        let thread = std::thread::Builder::new().name("watchdog".into()).stack_size(STACK);
        thread.spawn(move || watchdog.run()).context("cannot start the watchdog's thread")?;
        Ok(())
    }

    /// Returns the collector of the metrics about hangs and used-up limits.
    pub(super) fn metrics_collector(&self) -> Box<dyn Collector> {
        let (capacity, hangs) = (self.capacity.clone(), self.hangs.clone());
        collector_from_fn(move |out| {
            let help = "Number of times in the last ten minutes that the agent ended itself because a traffic thread hung";
            write_gauge(out, "seawall_recent_hangs", help, hangs.recent_hang_count() as f64)?;
            write_capacity(&capacity, out)
        })
    }

    /// Returns a function that returns the warnings for the operator.
    pub(super) fn current_warnings_fn(&self) -> impl Fn() -> Vec<String> + Send + Sync + 'static {
        let (capacity, hangs) = (self.capacity.clone(), self.hangs.clone());
        move || capacity.warning().into_iter().chain(hangs.warning()).collect()
    }
}

fn write_capacity(capacity: &TimeAtLimitMeter, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Seconds during which pods were at a limit: `connections` (each new connection of such a pod ended after one answer) or `memory`";
    let mut family = out.encode_descriptor("seawall_at_capacity_seconds", help, None, MetricType::Counter)?;
    capacity.time_at_limits().try_for_each(|(limit, time)| {
        ConstCounter::new(time.as_secs_f64()).encode(family.encode_family(&[("limit", limit.name())])?)
    })
}

/// Returns a function that writes the heartbeat for the redirect's programs at every second call.
/// Without a redirect, the function does nothing. If several writes fail in a row, the function logs only the first failure.
fn redirect_heartbeat(redirect: Option<Arc<RedirectHandle>>) -> impl FnMut() + Send + 'static {
    let (mut is_due, mut has_failed) = (false, false);
    move || {
        is_due = !is_due;
        let Some(redirect) = redirect.as_ref().filter(|_| is_due) else { return };
        let result = redirect.write_heartbeat();
        if let Err(error) = &result
            && !has_failed
        {
            tracing::error!(%error, "cannot write the agent's heartbeat; the redirect refuses new connections of pods to this agent");
        }
        has_failed = result.is_err();
    }
}
