//! The libraries that pods use, unmodified: processes in a pod's network that ask the address of the metadata server.

use std::process::Command;

use serde_json::Value;

use crate::support::parts::part;
use crate::support::*;

/// Runs a client with nothing in its environment but a home.
fn said(client: &mut Command, world: &World) -> Value {
    let output = client
        .env_clear()
        .env("HOME", world.folder.path())
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        // There are no names in here; the address is the one that libraries know.
        .env("GCE_METADATA_HOST", "169.254.169.254")
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}\n{}", world.agent.log());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check(world: &World, pod: &Pod, said: &Value) {
    world.check(said["token"].as_str().unwrap(), &pod.account);
    assert_eq!(said["project"], "seawall-emulator");
    assert_eq!(said["zone"].as_str().unwrap().rsplit('/').next(), Some("europe-west1-b"));
    let identity = said["identity"].as_str().unwrap();
    assert_eq!(world.cloud.identity(identity)["email"], cloud::email(&pod.account));
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn google_auth_for_python_gets_the_pods_own_tokens() {
    let mut world = World::start(&["cart", "pay"], "");
    for (name, account) in [("cart-0", "cart"), ("pay-0", "pay")] {
        let pod = world.pod(name, account);
        let mut client = pod.sandbox.command(part("python/bin/python"));
        client
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/google_auth.py"))
            .arg("https://shop.example");
        check(&world, &pod, &said(&mut client, &world));
    }
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn gos_metadata_and_oauth2_packages_get_the_pods_own_tokens() {
    let mut world = World::start(&["cart", "pay"], "");
    for (name, account) in [("cart-0", "cart"), ("pay-0", "pay")] {
        let pod = world.pod(name, account);
        let mut client = pod.sandbox.command(part("bin/go-metadata-client"));
        let said = said(client.arg("https://shop.example"), &world);
        check(&world, &pod, &said);
        // golang.org/x/oauth2/google, which every Google client library for Go begins with.
        world.check(said["oauth2_token"].as_str().unwrap(), account);
        assert_eq!(
            (&said["oauth2_valid"], &said["oauth2_project"]),
            (&true.into(), &"seawall-emulator".into())
        );
    }
}

/// gcloud and the libraries' detection ask for the bare address and look for the flavour in the answer's head.
#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_root_probe_finds_a_metadata_server() {
    let mut world = World::start(&["cart"], "");
    let pod = world.pod("cart-0", "cart");
    until_true("the pod is known", || pod.ask(TOKEN).status == 200);
    for path in ["/", "/computeMetadata/"] {
        let answer = pod.ask(path);
        assert_eq!((answer.status, answer.header("metadata-flavor")), (200, "Google"), "{path}: {answer:?}");
    }
}
