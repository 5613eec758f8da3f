//! Accepts connections: their order, the client of each, and whether there is room for it.

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
use crate::connection_table::ConnectionPermits;
use crate::fairness::clients::Tenant;
use crate::handler::ListenerDialects;
use crate::listen::shards::ListenerShards;
use crate::permit_counter::{Permit, PermitCounter};

/// Connections accepted in one round, and those accepted from shards that recently had no known client.
const ACCEPTED: usize = 32;
const ACCEPTED_OF_STRANGERS: usize = 8;

/// Accept rounds after the stop has begun: some 2,000 connections.
const LAST_LOOKS: usize = 64;

impl<P: ServedPod> TrafficThread<P> {
    /// Accepts until the stop has begun and no connection waits.
    /// In each round it accepts a few connections of each shard that has some. An error never ends the loop: most errors (a reset
    /// client, no more descriptors) pass.
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
                    // Out of descriptors: a connection that nobody waits at is worth less than a new caller.
                    self.connections.borrow_mut().evict_from_largest(0);
                    self.is_accept_failing.set(true);
                }
            }
            lanes.mark_unfinished();
            // Asked for and waited for without a pause between, or the round would begin unheard.
            self.scheduler.request_round();
            self.scheduler.wait_for_round().await;
        }
    }

    /// Accepts the connections that wait when the stop has begun, which the runtime may not have reported yet.
    /// They are established, and their requests have usually arrived, too. The number of rounds is limited, so no client can keep it
    /// going.
    fn accept_the_last(self: &Rc<Self>, lanes: &ListenerShards) {
        let mut ready = Vec::new();
        for _ in 0..LAST_LOOKS {
            let looked = lanes.ready_now(&mut ready);
            if looked.is_err() || ready.is_empty() || self.accept_some(lanes, &mut ready).is_err() {
                return;
            }
        }
    }

    /// Accepts from these shards, more from each the fewer there are. True if no connection is left.
    /// Shards in which a known client was recently accepted come first. The other shards divide the share of unknown clients, who
    /// count as one client, however many addresses they come from.
    ///
    /// The total is limited, not only the number for each shard. A connection that is evicted for a new one closes only when this
    /// thread turns to it. Without a limit, a burst from hundreds of addresses would open several times as many connections as
    /// allowed.
    fn accept_some(self: &Rc<Self>, lanes: &ListenerShards, ready: &mut [usize]) -> std::io::Result<bool> {
        if let [lane] = ready {
            return self.accept_of(lanes, *lane, ACCEPTED);
        }
        // Not always the same strangers first.
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
                // The client went away before it was accepted (accept(2)).
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Identifies the client, checks for room, and inserts the connection. True if the client is known.
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
        // Its first request has most often come with it.
        self.ready_queue.push(key);
        is_known
    }

    /// Returns the tenant whose shares a connection uses.
    /// While a pod is not proven to be at its address, the connection uses that pod's tenant nevertheless. Shares are not
    /// credentials, and a known pod must not wait among unknown clients each time that the proof is renewed.
    fn tenant(&self, caller: &Client<P>, ends: &ConnectionEnds<'_>) -> Rc<Tenant<P>> {
        let likely =
            matches!(caller, Client::Unidentified).then(|| self.shared.resolver.likely_pod(ends)).flatten();
        self.tenants.borrow_mut().of(caller, likely.as_ref(), ends.peer.ip())
    }

    /// Takes permits of both caps.
    /// A client that has used its share makes room by its own connections. If the process has no room, the client with the most
    /// connections makes it. Only connections that this thread accepted are ended: another thread's table must not be touched, and
    /// all connections of an address are on one thread (`listen`).
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

    /// Takes a permit of a client's own cap, after an eviction if necessary.
    pub(super) fn client_permit(&self, client: ClientId, own: &Arc<PermitCounter>) -> Option<Permit> {
        let (bounds, open, most) =
            (&self.shared.limits, &self.shared.open_connections, self.client_limits.get().connections);
        let take = || own.is_within_share(open, bounds.connections).then(|| own.take(most));
        take().flatten().or_else(|| {
            let made_room = self.connections.borrow_mut().evict_from_client(client);
            self.count_evicted(made_room);
            // Its own place that it just gave up is its own to take, whatever others have by now.
            if made_room { own.take(most) } else { None }
        })
    }

    fn count_evicted(&self, evicted: bool) {
        self.metrics.connections.evicted_idle.fetch_add(u64::from(evicted), Ordering::Relaxed);
    }

    /// Answers with 503 a connection for which there is no room; public requests get their normal answer.
    /// The thread first reads the bytes that the client has sent already: a close with unread bytes resets the connection, and the
    /// reset can overtake the answer. If the bytes contain no whole request, the first dialect refuses them.
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
        // The socket's buffer is empty, so this is written whole or the client is gone.
        let _ = stream.write(&out);
    }
}
