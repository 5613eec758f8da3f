//! Measures how long clients have been at the agent's limits.
//!
//! At a limit, the agent still serves every client. But each new connection of a client at its share is a *guest*: it ends after
//! one answer ([`mod@crate::admission`]). Operators must see this state, because it costs latency and CPU time. A larger limit
//! ends this state. The meter counts the time, because a gauge could miss a short time at a limit between two scrapes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seawall_core::{Clock, Moment};

use crate::connection_permits::PermitCounter;
use crate::memory_levels::{MemoryGauge, MemoryLevel};
use crate::thread_metrics::ThreadMetrics;

/// The time for which the agent's status shows a warning after clients reached a limit.
const SHOWN: Duration = Duration::from_secs(60);

/// An agent-wide limit that clients can use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityLimit {
    /// A client had reached its share of connections, so its new connections were guests.
    Connections,
    /// The free memory was low, so new connections of clients with several connections were guests.
    Memory,
}

impl CapacityLimit {
    /// Every limit, for metrics.
    pub const ALL: [Self; 2] = [Self::Connections, Self::Memory];

    /// Returns the limit's name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Memory => "memory",
        }
    }
}

/// Counts the time at each limit. The watchdog's thread calls [`Self::count_time_at_limits`].
#[derive(Debug)]
pub struct TimeAtLimitMeter {
    clock: Clock,
    open_connections: Arc<PermitCounter>,
    guests: Arc<PermitCounter>,
    memory: Arc<dyn MemoryGauge>,
    threads: Vec<Arc<ThreadMetrics>>,
    /// The number of accepted guests at the last call of [`Self::count_time_at_limits`].
    accepted_guests: AtomicU64,
    reached: [ReachedLimit; CapacityLimit::ALL.len()],
}

#[derive(Debug, Default)]
struct ReachedLimit {
    millis: AtomicU64,
    /// The last time at which clients were at this limit, in nanoseconds of the clock. The value is 0 before the first such time.
    last: AtomicU64,
}

impl TimeAtLimitMeter {
    /// Returns a meter. `open_connections` and `guests` count the open connections and the open guests of all threads. `threads` has the
    /// metrics of each thread.
    pub fn new(
        clock: Clock,
        (open_connections, guests): (Arc<PermitCounter>, Arc<PermitCounter>),
        memory: Arc<dyn MemoryGauge>,
        threads: Vec<Arc<ThreadMetrics>>,
    ) -> Self {
        let (accepted_guests, reached) = Default::default();
        Self { clock, open_connections, guests, memory, threads, accepted_guests, reached }
    }

    /// Adds `span` to the counted time of each limit that clients have reached now. `span` is the time since the previous call.
    pub fn count_time_at_limits(&self, span: Duration) {
        let open = self.open_connections.open_count();
        let level = self.memory.level(open + self.guests.open_count());
        let guests = self
            .threads
            .iter()
            .map(|thread| thread.connection_metrics.guest_connections.load(Ordering::Relaxed))
            .sum();
        let is_crowded = self.accepted_guests.swap(guests, Ordering::Relaxed) != guests;
        let is_reached = [is_crowded, level >= MemoryLevel::FreeMemoryLow];
        let now = self.clock.now().as_nanos();
        for (reached, _) in self.reached.iter().zip(is_reached).filter(|(_, is_reached)| *is_reached) {
            let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
            reached.millis.fetch_add(span, Ordering::Relaxed);
            reached.last.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// Returns, for each limit, the total time since the start during which clients were at the limit.
    pub fn time_at_limits(&self) -> impl Iterator<Item = (CapacityLimit, Duration)> {
        let time = |reached: &ReachedLimit| Duration::from_millis(reached.millis.load(Ordering::Relaxed));
        CapacityLimit::ALL.into_iter().zip(self.reached.iter().map(time))
    }

    /// Returns a warning for the operator if clients reached a limit in the last minute.
    pub fn warning(&self) -> Option<String> {
        let now = self.clock.now();
        let is_recent = |reached: &ReachedLimit| {
            let last = reached.last.load(Ordering::Relaxed);
            last > 0 && now.since(Moment::from_nanos(last)) <= SHOWN
        };
        let all = CapacityLimit::ALL.into_iter().zip(&self.reached);
        let names: Vec<&str> =
            all.filter(|(_, reached)| is_recent(reached)).map(|(limit, _)| limit.name()).collect();
        (!names.is_empty()).then(|| {
            format!(
                "in the last minute, pods reached the agent's limit of {}: each new connection of such a pod ended after one answer. \
                 `status` lists the pods with the most connections. To allow more connections, raise the memory limit or limits.connections",
                names.join(" and ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_levels::UnlimitedMemory;

    #[derive(Debug)]
    struct LowMemory;

    impl MemoryGauge for LowMemory {
        fn level(&self, _: u32) -> MemoryLevel {
            MemoryLevel::FreeMemoryLow
        }
    }

    const LOOK: Duration = Duration::from_millis(250);

    #[test]
    fn the_time_with_guests_is_counted_and_shown_for_a_minute() {
        let (clock, hand) = Clock::manual();
        let threads = vec![Arc::new(ThreadMetrics::new(&[]))];
        let meter =
            TimeAtLimitMeter::new(clock, Default::default(), Arc::new(UnlimitedMemory), threads.clone());
        let time = || meter.time_at_limits().collect::<Vec<_>>();
        meter.count_time_at_limits(LOOK);
        assert_eq!((time()[0].1, meter.warning()), (Duration::ZERO, None));
        for _ in 0..2 {
            threads[0].connection_metrics.guest_connections.fetch_add(3, Ordering::Relaxed);
            meter.count_time_at_limits(LOOK);
        }
        assert_eq!(time(), [(CapacityLimit::Connections, LOOK * 2), (CapacityLimit::Memory, Duration::ZERO)]);
        let warning = meter.warning().unwrap();
        assert!(warning.contains("the agent's limit of connections:"), "{warning}");
        meter.count_time_at_limits(LOOK);
        assert_eq!(time()[0].1, LOOK * 2, "no further guest came");
        hand.advance(SHOWN + LOOK);
        assert_eq!(meter.warning(), None);
    }

    #[test]
    fn low_memory_is_a_limit_of_its_own() {
        let (clock, _hand) = Clock::manual();
        let meter = TimeAtLimitMeter::new(clock, Default::default(), Arc::new(LowMemory), Vec::new());
        meter.count_time_at_limits(LOOK);
        let time: Vec<_> = meter.time_at_limits().map(|(_, time)| time).collect();
        assert_eq!(time, [Duration::ZERO, LOOK]);
        assert!(meter.warning().unwrap().contains("the agent's limit of memory:"));
    }
}
