//! The load engine in front of a simulated target, with its schedule, connections and time limits. A request without an idle connection
//! opens one and stays on it. If no more connections are allowed, the request waits for the first idle one.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use fastrand::Rng;

use super::network_parts::{
    AcceptOutcome, KeepAlivePolicy, SetupStepServer, SimulatedLink, SimulatedListener, StallSchedule,
};
use super::servers::{ServerModel, exponential};
use crate::experiment::{Experiment, ExperimentLoad, RequestSpacing};
use crate::experiment_target::ExperimentTarget;
use crate::observed_requests::{ExperimentObservation, ObservedOutcome, ObservedRequest, RequestConnection};

/// A simulated target with the network in front of it.
pub struct ModelTarget {
    /// The server model.
    pub server: Box<dyn ServerModel>,
    /// The listener that accepts connections.
    pub listener: SimulatedListener,
    /// The keep-alive policy of the server.
    pub keep_alive_policy: KeepAlivePolicy,
    /// The TLS handshakes; none without TLS.
    pub tls_handshake_server: Option<SetupStepServer>,
    /// The DNS resolver; none if the target is an address.
    pub resolver: Option<SetupStepServer>,
    /// The network link for responses; none if its bandwidth is unlimited.
    pub link: Option<SimulatedLink>,
    /// The body size of a response in bytes.
    pub bytes: u64,
    /// True if the server answers HEAD like GET, but without a body.
    pub answers_head: bool,
    /// The number of local ports per source address.
    pub ports_per_source: usize,
    /// The stalls of the server, if any.
    pub stalls: Option<StallSchedule>,
    /// The short stalls of the client's machine, which every machine has.
    pub client_stalls: StallSchedule,
    /// The highest rate that the load engine can send, in requests per second.
    pub generator_max_rate: f64,
    /// True if the client has only one source address.
    pub has_one_source_address: bool,
    /// True if the search used keep-alive.
    pub keep_alive: bool,
    /// The time limit of a response, in seconds.
    pub timeout: f64,
    /// The network round trip, in seconds.
    pub trip: f64,
    /// The mean time that the machine adds to a response, in seconds.
    pub mean_machine_delay: f64,
    /// The source of random numbers.
    pub rng: Rng,
    /// The current time in seconds.
    pub now: f64,
    /// The time at which the user interrupts the experiments.
    pub interrupt_at: f64,
    /// The ports in use or in TIME_WAIT, for each of the two source addresses.
    pub ports_in_use_per_source: [usize; 2],
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum EventKind {
    Due(usize),
    Connect(usize),
    Connected(usize),
    Ready(usize),
    Answer(usize, ObservedOutcome),
    Expires(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Event {
    at: f64,
    order: u64,
    what: EventKind,
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.order.cmp(&other.order))
    }
}

#[derive(Debug, Clone, Copy)]
struct Request {
    due: f64,
    sent: Option<f64>,
    end: Option<(f64, ObservedOutcome)>,
    bytes: u64,
    on: Option<usize>,
    carrier: Option<RequestConnection>,
    resent: bool,
    begun: bool,
}

#[derive(Debug, Clone, Copy)]
struct Connection {
    asked: f64,
    stood: f64,
    ready: Option<f64>,
    requests: u64,
    quiet_since: f64,
    entry: AcceptOutcome,
    carries: Option<usize>,
    open: bool,
}

struct Run<'a> {
    target: &'a mut ModelTarget,
    experiment: &'a Experiment,
    keep_alive: bool,
    timeout: f64,
    began: f64,
    events: BinaryHeap<Reverse<Event>>,
    order: u64,
    requests: Vec<Request>,
    connections: Vec<Connection>,
    idle: Vec<usize>,
    waiting: VecDeque<usize>,
    open: usize,
    in_flight: usize,
    /// The requests that are not due yet.
    to_send: usize,
    stopped: bool,
    last_due: f64,
    watched: ExperimentObservation,
}

impl ExperimentTarget for ModelTarget {
    fn run_experiment(&mut self, experiment: &Experiment) -> ExperimentObservation {
        if experiment.variation.uses_another_source && self.has_one_source_address {
            let why = "this machine has no second address".to_owned();
            return ExperimentObservation {
                impossible_reason: Some(why),
                ..ExperimentObservation::default()
            };
        }
        if let ExperimentLoad::Rate { rate, lasts, .. } = experiment.load
            && rate > self.generator_max_rate
        {
            self.now += lasts.as_secs_f64();
            let why = "fewer requests were sent than were due".to_owned();
            return ExperimentObservation {
                invalid_reason: Some(why),
                took: lasts,
                ..ExperimentObservation::default()
            };
        }
        Run::new(self, experiment).carry_out()
    }

