//! Emulates AWS on loopback: one listener for the security token service, EKS Auth and an instance's metadata service.
//!
//! [`start`] binds and serves; the returned [`AwsEmulator`] is the only handle. The path chooses the service. A POST to `/` is STS's query
//! interface (sts.REGION.amazonaws.com). `/clusters/NAME/assume-role-for-pod-identity` is EKS Auth (eks-auth.REGION.api.aws). Every other
//! path is the metadata service, except `/emulator/counts` with the request counts.
//!
//! The emulator checks the tokens of pods and the signatures of callers. The signature check (`sigv4`) is this crate's own code, so a
//! client's library is checked independently. `GetCallerIdentity` names the owner of credentials.
//!
//! Formats: botocore `botocore/data/sts/2011-06-15/service-2.json`, `botocore/data/eks-auth/2023-11-26/service-2.json`;
//! docs.aws.amazon.com/STS/latest/APIReference; docs.aws.amazon.com/AWSEC2/latest/UserGuide (instance metadata).

mod cloud;
mod eks_auth;
mod endpoint;
mod fault_replies;
mod imds;
mod mint;
mod options;
mod reply;
mod role;
mod running;
mod sigv4;
mod state;
mod sts;

pub use crate::request_counters::EndpointCounts;
pub use endpoint::AwsEndpoint;
pub use mint::AwsSession;
pub use options::{AwsEmulatorOptions, Ec2Instance, IamUser, OidcProvider};
pub use role::IamRole;
pub use running::{AwsEmulator, start};
