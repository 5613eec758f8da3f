//! The redirect, as an agent with `kernel` identity uses it: opened while the process still may, told where captured connections go once
//! pods would be served, and asked whose each is.
//!
//! Attaching and removing are an operator's (`seawall-agent redirect`); an agent that finds nothing attached does not start, because
//! pods would reach the real server. An agent that ends leaves the programs pointing to its port: pods are refused until the next one
//! is ready. Refuses to know how the kernel keeps any of it (`seawall-redirect`) and what is decided by it (`attestation`).

mod connection_owner;

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use rustix::thread::CapabilitySet;
use seawall_core::Clock;
use seawall_core::cloud::DialectName;
use seawall_core::shutdown::{StopSignal, Stopper};
use seawall_redirect::{
    AgentAddress, AttachmentState, CgroupTree, ConnectionMap, CounterMap, Error, Pins, PodCgroups,
    RedirectAttachment, TargetMap, status,
};

use super::config::KernelIdentityConfig;
use super::redirect_target::agent_address;
pub use connection_owner::KernelRecords;

/// How often it is looked after where captured connections go. After a crash of the agent that they went to, pods are refused for
/// this long where another agent stands by.
const LOOK: Duration = Duration::from_secs(1);

/// How long is waited after what should never fail.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// What is said where what was opened is attached no more.
const GONE: &str = "what this agent opened of the redirect is removed: until `seawall-agent redirect attach` has run pods reach the real metadata server, or are refused where another version is attached";
const ANOTHER: &str =
    "the redirect was removed and attached anew, and this agent cannot open what is attached now";

/// The redirect, opened.
#[derive(Debug)]
pub struct RedirectHandle {
    /// This agent.
    agent: AgentAddress,
    /// A lock, because a write takes several steps. It is taken once a second, and by whoever asks for metrics.
    gate: Mutex<TargetMap>,
    /// What the programs count.
    pub counters: CounterMap,
    /// What they note of connections.
    pub noted: KernelRecords,
    /// What was attached when this was opened.
    pub attachment: RedirectAttachment,
    has_claimed_target: AtomicBool,
    /// Whether what is attached by now is not what this opened.
    is_superseded: AtomicBool,
}

impl RedirectHandle {
    /// Opens what is attached, for an agent with these listeners, and has the programs know its pod, the node's network and, by `socket`, the
    /// first of the listener's at a port, that it lives.
    ///
    /// # Errors
    /// Nothing is attached, or this process may not use it, or is not in the pod that it is said to be in.
    pub fn open<'a>(
        section: &KernelIdentityConfig,
        spoken: impl IntoIterator<Item = (SocketAddr, &'a [DialectName])>,
        socket: impl FnOnce(u16) -> Option<&'a TcpListener>,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let agent = agent_address(spoken, section.node).map_err(|reason| anyhow!("listen: {reason}"))?;
        let port = agent.metadata.or(agent.containers).map(NonZeroU16::get);
        let socket = port.and_then(socket).context("listen: no socket")?;
        Self::attached(section, agent, socket, clock)
            .context("identity.strategy kernel works with what `seawall-agent redirect attach` attaches")
    }

    fn attached(
        section: &KernelIdentityConfig,
        agent: AgentAddress,
        socket: &TcpListener,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let redirect = &section.redirect;
        let site = told(CgroupTree::find(&redirect.cgroups, redirect.kubepods.as_deref()))?;
        let pins = told(Pins::at(&redirect.bpffs))?;
        is_attached(&pins, &site)?;
        let pods = told(PodCgroups::list(&site))?;
        let own = pods.group(&section.own).with_context(|| {
            let (own, directory) = (&section.own.0, site.directory().display());
            format!("no group of the agent's own pod ({own}, by POD_UID) below {directory}")
        })?;
        let attachment = told(RedirectAttachment::of(&pins))?;
        let mut callers = told(ConnectionMap::open(&pins))?;
        let mut gate = told(TargetMap::open(&pins, &site))?;
        told(gate.exempt(own))?;
        let address = agent.v4.map(Into::into).or(agent.v6.map(Into::into)).context("no address")?;
        told(gate.detect_node_netns(&mut callers, own, address))?;
        let seat = told(gate.register_listener(socket))?;
        Ok(Self {
            agent: AgentAddress { listener_slot: seat, ..agent },
            gate: Mutex::new(gate),
            counters: told(CounterMap::open(&pins))?,
            noted: KernelRecords::new(callers, site, pods, clock.clone()),
            attachment,
            has_claimed_target: AtomicBool::new(false),
            is_superseded: AtomicBool::new(false),
        })
    }

    /// What attestation asks.
    pub fn records(&self) -> KernelRecords {
        self.noted.clone()
    }

    /// What of its rights the process must keep to go on using this.
    pub fn required_capabilities() -> CapabilitySet {
        if seawall_redirect::maps_need_capability() { CapabilitySet::BPF } else { CapabilitySet::empty() }
    }

    /// Why no pod is served though this agent answers.
    pub fn unready_reason(&self) -> Option<String> {
        match self.attachment.state() {
            Ok(AttachmentState::Unchanged) => {}
            Ok(AttachmentState::Removed) => return Some(GONE.to_owned()),
            Ok(AttachmentState::Replaced) => return Some(ANOTHER.to_owned()),
            Err(error) => return Some(error.to_string()),
        }
        let is_not_yet = !self.has_claimed_target.load(Ordering::Acquire);
        is_not_yet.then(|| "captured connections are not sent to this agent yet".to_owned())
    }