    fn pause(&mut self, time: Duration) -> bool {
        self.now += time.as_secs_f64();
        self.now <= self.interrupt_at
    }
}

impl<'a> Run<'a> {
    fn new(target: &'a mut ModelTarget, experiment: &'a Experiment) -> Self {
        let keep_alive = experiment.variation.keep_alive.unwrap_or(target.keep_alive);
        let timeout = experiment.variation.timeout.map_or(target.timeout, |timeout| timeout.as_secs_f64());
        let began = target.now;
        Self {
            target,
            experiment,
            keep_alive,
            timeout,
            began,
            events: BinaryHeap::new(),
            order: 0,
            requests: Vec::new(),
            connections: Vec::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            open: 0,
            in_flight: 0,
            to_send: 0,
            stopped: false,
            last_due: 0.0,
            watched: ExperimentObservation::default(),
        }
    }

    fn carry_out(mut self) -> ExperimentObservation {
        self.hold();
        let first = self.schedule();
        let mut now = self.began;
        while let Some(Reverse(event)) = self.events.pop() {
            let drained = self.last_due + self.experiment.drain.as_secs_f64();
            let sending = self.to_send > 0 && !self.stopped;
            if !sending && (self.in_flight == 0 || event.at > drained) {
                now = if self.in_flight == 0 { now } else { drained };
                break;
            }
            now = event.at;
            self.happen(event);
        }
        self.finish(first, now)
    }

    fn hold(&mut self) {
        for _ in 0..self.experiment.variation.held_idle_connections {
            let entry = self.target.listener.accept(usize::MAX);
            self.watched.held_connections_still_open +=
                usize::from(matches!(entry, AcceptOutcome::Served | AcceptOutcome::Queued));
        }
    }

    fn push(&mut self, at: f64, what: EventKind) {
        self.order += 1;
        self.events.push(Reverse(Event { at, order: self.order, what }));
    }

    /// Schedules the requests and returns the time of the first.
    fn schedule(&mut self) -> f64 {
        let began = self.began;
        match self.experiment.load.clone() {
            ExperimentLoad::Rate { rate, lasts, spacing } => {
                let mut at = 0.0;
                while at < lasts.as_secs_f64() {
                    self.plan(began + at);
                    let chance = if spacing == RequestSpacing::Constant {
                        1.0
                    } else {
                        exponential(&mut self.target.rng)
                    };
                    at += chance / rate;
                }
                began
            }
            ExperimentLoad::Clients { clients, .. } => {
                (0..clients).for_each(|_| self.plan(began));
                began
            }
            ExperimentLoad::Bursts { size, times, every, quiet } => {
                let first = began + quiet.as_secs_f64();
                for burst in 0..times {
                    (0..size).for_each(|_| self.plan(first + burst as f64 * every.as_secs_f64()));
                }
                first
            }
        }
    }

    fn plan(&mut self, due: f64) {
        let on = None;
        let request =
            Request { due, sent: None, end: None, bytes: 0, on, carrier: None, resent: false, begun: false };
        self.requests.push(request);
        self.to_send += 1;
        self.push(due, EventKind::Due(self.requests.len() - 1));
    }

    fn happen(&mut self, event: Event) {
        match event.what {
            EventKind::Due(request) => self.due(request, event.at),
            EventKind::Connect(connection) => self.connect(connection, event.at),
            EventKind::Connected(connection) => self.stands(connection, event.at),
            EventKind::Ready(connection) => self.ready(connection, event.at),
            EventKind::Answer(request, how) => self.end(request, event.at, how),
            EventKind::Expires(request) => {
                let sent = self.requests[request].sent.is_some();
                self.end(
                    request,
                    event.at,
                    if sent { ObservedOutcome::TimedOut } else { ObservedOutcome::ConnectTimedOut },
                );
            }
        }
    }

    fn due(&mut self, request: usize, at: f64) {
        self.to_send -= 1;
        self.stopped |= self.in_flight >= self.experiment.in_flight_cap;
        if self.stopped {
            return;
        }
        self.in_flight += 1;
        self.requests[request].begun = true;
        self.last_due = self.last_due.max(at);
        self.push(at + self.timeout, EventKind::Expires(request));
        self.find_connection(request, at);
    }

