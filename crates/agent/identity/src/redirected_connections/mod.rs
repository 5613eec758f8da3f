//! Connects an agent with `kernel` identity to the redirect: the eBPF programs that bring pods' metadata connections to the
//! agent.
//!
//! The agent opens the redirect's maps while the process still has its privileges. Once the agent can serve pods, it makes
//! itself the *target*: the redirect then sends captured connections to this agent. The agent reads the kernel's records to
//! find the pod that opened each connection.
//!
//! An operator attaches and removes the redirect (`seawall-agent redirect`). If the redirect is not attached, the agent does
//! not start, because pods would reach the real metadata server. When an agent ends, the redirect's programs still send
//! connections to the agent's port. These connections fail until the next agent is ready. The crate `seawall-redirect` reads
//! the kernel's records, and the module `attestation` identifies pods with these records.

mod connection_owner;
mod logged_routes;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use rustix::thread::CapabilitySet;
use seawall_cluster::{NodePods, PodRecord, PodSnapshot};
use seawall_core::cloud::DialectName;
use seawall_core::shutdown::{StopSignal, Stopper};
use seawall_core::{Clock, ServiceAccount};
use seawall_redirect::{
    AgentAddress, AgentHeartbeat, AttachmentSnapshot, AttachmentState, ConnectionMap, CounterMap, Error,
    Pins, PodCgroups, PodsParentCgroup, TargetMap, TrustedProxyMap, passes_host_network_pods, read_status,
};

use super::cluster_attester::pods_of_service_accounts;
use super::config::KernelIdentityConfig;
use super::redirect_target::agent_address;
pub use connection_owner::KernelRecords;
pub(crate) use logged_routes::LoggedRoutes;

/// The pause between two checks of the target. The target is the agent to which the redirect sends captured connections. If the
/// target crashes while another agent is ready, pods have an outage of about this length.
const LOOK: Duration = Duration::from_secs(1);

/// The pause before the next check of the target, after a check has failed.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// The time that the older programs still have to write the record of a connection whose connect they captured. The kernel needs microseconds,
/// unless the process is preempted there.
const BETWEEN_CONNECT_AND_FIRST_PACKET: Duration = Duration::from_millis(500);

/// Explains to the operator that the redirect that this agent opened was removed.
const GONE: &str = "the redirect that this agent opened was removed. Restart the agent's pod, whose first container attaches the redirect (kubectl rollout restart), or run `seawall-agent redirect attach`. Until then, pods can reach the real metadata server unless the drop rules are loaded; if another version of the redirect is attached, that version refuses the pods' connections";
const ANOTHER: &str = "the redirect was removed and attached again; the agent must restart, because it cannot open the new redirect";

/// Gives access to the attached redirect and its maps.
#[derive(Debug)]
pub struct RedirectHandle {
    /// The address and ports of this agent.
    agent: AgentAddress,
    /// The map that contains the target of captured connections. The map needs a lock because a write takes several steps. The
    /// agent takes the lock once a second and for each metrics request.
    gate: Mutex<TargetMap>,
    /// The heartbeat of this agent. Without a recent heartbeat, the redirect's programs refuse pods' connections to this agent.
    heartbeat: Mutex<AgentHeartbeat>,
    /// The counters of the redirect's programs.
    pub ebpf_counters: CounterMap,
    /// The programs' records of connections.
    pub records: KernelRecords,
    /// The map in which the programs find the pods of trusted proxies.
    proxies: Mutex<TrustedProxyMap>,
    trusted_proxies: Vec<ServiceAccount>,
    /// The redirect's attachment at the time when the agent opened this handle.
    pub attachment: AttachmentSnapshot,
    /// True if pods on the node's network reach the real metadata server.
    pub passes_host_network_pods: bool,
    has_claimed_target: AtomicBool,
    /// True if programs of an older layout of the pins were attached when this handle was opened.
    replaces_older_layout: bool,
    /// True if the redirect was attached again after this agent opened it.
    is_superseded: AtomicBool,
}

impl RedirectHandle {
    /// Opens the attached redirect for an agent with these listeners.
    ///
    /// Writes two values into the programs' maps: the agent's own pod, which is allowed to reach the real metadata server, and
    /// the node's network namespace. Also registers a listening socket. The programs use this socket to check whether the agent
    /// is alive. `socket` returns the first listening socket at a given port.
    ///
    /// # Errors
    /// The redirect is not attached, this process lacks the privileges, or the process is not in the configured pod.
    pub fn open<'a>(
        section: &KernelIdentityConfig,
        spoken: impl IntoIterator<Item = (SocketAddr, &'a [DialectName])>,
        socket: impl FnOnce(u16) -> Option<&'a TcpListener>,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let agent = agent_address(spoken, section.node_addresses)
            .map_err(|reason| anyhow!("listen: expected {reason}"))?;
        let port = agent.metadata_port.or(agent.container_credentials_port).map(NonZeroU16::get);
        let socket =
            port.and_then(socket).context("listen: the agent has no socket at the port of the redirect")?;
        Self::attached(section, agent, socket, clock)
            .context("identity.strategy kernel needs the redirect (`seawall-agent redirect attach`)")
    }

