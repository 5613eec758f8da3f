//! The broker works with any cloud. This one issues pairs of keys that end at a date, has a floor of its own, and its principals
//! are numbered roles.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use seawall_broker::google::BROKER_SETTINGS;
use seawall_broker::{
    Broker, BrokerSettings, ExchangeError, ExchangeFault, ExchangeFuture, IssuedCredential, LeaseError,
    PodCredentialsSpec, PodLeaseClient, Principal, ThrottledAccountOrWorkload, TokenExchange,
};
use seawall_core::pod::SubjectTokens;
use seawall_core::{Clock, LifetimeFloor, ManualClock, Pod, PodUid, Secret, ServiceAccount};
use tokio::runtime::Handle;

use crate::world::{HOUR, MINUTE, Mood, Subject, TOKEN, World, pass, run};

const FLOOR: LifetimeFloor =
    LifetimeFloor { min_remaining: Duration::from_secs(16 * 60), renew_below: Duration::from_secs(25 * 60) };

/// The role that a request names: one of the roles that its pod may take.
type Role = u16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RoleOf {
    workload: ServiceAccount,
    role: Role,
}

impl Principal for RoleOf {
    type Want<'a> = Role;
    type Entitlement = BTreeSet<Role>;

    fn of(workload: &ServiceAccount, roles: &BTreeSet<Role>, role: Role) -> Result<Self, LeaseError> {
        if roles.contains(&role) {
            return Ok(Self { workload: workload.clone(), role });
        }
        Err(LeaseError::NotEntitled("a role that this pod may not take"))
    }

    fn matches_request(&self, role: Role) -> bool {
        self.role == role
    }

    fn request(&self) -> Role {
        self.role
    }

    fn workload(&self) -> &ServiceAccount {
        &self.workload
    }

    fn throttle_key(&self) -> ThrottledAccountOrWorkload {
        ThrottledAccountOrWorkload::CloudAccount(self.role.to_string().into())
    }
}

#[derive(Debug)]
struct Keys {
    id: String,
    secret: Secret<String>,
    ends: SystemTime,
}

#[derive(Debug)]
struct KeyCloud {
    clock: Clock,
    calls: AtomicUsize,
}

impl KeyCloud {
    async fn keys(
        &self,
        of: &RoleOf,
        subject: &dyn SubjectTokens,
    ) -> Result<IssuedCredential<Keys>, ExchangeError> {
        subject.subject_token("keys.example").await?;
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if of.role == THROTTLED {
            return Err(ExchangeError::new(ExchangeFault::Throttled, "keys", "slower"));
        }
        let (id, secret) = (format!("{}-{call}", of.role), Secret::new(format!("secret of {}", of.role)));
        let credential = Keys { id, secret, ends: self.clock.wall_time() + HOUR };
        Ok(IssuedCredential::new(credential, HOUR))
    }
}

impl TokenExchange for KeyCloud {
    const CLOUD: &'static str = "second";
    type Principal = RoleOf;
    type Credential = Keys;

    fn issue<'a>(&'a self, of: &'a RoleOf, subject: &'a dyn SubjectTokens) -> ExchangeFuture<'a, Keys> {
        Box::pin(self.keys(of, subject))
    }
}

const READER: Role = 1;
const WRITER: Role = 2;
const THROTTLED: Role = 3;

struct Second {
    broker: Broker<KeyCloud>,
    cloud: Arc<KeyCloud>,
    clock: Clock,
    hand: ManualClock,
}

impl Second {
    fn new() -> Self {
        let (clock, hand) = Clock::manual();
        let cloud = Arc::new(KeyCloud { clock: clock.clone(), calls: AtomicUsize::new(0) });
        let settings = BrokerSettings::for_cloud(FLOOR, 10.0);
        let broker = Broker::start(settings, clock.clone(), cloud.clone(), Handle::current());
        Self { broker, cloud, clock, hand }
    }

