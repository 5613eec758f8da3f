//! The names of the clouds and of their dialects, as configuration, metrics and logs write them.
//!
//! Knows of a cloud its name and of a dialect where clients look for it; what they say is in `protocols` and `clouds`. Every crate of the
//! agent names clouds by these.

use serde::Serialize;

use crate::endpoint::MetadataEndpoint;

/// A cloud by its name: that of its section, and in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CloudName {
    /// Google Cloud.
    Google,
    /// Amazon Web Services.
    Aws,
}

impl CloudName {
    /// All there are.
    pub const ALL: &[Self] = &[Self::Google, Self::Aws];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Google => "google",
            Self::Aws => "aws",
        }
    }

    /// As its users call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Google => "Google",
            Self::Aws => "AWS",
        }
    }
}

/// A dialect by its name on a listener. A cloud may have several, for clients that look for it in different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DialectName {
    /// Google's metadata server.
    Google,
    /// AWS's instance metadata service.
    AwsImds,
    /// AWS's credentials endpoint of containers (EKS Pod Identity).
    AwsContainers,
}

impl DialectName {
    /// All there are.
    pub const ALL: &[Self] = &[Self::Google, Self::AwsImds, Self::AwsContainers];

    /// As it is written, whose it is, at which addresses clients ask it, and whether a listener speaks it that names none.
    fn about(self) -> (&'static str, CloudName, MetadataEndpoint, bool) {
        match self {
            Self::Google => ("google", CloudName::Google, MetadataEndpoint::Metadata, true),
            Self::AwsImds => ("aws-imds", CloudName::Aws, MetadataEndpoint::Metadata, true),
            // At an address of its own, the only one to which SDKs send a pod's token in the clear.
            Self::AwsContainers => ("aws-containers", CloudName::Aws, MetadataEndpoint::Containers, false),
        }
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        self.about().0
    }

    /// Whose it is.
    pub fn cloud(self) -> CloudName {
        self.about().1
    }

    /// Which of the addresses that are captured clients ask it at.
    pub fn endpoint(self) -> MetadataEndpoint {
        self.about().2
    }

    /// Whether a listener speaks it that names none.
    pub fn is_enabled_by_default(self) -> bool {
        self.about().3
    }
}
