//! The server: one thread accepts connections, reads requests, asks the model for their fate, and responds or closes at the right time.
//!
//! It uses plain sockets without a framework, because it must close, delay, not accept and count connections exactly, and take little CPU
//! from the generator that measures it. The model gets due events before new ones.

mod agenda;
mod answers;
mod connection;
mod cpu_thread;
mod dns_server;
mod head;
mod options;
mod poller;
mod running;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seawall_core::{Clock, Moment};
use slab::Slab;

use self::agenda::{DueEvent, EventQueue, PendingRequest};
pub(super) use self::answers::head_length;
use self::answers::{ResponseCache, ResponseKey};
use self::connection::{ConnectionInput, ConnectionToken, FaultConnection};
use self::cpu_thread::ComputeThread;
use self::head::Head;
use self::options::ConnectionRules;
pub use self::options::FaultServerOptions;
use self::poller::{DNS_TOKEN, Event, FaultServerPoller, LISTENER_TOKEN, is_peer_closed};
pub use self::running::{FaultServer, start};
use super::model::{FaultModel, GcraBucket, ModelStep, NanosSinceStart, PlannedResponse, RequestProgress};

/// The most connections accepted before the others get a turn.
const ACCEPTS: usize = 64;

/// The most requests of one connection before the others get a turn.
const REQUESTS: usize = 32;

/// The size of the read buffer in bytes.
const ROOM: usize = 16 * 1024;

/// The pause after a failed accept, which usually means a lack of file descriptors.
const ACCEPT_PAUSE: NanosSinceStart = 50_000_000;

/// The most DNS questions before the connections get a turn.
const QUESTIONS: usize = 64;

/// The event loop with its state.
struct Server {
    clock: Clock,
    began: Moment,
    stop: Arc<AtomicBool>,
    poller: FaultServerPoller,
    listener: TcpListener,
    is_accepting: bool,
    names: Option<DnsResponder>,
    rules: ConnectionRules,
    model: FaultModel,
    computer: Option<ComputeThread>,
    agenda: EventQueue,
    /// True while due events are handled; their handlers must not start that again.
    is_catching_up: bool,
    connections: Slab<FaultConnection>,
    /// The number of connections so far.
    number: u32,
    /// The time at which the latest new connection is set up.
    paid_until: NanosSinceStart,
    answers: ResponseCache,
    room: Box<[u8]>,
}

/// The DNS server.
struct DnsResponder {
    socket: UdpSocket,
    address: SocketAddr,
    delay: NanosSinceStart,
    limit: Option<GcraBucket>,
}

impl DnsResponder {
    fn bind(options: &FaultServerOptions) -> io::Result<Option<Self>> {
        let Some((address, plant)) = options.dns_address_and_fault() else { return Ok(None) };
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        // A burst of a tenth of a second's questions is allowed.
        let rate = Some(plant.parameter_value("rate")).filter(|rate| *rate > 0.0);
        let limit = rate.map(|rate| GcraBucket::new(rate, (rate / 10.0).max(1.0)));
        Ok(Some(Self { socket, address, delay: plant.parameter_as_nanos("delay"), limit }))
    }
}

impl Server {
    fn new(
        options: &FaultServerOptions,
        listener: TcpListener,
        names: Option<DnsResponder>,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (poller, clock) = (FaultServerPoller::new()?, Clock::system());
        poller.watch_level_triggered(&listener, LISTENER_TOKEN)?;
        names.as_ref().map_or(Ok(()), |names| poller.watch_level_triggered(&names.socket, DNS_TOKEN))?;
        let computes = options.fault_named("cpu").is_some();
        let computer = computes.then(|| ComputeThread::start(poller.waker(), stop.clone())).transpose()?;
        let service = u64::try_from(options.service_time.as_nanos()).unwrap_or(NanosSinceStart::MAX / 2);
        Ok(Self {
            began: clock.now(),
            clock,
            stop,
            poller,
            listener,
            is_accepting: true,
            names,
            rules: ConnectionRules::new(options),
            model: FaultModel::new(&options.planted_faults, service, options.seed),
            computer,
            agenda: EventQueue::default(),
            is_catching_up: false,
            connections: Slab::new(),
            number: 0,
            paid_until: 0,
            answers: ResponseCache::new(options.effective_body_bytes()),
            room: vec![0; ROOM].into(),
        })
    }

