//! Fetches a page of metrics over plain HTTP with [`seawall_fetch`].
//!
//! Each window of load needs two fetches, on the thread that waits for the load. Names are looked up once, before any load. TLS
//! is not supported: servers that offer metrics only over TLS usually require a client certificate, and a port-forward avoids
//! both.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use seawall_fetch::{FetchError, FetchLimits, FetchRequest, FetchResponse, exchange};

use super::ServerSideClock;
use super::exposition::{ExpositionError, ExpositionFormat, MOST_BYTES, MetricsPage};

/// The time limit for a page, from the connection to its last byte. Prometheus waits 10 s. Here a load waits for the page, and a
/// slower page says little about one instant.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// The address of a page of metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsEndpoint {
    address: SocketAddr,
    host: String,
    target: String,
}

/// The reason why a URL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MetricsUrlError {
    /// The URL does not begin with `http://`.
    #[error(
        "{0}: expected an http:// URL; if the server offers its metrics only over TLS, use a local proxy that terminates TLS"
    )]
    Scheme(String),
    /// The URL has no host, contains a user name, or has an invalid target.
    #[error("{0} is not a URL: expected one such as http://127.0.0.1:9901/stats/prometheus")]
    Malformed(String),
    /// The host name has no address.
    #[error("{host} has no address: {reason}")]
    Lookup {
        /// The host and the port.
        host: String,
        /// The error of the system.
        reason: io::Error,
    },
}

/// The reason why there is no page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricsFetchError {
    /// The connection failed or broke.
    #[error("{0}")]
    Connection(String),
    /// The page was incomplete at the deadline.
    #[error("no complete page within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The response is not HTTP.
    #[error("the response is invalid: {0}")]
    Http(String),
    /// The status is not 200.
    #[error("the response has status {0}, expected 200")]
    Status(u16),
    /// The body is not a page of metrics.
    #[error("the response is not a metrics page: {0}")]
    Parse(#[from] ExpositionError),
}

impl MetricsEndpoint {
    /// Parses a URL and looks up its host. The default path is `/metrics`.
    ///
    /// # Errors
    /// The mistake in the URL, in words for the user.
    pub fn resolve(url: &str) -> Result<Self, MetricsUrlError> {
        let rest = url.strip_prefix("http://").ok_or_else(|| MetricsUrlError::Scheme(url.to_owned()))?;
        let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let target = match target {
            "" | "/" => "/metrics".to_owned(),
            query if query.starts_with('?') => format!("/metrics{query}"),
            target => target.to_owned(),
        };
        let sendable = FetchRequest::get(host, &target).is_sendable() && !target.contains('#');
        if host.is_empty() || host.contains(['@', '#']) || !sendable {
            return Err(MetricsUrlError::Malformed(url.to_owned()));
        }
        Ok(Self { address: address(host)?, host: host.to_owned(), target })
    }

    /// Fetches the page.
    ///
    /// # Errors
    /// The reason why there is no page. A failure of the target is not an error of the run: the report lists the window as
    /// untested.
    pub fn fetch(&self, deadline: Duration, now: &ServerSideClock) -> Result<MetricsPage, MetricsFetchError> {
        let headers = [("Accept", ACCEPT)];
        let request = FetchRequest { headers: &headers, ..FetchRequest::get(&self.host, &self.target) };
        let answer = exchange(
            self.address,
            &request,
            &FetchLimits { timeout: deadline, max_body_bytes: MOST_BYTES },
            now,
        )?;
        Ok(MetricsPage::parse(answer.body(), format(&answer)?)?)
    }
}

const ACCEPT: &str = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4";

/// Returns the format of the response.
fn format(answer: &FetchResponse) -> Result<ExpositionFormat, MetricsFetchError> {
    if answer.status() != 200 {
        return Err(MetricsFetchError::Status(answer.status()));
    }
    let coding = answer.header("content-encoding");
    if !coding.is_empty() && !coding.eq_ignore_ascii_case("identity") {
        return Err(MetricsFetchError::Http(
            "the body is compressed, although no compression was requested".to_owned(),
        ));
    }
    Ok(ExpositionFormat::of(answer.header("content-type").as_bytes()))
}

impl From<FetchError> for MetricsFetchError {
    fn from(failed: FetchError) -> Self {
        match failed {
            FetchError::Timeout(deadline) | FetchError::ConnectTimeout(deadline) => Self::Timeout(deadline),
            FetchError::TooLarge(_) => ExpositionError::TooLarge.into(),
            FetchError::InvalidResponse(why) => Self::Http(why),
            failed => Self::Connection(failed.to_string()),
        }
    }
}

