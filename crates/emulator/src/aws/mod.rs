//! AWS on loopback: one listener for the security token service, EKS Auth and an instance's metadata service.
//!
//! [`start`] binds and serves; the [`AwsEmulator`] it hands back is the only handle. Paths choose the service, as the real hosts would: a
//! POST to `/` is STS's query interface (sts.REGION.amazonaws.com), `/clusters/NAME/assume-role-for-pod-identity` is EKS Auth
//! (eks-auth.REGION.api.aws), everything else the instance's metadata service. One path is the emulator's own:
//! `/emulator/counts` says what was asked so far.
//!
//! Tokens of pods and signatures of callers are really checked, the latter by code of this crate's own (`sigv4`): whoever signs with
//! a library is checked by somebody else. Whose credentials are, `GetCallerIdentity` says.
//!
//! Formats: botocore `botocore/data/sts/2011-06-15/service-2.json`, `botocore/data/eks-auth/2023-11-26/service-2.json`;
//! docs.aws.amazon.com/STS/latest/APIReference; docs.aws.amazon.com/AWSEC2/latest/UserGuide (instance metadata).

mod broken;
mod cloud;
mod eks_auth;
mod endpoint;
mod imds;
mod mint;
mod options;
mod reply;
mod role;
mod running;
mod sigv4;
mod state;
mod sts;

pub use crate::ledger::EndpointCounts;
pub use endpoint::AwsEndpoint;
pub use mint::AwsSession;
pub use options::{AwsEmulatorOptions, Ec2Instance, IamUser, OidcProvider};
pub use role::IamRole;
pub use running::{AwsEmulator, start};