    fn pod(&self, name: &str, roles: &[Role]) -> Arc<PodLeaseClient<KeyCloud>> {
        let service_account = ServiceAccount { namespace: "shop".into(), name: "cart".into() };
        let pod = Pod { uid: PodUid(name.into()), name: name.into(), service_account };
        let entitlement = roles.iter().copied().collect();
        self.broker.new_pod_client(PodCredentialsSpec {
            pod,
            entitlement,
            subject_tokens: Arc::new(Subject::default()),
        })
    }

    fn calls(&self) -> usize {
        self.cloud.calls.load(Ordering::Relaxed)
    }
}

#[test]
fn pods_of_one_principal_share_both_strings_and_the_date_of_one_call() {
    run(|| async {
        let second = Second::new();
        let (one, two) = (second.pod("cart-0", &[READER, WRITER]), second.pod("cart-1", &[READER]));
        let keys = one.lease(READER).await.unwrap();
        assert_eq!((&*keys.value.id, &**keys.value.secret.expose()), ("1-0", "secret of 1"));
        assert_eq!(keys.value.ends, second.clock.wall_time() + keys.remaining(second.clock.now()));
        assert_eq!(two.lease(READER).await.unwrap().value.id, "1-0");
        assert_eq!(one.cached_lease(READER, second.clock.now()).unwrap().value.id, "1-0");
        assert!(one.cached_lease(WRITER, second.clock.now()).is_none());
        pass(&second.clock, &second.hand, MINUTE).await;
        assert_eq!(one.lease(WRITER).await.unwrap().value.id, "2-1");
        assert_eq!(second.calls(), 2);
    });
}

#[test]
fn what_a_pod_is_not_entitled_to_costs_no_call_and_names_no_principal() {
    run(|| async {
        let second = Second::new();
        let pod = second.pod("cart-0", &[READER]);
        assert!(matches!(pod.lease(WRITER).await, Err(LeaseError::NotEntitled(_))));
        assert_eq!((second.calls(), second.broker.principals().len()), (0, 0));
    });
}

#[test]
fn answers_stay_above_the_floor_of_their_own_cloud() {
    run(|| async {
        let second = Second::new();
        let pod = second.pod("cart-0", &[READER]);
        let mut least = Duration::MAX;
        for _ in 0..24 * 60 {
            least = least.min(pod.lease(READER).await.unwrap().remaining(second.clock.now()));
            pass(&second.clock, &second.hand, MINUTE).await;
        }
        assert!(
            least >= FLOOR.min_remaining && least > BROKER_SETTINGS.lifetime_floor.renew_below,
            "{least:?}"
        );
        assert_eq!(second.broker.counters().responses_below_floor_total(), 0);
        assert!(second.calls() <= 24 * 60 / 33, "{} calls", second.calls());
    });
}

#[test]
fn a_cloud_that_throttles_slows_no_other_and_counts_for_itself() {
    run(|| async {
        let (second, google) = (Second::new(), World::new(BROKER_SETTINGS));
        let throttled: Vec<_> = (0..4).map(|n| google.pod(&format!("p{n}"), &format!("a{n}"))).collect();
        google.cloud.turns(Mood::Fails(ExchangeFault::Throttled));
        for pod in &throttled {
            assert!(google.answer(pod, TOKEN).await.is_err());
        }
        assert!(google.broker.upstream_rate_limit() < BROKER_SETTINGS.calls_per_second);
        let pod = second.pod("cart-0", &[READER, THROTTLED]);
        assert!(matches!(pod.lease(THROTTLED).await, Err(LeaseError::Failed(_))));
        assert_eq!(second.broker.upstream_rate_limit(), 10.0, "one throttled account is its own affair");
        pass(&second.clock, &second.hand, MINUTE).await;
        pod.lease(READER).await.unwrap();
        let count = |calls: Vec<(&str, u64)>, of: &str| calls.iter().find(|(name, _)| *name == of).unwrap().1;
        assert_eq!(count(google.broker.counters().fetches_by_result(), "throttled"), 4);
        assert_eq!(count(second.broker.counters().fetches_by_result(), "throttled"), 1);
        assert_eq!(count(second.broker.counters().fetches_by_result(), "initial"), 1);
    });
}
