//! The probability of each sign under each cause, and the posterior probability of the causes.
//!
//! The table follows the study of real servers: 120 targets drawn at random, eight per class. A sign in n of 8 targets gets about (n + 0.5)
//! / 9, so that no sign alone decides. Signs that overlap have less weight ([`SignRule::weight`]). A hypothesis is one cause or two. With
//! two causes, a sign is present if either cause shows it.

use crate::class::CauseClass;
use crate::diagnosis_input::DiagnosisInput;
use crate::signs::{self, SignOutcome};
use CauseClass::{
    Bandwidth, CfsThrottling, ChurnCost, ConcurrencyCap, ConnectionCap, CpuSaturation, DelayingLimiter, Dns,
    HangingLimiter, KeepAliveRace, Pauses, PoolSaturation, Ports, RateLimiter, TimeoutChain, UnevenBalancing,
    Unknown,
};

/// A sign with its experiment and its probabilities.
pub struct SignRule {
    /// The name of the experiment that shows the sign.
    pub experiment_name: &'static str,
    /// The function that reads the sign.
    pub read: fn(&DiagnosisInput<'_>) -> SignOutcome,
    /// The weight of the sign; below 1 if other signs overlap with it.
    pub weight: f64,
    /// The rule that combines the probabilities of two causes.
    pub combination: SignCombination,
    /// The probabilities of outcome 1 and higher under causes that `class_chances` does not list. Outcome 0 has the rest.
    pub default_chances: &'static [f64],
    /// The probabilities of outcome 1 and higher under the listed causes.
    pub class_chances: &'static [(CauseClass, &'static [f64])],
}

/// The rule that combines the probabilities of a sign under two simultaneous causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignCombination {
    /// The sign is present if either cause shows it.
    Either,
    /// The sign is present only if both causes show it, because one of them disturbs it.
    Both,
    /// The sign follows one of the two causes, each with the same probability.
    EitherCauseAtRandom,
}

const fn either(
    by: &'static str,
    read: fn(&DiagnosisInput<'_>) -> SignOutcome,
    usual: &'static [f64],
    under: &'static [(CauseClass, &'static [f64])],
) -> SignRule {
    SignRule {
        experiment_name: by,
        read,
        weight: 1.0,
        combination: SignCombination::Either,
        default_chances: usual,
        class_chances: under,
    }
}

impl SignRule {
    const fn weighs(self, weight: f64) -> Self {
        Self { weight, ..self }
    }

    const fn joint(self, joint: SignCombination) -> Self {
        Self { combination: joint, ..self }
    }

    /// Returns the number of outcomes.
    #[must_use]
    pub fn outcome_count(&self) -> usize {
        self.default_chances.len() + 1
    }

    /// Returns the probability of an outcome under a cause.
    #[must_use]
    pub fn chance(&self, outcome: usize, class: CauseClass) -> f64 {
        let named = self.class_chances.iter().find(|(under, _)| *under == class);
        let chances = named.map_or(self.default_chances, |(_, chances)| chances);
        match outcome.checked_sub(1) {
            None => 1.0 - chances.iter().sum::<f64>(),
            Some(index) => chances.get(index).copied().unwrap_or(0.0),
        }
    }

    fn of_both(&self, outcome: usize, [one, other]: [CauseClass; 2]) -> f64 {
        let (a, b) = (self.chance(outcome, one), self.chance(outcome, other));
        match (self.combination, outcome) {
            (SignCombination::EitherCauseAtRandom, _) => (a + b) / 2.0,
            (SignCombination::Either, 0) | (SignCombination::Both, 1..) => a * b,
            (SignCombination::Either, _) | (SignCombination::Both, 0) => 1.0 - (1.0 - a) * (1.0 - b),
        }
    }
}

