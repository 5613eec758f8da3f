//! Builds the node's metadata, which is the same for all its pods: placement, instance, identity document.
//!
//! [`super::imds`] uses this module. The module contains no code for requests or roles. No value comes from the real service:
//! pods read only values that an operator has configured.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::json::write_string;

/// The node's metadata from the configuration. The agent answers 404 for each value that is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// Region, for example `eu-central-1`.
    pub region: Option<String>,
    /// Availability zone, for example `eu-central-1a`.
    pub availability_zone: Option<String>,
    /// The zone's id, which is the same in every account, for example `euc1-az2`.
    pub availability_zone_id: Option<String>,
    /// Instance id, for example `i-0123456789abcdef0`.
    pub instance_id: Option<String>,
    /// Instance type, for example `m7g.large`.
    pub instance_type: Option<String>,
    /// Image id, for example `ami-0123456789abcdef0`.
    pub image_id: Option<String>,
    /// CPU architecture: `x86_64` or `arm64`.
    pub architecture: Option<String>,
    /// The account of the instance: twelve digits.
    pub account_id: Option<String>,
    /// The private host name of the instance.
    pub local_hostname: Option<String>,
    /// The private IPv4 address of the instance.
    pub local_ipv4: Option<String>,
    /// Partition: `aws`, `aws-cn` or `aws-us-gov`.
    pub partition: Option<String>,
    /// The partition's domain, for example `amazonaws.com`.
    pub partition_domain: Option<String>,
}

/// Holds the node's metadata as texts by path, and the directory listings. The agent builds this table once.
#[derive(Debug)]
pub(super) struct InstanceMetadataByPath {
    /// The texts and their paths below the version, without slashes at either end. They are sorted by path.
    texts: Vec<(String, Cow<'static, str>)>,
}

/// The paths whose content differs per pod. This module includes them only in the listings.
const OF_PODS: [&str; 2] = ["meta-data/iam/info", "meta-data/iam/security-credentials/"];

impl InstanceMetadataByPath {
    pub(super) fn from_metadata(node: &InstanceMetadata) -> Self {
        let mut texts = BTreeMap::new();
        let mut children = BTreeMap::from([(String::new(), BTreeSet::new())]);
        OF_PODS.into_iter().for_each(|path| list(&mut children, path));
        for (path, text) in leaves(node) {
            list(&mut children, path);
            texts.insert(path.to_owned(), text);
        }
        for (path, names) in children {
            let names: Vec<_> = names.into_iter().collect();
            texts.insert(path, names.join("\n").into());
        }
        Self { texts: texts.into_iter().collect() }
    }

    /// Returns the text at a path below the version, with or without a final slash.
    ///
    /// boto3 requests the availability zone with a slash, the SDK for C++ requests directories without a slash, and few clients
    /// follow a redirect.
    pub(super) fn find(&self, path: &str) -> Option<&str> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let place = self.texts.binary_search_by(|(known, _)| known.as_str().cmp(path)).ok()?;
        self.texts.get(place).map(|(_, text)| &**text)
    }
}

/// Adds each name of `path` to the listing of its directory. Directory names keep their slash.
fn list(children: &mut BTreeMap<String, BTreeSet<String>>, path: &str) {
    let mut above = String::new();
    for name in path.split_inclusive('/') {
        let directory = above.strip_suffix('/').unwrap_or(&above);
        children.entry(directory.to_owned()).or_default().insert(name.to_owned());
        above.push_str(name);
    }
}

