//! AWS's libraries, unmodified, as processes in pods' networks: each gets the role of its own pod, from the metadata service at
//! 169.254.169.254 that it finds by itself and from the endpoint of containers at 169.254.170.23 that its environment names.

use std::time::Duration;

use serde_json::json;

use crate::libraries;
use crate::support::aws::{Sts, annotate_pod, annotated, containers_token, give_roles, start};
use crate::support::client_library::aws::{AWS_LIBRARIES, GO_IMDS, JAVA_1};
use crate::support::client_library::google::GOOGLE_LIBRARIES;
use crate::support::client_library::{ClientLibrary, LibraryRun, assert_all_ok};
use crate::support::network::{CONTAINERS, Sandbox};
use crate::support::scene::Scene;
use crate::support::*;

const WITHOUT_TOKEN: &str = "seawall_aws_imdsv1_requests_total";

/// An agent with both clouds behind it.
struct Stage {
    world: World,
    sts: Sts,
    /// Where a program asks who it is; nothing of the agent's.
    sts_url: String,
}

impl Stage {
    fn new(tokens: &str) -> Self {
        let (world, sts) = start(tokens);
        give_roles(&world);
        let sts_url = sts.url_in_pods();
        Self { world, sts, sts_url }
    }

    /// Two pods, with the names of their roles: one by its ServiceAccount's annotation, one by its own.
    fn pods(&mut self) -> [(Pod, &'static str); 2] {
        let irsa = self.world.pod("irsa-0", "irsa");
        let kiam = annotated(
            &mut self.world,
            "kiam-0",
            "plain-kiam",
            &json!({"iam.amazonaws.com/role": "kiam-reader"}),
        );
        [(irsa, "irsa"), (kiam, "kiam-reader")]
    }

    /// Programs that find the metadata service by themselves.
    fn by_metadata(
        &self,
        sandbox: &Sandbox,
        libraries: &[ClientLibrary],
        steps: impl Fn(&ClientLibrary) -> Vec<String>,
    ) -> Scene {
        let variables = [("AWS_ENDPOINT_URL_STS", self.sts_url.as_str())];
        Scene::start(&self.world, sandbox, libraries, &variables, steps)
    }

    /// Programs with the environment that EKS's webhook gives them.
    fn by_container(&self, pod: &Pod, steps: impl Fn(&ClientLibrary) -> Vec<String>) -> Scene {
        let file = self.world.folder.path().join(format!("{}.token", pod.name));
        std::fs::write(&file, containers_token(&self.world, pod)).unwrap();
        let variables = [
            ("AWS_ENDPOINT_URL_STS", self.sts_url.as_str()),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("http://{CONTAINERS}/v1/credentials")),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.to_str().unwrap()),
        ];
        Scene::start(&self.world, &pod.sandbox, &that_know_containers(), &variables, steps)
    }

    /// That a program's credentials are of this role.
    fn check(&self, role: &str, run: &LibraryRun) -> Result<(), String> {
        let said = run.value_of_step(run.library.credentials_step)?;
        let caller = self.sts.caller(said).ok_or_else(|| format!("{}: {said}", run.library.name))?;
        let is_own = caller.starts_with(&format!("arn:aws:sts::123456789012:assumed-role/{role}/"));
        is_own.then_some(()).ok_or_else(|| format!("{} is {caller}, not of {role}", run.library.name))
    }

    /// How many requests of these kinds were answered, however.
    fn answered(&self, routes: &[&str]) -> f64 {
        let metrics = self.world.admin("/metrics").body;
        let is_asked =
            |sample: &str| routes.iter().any(|route| sample.contains(&format!("route=\"{route}\"")));
        let samples =
            metrics.lines().filter_map(|line| line.strip_prefix("seawall_requests_total{")?.rsplit_once(' '));
        samples.filter(|(labels, _)| is_asked(labels)).map(|(_, count)| count.parse::<f64>().unwrap()).sum()
    }
}

fn but(those: &[ClientLibrary]) -> Vec<ClientLibrary> {
    AWS_LIBRARIES.into_iter().filter(|library| those.iter().all(|other| other.name != library.name)).collect()
}

fn that_know_session_tokens() -> Vec<ClientLibrary> {
    but(&[JAVA_1])
}

fn that_know_containers() -> Vec<ClientLibrary> {
    but(&[JAVA_1, GO_IMDS])
}

