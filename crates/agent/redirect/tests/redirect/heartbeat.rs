//! Agents that live and do not respond: the programs refuse connects to them.

use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use seawall_redirect::{AgentAddress as Listens, AgentHeartbeat, RedirectCounts};

use crate::support::agent::{at_node, beats, gate, listen, port, set_beat};
use crate::support::*;

const SECOND: u64 = 1_000_000_000;

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * SECOND + u64::try_from(now.tv_nsec).unwrap()
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn an_agent_that_has_not_beaten_for_three_seconds_is_sent_nobody_until_it_beats_again() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let (seat, dialled) = (agent.at().listener_slot, format!("ask connect {NODE} {}", agent.port));
    for uid in [ONE, HOST] {
        let (mut pod, name) = (lab.pod(uid), if uid == ONE { "agent:one" } else { "agent:host" });
        // The programs' clock can be some milliseconds behind this one.
        set_beat(&lab, seat, now() - 3 * SECOND - SECOND / 10);
        assert_eq!(pod.fetch_from_server("169.254.169.254"), "EPERM");
        assert_eq!(pod.fetch_from_server("fd20:ce::254"), "EPERM");
        assert_eq!(pod.ask(&dialled), "EPERM");
        AgentHeartbeat::open(&lab.pins, seat).unwrap();
        assert_eq!(pod.fetch_from_server("169.254.169.254"), name);
        assert_eq!(pod.fetch_from_server("fd20:ce::254"), name);
        assert_eq!(pod.ask(&dialled), name);
    }
    let counts = RedirectCounts::read(&lab.pins).unwrap();
    assert_eq!((counts.connect4.unresponsive_agent, counts.connect6.unresponsive_agent), (4, 2));
    assert_eq!((counts.connect4.refused(), counts.connect6.refused()), (4, 2));
}

/// Or the node's only agent would be refused until its first beat after it became the target.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn an_agent_is_responsive_from_its_registration_on_whatever_an_earlier_one_left() {
    let lab = Lab::attached();
    set_beat(&lab, 0, 1);
    let listener = listen();
    let seat = gate(&lab).register_listener(&listener).unwrap();
    gate(&lab).set_target(Listens { listener_slot: seat, ..at_node(Some(port(&listener)), None) }).unwrap();
    let held = lab.pod(ONE).ask("hold 169.254.169.254 80");
    assert!(held.starts_with("10.44.0.11"), "{held}");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn an_agent_whose_listener_closed_does_not_beat_for_the_next_in_its_slot() {
    let lab = Lab::attached();
    let first = listen();
    let seat = gate(&lab).register_listener(&first).unwrap();
    let mut heartbeat = AgentHeartbeat::open(&lab.pins, seat).unwrap();
    assert!(heartbeat.beat().unwrap());
    drop(first);
    assert!(!heartbeat.beat().unwrap());
    let second = listen();
    assert_eq!(gate(&lab).register_listener(&second).unwrap(), seat);
    set_beat(&lab, seat, 1);
    assert!(!heartbeat.beat().unwrap());
    assert_eq!(beats(&lab).get(&seat.into(), 0).unwrap(), 1);
    assert!(AgentHeartbeat::open(&lab.pins, seat).unwrap().beat().unwrap());
    assert!(beats(&lab).get(&seat.into(), 0).unwrap() > 1);
}