    /// Looks after what this agent opened, until the stop has begun, and begins it when something else is attached in its place. The agent
    /// cannot open that: it has given up the rights, and only at a start learns what it must know of the node. Whoever started it does so again. Where
    /// nothing is attached any more it stays, and is not ready: a new start would find nothing either.
    pub async fn watch(&self, stopper: Stopper, mut stop: StopSignal) {
        let mut last = AttachmentState::Unchanged;
        while !stop.has_begun() {
            // What cannot be looked at `obstacle` tells of.
            let now = self.attachment.state().unwrap_or(last);
            if now == AttachmentState::Replaced {
                tracing::error!("the redirect was attached anew; ending, to be started again");
                self.is_superseded.store(true, Ordering::Release);
                return stopper.stop();
            }
            if now == AttachmentState::Removed && last != now {
                tracing::error!("the redirect was removed");
            }
            last = now;
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = stop.wait() => {}
            }
        }
    }

    /// Whether the agent may end as one that was told to.
    ///
    /// # Errors
    /// It ends because it must be started again.
    pub fn check_exit(&self) -> anyhow::Result<()> {
        ensure!(!self.is_superseded.load(Ordering::Acquire), "{ANOTHER}");
        Ok(())
    }

    /// What an operator should see though this agent serves.
    pub fn warning(&self) -> Option<String> {
        self.is_replaced().then(|| "captured connections are sent to another agent by now".to_owned())
    }

    /// Whether captured connections were sent to this agent and are sent to another one.
    pub fn is_replaced(&self) -> bool {
        self.unready_reason().is_none() && matches!(self.is_target(), Ok(false))
    }

    /// Sends captured connections to this agent from now on. Call it when pods would be served. Returns once it is done, or when the
    /// stop has begun.
    pub async fn claim_target(&self, stop: &StopSignal) {
        while !stop.has_begun() {
            let pointed = self.gate().set_target(self.agent);
            match pointed {
                Ok(()) => {
                    self.has_claimed_target.store(true, Ordering::Release);
                    tracing::info!(agent = ?self.agent, "captured connections are sent to this agent");
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "captured connections cannot be sent to this agent");
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    /// Succeeds another agent that captured connections are sent to and that is dead (see [`other`]), and has the programs know classes of service that
    /// were made anew, until the stop has begun.
    pub async fn monitor_target(&self, mut stop: StopSignal) {
        loop {
            let pause = match self.look() {
                // Of another process that is at work nothing is to be said: the next look finds it done.
                Ok(()) | Err(Error::Busy { .. }) => LOOK,
                Err(error) => {
                    tracing::error!(%error, "cannot look after where captured connections are sent");
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
        if gate.refresh()? {
            tracing::warn!("a class of service of this node was made anew; its pods are known again");
        }
        let answers = gate.target()?.map(|target| target.agent);
        let Some(last) = other(answers, self.agent) else { return Ok(()) };
        if !gate.is_listening(last)? && gate.take_over_from(last, self.agent)? {
            tracing::warn!(agent = ?last, "the agent that captured connections were sent to is dead; they are sent to this one");
        }
        Ok(())
    }

    /// Whether captured connections are sent to this agent.
    pub fn is_target(&self) -> Result<bool, Error> {
        Ok(self.gate().target()?.is_some_and(|target| target.agent == self.agent))
    }

    fn gate(&self) -> MutexGuard<'_, TargetMap> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The other agent that captured connections are sent to. Only a dead one is succeeded.
///
/// Two agents that live never fight: each writes once when it becomes ready, and after that only where the other listens no more, which the
/// kernel says ([`TargetMap::is_listening`]): whoever else may listen at its port by then is no agent, and one that is too busy to answer lives. And
/// only if nobody else has written meanwhile ([`TargetMap::take_over_from`]): of two that find a third dead, one writes. Where nothing is written
/// (an operator closed or removed it), nothing is.
fn other(answers: Option<AgentAddress>, own: AgentAddress) -> Option<AgentAddress> {
    answers.filter(|last| *last != own && last.metadata.or(last.containers).is_some())
}

/// Whether each hook has a program for the pods' group.
fn is_attached(pins: &Pins, site: &CgroupTree) -> anyhow::Result<()> {
    for hook in told(status(pins, site))?.hooks {
        let directory = site.directory().display();
        let is_there = hook.links.iter().any(|link| link.is_attached);
        ensure!(is_there, "nothing is attached to {directory} for {}", hook.hook);
    }
    Ok(())
}

/// The redirect's errors tell their causes themselves.
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
            metadata: NonZeroU16::new(port),
            ..AgentAddress::default()
        }
    }

    #[test]
    fn only_another_agent_is_ever_succeeded() {
        let own = agent(1);
        assert_eq!(other(None, own), None, "closed or removed by somebody");
        assert_eq!(other(Some(own), own), None);
        assert_eq!(other(Some(AgentAddress::default()), own), None, "nobody has been told of");
        assert_eq!(other(Some(agent(2)), own), Some(agent(2)));
        let earlier = AgentAddress { listener_slot: 1, ..own };
        assert_eq!(
            other(Some(earlier), own),
            Some(earlier),
            "at the same port, and dead since this one listens"
        );
        let containers = AgentAddress { metadata: None, containers: NonZeroU16::new(3), ..agent(0) };
        assert_eq!(other(Some(containers), own), Some(containers));
    }
}
