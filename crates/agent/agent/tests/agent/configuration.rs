//! Mistakes of the operator: named all at once, before anything is served.

use std::net::TcpListener;
use std::process::Output;

use crate::support::PROGRAM;
use crate::support::process::run;
use crate::support::world::{CART, Files, Plan};

/// Five mistakes in five places.
fn five_mistakes(upstream: &str) -> String {
    let right =
        Plan::federate().limits("connections: 0, headerTimeout: soon").yaml(upstream.parse().unwrap());
    right
        .replace("projectId: seawall-emulator", "projectId: \"no project\"")
        .replace("listen: [\"127.0.0.1:0\"]", "listen: [here]")
        .replace("threads: auto", "thread: 1")
}

const PLACES: [&str; 5] =
    ["google.projectId", "listen[0]", "limits.connections", "limits.headerTimeout", "thread"];

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn files(yaml: &str) -> Files {
    let files = Files::new(&Plan::federate(), "127.0.0.1:1".parse().unwrap());
    files.write("agent.yaml", yaml);
    files
}

#[test]
fn five_mistakes_are_named_at_once_by_check_and_at_the_start() {
    let files = files(&five_mistakes("127.0.0.1:1"));
    let config = files.config();
    let config = config.to_str().unwrap();
    for args in [&["check", "--config", config][..], &["--config", config]] {
        let complaint = complaint(&run(PROGRAM, args));
        assert!(complaint.contains("5 mistake(s)"), "{complaint}");
        for place in PLACES {
            assert!(complaint.contains(place), "{place} in {complaint}");
        }
    }
}

#[test]
fn keys_of_the_old_shape_are_refused_with_the_new_key_in_a_sentence() {
    let old = "mode: conceal\nconceal: { upstream: \"http://127.0.0.1:1\" }\nfederate: { projectId: p }\n\
               identity: { strategy: source-ip, nodeName: node-1, passthrough: [a/b] }\n";
    let files = files(old);
    let complaint = complaint(&run(PROGRAM, &["check", "--config", files.config().to_str().unwrap()]));
    for sentence in [
        "mode: found \"conceal\", expected nothing: this key is now google.mode",
        "conceal: found",
        "conceal.upstream is now google.upstreamUrl",
        "federate: found",
        "the keys below this key are now directly in the section google",
        "identity.passthrough: found",
        "this list is now realServer, at the top of the file",
    ] {
        assert!(complaint.contains(sentence), "{sentence} in {complaint}");
    }
    assert!(complaint.contains("4 mistake(s)"), "{complaint}");
}

#[test]
fn what_check_prints_is_a_configuration_of_the_same_effect() {
    let files = files(&Plan::federate().yaml("127.0.0.1:1".parse().unwrap()));
    let check = || run(PROGRAM, &["check", "--config", files.config().to_str().unwrap()]);
    let first = check();
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    files.write("agent.yaml", std::str::from_utf8(&first.stdout).unwrap());
    assert_eq!(check().stdout, first.stdout);
}

