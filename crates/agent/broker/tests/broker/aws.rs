//! Each method to get AWS's credentials, against a cloud that checks every token and every signature; and the results of refusals.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use seawall_broker::aws::{
    AssumeMethod, AwsAccessKeys, AwsConfigError, AwsCredential, AwsExchange, AwsExchangeConfig,
    AwsPodClientInput, BROKER_SETTINGS, KeySignedRole, LIFETIME_FLOOR, NodeKeySource, POD_IDENTITY_AUDIENCE,
    RoleAccess, SessionDuration, SessionName, SessionTag, SessionTags, TokenRole,
};
use seawall_broker::{
    ExchangeError, ExchangeFault, IssuedCredential, LeaseError, Principal as _, TokenExchange,
};
use seawall_core::pod::{SubjectFuture, SubjectTokens};
use seawall_core::{Clock, Pod, PodUid, Secret};
use seawall_emulator::aws::{AwsEndpoint, IamRole as EmulatedRole};
use seawall_emulator::faults::{ExcessAction, Faults, Throttle};
use seawall_testkit::closure_server::{Peer, Server};

use crate::aws_world::{
    AUDIENCE, HOUR, MINUTE, NODE, Node, USER, USER_KEY, USER_SECRET, access, account, arn, caller_identity,
    external_id, keys, pod_identity, principal, role, start, start_with, web_identity,
};

const SUBJECT: &str = "system:serviceaccount:shop:cart";

fn given(id: &str, secret: &str) -> Option<NodeKeySource> {
    Some(NodeKeySource::Static(Arc::new(AwsAccessKeys {
        access_key_id: id.into(),
        secret_access_key: Secret::new(secret.into()),
        session_token: None,
    })))
}

fn users_keys(config: &mut AwsExchangeConfig) {
    config.node_key_source = given(USER_KEY, USER_SECRET);
}

#[tokio::test]
async fn a_pods_token_becomes_its_roles_session_and_nobody_elses() {
    let aws = start_with(|options| {
        options.unknown_roles_trust_everyone = false;
        options.roles =
            vec![EmulatedRole::trusting_everyone(arn("cart").as_str()).with_trusted_caller(SUBJECT)];
    })
    .await;
    let exchange = aws.exchange(|_| {});
    let subject = aws.subject("cart");
    let issued = exchange.issue(&principal("cart", web_identity("cart")), &subject).await.unwrap();
    assert_eq!(*subject.asked.lock().unwrap(), [AUDIENCE]);
    let credential = &issued.credential;
    assert_eq!((credential.account(), credential.role_name()), ("123456789012", "cart"));
    assert_eq!(credential.expires(), aws.clock.wall_time() + HOUR, "the date that AWS states");
    // Its time is cut to the second, so a second of the life is not counted on.
    assert_eq!(issued.lifetime, HOUR - Duration::from_secs(1));
    let told = caller_identity(&aws.running.url(), &aws.clock, credential).await;
    assert!(told.contains("<Arn>arn:aws:sts::123456789012:assumed-role/cart/shop.cart</Arn>"), "{told}");
    let stranger = exchange.issue(&principal("till", web_identity("cart")), &aws.subject("till")).await;
    assert_eq!(stranger.unwrap_err().fault, ExchangeFault::AccessDenied);
    assert_eq!(
        aws.running.session_counts().into_keys().collect::<Vec<_>>(),
        [(SUBJECT.to_owned(), arn("cart").as_str().to_owned())]
    );
}

#[tokio::test]
async fn the_audience_is_the_roles_own() {
    let aws = start().await;
    let AssumeMethod::WebIdentity { first, .. } = web_identity("cart").method else { panic!() };
    let other = access(AssumeMethod::WebIdentity { audience: "vault".into(), first, then: None });
    let error = aws.issue(&aws.exchange(|_| {}), other).await.unwrap_err();
    assert_eq!(error.fault, ExchangeFault::ExchangeRejected);
    assert!(error.to_string().contains("InvalidIdentityToken Incorrect token audience"), "{error}");
}