/// As a program that is refused and asks again.
fn own(library: &ClientLibrary) -> Vec<String> {
    vec![format!("until:{}", library.credentials_step)]
}

/// The same, and all that there is to know.
fn everything(library: &ClientLibrary) -> Vec<String> {
    own(library).into_iter().chain(library.other_steps.iter().map(|step| (*step).to_owned())).collect()
}

/// As a program that asks once.
fn once(library: &ClientLibrary) -> Vec<String> {
    vec![library.credentials_step.to_owned()]
}

/// That everything else that a library was asked for is of this node and this role.
fn check_facts(role: &str, run: &LibraryRun) -> Result<(), String> {
    for step in run.library.other_steps {
        let expected = match *step {
            "region" => "eu-west-1".to_owned(),
            "account" => "123456789012".to_owned(),
            "profile" => format!("arn:aws:iam::123456789012:instance-profile/{role}"),
            other => panic!("what is {other}?"),
        };
        assert_eq!(run.value_of_step(step)?, expected, "{}: {step}", run.library.name);
    }
    Ok(())
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn every_aws_library_gets_its_own_pods_role_by_session_tokens_and_the_one_that_knows_none_gets_nothing() {
    let mut stage = Stage::new("required");
    let pods = stage.pods();
    let libraries = that_know_session_tokens();
    let mut scenes = pods.each_ref().map(|(pod, _)| stage.by_metadata(&pod.sandbox, &libraries, everything));
    scenes.iter_mut().for_each(Scene::finish);
    let told = pods.iter().zip(&scenes).flat_map(|((_, role), scene)| {
        scene.runs.iter().flat_map(|run| [stage.check(role, run), check_facts(role, run)])
    });
    assert_all_ok(told.collect::<Vec<_>>());
    drop(scenes);
    assert_eq!(stage.world.metric(WITHOUT_TOKEN), 0.0, "nobody did without");

    let mut old = pods.each_ref().map(|(pod, _)| stage.by_metadata(&pod.sandbox, &[JAVA_1], once));
    old.iter_mut().for_each(Scene::finish);
    let refused = old
        .iter()
        .map(|scene| scene.runs[0].check_error_contains("credentials", "Unable to load AWS credentials"));
    assert_all_ok(refused);
    assert!(stage.world.metric(WITHOUT_TOKEN) >= 2.0, "one listing for each pod");
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_library_without_session_tokens_gets_its_own_pods_role_where_they_are_optional_and_is_counted() {
    let mut stage = Stage::new("optional");
    let pods = stage.pods();
    let mut scenes = pods.each_ref().map(|(pod, _)| stage.by_metadata(&pod.sandbox, &[JAVA_1], everything));
    scenes.iter_mut().for_each(Scene::finish);
    assert_all_ok(pods.iter().zip(&scenes).flat_map(|((_, role), scene)| {
        [stage.check(role, &scene.runs[0]), check_facts(role, &scene.runs[0])]
    }));
    let asked = stage.answered(&["role_list", "credentials", "metadata", "refused"]);
    assert!(asked >= 6.0, "listing, document and region for each pod: {asked}");
    assert_eq!(stage.world.metric(WITHOUT_TOKEN), asked, "each of its questions");
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn every_aws_library_that_knows_the_endpoint_of_containers_gets_its_own_pods_role_there() {
    let mut stage = Stage::new("required");
    let pods = stage.pods();
    let mut scenes = pods.each_ref().map(|(pod, _)| stage.by_container(pod, own));
    scenes.iter_mut().for_each(Scene::finish);
    let told = pods
        .iter()
        .zip(&scenes)
        .flat_map(|((_, role), scene)| scene.runs.iter().map(|run| stage.check(role, run)));
    assert_all_ok(told.collect::<Vec<_>>());
    // Java's SDK turns to the metadata service without a word.
    assert_eq!(stage.answered(&["role_list", "credentials"]), 0.0, "nobody asked elsewhere");
}

/// What users read: of a pod that may have no role, at the metadata service and at the endpoint of containers, and at an address at
/// which no pod is known, at the metadata service. Most show what they would show on an instance without a profile.
const TOLD: [(&str, [&str; 3]); 8] = [
    ("boto3", ["Unable to locate credentials", "no_role", "Unable to locate credentials"]),
    ("AWS CLI", ["Unable to locate credentials", "no_role", "Unable to locate credentials"]),
    ("aws-sdk-go-v2/config", ["StatusCode: 404", "no_role", "StatusCode: 503"]),
    ("aws-sdk-go-v2/feature/ec2/imds", ["StatusCode: 404", "", "StatusCode: 503"]),
    ("AWS SDK for Java 1.11", ["The requested metadata is not found", "", "at this source address"]),
    // It turns to the metadata service, and tells of that alone.
    ("AWS SDK for Java 2", ["Failed to load credentials from IMDS"; 3]),
    (
        "AWS SDK for JavaScript 3",
        [NO_PROVIDER, "not a valid container metadata service hostname", NO_PROVIDER],
    ),
    ("aws-config for Rust", ["received 404 from IMDS", "404", "IMDS"]),
];
const NO_PROVIDER: &str = "Could not load credentials from any providers";

fn told(run: &LibraryRun) -> [&'static str; 3] {
    let row = TOLD.into_iter().find(|(name, _)| *name == run.library.name);
    row.map(|(_, sentences)| sentences).unwrap()
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn every_aws_library_says_that_there_are_no_credentials_where_its_pod_may_have_no_role_or_is_nobodys() {
    let mut stage = Stage::new("optional");
    let [found, named] = ["none-0", "none-1"].map(|name| stage.world.pod(name, "plain-none"));
    let nobody = stage.world.network.sandbox();
    let mut scenes = [
        stage.by_metadata(&found.sandbox, &AWS_LIBRARIES, once),
        stage.by_container(&named, once),
        stage.by_metadata(&nobody, &AWS_LIBRARIES, once),
    ];
    scenes.iter_mut().for_each(Scene::finish);
    let tells = |(column, scene): (usize, &Scene)| {
        let told = scene
            .runs
            .iter()
            .map(|run| run.check_error_contains(run.library.credentials_step, told(run)[column]));
        told.collect::<Vec<_>>()
    };
    assert_all_ok(scenes.iter().enumerate().flat_map(tells));
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_pod_has_the_credentials_of_both_clouds_by_the_libraries_of_both() {
    let mut stage = Stage::new("required");
    let [(pod, role), _] = stage.pods();
    let both = [&GOOGLE_LIBRARIES[..], &that_know_session_tokens()].concat();
    let is_googles =
        |library: &ClientLibrary| GOOGLE_LIBRARIES.iter().any(|other| other.name == library.name);
    let steps = |library: &ClientLibrary| {
        if is_googles(library) { libraries::own_things(library) } else { own(library) }
    };
    let mut scene = stage.by_metadata(&pod.sandbox, &both, steps);
    scene.finish();
    let (googles, awss): (Vec<_>, Vec<_>) = scene.runs.iter().partition(|run| is_googles(&run.library));
    let googles = googles.into_iter().map(|run| libraries::check(&stage.world, &pod, run));
    assert_all_ok(googles.chain(awss.into_iter().map(|run| stage.check(role, run))).collect::<Vec<_>>());
}

/// Six seconds outlast what most libraries do by themselves: what brings credentials after is their programs' next question.
#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn every_aws_library_gets_its_own_pods_role_once_its_pod_is_known() {
    let mut stage = Stage::new("optional");
    let irsa = stage.world.bound("irsa-0", "irsa");
    let kiam = stage.world.bound("kiam-0", "plain-kiam");
    annotate_pod(&stage.world, &kiam, &json!({"iam.amazonaws.com/role": "kiam-reader"}));
    let mut found = stage.by_metadata(&kiam.sandbox, &AWS_LIBRARIES, own);
    let mut named = stage.by_container(&irsa, own);
    for run in found.runs.iter_mut().chain(&mut named.runs) {
        run.read_until_step("begin");
    }
    // Part of what happens, not a wait for it.
    pause(Duration::from_secs(6));
    for pod in [&irsa, &kiam] {
        stage.world.api.set_pod_status(&pod.name, "Running", &pod.sandbox.address.to_string());
    }
    found.finish();
    named.finish();
    let found = found.runs.iter().map(|run| stage.check("kiam-reader", run));
    assert_all_ok(found.chain(named.runs.iter().map(|run| stage.check("irsa", run))).collect::<Vec<_>>());
}
