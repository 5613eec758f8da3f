//! A cloud on loopback, an agent as a process, and the waiting between them.
//!
//! Source addresses 127.0.0.x stand for pods. Everything a test starts ends with it, in a panic too. No test sleeps to
//! be right: [`wait_until_some`] looks again until a condition holds, and its deadline is for broken programs, not for slow machines.

pub(crate) mod aws;
pub(crate) mod cloud;
pub(crate) mod emulator_thread;
pub(crate) mod namespace;
pub(crate) mod refresh;
pub(crate) mod world;

use std::net::Ipv4Addr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seawall_core::Clock;

pub(crate) use seawall_testkit::agent::{client, client_library, process};
pub(crate) use seawall_testkit::waiting::{wait_until_some, wait_until_true};

/// The agent as cargo built it for these tests.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_seawall-agent");

/// Seconds since 1970.
pub(crate) fn seconds() -> u64 {
    Clock::system().wall_time().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// Makes room for thousands of connections in this process; the agents raise their own limit.
pub(crate) fn make_room() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// The pod address 127.0.0.`last`.
pub(crate) const fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}
