//! Hostile pods, a quiet pod and the servers behind the agent: what `benches/agent-tenants` lets loose on it.
//!
//! One program with four parts, each a process of its own so that each has a priority of its own. It knows the wire and
//! nothing of the agent's inside, judges nothing, and prints figures for the script, which knows cgroups and promises.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program's figures and its mistakes")]
#![expect(
    clippy::disallowed_methods,
    reason = "it measures the machine's time; nothing here is driven by a test's clock"
)]

use std::process::ExitCode;

mod arguments;
mod cloud;
mod hostile;
mod quiet;
mod serving;
mod upstream;

use arguments::Arguments;

const USAGE: &str = "\
usage: storm PART [--KEY VALUE]...

  hostile   many connections that behave alike, until it is killed or --seconds are over
    --to ADDRESS:PORT --from IPV4[+COUNT] --connections PER-ADDRESS
    --habit loop    sends --depth requests ahead of the answers, for ever
            pace    sends --rate requests a second from each address, without waiting for answers
            churn   one request on each connection, which it then resets
            touch   connects and resets
            silent  connects and says nothing
            half    sends --bytes of a head and no more
            drip    the same, and then one byte more at a time, as fast as it goes
            slow    sends --depth requests and reads a few bytes now and then
    --path PATH     # in it becomes a number that has not been there before
  quiet     pods that ask 20 times a second, half on new connections, and are measured from when each request was due
    --to ADDRESS:PORT --from IPV4[+PODS] --path PATH [--cold PATH --cold-every SECONDS]
    [--control ADDRESS:PORT] [--health ADDRESS:PORT] --seconds N
  cloud     Google's token service and IAM Credentials; identity tokens of accounts named hostile-N are troubled
    --listen ADDRESS:PORT [--faults ok,slow,hang,throttle,deny]   the N-th account has the fault N modulo their number
  upstream  a metadata server
    --listen ADDRESS:PORT [--latency MILLISECONDS]   attributes: hang, bytes-N (a body of N bytes), chunks-N (in chunks of one)";

fn main() -> ExitCode {
    let done = Arguments::of_program().and_then(|(part, arguments)| match part.as_str() {
        "hostile" => hostile::run(&arguments),
        "quiet" => quiet::run(&arguments),
        "cloud" => cloud::run(&arguments),
        "upstream" => upstream::run(&arguments),
        other => Err(format!("there is no part {other:?}\n{USAGE}")),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("storm: {what}");
            ExitCode::FAILURE
        }
    }
}
