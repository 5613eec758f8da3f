//! The names of the clouds and of their dialects. Part of the list, and apart from it so that whoever names one need not know its room.

use seawall_redirect::Endpoint;
use serde::Serialize;

/// A cloud by its name: that of its section, and in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CloudName {
    Google,
    Aws,
}

impl CloudName {
    /// All there are.
    pub(crate) const ALL: &[Self] = &[Self::Google, Self::Aws];

    /// As it is written.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Google => "google",
            Self::Aws => "aws",
        }
    }

    /// As its users call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Google => "Google",
            Self::Aws => "AWS",
        }
    }
}

/// A dialect by its name on a listener. A cloud may have several, for clients that look for it in different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DialectName {
    Google,
    AwsImds,
    AwsContainers,
}

impl DialectName {
    /// All there are.
    pub(crate) const ALL: &[Self] = &[Self::Google, Self::AwsImds, Self::AwsContainers];

    /// As it is written, whose it is, at which addresses clients ask it, and whether a listener speaks it that names none.
    fn about(self) -> (&'static str, CloudName, Endpoint, bool) {
        match self {
            Self::Google => ("google", CloudName::Google, Endpoint::Metadata, true),
            Self::AwsImds => ("aws-imds", CloudName::Aws, Endpoint::Metadata, true),
            // At an address of its own, the only one to which SDKs send a pod's token in the clear.
            Self::AwsContainers => ("aws-containers", CloudName::Aws, Endpoint::Containers, false),
        }
    }

    /// As it is written.
    pub(crate) fn as_str(self) -> &'static str {
        self.about().0
    }

    /// Whose it is.
    pub(crate) fn cloud(self) -> CloudName {
        self.about().1
    }

    /// Which of the addresses that are captured clients ask it at.
    pub(crate) fn endpoint(self) -> Endpoint {
        self.about().2
    }

    /// Whether a listener speaks it that names none.
    pub(crate) fn is_spoken_by_default(self) -> bool {
        self.about().3
    }
}