#[test]
fn the_documented_default_needs_only_its_identity_file() {
    let default = run(PROGRAM, &["config-default"]);
    let files = files(std::str::from_utf8(&default.stdout).unwrap());
    let check = run(PROGRAM, &["check", "--config", files.config().to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(0), "{check:?}");
}

/// Outside a cluster `check` said only that the cluster's credentials cannot be used, of a file that was right.
#[test]
fn a_configuration_can_be_checked_where_neither_its_node_nor_its_files_are() {
    let section = "google: { mode: conceal, upstreamUrl: \"http://127.0.0.1:1\" }\n";
    for identity in [
        "{ strategy: source-ip }",
        "{ strategy: source-ip, kubeconfig: nowhere.yaml }",
        "{ strategy: static, file: nowhere.yaml }",
    ] {
        let files = files(&format!("identity: {identity}\n{section}"));
        let config = files.config();
        let config = config.to_str().unwrap();
        let offline = run(PROGRAM, &["check", "--offline", "--config", config]);
        assert_eq!(offline.status.code(), Some(0), "{identity}: {offline:?}");
        assert!(String::from_utf8(offline.stdout).unwrap().contains("strategy:"), "{identity}");
        assert!(
            String::from_utf8(offline.stderr).unwrap().contains("does not check the files"),
            "{identity}"
        );
        files.write("agent.yaml", &format!("identity: {identity}\n{section}listen: [here]\n"));
        let mistaken = complaint(&run(PROGRAM, &["check", "--offline", "--config", config]));
        assert!(
            mistaken.contains("1 mistake(s)") && mistaken.contains("listen[0]"),
            "{identity}: {mistaken}"
        );
    }
}

#[test]
fn what_is_wrong_with_the_machine_is_not_said_of_the_configuration() {
    let files = files(
        "identity: { strategy: source-ip, nodeName: n1, kubeconfig: nowhere.yaml }\n\
         google: { mode: conceal, upstreamUrl: \"http://127.0.0.1:1\" }\n",
    );
    let complaint = complaint(&run(PROGRAM, &["check", "--config", files.config().to_str().unwrap()]));
    for said in ["the configuration has no mistake", "check --offline", "nowhere.yaml"] {
        assert!(complaint.contains(said), "{said} in {complaint}");
    }
}

/// What a provider accepts that was told of no other audience, and what the shipped admission policy lets pass.
#[test]
fn pods_tokens_are_for_the_provider_unless_another_audience_is_named() {
    let audience = |yaml: &str| {
        let files = files(yaml);
        let check = run(PROGRAM, &["check", "--config", files.config().to_str().unwrap()]);
        let shown = String::from_utf8(check.stdout).unwrap();
        let line = shown.lines().find(|line| line.contains("tokenAudience")).unwrap();
        line.trim().trim_start_matches("tokenAudience: ").trim_matches(['"', '\'']).to_owned()
    };
    let least =
        "google: { projectId: reef, numericProjectId: 1, zone: z, cluster: { name: c, location: l }, ";
    let provider = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q";
    assert_eq!(audience(&format!("{least}workloadIdentityProvider: \"{provider}\" }}\n")), provider);
    let gke = "identitynamespace:reef.svc.id.goog:https://container.googleapis.com/v1/projects/reef/locations/l/clusters/c";
    let of_gke = format!("{least}exchange: identitybindingtoken, workloadIdentityProvider: \"{gke}\" }}\n");
    assert_eq!(audience(&of_gke), "reef.svc.id.goog");
}

#[test]
fn an_attribute_has_a_name_for_a_path_and_none_of_the_clusters() {
    let plan = Plan::federate().yaml("127.0.0.1:1".parse().unwrap());
    let long = "x".repeat(1025);
    let files = files(&format!(
        "{plan}  attributes: {{ a/b: c, ..: d, cluster-name: e, n: [1], control: \"a\\nb\", long: {long}, good: f }}\n"
    ));
    let complaint = complaint(&run(PROGRAM, &["check", "--config", files.config().to_str().unwrap()]));
    for expected in [
        "6 mistake(s)",
        "google.attributes.a/b: found \"c\", expected an attribute that is a name of letters",
        "google.attributes...: found \"d\", expected an attribute that is a name of letters",
        "google.attributes.cluster-name: found \"e\", expected no attribute of this name: its value is in google.cluster.name",
        "google.attributes.n: found",
        "google.attributes.control: found \"a\\nb\", expected text of up to 1024 bytes without control characters",
        "google.attributes.long: found",
    ] {
        assert!(complaint.contains(expected), "{expected} in {complaint}");
    }
}

#[test]
fn an_identity_file_that_cannot_be_used_stops_check_and_start() {
    let files = files(&Plan::federate().yaml("127.0.0.1:1".parse().unwrap()));
    let twice = Plan { pods: vec![CART, CART], ..Plan::federate() }.pods_yaml();
    let both = |what: &str| {
        let config = files.config();
        let config = config.to_str().unwrap();
        for args in [&["check", "--config", config][..], &["--config", config]] {
            let complaint = complaint(&run(PROGRAM, args));
            assert!(complaint.contains("pods.yaml") && complaint.contains(what), "{what} in {complaint}");
        }
    };
    files.write("pods.yaml", &twice);
    both("pods[1].address");
    files.write("pods.yaml", "pods: [");
    both("mistake");
    std::fs::remove_file(files.path("pods.yaml")).unwrap();
    both("No such file");
    std::fs::create_dir(files.path("pods.yaml")).unwrap();
    both("cannot read");
}

fn fifo(path: &std::path::Path) {
    let rights = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rights, 0).unwrap();
}

