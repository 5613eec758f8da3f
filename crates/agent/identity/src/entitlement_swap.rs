//! Swaps the entitlements of all pods when the configuration changes, so that no request sees half of the change.
//!
//! Each traffic thread has its own dialects (clouds' metadata APIs), but the pods' entitlements are in the registry. So the
//! agent cannot replace dialects and entitlements at the same moment. Suppose that the agent used the dialects of one
//! configuration and the entitlements of the other for the same request. Then the client could get a response that one of the
//! configurations forbids. For example, after a change from Google's mode `conceal` to `federate`, a pod with its old
//! entitlement could still get the node's own credentials. So the swap has an intermediate state:
//!
//! 1. The pods' entitlements at the changed clouds become *undecided*. A request to these clouds waits. A request waits in the
//!    same way while the API server has not reported all data about the pod.
//! 2. Every traffic thread replaces its dialects with the dialects of the new configuration.
//! 3. The pods get the entitlements of the new configuration.
//!
//! After the first step, the agent answers no new request under the old configuration, not even on a kept-alive connection. The
//! threads' caches of repeated requests ([`seawall_server::repeated_request_cache`]) do not use the old configuration either.
//! Each lookup in such a cache checks the pod's entitlements, and step 2 removes the dialects to which the cache entries
//! belong. The swap takes about as long as sending a message to each thread.
//!
//! The slow work happens before the swap ([`SwapCommand::Prepare`]). While the old configuration is still in force, the agent
//! fetches new credentials for pods whose present credentials it cannot reuse. An example is a new configuration with another
//! STS endpoint. If no fetch brings a credential, the agent refuses the configuration ([`SwapCommand::Discard`]).
//!
//! The agent's module `reload` sends the commands. One task owns the [`EntitlementStore`], which is the only writer of
//! entitlements. This task executes the commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use seawall_clouds::Clouds;
use seawall_clouds::entitlements::{Entitlements, RefetchTask};
use seawall_clouds::pod::PodEntry;
use seawall_core::PodUid;
use seawall_core::cloud::CloudName;
use tokio::sync::{mpsc, oneshot};

/// The channel on which the task with the entitlement store receives its commands.
pub type SwapCommandReceiver = mpsc::Receiver<SwapCommand>;

/// A command to the entitlement store.
#[derive(Debug)]
pub enum SwapCommand {
    /// Computes the pods' entitlements under a new configuration, and returns the tasks that fetch the needed credentials.
    Prepare(Arc<Clouds>, oneshot::Sender<PreSwapFetchTasks>),
    /// Drops what [`SwapCommand::Prepare`] computed and fetched, because the agent refuses the new configuration.
    Discard,
    /// Replaces the pods' entitlements, in the steps of [`EntitlementSwap`].
    Swap(EntitlementSwap),
}

/// The tasks that fetch credentials before a swap.
pub struct PreSwapFetchTasks(pub Vec<RefetchTask>);

impl std::fmt::Debug for PreSwapFetchTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RefetchTasks({})", self.0.len())
    }
}

/// The clouds of the new configuration, and the signals between the steps of a swap.
#[derive(Debug)]
pub struct EntitlementSwap {
    /// The clouds of the new configuration.
    pub clouds: Arc<Clouds>,
    /// The names of the clouds whose configuration changes.
    pub changed_clouds: Vec<CloudName>,
    /// Sends the signal that the pods' entitlements at the changed clouds are undecided.
    pub entitlements_cleared_sender: oneshot::Sender<()>,
    /// Receives the signal that every thread uses the new configuration. The agent drops the sender if the agent abandons the
    /// swap.
    pub dialects_replaced_receiver: oneshot::Receiver<()>,
    /// Sends the signal that the pods have their final entitlements.
    pub completion_sender: oneshot::Sender<()>,
}

