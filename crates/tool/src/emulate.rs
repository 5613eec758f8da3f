//! `seawall emulate`: a cloud on loopback, a server that breaks as it is told, an issuer of Kubernetes tokens, a token.
//!
//! Reads flags, writes files and lines, waits for the end; what a cloud answers is the emulator crate's business.

mod aws;
mod faults;
mod files;
mod google;
mod issuer;
mod lifecycle;
mod parse;
mod server;
mod token;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;

/// Flags of `seawall emulate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run AWS's STS, EKS Auth and instance metadata service on one loopback port
    Aws(Box<aws::Args>),
    /// Run Google's STS, IAM Credentials and metadata server on one loopback port
    Google(Box<google::Args>),
    /// Make the key and the published key set of a ServiceAccount token issuer
    Issuer(issuer::Args),
    /// Run a server that breaks at a known rate for a known cause
    Server(Box<server::Args>),
    /// Make a ServiceAccount token as the Kubernetes API server would
    Token(Box<token::Args>),
}

/// The issuer of a cluster that was given no other name: kubeadm's default.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Runs the command.
///
/// # Errors
/// Bad input, an unusable file or address, named.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Aws(args) => aws::run(*args),
        What::Google(args) => google::run(*args),
        What::Issuer(args) => issuer::run(&args),
        What::Server(args) => server::run(&args),
        What::Token(args) => token::run(&args),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// One line on standard output. A closed pipe is an error, not a panic.
fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