    fn find_connection(&mut self, request: usize, at: f64) {
        while let Some(connection) = self.idle.pop() {
            if self.connections[connection].open {
                return self.send(request, connection, at);
            }
        }
        if self.experiment.variation.max_connections.is_some_and(|most| self.open >= most) {
            return self.waiting.push_back(request);
        }
        self.open_connection(request, at);
    }

    fn open_connection(&mut self, request: usize, at: f64) {
        let source = usize::from(self.experiment.variation.uses_another_source);
        if self.target.ports_in_use_per_source[source] >= self.target.ports_per_source {
            return self.push(at, EventKind::Answer(request, ObservedOutcome::NoPort));
        }
        self.target.ports_in_use_per_source[source] += 1;
        let looked_up = match self.target.resolver.as_mut().filter(|_| !self.experiment.variation.skip_dns) {
            None => at,
            Some(resolver) => resolver.finish_time(at, &mut self.target.rng),
        };
        if looked_up > at {
            self.watched.seconds_of_each_lookup.push(looked_up - at);
        }
        self.watched.opened_connection_count += 1;
        self.open += 1;
        let connection = Connection {
            asked: looked_up,
            stood: 0.0,
            ready: None,
            requests: 0,
            quiet_since: at,
            entry: AcceptOutcome::Dropped,
            carries: Some(request),
            open: true,
        };
        self.connections.push(connection);
        self.requests[request].on = Some(self.connections.len() - 1);
        self.push(looked_up, EventKind::Connect(self.connections.len() - 1));
    }

    fn connect(&mut self, connection: usize, at: f64) {
        if !self.connections[connection].open {
            return;
        }
        let entry = self.target.listener.accept(connection);
        self.connections[connection].entry = entry;
        let chance = self.target.rng.f64();
        match entry {
            // Linux retransmits like this since 6.5 (`tcp_syn_linear_timeouts`).
            AcceptOutcome::Dropped => self.push(at + 1.0 + 0.03 * chance, EventKind::Connect(connection)),
            _ => self.push(at + self.target.trip * (0.5 + chance), EventKind::Connected(connection)),
        }
    }

    fn stands(&mut self, connection: usize, at: f64) {
        self.connections[connection].stood = at;
        let done = match self.target.tls_handshake_server.as_mut() {
            None => at,
            Some(handshake) => handshake.finish_time(at, &mut self.target.rng) + self.target.trip,
        };
        self.push(done, EventKind::Ready(connection));
    }

    fn ready(&mut self, connection: usize, at: f64) {
        self.connections[connection].ready = Some(at);
        if let Some(request) =
            self.connections[connection].carries.filter(|_| self.connections[connection].open)
        {
            self.send(request, connection, at);
        }
    }

    fn send(&mut self, request: usize, number: usize, at: f64) {
        let connection = self.connections[number];
        let idle = at - connection.quiet_since;
        self.requests[request].on = Some(number);
        self.requests[request].sent = Some(at);
        self.requests[request].carrier = Some(RequestConnection {
            number: number as u64,
            earlier_requests_on_connection: connection.requests,
            idle: if connection.requests == 0 { 0.0 } else { idle },
            connect: connection.stood - connection.asked,
            tls_handshake_seconds: self
                .target
                .tls_handshake_server
                .map(|_| connection.ready.unwrap_or(at) - connection.stood),
            first_byte: None,
        });
        self.connections[number].carries = Some(request);
        self.connections[number].requests += 1;
        let kept = self.target.keep_alive_policy;
        if connection.requests >= kept.max_requests_per_connection
            || connection.requests > 0 && idle > kept.idle_timeout
        {
            return self.meet_the_end(request, number, at);
        }
        match connection.entry {
            AcceptOutcome::Served => self.serve(request, at),
            AcceptOutcome::ClosedByFullServer => {
                self.push(at + self.target.trip, EventKind::Answer(request, ObservedOutcome::Cut));
            }
            AcceptOutcome::Queued | AcceptOutcome::Dropped => {}
        }
    }

    /// Handles a connection that the server has closed: the client retries the request once, and then the request fails.
    fn meet_the_end(&mut self, request: usize, connection: usize, at: f64) {
        if !self.target.keep_alive_policy.client_retries || self.requests[request].resent {
            return self.push(at + self.target.trip, EventKind::Answer(request, ObservedOutcome::Cut));
        }
        self.watched.silent_retry_count += 1;
        self.requests[request].resent = true;
        self.close(connection, at);
        self.find_connection(request, at + self.target.trip);
    }

