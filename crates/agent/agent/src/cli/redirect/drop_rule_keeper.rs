//! `seawall-agent redirect keep-drop-rules`: loads the drop rules again when another program has removed them.
//!
//! firewalld and operators remove all rules of a node (`nft flush ruleset`). A container of its own runs this command, because it needs
//! CAP_NET_ADMIN and the agent, which talks to pods and clouds, must not have it. The container opens no port and holds no secret.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use seawall_redirect::netfilter::{self, AgentPorts};
use tokio::runtime::Builder;

use super::node_address_flag::AgentPortFlags;
use crate::app::drop_rule_status::{DropRuleState, write};
use crate::app::signals::AgentSignals;

/// The time between two looks at the rules.
const INTERVAL: Duration = Duration::from_secs(60);

/// Looks at the rules until a signal ends the process.
///
/// # Errors
/// The process cannot listen for signals, or cannot write the status file at the start.
pub(super) fn run(status_file: Option<&Path>, ports: &AgentPortFlags) -> anyhow::Result<String> {
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    runtime.block_on(keep(status_file, ports))
}

#[expect(clippy::print_stderr, reason = "the command has no other output while it runs")]
async fn keep(status_file: Option<&Path>, flags: &AgentPortFlags) -> anyhow::Result<String> {
    let mut signals = AgentSignals::new().context("cannot listen for signals")?;
    let mut last = None;
    let mut wanted = flags.now();
    // What this kernel can load; all ports until the first attempt.
    let mut ports = wanted.clone();
    // The look counts rules, so it takes those for other addresses for these. They are replaced until a load has succeeded.
    let mut must_load = true;
    loop {
        // The node can have got another IPv4 address. An agent that runs still listens at the one before.
        let before = wanted.addresses.len();
        for address in flags.now().addresses {
            if !wanted.addresses.contains(&address) {
                wanted.addresses.push(address);
            }
        }
        if wanted.addresses.len() > before {
            eprintln!("the agents' addresses are now {:?}", wanted.addresses);
            (ports, must_load) = (wanted.clone(), true);
        }
        let (state, was_lost) = load_if_lost(&mut ports, must_load);
        must_load &= !was_lost;
        if was_lost && last.is_some() {
            eprintln!("the drop rules were missing or for other addresses; loaded them");
        } else if last.as_ref() != Some(&state) {
            eprintln!("{state}");
        }
        if let Some(path) = status_file {
            let written = write(path, &state).with_context(|| format!("cannot write {}", path.display()));
            // After a later failure, the agent reports the age of the file.
            if last.is_none() {
                written?;
            }
        }
        last = Some(state);
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = signals.next_termination() => return Ok(String::new()),
        }
    }
}

/// Returns the state of the rules, and true if this call loaded them. Loads them if they are missing, or if `must_load` is true.
/// Reduces the ports to those whose rules this kernel can load.
fn load_if_lost(ports: &mut AgentPorts, must_load: bool) -> (DropRuleState, bool) {
    let loaded = netfilter::has_drop_rules(ports).and_then(|is_loaded| {
        if is_loaded && !must_load {
            return Ok(false);
        }
        *ports = netfilter::load_drop_rules(ports)?;
        Ok(true)
    });
    match loaded {
        Ok(was_lost) => (DropRuleState::Loaded, was_lost),
        Err(error) => (DropRuleState::NotLoaded(error.to_string()), false),
    }
}
