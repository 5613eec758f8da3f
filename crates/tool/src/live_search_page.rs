//! `--live-page` of a search by `find` or `isolate`: the offline page of the current result, a line with the current activity,
//! and a button that stops the search.
//!
//! [`SearchPage`] hands updates to the thread of the page without waiting. Each update is complete, so that the next one makes up
//! for a dropped one. Updates come with the steps of a search, which take at least a second. [`SearchPageContent`] lives in that
//! thread and does the expensive work, the drawing. The [`SearchPageReport`] knows the picture of a result. This module knows
//! nothing of searches.

use std::cell::Cell;
use std::time::Duration;

use seawall_load::clock::{Nanos, RunClock};
use serde::Serialize;

use crate::live_page::{PageContent, PageFeed, PageServer};

/// A report of a search that can be shown as a page.
pub(crate) trait SearchPageReport: Send + 'static {
    /// Returns the offline page, with a note at its top for a running search.
    ///
    /// # Errors
    /// None is known: all content can be written.
    fn offline_page(&self, note: Option<&str>) -> anyhow::Result<String>;

    /// Returns the live page, which receives updates.
    ///
    /// # Errors
    /// None is known, as for [`Self::offline_page`].
    fn live_page(&self, live: SearchStatus) -> anyhow::Result<String>;

    /// Returns the update for an open live page, on one line.
    ///
    /// # Errors
    /// None is known, as for [`Self::offline_page`].
    fn live_event(&self, live: SearchStatus) -> anyhow::Result<String>;
}

/// Describes the current activity, given the time since its start.
pub(crate) type ActivityFormatter = Box<dyn Fn(Duration) -> String + Send>;

/// The status of a search.
#[derive(Debug, Serialize)]
pub(crate) struct SearchStatus {
    /// running, ending or over.
    state: &'static str,
    /// The current activity; empty if the search is over.
    doing: String,
    /// The offline page of a finished search, embedded because the server of the page has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

impl SearchStatus {
    #[cfg(test)]
    pub(crate) fn for_test(state: &'static str) -> Self {
        Self { state, doing: "this".to_owned(), file: None }
    }

    /// Returns true if the search is running.
    pub(crate) fn is_running(&self) -> bool {
        self.file.is_none()
    }
}

/// A search that is being shown; dropping it ends the page.
pub(crate) struct SearchPage<A> {
    feed: PageFeed<SearchPageUpdate<A>>,
    /// The report that the page has not received yet.
    so_far: Option<A>,
}

impl<A: SearchPageReport> SearchPage<A> {
    /// Serves the page of a search with this report, and prints its link.
    ///
    /// # Errors
    /// As [`PageServer::start`].
    pub(crate) fn start(site: PageServer, known: A, stop: Box<dyn Fn() + Send>) -> anyhow::Result<Self> {
        Ok(Self { feed: site.start(SearchPageContent::new(known, stop))?, so_far: None })
    }

    /// Sets the report to show with the next activity.
    pub(crate) fn set_interim_report(&mut self, so_far: A) {
        self.so_far = Some(so_far);
    }

    /// Shows the next activity, if the channel has room.
    pub(crate) fn show_activity(&mut self, doing: ActivityFormatter) {
        if let Err(SearchPageUpdate::Step(_, so_far)) =
            self.feed.try_send(SearchPageUpdate::Step(doing, self.so_far.take()))
        {
            self.so_far = so_far;
        }
    }

    /// Shows the final report; an open page has a moment to receive it.
    pub(crate) fn end(self, answer: A) {
        self.feed.send_last(SearchPageUpdate::Finished(answer));
    }
}

/// An update that the thread of the page receives.
pub(crate) enum SearchPageUpdate<A> {
    /// The current activity, and the report if there is a newer one.
    Step(ActivityFormatter, Option<A>),
    /// The final report.
    Finished(A),
}

/// A search as its page shows it.
struct SearchPageContent<A> {
    known: A,
    doing: ActivityFormatter,
    /// The start of the current activity.
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