    /// Serves until the handle stops the server.
    fn run(mut self) -> io::Result<()> {
        let mut events = FaultServerPoller::event_buffer();
        while !self.stop.load(Ordering::Relaxed) {
            let until = self.agenda.next_due_time().map(|at| self.began + Duration::from_nanos(at));
            self.poller.wait(&mut events, until)?;
            self.catch_up();
            self.take_computed();
            for event in &events {
                self.happened(event);
            }
        }
        Ok(())
    }

    fn now(&self) -> NanosSinceStart {
        self.clock.now().as_nanos().saturating_sub(self.began.as_nanos())
    }

    /// Handles all due events and returns the current time.
    fn catch_up(&mut self) -> NanosSinceStart {
        let now = self.now();
        if !std::mem::replace(&mut self.is_catching_up, true) {
            while let Some((at, due)) = self.agenda.pop_due(now) {
                self.do_due(at, due);
            }
            self.is_catching_up = false;
        }
        now
    }

    fn do_due(&mut self, at: NanosSinceStart, due: DueEvent) {
        match due {
            DueEvent::Enter(mut flight) => {
                let step = self.model.enter(at, &mut flight.progress);
                self.follow(at, flight, step);
            }
            DueEvent::Proceed(mut flight) => {
                let step = self.model.continue_request(at, &mut flight.progress);
                self.follow(at, flight, step);
            }
            DueEvent::End(flight, fate) => self.end(at, &flight, fate),
            DueEvent::ReadMore(token) => self.pump(token),
            DueEvent::CheckIdle(token) => self.idle(at, token),
            DueEvent::Accept => self.resume_accepting(),
            DueEvent::DnsAnswer(to, answer) => self.tell_name(to, &answer),
        }
    }

    fn take_computed(&mut self) {
        while let Some(mut flight) = self.computer.as_ref().and_then(ComputeThread::take_finished) {
            let now = self.catch_up();
            let step = self.model.resume_computed(now, &mut flight.progress);
            self.follow(now, flight, step);
        }
    }

    fn happened(&mut self, event: &Event) {
        match event.data.u64() {
            LISTENER_TOKEN => self.accept(),
            DNS_TOKEN => self.answer_names(),
            bits => self.socket_happened(ConnectionToken::from_bits(bits), is_peer_closed(event)),
        }
    }

    fn connection(&mut self, token: ConnectionToken) -> Option<&mut FaultConnection> {
        let connection = self.connections.get_mut(token.table_index as usize)?;
        (connection.number == token.number).then_some(connection)
    }

    /// Schedules an event. If the schedule is full, the event is dropped.
    fn put(&mut self, at: NanosSinceStart, due: DueEvent) {
        match self.agenda.push(at, due) {
            Ok(()) | Err(DueEvent::CheckIdle(_) | DueEvent::Accept | DueEvent::DnsAnswer(..)) => {}
            Err(DueEvent::Enter(flight) | DueEvent::Proceed(flight) | DueEvent::End(flight, _)) => {
                self.model.end_request(&flight.progress);
                self.close(flight.connection);
            }
            Err(DueEvent::ReadMore(token)) => self.close(token),
        }
    }
}

