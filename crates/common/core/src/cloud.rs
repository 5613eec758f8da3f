//! The names of the clouds and of their dialects, as they appear in configuration, metrics and logs.
//!
//! The module also maps each dialect to its cloud and its endpoint. `protocols` and `clouds` implement the dialects. Every crate
//! of the agent uses these names.

use serde::Serialize;

use crate::endpoint::MetadataEndpoint;

/// The name of a cloud. Configuration sections and metric labels use this name.
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

    /// Returns the name for configuration and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Google => "google",
            Self::Aws => "aws",
        }
    }

    /// Returns the name for users, such as `Google`.
    pub fn title(self) -> &'static str {
        match self {
            Self::Google => "Google",
            Self::Aws => "AWS",
        }
    }
}

/// The name of a dialect in a listener's configuration. A cloud can have several dialects, because its clients use different
/// endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DialectName {
    /// The dialect of Google's metadata server.
    Google,
    /// The dialect of AWS's instance metadata service.
    AwsImds,
    /// The dialect of AWS's credentials endpoint for containers (EKS Pod Identity).
    AwsContainers,
}

impl DialectName {
    /// All dialects.
    pub const ALL: &[Self] = &[Self::Google, Self::AwsImds, Self::AwsContainers];

    /// Returns the name, the cloud, the endpoint, and true if listeners without a list of dialects speak this dialect.
    fn about(self) -> (&'static str, CloudName, MetadataEndpoint, bool) {
        match self {
            Self::Google => ("google", CloudName::Google, MetadataEndpoint::Metadata, true),
            Self::AwsImds => ("aws-imds", CloudName::Aws, MetadataEndpoint::Metadata, true),
            // A listener speaks this dialect only if the configuration names it, because the endpoint needs a separate address:
            // SDKs send a pod's token unencrypted only to that address.
            Self::AwsContainers => {
                ("aws-containers", CloudName::Aws, MetadataEndpoint::ContainerCredentials, false)
            }
        }
    }

    /// Returns the name for the configuration.
    pub fn as_str(self) -> &'static str {
        self.about().0
    }

    /// Returns the cloud of the dialect.
    pub fn cloud(self) -> CloudName {
        self.about().1
    }

    /// Returns the metadata endpoint to which clients of this dialect send requests.
    pub fn endpoint(self) -> MetadataEndpoint {
        self.about().2
    }

    /// True if a listener speaks this dialect when its configuration lists no dialects.
    pub fn is_enabled_by_default(self) -> bool {
        self.about().3
    }
}