/// All signs with their probabilities.
pub static RULES: &[SignRule] = &[
    either(
        "90 % of the limit",
        signs::refuses_near_limit,
        &[0.02],
        &[(ConcurrencyCap, &[0.5]), (RateLimiter, &[0.05]), (PoolSaturation, &[0.05])],
    ),
    either(
        "150 % of the limit",
        signs::goodput_after_refusal,
        &[0.4, 0.2],
        &[
            (RateLimiter, &[0.8, 0.06]),
            (ConcurrencyCap, &[0.15, 0.4]),
            (DelayingLimiter, &[0.85, 0.05]),
            (PoolSaturation, &[0.4, 0.2]),
        ],
    )
    .joint(SignCombination::EitherCauseAtRandom),
    either(
        "150 % of the limit",
        signs::refuses_quickly_over_limit,
        &[0.02],
        &[
            (RateLimiter, &[0.95]),
            (ConcurrencyCap, &[0.95]),
            (DelayingLimiter, &[0.5]),
            (PoolSaturation, &[0.39]),
            (CpuSaturation, &[0.15]),
            (TimeoutChain, &[0.1]),
            (Unknown, &[0.05]),
        ],
    ),
    either(
        "150 % of the limit",
        signs::refuses_by_in_flight_count,
        // The outcomes are chance, likely and almost certain. The probabilities come from seeds 1 to 59 of the simulated targets.
        &[0.25, 0.4],
        &[
            (RateLimiter, &[0.05, 0.03]),
            (ConcurrencyCap, &[0.2, 0.74]),
            (PoolSaturation, &[0.1, 0.85]),
            (DelayingLimiter, &[0.4, 0.5]),
        ],
    )
    // The sign of goodput after a refusal overlaps with this one.
    .weighs(0.8)
    .joint(SignCombination::EitherCauseAtRandom),
    either(
        "150 % of the limit",
        signs::stays_fast_in_overload,
        &[0.04],
        &[
            (RateLimiter, &[0.93]),
            (HangingLimiter, &[0.93]),
            (ConcurrencyCap, &[0.93]),
            (ConnectionCap, &[0.75]),
            (KeepAliveRace, &[0.93]),
            (Dns, &[0.5]),
            (Ports, &[0.9]),
            (Pauses, &[0.8]),
            (PoolSaturation, &[0.17]),
            (Unknown, &[0.6]),
        ],
    )
    .weighs(0.5)
    .joint(SignCombination::Both),
    either(
        "150 % of the limit",
        signs::slows_down_in_overload,
        &[0.03],
        &[
            (PoolSaturation, &[0.9]),
            (CpuSaturation, &[0.96]),
            (CfsThrottling, &[0.96]),
            (DelayingLimiter, &[0.95]),
            (Bandwidth, &[0.95]),
            (ChurnCost, &[0.93]),
            (TimeoutChain, &[0.7]),
            (UnevenBalancing, &[0.15]),
            // With a cap of one, requests wait for the served connection.
            (ConnectionCap, &[0.3]),
            (Dns, &[0.45]),
        ],
    ),
    either(
        "150 % of the limit",
        signs::overload_goodput_level,
        &[0.6, 0.1],
        &[
            (RateLimiter, &[0.6, 0.2]),
            (HangingLimiter, &[0.5, 0.15]),
            (DelayingLimiter, &[0.75, 0.05]),
            (PoolSaturation, &[0.6, 0.03]),
            (CpuSaturation, &[0.65, 0.03]),
            (CfsThrottling, &[0.3, 0.05]),
            (ConcurrencyCap, &[0.1, 0.4]),
            (ConnectionCap, &[0.2, 0.35]),
            (ChurnCost, &[0.5, 0.2]),
            (TimeoutChain, &[0.25, 0.05]),
            (KeepAliveRace, &[0.3, 0.55]),
            (Pauses, &[0.1, 0.85]),
            (UnevenBalancing, &[0.06, 0.92]),
            (Dns, &[0.3, 0.5]),
            (Ports, &[0.2, 0.3]),
            (Unknown, &[0.2, 0.6]),
        ],
    )
    .weighs(0.5)
    .joint(SignCombination::EitherCauseAtRandom),
    either(
        "150 % of the limit",
        signs::hangs_in_overload,
        &[0.01],
        &[(HangingLimiter, &[0.95]), (ConnectionCap, &[0.45]), (Dns, &[0.05])],
    ),
    either(
        "150 % of the limit",
        signs::hangs_only_on_new_connections,
        &[0.3],
        &[(ConnectionCap, &[0.95]), (HangingLimiter, &[0.1])],
    )
    .joint(SignCombination::EitherCauseAtRandom),
    either(
        "150 % of the limit",
        signs::cuts_new_connections_over_limit,
        &[0.01],
        &[(ConnectionCap, &[0.55]), (KeepAliveRace, &[0.08])],
    ),
    either("half the limit", signs::cuts_reused_connections, &[0.005], &[(KeepAliveRace, &[0.65])]),
    either("two connections", signs::cuts_heavily_reused_connections, &[0.004], &[(KeepAliveRace, &[0.9])]),
    // Half of the drawn targets close connections by the number of requests, not by idle time.
    either("idle connections", signs::cuts_idle_connections, &[0.004], &[(KeepAliveRace, &[0.5])]),
    either(
        "half the limit for 4 s",
        signs::stalls_for_constant_time,
        &[0.005],
        &[(Pauses, &[0.85]), (Dns, &[0.1]), (CfsThrottling, &[0.05])],
    ),
    either(
        "90 % of the limit",
        signs::responses_follow_cpu_quota,
        &[0.05],
        &[(CfsThrottling, &[0.88]), (Dns, &[0.2]), (Pauses, &[0.25]), (RateLimiter, &[0.12])],
    )
    .weighs(0.8),
    // This sign adds little when the sign above is present, and much when it is absent.
    either(
        "half the limit",
        signs::stalls_follow_cpu_quota,
        &[0.003],
        &[(CfsThrottling, &[0.3]), (Pauses, &[0.01])],
    )
    .weighs(0.7),
    either("half the limit", signs::lookups_dominate, &[0.005], &[(Dns, &[0.95])]),
    either("half the limit", signs::needs_little_bandwidth, &[0.4], &[(Bandwidth, &[0.06])])
        .joint(SignCombination::Both),
    either(
        "half the limit",
        signs::in_flight_level_at_limit,
        &[0.3, 0.15],
        &[
            (DelayingLimiter, &[0.2, 0.1]),
            (CpuSaturation, &[0.01, 0.002]),
            (PoolSaturation, &[0.005, 0.001]),
            (ConcurrencyCap, &[0.3, 0.005]),
            (ConnectionCap, &[0.2, 0.005]),
            (CfsThrottling, &[0.6, 0.02]),
            (Bandwidth, &[0.02, 0.001]),
            (TimeoutChain, &[0.02, 0.001]),
            (UnevenBalancing, &[0.01, 0.001]),
        ],
    )
    // The sign of many clients overlaps with this one.
    .weighs(0.7),
    either("150 % of the limit", signs::handshakes_slow_down, &[0.005], &[(ChurnCost, &[0.93])]),
    either(
        "150 % of the limit",
        signs::retransmits_syn,
        &[0.005],
        &[(ConnectionCap, &[0.35]), (PoolSaturation, &[0.05]), (CpuSaturation, &[0.05])],
    )
    .weighs(0.7),
    // Proxies that give up after more than a second, or after several tries, do not show this sign: the experiment ends earlier.
    either("150 % of the limit", signs::gateway_times_out, &[0.003], &[(TimeoutChain, &[0.7])]),
    either("long queue", signs::gateway_times_out_queued, &[0.003], &[(TimeoutChain, &[0.9])]),
    either(
        "150 % of the limit",
        signs::some_responses_slow_down,
        &[0.02],
        &[(UnevenBalancing, &[0.93]), (Pauses, &[0.1])],
    ),
    either("150 % of the limit", signs::no_port, &[0.000_5], &[(Ports, &[0.97])]),
    either("150 % of the limit", signs::name_does_not_resolve, &[0.001], &[(Dns, &[0.2])]),
    either("one client", signs::delays_single_client, &[0.015], &[(DelayingLimiter, &[0.93])]),
    either(
        "bursts of the concurrent capacity",
        signs::simultaneous_requests_wait,
        &[0.06],
        &[
            (DelayingLimiter, &[0.92]),
            (Bandwidth, &[0.9]),
            (CpuSaturation, &[0.7]),
            (CfsThrottling, &[0.8]),
            (UnevenBalancing, &[0.3]),
            (Dns, &[0.5]),
            (ChurnCost, &[0.6]),
        ],
    ),
    either(
        "many clients",
        signs::concurrent_capacity_level,
        &[0.1, 0.1, 0.12, 0.38],
        &[
            (CpuSaturation, &[0.05, 0.8, 0.12, 0.01]),
            (PoolSaturation, &[0.005, 0.015, 0.05, 0.92]),
            (CfsThrottling, &[0.15, 0.05, 0.005, 0.005]),
            (DelayingLimiter, &[0.12, 0.14, 0.12, 0.3]),
            (Bandwidth, &[0.05, 0.1, 0.15, 0.65]),
            (ConcurrencyCap, &[0.01, 0.02, 0.06, 0.9]),
            (ConnectionCap, &[0.02, 0.03, 0.07, 0.86]),
        ],
    )
    .joint(SignCombination::EitherCauseAtRandom),
    either(
        "three bursts in a row",
        signs::admits_second_burst,
        // Outcome 0 means that the places are still taken.
        &[0.1, 0.7],
        &[
            (RateLimiter, &[0.75, 0.22]),
            (ConcurrencyCap, &[0.05, 0.15]),
            (ConnectionCap, &[0.08, 0.2]),
            (PoolSaturation, &[0.12, 0.58]),
            (DelayingLimiter, &[0.4, 0.55]),
        ],
    )
    .joint(SignCombination::EitherCauseAtRandom),
    either(
        "idle connections held open",
        signs::held_connections_block_others,
        &[0.02],
        &[(ConnectionCap, &[0.94]), (PoolSaturation, &[0.25]), (CpuSaturation, &[0.05])],
    )
    // A cap far above the offered load has no effect at that load.
    .joint(SignCombination::EitherCauseAtRandom),
    either(
        "with keep-alive",
        signs::keep_alive_raises_limit,
        &[0.04],
        &[(ChurnCost, &[0.93]), (Dns, &[0.8]), (Ports, &[0.6])],
    ),
    either("without keep-alive", signs::new_connections_stop_hangs, &[0.03], &[(ConnectionCap, &[0.9])])
        // A cap far above the offered load has no effect at that load.
        .joint(SignCombination::EitherCauseAtRandom),
    either("without keep-alive", signs::new_connections_stop_cuts, &[0.2], &[(KeepAliveRace, &[0.92])]),
    either(
        "HEAD requests",
        signs::head_raises_limit,
        &[0.03],
        &[(Bandwidth, &[0.94]), (TimeoutChain, &[0.3]), (ChurnCost, &[0.15])],
    ),
    either("another source address", signs::other_source_frees_ports, &[0.3], &[(Ports, &[0.95])]),
    either("IP address instead of name", signs::skipping_dns_helps, &[0.04], &[(Dns, &[0.92])]),
    either(
        "many connections at twice the rate",
        signs::hanging_count_is_constant,
        &[0.01],
        &[(ConnectionCap, &[0.8])],
    ),
    either(
        "few connections",
        signs::few_connections_avoid_hangs,
        &[0.1],
        &[(ConnectionCap, &[0.9]), (HangingLimiter, &[0.4])],
    )
    // A cap far above the offered load has no effect at that load.
    .joint(SignCombination::EitherCauseAtRandom),
];

