//! The checked settings of a load's pods. Kubernetes accepts the form of every value in a [`LoadJobSpec`].
//!
//! The forms are from the Kubernetes documentation: "Object Names and IDs", "Labels and Selectors", "Resource Management for Pods and
//! Containers".

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

/// The settings of a load's pods.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadJobSpec {
    /// The name of the Job and of the Secret.
    pub name: ResourceName,
    /// The namespace; none for that of the kubectl context.
    pub namespace: Option<ResourceName>,
    /// The number of pods.
    pub pod_count: u32,
    /// The image of the program.
    pub image: ImageName,
    /// The pull policy; none for Kubernetes' default, which is `Always` for the tag `latest` and otherwise `IfNotPresent`.
    pub pull_policy: Option<PullPolicy>,
    /// The CPU of each pod, as request and limit.
    pub cpu: CpuQuantity,
    /// The memory of each pod, as request and limit.
    pub memory: MemoryQuantity,
    /// The labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// The tolerated taints of nodes.
    pub tolerations: Vec<Toleration>,
    /// The volumes for records.
    pub volumes: Vec<Volume>,
    /// The deadline in seconds after the start of the Job, at which Kubernetes ends a forgotten Job.
    pub deadline_seconds: u64,
    /// The seconds for which an ended Job stays; none if it stays until it is deleted.
    pub ttl_seconds: Option<u32>,
    /// Additional labels of the Job, the Secret and the pods.
    pub labels: BTreeMap<String, String>,
}

/// The default seconds for which the ended Job of a lost client stays: long enough to inspect it.
const TTL_SECONDS: u32 = 600;

/// The default deadline: one hour.
const DEADLINE_SECONDS: u64 = 3600;

impl LoadJobSpec {
    /// Returns the default settings: pods with one core and 128 MiB.
    #[must_use]
    pub fn new(name: ResourceName, pods: u32, image: ImageName) -> Self {
        Self {
            name,
            namespace: None,
            pod_count: pods,
            image,
            pull_policy: None,
            cpu: CpuQuantity("1".to_owned()),
            memory: MemoryQuantity("128Mi".to_owned()),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            volumes: Vec::new(),
            deadline_seconds: DEADLINE_SECONDS,
            ttl_seconds: Some(TTL_SECONDS),
            labels: BTreeMap::new(),
        }
    }
}

/// A name of at most 56 bytes that is a DNS label (RFC 1123). Pods' host names add an index and have at most 63 bytes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ResourceName(String);

/// The name of an image in its registry.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ImageName(String);

/// A number of cores in Kubernetes' notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuQuantity(String);

/// A number of bytes in Kubernetes' notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryQuantity(String);

/// The policy for pulling the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// Pull for each pod.
    Always,
    /// Pull if the node lacks the image.
    IfNotPresent,
    /// Never pull.
    Never,
}

/// A volume for records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Volume {
    /// A PersistentVolumeClaim, with one directory per run.
    Claim {
        /// The name of the claim.
        claim: ResourceName,
        /// The path in the container.
        path: String,
    },
    /// A directory on the node that exists as long as the pod.
    Empty {
        /// The path in the container.
        path: String,
    },
}

/// A tolerated taint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    key: String,
    value: Option<String>,
    effect: Option<&'static str>,
}

macro_rules! shown {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}
shown!(ResourceName ImageName CpuQuantity MemoryQuantity);

/// The longest [`ResourceName`].
const LONGEST_NAME: usize = 56;

impl FromStr for ResourceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || {
            format!(
                "{text:?} is not a name: expected 1 to {LONGEST_NAME} lower-case letters, digits and -, with a letter first and no - at the end"
            )
        };
        let is_word = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        let fits = text.starts_with(|first: char| first.is_ascii_lowercase())
            && !text.ends_with('-')
            && text.len() <= LONGEST_NAME
            && text.chars().all(is_word);
        fits.then(|| Self(text.to_owned())).ok_or_else(malformed)
    }
}