/// Stores the pods' entitlements. No other code writes them.
pub(crate) trait EntitlementStore {
    /// Returns all pods.
    fn pods(&self) -> Vec<Arc<PodEntry>>;

    /// Returns the entitlements that these clouds give to the pod at index `place` of [`Self::pods`]. `before` contains the
    /// pod's present entitlements.
    fn entitle(&self, place: usize, clouds: &Clouds, before: &Entitlements) -> Entitlements;

    /// Wakes requests that wait until their pod is identified or until the pod's entitlements are decided.
    fn wake(&self);
}

/// Executes the commands, step by step. At most one swap is under way.
#[derive(Debug)]
pub(crate) struct EntitlementSwapper {
    commands: SwapCommandReceiver,
    /// The pods' entitlements under the next configuration, with the credentials that were fetched for that configuration.
    prepared: BTreeMap<PodUid, Entitlements>,
    open: Option<OpenSwap>,
}

/// The next step of an [`EntitlementSwapper`].
#[derive(Debug)]
pub(crate) enum SwapperEvent {
    /// A command has arrived.
    ExecuteCommand(SwapCommand),
    /// The traffic threads have replaced their dialects, or the agent abandoned the swap. The value is true if every thread
    /// uses the new configuration.
    Finish(bool),
}

/// A swap that waits until every traffic thread has replaced its dialects.
#[derive(Debug)]
struct OpenSwap {
    clouds: Arc<Clouds>,
    changed: Vec<CloudName>,
    dialects_replaced: oneshot::Receiver<()>,
    completion_sender: oneshot::Sender<()>,
    pods: BTreeMap<PodUid, PodSwap>,
}

/// A pod's entitlements under the configuration in force and under the new configuration.
#[derive(Debug, Default)]
struct PodSwap {
    before: Entitlements,
    next: Entitlements,
}

impl EntitlementSwapper {
    pub(crate) fn new(commands: SwapCommandReceiver) -> Self {
        Self { commands, prepared: BTreeMap::new(), open: None }
    }

    /// Waits for the next step. Returns `None` if the sender of commands has been dropped. A caller can drop the future without
    /// losing a command.
    pub(crate) async fn next_step(&mut self) -> Option<SwapperEvent> {
        match &mut self.open {
            Some(swap) => Some(SwapperEvent::Finish((&mut swap.dialects_replaced).await.is_ok())),
            None => self.commands.recv().await.map(SwapperEvent::ExecuteCommand),
        }
    }

    /// Executes a step. Returns the new clouds if a swap completed.
    pub(crate) fn execute_step(
        &mut self,
        step: SwapperEvent,
        store: &impl EntitlementStore,
    ) -> Option<Arc<Clouds>> {
        match step {
            SwapperEvent::ExecuteCommand(SwapCommand::Prepare(clouds, listed)) => {
                // The send fails if the sender of the command no longer waits for the result. That is not an error.
                let _ = listed.send(PreSwapFetchTasks(self.prepare(store, &clouds)));
                None
            }
            SwapperEvent::ExecuteCommand(SwapCommand::Discard) => {
                self.prepared.clear();
                None
            }
            SwapperEvent::ExecuteCommand(SwapCommand::Swap(swap)) => {
                self.begin(swap, store);
                None
            }
            SwapperEvent::Finish(is_replaced) => self.finish(is_replaced, store),
        }
    }

    /// Decides the entitlements of a pod that is new or has changed. `decide` computes the pod's entitlements under the given
    /// configuration; its second argument contains the pod's earlier entitlements under that configuration. During a swap, the
    /// result has no entitlements at the changed clouds.
    pub(crate) fn decide_entitlements(
        &mut self,
        uid: &PodUid,
        in_force: &Clouds,
        before: &Entitlements,
        decide: impl Fn(&Clouds, &Entitlements) -> Entitlements,
    ) -> Entitlements {
        let Some(swap) = &mut self.open else { return decide(in_force, before) };
        let pod = swap.pods.entry(uid.clone()).or_default();
        *pod = PodSwap { before: decide(in_force, &pod.before), next: decide(&swap.clouds, &pod.next) };
        pod.before.with_clouds_reset_to_pending(&swap.changed)
    }

