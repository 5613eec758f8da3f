//! `isolate` in a pod: parts of segments.
//!
//! Which segment is next, and what all of them come to, whoever gives orders knows; here are the ways, looked up and tried from where this
//! pod is, and what it sees of them.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::ensure;
use seawall_fleet::protocol::{Begin, Steer, Told};
use seawall_lab::isolate::bench::Bench;
use seawall_lab::isolate::part::Standing;
use seawall_lab::isolate::ways::Named;
use seawall_lab::remote::segments::{Done, Known, Ways, Work};
use seawall_lab::rig::Stop;
use seawall_load::files::Files;

use super::ears::Ears;
use super::hand::{Grip, Hand};
use super::voice::Voice;
use super::{Place, ready, serve};
use crate::isolate::{Args, plan};

/// Gets ready, and carries out what is ordered until the end.
pub(super) fn run(args: &Args, cpus: usize, place: Place, voice: &Arc<Voice>) -> anyhow::Result<ExitCode> {
    args.check()?;
    ensure!(!args.searches(), plan::NO_SEARCH);
    ensure!(
        !args.reads_stdin(),
        "-targets: on standard input a pod hears orders, and targets must be in a file"
    );
    let plan::Order { plan, bench, reaches, .. } = plan::plan_alike(args, cpus, &Files::default())?;
    let known = |(Named { name, what }, design): (&Named, _)| Known {
        name: name.clone(),
        what: what.clone(),
        design,
    };
    let designs = plan.designs();
    let ways = Ways { target: plan.target.clone(), ways: plan.ways.iter().zip(designs).map(known).collect() };
    let hand = Arc::new(Hand::default());
    let ears = Ears::<Work>::open(place.heartbeat, &hand, voice)?;
    plan::reach(reaches, || hand.ended().is_some())?;
    let mut pod = Pod { bench, ways, standing: None };
    voice.tell(&Told::<(), ()>::Ready(ready(place, 0)));
    Ok(serve(&ears, place, (&hand, voice), |begin| {
        hand.takes(Box::new(Ending(pod.bench.stop())));
        let result = pod.carry_out(begin);
        hand.lets_go();
        voice.tell(&Told::<(), Done>::Done { trial: begin.trial, result });
        Ok(())
    }))
}

struct Pod {
    bench: Bench,
    ways: Ways,
    /// The segment under way.
    standing: Option<Standing>,
}

impl Pod {
    fn carry_out(&mut self, begin: &Begin<Work>) -> Done {
        match &begin.work {
            Work::Ways => Done::Ways(self.ways.clone()),
            Work::Open { segment, rate } => {
                // Connections of the one before are closed first, so that no target has to have both.
                self.standing = None;
                match self.bench.stand(segment, *rate, begin.slice) {
                    Ok(standing) => {
                        self.standing = Some(standing);
                        Done::Open
                    }
                    Err(why) => Done::Impossible(why),
                }
            }
            Work::Send(member) => {
                let Some(standing) = &mut self.standing else {
                    return Done::Impossible("no segment is open".to_owned());
                };
                let sent = self.bench.send(standing, *member, begin.at);
                sent.map_or_else(Done::Impossible, |sent| Done::Sent(Box::new(sent)))
            }
        }
    }
}

/// The hand on what is sent: an experiment that ends sends nothing more, and waits for no answer.
struct Ending(Stop);

impl Grip for Ending {
    fn steer(&self, steer: &Steer) -> Option<String> {
        Some(format!("did not obey {:?}: the rate of an experiment does not change", steer.line))
    }

    fn stop(&self) {
        self.0.now();
    }

    fn abort(&self) {
        self.0.now();
    }
}
