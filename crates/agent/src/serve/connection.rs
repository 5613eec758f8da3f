//! One connection from accept to end: reads, has its turns, writes, waits for what takes time.
//!
//! A connection's task. It knows sockets and states; what the bytes mean is `turn`'s and the dialect's business.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use seawall_attest::Ends;
use seawall_cloud::{Frame, Length};
use seawall_core::Moment;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::turn::{After, Asker, Pending};
use super::{FULL, READ, Scratch, Thread};
use crate::callers::Caller;
use crate::cloud::names::CloudName;
use crate::connections::State;
use crate::dialect::Dialects;
use crate::forward::Rest;
use crate::held::Held;
use crate::listen::UNREAD;
use crate::reply::{Writing, Written};
use crate::roster::PodCaller;
use crate::tenants::Tenant;
use crate::turns::Key;

/// How long a client may take for one part of a long answer, at most 16 KiB.
const PART: Duration = Duration::from_secs(10);

/// Requests behind the first that cost as much as a turn: what they save is the read and the write.
const PIPELINED: u32 = 4;

/// Pieces of an answer of the real server that cost as much as a turn.
const PIECES: u32 = 32;

/// A connection's place in the table; given up when its task ends, however it ends.
pub(super) struct Place {
    pub(super) thread: Rc<Thread>,
    /// What is spoken where it was accepted.
    pub(super) dialects: Rc<Dialects>,
    pub(super) key: Key,
    pub(super) tenant: Rc<Tenant>,
    /// When the request came that waits until it is known who asks.
    pub(super) came: Cell<Option<Moment>>,
}

impl Place {
    /// Ready when the caller has a turn left in this round; else the connection waits for one of the next. Where it would read, it
    /// waits only once there is something to be read: a turn is not given to who has no use for it.
    fn poll_admitted(&self, context: &mut Context<'_>, reads: Option<&TcpStream>) -> Poll<()> {
        let Thread { turns, connections, .. } = &*self.thread;
        if !turns.is_spent(&self.tenant.turns) {
            return Poll::Ready(());
        }
        if let Some(stream) = reads {
            // A socket that failed is told by the read itself.
            let _ = ready!(stream.poll_read_ready(context));
        }
        connections.borrow_mut().park(self.key, &self.tenant.turns, context.waker().clone());
        turns.wait(&self.tenant.turns, self.key);
        Poll::Pending
    }

    fn note(&self, state: State, now: Moment) {
        self.thread.connections.borrow_mut().note(self.key, state, now);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.thread.connections.borrow_mut().leave(self.key);
    }
}

/// A socket and who is at its other end.
struct Line {
    stream: TcpStream,
    caller: Caller,
}

impl Drop for Line {
    /// A pod that is gone is not answered any more, by the kernel neither: what was written and not acknowledged it would
    /// send to the pod's address again and again, where the next pod may be by then, and that one could read it from
    /// the wire (container runtimes grant CAP_NET_RAW by default). A reset throws it away.
    fn drop(&mut self) {
        if self.caller.is_gone() {
            // A socket that is broken already has nothing left to send.
            let _ = self.stream.set_zero_linger();
        }
    }
}

/// One connection from accept to end.
pub(super) async fn connection(mut place: Place, stream: TcpStream, peer: SocketAddr, caller: Caller) {
    let mut line = Line { stream, caller };
    // Bytes of a head that has not arrived whole, or of requests behind one that takes time.
    let mut kept = place.tenant.held.nothing();
    let mut read = true;
    loop {
        let turn =
            poll_fn(|context| place.poll_turn(context, &mut line.stream, &line.caller, &mut kept, read));
        let Some((unsent, after)) = turn.await else { return };
        if !unsent.is_empty() {
            if !place.flush(&line.stream, &unsent).await {
                return;
            }
            // What it waits for now, not what the writing made of it: half a head keeps its time.
            place.note(after.state(!kept.is_empty()), place.thread.shared.clock.now());
        }
        drop(unsent);
        match after {
            After::Read => read = true,
            After::Look => read = false,
            After::Later(pending) => {
                // In a box, as the other waits that few connections ever come to: within, they would be memory of each that idles.
                if !Box::pin(place.answer_later(&line, *pending)).await {
                    return;
                }
                read = kept.is_empty();
            }
            After::Settle(cloud, patience) => {
                let local = || line.stream.local_addr().ok();
                let ends = Ends { peer, local: &local };
                line.caller = Box::pin(place.settle(ends, cloud, patience)).await;
                // A head that was the strangers' until now is the pod's; what it may not hold, it sends again.
                if !kept.pass_to(&place.tenant.held) {
                    return;
                }
                read = false;
            }
            After::Close => return,
            After::Linger => return Box::pin(place.linger(&mut line.stream)).await,
        }
    }
}

