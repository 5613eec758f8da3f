//! How often a real client fetches credentials: what a model of one is held against.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use seawall_core::Clock;
use seawall_emulator::aws::{self, AwsEmulatorOptions, AwsEndpoint, Ec2Instance};
use tempfile::TempDir;

use super::client_library::aws::JAVA_1;
use super::client_library::{ProgramLocation, ResolverFiles};
use super::emulator_thread::Hosted;

/// Requests of a fetch by version 1.11.500 of Java's SDK: the listing and the document.
const REQUESTS: u64 = 2;

/// How often the real SDK for Java 1.11.500 fetches credentials in `calls` calls in a row of its default provider's `getCredentials`,
/// from a metadata service whose documents always have `left` left; the program has fetched once before.
///
/// To be called inside a network namespace ([`Ground::Sealed`](super::namespace::Ground)): the service is at 169.254.169.254. Takes a
/// second or two.
pub(crate) fn fetches_of_java_1(calls: u32, left: Duration) -> u64 {
    let options = AwsEmulatorOptions {
        listen: SocketAddr::from(([169, 254, 169, 254], 80)),
        instance: Ec2Instance { tokens_required: false, ..Ec2Instance::default() },
        max_session_lifetime: left,
        ..AwsEmulatorOptions::default()
    };
    let metadata = Hosted::start(aws::start(options, Clock::system()));
    let asked = || metadata.endpoint_request_counts(AwsEndpoint::Metadata).calls;
    let folder = TempDir::new().unwrap();
    let times = format!("times={calls}");
    let steps = [JAVA_1.credentials_step, "wait", &times].map(str::to_owned);
    let here = |program: &str| Command::new(program);
    let mut run =
        JAVA_1.start(&ResolverFiles::new(folder.path()), &steps, ProgramLocation::Network(&here, &[]));
    run.read_until_step("wait");
    let before = asked();
    assert_eq!(before, REQUESTS, "{:?}", run.printed_lines);
    run.resume();
    run.wait_for_success();
    assert_eq!(run.value_of_step(&times), Ok(calls.to_string().as_str()));
    let requests = asked() - before;
    assert_eq!(requests % REQUESTS, 0, "{requests} requests are no whole fetches");
    requests / REQUESTS
}