#[tokio::test]
async fn given_keys_sign_for_a_role_with_its_external_id_and_tags() {
    let aws = start_with(|options| {
        options.unknown_roles_trust_everyone = false;
        let cart = EmulatedRole::trusting_everyone(arn("cart").as_str()).with_trusted_caller(USER);
        options.roles = vec![EmulatedRole { external_id: Some("x1/y:z".into()), ..cart }];
    })
    .await;
    let exchange = aws.exchange(users_keys);
    let tag =
        |key: &str, value: &str| SessionTag { key: key.into(), value: value.into(), is_transitive: true };
    let tags = SessionTags::new(vec![tag("team", "a b"), tag("env", "")]).unwrap();
    let cart = KeySignedRole { external_id: external_id("x1/y:z"), tags, ..role("cart") };
    let issued = aws.issue(&exchange, keys(None, cart.clone())).await.unwrap();
    let session = aws.running.session_of_token(issued.credential.session_token()).unwrap();
    assert_eq!(session.taken_by, USER);
    let told: Vec<_> = session.tags.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(told, [("env", ""), ("team", "a b")]);
    for other in [external_id("x2"), None] {
        let error =
            aws.issue(&exchange, keys(None, KeySignedRole { external_id: other, ..cart.clone() })).await;
        assert_eq!(error.unwrap_err().fault, ExchangeFault::AccessDenied);
    }
}

#[tokio::test]
async fn a_file_of_keys_is_read_again_at_each_call() {
    let aws = start().await;
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("aws-credentials");
    let write = |id: &str| {
        let text = format!("[node]\naws_access_key_id={id}\naws_secret_access_key={USER_SECRET}\n");
        std::fs::write(&path, text).unwrap();
    };
    write("AKIAOLD");
    let exchange = aws.exchange(|config| {
        config.node_key_source = Some(NodeKeySource::File { path: path.clone(), profile: "node".into() });
    });
    let error = aws.issue(&exchange, keys(None, role("cart"))).await.unwrap_err();
    assert_eq!(error.fault, ExchangeFault::ExchangeRejected);
    assert!(error.to_string().contains("InvalidClientTokenId"), "{error}");
    write(USER_KEY);
    aws.issue(&exchange, keys(None, role("cart"))).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        aws.issue(&exchange, keys(None, role("cart"))).await.unwrap_err().fault,
        ExchangeFault::ExchangeRejected
    );
}

#[tokio::test]
async fn the_instances_role_signs_and_is_asked_for_once_until_it_ends() {
    let aws = start().await;
    let url = aws.running.url();
    let exchange = aws.exchange(|config| config.node_key_source = Some(NodeKeySource::Instance { url }));
    let asked = || aws.running.endpoint_request_counts(AwsEndpoint::Metadata).calls;
    for name in ["cart", "till"] {
        let issued = aws.issue(&exchange, keys(None, role(name))).await.unwrap();
        assert_eq!(aws.running.session_of_token(issued.credential.session_token()).unwrap().taken_by, NODE);
    }
    assert_eq!(asked(), 3, "a token, the role, its keys");
    aws.hand.advance(6 * HOUR);
    aws.issue(&exchange, keys(None, role("cart"))).await.unwrap();
    assert_eq!(asked(), 6);
}

#[tokio::test]
async fn keys_that_are_refused_before_their_end_are_fetched_anew_once() {
    let aws = start().await;
    let instance = start_with(|options| options.instance.role = Some(NODE.into())).await;
    // The instance gives keys that this STS does not know: as after its role was taken away.
    let url = instance.running.url();
    let exchange = aws.exchange(|config| config.node_key_source = Some(NodeKeySource::Instance { url }));
    let error = aws.issue(&exchange, keys(None, role("cart"))).await.unwrap_err();
    assert!(error.to_string().contains("InvalidClientTokenId"), "{error}");
    assert_eq!(instance.running.endpoint_request_counts(AwsEndpoint::Metadata).calls, 6);
    assert_eq!(aws.running.endpoint_request_counts(AwsEndpoint::AssumeRole).calls, 2);
}

#[tokio::test]
async fn a_base_role_is_assumed_once_for_all_and_alone_may_assume_the_others() {
    let base = role("base");
    let aws = start_with(|options| {
        options.unknown_roles_trust_everyone = false;
        options.roles = vec![
            EmulatedRole::trusting_everyone(base.arn.as_str()).with_trusted_caller(USER),
            EmulatedRole::trusting_everyone(arn("cart").as_str()).with_trusted_caller(base.arn.as_str()),
            EmulatedRole::trusting_everyone(arn("till").as_str()).with_trusted_caller(base.arn.as_str()),
        ];
    })
    .await;
    let exchange = aws.exchange(users_keys);
    // A chain has an hour, so no more is asked for.
    let long = |access| RoleAccess { session_duration: SessionDuration::new(6 * HOUR).unwrap(), ..access };
    for name in ["cart", "till"] {
        let issued = aws.issue(&exchange, long(keys(Some(base.clone()), role(name)))).await.unwrap();
        assert_eq!((issued.credential.role_name(), issued.shortened_from), (name, None));
    }
    assert_eq!(aws.running.endpoint_request_counts(AwsEndpoint::AssumeRole).calls, 3);
    let error = aws.issue(&exchange, keys(None, role("cart"))).await.unwrap_err();
    assert!(error.fault == ExchangeFault::AccessDenied && !error.is_node_error, "{error}");
    aws.hand.advance(HOUR);
    aws.issue(&exchange, keys(Some(base), role("cart"))).await.unwrap();
}

