//! AWS's endpoints as pods meet them: each way to a role, what is refused and how, one identity at both endpoints.

use std::thread;

use seawall_emulator::aws::AwsEndpoint;
use seawall_emulator::faults::Faults;

use super::support::aws::{
    ABROAD, ASSOCIATED, BASE, CONTAINERS, DEFAULT, FIRST, GREEDY, IRSA, KIAM, KUBE2IAM, NODE, NONE, PODS,
    Pod, ROLES, SIBLING, THIEF, TORN, TTL, USER, World, head,
};
use super::support::client::Answer;
use super::support::wait_until_true;
use super::support::world::{PROJECT_ID, STRANGER};

fn code(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn each_way_gives_a_pod_the_role_that_is_named_for_it_and_no_other() {
    let world = World::start("", "");
    for (pod, role, name, taken_by) in [
        (IRSA, format!("{BASE}irsa"), "shop.irsa", IRSA.subject()),
        (KIAM, format!("{BASE}team/kiam"), "cart-session", USER.into()),
        (KUBE2IAM, ABROAD.into(), "lab.kube2iam", USER.into()),
        (DEFAULT, format!("{BASE}plain"), "plain.plain", USER.into()),
    ] {
        let (document, session) = world.document(&pod);
        assert_eq!((session.role, session.name, session.taken_by), (role, name.into(), taken_by));
        let expected = if pod.name == IRSA.name { None } else { Some(pod.namespace) };
        assert_eq!(session.tags.get("kubernetes-namespace").map(String::as_str), expected);
        let expiration = document["Expiration"].as_str().unwrap();
        assert!(expiration.len() == 20 && expiration.ends_with('Z'), "whole seconds: {expiration}");
    }
}

/// KIAM's clients ask at the ARN that the pod's annotation holds, often without the listing before it.
#[test]
fn a_pods_own_role_is_answered_at_its_arn_and_no_other_is() {
    let named = World::start("", "");
    let by_eks = World::start_on("pod-identity", "{ source: instance-role }", "httpTokens: optional", "");
    let abroad = ABROAD.replace("abroad", "team/associated");
    for (world, pod, own, other) in [
        (&named, KIAM, format!("{BASE}team/kiam"), format!("{BASE}kiam")),
        (&named, KUBE2IAM, ABROAD.to_owned(), format!("{BASE}abroad")),
        (&named, IRSA, format!("{BASE}irsa"), format!("{BASE}team/kiam")),
        (&by_eks, ASSOCIATED, format!("{BASE}team/associated"), abroad),
    ] {
        for spelling in [own.clone(), own.replace('/', "%2F"), own.replace(':', "%3A")] {
            // The first answer waits for credentials, the others come from the replay cache too.
            for _ in 0..3 {
                let answer = world.get(&pod, &format!("{ROLES}{spelling}"));
                assert_eq!((answer.status, code(&answer).1.as_str()), (200, ""), "{spelling} {answer:?}");
            }
        }
        let answer = world.get(&pod, &format!("{ROLES}{other}"));
        assert_eq!(code(&answer), (403, "wrong_role".into()), "{other}");
        let name = world.get(&pod, &format!("{ROLES}another"));
        assert_eq!(code(&answer), code(&name));
    }
}

#[test]
fn a_role_is_taken_for_a_pod_by_whomever_the_operator_names() {
    for (credentials, taken_by) in [
        ("{ source: file, file: keys }", USER),
        ("{ source: instance-role }", NODE),
        ("{ source: file, file: keys, role: first }", FIRST),
        ("{ source: pod-token, role: first }", FIRST),
    ] {
        let world = World::start_as(credentials, "", "");
        let (_, session) = world.document(&KIAM);
        assert_eq!(session.role, format!("{BASE}team/kiam"), "{credentials}");
        assert_eq!(session.taken_by, taken_by, "{credentials}");
    }
}

#[test]
fn a_pod_that_may_have_no_role_is_told_why_at_the_listing() {
    let world = World::start("", "");
    for (pod, expected) in
        [(NONE, (404, "no_role")), (GREEDY, (403, "role_not_permitted")), (TORN, (403, "conflicting_roles"))]
    {
        let by_arn = format!("{ROLES}{BASE}irsa");
        for target in [ROLES, ROLES.trim_end_matches('/'), &format!("{ROLES}irsa"), &by_arn] {
            let answer = world.get(&pod, target);
            assert_eq!(code(&answer), (expected.0, expected.1.to_owned()), "{} {target}", pod.name);
            assert!(answer.header("retry-after").is_empty(), "{answer:?}");
        }
        let answer = world.contain(&pod, &world.token(&pod, CONTAINERS));
        assert_eq!(code(&answer), (expected.0, expected.1.to_owned()), "the same at both endpoints");
    }
}

#[test]
fn a_pod_for_which_nobody_names_a_role_has_the_one_that_eks_associates_at_both_endpoints() {
    let world =
        World::start_on("irsa, kiam, pod-identity", "{ source: instance-role }", "httpTokens: optional", "");
    for pod in [ASSOCIATED, SIBLING] {
        let (document, session) = world.document(&pod);
        assert_eq!((session.role, session.taken_by), (format!("{BASE}team/associated"), pod.subject()));
        assert_eq!(session.tags["kubernetes-pod-name"], pod.name, "its own session");
        let contained = world.contain(&pod, &world.token(&pod, CONTAINERS)).json();
        for member in ["AccessKeyId", "SecretAccessKey", "Token", "Expiration"] {
            assert_eq!(document[member], contained[member], "{member}");
        }
        let wrong = world.get(&pod, &format!("{ROLES}team"));
        assert_eq!(wrong.status, 403, "another role's document: {wrong:?}");
        let info = world.get(&pod, "/latest/meta-data/iam/info").json();
        assert_eq!(info["InstanceProfileArn"], "arn:aws:iam::123456789012:instance-profile/associated");
    }
    assert_eq!(
        world.aws.endpoint_request_counts(AwsEndpoint::PodIdentity).calls,
        2,
        "one for each pod, at both endpoints"
    );
    // An annotation, and a default of the configuration, come first, and EKS is not asked.
    for (pod, role) in [(IRSA, "irsa"), (KIAM, "team/kiam")] {
        assert_eq!(world.document(&pod).1.role, format!("{BASE}{role}"));
    }
    assert_eq!(world.aws.endpoint_request_counts(AwsEndpoint::PodIdentity).calls, 2);
}

/// It was null even while the role's credentials were held.
#[test]
fn debug_pods_names_the_role_that_eks_associated_once_it_is_held() {
    let world = World::start_on("pod-identity", "{ source: instance-role }", "httpTokens: optional", "");
    let shown = |pod: &Pod| {
        let pods = world.admin("/debug/pods").json();
        let entries = pods["pods"].as_array().unwrap();
        entries.iter().find(|entry| entry["pod"] == pod.name).unwrap()["aws"].clone()
    };
    assert_eq!(shown(&NONE)["role"], serde_json::Value::Null, "nothing is held");
    world.document(&SIBLING);
    let aws = shown(&SIBLING);
    assert_eq!(
        (&aws["assume_method"], &aws["status"], &aws["role"]),
        (&"pod_identity".into(), &"role".into(), &"associated".into())
    );
}

#[test]
fn eks_gives_nothing_to_a_pod_that_has_no_association_or_anothers_token() {
    let world = World::start_on("pod-identity", "{ source: instance-role }", "httpTokens: optional", "");
    for (pod, expected) in [(NONE, (404, "no_association")), (THIEF, (403, "exchange_rejected"))] {
        for target in [ROLES, &format!("{ROLES}associated"), "/latest/meta-data/iam/info"] {
            let answer = world.get(&pod, target);
            assert_eq!(code(&answer), (expected.0, expected.1.to_owned()), "{} {target}", pod.name);
        }
        let answer = world.contain(&pod, &world.token(&pod, CONTAINERS));
        assert_eq!(code(&answer), (expected.0, expected.1.to_owned()), "the same at both endpoints");
    }
    assert!(
        world.aws.endpoint_request_counts(AwsEndpoint::PodIdentity).calls <= 4,
        "what is refused is remembered"
    );
    // The agent's keys are refused: nobody's association is at fault.
    world.aws.set_faults_on(AwsEndpoint::PodIdentity, Faults { error_rate: 1.0, ..Faults::default() });
    let answer = world.get(&ASSOCIATED, ROLES);
    assert_eq!(code(&answer), (503, "upstream_unavailable".to_owned()));
}

#[test]
fn a_stranger_has_a_token_and_nothing_else() {
    let world = World::start("httpTokens: optional", "");
    let to = world.agent.listener_addresses[0];
    let put = world.send(STRANGER, to, &head("PUT", "/latest/api/token", "a", TTL));
    assert_eq!((put.status, put.header("x-aws-ec2-metadata-token-ttl-seconds")), (200, "300"));
    for target in [ROLES, "/latest/meta-data/placement/region", "/latest/user-data"] {
        let answer = world.send(STRANGER, to, &head("GET", target, "a", ""));
        assert_eq!(code(&answer), (403, "unknown_client".to_owned()), "{target}");
    }
}

#[test]
fn both_endpoints_give_a_pod_the_same_credentials() {
    let world = World::start("", "");
    let (document, _) = world.document(&KIAM);
    let contained = world.contain(&KIAM, &world.token(&KIAM, CONTAINERS)).json();
    for member in ["AccessKeyId", "SecretAccessKey", "Token", "Expiration"] {
        assert_eq!(document[member], contained[member], "{member}");
    }
    assert_eq!(contained["RoleArn"], format!("{BASE}team/kiam"));
    assert_eq!(contained["AccountId"], "123456789012");
}

#[test]
fn pods_that_ask_all_at_once_are_never_given_one_anothers() {
    let world = World::start("", "");
    let roles = [(IRSA, "irsa"), (KIAM, "kiam"), (KUBE2IAM, "abroad"), (DEFAULT, "plain")];
    thread::scope(|scope| {
        for (pod, role) in roles {
            let world = &world;
            scope.spawn(move || {
                for _ in 0..20 {
                    let (_, session) = world.document(&pod);
                    assert!(session.role.ends_with(&format!("/{role}")), "{} got {session:?}", pod.name);
                    let contained = world.contain(&pod, &world.token(&pod, CONTAINERS)).json();
                    assert_eq!(world.session(&contained).role, session.role);
                }
            });
        }
    });
}

#[test]
fn a_session_token_outlives_the_agent() {
    let mut world = World::start("tokenKeyFile: token-keys", "");
    let shown = format!("X-aws-ec2-metadata-token: {}\r\n", world.session_token(&IRSA));
    let ask = |world: &World| world.ask(&IRSA, "GET", "/latest/meta-data/placement/region", &shown);
    assert_eq!(ask(&world).body, "eu-west-1");
    wait_until_true("the keys to be kept", || world.file("token-keys").is_some());
    world.restart();
    assert_eq!(ask(&world).body, "eu-west-1");
}

#[test]
fn requests_without_a_token_are_counted_whether_or_not_they_are_answered() {
    let count = |world: &World| {
        let metrics = world.admin("/metrics").body;
        let line = metrics.lines().find_map(|line| line.strip_prefix("seawall_aws_imdsv1_requests_total "));
        line.unwrap().parse::<u32>().unwrap()
    };
    for (tokens, status) in [("required", 401), ("optional", 200)] {
        let world = World::start(&format!("httpTokens: {tokens}"), "");
        world.document(&IRSA);
        assert_eq!(count(&world), 0, "{tokens}");
        for asked in 1..=3 {
            // The last two come again, and are answered without being read.
            assert_eq!(world.ask(&IRSA, "GET", &format!("{ROLES}irsa"), "").status, status);
            assert_eq!(count(&world), asked, "{tokens}");
        }
    }
}

const GOOGLE: &str = "google:\n  projectId: my-project\n  numericProjectId: 1\n  zone: z\n  cluster: { name: c, location: l }\n  \
    workloadIdentityProvider: \"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/c\"\n";

#[test]
fn one_listener_speaks_googles_dialect_and_awss_and_is_ready() {
    let world = World::start("", GOOGLE);
    let project = world.ask(&IRSA, "GET", PROJECT_ID, "Metadata-Flavor: Google\r\n");
    assert_eq!((project.status, project.body.as_str()), (200, "my-project"));
    let (_, session) = world.document(&IRSA);
    assert_eq!(session.role, format!("{BASE}irsa"));
    let zone = world.get(&IRSA, "/latest/meta-data/placement/availability-zone/");
    assert_eq!(zone.body, "eu-west-1a");
    let ready = world.admin("/readyz");
    assert_eq!(ready.status, 200, "{ready:?}");
    let pods = world.admin("/debug/pods").json();
    let entry = pods["pods"].as_array().unwrap().iter().find(|entry| entry["pod"] == IRSA.name).unwrap();
    assert_eq!(entry["aws"]["status"], "role");
    assert_eq!(entry["aws"]["assume_method"], "web_identity");
    assert_eq!(entry["google"]["status"], "federated");
}

#[test]
fn of_the_real_service_a_pod_reads_what_is_let_pass_and_by_the_agents_own_token() {
    let world = World::start("passthroughPaths: [/latest/meta-data/instance-id]", "");
    let passed = world.get(&NONE, "/latest/meta-data/instance-id");
    assert_eq!((passed.status, passed.body.as_str()), (200, "i-0123456789abcdef0"));
    assert!(passed.header("x-aws-ec2-metadata-token-ttl-seconds").is_empty(), "{passed:?}");
    for target in [
        "/latest/meta-data/instance-id/x",
        "/latest/meta-data/mac",
        "/latest/dynamic/instance-identity/pkcs7",
    ] {
        assert_eq!(world.get(&NONE, target).status, 404, "{target}");
    }
    let stranger = head("GET", "/latest/meta-data/instance-id", "a", "");
    assert_ne!(world.send(STRANGER, world.agent.listener_addresses[0], &stranger).status, 200);
}

#[test]
fn while_sts_hangs_every_pod_is_answered_in_time_and_what_is_held_is_lent() {
    let world = World::start("", "");
    world.document(&IRSA);
    world.aws.set_faults(&Faults { hang_rate: 1.0, ..Faults::default() });
    let (_, session) = world.document(&IRSA);
    assert_eq!(session.role, format!("{BASE}irsa"));
    let shown = format!("X-aws-ec2-metadata-token: {}\r\n", world.session_token(&KIAM));
    let answer = world.ask(&KIAM, "GET", ROLES, &shown);
    assert_eq!(code(&answer), (503, "upstream_timeout".to_owned()), "a cold one is told to come again");
}

#[test]
fn no_secret_is_in_the_log_or_on_the_admin_port() {
    let world = World::start("", "");
    let (document, _) = world.document(&IRSA);
    let shown = world.session_token(&IRSA);
    let pages =
        format!("{}{}{}", world.admin("/debug/pods").body, world.admin("/metrics").body, world.agent.log());
    for secret in [document["SecretAccessKey"].as_str(), document["Token"].as_str(), Some(&*shown)] {
        assert!(!pages.contains(secret.unwrap()));
    }
    assert!(PODS.iter().any(|pod: &Pod| pages.contains(pod.name)), "the pages are those of these pods");
}
