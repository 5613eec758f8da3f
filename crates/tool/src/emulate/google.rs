//! `seawall emulate google`: starts what the flags plan, says where it is, and waits for the end.

mod flags;
mod plan;

use anyhow::Context as _;
pub(super) use flags::Args;
use plan::{Plan, Pod};
use seawall_core::Clock;
use seawall_emulator::google::{self, Running};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{files, say};

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    // Before anyone can be told that it runs: a signal sent right after must not be lost.
    let (mut terminate, mut interrupt) = signals()?;
    let plan = Plan::new(&args)?;
    withdraw_ready_file(&args)?;
    let running = google::start(plan.options.clone(), Clock::system()).await;
    let running = running.with_context(|| format!("cannot listen on {}", args.listen))?;
    args.faults.apply(&running);
    // Only now that the address is ours: another emulator's pods may live in the same folder.
    plan.pods.iter().try_for_each(Pod::write_token)?;
    announce(&args, &plan, &running)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    running.shutdown().await;
    withdraw_ready_file(&args)
}

fn signals() -> anyhow::Result<(Signal, Signal)> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    Ok((listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?))
}

fn announce(args: &Args, plan: &Plan, running: &Running) -> anyhow::Result<()> {
    let statement = plan.statement(running);
    if let Some(file) = &args.ready_file {
        files::write(file, &format!("{statement:#}\n"), files::PUBLIC)?;
    }
    if args.json {
        return say(&statement.to_string());
    }
    say(&format!("google listens on {}", running.url()))?;
    say(&format!("provider  {}", plan.provider))?;
    plan.pods.iter().try_for_each(|pod| say(&format!("token     {}", pod.token_file.display())))
}

/// Takes back what an earlier run said, so that nobody believes it of this one.
fn withdraw_ready_file(args: &Args) -> anyhow::Result<()> {
    args.ready_file.as_deref().map_or(Ok(()), files::remove)
}