    /// Drops the entitlements and leases of pods that are gone.
    pub(crate) fn retain_pods(&mut self, is_known: impl Fn(&PodUid) -> bool) {
        self.prepared.retain(|uid, _| is_known(uid));
        if let Some(swap) = &mut self.open {
            swap.pods.retain(|uid, _| is_known(uid));
        }
    }

    fn prepare(&mut self, store: &impl EntitlementStore, clouds: &Clouds) -> Vec<RefetchTask> {
        let mut tasks = Vec::new();
        let prepare = |(place, caller): (usize, Arc<PodEntry>)| {
            let before = caller.entitlements();
            let next = store.entitle(place, clouds, &before);
            tasks.extend(next.refetch_tasks(&before));
            (caller.pod.uid.clone(), next)
        };
        self.prepared = store.pods().into_iter().enumerate().map(prepare).collect();
        tasks
    }

    /// Begins a swap. Computes the new entitlements of all pods before the first request has to wait.
    fn begin(&mut self, swap: EntitlementSwap, store: &impl EntitlementStore) {
        let EntitlementSwap {
            clouds,
            changed_clouds: changed,
            entitlements_cleared_sender: entitlements_cleared,
            dialects_replaced_receiver: dialects_replaced,
            completion_sender,
        } = swap;
        let prepared = std::mem::take(&mut self.prepared);
        let callers = store.pods();
        let decide = |(place, caller): (usize, &Arc<PodEntry>)| {
            let (uid, before) = (caller.pod.uid.clone(), (**caller.entitlements()).clone());
            let next = store.entitle(place, &clouds, prepared.get(&uid).unwrap_or(&before));
            (uid, PodSwap { before, next })
        };
        let pods = callers.iter().enumerate().map(decide).collect();
        for caller in &callers {
            caller.replace_entitlements(caller.entitlements().with_clouds_reset_to_pending(&changed));
        }
        let _ = entitlements_cleared.send(());
        self.open = Some(OpenSwap { clouds, changed, dialects_replaced, completion_sender, pods });
    }

    fn finish(&mut self, is_replaced: bool, store: &impl EntitlementStore) -> Option<Arc<Clouds>> {
        let OpenSwap { clouds, completion_sender, mut pods, .. } = self.open.take()?;
        for caller in store.pods() {
            // `pods` has an entry for every known pod. Without an entry, a pod would stay without entitlements at the changed
            // clouds.
            if let Some(PodSwap { before, next }) = pods.remove(&caller.pod.uid) {
                caller.replace_entitlements(if is_replaced { next } else { before });
            }
        }
        store.wake();
        let _ = completion_sender.send(());
        is_replaced.then_some(clouds)
    }
}

/// Executes the commands for a store whose pods are fixed: the pods of a file, or no pods.
pub(crate) async fn run_commands(store: impl EntitlementStore, commands: SwapCommandReceiver) {
    let mut swapper = EntitlementSwapper::new(commands);
    while let Some(step) = swapper.next_step().await {
        swapper.execute_step(step, &store);
    }
}

#[cfg(test)]
mod tests {
    use seawall_clouds::testing::{BOTH_CLOUDS_BROKERED_CONFIG, PodFixture};
    use seawall_core::annotations::{Annotations, RelatedAnnotations};
    use serde_json::Value;

    use super::*;

