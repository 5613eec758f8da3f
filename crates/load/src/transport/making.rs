//! What connections are made of, and how many of them there may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::Stream;
use super::connection::Connection;
use super::route::Speaks;
use super::sources::Sources;
use crate::clock::Nanos;
use crate::request::Origin;
use crate::resolve::Dial;

/// What one thread may open and keep.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Connections of one route.
    pub(crate) connections: usize,
    /// Idle connections kept of one route.
    pub(crate) idle: usize,
    /// Requests after which a connection is not used again.
    pub(crate) requests: u64,
    /// Age after which a connection is not used again.
    pub(crate) age: Nanos,
    /// HTTP/2 connections of one route as long as their streams suffice.
    pub(crate) http2_connections: usize,
    /// For each step of opening a connection: TCP, tunnel, TLS.
    pub(crate) step: Nanos,
    /// Where they come from.
    pub(crate) sources: Sources,
}

impl Limits {
    /// Whether a connection may carry another request.
    #[inline]
    pub(crate) fn allow<S: Stream>(&self, connection: &Connection<S>, now: Nanos) -> bool {
        connection.begun < self.requests && now.saturating_sub(connection.opened) < self.age
    }
}

/// What connections are made of, the same for all of them.
#[derive(Debug, Clone)]
pub(crate) struct Making {
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// HTTP/2 may come out of a handshake.
    pub(crate) http2: bool,
    /// HTTP/2 without TLS and without asking.
    pub(crate) h2c: bool,
    /// Most streams on one HTTP/2 connection.
    pub(crate) streams: usize,
    pub(crate) dial: Arc<Dial>,
    /// Connections begun so far, by all threads of the run.
    pub(crate) begun: Arc<AtomicU64>,
}

/// What stands between a socket and the first request on it; the same for all connections of a route.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path {
    /// A CONNECT request to the proxy that the socket goes to.
    pub(crate) tunnel: Option<Vec<u8>>,
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// HTTP/2 without asking.
    pub(crate) prior_knowledge: bool,
    /// Most streams on one HTTP/2 connection.
    pub(crate) streams: usize,
}

impl Making {
    /// The number of a connection that is about to be begun, from 1.
    pub(crate) fn next_number(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn path(&self, origin: &Origin) -> Path {
        let name = ServerName::try_from(origin.host.clone()).ok();
        let tls = self.tls.clone().zip(name).filter(|_| origin.tls);
        Path {
            tunnel: self.dial.tunnel(origin),
            tls,
            prior_knowledge: self.h2c && !origin.tls,
            streams: self.streams,
        }
    }

    pub(crate) fn speaks(&self, origin: &Origin) -> Speaks {
        match (origin.tls, self.http2, self.h2c) {
            (true, true, _) => Speaks::Unknown,
            (false, _, true) => Speaks::Http2,
            _ => Speaks::Http1,
        }
    }
}
