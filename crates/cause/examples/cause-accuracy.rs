//! Scores inquiries on simulated targets with planted causes, and prints the results as Markdown.
//!
//! `cargo run --release -p seawall-cause --features simulated --example cause-accuracy -- FIRST-SEED PLANTS-PER-CLASS [why]`
//!
//! The targets have single causes, single causes on loopback (responses in less than a millisecond), or two causes at once.

#![expect(clippy::print_stdout, reason = "a program whose output is its purpose")]

use std::collections::BTreeMap;

use seawall_cause::class::CauseClass;
use seawall_cause::simulated::scores::{self, ScoredInquiry, share};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual| arguments.next().and_then(|word| word.parse().ok()).unwrap_or(usual);
    let (first, count) = (number(1), number(10));
    let why = std::env::args().nth(3).is_some();
    let singles = scores::score_single_causes(first..first + count);
    let beside = scores::score_single_local_causes(first..first + count);
    let pairs = scores::score_cause_pairs(first..first + count);
    for scores in [&singles, &beside] {
        confusion(scores);
        println!();
    }
    together(&pairs);
    if why {
        singles.iter().chain(&beside).filter(|score| !score.is_right() || score.is_unsure()).for_each(tell);
        pairs.iter().filter(|score| !score.named_all_causes()).for_each(tell);
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn confusion(scores: &[ScoredInquiry]) {
    println!("| Planted | right | wrong with confidence | not confident | load s | called otherwise |");
    println!("|---|---|---|---|---|---|");
    for group in scores.chunk_by(|one, other| one.truth == other.truth) {
        let name = group.first().and_then(|score| score.truth.first()).map_or("", |class| class.slug());
        row(name, group);
    }
    row("all", scores);
    let second = share(scores, |score| score.named.len() > 1);
    println!("\nA second cause was named in {} of them, where there is none.", percent(second));
}

fn row(name: &str, group: &[ScoredInquiry]) {
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for score in group.iter().filter(|score| !score.is_right()) {
        *others.entry(score.named.first().map_or("none", |class| class.slug())).or_default() += 1;
    }
    let others: Vec<_> = others.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let load = group.iter().map(|score| score.load_seconds).sum::<f64>() / group.len().max(1) as f64;
    let [right, wrong, unsure] = [
        share(group, ScoredInquiry::is_right),
        share(group, ScoredInquiry::is_wrong_with_confidence),
        share(group, ScoredInquiry::is_unsure),
    ]
    .map(percent);
    println!("| {name} | {right} | {wrong} | {unsure} | {load:.1} | {} |", others.join(", "));
}

fn together(scores: &[ScoredInquiry]) {
    println!("| Planted | both named | one of them first | wrong with confidence |");
    println!("|---|---|---|---|");
    for group in scores.chunk_by(|one, other| one.truth == other.truth) {
        let names: Vec<_> =
            group.first().map_or(&[][..], |score| &score.truth).iter().map(|class| class.slug()).collect();
        pair(&names.join(" + "), group);
    }
    pair("all", scores);
}

fn pair(name: &str, group: &[ScoredInquiry]) {
    let [both, one, wrong] = [
        share(group, ScoredInquiry::named_all_causes),
        share(group, ScoredInquiry::is_right),
        share(group, ScoredInquiry::is_wrong_with_confidence),
    ]
    .map(percent);
    println!("| {name} | {both} | {one} | {wrong} |");
}

fn tell(score: &ScoredInquiry) {
    let names =
        |classes: &[CauseClass]| classes.iter().map(|class| class.slug()).collect::<Vec<_>>().join(" + ");
    println!(
        "\n{} called {} ({:.1} ahead)",
        names(&score.truth),
        names(&score.named),
        score.confidence_ratio_to_unnamed
    );
    for tried in &score.report.experiments {
        println!("  {:?} {:?}: {}", tried.experiment.name, tried.experiment.load, tried.summary);
    }
    for cause in &score.report.causes {
        println!("  {} {:.3}", cause.class, cause.confidence);
        cause.evidence.iter().for_each(|evidence| {
            println!(
                "    {:.1} {}: {}",
                evidence.likelihood_ratio, evidence.experiment_name, evidence.observation
            )
        });
    }
}
