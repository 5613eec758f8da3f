//! What of the plants is the connections' and the server's, not the requests'.

use std::net::{IpAddr, SocketAddr};

use super::Nanos;
use crate::text::Plant;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What is planted, in the order in which requests meet it.
    pub plants: Vec<Plant>,
    /// What every request takes before that.
    pub service: std::time::Duration,
    /// Bytes of a body, where no plant says.
    pub body: usize,
    /// Whatever is drawn follows from it.
    pub seed: u64,
}

impl Options {
    pub(super) fn plant(&self, name: &str) -> Option<&Plant> {
        self.plants.iter().find(|plant| plant.kind.name == name)
    }

    pub(super) fn body(&self) -> usize {
        self.plant("bandwidth").map_or(self.body, |link| link.count("body"))
    }

    /// Most connections that the kernel completes before they are accepted.
    pub(super) fn backlog(&self) -> u32 {
        let cap = self.plant("connection-cap").filter(|cap| cap.says("how", "backlog"));
        cap.map_or(BACKLOG, |cap| cap.number("backlog") as u32)
    }

    /// Where names are asked for.
    pub(super) fn names(&self) -> Option<(SocketAddr, &Plant)> {
        let dns = self.plant("dns")?;
        Some((SocketAddr::new(self.here(), dns.number("port") as u16), dns))
    }

    /// The address that names have.
    pub(super) fn here(&self) -> IpAddr {
        self.listen.ip()
    }
}

/// A backlog that is no plant: as long as most systems allow.
const BACKLOG: u32 = 4096;

/// What a server does to connections, whatever is asked on them.
#[derive(Debug)]
pub(super) struct Rules {
    /// Most at one time, and whether one more is closed instead of waiting.
    pub(super) most: usize,
    pub(super) closes_more: bool,
    /// What a new one costs.
    pub(super) cost: Nanos,
    /// Requests that one serves; none: any number.
    pub(super) after: Option<u32>,
    /// Whether it ends with the last answer, not when one more request has come.
    pub(super) ends_with_answer: bool,
    pub(super) idle: Option<Nanos>,
}

/// Most connections where none is planted: their descriptors are bounded in any case.
const CONNECTIONS: usize = 65_536;

impl Rules {
    pub(super) fn new(options: &Options) -> Self {
        let (cap, keep) = (options.plant("connection-cap"), options.plant("keep-alive"));
        let above_zero = |key| keep.map(|keep| keep.nanos(key)).filter(|nanos| *nanos > 0);
        Self {
            most: cap.map_or(CONNECTIONS, |cap| cap.count("connections")),
            closes_more: cap.is_none_or(|cap| cap.says("how", "close")),
            cost: options.plant("churn").map_or(0, |churn| churn.nanos("cost")),
            after: keep.map(|keep| keep.number("after") as u32).filter(|after| *after > 0),
            ends_with_answer: keep.is_some_and(|keep| keep.says("how", "close")),
            idle: above_zero("idle"),
        }
    }
}
