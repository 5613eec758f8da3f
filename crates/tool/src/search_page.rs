//! `--live-page` of a search, of `find` or `isolate`: the offline page of what is known so far, one line that says what is being done, and one button that ends it.
//!
//! [`SearchPage`] is where news go: handed to the page's thread without waiting. Each says everything, so that one for which there is no room is made up
//! for by the next; they come with the steps of a search, which take a second or more. [`SearchPageContent`] lives in that thread and does what is dear, the
//! drawing. What a picture of an answer is its [`SearchPageReport`] knows; who searches, and how, nobody here.

use std::cell::Cell;
use std::time::Duration;

use seawall_load::clock::{Nanos, RunClock};
use serde::Serialize;

use crate::live_page::{PageContent, PageFeed, PageServer};

/// What is known, as a page.
pub(crate) trait SearchPageReport: Send + 'static {
    /// The page that works offline; what is to be said first, where the search goes on.
    ///
    /// # Errors
    /// None that is known: everything in it has a form.
    fn offline_page(&self, note: Option<&str>) -> anyhow::Result<String>;

    /// The page that is told what is new.
    ///
    /// # Errors
    /// As there.
    fn live_page(&self, live: SearchStatus) -> anyhow::Result<String>;

    /// What it is told, on one line.
    ///
    /// # Errors
    /// As there.
    fn live_event(&self, live: SearchStatus) -> anyhow::Result<String>;
}

/// What is being done, so long after it began.
pub(crate) type ActivityText = Box<dyn Fn(Duration) -> String + Send>;

/// How a search stands.
#[derive(Debug, Serialize)]
pub(crate) struct SearchStatus {
    /// running, ending or over.
    state: &'static str,
    /// What is being done; nothing in a search that is over.
    doing: String,
    /// Of a search that is over, the page that works offline: there is nobody left to ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

impl SearchStatus {
    #[cfg(test)]
    pub(crate) fn with_state(state: &'static str) -> Self {
        Self { state, doing: "this".to_owned(), file: None }
    }

    /// Whether the search goes on.
    pub(crate) fn is_running(&self) -> bool {
        self.file.is_none()
    }
}

/// A search that is being shown; dropping it ends the page.
pub(crate) struct SearchPage<A> {
    feed: PageFeed<SearchPageUpdate<A>>,
    /// What the page was not told yet.
    so_far: Option<A>,
}

impl<A: SearchPageReport> SearchPage<A> {
    /// Serves the page of a search of which this is known, and says where.
    ///
    /// # Errors
    /// As [`PageServer::start`].
    pub(crate) fn start(site: PageServer, known: A, stop: Box<dyn Fn() + Send>) -> anyhow::Result<Self> {
        Ok(Self { feed: site.start(SearchPageContent::new(known, stop))?, so_far: None })
    }

    /// Shows this with what is done next.
    pub(crate) fn set_interim_report(&mut self, so_far: A) {
        self.so_far = Some(so_far);
    }

    /// Shows what is done next, if there is room.
    pub(crate) fn show_activity(&mut self, doing: ActivityText) {
        if let Err(SearchPageUpdate::Step(_, so_far)) =
            self.feed.try_send(SearchPageUpdate::Step(doing, self.so_far.take()))
        {
            self.so_far = so_far;
        }
    }

    /// Shows what it came to; an open page has a moment to hear that.
    pub(crate) fn end(self, answer: A) {
        self.feed.send_last(SearchPageUpdate::Finished(answer));
    }
}

/// What the page's thread is told.
pub(crate) enum SearchPageUpdate<A> {
    /// What is done now, and what is known where that is more than before.
    Step(ActivityText, Option<A>),
    /// What it came to.
    Finished(A),
}

/// A search as its page shows it.
struct SearchPageContent<A> {
    known: A,
    doing: ActivityText,
    /// When that began.
    since: Nanos,
    clock: RunClock,
    stop: Box<dyn Fn() + Send>,
    is_ending: Cell<bool>,
    is_over: bool,
}

impl<A: SearchPageReport> SearchPageContent<A> {
    fn new(known: A, stop: Box<dyn Fn() + Send>) -> Self {
        Self {
            known,
            doing: Box::new(|_| "beginning".to_owned()),
            since: 0,
            clock: RunClock::start(),
            stop,
            is_ending: Cell::new(false),
            is_over: false,
        }
    }

    fn live(&self) -> anyhow::Result<SearchStatus> {
        if self.is_over {
            return Ok(SearchStatus {
                state: "over",
                doing: String::new(),
                file: Some(self.known.offline_page(None)?),
            });
        }
        let since = Duration::from_nanos(self.clock.now().saturating_sub(self.since));
        let state = if self.is_ending.get() { "ending" } else { "running" };
        Ok(SearchStatus { state, doing: (self.doing)(since), file: None })
    }
}

impl<A: SearchPageReport> PageContent for SearchPageContent<A> {
    type News = SearchPageUpdate<A>;

    fn update(&mut self, news: SearchPageUpdate<A>) {
        match news {
            SearchPageUpdate::Step(doing, so_far) => {
                (self.doing, self.since) = (doing, self.clock.now());
                if let Some(so_far) = so_far {
                    self.known = so_far;
                }
            }
            SearchPageUpdate::Finished(answer) => (self.known, self.is_over) = (answer, true),
        }
    }

    fn is_final(&self) -> bool {
        self.is_over
    }

    fn page(&self) -> anyhow::Result<String> {
        self.known.live_page(self.live()?)
    }

    fn event(&self) -> anyhow::Result<String> {
        self.known.live_event(self.live()?)
    }

    fn report(&self) -> anyhow::Result<Option<String>> {
        let note = (!self.is_over).then_some("Saved during the run: an interim result.");
        self.known.offline_page(note).map(Some)
    }

    fn run_command(&self, line: &str) -> String {
        match line.trim() {
            "stop" if self.is_over => "error: the search is over".to_owned(),
            "stop" => {
                (self.stop)();
                self.is_ending.set(true);
                "ok stop".to_owned()
            }
            other => format!("error: {other:?} is not a command: expected stop"),
        }
    }
}

#[cfg(test)]
mod tests;