impl Place {
    /// Once it is the caller's turn: reads once (or looks at what was kept), answers whole requests, writes once. Gives what the socket did not take
    /// and what comes next; nothing when the connection is over.
    ///
    /// A poll function and not a wait for readiness followed by a read: after a short read the runtime knows
    /// that the socket is empty and asks epoll at once, which saves a read of nothing per request. The scratch buffer
    /// is borrowed inside one poll only.
    fn poll_turn(
        &self,
        context: &mut Context<'_>,
        stream: &mut TcpStream,
        caller: &Caller,
        kept: &mut Held,
        read: bool,
    ) -> Poll<Option<(Held, After)>> {
        ready!(self.poll_admitted(context, read.then_some(&*stream)));
        let mut scratch = self.thread.scratch.borrow_mut();
        let Scratch { read: buffer, write: out } = &mut *scratch;
        let mut filled = kept.len().min(buffer.len());
        if read {
            let end = buffer.len().min(filled + READ);
            let mut rest = ReadBuf::new(&mut buffer[filled..end]);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut rest)) {
                Ok(()) if rest.filled().is_empty() => return Poll::Ready(None),
                Ok(()) => filled += rest.filled().len(),
                Err(_) => return Poll::Ready(None),
            }
        }
        self.thread.turns.take(&self.tenant.turns);
        buffer[..kept.len()].copy_from_slice(kept);
        Poll::Ready(self.turn(stream, caller, &buffer[..filled], kept, out))
    }

    fn turn(
        &self,
        stream: &TcpStream,
        caller: &Caller,
        bytes: &[u8],
        kept: &mut Held,
        out: &mut Vec<u8>,
    ) -> Option<(Held, After)> {
        out.clear();
        let now = self.thread.shared.clock.now();
        let asker = Asker {
            dialects: &self.dialects,
            caller,
            tenant: &self.tenant,
            came: self.came.take().unwrap_or(now),
        };
        let mut batch = self.thread.answer_all(asker, bytes, now, out);
        self.thread.turns.charge(&self.tenant.turns, batch.requests.saturating_sub(1) / PIPELINED);
        if !kept.replace(&bytes[batch.taken..]) {
            batch.after = self.thread.refuse_to_hold(&self.dialects, &batch.after, out)?;
        }
        if batch.taken > 0 && !kept.is_empty() {
            // Whole requests came, so the head behind them is another one and has a time of its own.
            self.note(State::Idle, now);
        }
        self.note(batch.after.state(!kept.is_empty()), now);
        let sent = send(stream, out)?;
        let mut unsent = self.tenant.held.nothing();
        unsent.replace_unsent(&out[sent..], UNREAD).then_some((unsent, batch.after))
    }

    /// Writes what the socket did not take at once. False when the client is gone.
    async fn flush(&self, stream: &TcpStream, mut unsent: &[u8]) -> bool {
        while !unsent.is_empty() {
            self.note(State::Write, self.thread.shared.clock.now());
            if stream.writable().await.is_err() {
                return false;
            }
            match send(stream, unsent) {
                Some(n) => unsent = &unsent[n..],
                None => return false,
            }
        }
        true
    }

    /// Writes an answer, and holds of it what the socket does not take at once. False when the client is gone, or may not hold so much.
    async fn write(&self, stream: &TcpStream, out: Vec<u8>) -> bool {
        let Some(sent) = send(stream, &out) else { return false };
        let mut unsent = self.tenant.held.nothing();
        let fits = unsent.replace_unsent(&out[sent..], UNREAD);
        drop(out);
        fits && self.flush(stream, &unsent).await
    }

    /// Ends the sending side and discards what the client still sends, up to a bound; the table's head timeout ends it too.
    async fn linger(&self, stream: &mut TcpStream) {
        const MOST: usize = 256 * 1024;
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut discarded = 0;
        while discarded < MOST {
            match poll_fn(|context| self.poll_discard(context, stream)).await {
                0 => return,
                n => discarded += n,
            }
        }
    }

    /// Reads into the thread's buffer and forgets it: one of its own would be part of every connection's task. A failed
    /// read gives nothing, as the end does.
    fn poll_discard(&self, context: &mut Context<'_>, stream: &mut TcpStream) -> Poll<usize> {
        ready!(self.poll_admitted(context, Some(&*stream)));
        let mut scratch = self.thread.scratch.borrow_mut();
        let mut room = ReadBuf::new(&mut scratch.read[..READ]);
        let _ = ready!(Pin::new(stream).poll_read(context, &mut room));
        self.thread.turns.take(&self.tenant.turns);
        Poll::Ready(room.filled().len())
    }

    /// Waits until it is known who asks, and what it may have of a cloud; whoever is not known by then is nobody, and is told why.
    async fn settle(&mut self, ends: Ends<'_>, cloud: CloudName, patience: Duration) -> Caller {
        let thread = self.thread.clone();
        let now = thread.shared.clock.now();
        self.came.set(Some(now));
        self.note(State::Busy, now);
        let callers = &thread.shared.callers;
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
            Ok(pod) if self.counts_for(&pod) => Caller::Pod(pod),
            Ok(_) => Caller::Nobody(FULL),
            Err(_) => {
                thread.metrics.held_in_vain();
                Caller::Nobody(callers.why_nobody(&ends, cloud))
            }
        }
    }

    /// Counts the connection for this pod from now on. False where the pod has no room for it.
    fn counts_for(&mut self, pod: &PodCaller) -> bool {
        let thread = &self.thread;
        if !Arc::ptr_eq(&self.tenant.connections, &pod.connections) {
            let Some(permit) = thread.permit(&pod.connections) else { return false };
            thread.connections.borrow_mut().settle(self.key, permit);
            self.tenant = thread.tenants.borrow_mut().pod(pod);
        }
        true
    }

    /// Waits for a slow answer and writes it. False when the connection is over.
    async fn answer_later(&self, line: &Line, pending: Pending) -> bool {
        let stream = &line.stream;
        let Pending { later, version, keep_alive, head_only, since, request } = pending;
        self.note(State::Busy, since);
        let route = later.route;
        let reply = tokio::select! {
            reply = later.reply => reply,
            () = gone(stream), if later.is_poll => return false,
        };
        // Its pod may have gone meanwhile, and another have its address: the sweep that ends its connections comes a moment later.
        if line.caller.is_gone() {
            return false;
        }
        let thread = &*self.thread;
        // The stop itself may be what ended the wait, before this thread has turned to it.
        let keep_alive = keep_alive && !thread.stop.has_begun();
        let now = thread.shared.clock.now();
        let mut out = Vec::new();
        let Written { status, rest } = {
            let mut date = thread.date.borrow_mut();
            let frame = Frame { date: date.at(&thread.shared.clock, now), version, keep_alive, head_only };
            reply.write(&Writing { frame: &frame, request, now }, &mut out)
        };
        thread.metrics.answered(route, status, now.since(since));
        let is_written = self.write(stream, out).await;
        let goes_on = match rest {
            Some((rest, length)) if is_written => {
                let is_whole = self.pass_on(stream, *rest, length).await;
                if is_whole.is_none() {
                    // Where the end of the connection is the body's, only a reset tells that it is not.
                    let _ = stream.set_zero_linger();
                }
                is_whole.unwrap_or(false) && keep_alive
            }
            _ => is_written && keep_alive,
        };
        self.note(State::Idle, thread.shared.clock.now());
        goes_on
    }

    /// Passes the rest of an answer on, part by part, as the client reads it. Each part is a turn of the caller's, and more where it
    /// came in many pieces. Whether the connection goes on after it; nothing if the answer broke off.
    async fn pass_on(&self, stream: &TcpStream, mut rest: Rest, length: Length) -> Option<bool> {
        let mut out = Vec::new();
        loop {
            self.note(State::Busy, self.thread.shared.clock.now());
            poll_fn(|context| self.poll_admitted(context, None)).await;
            let part = rest.next().await?;
            self.thread.turns.charge(&self.tenant.turns, 1 + part.pieces / PIECES);
            out.clear();
            length.part(&mut out, &part.bytes);
            if part.is_last {
                length.last(&mut out);
            }
            // A place at the real server is held meanwhile, so the whole part has its time, and not each byte of it.
            if !tokio::time::timeout(PART, self.flush(stream, &out)).await.unwrap_or(false) {
                return None;
            }
            if part.is_last {
                return Some(length != Length::UntilClose);
            }
        }
    }
}

/// Writes once: how much the socket took, or nothing if the client is gone.
fn send(stream: &TcpStream, bytes: &[u8]) -> Option<usize> {
    if bytes.is_empty() {
        return Some(0);
    }
    match stream.try_write(bytes) {
        Ok(n) => Some(n),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

/// Returns when the client has closed its side; never, once it has sent more instead.
async fn gone(stream: &TcpStream) {
    match stream.peek(&mut [0]).await {
        Ok(0) | Err(_) => {}
        Ok(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a function of a connection's four parts returns.
    fn size_of_returned<A, B, C, D, R>(_: impl Fn(A, B, C, D) -> R) -> usize {
        size_of::<R>()
    }

    /// Ten thousand connections that wait are ten thousand of these; what a connection seldom comes to is in a box.
    #[test]
    fn the_future_of_a_connection_stays_small() {
        let size = size_of_returned(connection);
        assert!(size <= 672, "{size} bytes");
    }
}
