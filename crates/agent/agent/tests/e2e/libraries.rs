//! The libraries that pods use, unmodified, in pods without a variable that names the agent.

use serde_json::json;

use crate::node::Node;
use crate::pods::{Class, pod};
use crate::support::client_library::google::{GOOGLE_LIBRARIES, ID_TOKEN_AUDIENCE};
use crate::support::client_library::{
    ClientLibrary, LibraryRun, ProgramLocation, ResolverFiles, assert_all_ok, start_all,
};
use crate::support::cloud::{email, subject};

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn every_library_gets_the_pods_own_tokens() {
    let node = Node::start(&["cart", "search"]);
    node.install();
    let libraries: Vec<ClientLibrary> = GOOGLE_LIBRARIES.into_iter().filter(is_here).collect();
    assert_eq!(libraries.len(), 4);
    for (name, class) in [("cart", Class::Guaranteed), ("search", Class::BestEffort)] {
        let mut pod = pod(name, name, class);
        // Nobody answers questions about names here, and Python's library asks for this one.
        pod["spec"]["hostAliases"] =
            json!([{"ip": "169.254.169.254", "hostnames": ["metadata.google.internal"]}]);
        node.run(&pod);
        let enter = |program: &str| node.exec_command(name, &[program]);
        let names = ResolverFiles::new(std::path::Path::new("/run"));
        let mut runs = start_all(&libraries, &names, ProgramLocation::Pod(&enter), steps);
        runs.iter_mut().for_each(LibraryRun::wait_for_success);
        runs.iter().for_each(|run| eprintln!("{}", run.summary()));
        assert_all_ok(runs.iter().map(|run| check(&node, run, name)));
    }
    assert_eq!(node.real.pods(), 0);
}

/// Those whose programs need nothing of the machine that is not in the pod.
fn is_here(library: &ClientLibrary) -> bool {
    library.name.contains("Python") || library.name.contains("/go/") || library.name.contains("oauth2")
}

fn steps(library: &ClientLibrary) -> Vec<String> {
    let also = library.other_steps.iter().filter(|step| step.starts_with("identity"));
    [&library.credentials_step].into_iter().chain(also).map(|step| (*step).to_owned()).collect()
}

fn check(node: &Node, run: &LibraryRun, account: &str) -> Result<(), String> {
    let token = node.cloud.read(run.value_of_step(run.library.credentials_step)?);
    assert_eq!((token.sub, token.account), (subject(account), Some(email(account))), "{}", run.library.name);
    let identity = format!("identity={ID_TOKEN_AUDIENCE}");
    if run.library.other_steps.contains(&&*identity) {
        assert_eq!(
            node.cloud.identity(run.value_of_step(&identity)?)["email"],
            email(account),
            "{}",
            run.library.name
        );
    }
    Ok(())
}