/// Regression: this was reported as the refusal of the pod's own role.
#[tokio::test]
async fn a_base_role_that_the_node_may_not_take_is_the_nodes_fault_and_no_pods() {
    let aws = start_with(|options| {
        options.unknown_roles_trust_everyone = false;
        options.roles =
            vec![EmulatedRole::trusting_everyone(role("base").arn.as_str()).with_trusted_caller(NODE)];
    })
    .await;
    let exchange = aws.exchange(users_keys);
    let error = aws.issue(&exchange, keys(Some(role("base")), role("cart"))).await.unwrap_err();
    assert!(error.fault == ExchangeFault::AccessDenied && error.is_node_error, "{error}");
    assert!(error.to_string().starts_with("AssumeRole of the base role: "), "{error}");
}

#[tokio::test]
async fn a_role_of_another_account_is_reached_through_the_pods_own_each_time() {
    let theirs = "arn:aws:iam::999999999999:role/theirs";
    let aws = start_with(|options| {
        options.unknown_roles_trust_everyone = false;
        options.roles = vec![
            EmulatedRole::trusting_everyone(arn("cart").as_str()).with_trusted_caller(SUBJECT),
            EmulatedRole::trusting_everyone(theirs).with_trusted_caller(arn("cart").as_str()),
        ];
    })
    .await;
    let first = TokenRole { arn: arn("cart"), session_name: SessionName::sanitized("first") };
    let then = KeySignedRole { arn: seawall_broker::aws::RoleArn::parse(theirs).unwrap(), ..role("x") };
    let through = access(AssumeMethod::WebIdentity { audience: AUDIENCE.into(), first, then: Some(then) });
    let exchange = aws.exchange(|_| {});
    for calls in 1..=2 {
        let issued = aws.issue(&exchange, through.clone()).await.unwrap();
        assert_eq!((issued.credential.account(), issued.credential.role_name()), ("999999999999", "theirs"));
        // What one ServiceAccount's token proved is kept for nobody.
        assert_eq!(aws.running.endpoint_request_counts(AwsEndpoint::WebIdentity).calls, calls);
    }
}

#[tokio::test]
async fn eks_knows_the_role_of_a_pod_whose_token_the_node_hands_in() {
    let aws = start_with(|options| {
        options.associations = [(SUBJECT.to_owned(), arn("cart").as_str().to_owned())].into();
    })
    .await;
    let url = aws.running.url();
    let exchange = aws.exchange(|config| config.node_key_source = Some(NodeKeySource::Instance { url }));
    let way = || pod_identity("pod-1");
    for fractions in [false, true] {
        aws.running.set_fractional_expiry(fractions);
        let subject = aws.subject("cart");
        let issued = exchange.issue(&principal("cart", way()), &subject).await.unwrap();
        assert_eq!(*subject.asked.lock().unwrap(), [POD_IDENTITY_AUDIENCE]);
        assert_eq!(issued.credential.role_name(), "cart");
        assert_eq!(issued.credential.expires(), aws.clock.wall_time() + 6 * HOUR);
        let session = aws.running.session_of_token(issued.credential.session_token()).unwrap();
        assert_eq!(session.tags["kubernetes-pod-name"], "pod-1", "EKS tags it with the pod of the token");
    }
    let unbound = exchange.issue(&principal("cart", way()), &aws.unbound_subject("cart")).await.unwrap_err();
    assert!(unbound.to_string().contains("InvalidTokenException"), "{unbound}");
    let error = exchange.issue(&principal("till", way()), &aws.subject("till")).await.unwrap_err();
    assert_eq!(error.fault, ExchangeFault::NoAssociation);
    assert!(error.to_string().contains("ResourceNotFoundException"), "{error}");
    let error = exchange.issue(&principal("till", way()), &aws.subject("cart")).await.unwrap_err();
    assert_eq!(error.fault, ExchangeFault::ExchangeRejected, "another's token is another's role: {error}");
    let throttle = Some(Throttle { per_second: 1, burst: 1, excess: ExcessAction::Refuse });
    aws.running.set_faults_on(AwsEndpoint::PodIdentity, Faults { throttle, ..Faults::default() });
    aws.issue(&exchange, way()).await.unwrap();
    assert_eq!(aws.issue(&exchange, way()).await.unwrap_err().fault, ExchangeFault::Throttled);
}

