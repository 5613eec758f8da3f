//! Lists namespaces that do not enforce Pod Security's baseline. Whoever can create a pod there can put it on the node's network, and such a
//! pod has the node's identity. Only the command `status` uses this module; a serving agent never does.

use std::collections::BTreeSet;
use std::time::Duration;

use seawall_core::Clock;
use seawall_kube::request::ObjectRepresentation;
use seawall_kube::{ClientConfigSource, KubeConnector, KubeError, KubeTimeouts, TimedKubeClient};

use crate::ClientConfigError;
use crate::object::PartialObject;
use crate::paged_list::list_all;

/// Selects namespaces without the label, too. Both levels forbid hostNetwork. Source: Kubernetes documentation, "Pod Security Standards" and
/// "Pod Security Admission".
const WITHOUT_BASELINE: &str = "pod-security.kubernetes.io/enforce notin (baseline,restricted)";

/// The maximum number of namespaces in a page of the list.
///
/// The command runs within the memory limit of the agent's container, and a namespace can have 256 KiB of annotations.
const PAGE: u32 = 50;

/// The time limit for a page. Who asks for the status waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The reason why the namespaces are unknown.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceListError {
    /// The kubeconfig or the in-cluster files cannot be read.
    #[error(transparent)]
    ClientConfig(#[from] ClientConfigError),
    /// The API server does not list namespaces. The agent's role has this permission if pods on the node's network keep the real server.
    #[error("the API server does not list namespaces: {0}")]
    Refused(#[from] KubeError),
}

/// Returns the names of the namespaces whose label does not enforce the baseline.
///
/// An API server can also enforce the baseline for all namespaces by its admission configuration, which no label shows.
///
/// # Errors
/// See [`NamespaceListError`].
pub async fn namespaces_without_baseline(
    access: ClientConfigSource,
    clock: Clock,
) -> Result<BTreeSet<String>, NamespaceListError> {
    let timeouts = KubeTimeouts { list_page: PATIENCE, ..KubeTimeouts::default() };
    let client = KubeConnector::read(access, crate::provider())?.new_client(&timeouts, clock.clone())?;
    Ok(list(&TimedKubeClient { client, clock, timeouts }).await?)
}

async fn list(link: &TimedKubeClient) -> Result<BTreeSet<String>, KubeError> {
    let form = ObjectRepresentation::Metadata;
    let all =
        list_all::<PartialObject>(link, "/api/v1/namespaces", form, Some(WITHOUT_BASELINE), PAGE).await?;
    Ok(all.into_iter().map(|namespace| namespace.metadata.name).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake_api_server::client_of_fake_server;

    #[tokio::test]
    async fn all_pages_are_read_and_a_refusal_is_an_error() {
        let (link, mut asked) = client_of_fake_server(Clock::system());
        let task = tokio::spawn(async move { (list(&link).await, list(&link).await) });
        let page = |name: &str, next: &str| json!({"metadata": {"continue": next}, "items": [{"metadata": {"name": name}}]});
        let first = asked.recv().await.unwrap();
        assert_eq!(
            first.method_and_uri,
            "GET /api/v1/namespaces?labelSelector=pod-security.kubernetes.io%2Fenforce+notin+%28baseline%2Crestricted%29&limit=50"
        );
        first.answer(200, &page("kube-system", "more"));
        let second = asked.recv().await.unwrap();
        assert!(second.method_and_uri.ends_with("&continue=more"), "{}", second.method_and_uri);
        second.answer(200, &page("shop", ""));
        asked.recv().await.unwrap().answer(403, &json!({"kind": "Status", "code": 403, "message": "no"}));
        let (names, refused) = task.await.unwrap();
        assert!(names.unwrap().into_iter().eq(["kube-system", "shop"]));
        assert!(refused.is_err());
    }
}