fn address(host: &str) -> Result<SocketAddr, MetricsUrlError> {
    let bare = host.rsplit_once(':').is_none_or(|(_, port)| port.ends_with(']'));
    let with_port = if bare { format!("{host}:80") } else { host.to_owned() };
    let failed = |reason| MetricsUrlError::Lookup { host: with_port.clone(), reason };
    let mut addresses = with_port.to_socket_addrs().map_err(failed)?;
    addresses.next().ok_or_else(|| failed(ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const PAGE: &str = "# TYPE a_total counter\na_total 3\n";

    /// Starts a server that sends these bytes to one request and then closes. The thread returns the request.
    fn served(answer: Vec<u8>) -> (MetricsEndpoint, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = MetricsEndpoint::resolve(&format!(
            "http://{}/stats/prometheus?usedonly",
            listener.local_addr().unwrap()
        ));
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                request.push(byte[0]);
            }
            // The client may close before all bytes are sent.
            let _ = stream.write_all(&answer);
            String::from_utf8(request).unwrap()
        });
        (endpoint.unwrap(), server)
    }

    /// Returns a clock's time that never advances, because the server under test responds at once.
    fn still() -> Duration {
        Duration::ZERO
    }

    fn fetched(answer: &str) -> Result<MetricsPage, MetricsFetchError> {
        let (endpoint, server) = served(answer.into());
        let page = endpoint.fetch(Duration::from_secs(60), &still);
        server.join().unwrap();
        page
    }

    #[test]
    fn a_page_may_end_by_its_length_by_chunks_or_with_its_connection() {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";
        let length = PAGE.len();
        let (first, rest) = PAGE.split_at(7);
        let chunks = format!("7\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\n\r\n", rest.len());
        for answer in [
            format!("{head}Content-Length: {length}\r\n\r\n{PAGE}"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}"),
            format!("{head}\r\n{PAGE}"),
        ] {
            assert_eq!(fetched(&answer).unwrap().sum("a_total"), Some(3.0), "{answer}");
        }
    }

    #[test]
    fn what_is_asked_is_a_get_that_ends_its_connection() {
        let (endpoint, server) = served(format!("HTTP/1.1 200 OK\r\n\r\n{PAGE}").into());
        endpoint.fetch(Duration::from_secs(60), &still).unwrap();
        let request = server.join().unwrap();
        assert!(
            request.starts_with("GET /stats/prometheus?usedonly HTTP/1.1\r\nHost: 127.0.0.1:"),
            "{request}"
        );
        assert!(request.contains("\r\nConnection: close\r\n"), "{request}");
    }

    #[test]
    fn an_answer_that_is_no_page_says_why() {
        let cases = [
            (
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                "the response has status 404, expected 200",
            ),
            ("SSH-2.0\r\n", "the response is invalid: malformed HTTP response: it does not begin with HTTP"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na 1\n",
                "the connection ended before the end of the response",
            ),
            (
                "HTTP/1.1 200 OK\r\n\r\n<html>\n",
                "the response is not a metrics page: line 1: the sample has no value",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
                "the response is invalid: the body is compressed, although no compression was requested",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                "the response is invalid: malformed chunked body",
            ),
            ("", "the connection ended before the end of the response"),
        ];
        for (answer, why) in cases {
            assert_eq!(fetched(answer).unwrap_err().to_string(), why, "{answer:?}");
        }
    }

    #[test]
    fn nobody_listening_is_told_as_such() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let endpoint = MetricsEndpoint::resolve(&url).unwrap();
        assert!(matches!(endpoint.fetch(DEADLINE, &still), Err(MetricsFetchError::Connection(_))));
    }

    #[test]
    fn a_url_is_read_or_refused_before_there_is_any_load() {
        let parts =
            |url| MetricsEndpoint::resolve(url).map(|at| (at.address.to_string(), at.target)).unwrap();
        assert_eq!(parts("http://127.0.0.1:9901"), ("127.0.0.1:9901".into(), "/metrics".into()));
        assert_eq!(parts("http://127.0.0.1/"), ("127.0.0.1:80".into(), "/metrics".into()));
        assert_eq!(parts("http://[::1]?x=1"), ("[::1]:80".into(), "/metrics?x=1".into()));
        assert_eq!(parts("http://[::1]:2/a?x"), ("[::1]:2".into(), "/a?x".into()));
        let refused = |url| MetricsEndpoint::resolve(url).unwrap_err().to_string();
        assert!(refused("https://127.0.0.1/metrics").contains("a local proxy that terminates TLS"));
        assert!(refused("127.0.0.1:9901").contains("expected an http:// URL"));
        for url in [
            "http://",
            "http:///metrics",
            "http://u@127.0.0.1/",
            "http://127.0.0.1/a b",
            "http://127.0.0.1/#a",
            "http://a\nb/",
        ] {
            assert!(refused(url).contains("is not a URL"), "{url}");
        }
        assert!(refused("http://127.0.0.1:x/").contains("has no address"));
    }
}
