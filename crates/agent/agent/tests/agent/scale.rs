//! Many at once: one call for all who wait, and little memory for those who do not ask.

use std::time::Duration;

use seawall_emulator::faults::Faults;

use crate::support::client::{Client, ConnectionEnd, format_get};
use crate::support::wait_until_true;
use crate::support::world::{CART, DIRECT, MALLORY, PAY, PROJECT, PROJECT_ID, Plan, TOKEN, World};

#[test]
fn a_thousand_clients_of_a_cold_token_are_one_chain_of_calls() {
    let world = World::start(&Plan::federate().limits("headerTimeout: 1m"));
    world.cloud.set_faults(&Faults { latency: Duration::from_millis(500), ..Faults::default() });
    let mut clients: Vec<_> = (0..1000).map(|_| world.client(&CART)).collect();
    for client in &mut clients {
        client.write_bytes(format_get(TOKEN));
    }
    let token = clients[0].receive_answer().token();
    for client in &mut clients[1..] {
        assert_eq!(client.receive_answer().token(), token);
    }
    assert_eq!(world.cloud.calls(), [1, 1, 0], "one exchange, one impersonation");
    assert!(world.metric("seawall_requests_coalesced_total{cloud=\"google\"}") > 0.0);
}

/// Two pods with their thousand connections each could make the agent hold 32 MiB of half heads.
#[test]
fn heads_in_part_cost_a_bounded_amount_and_trouble_nobody_else() {
    let world = World::start(&Plan::federate().limits("headerTimeout: 1m"));
    for pod in [MALLORY, CART] {
        assert_eq!(world.ask(&pod, TOKEN).status, 200);
    }
    let before = world.agent.resident_kib();
    let half = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(15 * 1024));
    let mut hostile: Vec<_> = (0..1000).map(|_| world.client(&MALLORY)).collect();
    hostile.iter_mut().for_each(|client| client.write_bytes(&half));
    wait_until_true("what is too much to be refused", || {
        world.metric("seawall_requests_total{cloud=\"none\",route=\"refused\",status=\"5xx\"}") > 500.0
    });
    let cost = world.agent.resident_kib().saturating_sub(before);
    assert!(cost < 8 * 1024, "{cost} KiB");
    assert_eq!(world.ask(&CART, TOKEN).status, 200);
    let refused = hostile.iter_mut().find(|client| !client.is_open_without_unread_bytes()).unwrap();
    assert_eq!(refused.receive_answer().status_and_refusal_code(), (503, "too_many_incomplete_requests"));
    assert_eq!(refused.wait_for_end(), ConnectionEnd::Closed);
}

#[test]
fn two_thousand_idle_connections_cost_less_than_eight_mebibytes() {
    let world = World::start(&Plan::federate().limits("headerTimeout: 1m"));
    // Everything that is paid once is paid: threads, caches, a first credential of each pod.
    for pod in [CART, PAY, MALLORY, DIRECT] {
        assert_eq!(world.ask(&pod, TOKEN).status, 200);
    }
    let before = world.agent.resident_kib();
    let mut clients: Vec<Client> = Vec::new();
    for pod in [CART, PAY, MALLORY, DIRECT] {
        clients.extend((0..500).map(|_| world.client(&pod)));
    }
    for client in &mut clients {
        assert_eq!(client.ask(&format_get(PROJECT_ID)).body, PROJECT);
    }
    wait_until_true("all to be counted", || world.metric("seawall_connections_open") >= 2000.0);
    let cost = world.agent.resident_kib().saturating_sub(before);
    assert!(cost < 8 * 1024, "{cost} KiB");
    assert!(clients.iter().all(Client::is_open_without_unread_bytes), "none was closed");
}
