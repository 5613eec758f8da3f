//! Runs the loops of a traffic thread: the event loop, the round loop, and the drain.
//!
//! [`mod@super::ready_queue`] holds the connections that have work to do. [`ConnectionOnThread`] does the work of one connection.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::epoll::EventFlags;

use super::connection_task::ConnectionOnThread;
use super::{ACCEPT_PAUSE, DRAIN, FIRST_REQUESTS, LAST_REQUESTS, REPLACED_DRAIN, ThreadPhase, TrafficThread};
use crate::connection_client::ServedPod;
use crate::connection_table::ConnectionKey;
use crate::epoll::MAX_EVENTS;
use crate::watchdog::ThreadActivity;

impl<P: ServedPod> TrafficThread<P> {
    /// Serves the ready connections, pass after pass. All other tasks of the thread run between two passes. Returns only if the
    /// poller fails.
    pub(super) async fn serve_ready(self: Rc<Self>) -> io::Result<()> {
        loop {
            poll_fn(|context| self.ready_queue.poll_pending(context)).await?;
            self.do_what_there_is()?;
            self.heartbeat.set_activity(ThreadActivity::Wait);
            // Pause even after a pass without turns, because the pass itself costs CPU time.
            self.rest();
            if self.ready_queue.has_pending() {
                tokio::task::yield_now().await;
            }
        }
    }

    fn do_what_there_is(self: &Rc<Self>) -> io::Result<()> {
        let waiting = self.ready_queue.ready_connection_keys.borrow().len();
        for _ in 0..waiting {
            let next = self.ready_queue.ready_connection_keys.borrow_mut().pop_front();
            self.go_on(next, None);
        }
        let told = self
            .ready_queue
            .poller
            .for_each_event(|key, flags| self.go_on(usize::try_from(key).ok(), Some(flags)))?;
        self.ready_queue.may_have_more.set(told == MAX_EVENTS);
        Ok(())
    }

    fn go_on(self: &Rc<Self>, key: Option<ConnectionKey>, told: Option<EventFlags>) {
        let find = |key| self.connections.borrow().get(key).cloned();
        if let Some(connection) = key.and_then(find) {
            ConnectionOnThread { thread: self.clone(), connection }.run_turn(told);
        }
    }

    /// Begins a round whenever a connection waits for the next round.
    /// A round begins after the thread has checked all ready connections. While several clients are active, the CPU quota limits
    /// the rate of rounds.
    pub(super) async fn run_rounds(self: Rc<Self>) {
        loop {
            self.scheduler.wait_for_round_request().await;
            tokio::task::yield_now().await;
            if self.is_accept_failing.take() {
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            let rest = self.owed_rest();
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
            let find = |key| self.connections.borrow().get(key).cloned();
            self.scheduler.begin_round(|key, of| {
                find(key).is_some_and(|connection| {
                    ConnectionOnThread { thread: self.clone(), connection }.resume_if_waiting_for_turn(of)
                })
            });
        }
    }

    /// Completes the requests that are in progress or have arrived, and closes all other connections.
    /// If another agent already accepts new connections, an idle connection first gets time for one more request, and a client that has sent
    /// nothing yet gets more time. The answer to that request tells the client to close the connection. This avoids errors: if an idle
    /// connection simply closes, a request that is already on the way fails. If no other agent runs yet, the drain gives no extra time,
    /// because extra time would only delay the start of the other agent.
    ///
    /// `accepts` accepts the last connections, within [`DRAIN`] or [`FIRST_REQUESTS`].
    pub(super) async fn drain(self: &Rc<Self>, accepts: impl Future<Output = ()>) {
        let begun = tokio::time::Instant::now();
        let all_gone_until = async |limit: Duration| {
            tokio::time::timeout(limit.saturating_sub(begun.elapsed()), self.all_gone()).await
        };
        let is_replaced = self.phase.get() == ThreadPhase::LastRequests;
        let wait_for_requests = async {
            if is_replaced {
                let _ = all_gone_until(LAST_REQUESTS).await;
                self.begin_phase(ThreadPhase::FirstRequests);
                let _ = all_gone_until(FIRST_REQUESTS).await;
            }
        };
        tokio::join!(accepts, wait_for_requests);
        if is_replaced {
            // For the connections that were accepted after all others had gone.
            let _ = all_gone_until(FIRST_REQUESTS).await;
        }
        self.begin_phase(ThreadPhase::Ending);
        if all_gone_until(if is_replaced { REPLACED_DRAIN } else { DRAIN }).await.is_err() {
            tracing::warn!(
                open = self.connections.borrow().len(),
                "the drain timed out; the agent closes the open connections"
            );
        }
    }

    /// Begins a phase, and closes the connections that may no longer wait for a request.
    fn begin_phase(self: &Rc<Self>, phase: ThreadPhase) {
        self.phase.set(phase);
        let idle = self.connections.borrow().idle_connections();
        // Consume the list, because each entry keeps its socket open.
        idle.into_iter().for_each(|connection| {
            ConnectionOnThread { thread: self.clone(), connection }.close_unless_request_arrived();
        });
    }
}

#[cfg(test)]
mod tests {
    use seawall_core::cloud::CloudName;
    use seawall_core::{Clock, shutdown};
    use seawall_http::{Refusal, RequestHead, ResponseContext};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::LocalSet;
    use tokio::time::{sleep, timeout};

