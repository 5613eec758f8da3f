//! Workers: pools, a balancer, a thread with a CPU quota, a proxy with a timeout.
//!
//! The end of work is known when it arrives: it starts when the first worker is free, independent of the server's loop.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fastrand::Rng;

use super::NanosSinceStart;
use super::chance::RandomDuration;
use super::disturbance::Disturbances;
use crate::fault_syntax::PlantedFault;

/// A pool of workers with one queue, first come, first served.
#[derive(Debug)]
pub(super) struct WorkerPool {
    /// The time at which each worker is free.
    free: BinaryHeap<Reverse<NanosSinceStart>>,
    service: RandomDuration,
    line: WaitQueue,
}

/// The queue, as the times at which its requests start.
#[derive(Debug)]
struct WaitQueue {
    starts: VecDeque<NanosSinceStart>,
    most: usize,
}

impl WaitQueue {
    /// Returns whether the queue has room at this time.
    fn has_room(&mut self, at: NanosSinceStart) -> bool {
        while self.starts.front().is_some_and(|start| *start <= at) {
            self.starts.pop_front();
        }
        self.starts.len() < self.most
    }
}

/// The length of a queue without a parameter.
const QUEUE: usize = 100_000;

impl WorkerPool {
    pub(super) fn new(plant: &PlantedFault, queue: Option<usize>, slow: f64) -> Self {
        let mean = (plant.parameter_as_nanos("service") as f64 * slow).round() as NanosSinceStart;
        Self {
            free: (0..plant.parameter_as_usize("workers")).map(|_| Reverse(0)).collect(),
            service: RandomDuration::new(mean, plant.parameter_value("cv")),
            line: WaitQueue { starts: VecDeque::new(), most: queue.unwrap_or(QUEUE) },
        }
    }

    /// Returns the end of a request that arrives now; none if the queue is full.
    pub(super) fn schedule(
        &mut self,
        at: NanosSinceStart,
        weather: &mut Disturbances,
        rng: &mut Rng,
    ) -> Option<NanosSinceStart> {
        let start = self.start(at)?;
        let end = weather.end_of_work(start, self.service.draw(rng), start - at, self.free.len());
        self.occupy(at, start, end);
        Some(end)
    }

    /// Schedules work like [`schedule`](Self::schedule), for a client that times out at `until`. Work that has not started by
    /// then is dropped, and running work ends then.
    fn take_until(
        &mut self,
        at: NanosSinceStart,
        until: NanosSinceStart,
        weather: &mut Disturbances,
        rng: &mut Rng,
    ) -> Option<NanosSinceStart> {
        let start = self.start(at)?;
        if start >= until {
            return Some(start.saturating_add(1));
        }
        let end = weather.end_of_work(start, self.service.draw(rng), start - at, self.free.len());
        self.occupy(at, start, end.min(until));
        Some(end)
    }

    fn start(&mut self, at: NanosSinceStart) -> Option<NanosSinceStart> {
        let Reverse(free) = *self.free.peek()?;
        let start = free.max(at);
        (start == at || self.line.has_room(at)).then_some(start)
    }

    fn occupy(&mut self, at: NanosSinceStart, start: NanosSinceStart, end: NanosSinceStart) {
        if let Some(mut first) = self.free.peek_mut() {
            *first = Reverse(end);
        }
        if start > at {
            self.line.starts.push_back(start);
        }
    }
}

/// A weighted round-robin balancer over several pools.
#[derive(Debug)]
pub(super) struct Balancer {
    servers: Vec<Server>,
    pub(super) names_server: bool,
}

#[derive(Debug)]
struct Server {
    pool: WorkerPool,
    weight: i64,
    turn: i64,
}

impl Balancer {
    pub(super) fn new(plant: &PlantedFault) -> Self {
        let server = |number| {
            let (slow, weight) = if number == 0 {
                (plant.parameter_value("slow"), plant.parameter_as_usize("weight") as i64)
            } else {
                (1.0, 1)
            };
            Server { pool: WorkerPool::new(plant, None, slow), weight, turn: 0 }
        };
        let servers = (0..plant.parameter_as_usize("servers")).map(server).collect();
        Self { servers, names_server: plant.parameter_is_word("header", "yes") }
    }