#[tokio::test]
async fn a_pod_that_nobody_gave_a_role_is_one_call_a_minute_however_often_it_asks_and_finds_one_within_that()
{
    let aws = start().await;
    let url = aws.running.url();
    let exchange = aws.exchange(|config| config.node_key_source = Some(NodeKeySource::Instance { url }));
    let node = Node::new(&aws, exchange, BROKER_SETTINGS);
    let pod = node.pod("cart-0", "cart", &Arc::new(pod_identity("cart-0")));
    let calls = || aws.running.endpoint_request_counts(AwsEndpoint::PodIdentity).calls;
    for _ in 0..3600 / 5 {
        let refused = node.answer(&pod).await.unwrap_err();
        assert_eq!(refused.fault(), Some(ExchangeFault::NoAssociation));
        node.pass(Duration::from_secs(5)).await;
    }
    assert!((55..=75).contains(&calls()), "{} calls in an hour", calls());
    aws.running.set_association(SUBJECT, Some(arn("cart").as_str()));
    node.pass(67 * Duration::from_secs(1)).await;
    assert_eq!(node.answer(&pod).await.unwrap().value.role_name(), "cart");
}

#[tokio::test]
async fn pods_of_one_service_account_share_no_session_that_eks_tags_with_a_pod() {
    let aws = start_with(|options| {
        options.associations = [(SUBJECT.to_owned(), arn("cart").as_str().to_owned())].into();
    })
    .await;
    let url = aws.running.url();
    let exchange = aws.exchange(|config| config.node_key_source = Some(NodeKeySource::Instance { url }));
    let node = Node::new(&aws, exchange, BROKER_SETTINGS);
    for (calls, name) in [(1, "cart-0"), (2, "cart-1")] {
        node.answer(&node.pod(name, "cart", &Arc::new(pod_identity(name)))).await.unwrap();
        assert_eq!(aws.running.endpoint_request_counts(AwsEndpoint::PodIdentity).calls, calls);
    }
}

#[tokio::test]
async fn what_goes_wrong_upstream_is_told_by_kind() {
    let aws = start().await;
    let exchange = aws.exchange(|_| {});
    let failing = |status, html_errors| Faults {
        error_rate: 1.0,
        error_status: Some(status),
        html_errors,
        ..Faults::default()
    };
    for (faults, text) in [
        (failing(500, false), "InternalFailure"),
        (failing(503, false), "ServiceUnavailable"),
        (failing(502, true), "the body is not an AWS error"),
        (Faults { truncated_body_rate: 1.0, ..Faults::default() }, "not the expected XML"),
        (Faults { close_rate: 1.0, ..Faults::default() }, "AssumeRoleWithWebIdentity"),
    ] {
        aws.running.set_faults(&faults);
        let error = aws.issue(&exchange, web_identity("cart")).await.unwrap_err();
        assert_eq!(error.fault, ExchangeFault::Unavailable, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let throttle = Some(Throttle { per_second: 1, burst: 1, excess: ExcessAction::Refuse });
    aws.running.set_faults(&Faults { throttle, ..Faults::default() });
    aws.issue(&exchange, web_identity("cart")).await.unwrap();
    assert_eq!(aws.issue(&exchange, web_identity("cart")).await.unwrap_err().fault, ExchangeFault::Throttled);
}

/// Regression: the token was refused for good, and no other pod's was tried.
#[tokio::test]
async fn a_token_that_sts_does_not_take_spoils_nothing_for_its_siblings() {
    #[derive(Debug)]
    struct Forged;
    impl SubjectTokens for Forged {
        fn subject_token<'a>(&'a self, _: &'a str) -> SubjectFuture<'a> {
            Box::pin(std::future::ready(Ok(Secret::new("e30.e30.e30".into()))))
        }
    }
    let aws = start().await;
    let node = Node::new(&aws, aws.exchange(|_| {}), BROKER_SETTINGS);
    let access = Arc::new(web_identity("cart"));
    let sound = node.pod("pod-1", "cart", &access);
    let pod = Pod { uid: PodUid("pod-2".into()), name: "pod-2".into(), service_account: account("cart") };
    let newest = node.broker.new_pod_client(AwsPodClientInput {
        pod,
        entitlement: Some(access),
        subject_tokens: Arc::new(Forged),
    });
    let asked = node.ask(&sound);
    assert_eq!(node.answer(&newest).await.unwrap().value.role_name(), "cart");
    assert!(asked.await.unwrap().is_ok());
    assert_eq!(aws.running.endpoint_request_counts(AwsEndpoint::WebIdentity).calls, 2);
}

/// An STS or EKS Auth that says what it is told to say.
fn liar(role: &'static str, end: &'static str, date: &'static str) -> Server {
    let answer = move |head: &str, body: &str| {
        if head.contains("/assume-role-for-pod-identity") {
            return format!(
                r#"{{"subject":{{"namespace":"shop","serviceAccount":"cart"}},"assumedRoleUser":{{"arn":"{role}"}},"credentials":
                   {{"accessKeyId":"ASIAX","secretAccessKey":"s","sessionToken":"t","expiration":"{end}"}}}}"#
            );
        }
        let action = body.strip_prefix("Action=").and_then(|rest| rest.split('&').next()).unwrap();
        format!(
            "<{action}Response><{action}Result><AssumedRoleUser><Arn>{role}</Arn></AssumedRoleUser><Credentials>\
             <AccessKeyId>ASIAX</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
             <Expiration>{end}</Expiration></Credentials></{action}Result></{action}Response>"
        )
    };
    let play = move |mut peer: Peer, _: usize| {
        loop {
            let head = peer.read_request_head()?;
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let body = peer.read_body(length.parse().unwrap())?;
            let told = answer(&head, &String::from_utf8(body).unwrap());
            let length = told.len();
            peer.send(format!("HTTP/1.1 200 OK\r\n{date}Content-Length: {length}\r\n\r\n{told}").as_bytes())?;
        }
    };
    Server::start(play).unwrap()
}

