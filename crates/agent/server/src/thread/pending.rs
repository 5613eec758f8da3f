//! What of a connection takes time: an answer to be made, a client that reads slowly, a caller who is not known yet. Each is
//! awaited by a task of the connection's own, which ends with it, while its thread serves everybody else.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use seawall_core::attestation::Ends;
use seawall_core::cloud::CloudName;
use seawall_http::{Frame, Length};

use super::active_connection::{ActiveConnection, poll_turn_to_read};
use super::request::{After, Pending};
use super::socket::Found;
use super::{FULL, READ};
use crate::client::{Client, ServedPod};
use crate::connection_table::State;
use crate::fairness::buffer_budget::Held;
use crate::response::{Writing, Written};
use crate::upstream::Rest;

/// How long a client may take for one part of a long answer, at most 8 KiB.
const PART: Duration = Duration::from_secs(10);

/// Pieces of an answer of the real server that cost as much as a turn.
const PIECES: u32 = 32;

impl<P: ServedPod> ActiveConnection<P> {
    /// Waits for what a turn left to be waited for. Whether the next turn looks at what is kept, or reads; nothing when the
    /// connection is over.
    pub(super) async fn wait(&self, unsent: Option<Held>, after: After) -> Option<bool> {
        if let Some(unsent) = unsent {
            if !self.flush(&unsent).await {
                return None;
            }
            // What it waits for now, not what the writing made of it: half a head keeps its time.
            self.waits.note(after.state(self.keeps()), self.now());
        }
        match after {
            After::Read => Some(false),
            After::Look => Some(true),
            // In a box, as the other waits that few connections ever come to: within, they would be memory of each.
            After::Later(pending) => {
                let goes_on = Box::pin(self.answer_later(*pending)).await;
                goes_on.then(|| self.keeps())
            }
            After::Settle(cloud, patience) => {
                let caller = Box::pin(self.settle(cloud, patience)).await;
                self.who.borrow_mut().caller = caller;
                // A head that was the strangers' until now is the pod's; what it may not hold, it sends again.
                self.pass_kept_on().then_some(true)
            }
            After::Close => None,
            After::Linger => {
                Box::pin(self.linger()).await;
                None
            }
        }
    }

    /// Writes what the socket did not take at once. False when the client is gone.
    async fn flush(&self, mut unsent: &[u8]) -> bool {
        while !unsent.is_empty() {
            self.waits.note(State::Write, self.now());
            if poll_fn(|context| self.poll_writable(context)).await.is_err() {
                return false;
            }
            match self.socket.send(unsent) {
                Some(n) => unsent = &unsent[n..],
                None => return false,
            }
        }
        true
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_writable(context, &self.thread.work.poller, self.key)
    }

    /// Writes an answer, and holds of it what the socket does not take at once. False when the client is gone, or may not hold so much.
    async fn write(&self, out: Vec<u8>) -> bool {
        let Some(sent) = self.socket.send(&out) else { return false };
        if sent == out.len() {
            return true;
        }
        let Some(unsent) = self.hold(&out[sent..]) else { return false };
        drop(out);
        self.flush(&unsent).await
    }

    /// Ends the sending side and discards what the client still sends, up to a bound; the table's head timeout ends it too.
    async fn linger(&self) {
        const MOST: usize = 256 * 1024;
        if self.socket.finish().is_err() {
            return;
        }
        let mut discarded = 0;
        while discarded < MOST {
            match poll_fn(|context| self.poll_discard(context)).await {
                0 => return,
                n => discarded += n,
            }
        }
    }

    /// Reads into the thread's buffer and forgets it: one of its own would be part of every connection's task. A failed
    /// read gives nothing, as the end does.
    fn poll_discard(&self, context: &mut Context<'_>) -> Poll<usize> {
        loop {
            if ready!(poll_turn_to_read(self, context)).is_err() {
                return Poll::Ready(0);
            }
            match self.socket.read(&mut self.thread.scratch.borrow_mut().read[..READ]) {
                Found::End => return Poll::Ready(0),
                Found::Nothing => self.thread.turns.take(&self.who.borrow().tenant.turns),
                Found::Bytes(n) => {
                    self.thread.turns.take(&self.who.borrow().tenant.turns);
                    return Poll::Ready(n);
                }
            }
        }
    }