    /// Returns the chosen server and the end of the request there.
    pub(super) fn schedule(
        &mut self,
        at: NanosSinceStart,
        weather: &mut Disturbances,
        rng: &mut Rng,
    ) -> (u8, Option<NanosSinceStart>) {
        let number = self.next();
        let taken = self.servers.get_mut(number).and_then(|server| server.pool.schedule(at, weather, rng));
        (u8::try_from(number).unwrap_or(u8::MAX), taken)
    }

    /// Returns the index of the next server by its weight.
    fn next(&mut self) -> usize {
        let all: i64 = self.servers.iter().map(|server| server.weight).sum();
        self.servers.iter_mut().for_each(|server| server.turn += server.weight);
        let next = (0..self.servers.len()).max_by_key(|&n| (self.servers[n].turn, Reverse(n))).unwrap_or(0);
        self.servers[next].turn -= all;
        next
    }
}

/// A proxy before a pool, with a timeout and retries.
#[derive(Debug)]
pub(super) struct TimeoutProxy {
    pool: WorkerPool,
    timeout: NanosSinceStart,
    tries: usize,
    drops: bool,
}

/// The result of one try.
#[derive(Debug, PartialEq)]
pub(super) enum AttemptResult {
    Done(NanosSinceStart),
    /// The try timed out at this time. The caller may try again then.
    GivenUp(NanosSinceStart),
}

impl TimeoutProxy {
    pub(super) fn new(plant: &PlantedFault) -> Self {
        Self {
            pool: WorkerPool::new(plant, None, 1.0),
            timeout: plant.parameter_as_nanos("timeout"),
            tries: plant.parameter_as_usize("tries"),
            drops: plant.parameter_is_word("late", "dropped"),
        }
    }

    pub(super) fn attempt(
        &mut self,
        at: NanosSinceStart,
        weather: &mut Disturbances,
        rng: &mut Rng,
    ) -> AttemptResult {
        let until = at + self.timeout;
        let end = if self.drops {
            self.pool.take_until(at, until, weather, rng)
        } else {
            self.pool.schedule(at, weather, rng)
        };
        end.filter(|end| *end <= until).map_or(AttemptResult::GivenUp(until), AttemptResult::Done)
    }

    /// Returns whether this was the last try.
    pub(super) fn is_last_try(&self, tries: u8) -> bool {
        usize::from(tries) >= self.tries
    }
}

/// A thread with a CPU quota.
#[derive(Debug)]
pub(super) struct QuotaThread {
    period: NanosSinceStart,
    granted: NanosSinceStart,
    work: RandomDuration,
    free_at: NanosSinceStart,
    /// The period that `used` belongs to.
    current: u64,
    used: NanosSinceStart,
    line: WaitQueue,
}

/// The interval at which the kernel checks the quota, at 1,000 ticks per second. A thread that runs over its quota within a tick owes that
/// time in the next period (sched/fair.c, `cfs_rq->runtime_remaining` below 0).
const TICK: NanosSinceStart = 1_000_000;

impl QuotaThread {
    pub(super) fn new(plant: &PlantedFault) -> Self {
        let period = plant.parameter_as_nanos("period").max(1);
        Self {
            period,
            granted: ((period as f64 * plant.parameter_value("share")) as NanosSinceStart).max(1),
            work: RandomDuration::new(plant.parameter_as_nanos("work"), plant.parameter_value("cv")),
            free_at: 0,
            current: 0,
            used: 0,
            line: WaitQueue { starts: VecDeque::new(), most: QUEUE },
        }
    }

