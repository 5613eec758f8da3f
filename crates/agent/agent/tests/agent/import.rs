//! Flags of other tools: what `import` prints is what `check` takes.

use std::process::{Command, Output};

use seawall_testkit::objects;
use serde_json::json;

use crate::support::cloud::{Cloud, GKE_PROVIDER};
use crate::support::process::{Agent, run};
use crate::support::world::{DIRECT, Files, Plan, TOKEN};
use crate::support::{PROGRAM, client};

const KUBECONFIG: &str = "clusters: [{ name: c, cluster: { server: 'https://127.0.0.1:1' } }]\n\
                          users: [{ name: u, user: { token: t } }]\n\
                          contexts: [{ name: x, context: { cluster: c, user: u } }]\ncurrent-context: x\n";

/// As on a node, where the downward API names it.
fn check(files: &Files) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["check", "--config"]).arg(files.config()).env("NODE_NAME", "n1").output().unwrap()
}

#[test]
fn what_import_prints_is_what_check_takes_and_remarks_are_apart() {
    let files = Files::new(&Plan::federate(), "127.0.0.1:1".parse().unwrap());
    files.write("kube.yaml", KUBECONFIG);
    let base = "arn:aws:iam::123456789012:role/";
    let of_base = [format!("--role-base-arn={base}"), format!("--base-role-arn={base}")];
    for (tool, more, remark) in [
        ("kiam", &[&of_base[0], "--kubeconfig=kube.yaml", "--cert=a"][..], "--cert: nothing to do"),
        (
            "kube2iam",
            &[&of_base[1], "--default-role=a", "--node=n1"],
            "--default-role: the agent has no default role",
        ),
    ] {
        let imported = run(PROGRAM, &[&["import", tool, "--region", "eu-west-1", "--"], more].concat());
        assert_eq!(imported.status.code(), Some(0), "{imported:?}");
        let (yaml, remarks) =
            (String::from_utf8(imported.stdout).unwrap(), String::from_utf8(imported.stderr).unwrap());
        assert!(remarks.contains(remark), "{remarks}");
        // kube2iam has no flag for it, and in a pod it is not needed.
        files.write("agent.yaml", &yaml.replace("  nodeName: \"n1\"", "  kubeconfig: kube.yaml"));
        let checked = check(&files);
        assert_eq!(checked.status.code(), Some(0), "{checked:?}");
        assert!(String::from_utf8(checked.stdout).unwrap().contains(base));
    }
}

/// The whole way: the DaemonSet's flags, with the emulator for Google, become an agent that serves a pod.
#[test]
fn an_agent_with_the_configuration_from_gkes_flags_gives_a_pod_its_token() {
    let cloud = Cloud::start(&[DIRECT]);
    let exchange = format!("--token-exchange-endpoint=http://{}/v1/identitybindingtoken", cloud.address());
    let (pool, cluster) = GKE_PROVIDER.strip_prefix("identitynamespace:").unwrap().split_once(':').unwrap();
    let (pool, cluster) =
        (format!("--identity-namespace={pool}"), format!("--identity-provider-id={cluster}"));
    let own = ["import", "gke-metadata-server", "--project-number=123456789012", "--zone=europe-west1", "--"];
    let flags = [
        "/gke-metadata-server",
        "--logtostderr",
        &exchange,
        &pool,
        &cluster,
        "--attributes=cluster-name=reef,cluster-location=europe-west1,team=shop",
    ];
    let imported = run(PROGRAM, &[&own[..], &flags].concat());
    assert_eq!(imported.status.code(), Some(0), "{imported:?}");
    let yaml = String::from_utf8(imported.stdout).unwrap();
    let files = Files::new(&Plan { pods: vec![DIRECT], ..Plan::gke_pool() }, cloud.address());
    files.project(&cloud, &DIRECT);
    // The chart adds these keys.
    let rest = "listen: [\"127.0.0.1:0\"]\nadmin: \"127.0.0.1:0\"\nidentity: { strategy: static, file: pods.yaml }\n";
    files.write("agent.yaml", &format!("{yaml}{rest}"));
    let agent = Agent::start(PROGRAM, &files.config());
    let token = client::ask(DIRECT.at, agent.first_listener_address(), TOKEN).token();
    assert_eq!(cloud.read_access_token(&token).unwrap().sub, DIRECT.subject());
    let team = "/computeMetadata/v1/instance/attributes/team";
    assert_eq!(client::ask(DIRECT.at, agent.first_listener_address(), team).body, "shop");
}

/// Of the flags of no tool but what each must be told.
fn imported(tool: &str) -> String {
    let args = ["import", tool, "--region", "eu-west-1", "--account", "123456789012", "--"];
    String::from_utf8(run(PROGRAM, &args).stdout).unwrap()
}

/// Session tokens did not outlive a restart, because nobody who moves writes a key that he does not know.
#[test]
fn the_daemonset_that_is_shipped_keeps_the_keys_that_import_writes_and_reads_its_configuration() {
    let (_, daemonset) =
        objects::parse_yaml_objects(include_str!("../../../../../deploy/daemonset.yaml")).remove(0);
    let spec = &daemonset["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let mounted = |volume: &str| {
        let mounts = container["volumeMounts"].as_array().unwrap().iter();
        mounts.clone().find(|mount| mount["name"] == volume).unwrap()["mountPath"].as_str().unwrap()
    };
    let kept = spec["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "keys").unwrap();
    assert_eq!(kept["hostPath"]["path"], mounted("keys"));
    for tool in ["kiam", "kube2iam"] {
        let token_key_file = format!("tokenKeyFile: \"{}/token-keys\"", mounted("keys"));
        assert!(imported(tool).contains(&token_key_file), "{token_key_file} in {}", imported(tool));
    }
    assert_eq!(container["args"], json!(["--config", format!("{}/agent.yaml", mounted("config"))]));
    let default = String::from_utf8(run(PROGRAM, &["config-default"]).stdout).unwrap();
    for (probe, page) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        let asked = &container[probe]["httpGet"];
        let admin = format!("admin: \"{}:{}\"", asked["host"].as_str().unwrap(), asked["port"]);
        assert!(default.contains(&admin) && asked["path"] == page, "{admin} {asked}");
    }
}

#[test]
fn flags_that_cannot_be_translated_print_no_configuration() {
    for (args, code) in [
        (&["import", "kiam", "--region=eu-west-1", "--", "--foo"][..], 1),
        (&["import", "kiam", "--region=eu-west-1"], 2),
        (&["import", "gke-metadata-server", "--zone=a", "--", "--foo"], 1),
    ] {
        let refused = run(PROGRAM, args);
        assert_eq!(refused.status.code(), Some(code), "{refused:?}");
        assert!(refused.stdout.is_empty() && !refused.stderr.is_empty(), "{refused:?}");
    }
}
