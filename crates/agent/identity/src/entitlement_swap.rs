//! How all pods come to have what another configuration gives them: at one moment, as far as anybody who asks can tell.
//!
//! Dialects are each thread's own and what pods may have is in the roster, so neither is replaced together with the other. If a request
//! could meet the one as it was and the other as it will be, it could be given what neither configuration gives (the node's own
//! credentials, where the next one has pods federated that the last one concealed). So there is a moment between: first it is *not
//! known* what the pods may have of the clouds that change, and whoever asks them waits, as for a pod of which the cluster has not told
//! all yet; then every thread speaks by the next configuration; then the pods have what that gives. From the first step on nothing is
//! answered by the old one that was not asked before, on kept connections neither, and what threads remember ([`seawall_server::replay_cache`]) is
//! of no use: it looks up what the pod may have, and is of dialects that are no more. It takes as long as a message to each thread.
//!
//! What takes time comes before: credentials that pods hold and would have to fetch anew are fetched while the old configuration
//! answers ([`SwapCommand::Prepare`]).
//!
//! Ordered by `reload`, obeyed by who keeps what pods may have ([`EntitlementStore`]), which alone writes it. Knows no cloud and no file.

use std::sync::Arc;

use seawall_clouds::Clouds;
use seawall_clouds::entitlements::{Entitlements, RefetchTask};
use seawall_clouds::pod::PodEntry;
use seawall_core::cloud::CloudName;
use tokio::sync::{mpsc, oneshot};

/// Where who keeps them hears of changes.
pub type SwapCommands = mpsc::Receiver<SwapCommand>;

/// What is asked of who keeps what pods may have.
#[derive(Debug)]
pub enum SwapCommand {
    /// Decide what the pods would have of these clouds, and tell what is to be fetched for that.
    Prepare(Arc<Clouds>, oneshot::Sender<RefetchTasks>),
    /// Give them that.
    Swap(EntitlementSwap),
}

/// What is to be fetched before a change.
pub struct RefetchTasks(pub Vec<RefetchTask>);

impl std::fmt::Debug for RefetchTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CatchUps({})", self.0.len())
    }
}

/// A change, step by step.
#[derive(Debug)]
pub struct EntitlementSwap {
    /// Those that speak from now on.
    pub clouds: Arc<Clouds>,
    /// Those of which something is another than before.
    pub changed: Vec<CloudName>,
    /// Told once it is known of no pod what it may have of these.
    pub entitlements_cleared: oneshot::Sender<()>,
    /// Tells that every thread speaks by the new configuration. Dropped where it comes to nothing.
    pub dialects_replaced: oneshot::Receiver<()>,
    /// Told once the pods have what they may.
    pub completed: oneshot::Sender<()>,
}

/// Who keeps what pods may have, and alone writes it.
pub(crate) trait EntitlementStore {
    /// All pods.
    fn callers(&self) -> Vec<Arc<PodEntry>>;

    /// What the pod at this place of them may have of these clouds, which had `before`.
    fn entitle(&self, place: usize, clouds: &Clouds, before: &Entitlements) -> Entitlements;

    /// Wakes requests that wait for a pod.
    fn wake(&self);
}

/// What pods would have by the next configuration, with the credentials that were fetched for it.
#[derive(Debug, Default)]
pub(crate) struct StagedEntitlements(Vec<(Arc<PodEntry>, Entitlements)>);

impl StagedEntitlements {
    /// Obeys an order; the clouds of which pods have something from now on, if others.
    pub(crate) async fn execute(
        &mut self,
        order: SwapCommand,
        keeper: &impl EntitlementStore,
    ) -> Option<Arc<Clouds>> {
        match order {
            SwapCommand::Prepare(clouds, catch_ups) => {
                // Who ordered it may not wait any more.
                let _ = catch_ups.send(RefetchTasks(self.prepare(keeper, &clouds)));
                None
            }
            SwapCommand::Swap(change) => self.change(change, keeper).await,
        }
    }

    fn prepare(&mut self, keeper: &impl EntitlementStore, clouds: &Clouds) -> Vec<RefetchTask> {
        let mut catch_ups = Vec::new();
        let mut prepare = |(place, caller): (usize, Arc<PodEntry>)| {
            let before = caller.entitlements();
            let next = keeper.entitle(place, clouds, &before);
            catch_ups.extend(next.refetch_tasks(&before));
            drop(before);
            (caller, next)
        };
        self.0 = keeper.callers().into_iter().enumerate().map(&mut prepare).collect();
        catch_ups
    }

    async fn change(
        &mut self,
        change: EntitlementSwap,
        keeper: &impl EntitlementStore,
    ) -> Option<Arc<Clouds>> {
        let EntitlementSwap {
            clouds,
            changed,
            entitlements_cleared: closed,
            dialects_replaced: spoken,
            completed: made,
        } = change;
        let pods: Vec<_> =
            keeper.callers().into_iter().enumerate().map(|pod| self.next(pod, keeper, &clouds)).collect();
        self.0 = Vec::new();
        pods.iter().for_each(|pod| pod.caller.replace_entitlements(pod.before.without(&changed)));
        let _ = closed.send(());
        // While this waits, who keeps the pods does not follow the cluster; it is a moment, and may be behind by one.
        let is_spoken = spoken.await.is_ok();
        for PodSwap { caller, before, next } in pods {
            caller.replace_entitlements(if is_spoken { next } else { before });
        }
        keeper.wake();
        let _ = made.send(());
        is_spoken.then_some(clouds)
    }

