//! `seawall emulate aws`: starts what the flags plan, says where it is, and waits for the end.

mod flags;
mod plan;

use anyhow::Context as _;
pub(super) use flags::EmulateAwsArgs;
use plan::{AwsDemoPod, AwsEmulatorPlan};
use seawall_core::Clock;
use seawall_emulator::aws::{self, AwsEmulator};

use super::lifecycle::{self, ShutdownSignals};

pub(super) fn run(args: EmulateAwsArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(serve(args))
}

async fn serve(args: EmulateAwsArgs) -> anyhow::Result<()> {
    let end = ShutdownSignals::listen()?;
    let plan = AwsEmulatorPlan::new(&args)?;
    lifecycle::remove_ready_file(args.ready_file.as_deref())?;
    let running = aws::start(plan.options.clone(), Clock::system()).await;
    let running = running.with_context(|| format!("cannot listen on {}", args.listen))?;
    args.apply_faults(&running);
    // Only now that the address is ours: another emulator's pods may live in the same folder.
    plan.pods.iter().try_for_each(AwsDemoPod::write_token)?;
    plan.write_user_keys()?;
    announce(&args, &plan, &running)?;
    end.wait().await;
    running.shutdown().await;
    lifecycle::remove_ready_file(args.ready_file.as_deref())
}

fn announce(args: &EmulateAwsArgs, plan: &AwsEmulatorPlan, running: &AwsEmulator) -> anyhow::Result<()> {
    let mut lines = vec![format!("aws listens on {}", running.url())];
    lines.extend(plan.pods.iter().map(|pod| format!("token     {}", pod.token_file.display())));
    lines.extend(plan.users.iter().map(|user| format!("keys      {}", user.file.display())));
    lifecycle::announce_ready(&plan.ready_document(running), args.ready_file.as_deref(), args.json, &lines)
}