    use super::super::REPLACED_ACCEPTS;
    use super::*;
    use crate::connection_client::Client;
    use crate::handler::{ActiveDialects, HandlerOutcome, ListenerDialects, MetadataDialect, RequestContext};
    use crate::listen::shards::new_test_shards;
    use crate::route;
    use crate::testing::{FakePod, new_test_thread};

    /// Answers each request with `answer`.
    #[derive(Debug)]
    struct Answerer;

    impl MetadataDialect<FakePod> for Answerer {
        fn cloud(&self) -> CloudName {
            CloudName::Google
        }

        fn serves_path(&self, _: &str) -> bool {
            true
        }

        fn keeps_alive_after(&self, _: &str) -> bool {
            true
        }

        fn identity_timeout(&self, _: &RequestHead<'_, '_>) -> Duration {
            Duration::ZERO
        }

        fn answer(
            &self,
            _: &Client<FakePod>,
            _: RequestContext<'_, '_, '_>,
            out: &mut Vec<u8>,
        ) -> HandlerOutcome<FakePod> {
            out.extend_from_slice(b"answer");
            HandlerOutcome::Answered { route: &route::REFUSED, status: 200 }
        }

        fn refuse(&self, _: &Refusal, _: &ResponseContext<'_>, _: &mut Vec<u8>) {}
    }

    /// Returns what the client reads in the next millisecond of the runtime's clock: `open` if it reads nothing.
    async fn read(client: &mut TcpStream) -> String {
        let mut bytes = [0; 100];
        match timeout(Duration::from_millis(1), client.read(&mut bytes)).await {
            Err(_) => "open".to_owned(),
            Ok(Ok(0)) => "closed".to_owned(),
            Ok(read) => String::from_utf8_lossy(&bytes[..read.unwrap()]).into_owned(),
        }
    }

    async fn ask(client: &mut TcpStream) -> String {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        read(client).await
    }

    fn new_answering_thread() -> Rc<TrafficThread<FakePod>> {
        let mut thread = new_test_thread::<FakePod>(&Clock::system(), &[&route::REFUSED]);
        let dialects = ListenerDialects::new([Rc::new(Answerer) as Rc<dyn MetadataDialect<_>>]).unwrap();
        thread.listeners = vec![Rc::new(ActiveDialects::new(dialects))];
        Rc::new(thread)
    }

    /// Returns the client of a new connection that the thread serves.
    async fn connect(thread: &Rc<TrafficThread<FakePod>>, listener: &TcpListener) -> TcpStream {
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, peer) = listener.accept().await.unwrap();
        thread.admit(accepted.into_std().unwrap(), peer, 0, 0);
        client
    }