const CART: &str = "arn:aws:sts::123456789012:assumed-role/cart/shop.cart";

type Answer = Result<IssuedCredential<AwsCredential>, ExchangeError>;

/// Returns the time here, and each method's result from the liar with the longest life that it may have.
async fn told(liar: &Server) -> (SystemTime, [(Answer, Duration); 4]) {
    let aws = start().await;
    let exchange = aws.exchange(|config| {
        users_keys(config);
        (config.sts_url, config.eks_auth_url) = (Some(liar.url_of_path("")), Some(liar.url_of_path("")));
    });
    let long =
        RoleAccess { session_duration: SessionDuration::new(6 * HOUR).unwrap(), ..keys(None, role("cart")) };
    let ways = [
        (web_identity("cart"), HOUR),
        (keys(None, role("cart")), HOUR),
        (long, 6 * HOUR),
        (pod_identity("pod-1"), 12 * HOUR),
    ];
    let mut told = Vec::new();
    for (way, longest) in ways {
        told.push((aws.issue(&exchange, way).await, longest));
    }
    (aws.clock.wall_time(), told.try_into().unwrap())
}

/// An end in the year 2200 used to be handed on as it was, and no client would ever have asked for the next.
#[tokio::test]
async fn a_session_ends_no_later_than_was_asked_for_whatever_the_upstream_says() {
    let now = UNIX_EPOCH + Duration::from_secs(1_784_116_800);
    let liar = liar(CART, "2200-01-01T00:00:00Z", "Date: Wed, 15 Jul 2026 12:00:00 GMT\r\n");
    for (issued, longest) in told(&liar).await.1 {
        let issued = issued.unwrap();
        assert_eq!(issued.lifetime, longest);
        assert_eq!(issued.credential.expires(), now + longest + Duration::from_secs(1), "its date is cut");
    }
    let dateless = self::liar(CART, "2200-01-01T00:00:00Z", "");
    let (now, told) = told(&dateless).await;
    for (issued, longest) in told {
        let issued = issued.unwrap();
        assert!(issued.lifetime <= longest && issued.lifetime > longest - Duration::from_secs(1));
        assert!(issued.credential.expires() <= now + longest);
    }
}

