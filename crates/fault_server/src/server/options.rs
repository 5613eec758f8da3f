//! What of the plants is the connections' and the server's, not the requests'.

use std::net::{IpAddr, SocketAddr};

use super::NanosSinceStart;
use crate::text::PlantedFault;

/// What to run.
#[derive(Clone, Debug)]
pub struct FaultServerOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What is planted, in the order in which requests meet it.
    pub plants: Vec<PlantedFault>,
    /// What every request takes before that.
    pub service: std::time::Duration,
    /// Bytes of a body, where no plant says.
    pub body: usize,
    /// Whatever is drawn follows from it.
    pub seed: u64,
}

impl FaultServerOptions {
    pub(super) fn plant(&self, name: &str) -> Option<&PlantedFault> {
        self.plants.iter().find(|plant| plant.kind.name == name)
    }

    pub(super) fn body(&self) -> usize {
        self.plant("bandwidth").map_or(self.body, |link| link.count("body"))
    }

    /// Most connections that the kernel completes before they are accepted.
    pub(super) fn backlog(&self) -> u32 {
        let cap = self.plant("connection-cap").filter(|cap| cap.has_word("how", "backlog"));
        cap.map_or(BACKLOG, |cap| cap.value("backlog") as u32)
    }

    /// Where names are asked for.
    pub(super) fn dns(&self) -> Option<(SocketAddr, &PlantedFault)> {
        let dns = self.plant("dns")?;
        Some((SocketAddr::new(self.address(), dns.value("port") as u16), dns))
    }

    /// The address that names have.
    pub(super) fn address(&self) -> IpAddr {
        self.listen.ip()
    }
}

/// A backlog that is no plant: as long as most systems allow.
const BACKLOG: u32 = 4096;

/// What a server does to connections, whatever is asked on them.
#[derive(Debug)]
pub(super) struct ConnectionRules {
    /// Most at one time, and whether one more is closed instead of waiting.
    pub(super) max_connections: usize,
    pub(super) closes_excess: bool,
    /// What a new one costs.
    pub(super) connect_cost: NanosSinceStart,
    /// Requests that one serves; none: any number.
    pub(super) max_requests: Option<u32>,
    /// Whether it ends with the last answer, not when one more request has come.
    pub(super) ends_with_answer: bool,
    pub(super) idle_timeout: Option<NanosSinceStart>,
}

/// Most connections where none is planted: their descriptors are bounded in any case.
const CONNECTIONS: usize = 65_536;

impl ConnectionRules {
    pub(super) fn new(options: &FaultServerOptions) -> Self {
        let (cap, keep) = (options.plant("connection-cap"), options.plant("keep-alive"));
        let above_zero = |key| keep.map(|keep| keep.nanos(key)).filter(|nanos| *nanos > 0);
        Self {
            max_connections: cap.map_or(CONNECTIONS, |cap| cap.count("connections")),
            closes_excess: cap.is_none_or(|cap| cap.has_word("how", "close")),
            connect_cost: options.plant("churn").map_or(0, |churn| churn.nanos("cost")),
            max_requests: keep.map(|keep| keep.value("after") as u32).filter(|after| *after > 0),
            ends_with_answer: keep.is_some_and(|keep| keep.has_word("how", "close")),
            idle_timeout: above_zero("idle"),
        }
    }
}
