//! The libraries that pods use, unmodified, with no variable that names the agent.
//!
//! They run in a namespace that has nothing but loopback, with cloud and agent beside them, and find 169.254.169.254 and
//! `metadata.google.internal` by themselves, as on a node. All of them run side by side in each situation: most of their time is
//! spent between tries.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;

use seawall_emulator::faults::Faults;
use socket2::{Domain, Socket, Type};

use crate::support::cloud::Cloud;
use crate::support::namespace::{self, Ground};
use crate::support::process::Agent;
use crate::support::world::{CART, Files, PROJECT, Plan, Pod, World};
use crate::support::{PROGRAM, ip};

use crate::support::client_library::google::{GOOGLE_LIBRARIES, ID_TOKEN_AUDIENCE};
use crate::support::client_library::{
    ClientLibrary, LibraryRun, ProgramLocation, ResolverFiles, assert_all_ok, start_all,
};

const HOUR: u64 = 3600;

/// The pod that processes without a source address of their own are.
const HERE: Pod = Pod { at: ip(1), ..CART };

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(ip(1)), 0);
const LINK_LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 80);

/// What a refusal for want of the cloud says, whatever the cloud did.
const CLOUD_MISSING: &str = "(code: upstream_";

/// An agent as a node has it, at the link-local address, too, where that may be.
fn plan(ground: Ground, pods: Vec<Pod>) -> Plan {
    let listen = if ground == Ground::Sealed { vec![LISTEN, LINK_LOCAL] } else { vec![LISTEN] };
    Plan { pods, listen, ..Plan::federate() }
}

/// Where libraries run beside an agent with these files.
struct Scene {
    ground: Ground,
    names: ResolverFiles,
    /// A name server that never says a word.
    _silence: Option<UdpSocket>,
}

impl Scene {
    fn new(ground: Ground, files: &Files) -> Self {
        let silence = (ground == Ground::Sealed).then(|| UdpSocket::bind("127.0.0.1:53").unwrap());
        Self { ground, names: ResolverFiles::new(&files.path("")), _silence: silence }
    }

    fn start_all(&self, agent: &Agent, steps: impl Fn(&ClientLibrary) -> Vec<String>) -> Vec<LibraryRun> {
        let here = |program: &str| Command::new(program);
        let place = match self.ground {
            Ground::Sealed => ProgramLocation::Network(&here, &[]),
            _ => ProgramLocation::EnvironmentVariables(agent.first_listener_address()),
        };
        start_all(&GOOGLE_LIBRARIES, &self.names, place, steps)
    }
}

/// That an access token is that of this pod's account, and valid.
fn check_token(cloud: &Cloud, run: &LibraryRun) -> Result<(), String> {
    let token = run.value_of_step(run.library.credentials_step)?;
    let token = cloud.read_access_token(token).ok_or_else(|| format!("{}: {token}", run.library.name))?;
    assert_eq!((token.account.as_deref(), token.sub), (HERE.email, HERE.subject()));
    Ok(())
}

/// That everything else that a library was asked for is what this node and pod have.
fn check_answers(cloud: &Cloud, run: &LibraryRun) -> Result<(), String> {
    for step in run.library.other_steps {
        let value = run.value_of_step(step)?;
        let expected = match step.split('=').next().unwrap() {
            "project" => PROJECT,
            // Go's library takes the last word of it.
            "zone" if !value.contains('/') => "europe-west1-b",
            "zone" => "projects/123456789012/zones/europe-west1-b",
            "numeric-project" => "123456789012",
            "instance-name" => "node-1",
            "instance-id" => "42",
            "hostname" => "node-1.example",
            "attribute" => "reef",
            "email" => HERE.email.unwrap(),
            "universe" => "googleapis.com",
            "on-gce" => "true",
            "lives" => {
                assert!((HOUR - 60..=HOUR).contains(&value.parse().unwrap()), "{value}");
                value
            }
            "scopes" => {
                "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/userinfo.email"
            }
            "identity" => {
                assert_eq!(cloud.identity(value, ID_TOKEN_AUDIENCE)["email"].as_str(), HERE.email);
                value
            }
            other => panic!("what is {other}?"),
        };
        assert_eq!(value, expected, "{}: {step}", run.library.name);
    }
    Ok(())
}

#[test]
fn every_library_finds_the_node_and_both_tokens() {
    let ground = namespace::enter("libraries::every_library_finds_the_node_and_both_tokens");
    if ground == Ground::Passed {
        return;
    }
    let world = World::start(&plan(ground, vec![HERE]));
    let scene = Scene::new(ground, &world.files);
    let steps = |library: &ClientLibrary| {
        let also = library.other_steps.iter().map(|step| (*step).to_owned());
        also.chain([library.credentials_step.to_owned()]).collect()
    };
    let mut runs = scene.start_all(&world.agent, steps);
    runs.iter_mut().for_each(LibraryRun::wait_for_success);
    let checks =
        runs.iter().flat_map(|run| [check_token(&world.cloud, run), check_answers(&world.cloud, run)]);
    assert_all_ok(checks);
}