#[tokio::test]
async fn a_session_of_another_role_than_was_asked_for_is_refused() {
    for other in [
        "arn:aws:sts::123456789012:assumed-role/admin/shop.cart",
        "arn:aws:sts::999999999999:assumed-role/cart/shop.cart",
        "arn:aws:sts::123456789012:assumed-role/cart2/shop.cart",
        "cart",
    ] {
        let liar = liar(other, "2200-01-01T00:00:00Z", "");
        let (_, [web, signed, long, _]) = told(&liar).await;
        for (issued, _) in [web, signed, long] {
            let error = issued.unwrap_err();
            assert_eq!(error.fault, ExchangeFault::ExchangeRejected, "{other}: {error}");
            assert!(error.to_string().contains("a role that the agent did not request"), "{error}");
        }
    }
    // STS leaves a role's path out, and no two of an account differ in it, or in the case of letters, alone.
    let liar = liar("arn:aws:sts::123456789012:assumed-role/Cart/x", "2200-01-01T00:00:00Z", "");
    let aws = start().await;
    let exchange = aws.exchange(|config| {
        users_keys(config);
        config.sts_url = Some(liar.url_of_path(""));
    });
    for path in ["cart", "team/a/cart"] {
        aws.issue(&exchange, keys(None, role(path))).await.unwrap();
    }
}

#[tokio::test]
async fn ends_with_fractions_are_cut_down_to_the_second() {
    let aws = start().await;
    aws.running.set_fractional_expiry(true);
    let issued = aws.issue(&aws.exchange(|_| {}), web_identity("cart")).await.unwrap();
    let since = issued.credential.expires().duration_since(UNIX_EPOCH).unwrap();
    assert_eq!((since.subsec_nanos(), issued.credential.expires()), (0, aws.clock.wall_time() + HOUR));
}

#[tokio::test]
async fn a_role_that_allows_less_is_asked_for_less_from_then_on_and_it_is_told_once() {
    let aws = start().await;
    let exchange = aws.exchange(|_| {});
    let long =
        || RoleAccess { session_duration: SessionDuration::new(6 * HOUR).unwrap(), ..web_identity("cart") };
    let calls = || aws.running.endpoint_request_counts(AwsEndpoint::WebIdentity).calls;
    let first = aws.issue(&exchange, long()).await.unwrap();
    assert_eq!(
        (first.shortened_from, first.lifetime, calls()),
        (Some(6 * HOUR), HOUR - Duration::from_secs(1), 2)
    );
    assert_eq!((aws.issue(&exchange, long()).await.unwrap().shortened_from, calls()), (None, 3));
    // A quarter of an hour is all that some imitations of STS give.
    aws.running.add_or_replace_role(EmulatedRole {
        max_session_duration: 15 * MINUTE,
        ..EmulatedRole::trusting_everyone(arn("till").as_str())
    });
    let till = aws.issue(&exchange, web_identity("till")).await.unwrap();
    assert_eq!((till.shortened_from, till.lifetime), (Some(HOUR), 15 * MINUTE - Duration::from_secs(1)));
    // The role was changed, which is noticed within a day.
    aws.running.add_or_replace_role(EmulatedRole {
        max_session_duration: 12 * HOUR,
        ..EmulatedRole::trusting_everyone(arn("cart").as_str())
    });
    aws.hand.advance(24 * HOUR);
    assert!(aws.issue(&exchange, long()).await.unwrap().lifetime > 5 * HOUR);
}

#[tokio::test]
async fn no_keys_is_said_and_asks_nobody() {
    let aws = start().await;
    let error = aws.issue(&aws.exchange(|_| {}), keys(None, role("cart"))).await.unwrap_err();
    assert_eq!((error.fault, error.step), (ExchangeFault::ExchangeRejected, "node's keys"));
    assert_eq!(aws.running.endpoint_request_counts(AwsEndpoint::AssumeRole).calls, 0);
}

#[tokio::test]
async fn what_would_send_a_token_in_the_clear_is_refused_at_the_start() {
    let new = |config| AwsExchange::new(config, Clock::system()).map(drop);
    let sts = |url: &str| AwsExchangeConfig { sts_url: Some(url.into()), ..AwsExchangeConfig::default() };
    assert!(new(sts("https://sts.example")).is_ok() && new(AwsExchangeConfig::default()).is_ok());
    assert!(matches!(new(sts("http://sts.example")), Err(AwsConfigError::Upstream(_))));
    let through =
        AwsExchangeConfig { proxy: Some("http://proxy.example:1".into()), ..sts("http://127.0.0.1:1") };
    assert!(matches!(new(through), Err(AwsConfigError::Upstream(_))));
    let instance = |url: &str| AwsExchangeConfig {
        node_key_source: Some(NodeKeySource::Instance { url: url.into() }),
        ..AwsExchangeConfig::default()
    };
    assert!(new(instance("http://169.254.169.254")).is_ok());
    assert!(matches!(new(instance("http://10.0.0.1")), Err(AwsConfigError::MetadataUrl(_))));
}

