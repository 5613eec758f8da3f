//! `seawall emulate google`: starts what the flags plan, says where it is, and waits for the end.

mod flags;
mod plan;

use anyhow::Context as _;
pub(super) use flags::EmulateGoogleArgs;
use plan::{GoogleDemoPod, GoogleEmulatorPlan};
use seawall_core::Clock;
use seawall_emulator::google::{self, GoogleEmulator};

use super::lifecycle::{self, ShutdownSignals};

pub(super) fn run(args: EmulateGoogleArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(serve(args))
}

async fn serve(args: EmulateGoogleArgs) -> anyhow::Result<()> {
    let end = ShutdownSignals::listen()?;
    let plan = GoogleEmulatorPlan::new(&args)?;
    lifecycle::remove_ready_file(args.ready_file.as_deref())?;
    let running = google::start(plan.options.clone(), Clock::system()).await;
    let running = running.with_context(|| format!("cannot listen on {}", args.listen))?;
    args.apply_faults(&running);
    // Only now that the address is ours: another emulator's pods may live in the same folder.
    plan.pods.iter().try_for_each(GoogleDemoPod::write_token)?;
    announce(&args, &plan, &running)?;
    end.wait().await;
    running.shutdown().await;
    lifecycle::remove_ready_file(args.ready_file.as_deref())
}

fn announce(
    args: &EmulateGoogleArgs,
    plan: &GoogleEmulatorPlan,
    running: &GoogleEmulator,
) -> anyhow::Result<()> {
    let mut lines =
        vec![format!("google listens on {}", running.url()), format!("provider  {}", plan.provider)];
    lines.extend(plan.pods.iter().map(|pod| format!("token     {}", pod.token_file.display())));
    lifecycle::announce_ready(&plan.ready_document(running), args.ready_file.as_deref(), args.json, &lines)
}