/// A sign that was read.
#[derive(Clone)]
pub struct ObservedSign {
    /// The rule of the sign.
    pub rule: &'static SignRule,
    /// The outcome.
    pub outcome: usize,
    /// The description for the report.
    pub description: String,
}

/// Reads every sign that has an outcome.
#[must_use]
pub fn read_signs(case: &DiagnosisInput<'_>) -> Vec<ObservedSign> {
    let read = RULES.iter().filter_map(|rule| {
        (rule.read)(case).map(|(outcome, seen)| ObservedSign { rule, outcome, description: seen })
    });
    read.collect()
}

/// The prior of all pairs of causes together, relative to single causes.
const PAIRS: f64 = 0.5;
/// The least probability of a leading cause.
const LEADS: f64 = 0.25;
/// The probability of a second cause from which the report names two causes.
const TWO: f64 = 0.45;
/// The probability that always remains for causes outside the table.
const DOUBT: f64 = 0.02;

/// Returns the causes that compete: all except the generator, which the load engine reports itself.
pub fn competing_classes() -> impl Iterator<Item = CauseClass> + Clone {
    CauseClass::ALL.into_iter().filter(|class| *class != CauseClass::Generator)
}

/// The probabilities of causes, alone and in pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct CausePosterior {
    /// The probability of each cause, alone or in a pair.
    pub marginals: Vec<(CauseClass, f64)>,
    /// The probability of each pair.
    pairs: Vec<([CauseClass; 2], f64)>,
}

