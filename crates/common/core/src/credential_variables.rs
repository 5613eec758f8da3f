//! Environment variables with which a container's SDKs find credentials without the metadata service.
//!
//! The agent shows operators which pods have them, because such a pod never asks the agent and nothing else says why. The variables
//! decide nothing about credentials.

use std::ops::BitOr;

use crate::cloud::CloudName;

/// The variables that SDKs use before the metadata service, with their cloud. Sources: AWS SDKs and Tools reference, "Understand the
/// credential provider chain"; Google Cloud documentation, "How Application Default Credentials works".
const VARIABLES: [(&str, CloudName); 3] = [
    ("AWS_ACCESS_KEY_ID", CloudName::Aws),
    // EKS's webhook sets it with AWS_ROLE_ARN.
    ("AWS_WEB_IDENTITY_TOKEN_FILE", CloudName::Aws),
    ("GOOGLE_APPLICATION_CREDENTIALS", CloudName::Google),
];

/// The set of these variables that a pod's containers have. It takes one byte, because the agent stores it for each pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CredentialVariables(u8);

impl CredentialVariables {
    /// Returns the set with this variable, or the empty set for any other variable.
    pub fn of_variable(name: &str) -> Self {
        VARIABLES.iter().position(|(known, _)| *known == name).map_or(Self(0), |place| Self(1 << place))
    }

    /// Returns the names of the variables that concern this cloud.
    pub fn names_for_cloud(self, cloud: CloudName) -> impl Iterator<Item = &'static str> {
        let places = VARIABLES.into_iter().enumerate();
        places
            .filter(move |(place, (_, of))| self.0 & (1 << place) != 0 && *of == cloud)
            .map(|(_, (name, _))| name)
    }
}

impl BitOr for CredentialVariables {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_is_told_for_its_cloud() {
        let names = ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_REGION", "GOOGLE_APPLICATION_CREDENTIALS"];
        let all = names
            .map(CredentialVariables::of_variable)
            .into_iter()
            .fold(CredentialVariables::default(), |all, one| all | one);
        assert!(all.names_for_cloud(CloudName::Aws).eq(["AWS_WEB_IDENTITY_TOKEN_FILE"]));
        assert!(all.names_for_cloud(CloudName::Google).eq(["GOOGLE_APPLICATION_CREDENTIALS"]));
        assert_eq!(CredentialVariables::of_variable("AWS_REGION"), CredentialVariables::default());
    }
}
