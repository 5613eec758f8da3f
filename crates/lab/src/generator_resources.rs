//! The resources of this machine for sending: file descriptors, and cores that no other process needs.
//!
//! This module decides how much of the resources a load gets. The tool calls it for an attack, and [`crate::rig`] calls it for a
//! search.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seawall_load::plan::TransportOptions;
use seawall_load::request_source::RequestSource;

use seawall_probe::{LocalFiles, MachineSnapshot};

/// The number of descriptors that are not connections: standard streams, pollers, files and lookups.
pub const RESERVED_DESCRIPTORS: u64 = 64;

/// The most requests in flight. The limit keeps their memory below a gigabyte.
pub const MOST_IN_FLIGHT: u64 = 1 << 20;

/// The requests per second that one thread sends while it is half idle. On two cores, a second thread takes the core of the
/// target: at 50,000/s the median was 0.23 ms with two threads and 0.03 ms with one.
const RATE_PER_THREAD: f64 = 50_000.0;

/// The longest busy-polled wait. A sleep on a virtual machine ends some 50 µs late, because an interrupt must wake a halted core.
const SPIN: Duration = Duration::from_micros(100);

/// The number of hosts, and the number of requests that one connection can carry at once.
#[derive(Debug, Clone, Copy)]
pub struct HostsAndStreams {
    /// The number of hosts, if it is known.
    hosts: Option<u64>,
    /// The number of requests that one connection can carry at once.
    streams: u64,
}

impl HostsAndStreams {
    /// Plans the connections for a source of requests. For targets that are read later, it assumes one connection per request
    /// unless the requests in flight are bounded.
    #[must_use]
    pub fn of(source: &RequestSource, travel: &TransportOptions, is_bounded: bool) -> Self {
        let (hosts, several) = match source {
            RequestSource::List(list) => {
                let origins: BTreeSet<_> = list.requests().iter().map(|request| request.origin()).collect();
                (Some(origins.len() as u64), origins.iter().any(|origin| travel.multiplexes(origin)))
            }
            RequestSource::Lazy(_) => {
                (None, is_bounded && (travel.http2.over_tls || travel.http2.prior_knowledge))
            }
        };
        Self { hosts, streams: if several { travel.http2.max_streams as u64 } else { 1 } }
    }

    /// Returns true if some connections can carry several requests at once.
    #[must_use]
    pub fn is_multiplexed(self) -> bool {
        self.streams != 1
    }

    /// Returns the most requests in flight, and the most connections per host, that this many descriptors allow. A server may
    /// turn out not to support streams. Then its requests wait for a connection instead of opening one each.
    #[must_use]
    pub fn limits_for_descriptors(self, room: u64, connections: u64) -> (u64, u64) {
        let each = (room / self.hosts.unwrap_or(1).max(1)).max(1);
        let connections = if self.streams == 1 { connections } else { connections.min(each) };
        let all = room.min(connections.saturating_mul(self.hosts.unwrap_or(u64::MAX)));
        (all.saturating_mul(self.streams), connections)
    }
}

/// Raises the soft limit of open files to the hard limit, as Go does at start, and returns the new limit.
///
/// # Errors
/// The error of the system.
pub fn raise_open_files() -> std::io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(maximum.unwrap_or(u64::from(u32::MAX)))
}

/// Returns the number of threads for a rate in requests per second. More threads would only take cores from the target and add
/// wake-ups.
#[must_use]
pub fn sender_threads(rate: f64, cpus: usize) -> usize {
    ((rate / RATE_PER_THREAD).ceil() as usize).clamp(1, cpus.max(1))
}

/// Returns the longest wait that this many threads may busy-poll. Threads may busy-poll if each has its own core and no quota
/// limits their CPU time.
#[must_use]
pub fn max_busy_poll(threads: usize) -> Duration {
    let quotas = MachineSnapshot::take(&LocalFiles, Duration::ZERO).quotas;
    let free = quotas.is_ok_and(|quotas| quotas.is_empty()) && threads < available_cores();
    if free { SPIN } else { Duration::ZERO }
}

/// Returns the number of cores that this process may run on.
#[must_use]
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use seawall_load::request::{PreparedRequest, RequestFraming};
    use seawall_load::request_source::RequestList;
    use seawall_load::target::{Target, Weight};
    use seawall_load::variant::{Variant, VariantProtocol};

    use super::*;

    #[test]
    fn connections_are_no_more_than_there_are_descriptors_whatever_servers_speak() {
        let within = |hosts, streams, connections| {
            HostsAndStreams { hosts, streams }.limits_for_descriptors(64, connections)
        };
        assert_eq!(within(Some(2), 1, u64::MAX), (64, u64::MAX));
        assert_eq!(within(Some(2), 1, 5), (10, 5));
        assert_eq!(within(Some(2), 100, u64::MAX), (6400, 32));
        assert_eq!(within(Some(100), 100, u64::MAX), (6400, 1));
        assert_eq!(within(None, 1, u64::MAX), (64, u64::MAX));
        assert_eq!(within(None, 100, u64::MAX), (6400, 64));
    }

    #[test]
    fn a_way_that_speaks_http2_by_itself_carries_several_requests_on_a_connection() {
        let streams = |protocol: Option<VariantProtocol>| {
            let variant = Variant {
                name: "way".into(),
                address: None,
                server_name: None,
                protocol,
                keep_alive: None,
                insecure: false,
                proxies: None,
            };
            let target = Target {
                method: "GET".into(),
                url: "http://a/".into(),
                variant: Some(Arc::new(variant)),
                ..Target::default()
            };
            let request = PreparedRequest::new(&target, &RequestFraming::default()).unwrap();
            let list = RequestList::new(vec![(request, Weight::default())]).unwrap();
            HostsAndStreams::of(&RequestSource::List(list), &TransportOptions::default(), true)
                .is_multiplexed()
        };
        assert_eq!(
            [None, Some(VariantProtocol::Http1), Some(VariantProtocol::Http2)].map(streams),
            [false, false, true]
        );
    }

    #[test]
    fn threads_are_as_many_as_the_rate_needs_and_no_more_than_cores() {
        let cases = [(1.0, 4, 1), (50_000.0, 4, 1), (120_000.0, 4, 3), (9e6, 2, 2), (1.0, 0, 1)];
        for (rate, cpus, expected) in cases {
            assert_eq!(sender_threads(rate, cpus), expected, "{rate}/s on {cpus}");
        }
    }
}
