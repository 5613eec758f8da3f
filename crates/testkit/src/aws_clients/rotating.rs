//! A server of numbers: sessions of one length, another as soon as it is asked with not more left than it rotates at. That is the
//! server that the SDKs were measured with. KIAM's and kube2iam's sessions are such numbers; the agent renews unasked, so that a client
//! gets what is up to half an hour old, and fetches somewhat oftener than here.

use super::{Call, Client, Family, HOUR, MINUTE, Rule};

/// A server that gives out sessions.
#[derive(Clone, Debug)]
pub struct Rotating {
    session: i64,
    rotates_at: i64,
    expires: i64,
}

impl Rotating {
    /// Sessions of so many minutes, another once not more than `rotates_at` minutes are left.
    pub fn new(session: i64, rotates_at: i64) -> Self {
        Self { session: session * MINUTE, rotates_at: rotates_at * MINUTE, expires: i64::MIN / 2 }
    }

    /// When that ends which is given at `now`.
    pub fn expires(&mut self, now: i64) -> i64 {
        if self.expires - now <= self.rotates_at {
            self.expires = now + self.session;
        }
        self.expires
    }
}

/// When a program calls.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// For so long, in seconds.
    pub lasts: i64,
    /// Seconds between two of its turns.
    pub every: i64,
    /// Calls in each turn.
    pub calls: u32,
}

/// What a day cost, and what was used in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Day {
    /// Calls of the program.
    pub calls: u32,
    /// Fetches of credentials.
    pub fetches: u32,
    /// Requests on the wire.
    pub requests: u32,
    /// The least life that a call used, in seconds.
    pub least: i64,
    /// In hours.
    hours: f64,
}

impl Day {
    /// Fetches in an hour.
    pub fn fetches_per_hour(&self) -> f64 {
        f64::from(self.fetches) / self.hours
    }

    /// Requests in an hour.
    pub fn requests_per_hour(&self) -> f64 {
        f64::from(self.requests) / self.hours
    }
}

/// A program with a client of this family at the server's metadata service.
pub fn day(family: &'static Family, mut server: Rotating, program: Program, seed: u64) -> Day {
    run(family, &family.imds, &mut server, program, seed)
}

/// The same at its credentials endpoint of containers; nothing if the family does not use one.
pub fn container_day(
    family: &'static Family,
    mut server: Rotating,
    program: Program,
    seed: u64,
) -> Option<Day> {
    Some(run(family, family.container.as_ref()?, &mut server, program, seed))
}

fn run(
    family: &'static Family,
    rule: &'static Rule,
    server: &mut Rotating,
    program: Program,
    seed: u64,
) -> Day {
    let mut client = Client::new(rule, seed);
    let hours = program.lasts as f64 / HOUR as f64;
    let mut day = Day { calls: 0, fetches: 0, requests: 0, least: i64::MAX, hours };
    let mut token_until = i64::MIN;
    for turn in 0..program.lasts / program.every {
        let now = turn * program.every;
        for _ in 0..program.calls {
            let call = client.call(now, || {
                day.fetches += 1;
                day.requests += family.wire.requests(now < token_until);
                if now >= token_until {
                    token_until = family.wire.token_until(now, family.wire.token_life().unwrap_or(0));
                }
                Some(server.expires(now))
            });
            day.calls += 1;
            if let Call::Uses(left) = call {
                day.least = day.least.min(left);
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
pub fn fetches_in_a_row(family: &'static Family, left: i64, calls: u32) -> u32 {
    let mut client = Client::new(&family.imds, 1);
    let mut fetches = 0;
    for _ in 0..calls {
        client.call(0, || {
            fetches += 1;
            Some(left)
        });
    }
    fetches
}
