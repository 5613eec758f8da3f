//! `--live-page`: a run as a page in the browser while it goes on, served to whoever on this machine has its link.
//!
//! Knows HTTP and who may ask; what is shown and what the buttons do is its [`PageContent`]'s. [`access_control`] decides about requests by pure
//! functions, [`server`] answers those that it lets in, [`events`] is the stream of one page. It has a thread of its own with a
//! runtime of its own: whoever measures hands news over without waiting ([`PageFeed`]), and shares nothing else with it.

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

/// What a page shows, and what its buttons do. Lives in the page's thread and never hears of a request.
pub(crate) trait PageContent: Send + 'static {
    /// What it is told while the run goes on.
    type News: Send + 'static;

    /// Takes news.
    fn update(&mut self, news: Self::News);

    /// Whether it will not change any more.
    fn is_final(&self) -> bool;

    /// The page as it stands.
    ///
    /// # Errors
    /// None that is known: everything in it has a form.
    fn page(&self) -> anyhow::Result<String>;

    /// What a page that is open is told: the data of [`Self::page`], on one line.
    ///
    /// # Errors
    /// As there.
    fn event(&self) -> anyhow::Result<String>;

    /// The same as a file that works offline and steers nothing; none while there is nothing to report.
    ///
    /// # Errors
    /// As there.
    fn report(&self) -> anyhow::Result<Option<String>>;

    /// Does what a line says, and answers with one.
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

/// A bound address at which nobody is answered yet.
#[derive(Debug)]
pub(crate) struct PageServer {
    listener: TcpListener,
    door: PageAuth,
}

impl PageServer {
    /// Binds the address, and draws what the link has to hold.
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

    /// The link to the page, with what lets one in.
    #[cfg(test)]
    fn url(&self) -> String {
        self.door.url()
    }

    /// Serves the page, and says where.
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

/// News on their way to the page's thread.
const NEWS: usize = 8;

/// Where news of the run go. Dropping it ends the page, and waits for that.
#[derive(Debug)]
pub(crate) struct PageFeed<N> {
    news: Option<Sender<N>>,
    thread: Option<JoinHandle<()>>,
}

impl<N> PageFeed<N> {
    /// Of who hears the news, in that thread if there is one to wait for.
    pub(crate) fn new(news: Sender<N>, thread: Option<JoinHandle<()>>) -> Self {
        Self { news: Some(news), thread }
    }

    /// Hands news over without waiting; gives them back if there is no room for them now.
    ///
    /// # Errors
    /// What was not taken. A page that is gone takes everything.
    pub(crate) fn try_send(&self, news: N) -> Result<(), N> {
        match self.news.as_ref().map(|feed| feed.try_send(news)) {
            Some(Err(TrySendError::Full(news))) => Err(news),
            _ => Ok(()),
        }
    }

    /// Hands the last news over, once there is room: nothing is measured any more.
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