impl CausePosterior {
    /// Computes the posterior from the signs. Values of `trust` below 1 give the signs less weight.
    #[must_use]
    pub fn new(readings: &[ObservedSign], trust: f64) -> Self {
        let log = |chance: &dyn Fn(&ObservedSign) -> f64| {
            let sum: f64 =
                readings.iter().map(|reading| reading.rule.weight * chance(reading).max(1e-6).ln()).sum();
            trust * sum
        };
        let single = |class: CauseClass| log(&|reading| reading.rule.chance(reading.outcome, class));
        let double = |pair: [CauseClass; 2]| log(&|reading| reading.rule.of_both(reading.outcome, pair));
        let pairs: Vec<_> = pairs().collect();
        let each = (PAIRS / pairs.len() as f64).ln() + (competing_classes().count() as f64).ln();
        let mut alone: Vec<_> = competing_classes().map(|class| (class, single(class))).collect();
        let mut pairs: Vec<_> = pairs.into_iter().map(|pair| (pair, double(pair) + each)).collect();
        let most = alone
            .iter()
            .map(|(_, log)| *log)
            .chain(pairs.iter().map(|(_, log)| *log))
            .fold(f64::MIN, f64::max);
        alone.iter_mut().for_each(|(_, log)| *log = (*log - most).exp());
        pairs.iter_mut().for_each(|(_, log)| *log = (*log - most).exp());
        Self::normalised(alone, pairs)
    }