/// What `check` and the start say of a configuration.
fn complaints(config: &std::path::Path) -> [String; 2] {
    let config = config.to_str().unwrap();
    [&["check", "--config", config][..], &["--config", config]].map(|args| complaint(&run(PROGRAM, args)))
}

/// A FIFO was waited at for ever, and a device read until memory ended.
#[test]
fn only_a_regular_file_of_a_stated_size_is_read_wherever_one_is_named() {
    let yaml = Plan::federate().yaml("127.0.0.1:1".parse().unwrap());
    let with_ca = format!("{yaml}  caFile: odd\n");
    let strategy = "identity: { strategy: static, file: pods.yaml }";
    let kubeconfig = |file: &str| {
        yaml.replace(
            strategy,
            &format!("identity: {{ strategy: source-ip, nodeName: n1, kubeconfig: {file} }}"),
        )
    };
    let in_kubeconfig = "clusters:\n- name: c\n  cluster: { server: 'https://127.0.0.1:1', certificate-authority: odd }\n\
                         users:\n- name: u\n  user: { tokenFile: odd }\n\
                         contexts:\n- name: x\n  context: { cluster: c, user: u }\ncurrent-context: x\n";
    let files = files(&yaml);
    files.write("kube.yaml", in_kubeconfig);
    let odd = files.path("odd");
    for what in ["is a FIFO", "is a device", "is a directory", "is larger than"] {
        match what {
            "is a FIFO" => fifo(&odd),
            "is a device" => std::os::unix::fs::symlink("/dev/zero", &odd).unwrap(),
            "is a directory" => std::fs::create_dir(&odd).unwrap(),
            _ => std::fs::write(&odd, vec![b'#'; 5 << 20]).unwrap(),
        }
        let named = yaml.replace("file: pods.yaml", "file: odd");
        for text in [&with_ca, &kubeconfig("odd"), &kubeconfig("kube.yaml"), &named] {
            files.write("agent.yaml", text);
            for complaint in complaints(&files.config()) {
                assert!(complaint.contains("odd") && complaint.contains(what), "{what} in {complaint}");
            }
        }
        for complaint in complaints(&odd) {
            assert!(complaint.contains("odd") && complaint.contains(what), "{what} in {complaint}");
        }
        let _ = std::fs::remove_file(&odd).or_else(|_| std::fs::remove_dir(&odd));
    }
}

/// As Kubernetes mounts a ConfigMap: a link to a link to a regular file.
#[test]
fn a_file_that_is_reached_by_links_is_read() {
    let files = files("");
    std::fs::create_dir(files.path("..data")).unwrap();
    files.write("..data/agent.yaml", &Plan::federate().yaml("127.0.0.1:1".parse().unwrap()));
    std::fs::remove_file(files.config()).unwrap();
    std::os::unix::fs::symlink("..data/agent.yaml", files.config()).unwrap();
    let check = run(PROGRAM, &["check", "--config", files.config().to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(0), "{check:?}");
}

#[test]
fn a_port_in_use_is_named() {
    for which in ["listen: [\"127.0.0.1:0\"]", "admin: \"127.0.0.1:0\""] {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let yaml = Plan::federate().yaml("127.0.0.1:1".parse().unwrap());
        let files = files(&yaml.replace(which, &which.replace("127.0.0.1:0", &address)));
        let complaint = complaint(&run(PROGRAM, &["--config", files.config().to_str().unwrap()]));
        assert!(complaint.contains(&address) && complaint.contains("in use"), "{complaint}");
    }
}

#[test]
fn usage_that_makes_no_sense_is_answered_with_the_usage() {
    for args in [&["serve"][..], &["--config"], &["check", "--verbose"]] {
        let output = run(PROGRAM, args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("Usage:"), "{output:?}");
    }
    let missing = complaint(&run(PROGRAM, &["check", "--config", "/nowhere/agent.yaml"]));
    assert!(missing.contains("/nowhere/agent.yaml"), "{missing}");
}