    fn attached(
        section: &KernelIdentityConfig,
        agent: AgentAddress,
        socket: &TcpListener,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let redirect = &section.redirect;
        let site = told(PodsParentCgroup::find(&redirect.cgroup_root, redirect.kubepods_cgroup.as_deref()))?;
        let pins = told(Pins::at(&redirect.bpffs))?;
        is_attached(&pins, &site)?;
        let pods = told(PodCgroups::list(&site))?;
        let own = pods.cgroup_of_pod(&section.own_pod_uid).with_context(|| {
            let (own, directory) = (&section.own_pod_uid.0, site.kubepods_directory().display());
            format!("the agent's own pod ({own}, from POD_UID) has no cgroup below {directory}")
        })?;
        let attachment = told(AttachmentSnapshot::from_pins(&pins))?;
        let mut callers = told(ConnectionMap::open(&pins))?;
        let mut gate = told(TargetMap::open(&pins, &site))?;
        told(gate.exempt_pod(own))?;
        let address = agent.v4.map(Into::into).or(agent.v6.map(Into::into)).context("no listener address")?;
        told(gate.detect_node_netns(&mut callers, own, address))?;
        let replaces_older_layout = told(gate.has_older_layouts())?;
        let seat = told(gate.register_listener(socket))?;
        let heartbeat = told(AgentHeartbeat::open(&pins, seat))?;
        Ok(Self {
            agent: AgentAddress { listener_slot: seat, ..agent },
            gate: Mutex::new(gate),
            heartbeat: Mutex::new(heartbeat),
            ebpf_counters: told(CounterMap::open(&pins))?,
            records: KernelRecords::new(callers, site, pods, clock.clone()),
            proxies: Mutex::new(told(TrustedProxyMap::open(&pins))?),
            trusted_proxies: section.trusted_proxies.clone(),
            attachment,
            passes_host_network_pods: told(passes_host_network_pods(&pins))?,
            has_claimed_target: AtomicBool::new(false),
            replaces_older_layout,
            is_superseded: AtomicBool::new(false),
        })
    }

    /// Returns the kernel's connection records, for attestation.
    pub fn records(&self) -> KernelRecords {
        self.records.clone()
    }

    /// Returns the capabilities that the process must keep to use the redirect.
    pub fn required_capabilities() -> CapabilitySet {
        if seawall_redirect::every_map_use_needs_capability() {
            CapabilitySet::BPF
        } else {
            CapabilitySet::empty()
        }
    }

    /// Returns the reason why this agent cannot serve pods, or `None` if it can serve them. Possible reasons: the attachment
    /// was removed or replaced, its state cannot be read, or this agent has not made itself the target yet.
    pub fn unready_reason(&self) -> Option<String> {
        match self.attachment.check_pins() {
            Ok(AttachmentState::Unchanged) => {}
            Ok(AttachmentState::Removed) => return Some(GONE.to_owned()),
            Ok(AttachmentState::Replaced) => return Some(ANOTHER.to_owned()),
            Err(error) => return Some(error.to_string()),
        }
        let is_not_yet = !self.has_claimed_target.load(Ordering::Acquire);
        is_not_yet.then(|| "the redirect does not send captured connections to this agent yet".to_owned())
    }

