//! Flags of other tools: what `import` prints is what `check` takes.

use std::process::{Command, Output};

use crate::support::PROGRAM;
use crate::support::process::run;
use crate::support::world::{Files, Plan};

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
        ("kube2iam", &[&of_base[1], "--default-role=a", "--node=n1"], "--default-role: there is no role"),
    ] {
        let imported = run(PROGRAM, &[&["import", tool, "--region", "eu-west-1", "--"], more].concat());
        assert_eq!(imported.status.code(), Some(0), "{imported:?}");
        let (yaml, remarks) =
            (String::from_utf8(imported.stdout).unwrap(), String::from_utf8(imported.stderr).unwrap());
        assert!(remarks.contains(remark), "{remarks}");
        // kube2iam has no flag for it, and in a pod it is not needed.
        files.write("agent.yaml", &yaml.replace("  node: \"n1\"", "  kubeconfig: kube.yaml"));
        let checked = check(&files);
        assert_eq!(checked.status.code(), Some(0), "{checked:?}");
        assert!(String::from_utf8(checked.stdout).unwrap().contains(base));
    }
}

#[test]
fn flags_that_cannot_be_translated_print_no_configuration() {
    for (args, code) in [
        (&["import", "kiam", "--region=eu-west-1", "--", "--foo"][..], 1),
        (&["import", "kiam", "--region=eu-west-1"], 2),
    ] {
        let refused = run(PROGRAM, args);
        assert_eq!(refused.status.code(), Some(code), "{refused:?}");
        assert!(refused.stdout.is_empty() && !refused.stderr.is_empty(), "{refused:?}");
    }
}