    /// Runs a drain of a thread with three connections: the first is silent to the end, the second asks `late` after the drain has begun, and the
    /// third has had an answer. Returns what they read, and how long the drain took.
    async fn drain(first_phase: ThreadPhase, late: Duration) -> (Vec<String>, Duration) {
        let thread = new_answering_thread();
        let run = async {
            let serving = tokio::task::spawn_local(thread.clone().serve_ready());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut clients = Vec::new();
            for _ in 0..3 {
                clients.push(connect(&thread, &listener).await);
            }
            assert_eq!(ask(&mut clients[2]).await, "answer");
            let begun = tokio::time::Instant::now();
            thread.phase.set(first_phase);
            let draining = {
                let thread = thread.clone();
                tokio::task::spawn_local(async move {
                    thread.drain(async {}).await;
                    tokio::time::Instant::now()
                })
            };
            sleep(late).await;
            let of_late = match read(&mut clients[1]).await {
                open if open == "open" => ask(&mut clients[1]).await,
                closed => closed,
            };
            let of_used = read(&mut clients[2]).await;
            let ended = draining.await.unwrap();
            serving.abort();
            (vec![read(&mut clients[0]).await, of_late, of_used], ended - begun)
        };
        LocalSet::new().run_until(run).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_agent_answers_the_first_request_of_a_client_that_sends_it_late() {
        let (read, took) =
            drain(ThreadPhase::LastRequests, FIRST_REQUESTS - Duration::from_millis(100)).await;
        assert_eq!(read, ["closed", "answer", "closed"]);
        assert!((FIRST_REQUESTS..REPLACED_DRAIN).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_agent_answers_a_connection_that_it_accepts_after_all_others_have_gone() {
        let thread = new_answering_thread();
        let run = async {
            let serving = tokio::task::spawn_local(thread.clone().serve_ready());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            thread.phase.set(ThreadPhase::LastRequests);
            let (told, accepted) = tokio::sync::oneshot::channel();
            let accepts = async {
                sleep(REPLACED_ACCEPTS).await;
                let _ = told.send(connect(&thread, &listener).await);
            };
            let late = async {
                let mut client = accepted.await.unwrap();
                sleep(Duration::from_secs(5)).await;
                ask(&mut client).await
            };
            let ((), answer) = tokio::join!(thread.drain(accepts), late);
            serving.abort();
            answer
        };
        assert_eq!(LocalSet::new().run_until(run).await, "answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_agent_waits_for_used_connections_for_less_time() {
        let (read, _) = drain(ThreadPhase::LastRequests, LAST_REQUESTS - Duration::from_millis(100)).await;
        assert_eq!(read, ["closed", "answer", "open"]);
        let (read, _) = drain(ThreadPhase::LastRequests, LAST_REQUESTS + Duration::from_millis(100)).await;
        assert_eq!(read, ["closed", "answer", "closed"]);
    }

    /// The kernel withholds silent connections of an overloaded shard for longer, and the clients see them as open.
    #[tokio::test(start_paused = true)]
    async fn a_replaced_agent_accepts_from_an_overloaded_shard_for_longer() {
        for (is_overloaded, expected) in [(false, REPLACED_ACCEPTS), (true, FIRST_REQUESTS)] {
            let mut thread = new_test_thread::<FakePod>(&Clock::system(), &[&route::REFUSED]);
            let (stopper, stop) = shutdown::stop_channel();
            stopper.stop_as_replaced();
            thread.stop = stop;
            let (mut shards, _) = new_test_shards(2);
            if is_overloaded {
                shards.pause_shard(1).unwrap();
                shards.limit_backlogs(thread.shared.clock.now(), Duration::from_millis(250)).unwrap();
            }
            let begun = tokio::time::Instant::now();
            Rc::new(thread).accept(shards).await;
            let took = begun.elapsed();
            assert!((expected..expected + Duration::from_millis(10)).contains(&took), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_nobody_replaces_waits_for_no_request() {
        let (read, took) = drain(ThreadPhase::Ending, Duration::from_millis(100)).await;
        assert_eq!(read, ["closed", "closed", "closed"]);
        assert!(took < Duration::from_millis(100), "{took:?}");
    }
}
