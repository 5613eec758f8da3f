//! The verdict on a generator and its reasons, for all checks.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The trust that the figures of a trial deserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GeneratorVerdict {
    /// The generator kept up.
    Valid,
    /// The generator's own delay is part of the figures.
    Degraded,
    /// The generator was the limit: the figures say nothing about the target's capacity.
    GeneratorLimited,
}

/// A reason why a verdict is worse than valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictReason {
    /// A stable name.
    pub check: Cow<'static, str>,
    /// The verdict.
    pub verdict: GeneratorVerdict,
    /// The measured value, with its threshold.
    pub measured: String,
}

impl VerdictReason {
    /// Creates a reason.
    #[must_use]
    pub fn new(check: &'static str, verdict: GeneratorVerdict, measured: String) -> Self {
        Self { check: Cow::Borrowed(check), verdict, measured }
    }
}

/// Returns the worst verdict of all reasons; valid without reasons.
#[must_use]
pub fn worst(reasons: &[VerdictReason]) -> GeneratorVerdict {
    reasons.iter().map(|reason| reason.verdict).max().unwrap_or(GeneratorVerdict::Valid)
}