fn leaves(node: &InstanceMetadata) -> impl Iterator<Item = (&'static str, Cow<'static, str>)> {
    let document = identity_document(node);
    let leaves = [
        ("dynamic/instance-identity/document", &document),
        ("meta-data/ami-id", &node.image_id),
        ("meta-data/hostname", &node.local_hostname),
        ("meta-data/instance-id", &node.instance_id),
        ("meta-data/instance-type", &node.instance_type),
        ("meta-data/local-hostname", &node.local_hostname),
        ("meta-data/local-ipv4", &node.local_ipv4),
        ("meta-data/placement/availability-zone", &node.availability_zone),
        ("meta-data/placement/availability-zone-id", &node.availability_zone_id),
        ("meta-data/placement/region", &node.region),
        ("meta-data/services/domain", &node.partition_domain),
        ("meta-data/services/partition", &node.partition),
    ];
    leaves.map(|(path, text)| Some((path, Cow::Owned(text.clone()?)))).into_iter().flatten()
}

/// Returns the identity document if the region is known. The SDKs for Go and Java read the region from this document.
///
/// The members are those of the real document (EC2 user guide, "Instance identity documents for Amazon EC2 instances"). The
/// document has no signature, because the agent cannot create AWS's signature.
fn identity_document(node: &InstanceMetadata) -> Option<String> {
    node.region.as_ref()?;
    let members = [
        ("accountId", &node.account_id),
        ("architecture", &node.architecture),
        ("availabilityZone", &node.availability_zone),
        ("imageId", &node.image_id),
        ("instanceId", &node.instance_id),
        ("instanceType", &node.instance_type),
        ("privateIp", &node.local_ipv4),
        ("region", &node.region),
        ("version", &Some("2017-09-30".to_owned())),
    ];
    let mut document = String::new();
    for (name, value) in members {
        let Some(value) = value else { continue };
        document.push_str(if document.is_empty() { "{\n  \"" } else { ",\n  \"" });
        document.extend([name, "\" : "]);
        write_string(&mut document, value);
    }
    Some(document + "\n}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> InstanceMetadata {
        let text = |text: &str| Some(text.to_owned());
        InstanceMetadata {
            region: text("eu-central-1"),
            availability_zone: text("eu-central-1a"),
            instance_id: text("i-0a"),
            account_id: text("123456789012"),
            ..InstanceMetadata::default()
        }
    }

    #[test]
    fn a_directory_lists_its_children_one_a_line_without_an_end_of_line() {
        let facts = InstanceMetadataByPath::from_metadata(&node());
        for (path, listing) in [
            ("", "dynamic/\nmeta-data/"),
            ("dynamic/", "instance-identity/"),
            ("dynamic/instance-identity", "document"),
            ("meta-data", "iam/\ninstance-id\nplacement/"),
            ("meta-data/iam/", "info\nsecurity-credentials/"),
            ("meta-data/placement/", "availability-zone\nregion"),
        ] {
            assert_eq!(facts.find(path), Some(listing), "{path}");
        }
    }

    #[test]
    fn what_is_known_is_found_and_what_is_not_is_absent() {
        let facts = InstanceMetadataByPath::from_metadata(&node());
        assert_eq!(facts.find("meta-data/placement/availability-zone/"), Some("eu-central-1a"));
        assert_eq!(facts.find("meta-data/instance-id"), Some("i-0a"));
        for absent in [
            "meta-data/ami-id",
            "meta-data/placement/region/x",
            "meta-data//",
            "meta-data/iam/security-credentials",
            "user-data",
        ] {
            assert_eq!(facts.find(absent), None, "{absent}");
        }
        assert_eq!(
            InstanceMetadataByPath::from_metadata(&InstanceMetadata::default()).find("meta-data/"),
            Some("iam/")
        );
        assert_eq!(
            InstanceMetadataByPath::from_metadata(&InstanceMetadata::default()).find("dynamic/"),
            None
        );
    }

    #[test]
    fn the_identity_document_has_what_is_known() {
        assert_eq!(
            identity_document(&node()).unwrap(),
            "{\n  \"accountId\" : \"123456789012\",\n  \"availabilityZone\" : \"eu-central-1a\",\n  \
             \"instanceId\" : \"i-0a\",\n  \"region\" : \"eu-central-1\",\n  \"version\" : \"2017-09-30\"\n}"
        );
        assert_eq!(identity_document(&InstanceMetadata::default()), None);
    }
}