/// Accepts and closes connections.
impl Server {
    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            if !self.rules.closes_excess && self.connections.len() >= self.rules.max_connections {
                return self.stop_accepting();
            }
            match self.listener.accept() {
                Ok((socket, _)) => self.welcome(socket),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.stop_accepting();
                    let again = self.now() + ACCEPT_PAUSE;
                    return self.put(again, DueEvent::Accept);
                }
            }
        }
    }

    fn stop_accepting(&mut self) {
        // If the listener cannot be unwatched, accepting continues.
        self.is_accepting = self.poller.unwatch(&self.listener).is_err();
    }

    fn resume_accepting(&mut self) {
        let has_room = self.rules.closes_excess || self.connections.len() < self.rules.max_connections;
        if !self.is_accepting && has_room {
            self.is_accepting = self.poller.watch_level_triggered(&self.listener, LISTENER_TOKEN).is_ok();
        }
    }

    /// Adds a new connection. A connection that is refused or cannot be watched is dropped, which closes it.
    fn welcome(&mut self, socket: TcpStream) {
        if self.connections.len() >= self.rules.max_connections || socket.set_nonblocking(true).is_err() {
            return;
        }
        // Small responses must not wait for the peer's delayed acknowledgement.
        let _ = socket.set_nodelay(true);
        let now = self.now();
        self.paid_until = self.paid_until.max(now) + self.rules.connect_cost;
        self.number = self.number.wrapping_add(1);
        let entry = self.connections.vacant_entry();
        let token = ConnectionToken { table_index: entry.key() as u32, number: self.number };
        let connection = FaultConnection::new(socket, self.number, now, self.paid_until);
        let is_watched = self.poller.watch(&connection.socket, token.bits()).is_ok();
        entry.insert(connection);
        if !is_watched {
            return self.close(token);
        }
        if let Some(idle) = self.rules.idle_timeout {
            self.put(now + idle, DueEvent::CheckIdle(token));
        }
    }

    fn close(&mut self, token: ConnectionToken) {
        if self.connection(token).is_some() {
            drop(self.connections.remove(token.table_index as usize));
            self.resume_accepting();
        }
    }

    /// Closes a connection that has been idle for the allowed time, or checks it again later.
    fn idle(&mut self, at: NanosSinceStart, token: ConnectionToken) {
        let (Some(idle), Some(connection)) = (self.rules.idle_timeout, self.connection(token)) else {
            return;
        };
        let due = if connection.is_busy { at + idle } else { connection.last_active + idle };
        if due > at { self.put(due, DueEvent::CheckIdle(token)) } else { self.close(token) }
    }

    fn socket_happened(&mut self, token: ConnectionToken, is_over: bool) {
        let Some(connection) = self.connection(token) else { return };
        (connection.is_readable, connection.is_over) = (true, connection.is_over || is_over);
        let is_broken = connection.flush().is_err();
        let is_done = connection.closes && !connection.is_busy && connection.is_written();
        if is_broken || is_done { self.close(token) } else { self.pump(token) }
    }
}

/// Handles requests.
impl Server {
    /// Continues a connection after new input or output.
    fn pump(&mut self, token: ConnectionToken) {
        self.take_requests(token);
        // A client that has closed its side gets no delayed response; nginx also treats this as the end.
        if self.connection(token).is_some_and(|connection| connection.is_over && connection.is_busy) {
            self.close(token);
        }
    }

    /// Takes the waiting requests, one after another.
    fn take_requests(&mut self, token: ConnectionToken) {
        for _ in 0..REQUESTS {
            let Some(connection) = self.connections.get_mut(token.table_index as usize) else { return };
            let waits = connection.is_busy || connection.closes || !connection.is_written();
            if connection.number != token.number || waits {
                return;
            }
            match connection.next(&mut self.room) {
                ConnectionInput::Request(head) => self.arrived(token, &head),
                ConnectionInput::Refused(refusal) => return self.refuse(token, refusal.status()),
                ConnectionInput::Nothing => return,
                ConnectionInput::Over => return self.close(token),
            }
        }
        let now = self.now();
        self.put(now, DueEvent::ReadMore(token));
    }

