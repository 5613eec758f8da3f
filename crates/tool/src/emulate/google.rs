//! `seawall emulate google`: starts what the flags plan, says where it is, and waits for the end.

mod flags;
mod plan;

use anyhow::Context as _;
pub(super) use flags::Args;
use plan::{Plan, Pod};
use seawall_core::Clock;
use seawall_emulator::google::{self, Running};

use super::lifecycle::{self, End};

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let end = End::listen()?;
    let plan = Plan::new(&args)?;
    lifecycle::withdraw(args.ready_file.as_deref())?;
    let running = google::start(plan.options.clone(), Clock::system()).await;
    let running = running.with_context(|| format!("cannot listen on {}", args.listen))?;
    args.break_what_is_asked(&running);
    // Only now that the address is ours: another emulator's pods may live in the same folder.
    plan.pods.iter().try_for_each(Pod::write_token)?;
    announce(&args, &plan, &running)?;
    end.come().await;
    running.shutdown().await;
    lifecycle::withdraw(args.ready_file.as_deref())
}

fn announce(args: &Args, plan: &Plan, running: &Running) -> anyhow::Result<()> {
    let mut lines =
        vec![format!("google listens on {}", running.url()), format!("provider  {}", plan.provider)];
    lines.extend(plan.pods.iter().map(|pod| format!("token     {}", pod.token_file.display())));
    lifecycle::announce(&plan.statement(running), args.ready_file.as_deref(), args.json, &lines)
}
