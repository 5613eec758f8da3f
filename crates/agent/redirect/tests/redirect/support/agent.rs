//! A minimal agent for these tests: a listener on the node that answers each client with the client's name.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use aya::maps::{Array, Map, MapData};
use seawall_redirect::{AgentAddress as Listens, ConnectionMap, ConnectionOwner, PodCgroups, TargetMap};

use super::{HOST, Lab, NODE, NODE6, ONE, TWO, address, within};

/// Returns the client of a connection by its name in the tests: `one`, `two`, `host`, or `nobody`.
///
/// Two witnesses must agree: the source address, which names the owner, and the kernel's record under that owner.
pub(crate) fn who(lab: &Lab, callers: &mut ConnectionMap, peer: SocketAddr, local: SocketAddr) -> String {
    let pods: HashMap<IpAddr, &str> =
        [("10.44.0.11", ONE), ("fd44::11", ONE), ("10.44.0.12", TWO), ("fd44::12", TWO)]
            .map(|(at, uid)| (address(at), uid))
            .into();
    let at = peer.ip().to_canonical();
    let owner = match pods.get(&at) {
        Some(uid) => ConnectionOwner::Pod(lab.id(uid)),
        None if [NODE, NODE6].contains(&at.to_string().as_str()) => ConnectionOwner::Node,
        None => return "nobody".to_owned(),
    };
    let Some(caller) = callers.take(owner, peer, local).unwrap() else { return "nobody".to_owned() };
    let pods = PodCgroups::list(&lab.site).unwrap();
    match pods.pod_of_cgroup(caller.pod_cgroup_id).map(|uid| &*uid.0) {
        Some(ONE) => "one",
        Some(TWO) => "two",
        Some(HOST) => "host",
        Some(_) => "another",
        None => "nobody",
    }
    .to_owned()
}

/// Opens a listener on the node, at all its addresses.
pub(crate) fn listen() -> TcpListener {
    within("node", || TcpListener::bind(("::", 0)).unwrap())
}

pub(crate) fn port(listener: &TcpListener) -> NonZeroU16 {
    NonZeroU16::new(listener.local_addr().unwrap().port()).unwrap()
}

/// Returns both of the node's addresses with these ports.
pub(crate) fn at_node(metadata: Option<NonZeroU16>, containers: Option<NonZeroU16>) -> Listens {
    let v4 = NODE.parse::<Ipv4Addr>().ok();
    let v6 = NODE6.parse::<Ipv6Addr>().ok();
    // The first that is admitted has the first seat.
    Listens { v4, v6, metadata_port: metadata, container_credentials_port: containers, listener_slot: 0 }
}

pub(crate) fn gate(lab: &Lab) -> TargetMap {
    TargetMap::open(&lab.pins, &lab.site).unwrap()
}

/// Creates a lab whose captured connections go to a listener, with the map of their records.
pub(crate) fn captured() -> (Lab, TcpListener, ConnectionMap) {
    let (lab, listener) = (Lab::attached(), listen());
    point(&lab, &listener);
    let callers = ConnectionMap::open(&lab.pins).unwrap();
    (lab, listener, callers)
}

/// Sends captured connections to a listener.
pub(crate) fn point(lab: &Lab, listener: &TcpListener) {
    let seat = register(lab, listener);
    gate(lab).set_target(Listens { listener_slot: seat, ..at_node(Some(port(listener)), None) }).unwrap();
}

/// Registers the listener of an agent that counts as responsive for as long as the test runs.
pub(crate) fn register(lab: &Lab, listener: &TcpListener) -> u16 {
    let seat = gate(lab).register_listener(listener).unwrap();
    set_beat(lab, seat, i64::MAX.cast_unsigned());
    seat
}

/// Writes a slot's last beat, in nanoseconds of the clock CLOCK_MONOTONIC.
pub(crate) fn set_beat(lab: &Lab, seat: u16, nanoseconds: u64) {
    beats(lab).set(seat.into(), nanoseconds, 0).unwrap();
}

/// Opens the map of the slots' last beats.
pub(crate) fn beats(lab: &Lab) -> Array<MapData, u64> {
    let map = MapData::from_pin(lab.pins.directory().join("beats")).unwrap();
    Array::try_from(Map::Array(map)).unwrap()
}

/// Learns the node's namespace, as an agent's pod does before it serves.
pub(crate) fn learn(lab: &Lab) {
    lab.join_agents_pod();
    let mut callers = ConnectionMap::open(&lab.pins).unwrap();
    let learned =
        within("node", || gate(lab).detect_node_netns(&mut callers, lab.id(super::AGENT), address(NODE)));
    learned.unwrap_or_else(|error| {
        panic!("{error}\n{}", seawall_redirect::read_status(&lab.pins, &lab.site).unwrap())
    });
}

pub(crate) struct Agent {
    pub(crate) port: NonZeroU16,
    seat: u16,
    /// The address at which the agent's own end wakes it.
    wake: IpAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts an agent that serves, gets captured connections and knows the node's namespace.
    pub(crate) fn start(lab: &Arc<Lab>) -> Self {
        learn(lab);
        let agent = Self::beside(lab);
        gate(lab).set_target(agent.at()).unwrap();
        agent
    }

    /// Starts an agent that serves but gets no captured connections yet.
    pub(crate) fn beside(lab: &Arc<Lab>) -> Self {
        Self::saying(lab, "agent")
    }

    pub(crate) fn saying(lab: &Arc<Lab>, name: &'static str) -> Self {
        Self::at_listener(lab, name, listen())
    }

    /// Starts an agent that accepts at this listener.
    pub(crate) fn at_listener(lab: &Arc<Lab>, name: &'static str, listener: TcpListener) -> Self {
        let ip = listener.local_addr().unwrap().ip();
        let wake = if ip.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { ip };
        let (port, seat) = (port(&listener), register(lab, &listener));
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, lab) = (Arc::clone(&stop), Arc::clone(lab));
        let thread = thread::spawn(move || {
            let mut callers = ConnectionMap::open(&lab.pins).unwrap();
            loop {
                let (stream, peer) = listener.accept().unwrap();
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                let who = who(&lab, &mut callers, peer, stream.local_addr().unwrap());
                reply(stream, &format!("{name}:{who}"));
            }
        });
        Self { port, seat, wake, stop, thread: Some(thread) }
    }

    /// The address at which the agent answers metadata.
    pub(crate) fn at(&self) -> Listens {
        Listens { listener_slot: self.seat, ..at_node(Some(self.port), None) }
    }
}

fn reply(mut stream: TcpStream, text: &str) {
    let _ = stream.read(&mut [0; 1024]);
    let _ = stream.write_all(text.as_bytes());
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let at = SocketAddr::new(self.wake, self.port.get());
        let woken = within("node", || TcpStream::connect(at));
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}
