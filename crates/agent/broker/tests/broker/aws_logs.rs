//! The log lines of AWS calls, at every level and from every library: the signing library logs its whole input at trace level.

use std::sync::Arc;

use seawall_broker::aws::{BROKER_SETTINGS, NodeKeySource};
use seawall_emulator::aws::IamRole as EmulatedRole;

use crate::aws_world::{self, MINUTE, Node, arn, pod_identity, role, start_with, web_identity};
use crate::captured_log::Lines;

#[test]
fn no_token_and_no_key_is_logged_and_a_cut_is_told_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (secrets, lines) = Lines::of(|| runtime.block_on(day()));
    let of = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(of("credential issued"), 3, "{lines:#?}");
    assert_eq!(of("shorter lifetime than requested"), 1);
    assert_eq!(of("too short-lived to keep the remaining lifetime in responses above the floor"), 1);
    // The library writes bodies as lists of numbers, in which no text is found: none of its lines may be there.
    assert_eq!(of("signing") + of("SignableRequest") + of("canonical"), 0);
    for secret in secrets {
        assert!(!lines.iter().any(|line| line.contains(&secret)), "{secret}");
    }
}

/// Gets one credential by each method. Returns the texts that no log line may hold.
async fn day() -> Vec<String> {
    let subject = "system:serviceaccount:shop:cart".to_owned();
    let short = EmulatedRole {
        max_session_duration: 15 * MINUTE,
        ..EmulatedRole::trusting_everyone(arn("short").as_str())
    };
    let aws = start_with(|options| {
        options.associations = [(subject, arn("cart").as_str().to_owned())].into();
        options.roles = vec![short];
    })
    .await;
    let url = aws.running.url();
    let exchange = aws.exchange(|config| config.node_key_source = Some(NodeKeySource::Instance { url }));
    let node = Node::new(&aws, exchange, BROKER_SETTINGS);
    let ways = [web_identity("short"), aws_world::keys(None, role("till")), pod_identity("pod-1")];
    // Parts of every Kubernetes token and of every session token of the emulator.
    let mut secrets = vec!["eyJhbGciOi".to_owned(), "IQoJemu.".to_owned(), "AQAEAemu.".to_owned()];
    for way in ways {
        let lease = node.answer(&node.pod("cart-0", "cart", &Arc::new(way))).await.unwrap();
        secrets.push(lease.value.secret_access_key().to_owned());
        secrets.push(lease.value.session_token().to_owned());
    }
    secrets
}
