//! Accepts connections: chooses the order of the shards, identifies each client and checks the connection limits.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use seawall_core::attestation::ConnectionEnds;

use super::connection_state::{ConnectionClient, ConnectionData};
use super::request::RequestOrigin;
use super::socket::ClientSocket;
use super::{FULL, TrafficThread};
use crate::client::{Client, ClientId, ServedPod};
use crate::connection_permits::{Permit, PermitCounter};
use crate::connection_table::ConnectionPermits;
use crate::fairness::clients::Tenant;
use crate::handler::ListenerDialects;
use crate::listen::shards::ListenerShards;

/// The maximum number of connections that one round accepts from shards in which the thread recently accepted a known client.
const ACCEPTED: usize = 32;
/// The maximum for all other shards. If only such shards are ready, [`ACCEPTED`] is their maximum.
const ACCEPTED_OF_STRANGERS: usize = 8;

/// The maximum number of accept rounds after the shutdown has begun. Together these rounds accept about 2,000 connections.
const LAST_LOOKS: usize = 64;

impl<P: ServedPod> TrafficThread<P> {
    /// Accepts connections until the shutdown has begun and no connection waits.
    /// Each round accepts a few connections from each ready shard. An error never ends the loop, because most errors are temporary,
    /// such as a reset client or missing descriptors.
    pub(super) async fn accept(self: Rc<Self>, mut lanes: ListenerShards) {
        let mut ready = Vec::new();
        let mut stop = self.stop.clone();
        let mut stopped = pin!(stop.wait());
        loop {
            let found = tokio::select! {
                biased;
                found = lanes.ready(&mut ready) => found,
                () = &mut stopped => return self.accept_the_last(&lanes),
            };
            match found.and_then(|()| self.accept_some(&lanes, &mut ready)) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    self.metrics.connections.accept_errors.fetch_add(1, Ordering::Relaxed);
                    if self.accept_failures.take(self.shared.clock.now()).is_ok() {
                        tracing::warn!(%error, "cannot accept connections");
                    }
                    // The usual cause is that no file descriptor is free. Therefore the table ends an idle connection to make room
                    // for a new client.
                    self.connections.borrow_mut().evict_from_largest(0);
                    self.is_accept_failing.set(true);
                }
            }
            lanes.mark_unfinished();
            // This task requests the round and then waits for it, without another `await` between. Otherwise the task could miss
            // the start of the round.
            self.scheduler.request_round();
            self.scheduler.wait_for_round().await;
        }
    }

    /// Accepts the connections that already wait when the shutdown begins. The runtime may not have reported these connections yet.
    /// They are established, and most clients have already sent their requests. The number of accept rounds is limited, so a client
    /// cannot prolong the shutdown.
    fn accept_the_last(self: &Rc<Self>, lanes: &ListenerShards) {
        let mut ready = Vec::new();
        for _ in 0..LAST_LOOKS {
            let looked = lanes.ready_now(&mut ready);
            if looked.is_err() || ready.is_empty() || self.accept_some(lanes, &mut ready).is_err() {
                return;
            }
        }
    }

    /// Accepts connections from these shards. Returns true if no more connections wait.
    /// If fewer shards are ready, the function accepts more connections from each. Shards in which the thread recently accepted a
    /// known client come first. The other shards divide the share of unknown clients, which count as one client, whatever their
    /// number of addresses.
    ///
    /// The total number of accepts per round is limited, too. If the table evicts a connection to make room, that connection closes
    /// only when this thread handles it. Without the limit, connections from hundreds of addresses at once would exceed the
    /// connection limit several times over.
    fn accept_some(self: &Rc<Self>, lanes: &ListenerShards, ready: &mut [usize]) -> std::io::Result<bool> {
        if let [lane] = ready {
            return self.accept_of(lanes, *lane, ACCEPTED);
        }
        // Rotate the starting shard, so that the same unknown clients are not always first.
        self.accept_round.set(self.accept_round.get().wrapping_add(1));
        ready.rotate_left(self.accept_round.get() % ready.len().max(1));
        let is_known = |lane: &usize| self.known.borrow().is_recent(*lane);
        let (known, strangers): (Vec<usize>, Vec<usize>) = ready.iter().partition(|lane| is_known(lane));
        let share = |lanes: &[usize], most: usize| (most / lanes.len().max(1)).max(1);
        let mut is_all = true;
        for lane in &known {
            is_all &= self.accept_of(lanes, *lane, share(&known, ACCEPTED))?;
        }
        let most = if known.is_empty() { ACCEPTED } else { ACCEPTED_OF_STRANGERS };
        is_all &= strangers.len() <= most;
        for lane in strangers.iter().take(most) {
            is_all &= self.accept_of(lanes, *lane, share(&strangers, most))?;
        }
        Ok(is_all)
    }

    fn accept_of(self: &Rc<Self>, lanes: &ListenerShards, lane: usize, most: usize) -> std::io::Result<bool> {
        for _ in 0..most {
            match lanes.accept(lane) {
                Ok(Some((stream, peer))) => {
                    if self.admit(stream, peer, lanes.listener(lane)) {
                        self.known.borrow_mut().record(lane);
                    }
                }
                Ok(None) => return Ok(true),
                // The client closed the connection before the thread accepted it (accept(2)).
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Identifies the client, checks the limits, and inserts the connection. Returns true if the client is known.
    fn admit(self: &Rc<Self>, mut stream: std::net::TcpStream, peer: SocketAddr, listener: usize) -> bool {
        self.metrics.connections.accepted.fetch_add(1, Ordering::Relaxed);
        let ends = ConnectionEnds { peer, local: &|| stream.local_addr().ok() };
        let caller = self.shared.resolver.resolve(&ends);
        let tenant = self.tenant(&caller, &ends);
        let is_known = !self.is_unknown_client(&tenant);
        let Some(spoken) = self.listeners.get(listener).cloned() else { return is_known };
        let Some(permits) = self.permits(&tenant) else {
            self.metrics.connections.rejected.fetch_add(1, Ordering::Relaxed);
            self.refuse_at_cap(&mut stream, peer, &spoken.current(), &tenant);
            return is_known;
        };
        let who = ConnectionClient { identity: caller, tenant };
        let key = self.connections.borrow_mut().insert(permits, |key| {
            Rc::new(ConnectionData::new(
                self.shared.clock.now(),
                key,
                ClientSocket::new(stream),
                peer,
                spoken,
                who,
            ))
        });
        // Check the connection at once, because the first request has usually arrived with it.
        self.ready_queue.push(key);
        is_known
    }

    /// Returns the tenant whose shares a connection uses.
    /// If attestation has not identified the pod yet, the connection uses the tenant of the likely pod. This is safe, because
    /// shares are not credentials. It is necessary, because a known pod must not compete with unknown clients at each renewal of
    /// its attestation.
    fn tenant(&self, caller: &Client<P>, ends: &ConnectionEnds<'_>) -> Rc<Tenant<P>> {
        let likely =
            matches!(caller, Client::Unidentified).then(|| self.shared.resolver.likely_pod(ends)).flatten();
        self.tenants.borrow_mut().of(caller, likely.as_ref(), ends.peer.ip())
    }

    /// Takes one permit of the process limit and one of the client limit.
    /// A client that has reached its limit loses one of its own connections. If the process has reached its limit, the client with
    /// the most connections loses one connection. The thread ends only connections that it accepted itself, because another
    /// thread's table must not be changed. All connections of an address are on one thread (`listen`).
    fn permits(&self, tenant: &Tenant<P>) -> Option<ConnectionPermits> {
        let (bounds, open, own) = (&self.shared.limits, &self.shared.open_connections, &tenant.connections);
        let had = own.open();
        let caller = self.client_permit(tenant.id, own)?;
        let process = open.take(bounds.connections).or_else(|| {
            let mut connections = self.connections.borrow_mut();
            self.count_evicted(
                connections.evict_from_largest(had) || connections.evict_from_client(tenant.id),
            );
            open.take(bounds.connections)
        })?;
        Some(ConnectionPermits { process, caller, client: tenant.id })
    }

    /// Takes a permit of the client's own limit, after an eviction if necessary.
    pub(super) fn client_permit(&self, client: ClientId, own: &Arc<PermitCounter>) -> Option<Permit> {
        let (bounds, open, most) =
            (&self.shared.limits, &self.shared.open_connections, self.client_limits.get().connections);
        let take = || own.is_within_share(open, bounds.connections).then(|| own.take(most));
        take().flatten().or_else(|| {
            let made_room = self.connections.borrow_mut().evict_from_client(client);
            self.count_evicted(made_room);
            // The client just released one of its own permits, so it may take that permit, whatever the other clients hold.
            if made_room { own.take(most) } else { None }
        })
    }

    fn count_evicted(&self, evicted: bool) {
        self.metrics.connections.evicted_idle.fetch_add(u64::from(evicted), Ordering::Relaxed);
    }

    /// Refuses a connection with status 503 because a limit is reached. Public requests still get their normal answer.
    /// The thread first reads the bytes that the client has already sent. A close with unread bytes resets the connection, and the
    /// reset can overtake the answer. If the bytes contain no complete request, the first dialect writes the refusal.
    pub(super) fn refuse_at_cap(
        &self,
        stream: &mut std::net::TcpStream,
        peer: SocketAddr,
        dialects: &Rc<ListenerDialects<P>>,
        tenant: &Tenant<P>,
    ) {
        let mut out = Vec::with_capacity(512);
        let now = self.shared.clock.now();
        let asker = RequestOrigin {
            dialects,
            client: &Client::Refused(FULL),
            tenant,
            peer: peer.ip(),
            received_at: now,
        };
        {
            let read = &mut self.scratch.borrow_mut().read;
            let sent = stream.read(read).unwrap_or_default();
            self.answer_all(asker, &read[..sent], now, &mut out);
        }
        if out.is_empty() {
            self.write_refusal(dialects, &FULL, &mut out);
        }
        // The send buffer of the socket is empty, so the kernel accepts the whole answer unless the client is gone.
        let _ = stream.write(&out);
    }
}
