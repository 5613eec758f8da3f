//! Parses and writes faults as text, such as `pool,workers=8,service=5ms`. The parser reports all mistakes at once.

use std::fmt;

use super::kind::{FaultKind, FaultParameter, ParameterForm};

/// The most faults of one server.
pub const MAX_FAULTS_PER_SERVER: usize = 8;

/// A fault: its kind with a value for each parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct PlantedFault {
    /// The kind of the fault.
    pub kind: &'static FaultKind,
    /// The values in the order of the kind's parameters: durations in seconds, words by their index.
    values: Vec<f64>,
}

/// A mistake in the text of a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultSyntaxError {
    /// The fault is unknown.
    #[error("{_0:?} is not a fault: expected one of {all}", all = names(FaultKind::ALL.iter().map(|kind| kind.name)))]
    UnknownFault(String),
    /// A part is not a parameter with a value.
    #[error("{plant}: {part:?} is not KEY=VALUE")]
    KeyValue {
        /// The name of the fault.
        plant: &'static str,
        /// The part of the text.
        part: String,
    },
    /// The parameter is unknown.
    #[error("{plant} has no parameter {key:?}: expected one of {all}", all = names(kind_keys(plant)))]
    UnknownParameter {
        /// The name of the fault.
        plant: &'static str,
        /// The name of the parameter.
        key: String,
    },
    /// The parameter is given twice.
    #[error("{plant}: {key} is given twice")]
    Twice {
        /// The name of the fault.
        plant: &'static str,
        /// The name of the parameter.
        key: &'static str,
    },
    /// The value is invalid.
    #[error("{plant}: {key}={value:?} is not {expected}")]
    Value {
        /// The name of the fault.
        plant: &'static str,
        /// The name of the parameter.
        key: &'static str,
        /// The value as text.
        value: String,
        /// The expected form.
        expected: String,
    },
    /// The values or the faults contradict each other, a fault is repeated, or there are too many faults.
    #[error("{0}")]
    InvalidCombination(String),
}

fn names(all: impl Iterator<Item = &'static str>) -> String {
    let all: Vec<_> = all.collect();
    if all.is_empty() { "(no parameters)".to_owned() } else { all.join(", ") }
}

fn kind_keys(plant: &str) -> impl Iterator<Item = &'static str> {
    FaultKind::find(plant).into_iter().flat_map(|kind| kind.parameters).map(|key| key.name)
}

