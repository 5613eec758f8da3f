//! Attaching, attaching again, and replacing another version.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use seawall_redirect::attach::AttachOutcome;
use seawall_redirect::{AttachmentSnapshot, AttachmentState, Hook, RedirectCounts, detach, read_status};

use crate::support::agent::{gate, learn};
use crate::support::*;

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn attaching_twice_changes_nothing() {
    let lab = Arc::new(Lab::new());
    assert_eq!(lab.attach(), AttachOutcome::Attached);
    let _agent = Agent::start(&lab);
    let before = (lab.pin_names(), programs(&lab));
    assert_eq!(lab.attach(), AttachOutcome::AlreadyAttached);
    assert_eq!((lab.pin_names(), programs(&lab)), before);
    assert!(read_status(&lab.pins, &lab.site).unwrap().is_fully_attached());
    assert_eq!(lab.pod(ONE).fetch_from_server("169.254.169.254"), "agent:one");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn who_opened_what_is_attached_learns_that_it_is_gone_or_another_and_not_that_a_version_was_replaced() {
    let lab = Arc::new(Lab::new());
    assert!(AttachmentSnapshot::from_pins(&lab.pins).is_err(), "nothing is attached");
    lab.attach();
    let opened = AttachmentSnapshot::from_pins(&lab.pins).unwrap();
    pretend_another_version(&lab, Hook::Connect4);
    assert_eq!(lab.attach(), AttachOutcome::Replaced);
    assert_eq!(opened.check_pins().unwrap(), AttachmentState::Unchanged, "the maps are the same");
    detach(&lab.pins).unwrap();
    assert_eq!(opened.check_pins().unwrap(), AttachmentState::Removed);
    lab.attach();
    assert_eq!(opened.check_pins().unwrap(), AttachmentState::Replaced);
    assert_eq!(
        AttachmentSnapshot::from_pins(&lab.pins).unwrap().check_pins().unwrap(),
        AttachmentState::Unchanged
    );
}

fn programs(lab: &Lab) -> Vec<u32> {
    let status = read_status(&lab.pins, &lab.site).unwrap();
    status.hooks.iter().flat_map(|hook| hook.links.iter().map(|link| link.program_id)).collect()
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_link_that_was_lost_is_attached_again() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    let mut one = lab.pod(ONE);
    let opened = AttachmentSnapshot::from_pins(&lab.pins).unwrap();
    let lost = lab.pin_names().into_iter().find(|name| name.starts_with("connect4-")).unwrap();
    fs::remove_file(lab.pins.directory().join(&lost)).unwrap();
    until(|| one.fetch_from_server("169.254.169.254") == "real");
    assert_eq!(opened.check_pins().unwrap(), AttachmentState::Removed);
    assert!(!read_status(&lab.pins, &lab.site).unwrap().is_fully_attached());
    assert_eq!(lab.attach(), AttachOutcome::Attached);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
    assert_eq!(opened.check_pins().unwrap(), AttachmentState::Unchanged, "the running agent is ready again");
    assert!(read_status(&lab.pins, &lab.site).unwrap().is_fully_attached());
    for hook in ["connect6-", "sockops-"] {
        let lost = lab.pin_names().into_iter().find(|name| name.starts_with(hook)).unwrap();
        fs::remove_file(lab.pins.directory().join(&lost)).unwrap();
        assert_eq!(opened.check_pins().unwrap(), AttachmentState::Removed, "{hook}");
        lab.attach();
        assert_eq!(opened.check_pins().unwrap(), AttachmentState::Unchanged, "{hook}");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn another_version_is_replaced_under_load_and_nobody_is_missed() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    let (mut one, mut host) = (lab.pod(ONE), lab.pod(HOST));
    let opened = AttachmentSnapshot::from_pins(&lab.pins).unwrap();
    const TIMES: u32 = 600;
    for _ in 0..5 {
        let before = captured(&lab);
        for pod in [&mut one, &mut host] {
            pod.send_line(&format!("load 169.254.169.254 80 {TIMES}"));
        }
        until(|| captured(&lab) > before);
        for hook in Hook::ALL {
            pretend_another_version(&lab, hook);
        }
        let is_attached = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // A hook without a link would make the agent not ready.
            let looking = scope.spawn(|| {
                while !is_attached.load(Ordering::Acquire) {
                    assert_eq!(opened.check_pins().unwrap(), AttachmentState::Unchanged);
                }
            });
            assert_eq!(lab.attach(), AttachOutcome::Replaced);
            is_attached.store(true, Ordering::Release);
            looking.join().unwrap();
        });
        assert_eq!(one.read_answer(), format!("agent:one={TIMES}"));
        assert_eq!(host.read_answer(), format!("agent:host={TIMES}"));
    }
    assert!(read_status(&lab.pins, &lab.site).unwrap().is_fully_attached());
    // Three links and ten maps.
    assert_eq!(lab.pin_names().len(), 13);
}

