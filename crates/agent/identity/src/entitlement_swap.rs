//! Swaps the entitlements of all pods when the configuration changes. For every request the swap happens at one moment.
//!
//! Each thread has its own dialects, and the registry holds the pods' entitlements. So the agent cannot replace both together. A
//! request that used old dialects with new entitlements could get what neither configuration allows. For example, it could get
//! the node's own credentials if the old configuration conceals and the new one federates. So the swap has an intermediate state:
//!
//! 1. The pods' entitlements at the changing clouds become *not known*. A request to these clouds waits, as for a pod whose data
//!    the cluster has not fully reported yet.
//! 2. Every thread replaces its dialects by those of the new configuration.
//! 3. The pods get the entitlements of the new configuration.
//!
//! After the first step, the old configuration answers no new request, not even on kept connections. Cached parsed requests
//! ([`seawall_server::repeated_request_cache`]) cannot bypass this: a cache lookup checks the pod's entitlements, and the cache entries
//! belong to replaced dialects. The swap takes as long as one message to each thread.
//!
//! Slow work comes before the swap. The agent fetches new credentials for the pods while the old configuration still answers
//! ([`SwapCommand::Prepare`]).
//!
//! The agent's `reload` sends the commands. The [`EntitlementStore`], which is the only writer of entitlements, executes them.
//! This module knows no cloud and no file.

use std::sync::Arc;

use seawall_clouds::Clouds;
use seawall_clouds::entitlements::{Entitlements, RefetchTask};
use seawall_clouds::pod::PodEntry;
use seawall_core::cloud::CloudName;
use tokio::sync::{mpsc, oneshot};

/// The channel on which the entitlement store receives its commands.
pub type SwapCommands = mpsc::Receiver<SwapCommand>;

/// A command to the entitlement store.
#[derive(Debug)]
pub enum SwapCommand {
    /// Computes the pods' entitlements at these clouds, and returns the credentials that must be fetched for them.
    Prepare(Arc<Clouds>, oneshot::Sender<RefetchTasks>),
    /// Swaps the pods' entitlements.
    Swap(EntitlementSwap),
}

/// The credentials to fetch before a swap.
pub struct RefetchTasks(pub Vec<RefetchTask>);

impl std::fmt::Debug for RefetchTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RefetchTasks({})", self.0.len())
    }
}

/// A swap, step by step.
#[derive(Debug)]
pub struct EntitlementSwap {
    /// The clouds of the new configuration.
    pub clouds: Arc<Clouds>,
    /// The names of the clouds whose configuration changes.
    pub changed: Vec<CloudName>,
    /// Signalled once the pods' entitlements at the changed clouds are not known.
    pub entitlements_cleared: oneshot::Sender<()>,
    /// Receives the signal that every thread uses the new configuration. The sender is dropped if the swap is abandoned.
    pub dialects_replaced: oneshot::Receiver<()>,
    /// Signalled once the pods have their final entitlements.
    pub completion_sender: oneshot::Sender<()>,
}

/// The only writer of the pods' entitlements.
pub(crate) trait EntitlementStore {
    /// All pods.
    fn callers(&self) -> Vec<Arc<PodEntry>>;

    /// Computes the entitlements at these clouds for the pod at index `place` of `callers`. `before` are its present
    /// entitlements.
    fn entitle(&self, place: usize, clouds: &Clouds, before: &Entitlements) -> Entitlements;

    /// Wakes requests that wait for a pod.
    fn wake(&self);
}

/// The pods' entitlements under the next configuration, with the credentials that were fetched for it.
#[derive(Debug, Default)]
pub(crate) struct StagedEntitlements(Vec<(Arc<PodEntry>, Entitlements)>);

impl StagedEntitlements {
    /// Executes a command. Returns the new clouds if a swap completed.
    pub(crate) async fn execute(
        &mut self,
        order: SwapCommand,
        keeper: &impl EntitlementStore,
    ) -> Option<Arc<Clouds>> {
        match order {
            SwapCommand::Prepare(clouds, catch_ups) => {
                // The sender of the command may have stopped waiting.
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
            completion_sender: made,
        } = change;
        let pods: Vec<_> =
            keeper.callers().into_iter().enumerate().map(|pod| self.next(pod, keeper, &clouds)).collect();
        self.0 = Vec::new();
        pods.iter().for_each(|pod| pod.caller.replace_entitlements(pod.before.without(&changed)));
        let _ = closed.send(());
        // While this waits, the store does not follow the cluster. The wait is short, and the entitlements may lag that long.
        let is_spoken = spoken.await.is_ok();
        for PodSwap { caller, before, next } in pods {
            caller.replace_entitlements(if is_spoken { next } else { before });
        }
        keeper.wake();
        let _ = made.send(());
        is_spoken.then_some(clouds)
    }

    /// Computes a pod's next entitlements. Computes the decision for each pod before the first request needs it.
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

/// A pod with its entitlements before and after the swap.
struct PodSwap {
    caller: Arc<PodEntry>,
    before: Entitlements,
    next: Entitlements,
}

/// Executes commands for a fixed set of pods: the pods of a file, or none.
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

    /// An entitlement store with the fixture's pod, whose ServiceAccount has no annotations.
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

    fn status(world: &PodFixture) -> Value {
        world.pod().entitlements().describe(world.clock.now())["google"]["status"].clone()
    }

    /// Returns the entitlements in the middle of a swap. `is_spoken` says whether the threads adopt the new configuration.
    async fn change(world: &PodFixture, to: &str, is_spoken: bool) -> (Entitlements, bool) {
        let (clouds, changed) = world.with_config(to);
        let ((closed, is_closed), (spoken, told)) = (oneshot::channel(), oneshot::channel());
        let (made, is_made) = oneshot::channel();
        let order = SwapCommand::Swap(EntitlementSwap {
            clouds,
            changed,
            entitlements_cleared: closed,
            dialects_replaced: told,
            completion_sender: made,
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
        BOTH_BROKERED.replace("google: {", "google: { passthroughServiceAccounts: [shop/cart],")
    }

    #[tokio::test]
    async fn between_two_configurations_a_pod_has_nothing_of_what_changes_and_all_of_what_does_not() {
        let world = world();
        assert_eq!(status(&world), "federated");
        let (between, is_made) = change(&world, &with_passthrough(), true).await;
        assert!(between.is_pending(CloudName::Google) && !between.is_pending(CloudName::Aws));
        assert!(is_made);
        assert_eq!(status(&world), "passthrough");
    }

    #[tokio::test]
    async fn a_change_that_comes_to_nothing_leaves_what_was() {
        let world = world();
        let (between, is_made) = change(&world, &with_passthrough(), false).await;
        assert!(between.is_pending(CloudName::Google) && !is_made);
        assert_eq!(status(&world), "federated");
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