impl PlantedFault {
    /// Parses one fault.
    ///
    /// # Errors
    /// All mistakes in the text.
    pub fn parse(text: &str) -> Result<Self, Vec<FaultSyntaxError>> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let kind =
            FaultKind::find(name).ok_or_else(|| vec![FaultSyntaxError::UnknownFault(name.to_owned())])?;
        let mut given = vec![None; kind.parameters.len()];
        let mut mistakes: Vec<_> = parts.filter_map(|part| take(kind, part, &mut given).err()).collect();
        let values = kind.parameters.iter().zip(given);
        let values =
            values.map(|(key, given)| given.or_else(|| key.form.read(key.default)).unwrap_or(f64::NAN));
        let plant = Self { kind, values: values.collect() };
        mistakes.extend(
            plant.contradiction().map(FaultSyntaxError::InvalidCombination).filter(|_| mistakes.is_empty()),
        );
        if mistakes.is_empty() { Ok(plant) } else { Err(mistakes) }
    }

    /// Parses all faults of one server.
    ///
    /// # Errors
    /// All mistakes in the texts and in their combination.
    pub fn parse_all<T: AsRef<str>>(texts: &[T]) -> Result<Vec<Self>, Vec<FaultSyntaxError>> {
        let (mut plants, mut mistakes) = (Vec::new(), Vec::new());
        for text in texts {
            match Self::parse(text.as_ref()) {
                Ok(plant) => plants.push(plant),
                Err(more) => mistakes.extend(more),
            }
        }
        if texts.len() > MAX_FAULTS_PER_SERVER {
            mistakes.push(FaultSyntaxError::InvalidCombination(format!(
                "expected at most {MAX_FAULTS_PER_SERVER} faults"
            )));
        }
        mistakes.extend(repeated(&plants));
        if mistakes.is_empty() { Ok(plants) } else { Err(mistakes) }
    }

    /// Returns the value of a parameter: durations in seconds, words by their index. The result is NaN for a parameter that the
    /// kind lacks.
    #[must_use]
    pub fn parameter_value(&self, key: &str) -> f64 {
        self.place(key).and_then(|place| self.values.get(place)).copied().unwrap_or(f64::NAN)
    }

    /// Returns the value of a parameter as a whole number.
    pub(super) fn parameter_as_usize(&self, key: &str) -> usize {
        self.parameter_value(key) as usize
    }

    /// Returns the value of a duration parameter in nanoseconds.
    pub(super) fn parameter_as_nanos(&self, key: &str) -> u64 {
        (self.parameter_value(key) * 1e9).round() as u64
    }

    /// Returns whether a parameter has this word as its value.
    pub(super) fn parameter_is_word(&self, key: &str, word: &str) -> bool {
        self.parameters().any(|(name, value)| name == key && value == word)
    }

    /// Returns the fault with another value of a parameter. A parameter that the kind lacks is ignored.
    #[must_use]
    pub(super) fn with_parameter(mut self, key: &str, value: f64) -> Self {
        if let Some(slot) = self.place(key).and_then(|place| self.values.get_mut(place)) {
            *slot = value;
        }
        self
    }

    /// Returns each parameter with its value as text.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.kind.parameters.iter().zip(&self.values).map(|(key, value)| (key.name, key.form.write(*value)))
    }

    fn place(&self, key: &str) -> Option<usize> {
        self.kind.parameters.iter().position(|known| known.name == key)
    }

    fn contradiction(&self) -> Option<String> {
        let (longer, shorter) = match self.kind.name {
            "pauses" | "bursts" => ("every", "length"),
            _ => return self.keep_alive_of_nothing().or_else(|| self.empty_window()),
        };
        let contradicts = self.parameter_value(shorter) >= self.parameter_value(longer);
        contradicts.then(|| format!("{}: {shorter} must be less than {longer}", self.kind.name))
    }

    fn keep_alive_of_nothing(&self) -> Option<String> {
        let nothing = self.kind.name == "keep-alive"
            && self.parameter_value("after") + self.parameter_value("idle") == 0.0;
        nothing.then(|| "keep-alive: after=0 and idle=0s have no effect: give one above 0".to_owned())
    }

    fn empty_window(&self) -> Option<String> {
        let (window, rate) = (self.parameter_value("window"), self.parameter_value("rate"));
        let empty = window > 0.0 && window * rate < 1.0;
        empty.then(|| "rate-limiter: `rate` multiplied by `window` must be at least one request".to_owned())
    }
}

impl fmt::Display for PlantedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name)?;
        self.parameters().try_for_each(|(key, value)| write!(f, ",{key}={value}"))
    }
}

/// The faults that a server can have only once, because they concern its connections, its link, its DNS server or its pauses.
const ONCE: [&str; 6] = ["connection-cap", "churn", "keep-alive", "bandwidth", "dns", "pauses"];

fn repeated(plants: &[PlantedFault]) -> impl Iterator<Item = FaultSyntaxError> {
    let times = |name: &str| plants.iter().filter(|plant| plant.kind.name == name).count();
    let repeated = ONCE.into_iter().filter(move |name| times(name) > 1);
    repeated.map(|name| FaultSyntaxError::InvalidCombination(format!("{name} can be given only once")))
}

fn take(kind: &'static FaultKind, part: &str, given: &mut [Option<f64>]) -> Result<(), FaultSyntaxError> {
    let plant = kind.name;
    let no_part = || FaultSyntaxError::KeyValue { plant, part: part.to_owned() };
    let (name, value) = part.split_once('=').ok_or_else(no_part)?;
    let known = kind.parameters.iter().zip(given).find(|(key, _)| key.name == name);
    let (key, slot) =
        known.ok_or_else(|| FaultSyntaxError::UnknownParameter { plant, key: name.to_owned() })?;
    if slot.is_some() {
        return Err(FaultSyntaxError::Twice { plant, key: key.name });
    }
    *slot = Some(key.form.read(value).ok_or_else(|| key.refuses(plant, value))?);
    Ok(())
}

impl FaultParameter {
    fn refuses(&self, plant: &'static str, value: &str) -> FaultSyntaxError {
        FaultSyntaxError::Value {
            plant,
            key: self.name,
            value: value.to_owned(),
            expected: self.form.expected(),
        }
    }
}