fn captured(lab: &Lab) -> u64 {
    RedirectCounts::read(&lab.pins).unwrap().connect4.captured
}

/// Renames the pin of an attached link as if another version had made it.
fn pretend_another_version(lab: &Lab, hook: Hook) {
    let directory = lab.pins.directory();
    let name = lab.pin_names().into_iter().find(|name| name.starts_with(hook.name())).unwrap();
    let group = name.rsplit('-').next().unwrap();
    fs::rename(directory.join(&name), directory.join(format!("{}-00ff-{group}", hook.name()))).unwrap();
}

/// In the upgrade to another layout, all pods of the node were refused until the next agent was ready.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn an_older_layout_serves_until_the_next_agent_is_the_target_and_no_connection_is_missed() {
    let lab = Arc::new(Lab::attached());
    let _older = Agent::start(&lab);
    let (mut one, mut host) = (lab.pod(ONE), lab.pod(HOST));
    // The agent has opened its maps.
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
    let since = AttachmentSnapshot::from_pins(&lab.pins).unwrap().attached_since();
    let others = lab.pins.directory().with_file_name("v0");
    fs::rename(lab.pins.directory(), &others).unwrap();
    const TIMES: u32 = 3_000;
    for pod in [&mut one, &mut host] {
        pod.send_line(&format!("load 169.254.169.254 80 {TIMES}"));
    }
    assert_eq!(lab.attach(), AttachOutcome::Attached);
    assert!(others.exists() && !read_status(&lab.pins, &lab.site).unwrap().is_fully_attached());
    // The next agent's own pod reaches the real server, although the older programs see its connects first.
    gate(&lab).exempt_pod(lab.id(AGENT)).unwrap();
    assert_eq!(lab.pod(AGENT).fetch_from_server("169.254.169.254"), "real");
    learn(&lab);
    let next = Agent::saying(&lab, "next");
    assert!(gate(&lab).has_older_layouts().unwrap());
    gate(&lab).set_target(next.at()).unwrap();
    gate(&lab).detach_older_connect_programs().unwrap();
    // The kernel detaches a link a moment after its pin is gone.
    let mut two = lab.pod(TWO);
    until(|| two.fetch_from_server("169.254.169.254") == "next:two");
    gate(&lab).remove_older_layouts().unwrap();
    assert_eq!(AttachmentSnapshot::from_pins(&lab.pins).unwrap().attached_since(), since);
    for (pod, name) in [(&mut one, "one"), (&mut host, "host")] {
        let answers = pod.read_answer();
        let counted = |agent: &str| -> u32 {
            let prefix = format!("{agent}:{name}=");
            let count = answers.split(' ').find_map(|answer| answer.strip_prefix(&prefix));
            count.map_or(0, |count| count.parse().unwrap())
        };
        assert_eq!(counted("agent") + counted("next"), TIMES, "{answers}");
    }
    assert!(!others.exists() && read_status(&lab.pins, &lab.site).unwrap().is_fully_attached());
    assert_eq!(one.fetch_from_server("169.254.169.254"), "next:one");
}

/// A version before knows no newer layout, and cannot tell whether its agent lives.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_newer_layout_goes_once_this_one_is_attached() {
    let lab = Arc::new(Lab::attached());
    let others = lab.pins.directory().with_file_name("v99");
    fs::rename(lab.pins.directory(), &others).unwrap();
    let mut one = lab.pod(ONE);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "EPERM");
    assert_eq!(lab.attach(), AttachOutcome::Replaced);
    assert!(!others.exists());
    let _agent = Agent::start(&lab);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn one_agent_takes_over_from_another_with_one_write() {
    let lab = Arc::new(Lab::attached());
    let first = Agent::start(&lab);
    let mut one = lab.pod(ONE);
    const TIMES: u32 = 2_000;
    one.send_line(&format!("load 169.254.169.254 80 {TIMES}"));
    until(|| captured(&lab) >= u64::from(TIMES) / 4);
    let second = Agent::start(&lab);
    assert_eq!(one.read_answer(), format!("agent:one={TIMES}"));
    drop(first);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
    drop(second);
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn status_tells_what_was_captured_and_refused() {
    let lab = Arc::new(Lab::attached());
    let mut one = lab.pod(ONE);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "EPERM");
    let _agent = Agent::start(&lab);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
    assert_eq!(one.fetch_from_server("fd20:ce::254"), "agent:one");
    let told = read_status(&lab.pins, &lab.site).unwrap();
    let counts = told.counts;
    assert_eq!((counts.connect4.captured, counts.connect4.refused()), (1, 1));
    assert_eq!((counts.connect6.captured, counts.connect6.refused()), (1, 0));
    // The agent met itself once.
    assert_eq!(
        (counts.recorded, counts.closed_early, counts.unrecorded, told.waiting_connection_count),
        (3, 0, 0, 0)
    );
    let text = told.to_string();
    for part in
        ["connect4: attached to the pods' cgroup", "this version", "1 captured", "1 refused", NODE6, "known"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}