    /// Monitors the redirect's attachment until shutdown begins, and starts a shutdown if the redirect is attached again.
    ///
    /// The agent cannot open the new attachment, because it has dropped its privileges and reads the node's data only at start.
    /// After the shutdown, Kubernetes restarts the agent. If the redirect is removed and not attached again, the agent keeps
    /// running but is not ready. A restart would not help, because the new process would find no redirect either.
    pub async fn monitor_attachment(&self, stopper: Stopper, mut stop: StopSignal) {
        let mut last = AttachmentState::Unchanged;
        while !stop.has_begun() {
            // If the state of the attachment cannot be read, `unready_reason` reports the error.
            let now = self.attachment.check_pins().unwrap_or(last);
            if now == AttachmentState::Replaced {
                tracing::error!(
                    "the redirect was attached again; the agent stops, so that Kubernetes restarts it"
                );
                self.is_superseded.store(true, Ordering::Release);
                return stopper.stop();
            }
            if now == AttachmentState::Removed && last != now {
                tracing::error!("the redirect was removed; run `seawall-agent redirect attach`");
            }
            last = now;
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = stop.wait() => {}
            }
        }
    }

    /// Checks at exit that the redirect was not replaced.
    ///
    /// # Errors
    /// The redirect was replaced. The agent then exits with a failure, and Kubernetes restarts it.
    pub fn check_not_replaced(&self) -> anyhow::Result<()> {
        ensure!(!self.is_superseded.load(Ordering::Acquire), "{ANOTHER}");
        Ok(())
    }

    /// Returns a warning for the operator if captured connections go to another agent. This agent still serves its own
    /// connections.
    pub fn warning(&self) -> Option<String> {
        self.is_replaced().then(|| "the redirect sends captured connections to another agent".to_owned())
    }

    /// Returns a warning for the operator if pods run that started before the redirect was attached, such as after the first installation and
    /// after a reboot. Connections that they opened then, and connections of this time that are still open, lead to the real metadata server.
    pub fn warning_about_older_pods(&self, pods: &PodSnapshot) -> Option<String> {
        let since = self.attachment.attached_since();
        let is_older = |pod: &&Arc<PodRecord>| {
            !(pod.uses_host_network && self.passes_host_network_pods)
                && pod.running_since().is_some_and(|started| started < since)
        };
        let mut older = pods.pods().filter(is_older);
        let first = older.next()?;
        let (namespace, name) = (&first.pod.service_account.namespace, &first.pod.name);
        let count = 1 + older.count();
        Some(format!(
            "{count} pod(s) ran before the redirect was attached, such as {namespace}/{name}: they could reach the real metadata server until then, \
             and connections from that time still can. Restart these pods"
        ))
    }

    /// True if this agent was the target and captured connections now go to another agent.
    pub fn is_replaced(&self) -> bool {
        self.unready_reason().is_none() && matches!(self.is_target(), Ok(false))
    }

    /// Makes this agent the target of captured connections. Call this function once the agent can serve pods. Retries until it
    /// succeeds or shutdown begins.
    pub async fn redirect_to_this_agent(&self, stop: &StopSignal) {
        while !stop.has_begun() {
            let pointed = self.gate().set_target(self.agent);
            match pointed {
                Ok(()) => {
                    self.remove_older_layouts(stop).await;
                    self.has_claimed_target.store(true, Ordering::Release);
                    tracing::info!(agent = ?self.agent, "the redirect sends captured connections to this agent");
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot make the redirect send captured connections to this agent; the agent tries again");
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    /// True if this process must be able to remove pins: those of an older layout.
    pub fn removes_pins(&self) -> bool {
        self.replaces_older_layout
    }

    /// Removes the programs of an older layout, now that this agent is the target. Retries until it succeeds or shutdown begins.
    ///
    /// The older programs run first and send connections to the older agent, so this agent is not ready before.
    async fn remove_older_layouts(&self, stop: &StopSignal) {
        if !self.replaces_older_layout {
            return;
        }
        self.retry(stop, TargetMap::detach_older_connect_programs).await;
        tokio::time::sleep(BETWEEN_CONNECT_AND_FIRST_PACKET).await;
        self.retry(stop, TargetMap::remove_older_layouts).await;
        tracing::info!("removed the programs of an older layout of the redirect's pins");
    }

    async fn retry(&self, stop: &StopSignal, step: impl Fn(&TargetMap) -> Result<(), Error>) {
        while !stop.has_begun() {
            let done = step(&self.gate());
            match done {
                Ok(()) => return,
                // Another process is updating the redirect.
                Err(Error::PinsLocked { .. }) => tokio::time::sleep(LOOK).await,
                Err(error) => {
                    tracing::error!(%error, "cannot remove the programs of an older layout of the redirect's pins; the agent tries again");
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    /// Writes this agent's heartbeat. If an agent writes no heartbeat for 3 s, the redirect's programs refuse pods' connections
    /// to that agent. Returns false after this agent's listener has closed.
    ///
    /// # Errors
    /// The kernel refuses to read or to write the maps.
    pub fn write_heartbeat(&self) -> Result<bool, Error> {
        self.heartbeat.lock().unwrap_or_else(PoisonError::into_inner).beat()
    }

    /// Tells the programs the pods of trusted proxies, after each change, until shutdown begins. Until the programs know a proxy's
    /// pod, they charge its records to that pod, so the pods behind it share one pod's limit.
    pub async fn publish_trusted_proxies(&self, pods: NodePods, mut stop: StopSignal) {
        let mut published = None;
        while !self.trusted_proxies.is_empty() && !stop.has_begun() {
            let version = pods.snapshot().version();
            let uids = pods_of_service_accounts(&pods, &self.trusted_proxies);
            let cgroups: BTreeSet<u64> =
                uids.iter().filter_map(|uid| self.records.cgroup_of_pod(uid)).collect();
            if published.as_ref() != Some(&cgroups) {
                let written = self.proxies.lock().unwrap_or_else(PoisonError::into_inner).replace(&cgroups);
                match written {
                    Ok(()) => published = Some(cgroups),
                    Err(error) => {
                        tracing::error!(%error, "cannot tell the redirect's programs the trusted proxies; the agent tries again");
                    }
                }
            }
            tokio::select! {
                _ = pods.wait_for_newer(version) => {}
                () = tokio::time::sleep(AFTER_FAILURE) => {}
                () = stop.wait() => return,
            }
        }
    }

    /// Checks the target until shutdown begins. If the target is another agent that is dead (see `other`), makes this agent the
    /// target. Also updates the programs when the kubelet has recreated QoS-class cgroups.
    pub async fn monitor_target(&self, mut stop: StopSignal) {
        loop {
            let pause = match self.look() {
                // Another process is updating the redirect. The next check finds the result of the update.
                Ok(()) | Err(Error::PinsLocked { .. }) => LOOK,
                Err(error) => {
                    tracing::error!(%error, "cannot check where the redirect sends captured connections; the agent tries again");
                    AFTER_FAILURE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.wait() => return,
            }
        }
    }

    fn look(&self) -> Result<(), Error> {
        let mut gate = self.gate();
        if gate.refresh_qos_cgroups()? {
            tracing::warn!(
                "the kubelet re-created a QoS cgroup on this node; the redirect now recognizes the pods in that cgroup"
            );
        }
        let answers = gate.target()?.map(|target| target.agent);
        let Some(last) = other(answers, self.agent) else { return Ok(()) };
        if !gate.is_listening(last)? && gate.take_over_from(last, self.agent)? {
            tracing::warn!(agent = ?last, "the agent that received captured connections is dead; the redirect now sends captured connections to this agent");
        }
        Ok(())
    }

    /// True if the redirect sends captured connections to this agent.
    pub fn is_target(&self) -> Result<bool, Error> {
        Ok(self.gate().target()?.is_some_and(|target| target.agent == self.agent))
    }

    fn gate(&self) -> MutexGuard<'_, TargetMap> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the target of captured connections if the target is another agent. The caller makes this agent the target only if
/// the other agent is dead.
///
/// Two live agents never compete for the target. Each agent writes the target once, when it becomes ready. Later, an agent
/// writes the target only if the kernel reports that the target no longer listens ([`TargetMap::is_listening`]). So a process
/// that reuses the port does not count as an agent, and an agent that is too busy to respond counts as alive.
/// [`TargetMap::take_over_from`] writes only if the target has not changed meanwhile, so if two agents find a third agent dead,
/// only one of them replaces it. If an operator clears the target, agents that are already ready do not write a new target.
fn other(answers: Option<AgentAddress>, own: AgentAddress) -> Option<AgentAddress> {
    answers.filter(|last| *last != own && last.metadata_port.or(last.container_credentials_port).is_some())
}

/// Checks that the redirect has a program at each of its hooks in the kernel, attached to the pods' cgroup.
fn is_attached(pins: &Pins, site: &PodsParentCgroup) -> anyhow::Result<()> {
    for hook in told(read_status(pins, site))?.hooks {
        let directory = site.kubepods_directory().display();
        let is_there = hook.links.iter().any(|link| link.is_attached);
        ensure!(is_there, "no program is attached to {directory} for {}", hook.hook);
    }
    Ok(())
}

/// Converts an error of the redirect. The error's text already includes its causes.
fn told<T>(result: Result<T, Error>) -> anyhow::Result<T> {
    result.map_err(|error| anyhow!("{error}"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn agent(port: u16) -> AgentAddress {
        AgentAddress {
            v4: Some(Ipv4Addr::LOCALHOST),
            metadata_port: NonZeroU16::new(port),
            ..AgentAddress::default()
        }
    }

    #[test]
    fn only_another_agent_is_ever_succeeded() {
        let own = agent(1);
        assert_eq!(other(None, own), None, "an operator closed or removed the target");
        assert_eq!(other(Some(own), own), None);
        assert_eq!(other(Some(AgentAddress::default()), own), None, "the target has no address yet");
        assert_eq!(other(Some(agent(2)), own), Some(agent(2)));
        let earlier = AgentAddress { listener_slot: 1, ..own };
        assert_eq!(
            other(Some(earlier), own),
            Some(earlier),
            "an earlier agent at the same port is dead, because this agent listens there"
        );
        let containers =
            AgentAddress { metadata_port: None, container_credentials_port: NonZeroU16::new(3), ..agent(0) };
        assert_eq!(other(Some(containers), own), Some(containers));
    }
}
