//! The one writer: takes what the watches tell, keeps the index, publishes snapshots.
//!
//! Events that wait together become one snapshot, so a storm costs one rebuild for many events. Reading a ServiceAccount
//! for the first time is done by small tasks beside it, so that a slow answer holds up no pod.

use std::sync::Arc;
use std::time::Duration;

use kube::api::GetParams;
use seawall_core::Clock;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tracing::{debug, info};

use crate::Shared;
use crate::account::Account;
use crate::failure::{Failure, Pauses};
use crate::index::{Fetch, Index};
use crate::object::{AccountObject, PodObject};
use crate::watch::{Change, Link};

/// What the writer is told.
#[derive(Debug)]
pub(crate) enum Update {
    Pods(Change<PodObject>),
    Accounts(Change<AccountObject>),
    Fetched(Fetch, Account),
}

/// Updates that wait for the writer. When it is full, the watches wait and TCP slows the API server down.
pub(crate) const QUEUE: usize = 256;

/// ServiceAccounts that are read at once.
const READING: usize = 4;

/// A wait without end, for "nothing is due".
const FAR: Duration = Duration::from_secs(3600);

pub(crate) struct Writer {
    index: Index,
    link: Link,
    shared: Arc<Shared>,
    updates: mpsc::Receiver<Update>,
    answers: mpsc::Sender<Update>,
    readers: JoinSet<()>,
    permits: Arc<Semaphore>,
}

impl Writer {
    pub(crate) fn new(link: Link, shared: Arc<Shared>) -> (Self, mpsc::Sender<Update>) {
        let (sender, updates) = mpsc::channel(QUEUE);
        let writer = Self {
            index: Index::default(),
            link,
            shared,
            updates,
            answers: sender.clone(),
            readers: JoinSet::new(),
            permits: Arc::new(Semaphore::new(READING)),
        };
        (writer, sender)
    }

    /// Runs for ever; it ends by being dropped.
    pub(crate) async fn run(mut self) {
        loop {
            self.wait().await;
            while let Ok(update) = self.updates.try_recv() {
                self.apply(update);
            }
            self.publish();
            self.read_accounts();
        }
    }

    /// Until there is an update (which is applied) or a pod's end has passed.
    async fn wait(&mut self) {
        let due = self.link.clock.now() + until_next_end(&self.index, &self.link.clock);
        tokio::select! {
            Some(update) = self.updates.recv() => self.apply(update),
            () = self.link.clock.sleep_until(due) => {}
        }
    }

    fn apply(&mut self, update: Update) {
        match update {
            Update::Pods(Change::Started(pods)) => self.index.listed(pods),
            Update::Pods(Change::Applied(pod)) => self.index.applied(&pod),
            Update::Pods(Change::Deleted(pod)) => self.index.deleted(&pod),
            Update::Accounts(Change::Started(_)) => self.index.accounts_positioned(),
            Update::Accounts(Change::Applied(object)) => {
                self.index.account_told(&object, &Account::of(&object.metadata.annotations));
            }
            Update::Accounts(Change::Deleted(object)) => self.index.account_told(&object, &Account::Missing),
            Update::Fetched(fetch, account) => self.index.account_fetched(&fetch, &account),
        }
    }

    fn publish(&mut self) {
        let snapshot = self.index.snapshot(self.link.clock.wall());
        self.shared.publish(snapshot);
    }

    fn read_accounts(&mut self) {
        while self.readers.try_join_next().is_some() {}
        for fetch in self.index.fetches() {
            let (link, permits, answers) = (self.link.clone(), self.permits.clone(), self.answers.clone());
            self.readers.spawn(async move {
                if let Some(account) = read_until_known(&link, &permits, &fetch).await {
                    let _ = answers.send(Update::Fetched(fetch, account)).await;
                }
            });
        }
    }
}

/// A second more than needed, so that the wall clock has passed it for certain.
fn until_next_end(index: &Index, clock: &Clock) -> Duration {
    let now = clock.wall();
    let left = index.next_end(now).and_then(|end| end.duration_since(now).ok());
    left.map_or(FAR, |left| (left + Duration::from_secs(1)).min(FAR))
}

/// What the ServiceAccount says, or that there is none; `None` when nobody wants to know any more.
async fn read_until_known(link: &Link, permits: &Semaphore, fetch: &Fetch) -> Option<Account> {
    let mut pauses = Pauses::new(&link.patience);
    loop {
        let permit = permits.acquire().await.ok()?;
        fetch.ticket.upgrade()?;
        let failure = match read(link, fetch).await {
            Ok(object) => return Some(Account::of(&object.metadata.annotations)),
            Err(Failure::NotFound { .. }) => return Some(Account::Missing),
            Err(failure) => failure,
        };
        drop(permit);
        info!(account = %fetch.account, reason = %failure, "cannot read a ServiceAccount");
        link.clock.sleep(pauses.after(&failure)).await;
    }
}

async fn read(link: &Link, fetch: &Fetch) -> Result<AccountObject, Failure> {
    debug!(account = %fetch.account, "reading a ServiceAccount");
    let path = format!("/api/v1/namespaces/{}/serviceaccounts", fetch.account.namespace);
    let request = kube::api::Request::new(path).get_metadata(&fetch.account.name, &GetParams::default());
    link.client.call(request, link.patience.answer).await
}
