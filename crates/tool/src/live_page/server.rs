//! Answers those whom the [`access_control`](super::access_control) lets in, within bounds: connections, open pages, heads, bodies, and the time that
//! any of them may take.
//!
//! Everything here runs in one thread, so the content stands in a `RefCell` that is never borrowed across a wait. No connection is
//! kept for another request, but that of an open page lives as long as its reader takes what it is told.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::{Semaphore, watch};
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::PageContent;
use super::access_control::{PageAuth, PageRefusal, PageRoute};
use super::connection_limit::{PageConnectionLimit, PageConnectionPermit};
use super::events::{event_stream_channel, format_event};

/// Pages open at once; one more is told so.
const PAGES: usize = 8;

/// Connections at once: those of the pages, and what they ask beside. Strangers have what is left of them.
const CONNECTIONS: usize = 64;

/// For a head.
const HEAD: Duration = Duration::from_secs(3);

/// Longest head, in bytes: a link and what browsers add to it are a tenth of it.
const LONGEST_HEAD: usize = 16 << 10;

/// Longest command, in bytes: no command is a tenth of it.
const LONGEST_LINE: usize = 256;

/// For an answer to be taken; of a stream, for each of its events.
const LIFE: Duration = Duration::from_secs(10);

/// An open page hears something so often, be it nothing new: whoever is gone is noticed by that.
const BEAT: Duration = Duration::from_secs(5);

/// For open pages to hear the end. The program waits for no longer.
const GRACE: Duration = Duration::from_secs(2);

/// Serves until the feed has ended and no open page is left, or the grace is over.
pub(super) async fn run<C: PageContent>(
    listener: TcpListener,
    door: PageAuth,
    content: C,
    mut feed: Receiver<C::News>,
) {
    let server = Rc::new(Server {
        door,
        content: RefCell::new(content),
        news: watch::Sender::new(()),
        pages: Arc::new(Semaphore::new(PAGES)),
    });
    spawn_local(accept(listener, Rc::clone(&server)));
    while let Some(news) = feed.recv().await {
        server.content.borrow_mut().update(news);
        server.news.send_replace(());
    }
    // All places free: nobody has a page open.
    let _ = timeout(GRACE, server.pages.acquire_many(PAGES as u32)).await;
}