impl FromStr for ImageName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = !text.is_empty() && text.chars().all(|letter| letter.is_ascii_graphic());
        let malformed =
            || format!("{text:?} is not an image: expected a name such as registry.example/seawall:0.1.0");
        fits.then(|| Self(text.to_owned())).ok_or_else(malformed)
    }
}

impl FromStr for CpuQuantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cores = text
            .strip_suffix('m')
            .map_or_else(|| text.parse::<f64>(), |milli| milli.parse().map(|m: f64| m / 1000.0));
        let is_number = text.chars().all(|letter| letter.is_ascii_digit() || ".m".contains(letter));
        let fits = is_number && cores.is_ok_and(|cores| (0.01..=1024.0).contains(&cores));
        fits.then(|| Self(text.to_owned()))
            .ok_or_else(|| format!("{text:?} is not a number of cores: expected one such as 2, 0.5 or 500m"))
    }
}

/// The least memory of a pod. With less, the program does not start.
const LEAST_MEMORY: u64 = 16 << 20;

impl FromStr for MemoryQuantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("{text:?} is not a size: expected at least 16Mi, such as 128Mi or 2Gi");
        let (number, unit) =
            text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
        let unit: u64 = match unit {
            "" => 1,
            "k" => 1000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            "Ki" => 1 << 10,
            "Mi" => 1 << 20,
            "Gi" => 1 << 30,
            _ => return Err(malformed()),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        bytes.filter(|bytes| *bytes >= LEAST_MEMORY).map(|_| Self(text.to_owned())).ok_or_else(malformed)
    }
}

impl PullPolicy {
    /// Returns the word in Kubernetes' notation.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

impl FromStr for PullPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Always, Self::IfNotPresent, Self::Never];
        let found = all.into_iter().find(|policy| policy.word() == text);
        found.ok_or_else(|| format!("{text:?} is not a pull policy: expected Always, IfNotPresent or Never"))
    }
}

impl Volume {
    /// Returns the path in the container.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Claim { path, .. } | Self::Empty { path } => path,
        }
    }
}

impl FromStr for Volume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("{text:?} is not a volume: expected pvc:CLAIM:/PATH or emptyDir:/PATH");
        let (kind, rest) = text.split_once(':').ok_or_else(malformed)?;
        let (claim, path) = match kind {
            "pvc" => rest.split_once(':').map(|(claim, path)| (Some(claim), path)).ok_or_else(malformed)?,
            "emptyDir" => (None, rest),
            _ => return Err(malformed()),
        };
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        let fits = path.strip_prefix('/').is_some_and(|path| path.split('/').all(is_plain))
            && !path.contains([':', '\\'])
            && !path.chars().any(char::is_control);
        if !fits {
            return Err(malformed());
        }
        let path = path.to_owned();
        Ok(match claim {
            Some(claim) => Self::Claim { claim: claim.parse()?, path },
            None => Self::Empty { path },
        })
    }
}

impl Toleration {
    pub(super) fn as_json(&self) -> Value {
        let mut toleration =
            json!({"key": self.key, "operator": if self.value.is_some() { "Equal" } else { "Exists" }});
        if let Some(value) = &self.value {
            toleration["value"] = value.as_str().into();
        }
        if let Some(effect) = self.effect {
            toleration["effect"] = effect.into();
        }
        toleration
    }
}

impl FromStr for Toleration {
    type Err = String;

    /// Parses the notation of `kubectl taint`: `key[=value][:effect]`.
    fn from_str(text: &str) -> Result<Self, String> {
        const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let malformed = || {
            format!(
                "{text:?} is not a taint: expected KEY[=VALUE][:EFFECT], such as dedicated=load:NoSchedule"
            )
        };
        let (taint, effect) =
            text.split_once(':').map_or((text, None), |(taint, effect)| (taint, Some(effect)));
        let effect = match effect {
            None => None,
            Some(effect) => Some(EFFECTS.into_iter().find(|known| *known == effect).ok_or_else(malformed)?),
        };
        let (key, value) = taint.split_once('=').map_or((taint, None), |(key, value)| (key, Some(value)));
        let fits = is_label_key(key) && value.is_none_or(is_label_value);
        fits.then(|| Self { key: key.to_owned(), value: value.map(str::to_owned), effect })
            .ok_or_else(malformed)
    }
}

