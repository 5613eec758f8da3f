//! `seawall emulate`: a cloud on loopback, a server that breaks as it is told, an issuer of Kubernetes tokens, a token.
//!
//! Reads flags, writes files and lines, waits for the end; what a cloud answers is the emulator crate's business.

mod aws;
mod faults;
mod files;
mod google;
mod issuer_key_files;
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
pub(crate) struct EmulateArgs {
    #[command(subcommand)]
    what: EmulateCommand,
}

#[derive(Debug, Subcommand)]
enum EmulateCommand {
    /// Run AWS's STS, EKS Auth and instance metadata service on one loopback port
    Aws(Box<aws::EmulateAwsArgs>),
    /// Run Google's STS, IAM Credentials and metadata server on one loopback port
    Google(Box<google::EmulateGoogleArgs>),
    /// Make the key and the published key set of a ServiceAccount token issuer
    Issuer(issuer_key_files::EmulateIssuerArgs),
    /// Run a server that breaks at a known rate for a known cause
    Server(Box<server::FaultServerCommandArgs>),
    /// Make a ServiceAccount token as the Kubernetes API server would
    Token(Box<token::EmulateTokenArgs>),
}

/// The issuer of a cluster that was given no other name: kubeadm's default.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Runs the command.
///
/// # Errors
/// Bad input, an unusable file or address, named.
pub(crate) fn run(args: EmulateArgs) -> anyhow::Result<ExitCode> {
    match args.what {
        EmulateCommand::Aws(args) => aws::run(*args),
        EmulateCommand::Google(args) => google::run(*args),
        EmulateCommand::Issuer(args) => issuer_key_files::create_issuer_files(&args),
        EmulateCommand::Server(args) => server::run(&args),
        EmulateCommand::Token(args) => token::run(&args),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// One line on standard output. A closed pipe is an error, not a panic.
fn print_line(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
