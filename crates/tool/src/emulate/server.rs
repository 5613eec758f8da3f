//! `seawall emulate server`: plants what the flags say, tells what it comes to, and waits for the end.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use seawall_fault_server::{
    self as plant, FaultKind, FaultServer, FaultServerOptions, FaultSyntaxError, PlantedFault,
};
use serde_json::Value;

use super::lifecycle::{self, ShutdownSignals};
use super::parse;

/// The text after the flags in `--help`.
const HELP: &str = "\
Examples:
  seawall emulate server --fault rate-limiter,rate=200,bucket=40
  seawall emulate server --fault pool,workers=8,service=40ms,cv=1 --fault rate-limiter,rate=190 --fault noise,delay=1ms
  seawall emulate server --fault connection-cap,connections=15,service=100ms,how=backlog,backlog=1024
  seawall emulate server --random --cause pool-saturation --seed 7
A request passes the faults in the given order, but bandwidth always comes last.
With a real quota instead of a simulated one:
  systemd-run --user --scope -p CPUQuota=20% seawall emulate server --fault cpu,work=1ms

When the server listens, seawall prints one line of JSON: url, address, pid, the seed, each fault with its parameters, and what
find should report: classes (the causes, in find's words), limit (requests/s; null if no formula gives the limit) and
limit_exact (true if the server breaks exactly at the limit).
Exit code: 0 after SIGTERM or SIGINT, 1 if a fault or the address cannot be used, 2 if a flag is wrong.";

/// Flags of `seawall emulate server`.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub(crate) struct FaultServerCommandArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8790")]
    listen: SocketAddr,
    /// File for the printed JSON; seawall creates the file when the server listens
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Has no effect: this command always prints JSON
    #[arg(long, hide = true)]
    json: bool,
    /// Fault of the server: NAME[,KEY=VALUE]…; repeatable
    #[arg(long, value_name = "FAULT", conflicts_with = "random")]
    fault: Vec<String>,
    /// Choose random faults
    #[arg(long)]
    random: bool,
    /// Choose a random fault of this cause; repeat the flag to combine several causes
    #[arg(long, value_name = "SLUG", requires = "random", value_parser = cause)]
    cause: Vec<String>,
    /// Seed of --random [default: a random one, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Service time of every request before the faults
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = service_time)]
    service_time: Duration,
    /// Size of each response body, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=i64::from(plant::kind::MOST_BODY)))]
    body_bytes: u32,
}

fn cause(text: &str) -> Result<String, String> {
    let known: Vec<_> = plant::random_faults::drawable_classes().collect();
    let expected = || format!("expected one of {}", known.join(", "));
    if known.contains(&text) { Ok(text.to_owned()) } else { Err(expected()) }
}

/// Longest time that every request takes: beyond it, nothing is measured.
const LONGEST: Duration = Duration::from_secs(3600);

fn service_time(text: &str) -> Result<Duration, String> {
    let time = parse::parse_duration(text)?;
    if time <= LONGEST { Ok(time) } else { Err("expected at most 1h".to_owned()) }
}

pub(super) fn run(args: &FaultServerCommandArgs) -> anyhow::Result<()> {
    let options = args.options()?;
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(serve(args, &options))
}

async fn serve(args: &FaultServerCommandArgs, options: &FaultServerOptions) -> anyhow::Result<()> {
    let end = ShutdownSignals::listen()?;
    lifecycle::remove_ready_file(args.ready_file.as_deref())?;
    let running = plant::start(options).with_context(|| format!("cannot listen on {}", args.listen))?;
    lifecycle::announce_ready(&ready_document(&running, options), args.ready_file.as_deref(), true, &[])?;
    end.wait().await;
    running.shutdown().context("the server had stopped before the shutdown")?;
    lifecycle::remove_ready_file(args.ready_file.as_deref())
}

/// Returns the addresses of the server and its true limits and faults, as JSON.
fn ready_document(running: &FaultServer, options: &FaultServerOptions) -> Value {
    let mut truth = plant::expected_find_result(&options.planted_faults, options.seed);
    truth["url"] = running.url().into();
    truth["address"] = running.address().to_string().into();
    truth["names"] = running.dns_address().map(|names| names.to_string()).into();
    truth["pid"] = std::process::id().into();
    truth["service_ms"] = (options.service_time.as_secs_f64() * 1e3).into();
    truth["body"] = options.body_bytes.into();
    truth
}

/// Each connection is a descriptor, and shells allow few. As many as may be had: a lack of them shows as a pause in accepting.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Who may have no more has what there was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

impl FaultServerCommandArgs {
    fn options(&self) -> anyhow::Result<FaultServerOptions> {
        let seed = self.seed.unwrap_or_else(fresh);
        let plants = if self.random { self.random_faults(seed) } else { self.planted()? };
        Ok(FaultServerOptions {
            listen: self.listen,
            planted_faults: plants,
            service_time: self.service_time,
            body_bytes: self.body_bytes as usize,
            seed,
        })
    }

    fn random_faults(&self, seed: u64) -> Vec<PlantedFault> {
        let classes: Vec<_> = self.cause.iter().map(String::as_str).collect();
        plant::draw_faults(&classes, seed)
    }

    fn planted(&self) -> anyhow::Result<Vec<PlantedFault>> {
        PlantedFault::parse_all(&self.fault).map_err(|mistakes| {
            let all: Vec<_> = mistakes.iter().map(FaultSyntaxError::to_string).collect();
            anyhow::anyhow!("--fault:\n  {}", all.join("\n  "))
        })
    }
}

/// A seed that was not there before: of the time in nanoseconds, what every reader of JSON reads exactly.
fn fresh() -> u64 {
    seawall_core::Clock::system().now().as_nanos() & ((1 << 53) - 1)
}

/// That, and every fault, with all keys and their defaults.
fn help() -> String {
    let mut text = format!("{HELP}\n\nFaults:\n");
    for kind in FaultKind::ALL {
        let class = kind
            .cause_class
            .map_or("adds noise to other faults".to_owned(), |class| format!("class {class}"));
        let _ = writeln!(text, "\n{} ({class})\n  {}.", kind.name, kind.about);
        let keys = kind.parameters.iter().map(|key| format!(",{}={}", key.name, key.default));
        let _ = writeln!(text, "  --fault '{}{}'", kind.name, keys.collect::<String>());
    }
    text
}
