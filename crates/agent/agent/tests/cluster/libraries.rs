//! The libraries that pods use, unmodified: processes in a pod's network that find the metadata server by themselves.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::*;

use crate::support::client_library::google::GOOGLE_LIBRARIES;
use crate::support::client_library::{ClientLibrary, LibraryRun, ResolverFiles, assert_all_ok};
use crate::support::name_server::{NameServer, lines_of_the_page};
use crate::support::network::GATEWAY;
use crate::support::scene::Scene;

/// Any sentence of the agent about a caller whom it does not know: that the cluster may still tell is part of it, or not.
const NOBODY_KNOWN: &str = "at this source address";

/// Token and what else it can be asked for that is not the same for every pod, each until it is answered.
pub(crate) fn own_things(library: &ClientLibrary) -> Vec<String> {
    let own = library.other_steps.iter().filter(|step| ["project", "identity"].contains(&question(step)));
    [&library.credentials_step].into_iter().chain(own).map(|step| format!("until:{step}")).collect()
}

fn question(step: &str) -> &str {
    step.split('=').next().unwrap_or(step)
}

/// That what a library of Google's was given is this pod's own.
pub(crate) fn check(world: &World, pod: &Pod, run: &LibraryRun) -> Result<(), String> {
    world.check(run.value_of_step(run.library.credentials_step)?, &pod.account);
    for step in run.library.other_steps {
        match question(step) {
            "project" => assert_eq!(run.value_of_step(step)?, "seawall-emulator", "{}", run.library.name),
            "identity" => {
                let claims = world.cloud.identity(run.value_of_step(step)?);
                assert_eq!(claims["email"], cloud::email(&pod.account), "{}", run.library.name);
            }
            _ => {}
        }
    }
    Ok(())
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn every_library_gets_the_pods_own_tokens() {
    let mut world = World::start(&["cart", "pay"], "");
    let pods = [world.pod("cart-0", "cart"), world.pod("pay-0", "pay")];
    let mut scenes =
        pods.each_ref().map(|pod| Scene::start(&world, &pod.sandbox, &GOOGLE_LIBRARIES, &[], own_things));
    scenes.iter_mut().for_each(Scene::finish);
    let pairs =
        pods.iter().zip(&scenes).flat_map(|(pod, scene)| scene.runs.iter().map(move |run| (pod, run)));
    assert_all_ok(pairs.map(|(pod, run)| check(&world, pod, run)));
}

/// Some libraries decide once per process whether there is a metadata server; one that has been told no never asks again. Six
/// seconds outlast their asking, and the tries that most of them make for a token.
///
/// At the same time, at an address at which there never will be a pod, each says why it got nothing.
#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn every_library_gets_its_token_once_its_pod_is_known_and_says_why_while_it_is_not() {
    let mut world = World::start(&["cart"], "");
    let pod = world.bound("cart-0", "cart");
    let nobody = world.network.sandbox();
    let mut strangers =
        Scene::start(&world, &nobody, &GOOGLE_LIBRARIES, &[], ClientLibrary::steps_up_to_credentials);
    let mut early = Scene::start(&world, &pod.sandbox, &GOOGLE_LIBRARIES, &[], own_things);
    for run in &mut early.runs {
        run.read_until_step("begin");
    }
    // Part of what happens, not a wait for it.
    pause(Duration::from_secs(6));
    world.api.set_pod_status(&pod.name, "Running", &pod.sandbox.address.to_string());
    early.finish();
    strangers.finish();
    let known = early.runs.iter().map(|run| check(&world, &pod, run));
    let unknown =
        strangers.runs.iter().map(|run| run.check_error_contains(run.library.credentials_step, NOBODY_KNOWN));
    assert_all_ok(known.chain(unknown));
}

/// Outside Google nothing resolved `metadata.google.internal`, and Python's library found no server. The other tests hid it by a hosts file.
#[test]
#[ignore = "SKIPPED: needs kube-apiserver, etcd and CoreDNS: run scripts/cluster-test"]
fn every_library_finds_the_agent_by_coredns_with_the_lines_of_the_page_and_doctor_warns_without_them() {
    let mut world = World::start(&["cart"], "");
    let pod = world.pod("cart-0", "cart");
    wait_until_true("the pod is known", || pod.ask(TOKEN).status == 200);
    let folder = world.folder.path();
    let names = ResolverFiles::of_cluster(folder, GATEWAY.into());

    let without = NameServer::start(folder, "");
    let python = &GOOGLE_LIBRARIES[..1];
    let mut lost =
        Scene::with_name_server(&pod.sandbox, python, &names, ClientLibrary::steps_up_to_credentials);
    let name = doctor_on_the_name(&pod, &names);
    assert_eq!(name["status"], "warning", "{name}");
    let fix = name["fix"].as_str().unwrap();
    assert!(
        fix.contains("CoreDNS") && fix.contains("hosts { 169.254.169.254 metadata.google.internal"),
        "{fix}"
    );
    lost.finish();
    let lost = &lost.runs[0];
    assert_all_ok([lost.check_error_contains(lost.library.credentials_step, "metadata.google.internal")]);
    drop(without);

    let _with = NameServer::start(folder, &lines_of_the_page());
    let mut scene = Scene::with_name_server(&pod.sandbox, &GOOGLE_LIBRARIES, &names, own_things);
    scene.finish();
    assert_all_ok(scene.runs.iter().map(|run| check(&world, &pod, run)));
    let name = doctor_on_the_name(&pod, &names);
    assert_eq!(name["status"], "ok", "{name}");
}

/// What `seawall doctor identity` finds about the name of Google's metadata server in a pod.
fn doctor_on_the_name(pod: &Pod, names: &ResolverFiles) -> Value {
    let agent =
        std::env::var_os("SEAWALL_AGENT").unwrap_or_else(|| panic!("SKIPPED: run scripts/cluster-test"));
    let mut command = names.enclose(pod.sandbox.command("unshare"));
    // The tool of the same build.
    command.arg(Path::new(&agent).with_file_name("seawall"));
    command.args(["doctor", "identity", "--json", "-"]).env("KUBERNETES_SERVICE_HOST", "10.90.0.1");
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let mut findings = report["findings"].as_array().unwrap().iter();
    findings.find(|finding| finding["id"] == "identity.name").unwrap_or_else(|| panic!("{report}")).clone()
}

/// gcloud and the libraries' detection ask for the bare address and look for the flavour in the answer's head.
#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_root_probe_finds_a_metadata_server() {
    let mut world = World::start(&["cart"], "");
    let pod = world.pod("cart-0", "cart");
    wait_until_true("the pod is known", || pod.ask(TOKEN).status == 200);
    for path in ["/", "/computeMetadata/"] {
        let answer = pod.ask(path);
        assert_eq!((answer.status, answer.header("metadata-flavor")), (200, "Google"), "{path}: {answer:?}");
    }
}
