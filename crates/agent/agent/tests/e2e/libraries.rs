//! The libraries that pods use, unmodified, in pods without a variable that names the agent.

use serde_json::json;

use crate::node::Node;
use crate::pods::{Class, pod};
use crate::support::cloud::{email, subject};
use crate::support::library::google::{AUDIENCE, GOOGLE};
use crate::support::library::{Library, Names, Place, Run, all_well, start_all};

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn every_library_gets_the_pods_own_tokens() {
    let node = Node::start(&["cart", "search"]);
    node.install();
    let libraries: Vec<Library> = GOOGLE.into_iter().filter(is_here).collect();
    assert_eq!(libraries.len(), 4);
    for (name, class) in [("cart", Class::Guaranteed), ("search", Class::BestEffort)] {
        let mut pod = pod(name, name, class);
        // Nobody answers questions about names here, and Python's library asks for this one.
        pod["spec"]["hostAliases"] =
            json!([{"ip": "169.254.169.254", "hostnames": ["metadata.google.internal"]}]);
        node.run(&pod);
        let enter = |program: &str| node.exec(name, &[program]);
        let names = Names::new(std::path::Path::new("/run"));
        let mut runs = start_all(&libraries, &names, Place::Pod(&enter), steps);
        runs.iter_mut().for_each(Run::finish);
        runs.iter().for_each(|run| eprintln!("{}", run.summary()));
        all_well(runs.iter().map(|run| check(&node, run, name)));
    }
    assert_eq!(node.real.pods(), 0);
}

/// Those whose programs need nothing of the machine that is not in the pod.
fn is_here(library: &Library) -> bool {
    library.name.contains("Python") || library.name.contains("/go/") || library.name.contains("oauth2")
}

fn steps(library: &Library) -> Vec<String> {
    let also = library.also.iter().filter(|step| step.starts_with("identity"));
    [&library.credentials].into_iter().chain(also).map(|step| (*step).to_owned()).collect()
}

fn check(node: &Node, run: &Run, account: &str) -> Result<(), String> {
    let token = node.cloud.read(run.value(run.library.credentials)?);
    assert_eq!((token.sub, token.account), (subject(account), Some(email(account))), "{}", run.library.name);
    let identity = format!("identity={AUDIENCE}");
    if run.library.also.contains(&&*identity) {
        assert_eq!(
            node.cloud.identity(run.value(&identity)?)["email"],
            email(account),
            "{}",
            run.library.name
        );
    }
    Ok(())
}