    fn arrived(&mut self, token: ConnectionToken, head: &Head) {
        let after = self.rules.max_requests;
        let Some(connection) = self.connection(token) else { return };
        connection.request_count = connection.request_count.saturating_add(1);
        if after.is_some_and(|after| connection.request_count > after) {
            return self.close(token);
        }
        // The busy flag comes first, because the next step may look for more input on this connection.
        (connection.is_busy, connection.closes) = (true, head.closes);
        let ready = connection.ready_at;
        let now = self.catch_up();
        let bytes = self.answers.ok_response_bytes(head.is_head);
        let course = RequestProgress::new(bytes);
        let flight = PendingRequest { connection: token, progress: course, is_head: head.is_head };
        let due = DueEvent::Enter(flight);
        if ready > now { self.put(ready, due) } else { self.do_due(now, due) }
    }

    /// Carries out the model's steps for a request.
    fn follow(&mut self, at: NanosSinceStart, flight: PendingRequest, step: ModelStep) {
        match step {
            ModelStep::Wait(then) => self.put(then, DueEvent::Proceed(flight)),
            ModelStep::End(then, fate) if then > at => self.put(then, DueEvent::End(flight, fate)),
            ModelStep::End(then, fate) => self.end(then, &flight, fate),
            ModelStep::Compute(work) => {
                if let Some(computer) = &self.computer {
                    computer.submit(flight, work);
                }
            }
        }
    }

    fn end(&mut self, at: NanosSinceStart, flight: &PendingRequest, fate: PlannedResponse) {
        self.model.end_request(&flight.progress);
        match fate {
            PlannedResponse::Close => self.close(flight.connection),
            PlannedResponse::Answer(status) => self.answer(at, flight, status),
        }
    }

    fn answer(&mut self, at: NanosSinceStart, flight: &PendingRequest, status: u16) {
        let (after, is_early) = (self.rules.max_requests, self.rules.ends_with_answer);
        let Some(connection) = self.connection(flight.connection) else { return };
        let (server, is_head, closes) = (flight.progress.server, flight.is_head, connection.closes);
        // The response does not announce the close, which causes the keep-alive race.
        connection.closes |= is_early && after.is_some_and(|after| connection.request_count >= after);
        let answer = self.answers.answer(ResponseKey { status, server, is_head, closes });
        self.send(at, flight.connection, answer);
    }

    fn refuse(&mut self, token: ConnectionToken, status: u16) {
        let now = self.now();
        let answer = self.answers.answer(ResponseKey { status, server: None, is_head: false, closes: true });
        if let Some(connection) = self.connection(token) {
            connection.closes = true;
        }
        self.send(now, token, answer);
    }

    fn send(&mut self, at: NanosSinceStart, token: ConnectionToken, answer: Arc<[u8]>) {
        let Some(connection) = self.connection(token) else { return };
        (connection.is_busy, connection.last_active) = (false, at);
        let is_broken = connection.write(answer).is_err();
        let (is_done, has_more) = (connection.closes && connection.is_written(), connection.has_more());
        if is_broken || is_done {
            self.close(token);
        } else if has_more {
            self.put(at, DueEvent::ReadMore(token));
        }
    }
}

/// Handles DNS questions.
impl Server {
    fn answer_names(&mut self) {
        for _ in 0..QUESTIONS {
            let now = self.now();
            let Some(names) = &mut self.names else { return };
            let mut question = [0; dns_server::MAX_QUESTION_BYTES];
            let Ok((length, from)) = names.socket.recv_from(&mut question) else { return };
            let is_told = names.limit.as_mut().is_none_or(|limit| limit.take(now));
            let answer = dns_server::answer(&question[..length], names.address.ip()).filter(|_| is_told);
            let due = now + names.delay;
            if let Some(answer) = answer {
                self.put(due, DueEvent::DnsAnswer(from, answer));
            }
        }
    }

    fn tell_name(&self, to: SocketAddr, answer: &[u8]) {
        if let Some(names) = &self.names {
            // If the answer cannot be sent, the client asks again.
            let _ = names.socket.send_to(answer, to);
        }
    }
}
