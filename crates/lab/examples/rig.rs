//! Searches a URL's limit by hand, trial by trial: `rig URL [quick|thorough] [late=MS] [poisson]`; or offers a rate for five seconds:
//! `rig URL rate=N`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints what it does")]

use std::time::Duration;

use seawall_lab::ground::Ground;
use seawall_lab::rig::{Kit, Rig};
use seawall_load::plan::Travel;
use seawall_load::request::{Request, Style};
use seawall_load::schedule::Spacing;
use seawall_load::supply::List;
use seawall_load::target::{Target as Asked, Weight};
use seawall_search::goal::{Goal, Lateness};
use seawall_search::offer::{Offer, Purpose, Rule};
use seawall_search::profile::Profile;
use seawall_search::report::Trial;
use seawall_search::search::{Bounds, Search, Step};
use seawall_search::seen::{Block, mean_latency, sum};
use seawall_search::target::Target;
use seawall_search::vote::Standard;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(url) = words.first() else {
        return Err("usage: rig URL [quick|thorough] [late=MS] [poisson]".into());
    };
    let said = |word: &str| words.iter().any(|said| said == word);
    let late =
        words.iter().find_map(|word| word.strip_prefix("late=")?.parse().ok()).map(Duration::from_millis);
    let asked = Asked { method: "GET".into(), url: url.clone(), ..Asked::default() };
    let request = Request::new(&asked, &Style::default())?;
    let list = List::new(vec![(request, Weight::default())])?;
    let kit = Kit { list, travel: Travel::default(), style: Style::default(), cpus: 2, spin: None };
    let spacing = if said("poisson") { Spacing::Poisson(1) } else { Spacing::Even };
    let mut rig = Rig::new(kit, spacing, late)?;
    let calibration = rig.calibrate();
    println!("{:?} in {:.2?}: {}", calibration.most, calibration.took, calibration.how);
    let rate = words.iter().find_map(|word| word.strip_prefix("rate=")?.parse().ok());
    if let Some(rate) = rate {
        offered(&mut rig, rate);
        return Ok(());
    }
    let goal = Goal { late: late.map(|than| Lateness { share: 0.01, than }), ..Goal::CLIFF };
    let profile = if said("thorough") { Profile::THOROUGH } else { Profile::QUICK };
    let bounds = Bounds { generator: calibration.most, ..Bounds::default() };
    searched(&mut Search::new(goal, profile, bounds), &mut rig);
    Ok(())
}

/// One rate, whatever comes of it.
fn offered(rig: &mut Rig, rate: f64) {
    let standard =
        Standard { goal: Goal::CLIFF, tolerance: 1.0, settle: 0.3, least: 1.0, service: 0.0, slowest: 0.0 };
    let (most, drain) = (Duration::from_secs(5), Duration::from_millis(600));
    let (purpose, rule, most_in_flight) = (Purpose::Confirm, Rule::Whole(standard), rate);
    let seen = rig.carry_out(&Offer { purpose, rate, least: most, most, rule, most_in_flight, drain });
    let of = |of: fn(&Block) -> u32| sum(&seen.blocks, of);
    let slowest = seen.blocks.iter().map(|block| block.slowest).fold(0.0, f64::max);
    let latency = mean_latency(&seen.blocks).unwrap_or_default();
    println!(
        "{} sent, {} good, {} errors, {} late; mean {:.3} ms, slowest {:.3} ms; {} blocks in {:.2?}; {:?}",
        of(|block| block.sent),
        of(|block| block.good),
        of(|block| block.errors),
        of(|block| block.late),
        1e3 * latency,
        1e3 * slowest,
        seen.blocks.len(),
        seen.took,
        seen.invalid
    );
}

fn searched(search: &mut Search, rig: &mut Rig) {
    loop {
        match search.next_step() {
            Step::Offer(offer) => {
                let seen = rig.carry_out(&offer);
                search.saw(&offer, seen);
                if let Some(trial) = search.report().trials.last() {
                    println!("{}", line(trial));
                }
            }
            Step::Rest(time) => {
                let goes_on = rig.rest(time);
                search.rested(time, goes_on);
            }
            Step::Over => break,
        }
    }
    let report = search.report();
    println!(
        "{:?} {:?} knee {:?} {:?} in {:.1?}",
        report.outcome, report.cliff, report.knee, report.kind, report.took
    );
}

fn line(trial: &Trial) -> String {
    let Trial { offer, seen, evidence, vote, began, .. } = trial;
    format!(
        "{:7.1?} {:9} {:9.1}/s {:5.2?} {:?}, {:.0} in flight at the end, {:.4} errors, {:.3} ms {}",
        began,
        format!("{:?}", offer.purpose),
        offer.rate,
        seen.took,
        vote,
        evidence.to,
        evidence.errors.value(),
        1e3 * evidence.latency.unwrap_or_default(),
        seen.invalid.as_deref().unwrap_or_default()
    )
}
