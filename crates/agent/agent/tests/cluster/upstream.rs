//! The cloud's token service is down, slow, throttling and lying, with a real cluster behind the pods.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seawall_core::Clock;
use seawall_emulator::faults::Faults;
use seawall_emulator::google::GoogleEndpoint;

use crate::support::client::{Client, format_get};
use crate::support::network::METADATA;
use crate::support::*;

/// How long each fault lasts. All together are longer than half of a credential's life, so that its renewal falls among
/// them, and shorter than the whole.
const FAULT: Duration = Duration::from_secs(6);
const LIFE: Duration = Duration::from_secs(40);

/// Chains a second that the agent starts at most, and at once (`broker`'s settings).
const PER_SECOND: u64 = 32;

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn leases_serve_on_at_their_pace_while_the_token_service_is_out_of_order() {
    let mut world = World::start(&["cart", "pay"], "");
    world.cloud.set_max_token_lifetime(LIFE);
    let (cart, pay) = (world.pod("cart-0", "cart"), world.pod("pay-0", "pay"));
    world.check_pod(&cart);
    wait_until_true("pay is known", || pay.ask(TOKEN).status == 200);
    let calm = percentile(&world, &cart, Duration::from_secs(2));
    let fault = |status: u16| Faults { error_rate: 1.0, error_status: Some(status), ..Faults::default() };
    let html = Faults { html_errors: true, ..fault(500) };
    let slow = Faults { latency: Duration::from_secs(30), ..Faults::default() };
    let down = Faults { close_rate: 1.0, ..Faults::default() };
    for (name, faults) in [("down", down), ("slow", slow), ("throttling", fault(429)), ("lying", html)] {
        world.cloud.set_faults(&faults);
        let before = world.cloud.endpoint_request_counts(GoogleEndpoint::Exchange).calls;
        let stop = AtomicBool::new(false);
        let p99 = std::thread::scope(|scope| {
            // Another pod invents scopes as fast as it can, so that there is always something to fetch.
            let inventor = scope.spawn(|| pay.sandbox.run(|| invent(&pay, name, &stop)));
            let p99 = percentile(&world, &cart, FAULT);
            stop.store(true, Ordering::Relaxed);
            inventor.join().unwrap();
            p99
        });
        let calls = world.cloud.endpoint_request_counts(GoogleEndpoint::Exchange).calls - before;
        eprintln!("{name}: p99 {p99:?} (calm: {calm:?}), {calls} exchanges");
        assert!(p99 <= calm * 4 + Duration::from_millis(5), "{name}: {p99:?} and not about {calm:?}");
        assert!(calls <= PER_SECOND * (FAULT.as_secs() + 2), "{name}: {calls}");
    }
    assert!(
        world.metric("seawall_floor_achievable{cloud=\"google\"}") < 1.0,
        "such lives cannot meet the floor, and that is said"
    );
    assert!(world.admin("/readyz").body.contains("renewal cannot keep them above the floor"));
    world.cloud.set_faults(&Faults::default());
    let old = cart.ask(TOKEN).token();
    wait_until_true("it is renewed", || cart.ask(TOKEN).token() != old);
}

/// The 99th percentile of warm answers, each of which must be cart's and valid.
fn percentile(world: &World, cart: &Pod, span: Duration) -> Duration {
    let clock = Clock::system();
    let mut took: Vec<Duration> = cart.sandbox.run(|| {
        let mut client = Client::connect(cart.sandbox.address, (METADATA, 80).into());
        let end = clock.now() + span;
        let mut took = Vec::new();
        while clock.now() < end {
            let before = clock.now();
            let answer = client.ask(&format_get(TOKEN));
            took.push(clock.now().since(before));
            world.check(&answer.token(), "cart");
            pause(Duration::from_millis(1));
        }
        took
    });
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

/// Asks for credentials that nobody has asked for before; each is refused or late, and never a 429.
fn invent(pay: &Pod, name: &str, stop: &AtomicBool) {
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let path = format!("{TOKEN}?scopes=https://www.googleapis.com/auth/{name}.{n}");
        let answer = pay.ask_from_inside(&path);
        assert_eq!(answer.status, 503, "{answer:?}");
        n += 1;
        pause(Duration::from_millis(20));
    }
}