/// A probe that is refused hides why: a library that takes the agent for no metadata server says that it found no credentials.
#[test]
fn every_library_says_that_no_pod_is_known_at_its_address() {
    let ground = namespace::enter("libraries::every_library_says_that_no_pod_is_known_at_its_address");
    if ground == Ground::Passed {
        return;
    }
    let world = World::start(&plan(ground, vec![CART]));
    let scene = Scene::new(ground, &world.files);
    let mut runs = scene.start_all(&world.agent, ClientLibrary::steps_up_to_credentials);
    runs.iter_mut().for_each(LibraryRun::wait_for_success);
    assert_all_ok(runs.iter().map(|run| {
        run.check_error_contains(
            run.library.credentials_step,
            "The agent knows no pod with this source address",
        )
    }));
}

/// A pod starts while the cloud is missing, and the cloud comes back.
fn cold_start(scene: &Scene, agent: &Agent, bring_back: impl FnOnce() -> Cloud) {
    let steps = |library: &ClientLibrary| {
        vec![
            // Some libraries wait for 3 s, and the agent answers after 2 s. Programs that still start would take the CPU time between.
            "wait".into(),
            library.credentials_step.to_owned(),
            "wait".into(),
            format!("until:{}", library.credentials_step),
        ]
    };
    let mut runs = scene.start_all(agent, steps);
    for run in &mut runs {
        run.read_until_step("wait");
    }
    for run in &mut runs {
        run.resume();
    }
    for run in &mut runs {
        run.read_until_step("wait");
    }
    let refused: Vec<_> = runs
        .iter()
        .map(|run| run.check_error_contains(run.library.credentials_step, CLOUD_MISSING))
        .collect();
    let cloud = bring_back();
    for run in &mut runs {
        run.resume();
    }
    runs.iter_mut().for_each(LibraryRun::wait_for_success);
    let recovered = runs.iter().map(|run| check_token(&cloud, run));
    // Shown when the test fails, and by --nocapture.
    runs.iter().for_each(|run| eprintln!("{}", run.summary()));
    assert_all_ok(refused.into_iter().chain(recovered));
}

/// The cold start with a cloud that is there and does not do its work.
fn cold_start_with(ground: Ground, faults: &Faults) {
    if ground == Ground::Passed {
        return;
    }
    let World { agent, cloud, files } = World::start(&plan(ground, vec![HERE]));
    cloud.set_faults(faults);
    let bring_back = || {
        cloud.set_faults(&Faults::default());
        cloud
    };
    cold_start(&Scene::new(ground, &files), &agent, bring_back);
}

#[test]
fn every_library_says_that_the_cloud_hangs_and_gets_its_token_after() {
    let ground =
        namespace::enter("libraries::every_library_says_that_the_cloud_hangs_and_gets_its_token_after");
    cold_start_with(ground, &Faults { hang_rate: 1.0, ..Faults::default() });
}

#[test]
fn every_library_says_that_the_cloud_fails_and_gets_its_token_after() {
    let ground =
        namespace::enter("libraries::every_library_says_that_the_cloud_fails_and_gets_its_token_after");
    cold_start_with(ground, &Faults { error_rate: 1.0, error_status: Some(503), ..Faults::default() });
}

#[test]
fn every_library_says_that_the_cloud_is_absent_and_gets_its_token_after() {
    let ground =
        namespace::enter("libraries::every_library_says_that_the_cloud_is_absent_and_gets_its_token_after");
    if ground == Ground::Passed {
        return;
    }
    // A bound port on which nobody listens: refused, and nobody else's meanwhile.
    let reserved = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    reserved.set_reuse_address(true).unwrap();
    reserved.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let upstream = reserved.local_addr().unwrap().as_socket().unwrap();
    let files = Files::new(&plan(ground, vec![HERE]), upstream);
    // Tokens of a cloud that is not there yet are not those of the later one; they only have to look like tokens.
    files.write(&format!("tokens/{}", HERE.name), "e30.e30.c2ln");
    let agent = Agent::start(PROGRAM, &files.config());
    let bring_back = || {
        drop(reserved);
        let cloud = Cloud::start_at(upstream, &[HERE]);
        files.project(&cloud, &HERE);
        cloud
    };
    cold_start(&Scene::new(ground, &files), &agent, bring_back);
}