    pub(super) fn schedule(
        &mut self,
        at: NanosSinceStart,
        weather: &mut Disturbances,
        rng: &mut Rng,
    ) -> Option<NanosSinceStart> {
        let start = self.free_at.max(at);
        if start > at && !self.line.has_room(at) {
            return None;
        }
        let unthrottled = weather.end_of_work(start, self.work.draw(rng), start - at, 1);
        self.free_at = self.run(start, unthrottled - start);
        if start > at {
            self.line.starts.push_back(start);
        }
        Some(self.free_at)
    }

    /// Runs work tick by tick and stops when the period's quota is used up.
    fn run(&mut self, start: NanosSinceStart, work: NanosSinceStart) -> NanosSinceStart {
        let (mut at, mut left) = (start, work);
        while left > 0 {
            at = self.unthrottled(at);
            // A piece ends with its period, because its time counts against that period.
            let piece = left.min(TICK).min((self.current + 1) * self.period - at);
            (at, left, self.used) = (at + piece, left - piece, self.used + piece);
        }
        at
    }

    /// Returns this time, or the start of the next period with quota left.
    fn unthrottled(&mut self, at: NanosSinceStart) -> NanosSinceStart {
        self.refill(at / self.period);
        if self.used < self.granted {
            return at;
        }
        let periods = self.used / self.granted;
        self.refill(self.current + periods);
        self.current * self.period
    }

    fn refill(&mut self, period: u64) {
        let granted = (period.saturating_sub(self.current)).saturating_mul(self.granted);
        (self.used, self.current) = (self.used.saturating_sub(granted), period.max(self.current));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: NanosSinceStart = 1_000_000;
    const SECOND: NanosSinceStart = 1000 * MS;

    fn plant(text: &str) -> PlantedFault {
        PlantedFault::parse(text).unwrap()
    }

    fn still() -> (Disturbances, Rng) {
        (Disturbances::new(&[], 1), Rng::with_seed(7))
    }

    fn pool(text: &str) -> WorkerPool {
        let plant = plant(text);
        WorkerPool::new(&plant, Some(plant.parameter_as_usize("queue")), 1.0)
    }

    /// Returns the mean wait in a queue of `workers` exponential servers at this utilisation, in service times (Erlang C).
    fn erlang_c_wait(workers: u32, utilisation: f64) -> f64 {
        let load = f64::from(workers) * utilisation;
        let blocking = crate::truth::erlang_b(workers, load);
        let waits = blocking / (1.0 - utilisation * (1.0 - blocking));
        waits / (f64::from(workers) * (1.0 - utilisation))
    }

    #[test]
    fn a_pool_waits_as_long_as_erlang_says() {
        for (workers, utilisation) in [(1, 0.5), (4, 0.8), (8, 0.9)] {
            let mut pool = pool(&format!("pool,workers={workers},service=10ms,cv=1"));
            let ((mut weather, mut rng), requests) = (still(), 400_000_u32);
            let (mut at, mut sum) = (0.0, 0.0);
            for _ in 0..requests {
                at += -(1.0 - rng.f64()).ln() * 0.01 / (f64::from(workers) * utilisation);
                let arrival = (at * 1e9) as NanosSinceStart;
                sum += (pool.schedule(arrival, &mut weather, &mut rng).unwrap() - arrival) as f64 / 1e7;
            }
            let (measured, expected) = (sum / f64::from(requests), 1.0 + erlang_c_wait(workers, utilisation));
            assert!(
                (measured / expected - 1.0).abs() < 0.05,
                "{workers} {utilisation}: {measured} {expected}"
            );
        }
    }

    #[test]
    fn a_pool_ends_at_its_rate_whenever_requests_come_and_refuses_beyond_its_queue() {
        let (mut weather, mut rng) = still();
        let mut pool = pool("pool,workers=8,service=40ms,queue=50");
        let ends: Vec<_> = (0..500).filter_map(|_| pool.schedule(SECOND, &mut weather, &mut rng)).collect();
        assert_eq!(ends.len(), 58);
        assert_eq!(
            (ends[0], ends[7], ends[8], ends[57]),
            (SECOND + 40 * MS, SECOND + 40 * MS, SECOND + 80 * MS, SECOND + 320 * MS)
        );
        // By then ten requests are served, so ten places are free.
        let later = (0..500).filter_map(|_| pool.schedule(SECOND + 80 * MS, &mut weather, &mut rng)).count();
        assert_eq!(later, 16);
    }

    #[test]
    fn requests_go_round_by_weight() {
        let mut balancer = Balancer::new(&plant("uneven,servers=3,weight=2,slow=1,service=1ms"));
        let turns: Vec<_> = (0..8).map(|_| balancer.next()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 0, 1, 2, 0]);
    }

