//! One list-and-watch of one kind: keeps telling what changes, for ever.
//!
//! Each kind has its own task, connection and back-off, so that one that is stuck or forbidden holds up no other. kube's
//! own `runtime::watcher` is not used because it swallows bookmarks, and bookmarks are how staleness is measured.
//!
//! The rules, from the Kubernetes documentation "Efficient detection of changes":
//! - begin with a consistent list, then watch from its version; each event and bookmark moves the position;
//! - a broken connection resumes from the position, an expired position (410) begins anew;
//! - so does any other error *event*: whatever the server could not tell us, a list can;
//! - a watch that is silent for longer than bookmarks ever are is dead, whatever TCP thinks of it.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use http::Request;
use kube::api::{ListParams, WatchEvent, WatchParams};
use seawall_core::Clock;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::client::Client;
use crate::config::Patience;
use crate::failure::{Failure, Pauses};
use crate::object::{Page, Versioned};
use crate::pulse::Pulse;

/// What a watch tells.
#[derive(Debug)]
pub(crate) enum Change<T> {
    /// It begins, or begins anew: these are all there are. Empty for [`Start::Position`].
    Started(Vec<T>),
    Applied(T),
    Deleted(T),
}

/// How a watch begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    /// With everything there is.
    List,
    /// With nothing: only the collection's present version is asked for.
    Position,
}

/// What to watch.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The collection's path.
    pub(crate) path: &'static str,
    /// The field selector; everything if `None`.
    pub(crate) fields: Option<String>,
    /// Whether metadata is enough.
    pub(crate) metadata_only: bool,
    pub(crate) start: Start,
}

/// Objects in a page of a list. A page is held in memory as text and as objects; pods are some 10 KiB each.
const PAGE: u32 = 100;

/// How long the server is asked to keep a watch open, in seconds; drawn from this range so that the nodes of a cluster do
/// not come back together.
const OPEN: std::ops::Range<u32> = 240..290;

/// One watch, running.
pub(crate) struct Watch<T, U> {
    source: Source,
    link: Link,
    pulse: Arc<Pulse>,
    updates: mpsc::Sender<U>,
    wrap: fn(Change<T>) -> U,
    /// From where to go on; `None` begins anew.
    position: Option<String>,
    pauses: Pauses,
}

/// Whom to ask, and how patiently.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) patience: Patience,
}

/// Why a round ended early.
enum Stop {
    /// Go on from the position.
    Failed(Failure),
    /// The position is no good.
    Lost(Failure),
    /// Nobody listens any more.
    Closed,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        match failure {
            // An event that cannot be read would be sent again from the same position.
            Failure::Expired | Failure::Unreadable(_) => Self::Lost(failure),
            _ => Self::Failed(failure),
        }
    }
}

impl<T: Versioned + DeserializeOwned + Clone, U> Watch<T, U> {
    pub(crate) fn new(
        source: Source,
        link: Link,
        pulse: Arc<Pulse>,
        updates: mpsc::Sender<U>,
        wrap: fn(Change<T>) -> U,
    ) -> Self {
        let pauses = Pauses::new(&link.patience);
        Self { source, link, pulse, updates, wrap, position: None, pauses }
    }

    /// Runs until nobody listens any more.
    pub(crate) async fn run(mut self) {
        loop {
            let round = match self.position.clone() {
                None => self.begin().await,
                Some(version) => self.follow(&version).await,
            };
            match round {
                Ok(()) => {}
                Err(Stop::Closed) => return,
                Err(Stop::Failed(failure)) => self.pause(&failure).await,
                Err(Stop::Lost(failure)) => {
                    self.position = None;
                    self.pause(&failure).await;
                }
            }
        }
    }

    /// Lists, or only asks for the position, and tells the result.
    async fn begin(&mut self) -> Result<(), Stop> {
        let (items, version) = match self.source.start {
            Start::List => self.list().await?,
            Start::Position => (Vec::new(), self.page(1, None).await?.metadata.resource_version),
        };
        self.pulse.listed();
        self.note_life();
        self.tell(Change::Started(items)).await?;
        self.position = Some(version);
        Ok(())
    }

    async fn list(&self) -> Result<(Vec<T>, String), Failure> {
        let mut items = Vec::new();
        let mut next = None;
        loop {
            let page = self.page(PAGE, next).await?;
            items.extend(page.items);
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok((items, page.metadata.resource_version));
            }
        }
    }

    async fn page(&self, limit: u32, next: Option<String>) -> Result<Page<T>, Failure> {
        let request = self.source.list(limit, next);
        self.link.client.call(request, self.link.patience.page).await
    }

    /// Watches from `version` until the stream ends, as it does every few minutes.
    async fn follow(&mut self, version: &str) -> Result<(), Stop> {
        let Link { client, patience, .. } = self.link.clone();
        let request = self.source.watch(version).map_err(|error| Failure::Unreadable(error.to_string()))?;
        let opening = client.kube().request_events::<T>(request);
        let stream = client.within(patience.answer, opening).await?.map_err(Failure::from)?;
        let mut events = pin!(stream);
        let mut told = false;
        while let Some(event) = client.within(patience.silence, events.next()).await? {
            self.take(event.map_err(Failure::from)?).await?;
            told = true;
        }
        // A stream that told something and ended is how watches end. One that told nothing is an outage in disguise.
        if told { Ok(()) } else { Err(Failure::Ended.into()) }
    }

    async fn take(&mut self, event: WatchEvent<T>) -> Result<(), Stop> {
        let (version, change) = match event {
            WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                (item.version().to_owned(), Some(Change::Applied(item)))
            }
            WatchEvent::Deleted(item) => (item.version().to_owned(), Some(Change::Deleted(item))),
            WatchEvent::Bookmark(bookmark) => (bookmark.metadata.resource_version, None),
            WatchEvent::Error(status) => return Err(Stop::Lost(Failure::of_status(&status))),
        };
        self.note_life();
        self.pauses.reset();
        if let Some(change) = change {
            self.tell(change).await?;
        }
        self.position = Some(version);
        Ok(())
    }

    async fn tell(&self, change: Change<T>) -> Result<(), Stop> {
        self.updates.send((self.wrap)(change)).await.map_err(|_| Stop::Closed)
    }

    fn note_life(&self) {
        if self.pulse.heard(self.link.clock.now()) {
            info!(watch = self.pulse.kind(), "the watch runs again");
        }
    }

    async fn pause(&mut self, failure: &Failure) {
        let pause = self.pauses.after(failure);
        if self.pulse.failed(failure) {
            warn!(watch = self.pulse.kind(), reason = %failure, "the watch is interrupted");
        } else {
            debug!(watch = self.pulse.kind(), reason = %failure, ?pause, "the watch is still interrupted");
        }
        self.link.clock.sleep(pause).await;
    }
}

type Built = Result<Request<Vec<u8>>, kube::core::request::Error>;

impl Source {
    fn list(&self, limit: u32, next: Option<String>) -> Built {
        let params = ListParams {
            field_selector: self.fields.clone(),
            limit: Some(limit),
            continue_token: next,
            ..ListParams::default()
        };
        let request = kube::api::Request::new(self.path);
        if self.metadata_only { request.list_metadata(&params) } else { request.list(&params) }
    }

    fn watch(&self, version: &str) -> Built {
        let params = WatchParams {
            field_selector: self.fields.clone(),
            timeout: Some(fastrand::u32(OPEN)),
            ..WatchParams::default()
        };
        let request = kube::api::Request::new(self.path);
        if self.metadata_only {
            request.watch_metadata(&params, version)
        } else {
            request.watch(&params, version)
        }
    }
}
