//! Fetches credentials for a new configuration before it is in force, and refuses a configuration with which no fetch succeeds.
//!
//! A new configuration that changes what the agent sends to a cloud makes the pods' present credentials useless: they belong to the
//! configuration before. Suppose that the new one has a wrong provider, or that the cloud is down. If the agent applied it, pods would
//! lose valid credentials on all nodes at once. So at each changed cloud, at least one of the fetches that replace valid credentials must
//! succeed. The agent cannot tell a wrong value from an error of one account, so a single success is enough.
//!
//! A tenant whose pods alone have valid credentials on a node can make these fetches fail for ever, for example by the trust policy of a
//! role in an account of its own. Therefore a single namespace only delays a configuration ([`FailedCloud::is_of_one_namespace`]).

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::join;
use futures_util::stream::{self, StreamExt};
use seawall_broker::{LeaseError, RefetchProgress};
use seawall_clouds::entitlements::RefetchTask;
use seawall_core::Clock;
use seawall_core::cloud::CloudName;

/// The time limit for these fetches. At the initial rate of a broker, 10 s are enough for all credentials of a full node. The agent
/// fetches the remaining credentials when pods request them.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The number of pods for which the agent fetches from one cloud at the same time. With both clouds, this is half of the default of
/// `limits.upstreamRequests`. If the clouds do not respond, the other half is left for the configuration in force.
const MOST_AT_ONCE: usize = 8;

/// A cloud from which no fetch brought a credential.
#[derive(Clone, Debug)]
pub(super) struct FailedCloud {
    cloud: CloudName,
    progress: RefetchProgress,
    /// The namespaces of the pods.
    namespaces: BTreeSet<Arc<str>>,
}

