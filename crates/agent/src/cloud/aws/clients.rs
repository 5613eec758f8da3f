//! AWS's clients by their User-Agents, and what life of credentials each refreshes: measured with the clients themselves, by whichever
//! endpoint they refresh earlier. JavaScript's SDKs name themselves by none, nor do some others at the endpoint of containers.

use std::time::Duration;

use crate::thrash::{Client, Clients, First};

const fn client(agent: &'static str, name: &'static str, minutes: u64) -> Client {
    Client { agent, name, window: Duration::from_secs(minutes * 60), every: None }
}

const fn poll(agent: &'static str, name: &'static str, minutes: u64) -> Client {
    let every = Duration::from_secs(minutes * 60);
    Client { agent, name, window: every, every: Some(every) }
}

/// All of them.
pub(super) const ALL: Clients = Clients {
    known: KNOWN,
    longer: "Let the role's sessions live longer (its MaxSessionDuration, and aws.session.length), or use a newer release.",
    first: Some(First { left: Duration::from_secs(15 * 60), who: "boto3 and older AWS SDKs for Java" }),
};

const KNOWN: &[Client] = &[
    // A process for each call.
    client("aws-cli/", "the AWS CLI", 0),
    client("boto3/", "boto3", 15),
    client("botocore/", "botocore", 15),
    client("python-urllib3/", "boto3", 15),
    client("aws-sdk-java/1.", "the AWS SDK for Java, version 1", 15),
    client("aws-sdk-java/", "the AWS SDK for Java, version 2", 15),
    client("aws-sdk-go-v2/", "the AWS SDK for Go, version 2", 5),
    client("aws-sdk-go/", "the AWS SDK for Go, version 1", 5),
    client("Go-http-client/", "a client of Go's", 5),
    client("aws-sdk-nodejs/", "the AWS SDK for JavaScript, version 2", 0),
    client("aws-sdk-rust/", "the AWS SDK for Rust", 0),
    client("aws-sdk-ruby3/", "the AWS SDK for Ruby", 5),
    poll("aws-sdk-cpp/", "the AWS SDK for C++", 5),
    // By its source (aws-sdk-net, `DefaultInstanceProfileAWSCredentials`); older releases name themselves by nothing there.
    poll("aws-sdk-dotnet-", "the AWS SDK for .NET", 2),
    client("aws-sdk-crt/", "the AWS CRT", 5),
    client("object_store/", "object_store", 5),
];
