//! A server of numbers: sessions of one length, another as soon as it is asked with not more left than it rotates at. That is the
//! server that the SDKs were measured with. KIAM's and kube2iam's sessions are such numbers; the agent renews unasked, so that a client
//! gets what is up to half an hour old, and fetches somewhat oftener than here.

use super::{CallOutcome, Family, HOUR, MINUTE, Rule, SimulatedSdkClient};

/// A server that gives out sessions.
#[derive(Clone, Debug)]
pub struct RotatingSessionServer {
    session: i64,
    rotates_at: i64,
    expires: i64,
}

impl RotatingSessionServer {
    /// Sessions of so many minutes, another once not more than `rotates_at` minutes are left.
    pub fn new(session: i64, rotates_at: i64) -> Self {
        Self { session: session * MINUTE, rotates_at: rotates_at * MINUTE, expires: i64::MIN / 2 }
    }

    /// Returns the expiry of the session that the server gives out at `now`.
    pub fn session_expiry(&mut self, now: i64) -> i64 {
        if self.expires - now <= self.rotates_at {
            self.expires = now + self.session;
        }
        self.expires
    }
}

/// The times at which a program calls.
#[derive(Clone, Copy, Debug)]
pub struct CallSchedule {
    /// The length of the program run, in seconds.
    pub duration_seconds: i64,
    /// Seconds between two of its turns.
    pub seconds_between_call_bursts: i64,
    /// Calls in each turn.
    pub calls_per_burst: u32,
}

/// Counts of one simulated program run: calls, fetches, requests and the least remaining life of the credentials used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulationCounts {
    /// Calls of the program.
    pub calls: u32,
    /// Fetches of credentials.
    pub fetches: u32,
    /// Requests on the wire.
    pub requests: u32,
    /// The least remaining life of credentials that a call used, in seconds.
    pub least_life_seconds: i64,
    /// The length of the run, in hours.
    hours: f64,
}

impl SimulationCounts {
    /// Fetches in an hour.
    pub fn fetches_per_hour(&self) -> f64 {
        f64::from(self.fetches) / self.hours
    }

    /// Requests in an hour.
    pub fn requests_per_hour(&self) -> f64 {
        f64::from(self.requests) / self.hours
    }
}

/// Simulates a program whose client of this family uses the metadata service.
pub fn simulate_imds(
    family: &'static Family,
    mut server: RotatingSessionServer,
    program: CallSchedule,
    seed: u64,
) -> SimulationCounts {
    run(family, &family.imds_rule, &mut server, program, seed)
}

/// Simulates a program whose client uses the container credentials endpoint; `None` if the family does not use that.
pub fn simulate_container_endpoint(
    family: &'static Family,
    mut server: RotatingSessionServer,
    program: CallSchedule,
    seed: u64,
) -> Option<SimulationCounts> {
    Some(run(family, family.container_rule.as_ref()?, &mut server, program, seed))
}

fn run(
    family: &'static Family,
    rule: &'static Rule,
    server: &mut RotatingSessionServer,
    program: CallSchedule,
    seed: u64,
) -> SimulationCounts {
    let mut client = SimulatedSdkClient::new(rule, seed);
    let hours = program.duration_seconds as f64 / HOUR as f64;
    let mut day = SimulationCounts { calls: 0, fetches: 0, requests: 0, least_life_seconds: i64::MAX, hours };
    let mut token_until = i64::MIN;
    for turn in 0..program.duration_seconds / program.seconds_between_call_bursts {
        let now = turn * program.seconds_between_call_bursts;
        for _ in 0..program.calls_per_burst {
            let call = client.call(now, || {
                day.fetches += 1;
                day.requests += family.wire.requests_per_fetch(now < token_until);
                if now >= token_until {
                    token_until =
                        family.wire.token_used_until(now, family.wire.token_life_seconds().unwrap_or(0));
                }
                Some(server.session_expiry(now))
            });
            day.calls += 1;
            if let CallOutcome::UsesCredentials(left) = call {
                day.least_life_seconds = day.least_life_seconds.min(left);
            }
        }
    }
    day
}

/// Fetches that so many calls in a row make with credentials that always have `left` seconds left.
///
/// To hold a model to its SDK: let a program call `getCredentials` so many times without a pause, in a process of its own, against a
/// server that answers each fetch with an `Expiration` of now and `left` seconds, and count the documents that the server gave. Lives
/// within a second of a window prove nothing, because in the program time goes on.
pub fn fetches_for_consecutive_calls(family: &'static Family, left: i64, calls: u32) -> u32 {
    let mut client = SimulatedSdkClient::new(&family.imds_rule, 1);
    let mut fetches = 0;
    for _ in 0..calls {
        client.call(0, || {
            fetches += 1;
            Some(left)
        });
    }
    fetches
}