/// Parses a label `KEY=VALUE`.
///
/// # Errors
/// The text is not a label.
pub fn parse_label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(key, value)| is_label_key(key) && is_label_value(value));
    let malformed = || format!("{text:?} is not a label: expected KEY=VALUE, such as pool=load");
    parts.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(malformed)
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_domain = |part: &str| {
        let is_word = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        !part.is_empty() && part.chars().all(is_word) && !part.starts_with('-') && !part.ends_with('-')
    };
    let fits = |prefix: &str| prefix.len() <= 253 && prefix.split('.').all(is_domain);
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(fits)
}

fn is_label_value(value: &str) -> bool {
    let is_end = |letter: char| letter.is_ascii_alphanumeric();
    let is_inner = |letter: char| is_end(letter) || "-_.".contains(letter);
    let ends_well = value.starts_with(is_end) && value.ends_with(is_end);
    value.is_empty() || (value.len() <= 63 && ends_well && value.chars().all(is_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: FromStr<Err = String> + fmt::Debug>(good: &[&str], bad: &[&str], says: &str) {
        for text in good {
            assert!(text.parse::<T>().is_ok(), "{text}");
        }
        for text in bad {
            let told = text.parse::<T>().unwrap_err();
            assert!(told.contains(says) && told.contains("expected"), "{text}: {told}");
        }
    }

    #[test]
    fn what_kubernetes_does_not_take_is_refused_with_what_it_takes() {
        check::<ResourceName>(
            &["a", "seawall-attack-x1"],
            &["", "A", "a.b", "1a", "a-", "a b", &"a".repeat(57)],
            "not a name",
        );
        check::<CpuQuantity>(
            &["1", "0.5", "500m", "32"],
            &["", "0", "-1", "1e3", "inf", "m", "5 m", "1n"],
            "not a number of cores",
        );
        check::<MemoryQuantity>(
            &["128Mi", "1Gi", "64M", "134217728"],
            &["", "128", "1Mi", "128MiB", "0.5Gi", "128mi"],
            "not a size",
        );
        check::<ImageName>(
            &["seawall", "r.test:5000/seawall@sha256:00"],
            &["", "a b", "a\n"],
            "not an image",
        );
        check::<PullPolicy>(&["Always", "IfNotPresent", "Never"], &["always", ""], "not a pull policy");
        let volumes =
            ["", "pvc:/a", "pvc:a:b", "pvc:a:/", "pvc:a:/b/../c", "hostPath:/x", "emptyDir:x", "pvc:a:/b:ro"];
        check::<Volume>(&["pvc:results:/records", "emptyDir:/records/x"], &volumes, "not a volume");
        let taints = ["", "=b", "a=b:Never", "a b", "a=b c"];
        check::<Toleration>(
            &["dedicated", "a=b", "a:NoSchedule", "example.test/a=b:NoExecute"],
            &taints,
            "not a taint",
        );
        for (text, fits) in [
            ("pool=load", true),
            ("kubernetes.io/arch=amd64", true),
            ("a=", true),
            ("pool", false),
            ("a/b/c=d", false),
            ("A.B/c=d", false),
            ("a=-b", false),
        ] {
            assert_eq!(parse_label(text).is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn a_taint_is_tolerated_as_kubernetes_writes_it() {
        let json = |text: &str| text.parse::<Toleration>().unwrap().as_json();
        assert_eq!(
            json("a=b:NoSchedule"),
            json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"})
        );
        assert_eq!(json("a"), json!({"key": "a", "operator": "Exists"}));
    }
}
