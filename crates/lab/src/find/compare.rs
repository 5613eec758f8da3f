//! Two runs beside each other: better, worse, the same, or nothing that can be said.
//!
//! What the search can say of two limits is [`seawall_search::compare`]'s; here is what only a whole run knows: limits under different
//! arrivals or policies of connections are different limits.

use seawall_search::belief::Bracket;
use seawall_search::compare as search;
use seawall_search::profile::Profile;
use seawall_search::report::{self, Report};

use super::answer::{Answer, Outcome};
use super::resume::Diverged;

/// What a comparison says of the cliff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// It is higher.
    Better,
    /// The whole interval of its change is within a tenth.
    Same,
    /// It is lower.
    Worse,
    /// The runs do not tell.
    CannotTell,
}

/// A change, and by how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// What it is.
    pub change: Change,
    /// Cliff after over cliff before.
    pub ratio: Bracket,
}

/// Why two runs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// Something else was asked.
    #[error("they were made with another {0}, and a limit is that of what was asked")]
    Asked(&'static str),
    /// There is nothing to compare.
    #[error("one of them found no cliff")]
    NotFound,
    /// A cliff that does not last is none.
    #[error("one of them has an allowance that is used up: its cliff is not what lasts")]
    Depleted,
    /// A figure that is none.
    #[error(transparent)]
    Figure(#[from] Diverged),
}

/// Changes that are called the same: the interval of the ratio lies within a tenth.
const SAME: (f64, f64) = (0.9, 1.0 / 0.9);

/// Holds the later run beside the earlier.
///
/// # Errors
/// [`Unlike`].
pub fn compare(before: &Answer, after: &Answer) -> Result<Compared, Unlike> {
    if before.asked.arrivals != after.asked.arrivals {
        return Err(Unlike::Asked("--arrivals"));
    }
    if before.asked.connections != after.asked.connections {
        return Err(Unlike::Asked("policy of connections"));
    }
    let search::Comparison { change, ratio } =
        search::compare(&report(before)?, &report(after)?).map_err(Unlike::from)?;
    let change = match change {
        search::Change::Better => Change::Better,
        search::Change::Worse => Change::Worse,
        search::Change::CannotTell if ratio.lower >= SAME.0 && ratio.upper <= SAME.1 => Change::Same,
        search::Change::CannotTell => Change::CannotTell,
    };
    Ok(Compared { change, ratio })
}

impl From<search::Unlike> for Unlike {
    fn from(unlike: search::Unlike) -> Self {
        match unlike {
            search::Unlike::Goal => Self::Asked("--slo"),
            search::Unlike::Profile => Self::Asked("profile (--quick or --thorough)"),
            search::Unlike::MaxRate => Self::Asked("--max-rate"),
            search::Unlike::NotFound => Self::NotFound,
            search::Unlike::Depleted => Self::Depleted,
        }
    }
}

/// What the search compares, without trials.
fn report(answer: &Answer) -> Result<Report, Diverged> {
    let asked = &answer.asked;
    let profiles = [Profile::QUICK, Profile::THOROUGH];
    let profile = profiles.iter().find(|profile| profile.name == asked.profile);
    Ok(Report {
        outcome: answer.is_found().then_some(match answer.outcome {
            Outcome::Metastable => report::Outcome::Metastable,
            _ => report::Outcome::Found,
        }),
        goal: asked.goal.searched()?,
        profile: profile.map_or("", |profile| profile.name),
        max_rate: asked.max_rate,
        cliff: cliff(answer),
        knee: None,
        kind: None,
        goodput: None,
        burst: None,
        depletion: answer
            .depletion
            .map(|found| report::Depletion { after: found.after, goodput: found.goodput }),
        allowance: None,
        recovery: report::Recovery::default(),
        trials: Vec::new(),
        took: std::time::Duration::ZERO,
    })
}

fn cliff(answer: &Answer) -> report::Limit {
    let limit = answer.cliff;
    let bracket = limit.lower.zip(limit.upper).zip(limit.point);
    let bracket = bracket.map(|((lower, upper), point)| Bracket { lower, point, upper });
    report::Limit { bracket, good: limit.good, bad: limit.bad }
}
