//! The endpoints of AWS's services. Each region has its own host in the domain of its partition (botocore
//! `botocore/data/partitions.json`).

use super::validated_names::Region;

/// The kind of STS endpoint to call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StsEndpointKind {
    /// The STS of the region. The regional STS is nearer and does not depend on other regions.
    #[default]
    Regional,
    /// The global STS at `sts.amazonaws.com` in `us-east-1`, for configurations that require it.
    /// Only AWS's public partition has a global STS. In other partitions, the agent uses the regional STS instead.
    Global,
}

/// The region for signatures at the global STS.
const GLOBAL: &str = "us-east-1";

/// The prefixes of region names, each with the name and the domain of its partition. Each partition has separate accounts.
/// A region without any of these prefixes belongs to the public partition.
const PARTITIONS: [(&str, &str, &str); 7] = [
    ("cn-", "aws-cn", "amazonaws.com.cn"),
    ("us-iso-", "aws-iso", "c2s.ic.gov"),
    ("us-isob-", "aws-iso-b", "sc2s.sgov.gov"),
    ("eu-isoe-", "aws-iso-e", "cloud.adc-e.uk"),
    ("us-isof-", "aws-iso-f", "csp.hci.ic.gov"),
    ("eusc-", "aws-eusc", "amazonaws.eu"),
    ("us-gov-", "aws-us-gov", "amazonaws.com"),
];

/// Returns the partition of a region.
pub fn partition(region: &str) -> &'static str {
    PARTITIONS.iter().find(|(prefix, ..)| region.starts_with(prefix)).map_or("aws", |(_, name, _)| *name)
}

/// Returns the domain of the region's partition, or `None` for the public partition.
fn apart(region: &Region) -> Option<&'static str> {
    PARTITIONS.iter().find(|(prefix, ..)| region.as_str().starts_with(prefix)).map(|(.., domain)| *domain)
}

/// Returns the STS URL for a region, and the region for signatures.
pub(super) fn sts_url_and_region(region: &Region, which: StsEndpointKind) -> (String, &str) {
    match (apart(region), which) {
        (None, StsEndpointKind::Global) => ("https://sts.amazonaws.com".to_owned(), GLOBAL),
        (domain, _) => {
            let domain = domain.unwrap_or("amazonaws.com");
            (format!("https://sts.{}.{domain}", region.as_str()), region.as_str())
        }
    }
}

/// Returns the EKS Auth URL for a region. EKS Auth has hosts only in the newer domains, such as `api.aws`.
pub(super) fn eks_auth_url(region: &Region) -> String {
    let domain = if region.as_str().starts_with("cn-") { "api.amazonwebservices.com.cn" } else { "api.aws" };
    format!("https://eks-auth.{}.{domain}", region.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_region_is_asked_in_the_domain_of_its_partition() {
        for (region, url) in [
            ("eu-west-1", "https://sts.eu-west-1.amazonaws.com"),
            ("cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn"),
            ("us-gov-west-1", "https://sts.us-gov-west-1.amazonaws.com"),
            ("us-iso-east-1", "https://sts.us-iso-east-1.c2s.ic.gov"),
        ] {
            let parsed = Region::parse(region).unwrap();
            assert_eq!(sts_url_and_region(&parsed, StsEndpointKind::Regional), (url.to_owned(), region));
        }
    }

    #[test]
    fn the_global_one_is_signed_for_its_own_region_and_other_partitions_have_none() {
        let (public, china) = (Region::parse("eu-west-1").unwrap(), Region::parse("cn-north-1").unwrap());
        assert_eq!(
            sts_url_and_region(&public, StsEndpointKind::Global),
            ("https://sts.amazonaws.com".to_owned(), "us-east-1")
        );
        assert_eq!(sts_url_and_region(&china, StsEndpointKind::Global).1, "cn-north-1");
        assert_eq!(eks_auth_url(&public), "https://eks-auth.eu-west-1.api.aws");
        assert_eq!(eks_auth_url(&china), "https://eks-auth.cn-north-1.api.amazonwebservices.com.cn");
    }
}