    fn serve(&mut self, request: usize, at: f64) {
        let target = &mut *self.target;
        let at = target.client_stalls.delay_past_stall(at, &mut target.rng);
        let at = target.stalls.as_mut().map_or(at, |stalls| stalls.delay_past_stall(at, &mut target.rng));
        let mut fate = target.server.serve(at, &mut target.rng);
        let head = self.experiment.variation.uses_head_method;
        if head && !target.answers_head && fate.outcome == ObservedOutcome::Good {
            fate.outcome = ObservedOutcome::BadResponse(501);
        }
        let bytes = if head || fate.outcome != ObservedOutcome::Good { 120 } else { target.bytes };
        let mut end = target
            .link
            .as_mut()
            .filter(|_| fate.end.is_finite())
            .map_or(fate.end, |link| link.finish_time(fate.end, bytes));
        end = target.stalls.as_mut().map_or(end, |stalls| stalls.delay_past_stall(end, &mut target.rng));
        end += target.trip + target.mean_machine_delay * exponential(&mut target.rng);
        if end.is_infinite() {
            return;
        }
        self.requests[request].bytes = if head { 0 } else { bytes };
        let sent = self.requests[request].sent.unwrap_or(at);
        if let Some(carrier) = self.requests[request].carrier.as_mut() {
            carrier.first_byte = Some(end - sent);
        }
        self.push(end, EventKind::Answer(request, fate.outcome));
    }

    fn end(&mut self, request: usize, at: f64, how: ObservedOutcome) {
        if self.requests[request].end.is_some() {
            return;
        }
        self.requests[request].end = Some((at, how));
        self.in_flight -= 1;
        if let Some(connection) = self.requests[request].on {
            self.release(connection, at, how);
        }
        self.next_of_client(at);
    }

    fn release(&mut self, connection: usize, at: f64, how: ObservedOutcome) {
        let answered = matches!(how, ObservedOutcome::Good | ObservedOutcome::BadResponse(_));
        if !answered || !self.keep_alive || self.target.keep_alive_policy.closes_after_each_response {
            self.close(connection, at);
            if let Some(waiting) = self.next_waiting() {
                self.open_connection(waiting, at);
            }
            return;
        }
        self.connections[connection].quiet_since = at;
        self.connections[connection].carries = None;
        match self.next_waiting() {
            Some(waiting) => self.send(waiting, connection, at),
            None => self.idle.push(connection),
        }
    }

    fn next_waiting(&mut self) -> Option<usize> {
        while let Some(waiting) = self.waiting.pop_front() {
            if self.requests[waiting].end.is_none() {
                return Some(waiting);
            }
        }
        None
    }

    fn close(&mut self, connection: usize, at: f64) {
        if !std::mem::replace(&mut self.connections[connection].open, false) {
            return;
        }
        self.open -= 1;
        if self.connections[connection].entry == AcceptOutcome::Served {
            self.leave(at);
        }
    }

    /// Serves the next connection in the backlog; a client that has gone away meanwhile is skipped.
    fn leave(&mut self, at: f64) {
        while let Some(next) = self.target.listener.close_connection() {
            let Some(connection) = self.connections.get_mut(next) else { continue };
            connection.entry = AcceptOutcome::Served;
            if connection.open {
                let sent = connection.carries.filter(|request| self.requests[*request].sent.is_some());
                return sent.map_or((), |request| self.serve(request, at));
            }
        }
    }

    fn next_of_client(&mut self, at: f64) {
        let ExperimentLoad::Clients { lasts, requests, .. } = self.experiment.load else { return };
        if at < self.began + lasts.as_secs_f64() && (self.requests.len() as u64) < requests {
            self.plan(at);
        }
    }

    /// Closes all connections and returns the observation.
    fn finish(mut self, first: f64, now: f64) -> ExperimentObservation {
        let hits = self.requests.iter().filter(|request| request.begun);
        self.watched.requests = hits.map(|request| hit(request, first, now)).collect();
        self.target.listener.close_all();
        self.target.now = now.max(self.last_due);
        self.watched.took = Duration::from_secs_f64((now - self.began).max(0.0));
        self.watched.interrupted = now > self.target.interrupt_at;
        self.watched
    }
}

fn hit(request: &Request, first: f64, now: f64) -> ObservedRequest {
    let (end, how) = request.end.unwrap_or((now, ObservedOutcome::UnansweredAtEnd));
    ObservedRequest {
        due: request.due - first,
        sent: request.sent.map(|sent| sent - first),
        generator_lag: 0.0,
        end: end - first,
        outcome: how,
        bytes: request.bytes,
        carrying_connection: request.carrier,
    }
}
