//! Reads all pages of a list of objects. Only commands use this module; a serving agent watches instead.

use seawall_kube::request::{ObjectRepresentation, build_list_by_labels};
use seawall_kube::{KubeError, TimedKubeClient};
use serde::de::DeserializeOwned;

use crate::object::ListPage;

/// Returns the objects at `path` that have these labels, from all pages. A page has at most `page` objects, and the time limit of the client.
pub(crate) async fn list_all<T: DeserializeOwned>(
    link: &TimedKubeClient,
    path: &str,
    form: ObjectRepresentation,
    labels: Option<&str>,
    page: u32,
) -> Result<Vec<T>, KubeError> {
    let (mut all, mut next) = (Vec::new(), None);
    loop {
        let request = build_list_by_labels(path, form, labels, page, next.as_deref());
        let page: ListPage<T> = link.client.call(request, link.timeouts.list_page).await?;
        all.extend(page.items);
        next = page.metadata.continue_token.filter(|next| !next.is_empty());
        if next.is_none() {
            return Ok(all);
        }
    }
}