/// The longest duration in seconds. A longer one has no effect within a trial.
const LONGEST: f64 = 3600.0;

impl ParameterForm {
    fn read(self, text: &str) -> Option<f64> {
        let number = || text.parse().ok().filter(|number: &f64| number.is_finite());
        match self {
            Self::Rate => number().filter(|rate| (0.001..=1e7).contains(rate)),
            Self::Number(least, most) => number().filter(|number| (least..=most).contains(number)),
            Self::Count(least, most) => {
                text.parse().ok().filter(|count| (least..=most).contains(count)).map(f64::from)
            }
            Self::Duration { may_be_zero } => {
                let span = seawall_core::duration::parse(text)?.as_nanos() as f64 / 1e9;
                Some(span).filter(|span| *span <= LONGEST && (may_be_zero || *span > 0.0))
            }
            Self::Word(words) => words.iter().position(|word| *word == text).map(|place| place as f64),
        }
    }

    fn write(self, value: f64) -> String {
        match self {
            Self::Rate | Self::Number(..) | Self::Count(..) => format!("{value}"),
            Self::Duration { .. } if value >= 1.0 || value == 0.0 => format!("{value}s"),
            Self::Duration { .. } => format!("{}ms", (value * 1e9).round() / 1e6),
            Self::Word(words) => words.get(value as usize).copied().unwrap_or_default().to_owned(),
        }
    }

    fn expected(self) -> String {
        match self {
            Self::Rate => "a rate per second, from 0.001 to 10000000".to_owned(),
            Self::Number(least, most) => format!("a number from {least} to {most}"),
            Self::Count(least, most) => format!("a whole number from {least} to {most}"),
            Self::Duration { may_be_zero: true } => "a duration such as 5ms, 2s or 0s, at most 1h".to_owned(),
            Self::Duration { may_be_zero: false } => {
                "a duration such as 5ms or 2s, above 0 and at most 1h".to_owned()
            }
            Self::Word(words) => format!("one of {}", words.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let mistakes = PlantedFault::parse(text).unwrap_err();
        mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn every_default_can_be_read_and_is_written_so_that_it_reads_back() {
        for kind in FaultKind::ALL {
            let plant = PlantedFault::parse(kind.name).unwrap();
            assert!(plant.values.iter().all(|value| value.is_finite()), "{plant}");
            assert_eq!(PlantedFault::parse(&plant.to_string()), Ok(plant));
        }
    }

    #[test]
    fn a_cause_s_slug_names_its_plant() {
        assert_eq!(
            PlantedFault::parse("pool-saturation,workers=2").unwrap().to_string(),
            "pool,workers=2,service=40ms,cv=0,queue=100000,status=503"
        );
        assert_eq!(PlantedFault::parse("cfs-throttling").unwrap().kind.name, "quota");
    }

    #[test]
    fn every_mistake_is_told_with_plant_key_and_expectation() {
        let said = told("rate-limiter,rate=0,bucket=1.5,colour=red,status=429,status=503,odd");
        for part in [
            "rate-limiter: rate=\"0\" is not a rate per second, from 0.001",
            "bucket=\"1.5\" is not a whole number from 1",
            "rate-limiter has no parameter \"colour\": expected one of rate, bucket, status, window",
            "status is given twice",
            "\"odd\" is not KEY=VALUE",
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert!(told("tsunami").contains("is not a fault: expected one of rate-limiter, "));
        assert!(told("pool,service=0s").contains("above 0"));
        assert!(told("connection-cap,how=politely").contains("one of close, backlog"));
        assert!(told("pauses,length=3s,every=2s").contains("length must be less than every"));
        assert!(told("keep-alive,after=0").contains("have no effect"));
        assert!(told("rate-limiter,rate=2,window=100ms").contains("must be at least one request"));
    }

    #[test]
    fn plants_of_which_there_can_be_one_are_refused_twice() {
        let mistakes = PlantedFault::parse_all(&["dns", "pool", "pool", "dns", "x"]).unwrap_err();
        assert_eq!(
            mistakes,
            [
                FaultSyntaxError::UnknownFault("x".to_owned()),
                FaultSyntaxError::InvalidCombination("dns can be given only once".to_owned())
            ]
        );
        assert!(PlantedFault::parse_all(&["noise"; MAX_FAULTS_PER_SERVER + 1]).is_err());
    }
}
