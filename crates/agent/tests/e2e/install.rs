//! From `helm install` to credentials.

use serde_json::json;

use crate::node::Node;
use crate::pods::*;
use crate::real::SAYS;
use crate::support::network::METADATA;
use crate::support::*;

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn a_pod_runs() {
    let clock = seawall_core::Clock::system();
    let start = clock.now();
    let node = Node::start(&["cart"]);
    eprintln!("node ready after {:?}", clock.now().since(start));
    let mut cart = node.run(&pod("cart", "cart", Class::Burstable));
    eprintln!("pod after {:?}", clock.now().since(start));
    eprintln!("{}", cart.ask(&format!("fetch {METADATA} 80 {TOKEN}")));
    let _ = (SAYS, json!({}));
}
