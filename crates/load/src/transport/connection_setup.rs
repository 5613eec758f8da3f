//! The steps of opening a connection: TCP, the tunnel of a proxy, TLS.

use super::connection::ConnectionProtocol;
use super::connector_config::RouteConfig;
use super::http1::Http1Connection;
use super::http2::Http2Connection;
use super::maybe_tls_stream::MaybeTlsStream;
use super::response_parser::{CaptureOptions, ParseProgress as Progress, ReceivedResponse, ResponseParser};
use super::socket::IoProgress;
use super::{Stream, TimeSource};
use crate::clock::Nanos;
use crate::request_failure_reason::RequestFault;
use crate::stats::LoadStats;

/// A connection that is being opened.
#[derive(Debug)]
pub(crate) struct PendingConnection<S> {
    pub(crate) stream: MaybeTlsStream<S>,
    step: Step,
    /// The time when the present step began.
    pub(crate) step_started: Nanos,
    pub(crate) opening_times: OpeningTimes,
    /// The number of bytes of the tunnel request that were written.
    written: usize,
    exchange: ResponseParser,
    answer: ReceivedResponse,
}

/// The durations of the steps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OpeningTimes {
    pub(crate) connect: Nanos,
    pub(crate) tls: Option<Nanos>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Connecting,
    Tunnelling,
    Securing,
}

impl<S: Stream> PendingConnection<S> {
    pub(crate) fn new(stream: S, now: Nanos) -> Self {
        Self {
            stream: MaybeTlsStream::new(stream),
            step: Step::Connecting,
            step_started: now,
            opening_times: OpeningTimes::default(),
            written: 0,
            exchange: ResponseParser::new(),
            answer: ReceivedResponse::default(),
        }
    }

    /// Continues to open the connection and returns true when it is open.
    ///
    /// `connected` means that the stream has connected or failed to.
    pub(crate) fn advance(
        &mut self,
        connected: bool,
        path: &RouteConfig,
        time: &impl TimeSource,
        stats: &mut LoadStats,
    ) -> Result<bool, RequestFault> {
        loop {
            match self.step {
                Step::Connecting if !connected => return Ok(false),
                Step::Connecting => {
                    let made = self.stream.stream().finish_connect();
                    made.map_err(|error| RequestFault::Connect(error.kind()))?;
                    stats.connections += 1;
                    self.opening_times.connect = self.lap(time);
                    stats.connect.record(self.opening_times.connect);
                    self.step = Step::Tunnelling;
                }
                Step::Tunnelling => {
                    if !self.tunnel(path.connect_request.as_deref())? {
                        return Ok(false);
                    }
                    if let Some((config, name)) = &path.tls {
                        self.stream.begin_tls(config, name)?;
                    }
                    self.lap(time);
                    self.step = Step::Securing;
                }
                Step::Securing => {
                    if !self.stream.handshake()? {
                        return Ok(false);
                    }
                    if path.tls.is_some() {
                        let tls = self.lap(time);
                        self.opening_times.tls = Some(tls);
                        stats.tls.record(tls);
                    }
                    return Ok(true);
                }
            }
        }
    }

    /// Returns the time since the last step ended.
    fn lap(&mut self, time: &impl TimeSource) -> Nanos {
        let now = time.now();
        now.saturating_sub(std::mem::replace(&mut self.step_started, now))
    }

    /// Returns an HTTP/2 connection if the server chose HTTP/2, or if it was configured; otherwise HTTP/1.1.
    pub(crate) fn into_http1_or_http2(self, path: &RouteConfig) -> ConnectionProtocol<S> {
        if path.prior_knowledge || self.stream.chose_h2() {
            ConnectionProtocol::Http2(Box::new(Http2Connection::new(self.stream, path.max_streams)))
        } else {
            ConnectionProtocol::Http1(Http1Connection::new(self.stream))
        }
    }

    /// Asks the proxy for a tunnel. Returns true if it is open or not needed.
    fn tunnel(&mut self, request: Option<&[u8]>) -> Result<bool, RequestFault> {
        let Some(request) = request else { return Ok(true) };
        if !self.stream.write_all(request, &mut self.written)? {
            return Ok(false);
        }
        let mut buffer = [0; 4096];
        loop {
            let count = match self.stream.read(&mut buffer)? {
                IoProgress::WouldBlock => return Ok(false),
                IoProgress::Bytes(0) => return Err(RequestFault::Proxy(0)),
                IoProgress::Bytes(count) => count,
            };
            let step =
                self.exchange.feed(&buffer[..count], "CONNECT", CaptureOptions::default(), &mut self.answer);
            match step {
                Ok(Progress::More) => {}
                // Data before the tunnel's other end can have sent any comes from the proxy, so the tunnel is refused.
                Ok(Progress::Done { clean: true }) if (200..300).contains(&self.answer.status) => {
                    return Ok(true);
                }
                Ok(Progress::Done { .. }) => return Err(RequestFault::Proxy(self.answer.status)),
                Err(_) => return Err(RequestFault::Proxy(0)),
            }
        }
    }
}