    /// Waits until it is known who asks, and what it may have of a cloud; whoever is not known by then is nobody, and is told why. Who asks
    /// on a connection was decided once for all: a pod that is known waits for the cloud alone, and is not attested again (what the
    /// kernel notes of a connection is good for one look).
    async fn settle(&self, cloud: CloudName, patience: Duration) -> Client<P> {
        let stream = self.socket.stream();
        let local = || stream.local_addr().ok();
        let ends = Ends { peer: self.peer, local: &local };
        let thread = &self.thread;
        let now = self.now();
        self.came.set(Some(now));
        self.waits.note(State::Busy, now);
        let callers = &thread.shared.callers;
        let known = self.who.borrow().caller.clone();
        if let Client::Pod(pod) = known {
            let decided = tokio::time::timeout(patience, pod.decided(cloud)).await;
            return decided.map_or_else(
                |_| Client::Nobody(callers.why_nobody(&ends, cloud)),
                |()| Client::Pod(pod.clone()),
            );
        }
        let is_stranger = thread.is_stranger(&self.who.borrow().tenant);
        let place = is_stranger.then(|| thread.unsettled.take(self.peer.ip()));
        if let Some(None) = place {
            thread.metrics.held_in_vain();
            return Client::Nobody(callers.why_nobody(&ends, cloud));
        }
        let settled = tokio::time::timeout(patience, async {
            match callers.currently_at(ends, cloud).await {
                Some(pod) => pod,
                None => {
                    let pod = callers.settled(ends, cloud).await;
                    thread.metrics.held_and_settled();
                    pod
                }
            }
        })
        .await;
        match settled {
            Ok(pod) if self.counts_for(&pod) => Client::Pod(pod),
            Ok(_) => Client::Nobody(FULL),
            Err(_) => {
                thread.metrics.held_in_vain();
                Client::Nobody(callers.why_nobody(&ends, cloud))
            }
        }
    }

    /// Counts the connection for this pod from now on. False where the pod has no room for it.
    fn counts_for(&self, pod: &P) -> bool {
        let thread = &self.thread;
        if self.who.borrow().tenant.id != pod.id() {
            let Some(permit) = thread.permit(pod.id(), pod.connections()) else { return false };
            thread.connections.borrow_mut().settle(self.key, pod.id(), permit);
            self.who.borrow_mut().tenant = thread.tenants.borrow_mut().pod(pod);
        }
        true
    }

    /// Waits for a slow answer and writes it. False when the connection is over.
    async fn answer_later(&self, pending: Pending) -> bool {
        let Pending { later, version, keep_alive, head_only, since, request } = pending;
        self.waits.note(State::Busy, since);
        let (route, is_poll) = (later.route, later.is_poll);
        let reply = tokio::select! {
            reply = later.reply => reply,
            () = self.client_gone(), if later.is_poll => return false,
        };
        if is_poll {
            self.socket.look_again();
        }
        // Its pod may have gone meanwhile, and another have its address: the sweep that ends its connections comes a moment later.
        if self.is_gone() {
            return false;
        }
        let thread = &*self.thread;
        // The stop itself may be what ended the wait, before this thread has turned to it.
        let keep_alive = keep_alive && !thread.stop.has_begun();
        let now = self.now();
        let mut out = Vec::new();
        let Written { status, rest } = {
            let mut date = thread.date.borrow_mut();
            let frame = Frame { date: date.at(&thread.shared.clock, now), version, keep_alive, head_only };
            reply.write(&Writing { frame: &frame, request, now }, &mut out)
        };
        thread.metrics.answered(route, status, now.since(since));
        // Who waits for a change is given each credential once.
        if status == 200 && route.is_credential() && !is_poll {
            thread.fetched(&self.who.borrow().caller, route, None);
        }
        let is_written = self.write(out).await;
        let goes_on = match rest {
            Some((rest, length)) if is_written => {
                let is_whole = self.pass_on(*rest, length).await;
                if is_whole.is_none() {
                    // Where the end of the connection is the body's, only a reset tells that it is not.
                    self.socket.reset_at_end();
                }
                is_whole.unwrap_or(false) && keep_alive
            }
            _ => is_written && keep_alive,
        };
        self.waits.note(State::Idle, self.now());
        goes_on
    }

    /// Passes the rest of an answer on, part by part, as the client reads it. Each part is a turn of the caller's, and more where it
    /// came in many pieces. Whether the connection goes on after it; nothing if the answer broke off.
    async fn pass_on(&self, mut rest: Rest, length: Length) -> Option<bool> {
        let mut out = Vec::new();
        loop {
            self.waits.note(State::Busy, self.now());
            poll_fn(|context| self.poll_admitted(context)).await;
            let part = rest.next().await?;
            self.thread.turns.charge(&self.who.borrow().tenant.turns, 1 + part.pieces / PIECES);
            out.clear();
            length.part(&mut out, &part.bytes);
            if part.is_last {
                length.last(&mut out);
            }
            // A place at the real server is held meanwhile, so the whole part has its time, and not each byte of it.
            if !tokio::time::timeout(PART, self.flush(&out)).await.unwrap_or(false) {
                return None;
            }
            if part.is_last {
                return Some(length != Length::UntilClose);
            }
        }
    }

    /// Returns when the client has closed its side, though it has sent more before.
    async fn client_gone(&self) {
        loop {
            let poll = |context: &mut Context<'_>| {
                self.socket.poll_readable(context, &self.thread.work.poller, self.key)
            };
            match poll_fn(poll).await.map(|()| self.socket.peek()) {
                Ok(Found::Nothing) => {}
                Ok(Found::Bytes(_)) if !self.socket.has_ended() => self.socket.look_past(),
                Ok(_) | Err(_) => return,
            }
        }
    }
}