#[tokio::test]
async fn nothing_that_is_printed_holds_a_secret() {
    let aws = start().await;
    let exchange = aws.exchange(users_keys);
    let issued = aws.issue(&exchange, keys(None, role("cart"))).await.unwrap();
    let printed = format!("{issued:?} {exchange:?}");
    assert!(!printed.contains(issued.credential.secret_access_key()));
    assert!(!printed.contains(issued.credential.session_token()) && !printed.contains(USER_SECRET));
}

#[test]
fn a_pod_without_a_role_is_refused_and_every_part_of_a_role_tells_principals_apart() {
    let of = |entitlement| seawall_broker::aws::AwsPrincipal::of(&account("cart"), &entitlement, ());
    assert!(matches!(of(None), Err(LeaseError::NotEntitled(_))));
    let base = || keys(None, role("cart"));
    let others = [
        keys(Some(role("base")), role("cart")),
        keys(None, role("till")),
        keys(None, KeySignedRole { external_id: external_id("x1"), ..role("cart") }),
        keys(None, KeySignedRole { session_name: SessionName::sanitized("other"), ..role("cart") }),
        RoleAccess { sts_endpoint_kind: seawall_broker::aws::StsEndpointKind::Global, ..base() },
        RoleAccess { session_duration: SessionDuration::new(2 * HOUR).unwrap(), ..base() },
        web_identity("cart"),
    ];
    let principal = |access| of(Some(Arc::new(access))).unwrap();
    assert_eq!(principal(base()), principal(base()));
    for other in others {
        assert_ne!(principal(base()), principal(other));
    }
    let counted = |access| principal(access).throttle_key().account_name().map(str::to_owned).unwrap();
    assert_eq!(counted(web_identity("cart")), "123456789012/eu-west-1");
    assert_eq!(counted(base()), "node/eu-west-1");
}

/// The agent's promise, and its price: 110 pods of 20 roles for a day, each asking every five minutes.
#[tokio::test]
async fn a_days_answers_stay_above_the_floor_for_48_calls_a_role_at_most() {
    let aws = start().await;
    let node = Node::new(&aws, aws.exchange(|_| {}), BROKER_SETTINGS);
    let names: Vec<_> = (0..20).map(|n| format!("sa-{n}")).collect();
    let accesses: Vec<_> = names.iter().map(|name| Arc::new(web_identity(name))).collect();
    let pods: Vec<_> =
        (0..110).map(|n| node.pod(&format!("pod-{n}"), &names[n % 20], &accesses[n % 20])).collect();
    let starting: Vec<_> = pods.iter().map(|pod| node.ask(pod)).collect();
    node.pass(30 * Duration::from_secs(1)).await;
    for pod in starting {
        pod.await.unwrap().unwrap();
    }
    let calls = || aws.running.endpoint_request_counts(AwsEndpoint::WebIdentity).calls;
    assert_eq!(calls(), 20, "a node's start is one call for each principal");
    let mut least = Duration::MAX;
    for _ in 0..24 * 12 {
        for pod in &pods {
            let lease = pod.cached_lease((), aws.clock.now()).expect("a lease that is always held");
            least = least.min(lease.value.expires().duration_since(aws.clock.wall_time()).unwrap());
        }
        node.pass(5 * MINUTE).await;
    }
    assert!(least >= LIFETIME_FLOOR.renew_below - MINUTE, "{least:?}");
    assert!(calls() <= 20 * 48 + 20, "{} calls", calls());
    assert!(
        aws.running
            .session_counts()
            .keys()
            .all(|(who, role)| who.rsplit(':').next() == role.rsplit('/').next())
    );
    assert_eq!(node.broker.counters().responses_below_floor_total(), 0);
}