    /// Keeps the fixture's pod, whose ServiceAccount has no annotations.
    struct Keeps<'a>(&'a PodFixture);

    impl EntitlementStore for Keeps<'_> {
        fn pods(&self) -> Vec<Arc<PodEntry>> {
            vec![self.0.pod().clone()]
        }

        fn entitle(&self, _: usize, clouds: &Clouds, before: &Entitlements) -> Entitlements {
            self.0.entitlements_under_clouds(
                clouds,
                RelatedAnnotations::of_object(Annotations::default()),
                before,
            )
        }

        fn wake(&self) {}
    }

    fn world() -> PodFixture {
        let world = PodFixture::with_sections(BOTH_CLOUDS_BROKERED_CONFIG);
        world.pod().replace_entitlements(world.entitlements_with_service_account_annotations(
            RelatedAnnotations::of_object(Annotations::default()),
        ));
        world
    }

    fn status(world: &PodFixture) -> Value {
        world.pod().entitlements().to_debug_json(world.clock.now())["google"]["status"].clone()
    }

    /// Runs a swap. Returns the pod's entitlements in the middle of the swap, and true if the new configuration took effect.
    /// `is_spoken` says if the threads use the new configuration.
    async fn change(world: &PodFixture, to: &str, is_spoken: bool) -> (Entitlements, bool) {
        let (clouds, changed) = world.clouds_after_reload(to);
        let ((closed, is_closed), (spoken, told)) = (oneshot::channel(), oneshot::channel());
        let (made, is_made) = oneshot::channel();
        let (orders, commands) = mpsc::channel(1);
        let order = SwapCommand::Swap(EntitlementSwap {
            clouds,
            changed_clouds: changed,
            entitlements_cleared_sender: closed,
            dialects_replaced_receiver: told,
            completion_sender: made,
        });
        orders.send(order).await.unwrap();
        let (mut swapper, store) = (EntitlementSwapper::new(commands), Keeps(world));
        let begin = swapper.next_step().await.unwrap();
        assert!(swapper.execute_step(begin, &store).is_none());
        is_closed.await.unwrap();
        let between = (**world.pod().entitlements()).clone();
        if is_spoken {
            spoken.send(()).unwrap();
        } else {
            drop(spoken);
        }
        let finish = swapper.next_step().await.unwrap();
        let made = swapper.execute_step(finish, &store);
        is_made.await.unwrap();
        (between, made.is_some())
    }

    fn with_conceal() -> String {
        BOTH_CLOUDS_BROKERED_CONFIG.replace("google: {", "google: { mode: conceal,")
    }

    #[tokio::test]
    async fn between_two_configurations_a_pod_has_nothing_of_what_changes_and_all_of_what_does_not() {
        let world = world();
        assert_eq!(status(&world), "federated");
        let (between, is_made) = change(&world, &with_conceal(), true).await;
        assert!(
            between.is_pending_for_cloud(CloudName::Google) && !between.is_pending_for_cloud(CloudName::Aws)
        );
        assert!(is_made);
        assert_eq!(status(&world), "passthrough");
    }

    #[tokio::test]
    async fn a_change_that_comes_to_nothing_leaves_what_was() {
        let world = world();
        let (between, is_made) = change(&world, &with_conceal(), false).await;
        assert!(between.is_pending_for_cloud(CloudName::Google) && !is_made);
        assert_eq!(status(&world), "federated");
    }

    #[tokio::test]
    async fn what_a_pod_holds_is_caught_up_with_only_where_it_is_asked_for_in_another_way() {
        let world = world();
        let before = (**world.pod().entitlements()).clone();
        for (to, catches_up) in [
            (BOTH_CLOUDS_BROKERED_CONFIG.replace("zone: z", "zone: y"), false),
            (
                BOTH_CLOUDS_BROKERED_CONFIG.replace("google: {", "google: { stsUrl: \"http://127.0.0.1:1\","),
                true,
            ),
        ] {
            let (clouds, changed) = world.clouds_after_reload(&to);
            assert_eq!(changed, [CloudName::Google]);
            let next = Keeps(&world).entitle(0, &clouds, &before);
            assert_eq!(next.refetch_tasks(&before).len(), usize::from(catches_up), "{to}");
        }
    }
}
