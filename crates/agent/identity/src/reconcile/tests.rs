//! Tests of the reconciler. Each test reports the node's pods to the reconciler, and sends the traffic threads' signals during
//! a swap of entitlements.

use std::net::SocketAddr;

use seawall_clouds::testing::{BOTH_CLOUDS_BROKERED_CONFIG, PodFixture};
use seawall_cluster::testing::ManualCluster;
use seawall_core::ServiceAccount;
use seawall_core::annotations::{Annotations, LengthCheckedAnnotation};
use seawall_core::attestation::ConnectionEnds;
use seawall_core::cloud::CloudName;
use seawall_server::connection_client::ClientResolver;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, yield_now};

use super::*;
use crate::entitlement_swap::{EntitlementSwap, SwapCommand};
use crate::pod_resolver::{PodResolver, SelfProbeSourceAddress};

const CART: &str = "10.4.0.7";
const OTHER: &str = "10.4.0.8";

struct World {
    fixture: PodFixture,
    cluster: ManualCluster,
    roster: Arc<PodRegistry>,
    resolver: PodResolver,
    commands: mpsc::Sender<SwapCommand>,
    reconciler: JoinHandle<()>,
}

/// The channel ends of a swap that the test uses in place of the traffic threads.
struct Threads {
    cleared: oneshot::Receiver<()>,
    replaced: oneshot::Sender<()>,
    completed: oneshot::Receiver<()>,
}

/// Returns a running pod of the ServiceAccount shop/NAME.
fn pod(name: &str, address: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "shop", "uid": name },
        "spec": { "serviceAccountName": name },
        "status": { "phase": "Running", "podIP": address },
    })
}

/// Returns a configuration in which pods of these ServiceAccounts get the node's own credentials.
fn passing(accounts: &str) -> String {
    format!("realServer: [{accounts}]\n{BOTH_CLOUDS_BROKERED_CONFIG}")
}

impl World {
    async fn start(pods: &[Value]) -> Self {
        let fixture = PodFixture::with_sections(BOTH_CLOUDS_BROKERED_CONFIG);
        let mut cluster = ManualCluster::new(&fixture.clock);
        let (client, roster) = (cluster.client.clone(), Arc::<PodRegistry>::default());
        let attester = ClusterAttester::by_source_ip(client.pods());
        let resolver = PodResolver::with_attestation(
            attester.attestation(),
            roster.clone(),
            SelfProbeSourceAddress::default(),
        );
        let (commands, received) = mpsc::channel(4);
        let reconciler = PodReconciler::new(client, roster.clone(), fixture.clouds.clone(), attester);
        let reconciler = tokio::spawn(reconciler.run(received));
        cluster.publish_pods(pods);
        let world = Self { fixture, cluster, roster, resolver, commands, reconciler };
        world.settle().await;
        world
    }

    /// Runs the reconciler until it waits, and checks that it has not ended.
    async fn settle(&self) {
        for _ in 0..64 {
            yield_now().await;
        }
        assert!(!self.reconciler.is_finished());
    }

    async fn report(&mut self, pods: &[Value]) {
        self.cluster.publish_pods(pods);
        self.settle().await;
    }

    async fn swap(&self, to: &str) -> Threads {
        let (clouds, changed) = self.fixture.clouds_after_reload(to);
        let (entitlements_cleared, cleared) = oneshot::channel();
        let (replaced, dialects_replaced) = oneshot::channel();
        let (completion_sender, completed) = oneshot::channel();
        let swap = EntitlementSwap {
            clouds,
            changed_clouds: changed,
            entitlements_cleared_sender: entitlements_cleared,
            dialects_replaced_receiver: dialects_replaced,
            completion_sender,
        };
        self.commands.send(SwapCommand::Swap(swap)).await.unwrap();
        self.settle().await;
        Threads { cleared, replaced, completed }
    }

    fn entry(&self, uid: &str) -> Option<Arc<PodEntry>> {
        self.roster.find(&PodUid(uid.into()))
    }

    /// Returns the name of the pod at this address, as the resolver finds it.
    fn at(&self, address: &str) -> Option<String> {
        let peer = SocketAddr::new(address.parse().unwrap(), 40000);
        let ends = ConnectionEnds { peer, read_local_address: &|| None };
        self.resolver.likely_pod(&ends).map(|pod| pod.pod.name.to_string())
    }

    /// Returns the state of a pod's entitlement to Google.
    fn google(&self, uid: &str) -> String {
        let shown = self.entry(uid).unwrap().entitlements().to_debug_json(self.fixture.clock.now());
        shown["google"]["status"].as_str().unwrap().into()
    }
}

