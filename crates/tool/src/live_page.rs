//! `--live-page`: shows a running attack or search as a page in the browser, to users of this machine who have its link.
//!
//! This module knows HTTP and access control. Its [`PageContent`] decides what the page shows and what the buttons do.
//! [`access_control`] decides about requests with pure functions, [`server`] answers the requests that it admits, and [`events`]
//! is the stream of one page. The page has its own thread and runtime. The measuring thread hands updates over without waiting
//! ([`PageFeed`]), and shares nothing else with the page.

mod access_control;
mod connection_limit;
mod events;
mod server;

use std::io::{Write as _, stderr};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;
use std::thread::JoinHandle;

use anyhow::Context as _;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use self::access_control::{PageAuth, PageToken};

/// The content of a page and the actions of its buttons. It lives in the thread of the page and never sees a request.
pub(crate) trait PageContent: Send + 'static {
    /// An update during the run.
    type News: Send + 'static;

    /// Takes an update.
    fn update(&mut self, news: Self::News);

    /// Returns true if the content will not change any more.
    fn is_final(&self) -> bool;

    /// Returns the current page.
    ///
    /// # Errors
    /// None is known: all content can be written.
    fn page(&self) -> anyhow::Result<String>;

    /// Returns the data of [`Self::page`] on one line, for an open page.
    ///
    /// # Errors
    /// None is known, as for [`Self::page`].
    fn event(&self) -> anyhow::Result<String>;

    /// Returns the page as an offline file without buttons; `None` while there is nothing to report.
    ///
    /// # Errors
    /// None is known, as for [`Self::page`].
    fn report(&self) -> anyhow::Result<Option<String>>;

    /// Runs the command on this line and returns the response.
    fn run_command(&self, line: &str) -> String;
}

/// An address that only this machine reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoopbackAddress(SocketAddr);

impl FromStr for LoopbackAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        let named = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address = named.or_else(|| text.parse().ok()).ok_or_else(|| {
            format!("{text:?} is not an address with a port: expected one such as 127.0.0.1:0")
        })?;
        if !address.ip().is_loopback() {
            return Err(format!(
                "other machines can reach {address}, and the page's link controls the run: expected a loopback address \
                 such as 127.0.0.1:0 (for remote access use ssh -L)"
            ));
        }
        Ok(Self(address))
    }
}

/// A bound address that does not answer yet.
#[derive(Debug)]
pub(crate) struct PageServer {
    listener: TcpListener,
    door: PageAuth,
}

impl PageServer {
    /// Binds the address, and draws the token of the link.
    ///
    /// # Errors
    /// The address, and what is wrong with it.
    pub(crate) fn bind(LoopbackAddress(address): LoopbackAddress) -> anyhow::Result<Self> {
        let cannot = || format!("--live-page: cannot listen on {address}");
        let listener = TcpListener::bind(address).with_context(cannot)?;
        listener.set_nonblocking(true).with_context(cannot)?;
        let door = PageAuth::new(listener.local_addr().with_context(cannot)?, PageToken::generate()?);
        Ok(Self { listener, door })
    }

    /// Returns the link to the page, with its token.
    #[cfg(test)]
    fn url(&self) -> String {
        self.door.url()
    }

    /// Serves the page, and prints its link.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn start<C: PageContent>(self, content: C) -> anyhow::Result<PageFeed<C::News>> {
        let url = self.door.url();
        let feed = self.serve(content)?;
        // Standard error may be closed; the run goes on.
        let _ = writeln!(stderr(), "page: {url}");
        Ok(feed)
    }

    /// Serves until the feed ends, and a moment longer if a page is open that has not seen the end.
    fn serve<C: PageContent>(self, content: C) -> anyhow::Result<PageFeed<C::News>> {
        let (news, feed) = channel(NEWS);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot serve --live-page")?;
        let serve = move || {
            // The senders come first; a page a moment late is none the worse.
            let _ = rustix::process::nice(10);
            tokio::task::LocalSet::new().block_on(&runtime, self.answer(content, feed));
        };
        let thread = std::thread::Builder::new().name("page".into()).spawn(serve);
        Ok(PageFeed::new(news, Some(thread.context("cannot serve --live-page")?)))
    }

    async fn answer<C: PageContent>(self, content: C, feed: Receiver<C::News>) {
        let Self { listener, door } = self;
        // Fails only where there is no runtime, and nobody is answered then.
        if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
            server::run(listener, door, content, feed).await;
        }
    }
}

/// The largest number of updates that wait for the thread of the page.
const NEWS: usize = 8;

/// The sender of updates to the page. Dropping it ends the page, and waits for its end.
#[derive(Debug)]
pub(crate) struct PageFeed<N> {
    news: Option<Sender<N>>,
    thread: Option<JoinHandle<()>>,
}

impl<N> PageFeed<N> {
    /// Makes a feed for this channel; `thread` is awaited at the end.
    pub(crate) fn new(news: Sender<N>, thread: Option<JoinHandle<()>>) -> Self {
        Self { news: Some(news), thread }
    }

    /// Sends an update without waiting; returns it if the channel is full.
    ///
    /// # Errors
    /// The update that was not sent. A page that has ended takes every update.
    pub(crate) fn try_send(&self, news: N) -> Result<(), N> {
        match self.news.as_ref().map(|feed| feed.try_send(news)) {
            Some(Err(TrySendError::Full(news))) => Err(news),
            _ => Ok(()),
        }
    }

    /// Sends the last update, and waits until there is room: nothing is measured any more.
    pub(crate) fn send_last(self, news: N) {
        // A page whose thread is gone has said so.
        let _ = self.news.as_ref().map(|feed| feed.blocking_send(news));
    }
}

impl<N> Drop for PageFeed<N> {
    fn drop(&mut self) {
        self.news = None;
        // A thread that panicked has said so.
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_served_to_this_machine_alone() {
        for (text, address) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.8.9.1:80", "127.8.9.1:80"),
            ("[::1]:9000", "[::1]:9000"),
            ("localhost:9000", "127.0.0.1:9000"),
        ] {
            assert_eq!(text.parse(), Ok(LoopbackAddress(address.parse().unwrap())), "{text}");
        }
        for (text, why) in [
            ("0.0.0.0:0", "other machines can reach"),
            ("[::]:80", "other machines can reach"),
            ("[::ffff:127.0.0.1]:80", "other machines can reach"),
            ("10.0.0.1:80", "other machines can reach"),
            ("127.0.0.1", "is not an address with a port"),
            (":8080", "is not an address with a port"),
            ("localhost", "is not an address with a port"),
            ("localhost.example:80", "is not an address with a port"),
        ] {
            let refused = text.parse::<LoopbackAddress>().unwrap_err();
            assert!(refused.contains(why) && refused.contains("127.0.0.1:0"), "{text}: {refused}");
        }
    }

    #[test]
    fn an_address_in_use_is_an_error_that_names_it() {
        let taken = PageServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = taken.listener.local_addr().unwrap();
        let refused = format!("{:#}", PageServer::bind(LoopbackAddress(address)).unwrap_err());
        assert!(refused.contains(&address.to_string()), "{refused}");
    }
}