async fn accept<C: PageContent>(listener: TcpListener, server: Rc<Server<C>>) {
    let places = PageConnectionLimit::new(CONNECTIONS);
    loop {
        match listener.accept().await {
            // Without a place for it, it is closed.
            Ok((stream, _)) => {
                let life = PageConnectionDeadline::start();
                if let Some(place) = places.acquire(&life) {
                    spawn_local(connection(stream, Rc::clone(&server), life, place));
                    // Who made way goes before the next one comes.
                    yield_now().await;
                }
            }
            // Out of descriptors, most likely: the senders' connections have them. Some will be free again.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// One request and its answer.
async fn connection<C: PageContent>(
    stream: TcpStream,
    server: Rc<Server<C>>,
    life: PageConnectionDeadline,
    place: PageConnectionPermit,
) {
    let place = Rc::new(place);
    let mut end = life.0.subscribe();
    let service = service_fn(move |request| {
        let (server, life, place) = (Rc::clone(&server), life.clone(), Rc::clone(&place));
        async move { Ok::<_, Infallible>(server.answer(request, life, &place).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LONGEST_HEAD).keep_alive(false);
    tokio::select! {
        // Whoever breaks the protocol or goes away is their own affair.
        _ = http.serve_connection(TokioIo::new(stream), service) => {}
        () = wait_until_expired(&mut end) => {}
    }
}

/// Until when a connection lives.
#[derive(Debug, Clone)]
pub(super) struct PageConnectionDeadline(watch::Sender<Instant>);

impl PageConnectionDeadline {
    pub(super) fn start() -> Self {
        Self(watch::Sender::new(Instant::now() + LIFE))
    }

    pub(super) fn expire_now(&self) {
        self.0.send_replace(Instant::now());
    }

    #[cfg(test)]
    pub(super) fn is_expired(&self) -> bool {
        *self.0.borrow() <= Instant::now()
    }

    fn renew(&self) {
        self.0.send_replace(Instant::now() + LIFE);
    }
}

/// Waits for the end of a life that may be renewed meanwhile.
async fn wait_until_expired(end: &mut watch::Receiver<Instant>) {
    loop {
        let at = *end.borrow_and_update();
        if at <= Instant::now() {
            return;
        }
        sleep_until(at).await;
    }
}

type PageResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

struct Server<C> {
    door: PageAuth,
    content: RefCell<C>,
    /// Says that the content has changed.
    news: watch::Sender<()>,
    pages: Arc<Semaphore>,
}

impl<C: PageContent> Server<C> {
    async fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
        life: PageConnectionDeadline,
        place: &PageConnectionPermit,
    ) -> PageResponse {
        let way = self.door.authorize(&request);
        if way.is_ok() {
            place.mark_trusted();
        }
        match way {
            Err(refusal) => refused(refusal),
            Ok(PageRoute::Page) => full_response("text/html; charset=utf-8", self.content.borrow().page()),
            Ok(PageRoute::Report) => self.report(),
            Ok(PageRoute::Events) => self.events(life),
            Ok(PageRoute::Control) => self.control(request).await,
        }
    }

    fn report(&self) -> PageResponse {
        let report = match self.content.borrow().report() {
            Ok(None) => {
                return text_response(StatusCode::CONFLICT, "no measurements yet: try again after a second");
            }
            report => report.map(Option::unwrap_or_default),
        };
        let mut answer = full_response("text/html; charset=utf-8", report);
        let name = HeaderValue::from_static("attachment; filename=\"seawall-report.html\"");
        answer.headers_mut().insert(CONTENT_DISPOSITION, name);
        answer
    }

    fn events(self: Rc<Self>, life: PageConnectionDeadline) -> PageResponse {
        let Ok(place) = Arc::clone(&self.pages).try_acquire_owned() else {
            let text = format!("{PAGES} pages are open, which is the limit: close one");
            return text_response(StatusCode::SERVICE_UNAVAILABLE, &text);
        };
        let (sender, events) = event_stream_channel();
        spawn_local(async move {
            self.tell(&sender, &life).await;
            drop(place);
        });
        answer(StatusCode::OK, "text/event-stream", events.boxed_unsync())
    }

    /// Tells one page what is new until it is closed.
    async fn tell(&self, sender: &Sender<Bytes>, life: &PageConnectionDeadline) {
        let mut news = self.news.subscribe();
        loop {
            let (told, is_final) = (self.content.borrow().event(), self.content.borrow().is_final());
            let Ok(told) = told else { return };
            let event = format_event(if is_final { "end" } else { "run" }, &told);
            if sender.send(event).await.is_err() {
                return;
            }
            life.renew();
            if is_final {
                // The page closes it when it has it.
                return sender.closed().await;
            }
            tokio::select! {
                () = sender.closed() => return,
                _ = timeout(BEAT, news.changed()) => {}
            }
        }
    }

    async fn control(&self, request: Request<Incoming>) -> PageResponse {
        let Ok(body) = Limited::new(request.into_body(), LONGEST_LINE).collect().await else {
            let text = format!("error: the line is too long: expected at most {LONGEST_LINE} bytes");
            return text_response(StatusCode::PAYLOAD_TOO_LARGE, &text);
        };
        let told = self.content.borrow().run_command(&String::from_utf8_lossy(&body.to_bytes()));
        // Every open page shows what one of them did.
        self.news.send_replace(());
        text_response(
            if told.starts_with("ok ") { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY },
            &told,
        )
    }
}

fn refused(refusal: PageRefusal) -> PageResponse {
    let text = match refusal {
        PageRefusal::Forbidden => {
            "the link is incomplete: copy the whole link from the line of standard error that begins with \"page:\""
        }
        PageRefusal::NotFound => "unknown path: expected /, /events, /report.html or /control",
        PageRefusal::WrongMethod(_) => "wrong method",
    };
    let mut answer = text_response(refusal.status(), text);
    if let PageRefusal::WrongMethod(method) = refusal {
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(method));
    }
    answer
}

/// A line of text.
fn text_response(status: StatusCode, text: &str) -> PageResponse {
    answer(status, "text/plain; charset=utf-8", Full::from(format!("{text}\n")).boxed_unsync())
}

fn full_response(kind: &'static str, text: anyhow::Result<String>) -> PageResponse {
    match text {
        Ok(text) => answer(StatusCode::OK, kind, Full::from(text).boxed_unsync()),
        Err(error) => text_response(StatusCode::INTERNAL_SERVER_ERROR, &format!("error: {error:#}")),
    }
}

fn answer(status: StatusCode, kind: &'static str, body: UnsyncBoxBody<Bytes, Infallible>) -> PageResponse {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HARDENED {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    answer
}

/// Kept nowhere, framed by nobody, taken for nothing else, and the link told to nobody. What the page may load it says itself.
const HARDENED: [(&str, &str); 6] = [
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("content-security-policy", "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

#[cfg(test)]
mod tests;