/// Regression: while a traffic thread was late, the deleted pod kept its connections and got the entitlements of the new
/// configuration.
#[tokio::test]
async fn a_pod_that_is_deleted_or_loses_its_address_while_a_swap_waits_is_refused_at_once() {
    let mut world = World::start(&[pod("cart", CART), pod("search", OTHER)]).await;
    let (cart, search) = (world.entry("cart").unwrap(), world.entry("search").unwrap());
    let mut threads = world.swap(&passing("shop/cart, shop/search")).await;
    assert!(threads.cleared.try_recv().is_ok() && threads.completed.try_recv().is_err());
    // The pod `cart` is gone, and the pod `search` now has the address of `cart`.
    world.report(&[pod("search", CART)]).await;
    assert!(
        threads.completed.try_recv().is_err(),
        "the traffic threads have not replaced their dialects yet"
    );
    assert!(
        world.entry("cart").is_none()
            && cart.connection_counter.is_closed()
            && search.connection_counter.is_closed()
    );
    assert_eq!((world.at(CART).as_deref(), world.at(OTHER)), (Some("search"), None));
    assert_eq!(world.google("search"), "pending");
    assert!(CloudName::ALL.iter().all(|cloud| cart.entitlements().is_pending_for_cloud(*cloud)));

    threads.replaced.send(()).unwrap();
    threads.completed.await.unwrap();
    assert_eq!(world.google("search"), "real-server");
    assert!(
        cart.entitlements().is_pending_for_cloud(CloudName::Google),
        "a pod that is gone gets no entitlement"
    );
    assert!(
        search.entitlements().is_pending_for_cloud(CloudName::Google),
        "the entry with the earlier address gets no entitlement"
    );
}

#[tokio::test]
async fn a_pod_that_appears_while_a_swap_waits_has_nothing_of_what_changes_until_its_end() {
    for is_replaced in [true, false] {
        let mut world = World::start(&[]).await;
        let conceal = BOTH_CLOUDS_BROKERED_CONFIG.replace("google: {", "google: { mode: conceal,");
        let threads = world.swap(&conceal).await;
        world.report(&[pod("cart", CART)]).await;
        let cart = world.entry("cart").unwrap();
        assert_eq!((world.at(CART).as_deref(), &*world.google("cart")), (Some("cart"), "pending"));
        assert!(!cart.entitlements().is_pending_for_cloud(CloudName::Aws), "this cloud does not change");
        if is_replaced {
            threads.replaced.send(()).unwrap();
        } else {
            drop(threads.replaced);
        }
        threads.completed.await.unwrap();
        assert_eq!(world.google("cart"), if is_replaced { "passthrough" } else { "federated" });
        // A pod that appears after the swap has its entitlements at once.
        world.report(&[pod("cart", CART), pod("search", OTHER)]).await;
        assert_eq!(world.google("search"), world.google("cart"));
    }
}

#[tokio::test]
async fn an_annotation_that_changes_while_a_swap_waits_counts_at_its_end() {
    let mut world = World::start(&[pod("cart", CART)]).await;
    let mail = |world: &World| {
        let entry = world.entry("cart").unwrap();
        entry.entitlements().to_debug_json(world.fixture.clock.now())["google"].to_string()
    };
    for is_replaced in [false, true] {
        let account = format!("cart-{is_replaced}@p.iam.gserviceaccount.com");
        let threads = world.swap(&BOTH_CLOUDS_BROKERED_CONFIG.replace("zone: z", "zone: y")).await;
        let service_account = ServiceAccount { namespace: "shop".into(), name: "cart".into() };
        let annotations: Annotations =
            [("iam.gke.io/gcp-service-account", LengthCheckedAnnotation::from(&*account))]
                .into_iter()
                .collect();
        world.cluster.publish_annotations(service_account, annotations);
        world.settle().await;
        assert_eq!(world.google("cart"), "pending");
        if is_replaced {
            threads.replaced.send(()).unwrap();
        } else {
            drop(threads.replaced);
        }
        threads.completed.await.unwrap();
        assert!(mail(&world).contains(&account), "{}", mail(&world));
    }
}

#[tokio::test]
async fn a_second_configuration_that_arrives_while_a_swap_waits_is_not_lost() {
    let world = World::start(&[pod("cart", CART)]).await;
    let first = world.swap(&passing("shop/cart")).await;
    let mut second = world.swap(&BOTH_CLOUDS_BROKERED_CONFIG.replace("zone: z", "zone: y")).await;
    assert!(second.cleared.try_recv().is_err(), "only one swap runs at a time");
    first.replaced.send(()).unwrap();
    first.completed.await.unwrap();
    second.cleared.await.unwrap();
    assert_eq!(world.google("cart"), "pending");
    second.replaced.send(()).unwrap();
    second.completed.await.unwrap();
    assert_eq!(world.google("cart"), "federated");
}
