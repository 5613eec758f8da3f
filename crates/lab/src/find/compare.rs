//! Two runs beside each other: better, worse, the same, or nothing that can be said.
//!
//! What the search can say of two limits is [`seawall_search::compare`]'s; here is what it needs of a run's file, and when two are the same.

use seawall_search::belief::Bracket;
use seawall_search::compare::{self as search, Run};
use seawall_search::report;

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
    /// Numbers of clients.
    #[error("they searched for a number of clients (--closed), and only rates are compared")]
    Clients,
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
    match (before.closed.is_some(), after.closed.is_some()) {
        (false, false) => {}
        (true, true) => return Err(Unlike::Clients),
        _ => return Err(Unlike::Asked("kind of search (one of them with --closed)")),
    }
    let search::Comparison { change, ratio } =
        search::compare(&run(before)?, &run(after)?).map_err(Unlike::from)?;
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
            search::Unlike::Arrivals => Self::Asked("--arrivals"),
            search::Unlike::Connections => Self::Asked("policy of connections"),
            search::Unlike::NotFound => Self::NotFound,
            search::Unlike::Depleted => Self::Depleted,
        }
    }
}

/// What the search compares.
fn run(answer: &Answer) -> Result<Run, Diverged> {
    let asked = &answer.asked;
    let limit = answer.cliff;
    let bracket = limit.lower.zip(limit.upper).zip(limit.point);
    Ok(Run {
        goal: asked.goal.searched()?,
        profile: asked.profile.clone(),
        max_rate: asked.max_rate,
        arrivals: format!("{:?}", asked.arrivals),
        connections: format!("{:?}", asked.connections),
        outcome: answer.is_found().then_some(match answer.outcome {
            Outcome::Metastable => report::Outcome::Metastable,
            _ => report::Outcome::Found,
        }),
        depleted: answer.depletion.is_some(),
        cliff: bracket.map(|((lower, upper), point)| Bracket { lower, point, upper }),
    })
}
