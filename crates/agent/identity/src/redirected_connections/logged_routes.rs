//! Reads the node's routes for attestation, and logs what the kernel refuses.

use std::net::IpAddr;

use anyhow::anyhow;
use seawall_core::{Clock, Gcra};
use seawall_redirect::{PodLinks, PodNamespace};

use crate::attestation::NodeRoutes;

/// The maximum number of failures per second that the agent logs.
const COMPLAINTS_PER_SECOND: u32 = 1;

/// The node's routes. An address whose route cannot be read belongs to no pod.
#[derive(Debug)]
pub(crate) struct LoggedRoutes {
    links: PodLinks,
    complaints: Gcra,
    clock: Clock,
}

impl LoggedRoutes {
    /// Opens a socket to the kernel.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub(crate) fn open(clock: Clock) -> anyhow::Result<Self> {
        let links = PodLinks::open().map_err(|error| anyhow!("identity.egressRanges: {error}"))?;
        Ok(Self { links, complaints: Gcra::new(COMPLAINTS_PER_SECOND, 1), clock })
    }
}

impl NodeRoutes for LoggedRoutes {
    fn namespace_of(&mut self, address: IpAddr, local: Option<IpAddr>) -> Option<PodNamespace> {
        let found = self.links.namespace_of(address, local);
        found.unwrap_or_else(|error| {
            if self.complaints.take(self.clock.now()).is_ok() {
                tracing::error!(%error, "cannot read the node's routes; the agent refuses connections from identity.egressRanges");
            }
            None
        })
    }
}