#[tokio::test]
async fn an_outage_of_nine_minutes_is_never_seen_and_a_longer_one_costs_no_pod_what_is_valid() {
    let aws = start().await;
    let node = Node::new(&aws, aws.exchange(|_| {}), BROKER_SETTINGS);
    let pod = node.pod("cart-0", "cart", &Arc::new(web_identity("cart")));
    let first = node.answer(&pod).await.unwrap();
    node.pass(30 * MINUTE).await;
    pod.cached_lease((), aws.clock.now()).unwrap();
    // Renewal starts within these; every call hangs.
    aws.running.set_faults(&Faults { hang_rate: 1.0, ..Faults::default() });
    node.pass_while(14 * MINUTE, true).await;
    let held = pod.cached_lease((), aws.clock.now()).unwrap();
    assert_eq!(held.value.access_key_id(), first.value.access_key_id());
    assert!(held.remaining(aws.clock.now()) < LIFETIME_FLOOR.min_remaining && node.calls("unavailable") > 0);
    assert!(held.remaining(aws.clock.now()) > 15 * MINUTE);
    aws.running.set_faults(&Faults::default());
    node.pass_while(2 * MINUTE, true).await;
    assert!(pod.cached_lease((), aws.clock.now()).unwrap().remaining(aws.clock.now()) > 55 * MINUTE);
}

#[tokio::test]
async fn a_renewal_that_fails_is_tried_shortly_before_the_floor_whatever_its_pause() {
    let aws = start().await;
    let node = Node::new(&aws, aws.exchange(|_| {}), BROKER_SETTINGS);
    let pod = node.pod("cart-0", "cart", &Arc::new(web_identity("cart")));
    node.answer(&pod).await.unwrap();
    let down = Faults { error_rate: 1.0, ..Faults::default() };
    for _ in 0..24 {
        node.pass(30 * MINUTE).await;
        let lease = pod.cached_lease((), aws.clock.now()).unwrap();
        aws.running.set_faults(&down);
        let margin = lease.remaining(aws.clock.now()) - LIFETIME_FLOOR.min_remaining;
        node.pass(margin - Duration::from_secs(11)).await;
        assert!(
            pod.cached_lease((), aws.clock.now()).unwrap().remaining(aws.clock.now())
                > LIFETIME_FLOOR.min_remaining
        );
        aws.running.set_faults(&Faults::default());
        node.pass(Duration::from_secs(11)).await;
        assert!(pod.cached_lease((), aws.clock.now()).unwrap().remaining(aws.clock.now()) > 59 * MINUTE);
        node.pass(MINUTE).await;
    }
    assert_eq!(node.broker.counters().responses_below_floor_total(), 0);
}

#[tokio::test]
async fn a_throttled_account_is_asked_less_and_every_pod_is_served_in_the_end() {
    let aws = start().await;
    let node = Node::new(&aws, aws.exchange(|_| {}), BROKER_SETTINGS);
    let throttle = Some(Throttle { per_second: 1, burst: 1, excess: ExcessAction::Refuse });
    aws.running.set_faults(&Faults { throttle, ..Faults::default() });
    let names: Vec<_> = (0..10).map(|n| format!("sa-{n}")).collect();
    let pods: Vec<_> = names.iter().map(|name| node.pod(name, name, &Arc::new(web_identity(name)))).collect();
    let has_all = || pods.iter().all(|pod| pod.cached_lease((), aws.clock.now()).is_some());
    let mut seconds = 0;
    while !has_all() {
        let tries: Vec<_> = pods
            .iter()
            .filter(|pod| pod.cached_lease((), aws.clock.now()).is_none())
            .map(|pod| node.ask(pod))
            .collect();
        node.pass(Duration::from_secs(3)).await;
        drop(tries);
        seconds += 3;
        assert!(seconds < 300, "{:?}", node.broker.counters().fetches_by_result());
    }
    assert!(node.calls("throttled") > 0);
    assert!(node.calls("throttled") <= 40, "{} refused calls", node.calls("throttled"));
}

#[tokio::test]
async fn sessions_of_a_quarter_of_an_hour_are_counted_as_below_the_floor() {
    let aws = start().await;
    aws.running.add_or_replace_role(EmulatedRole {
        max_session_duration: 15 * MINUTE,
        ..EmulatedRole::trusting_everyone(arn("cart").as_str())
    });
    let node = Node::new(&aws, aws.exchange(|_| {}), BROKER_SETTINGS);
    let pod = node.pod("cart-0", "cart", &Arc::new(web_identity("cart")));
    let lease = node.answer(&pod).await.unwrap();
    assert!(lease.remaining(aws.clock.now()) < 15 * MINUTE);
    let counters = node.broker.counters();
    assert_eq!((counters.issued_below_twice_floor_total(), counters.lifetime_reductions_total()), (1, 1));
    node.pass(10 * MINUTE).await;
    assert!(counters.issued_below_twice_floor_total() >= 2, "each is counted");
    assert_eq!(counters.lifetime_reductions_total(), 1, "and the cause is told once");
}
