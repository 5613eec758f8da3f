//! The AWS calls at an STS that is not ours: moto's. It checks neither tokens nor signatures; it holds us to the shape of requests
//! and responses as others read AWS's references.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use seawall_broker::TokenExchange as _;
use seawall_broker::aws::{
    AssumeMethod, AwsAccessKeys, AwsExchange, AwsExchangeConfig, KeySignedRole, NodeKeySource, RoleAccess,
    SessionDuration, SessionName, SessionTag, SessionTags, TokenRole,
};
use seawall_core::{Clock, Secret};
use seawall_testkit::installed_test_parts::cached_test_part_path;

use crate::aws_world::{
    AUDIENCE, HOUR, USER_KEY, USER_SECRET, access, arn, caller_identity, external_id, keys, principal, role,
    start, web_identity,
};

/// A running moto; killed when dropped.
struct Moto {
    child: Child,
    url: String,
}

impl Moto {
    fn start() -> Self {
        let mut command = Command::new(cached_test_part_path("moto/bin/moto_server"));
        command.args(["-H", "127.0.0.1", "-p", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let url = lines.find_map(|line| line.split_once("Running on ").map(|(_, url)| url.trim().to_owned()));
        // Its further lines must find a reader, or it stops at a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url: url.expect("moto's line with its address") }
    }

    fn exchange(&self) -> AwsExchange {
        let keys = AwsAccessKeys {
            access_key_id: USER_KEY.into(),
            secret_access_key: Secret::new(USER_SECRET.into()),
            session_token: None,
        };
        let keys = Some(NodeKeySource::Static(Arc::new(keys)));
        let config = AwsExchangeConfig {
            node_key_source: keys,
            sts_url: Some(self.url.clone()),
            ..AwsExchangeConfig::default()
        };
        AwsExchange::new(config, Clock::system()).unwrap()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn every_way_through_sts_gets_its_roles_session_of_motos() {
    let (moto, aws) = (Moto::start(), start().await);
    let exchange = moto.exchange();
    let tag = SessionTag { key: "team".into(), value: "a b=c/d+e".into(), is_transitive: true };
    let tagged = KeySignedRole {
        external_id: external_id("x1/y:z"),
        tags: SessionTags::new(vec![tag]).unwrap(),
        ..role("tagged")
    };
    let first = TokenRole { arn: arn("first"), session_name: SessionName::sanitized("shop.cart") };
    let through = AssumeMethod::WebIdentity { audience: AUDIENCE.into(), first, then: Some(role("then")) };
    let long =
        RoleAccess { session_duration: SessionDuration::new(12 * HOUR).unwrap(), ..web_identity("cart") };
    for (name, life, way) in [
        ("cart", HOUR, web_identity("cart")),
        ("cart", 12 * HOUR, long),
        ("tagged", HOUR, keys(None, tagged)),
        ("till", HOUR, keys(Some(role("base")), role("till"))),
        ("then", HOUR, access(through)),
    ] {
        let issued = exchange.issue(&principal("cart", way), &aws.subject("cart")).await.unwrap();
        assert_eq!(issued.credential.role_name(), name);
        assert!(
            issued.lifetime <= life && issued.lifetime > life - Duration::from_secs(60),
            "{:?}",
            issued.lifetime
        );
        let told = caller_identity(&moto.url, &Clock::system(), &issued.credential).await;
        assert!(told.contains(&format!("assumed-role/{name}/shop.cart</Arn>")), "{told}");
    }
}
