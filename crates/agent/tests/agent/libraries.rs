//! The libraries that pods use, unmodified, with only GCE_METADATA_HOST set.
//!
//! They run in a namespace that has nothing but loopback, with cloud and agent beside them: google-auth's
//! `default()` asks 169.254.169.254 whatever GCE_METADATA_HOST says, and there that address is the agent's, as on a
//! node.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use crate::support::client::get;
use crate::support::ip;
use crate::support::namespace::{self, Ground};
use crate::support::parts::part;
use crate::support::world::{CART, PROJECT, Plan, Pod, TOKEN, World};

const HOUR: u64 = 3600;

/// The pod that processes without a source address of their own are.
const HERE: Pod = Pod { at: ip(1), ..CART };

const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(ip(1)), 0);
const LINK_LOCAL: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 169, 254)), 80);

/// An agent as a node has it, at the link-local address, too, where that may be.
fn world(ground: Ground) -> World {
    let listen = if ground == Ground::Sealed { vec![LISTEN, LINK_LOCAL] } else { vec![LISTEN] };
    World::start(&Plan { pods: vec![HERE], listen, ..Plan::federate() })
}

/// Runs a client with nothing in its environment but this (and a home, for what is not in it).
fn said(client: &mut Command, world: &World, environment: &[&str]) -> Value {
    let address = world.agent.address().to_string();
    let client = client.env_clear().env("HOME", world.files.path(""));
    let output = client.envs(environment.iter().map(|name| (name, &address))).output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}\n{}", world.agent.log());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Both tokens are those of this pod's account, and valid.
fn check_tokens(world: &World, said: &Value, audience: &str) {
    let token = world.cloud.access_token(said["token"].as_str().unwrap()).unwrap();
    assert_eq!(token.account.as_deref(), HERE.email);
    assert_eq!(token.sub, HERE.subject());
    let claims = world.cloud.identity(said["identity"].as_str().unwrap(), audience);
    assert_eq!(claims["email"].as_str(), HERE.email);
}

#[test]
fn google_auth_for_python_finds_project_zone_and_both_tokens() {
    let ground = namespace::enter("libraries::google_auth_for_python_finds_project_zone_and_both_tokens");
    if ground == Ground::Passed {
        return;
    }
    let world = world(ground);
    let mut client = Command::new(part("python/bin/python"));
    client
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/google_auth.py"))
        .arg("https://shop.example");
    let said = match ground {
        Ground::Sealed => said(&mut client, &world, &["GCE_METADATA_HOST"]),
        // Without a namespace the library's ping would leave: the weaker form, in which a second variable keeps it here.
        _ => said(&mut client, &world, &["GCE_METADATA_HOST", "GCE_METADATA_IP"]),
    };
    assert_eq!(said["credentials"], "Credentials");
    assert_eq!(said["project"], PROJECT);
    assert_eq!(said["zone"], "projects/123456789012/zones/europe-west1-b");
    assert_eq!(said["email"].as_str(), HERE.email);
    assert_eq!(said["universe"], "googleapis.com");
    assert_eq!(said["valid"], true);
    check_tokens(&world, &said, "https://shop.example");
}

#[test]
fn the_go_metadata_client_finds_the_node_and_both_tokens() {
    let ground = namespace::enter("libraries::the_go_metadata_client_finds_the_node_and_both_tokens");
    if ground == Ground::Passed {
        return;
    }
    // Go takes the variable's word and asks nobody else, so it may run outside of a namespace just as well.
    let world = world(ground);
    let said = said(
        Command::new(part("bin/go-metadata-client")).arg("https://shop.example"),
        &world,
        &["GCE_METADATA_HOST"],
    );
    for (name, value) in [
        ("project", PROJECT),
        ("numeric_project", "123456789012"),
        ("zone", "europe-west1-b"),
        ("instance_name", "node-1"),
        ("instance_id", "42"),
        ("hostname", "node-1.example"),
        ("cluster", "reef"),
        ("email", HERE.email.unwrap()),
    ] {
        assert_eq!(said[name], value, "{name}");
    }
    assert_eq!(said["on_gce"], true);
    let lives = said["expires_in"].as_u64().unwrap();
    assert!((HOUR - 60..=HOUR).contains(&lives), "{lives}");
    assert_eq!(said["scopes"].as_array().unwrap().len(), 2, "{said}");
    check_tokens(&world, &said, "https://shop.example");
    // What the library got is what anybody at this address gets: one lease, not one per client.
    let again = crate::support::client::Client::connect(HERE.at, world.agent.address()).ask(&get(TOKEN));
    assert_eq!(again.token(), said["token"].as_str().unwrap());
}