/// Runs the tasks for at most [`TIME_LIMIT`]. Drops those that have not ended by then.
///
/// # Errors
/// The clouds from which none of at least one fetch brought a credential.
pub(super) async fn run(tasks: Vec<RefetchTask>, clock: &Clock) -> Result<(), Vec<FailedCloud>> {
    let (google, aws) = tasks.into_iter().partition(|task| task.cloud == CloudName::Google);
    let failed = join(run_for(CloudName::Google, google, clock), run_for(CloudName::Aws, aws, clock)).await;
    let failed: Vec<_> = [failed.0, failed.1].into_iter().flatten().collect();
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

async fn run_for(cloud: CloudName, tasks: Vec<RefetchTask>, clock: &Clock) -> Option<FailedCloud> {
    let mut pods = Vec::new();
    let mut runs = Vec::new();
    for RefetchTask { service_account, has_credentials, progress, run, .. } in tasks {
        pods.push((service_account.namespace, has_credentials, progress));
        runs.push(run);
    }
    let is_complete = tokio::select! {
        () = stream::iter(runs).for_each_concurrent(MOST_AT_ONCE, |task| task) => true,
        () = clock.sleep(TIME_LIMIT) => false,
    };
    let (mut sum, mut namespaces) = (RefetchProgress::default(), BTreeSet::new());
    for (namespace, has_credentials, progress) in pods {
        let progress = progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (sum.begun, sum.fetched) = (sum.begun + progress.begun, sum.fetched + progress.fetched);
        // If the time was too short, a pod's fetches may not have begun.
        if progress.begun > 0 || (has_credentials && !is_complete) {
            namespaces.insert(namespace);
        }
        sum.last_error = progress.last_error.or(sum.last_error);
    }
    let RefetchProgress { begun, fetched, .. } = sum;
    if begun > 0 {
        let cloud = cloud.as_str();
        tracing::info!(cloud, begun, fetched, is_complete, "fetched credentials for the new configuration");
    }
    (begun > 0 && fetched == 0).then_some(FailedCloud { cloud, progress: sum, namespaces })
}

impl FailedCloud {
    /// True if all fetches were for pods of one namespace.
    pub(super) fn is_of_one_namespace(&self) -> bool {
        self.namespaces.len() == 1
    }

    /// Returns the failure without the cloud's words, which can repeat parts of the configuration.
    pub(super) fn in_short(&self) -> String {
        let RefetchProgress { begun, last_error, .. } = &self.progress;
        let why = match last_error {
            None => format!("none ended within {} s", TIME_LIMIT.as_secs()),
            Some(LeaseError::Failed(error)) => {
                format!("an error is {} ({})", error.fault.name(), error.step)
            }
            Some(error) => error.to_string(),
        };
        format!("none of {begun} fetches from {} brought a credential; {why}", self.cloud.as_str())
    }

    /// Returns the failure with the cloud's words.
    pub(super) fn in_full(&self) -> String {
        match &self.progress.last_error {
            Some(LeaseError::Failed(error)) => format!("{}: {error}", self.in_short()),
            _ => self.in_short(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use seawall_broker::{ExchangeError, ExchangeFault};
    use seawall_core::{ManualClock, ServiceAccount};

    use super::*;

    /// A task whose fetches go so far and then end, or not.
    fn task(cloud: CloudName, namespace: &str, progress: RefetchProgress, ends: bool) -> RefetchTask {
        let shared = Arc::<Mutex<RefetchProgress>>::default();
        let has_credentials = progress.begun > 0;
        let recorded = shared.clone();
        let service_account = ServiceAccount { namespace: namespace.into(), name: "default".into() };
        let run = Box::pin(async move {
            *recorded.lock().unwrap() = progress;
            if !ends {
                std::future::pending::<()>().await;
            }
        });
        RefetchTask { cloud, service_account, has_credentials, progress: shared, run }
    }

    fn progress(begun: usize, fetched: usize) -> RefetchProgress {
        let error = ExchangeError::new(ExchangeFault::AccessDenied, "STS", "provider shop-pool is unknown");
        let last_error = (begun > fetched).then_some(LeaseError::Failed(error));
        RefetchProgress { begun, fetched, last_error }
    }

    #[tokio::test]
    async fn a_configuration_is_refused_if_no_fetch_from_one_of_the_clouds_succeeds() {
        let (clock, _hand) = Clock::manual();
        let [google, aws] = [CloudName::Google, CloudName::Aws];
        let task = |cloud, begun, fetched| task(cloud, "shop", progress(begun, fetched), true);
        for good in [
            vec![],
            vec![task(google, 0, 0)],
            vec![task(google, 2, 0), task(google, 2, 1)],
            vec![task(google, 1, 1), task(aws, 0, 0)],
        ] {
            assert!(run(good, &clock).await.is_ok());
        }
        let failed = run(vec![task(google, 1, 1), task(aws, 2, 0)], &clock).await.unwrap_err();
        let [failed] = &failed[..] else { panic!("{failed:?}") };
        assert_eq!(
            failed.in_short(),
            "none of 2 fetches from aws brought a credential; an error is access_denied (STS)"
        );
        assert!(failed.in_full().ends_with(": STS: provider shop-pool is unknown"));
    }

    #[tokio::test]
    async fn the_namespaces_of_failed_fetches_are_counted_and_not_their_pods() {
        let (clock, hand) = Clock::manual();
        for (other, is_one) in [("shop", true), ("pay", false)] {
            let tasks = [("shop", progress(1, 0)), (other, progress(1, 0)), ("idle", progress(0, 0))];
            let tasks = tasks.map(|(name, progress)| task(CloudName::Aws, name, progress, true)).into();
            assert_eq!(run(tasks, &clock).await.unwrap_err()[0].is_of_one_namespace(), is_one);
        }
        // The fetches of the last pod do not begin.
        for (last, is_one) in [(progress(1, 0), false), (progress(0, 0), true)] {
            let mut tasks: Vec<_> =
                (0..MOST_AT_ONCE).map(|_| task(CloudName::Aws, "shop", silent(), false)).collect();
            tasks.push(task(CloudName::Aws, "pay", last, true));
            let failed = run_until_the_limit(tasks, &clock, &hand).await;
            assert_eq!((failed.progress.begun, failed.is_of_one_namespace()), (MOST_AT_ONCE, is_one));
        }
    }

    #[tokio::test]
    async fn a_configuration_is_refused_if_the_cloud_does_not_respond() {
        let (clock, hand) = Clock::manual();
        let tasks = vec![task(CloudName::Google, "shop", silent(), false)];
        let failed = run_until_the_limit(tasks, &clock, &hand).await;
        assert!(failed.in_full().ends_with("none ended within 10 s"));
    }

    fn silent() -> RefetchProgress {
        RefetchProgress { begun: 1, ..RefetchProgress::default() }
    }

    async fn run_until_the_limit(tasks: Vec<RefetchTask>, clock: &Clock, hand: &ManualClock) -> FailedCloud {
        let mut running = Box::pin(run(tasks, clock));
        tokio::select! {
            biased;
            _ = &mut running => panic!("the time has not passed"),
            () = tokio::task::yield_now() => {}
        }
        hand.advance(TIME_LIMIT);
        running.await.unwrap_err().remove(0)
    }
}
