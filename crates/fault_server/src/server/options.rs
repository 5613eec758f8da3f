//! The options of the server, and the rules for its connections.

use std::net::{IpAddr, SocketAddr};

use super::NanosSinceStart;
use crate::fault_syntax::PlantedFault;

/// The options of a fault server.
#[derive(Clone, Debug)]
pub struct FaultServerOptions {
    /// The address to listen on; port 0 takes a free port.
    pub listen: SocketAddr,
    /// The faults, in the order in which requests meet them.
    pub planted_faults: Vec<PlantedFault>,
    /// The service time of every request before the faults.
    pub service_time: std::time::Duration,
    /// The size of a body in bytes, unless a fault sets it.
    pub body_bytes: usize,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl FaultServerOptions {
    pub(super) fn fault_named(&self, name: &str) -> Option<&PlantedFault> {
        self.planted_faults.iter().find(|plant| plant.kind.name == name)
    }

    pub(super) fn effective_body_bytes(&self) -> usize {
        self.fault_named("bandwidth").map_or(self.body_bytes, |link| link.parameter_as_usize("body"))
    }

    /// Returns the most connections that the kernel completes before they are accepted.
    pub(super) fn backlog(&self) -> u32 {
        let cap = self.fault_named("connection-cap").filter(|cap| cap.parameter_is_word("how", "backlog"));
        cap.map_or(BACKLOG, |cap| cap.parameter_value("backlog") as u32)
    }

    /// Returns the address of the DNS server, if there is one.
    pub(super) fn dns_address_and_fault(&self) -> Option<(SocketAddr, &PlantedFault)> {
        let dns = self.fault_named("dns")?;
        Some((SocketAddr::new(self.listen_ip(), dns.parameter_value("port") as u16), dns))
    }

    /// Returns the IP address of the listener. The DNS server uses it, too, and names resolve to it.
    pub(super) fn listen_ip(&self) -> IpAddr {
        self.listen.ip()
    }
}

/// The backlog without a fault: the usual maximum of a system.
const BACKLOG: u32 = 4096;

/// The rules for connections, independent of their requests.
#[derive(Debug)]
pub(super) struct ConnectionRules {
    /// The most open connections.
    pub(super) max_connections: usize,
    /// True if a further connection is closed; otherwise it waits in the backlog.
    pub(super) closes_excess: bool,
    /// The time to set up a new connection.
    pub(super) connect_cost: NanosSinceStart,
    /// The most requests of a connection; none without a limit.
    pub(super) max_requests: Option<u32>,
    /// True if a connection ends with its last response rather than with the next request.
    pub(super) ends_with_answer: bool,
    pub(super) idle_timeout: Option<NanosSinceStart>,
}

/// The most connections without a fault, because file descriptors are limited anyway.
const CONNECTIONS: usize = 65_536;

impl ConnectionRules {
    pub(super) fn new(options: &FaultServerOptions) -> Self {
        let (cap, keep) = (options.fault_named("connection-cap"), options.fault_named("keep-alive"));
        let above_zero = |key| keep.map(|keep| keep.parameter_as_nanos(key)).filter(|nanos| *nanos > 0);
        Self {
            max_connections: cap.map_or(CONNECTIONS, |cap| cap.parameter_as_usize("connections")),
            closes_excess: cap.is_none_or(|cap| cap.parameter_is_word("how", "close")),
            connect_cost: options.fault_named("churn").map_or(0, |churn| churn.parameter_as_nanos("cost")),
            max_requests: keep.map(|keep| keep.parameter_value("after") as u32).filter(|after| *after > 0),
            ends_with_answer: keep.is_some_and(|keep| keep.parameter_is_word("how", "close")),
            idle_timeout: above_zero("idle"),
        }
    }
}