    /// What a pod will have. All is decided before anybody waits for it.
    fn next(
        &self,
        (place, caller): (usize, Arc<PodEntry>),
        keeper: &impl EntitlementStore,
        clouds: &Clouds,
    ) -> PodSwap {
        let before = (**caller.entitlements()).clone();
        let prepared = self.0.iter().find(|(known, _)| known.id == caller.id).map(|(_, prepared)| prepared);
        let next = keeper.entitle(place, clouds, prepared.unwrap_or(&before));
        PodSwap { caller, before, next }
    }
}

/// A pod and what it has before and after.
struct PodSwap {
    caller: Arc<PodEntry>,
    before: Entitlements,
    next: Entitlements,
}

/// Obeys orders where the pods are those of a file, or nobody's.
pub(crate) async fn run_commands(keeper: impl EntitlementStore, mut orders: SwapCommands) {
    let mut prepared = StagedEntitlements::default();
    while let Some(order) = orders.recv().await {
        prepared.execute(order, &keeper).await;
    }
}

#[cfg(test)]
mod tests {
    use seawall_clouds::testing::{BOTH_BROKERED, PodFixture};
    use seawall_core::annotations::{Annotations, RelatedAnnotations};
    use serde_json::Value;
    use tokio::task::yield_now;

    use super::*;

    /// Keeps the world's pod, whose ServiceAccount says nothing.
    struct Keeps<'a>(&'a PodFixture);

    impl EntitlementStore for Keeps<'_> {
        fn callers(&self) -> Vec<Arc<PodEntry>> {
            vec![self.0.pod().clone()]
        }

        fn entitle(&self, _: usize, clouds: &Clouds, before: &Entitlements) -> Entitlements {
            self.0.entitlements_of(clouds, RelatedAnnotations::read(Annotations::default()), before)
        }

        fn wake(&self) {}
    }

    fn world() -> PodFixture {
        let world = PodFixture::of(BOTH_BROKERED);
        world
            .pod()
            .replace_entitlements(world.entitlements(RelatedAnnotations::read(Annotations::default())));
        world
    }

    fn standing(world: &PodFixture) -> Value {
        world.pod().entitlements().describe(world.clock.now())["google"]["standing"].clone()
    }

    /// Between its steps, and after it where the threads came to speak by it or not.
    async fn change(world: &PodFixture, to: &str, is_spoken: bool) -> (Entitlements, bool) {
        let (clouds, changed) = world.with_config(to);
        let ((closed, is_closed), (spoken, told)) = (oneshot::channel(), oneshot::channel());
        let (made, is_made) = oneshot::channel();
        let order = SwapCommand::Swap(EntitlementSwap {
            clouds,
            changed,
            entitlements_cleared: closed,
            dialects_replaced: told,
            completed: made,
        });
        let mut prepared = StagedEntitlements::default();
        let keeper = Keeps(world);
        let between = async {
            is_closed.await.unwrap();
            yield_now().await;
            let between = (**world.pod().entitlements()).clone();
            if is_spoken {
                spoken.send(()).unwrap();
            } else {
                drop(spoken);
            }
            is_made.await.unwrap();
            between
        };
        let (made, between) = tokio::join!(prepared.execute(order, &keeper), between);
        (between, made.is_some())
    }

    fn with_passthrough() -> String {
        BOTH_BROKERED.replace("google: {", "google: { passthrough: [shop/cart],")
    }

    #[tokio::test]
    async fn between_two_configurations_a_pod_has_nothing_of_what_changes_and_all_of_what_does_not() {
        let world = world();
        assert_eq!(standing(&world), "federated");
        let (between, is_made) = change(&world, &with_passthrough(), true).await;
        assert!(between.is_pending(CloudName::Google) && !between.is_pending(CloudName::Aws));
        assert!(is_made);
        assert_eq!(standing(&world), "passthrough");
    }

    #[tokio::test]
    async fn a_change_that_comes_to_nothing_leaves_what_was() {
        let world = world();
        let (between, is_made) = change(&world, &with_passthrough(), false).await;
        assert!(between.is_pending(CloudName::Google) && !is_made);
        assert_eq!(standing(&world), "federated");
    }

    #[tokio::test]
    async fn what_a_pod_holds_is_caught_up_with_only_where_it_is_asked_for_in_another_way() {
        let world = world();
        let before = (**world.pod().entitlements()).clone();
        for (to, catches_up) in [
            (BOTH_BROKERED.replace("zone: z", "zone: y"), false),
            (BOTH_BROKERED.replace("google: {", "google: { stsUrl: \"http://127.0.0.1:1\","), true),
        ] {
            let (clouds, changed) = world.with_config(&to);
            assert_eq!(changed, [CloudName::Google]);
            let next = Keeps(&world).entitle(0, &clouds, &before);
            assert_eq!(next.refetch_tasks(&before).len(), usize::from(catches_up), "{to}");
        }
    }
}