    #[test]
    fn the_slow_server_of_a_balancer_ramps_and_the_others_do_not() {
        let (mut weather, mut rng) = still();
        let mut balancer = Balancer::new(&plant("uneven,servers=3,workers=1,service=10ms,slow=5"));
        let mut latest = [0; 3];
        for n in 0..300_u64 {
            let (server, end) = balancer.schedule(n * 10 * MS, &mut weather, &mut rng);
            latest[usize::from(server)] = end.unwrap() - n * 10 * MS;
        }
        assert_eq!((latest[1], latest[2]), (10 * MS, 10 * MS));
        assert!(latest[0] > SECOND, "{}", latest[0]);
    }

    #[test]
    fn a_quota_gives_its_share_of_each_period_and_stands_still_for_the_rest() {
        let ((mut weather, mut rng), mut quota) =
            (still(), QuotaThread::new(&plant("quota,share=0.2,work=1ms")));
        let ends: Vec<_> = (0..1000).filter_map(|_| quota.schedule(0, &mut weather, &mut rng)).collect();
        assert_eq!((ends[0], ends[19], ends[20], ends[999]), (MS, 20 * MS, 101 * MS, 4920 * MS));
    }

    #[test]
    fn what_a_quota_let_run_over_is_a_debt() {
        let (mut weather, mut rng) = still();
        // The quota is 1.5 ms per period. The second tick exceeds it by 0.5 ms, so the next period has 1 ms left.
        let mut quota = QuotaThread::new(&plant("quota,share=0.015,work=1ms"));
        let ends: Vec<_> = (0..400).filter_map(|_| quota.schedule(0, &mut weather, &mut rng)).collect();
        assert_eq!(ends[..4], [MS, 2 * MS, 101 * MS, 201 * MS]);
        // The long-term rate is 15 per second.
        assert!(ends[399].abs_diff(400 * SECOND / 15) < SECOND / 5, "{}", ends[399]);
    }

    #[test]
    fn work_that_is_longer_than_a_grant_takes_as_many_periods_as_it_needs() {
        let ((mut weather, mut rng), mut quota) =
            (still(), QuotaThread::new(&plant("quota,share=0.1,work=50ms")));
        assert_eq!(quota.schedule(0, &mut weather, &mut rng), Some(410 * MS));
        assert_eq!(quota.schedule(0, &mut weather, &mut rng), Some(910 * MS));
    }

    #[test]
    fn what_is_given_up_is_worked_on_or_not() {
        for (late, expected) in [("done", 0), ("dropped", 6)] {
            let (mut weather, mut rng) = still();
            let text = format!("timeout-chain,workers=1,service=100ms,timeout=250ms,late={late}");
            let mut chain = TimeoutProxy::new(&plant(&text));
            let first: Vec<_> = (0..20).map(|_| chain.attempt(0, &mut weather, &mut rng)).collect();
            assert_eq!(
                first[..3],
                [
                    AttemptResult::Done(100 * MS),
                    AttemptResult::Done(200 * MS),
                    AttemptResult::GivenUp(250 * MS)
                ]
            );
            // Half a second later, a pool that drops timed-out work is idle; a pool that finishes it is busy for another 1.5 s.
            let later = (0..6).filter(|n| {
                matches!(chain.attempt((500 + n * 200) * MS, &mut weather, &mut rng), AttemptResult::Done(_))
            });
            assert_eq!(later.count(), expected, "{late}");
        }
    }
}
