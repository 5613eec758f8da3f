//! The names of the clouds and of their dialects, as configuration, metrics and logs write them.
//!
//! The module knows the name of a cloud, and the endpoint of a dialect. The dialects are implemented in `protocols` and `clouds`.
//! Every crate of the agent uses these names.

use serde::Serialize;

use crate::endpoint::MetadataEndpoint;

/// A cloud's name: its section in the configuration, and its label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CloudName {
    /// Google Cloud.
    Google,
    /// Amazon Web Services.
    Aws,
}

impl CloudName {
    /// All clouds.
    pub const ALL: &[Self] = &[Self::Google, Self::Aws];

    /// The name as configuration and metrics write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Google => "google",
            Self::Aws => "aws",
        }
    }

    /// The name as users write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Google => "Google",
            Self::Aws => "AWS",
        }
    }
}

/// A dialect's name, as a listener's configuration writes it. A cloud may have several, for clients that use different endpoints.
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
    /// All dialects.
    pub const ALL: &[Self] = &[Self::Google, Self::AwsImds, Self::AwsContainers];

    /// The name, the cloud, the endpoint that clients use, and whether a listener without a list of dialects speaks this dialect.
    fn about(self) -> (&'static str, CloudName, MetadataEndpoint, bool) {
        match self {
            Self::Google => ("google", CloudName::Google, MetadataEndpoint::Metadata, true),
            Self::AwsImds => ("aws-imds", CloudName::Aws, MetadataEndpoint::Metadata, true),
            // At an address of its own, the only one to which SDKs send a pod's token in the clear.
            Self::AwsContainers => ("aws-containers", CloudName::Aws, MetadataEndpoint::Containers, false),
        }
    }

    /// The name as configuration writes it.
    pub fn as_str(self) -> &'static str {
        self.about().0
    }

    /// The cloud that the dialect belongs to.
    pub fn cloud(self) -> CloudName {
        self.about().1
    }

    /// The captured endpoint to which clients of this dialect send requests.
    pub fn endpoint(self) -> MetadataEndpoint {
        self.about().2
    }

    /// True if a listener whose configuration names no dialects speaks this dialect.
    pub fn is_enabled_by_default(self) -> bool {
        self.about().3
    }
}