    fn normalised(mut alone: Vec<(CauseClass, f64)>, mut pairs: Vec<([CauseClass; 2], f64)>) -> Self {
        let sum: f64 = alone.iter().map(|(_, p)| p).chain(pairs.iter().map(|(_, p)| p)).sum();
        let floor = DOUBT / alone.len() as f64;
        alone.iter_mut().for_each(|(_, p)| *p = *p / sum * (1.0 - DOUBT) + floor);
        pairs.iter_mut().for_each(|(_, p)| *p = *p / sum * (1.0 - DOUBT));
        let with = |class: CauseClass| {
            pairs.iter().filter(move |(pair, _)| pair.contains(&class)).map(|(_, p)| p).sum::<f64>()
        };
        let of = alone.iter().map(|(class, p)| (*class, (p + with(*class)).min(1.0 - DOUBT))).collect();
        let mut odds = Self { marginals: of, pairs };
        odds.marginals.sort_by(|one, other| other.1.total_cmp(&one.1));
        odds
    }

    /// Returns the most probable cause; [`CauseClass::Unknown`] if none is probable enough.
    #[must_use]
    pub fn leading_class(&self) -> CauseClass {
        self.marginals.first().filter(|(_, p)| *p > LEADS).map_or(Unknown, |(class, _)| *class)
    }

    /// Returns the probability of a cause.
    #[must_use]
    pub fn probability(&self, class: CauseClass) -> f64 {
        self.marginals.iter().find(|(of, _)| *of == class).map_or(0.0, |(_, p)| *p)
    }

    /// Returns the causes to report: the most probable one, and a second one if the leading cause is probably not alone.
    #[must_use]
    pub fn causes_to_report(&self) -> Vec<(CauseClass, f64)> {
        let leading = self.leading_class();
        let beside = |class: CauseClass| {
            let pair = self.pairs.iter().find(|(pair, _)| pair.contains(&leading) && pair.contains(&class));
            pair.map_or(0.0, |(_, p)| *p)
        };
        let all: f64 = self
            .marginals
            .iter()
            .filter(|(class, _)| *class != leading)
            .map(|(class, _)| beside(*class))
            .sum();
        let second = self
            .marginals
            .iter()
            .filter(|(class, _)| *class != leading)
            .max_by(|one, other| beside(one.0).total_cmp(&beside(other.0)));
        let second = second.filter(|(class, _)| all > TWO * (1.0 - DOUBT) && beside(*class) > 0.35 * all);
        let first = (leading, self.probability(leading));
        std::iter::once(first).chain(second.copied()).collect()
    }

    /// Returns the expected information of a sign, in bits.
    #[must_use]
    pub fn expected_information_of_sign(&self, rule: &SignRule) -> f64 {
        let total: f64 = self.marginals.iter().map(|(_, p)| p).sum();
        let mut told = 0.0;
        for outcome in 0..rule.outcome_count() {
            let all: f64 =
                self.marginals.iter().map(|(class, p)| p / total * rule.chance(outcome, *class)).sum();
            for (class, p) in &self.marginals {
                let chance = rule.chance(outcome, *class).max(1e-9);
                told += p / total * chance * (chance / all.max(1e-9)).log2();
            }
        }
        told * rule.weight
    }
}

fn pairs() -> impl Iterator<Item = [CauseClass; 2]> {
    let known = competing_classes().filter(|class| *class != Unknown);
    known
        .clone()
        .flat_map(move |one| known.clone().filter(move |other| one < *other).map(move |other| [one, other]))
}
