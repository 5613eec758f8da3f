//! Implements the `static` identity: a file lists the address of each pod.
//!
//! This strategy is for laptops, tests and the demo, and for nodes whose pods an operator places by hand. A pod cannot freely
//! choose the source address of its connections, because the responses would not reach it. So the address identifies the pod if
//! the file is correct. An address that is not in the file belongs to no pod. A duplicate address makes the whole file invalid.
//! Otherwise the agent would have to guess the pod, and a wrong guess would give a pod another pod's credential.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seawall_config::{Document, DocumentNode, DocumentTable, ValidationErrors};
use seawall_core::annotations::{Annotations, LengthCheckedAnnotation, RelatedAnnotations};
use seawall_core::attestation::{
    AnnotatedObject, AttestFuture, AttestedAddresses, ConnectionEnds, IdentityFileKey,
};
use seawall_core::name_syntax::{is_dns_label, is_dns_subdomain};
use seawall_core::pod::SubjectTokens;
use seawall_core::{Pod, PodAnnotations, PodUid, ServiceAccount, file};

use super::{Attestation, AttestationVerdict, RejectionReason, TokenFile};

/// The maximum size of an identity file, in bytes. This size is enough for several thousand pods.
const LARGEST: usize = 4 * 1024 * 1024;

/// A pod of the identity file, with its annotations and its token.
#[derive(Debug)]
pub(crate) struct StaticPod {
    /// The pod's UID, name and ServiceAccount.
    pub(crate) pod: Pod,
    /// The annotations from the file, in the form that a cluster would report.
    pub(crate) annotations: PodAnnotations,
    /// The source of this pod's Kubernetes token.
    pub(crate) subject_token_source: Arc<dyn SubjectTokens>,
}

/// Holds the pods of an identity file, by address. The table is immutable.
#[derive(Debug, Default)]
pub(crate) struct StaticPodsByAddress {
    pods: HashMap<IpAddr, Arc<StaticPod>>,
}

/// The reason why an identity file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityFileError {
    /// The file cannot be read.
    #[error("cannot read the identity file {path}: {reason}")]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The read error.
        reason: String,
    },
    /// The file has mistakes.
    #[error("{path} has {} mistake(s):\n{mistakes}", mistakes.0.len())]
    Invalid {
        /// The path of the file.
        path: PathBuf,
        /// All mistakes in the file.
        mistakes: ValidationErrors,
    },
}

impl StaticPodsByAddress {
    /// Reads a file and resolves relative token paths against the file's folder. `keys` are the keys that replace annotations,
    /// such as `googleServiceAccount`.
    ///
    /// # Errors
    /// The file cannot be read or is larger than 4 MiB, or it has mistakes; the error lists all of them.
    pub(crate) fn load(path: &Path, keys: &[IdentityFileKey]) -> Result<Self, IdentityFileError> {
        let unreadable = |reason: String| IdentityFileError::Unreadable { path: path.into(), reason };
        let text = file::read_text(path, LARGEST).map_err(unreadable)?;
        Self::parse(text.expose(), path.parent().unwrap_or(Path::new("")), keys)
            .map_err(|mistakes| IdentityFileError::Invalid { path: path.into(), mistakes })
    }

    /// Parses the content of an identity file. `base` is the folder for relative token paths. `keys` are the keys that replace
    /// annotations, such as `googleServiceAccount`.
    ///
    /// # Errors
    /// The content has mistakes; the error lists all of them.
    pub(crate) fn parse(text: &str, base: &Path, keys: &[IdentityFileKey]) -> Result<Self, ValidationErrors> {
        let document = Document::parse(text)?;
        let mut identity = Self::default();
        {
            let root = document.root();
            let mut taken = HashSet::new();
            for node in root.required_node("pods", "a list of pods").list() {
                let table = node.as_table();
                let address = address(&table.required_node("address", ADDRESS), &mut taken);
                let attested = attested(&table, base, address, keys);
                identity.pods.extend(address.zip(attested.map(Arc::new)));
            }
        }
        document.finish(identity)
    }

    /// Returns all pods with their attested addresses, in no particular order.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (AttestedAddresses, &Arc<StaticPod>)> {
        self.pods.iter().map(|(address, pod)| (AttestedAddresses::from_addresses([*address]), pod))
    }

    /// Returns the attestation that names the pods of this file by their addresses.
    pub(crate) fn attestation(&self) -> StaticAttestation {
        StaticAttestation(self.pods.iter().map(|(address, pod)| (*address, pod.pod.uid.clone())).collect())
    }
}

/// Identifies pods by their source addresses, which the identity file lists. The agent reads the file only when the agent
/// starts, so a request does not wait for an unknown address.
#[derive(Debug)]
pub(crate) struct StaticAttestation(HashMap<IpAddr, PodUid>);

impl Attestation for StaticAttestation {
    fn verdict(&self, ends: &ConnectionEnds<'_>) -> AttestationVerdict {
        self.guess(ends).map_or_else(AttestationVerdict::Rejected, AttestationVerdict::Pod)
    }

    fn guess(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason> {
        self.0.get(&ends.peer.ip().to_canonical()).cloned().ok_or(RejectionReason::UnknownAddress)
    }

    fn attest<'a>(&'a self, ends: ConnectionEnds<'a>) -> AttestFuture<'a, Result<PodUid, RejectionReason>> {
        Box::pin(std::future::ready(self.guess(&ends)))
    }

    fn wait_for_change(&self) -> AttestFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn covers(&self, basis: &AttestedAddresses, ends: &ConnectionEnds<'_>) -> bool {
        basis.addresses().contains(&ends.peer.ip().to_canonical())
    }

    fn addresses<'b>(&self, basis: &'b AttestedAddresses) -> &'b [IpAddr] {
        basis.addresses()
    }
}

/// Reads the address of an entry. Rejects the address if an earlier entry has the same address, even if the earlier entry has
/// other mistakes.
fn address(place: &DocumentNode<'_>, taken: &mut HashSet<IpAddr>) -> Option<IpAddr> {
    let address = place.text(ADDRESS, |text| {
        let address = text.parse::<IpAddr>().ok()?.to_canonical();
        (!address.is_unspecified() && !address.is_multicast()).then_some(address)
    })?;
    if taken.insert(address) {
        return Some(address);
    }
    place.reject("another address: an earlier pod in this file has this address");
    None
}

/// Reads the value of a key that replaces an annotation. Returns `None` if the entry has no valid value.
fn annotation(table: &DocumentTable<'_>, key: &IdentityFileKey) -> Option<LengthCheckedAnnotation> {
    table.node_of_key(key.name).text(key.expected, |text| (key.is_valid)(text).then(|| text.into()))
}

/// Reads all fields of an entry except its address. Continues after a mistake, so that every mistake is reported.
fn attested(
    table: &DocumentTable<'_>,
    base: &Path,
    address: Option<IpAddr>,
    keys: &[IdentityFileKey],
) -> Option<StaticPod> {
    let read = |key, what: &str, is_good: fn(&str) -> bool| {
        table.required_node(key, what).text(what, |text| is_good(text).then(|| Arc::<str>::from(text)))
    };
    let namespace = read("namespace", "a namespace: a DNS label such as shop", is_dns_label);
    let name = read("pod", "a pod name: a DNS subdomain such as cart-0", is_dns_subdomain);
    let account =
        read("serviceAccount", "a ServiceAccount name: a DNS subdomain such as cart", is_dns_subdomain);
    let token = table.required_node("tokenFile", "the path of the pod's Kubernetes token");
    let token = token.text("a path", |text| (!text.is_empty()).then(|| base.join(text)));
    let said: Vec<_> = keys.iter().filter_map(|key| Some((key, annotation(table, key)?))).collect();
    let of = |carrier| -> Annotations {
        let its = said.iter().filter(|(key, _)| key.object == carrier);
        its.map(|(key, text)| (key.annotation, text.clone())).collect()
    };
    let service_account = ServiceAccount { namespace: namespace?, name: account? };
    let name = name?;
    // No API server provides a UID, so the agent builds a UID. The address makes the UID unique in this file.
    let uid = PodUid(format!("static:{}/{name}@{}", service_account.namespace, address?).into());
    let pod = Pod { uid, name, service_account };
    let facts = PodAnnotations {
        own_annotations: of(AnnotatedObject::Pod),
        // An annotation that the file omits counts as absent, not as unread.
        service_account: RelatedAnnotations::of_object(of(AnnotatedObject::ServiceAccount)),
        namespace: RelatedAnnotations::of_object(of(AnnotatedObject::Namespace)),
    };
    Some(StaticPod { pod, annotations: facts, subject_token_source: Arc::new(TokenFile::new(token?)) })
}

const ADDRESS: &str = "an IP address such as 10.4.0.7";

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const CART: &str = "
- address: 10.4.0.7
  namespace: shop
  pod: cart-0
  serviceAccount: cart
  tokenFile: tokens/cart-0
  googleServiceAccount: cart@my-project.iam.gserviceaccount.com
";

    /// An annotation key as a cloud would define it.
    const KEYS: &[IdentityFileKey] = &[IdentityFileKey {
        name: "googleServiceAccount",
        object: AnnotatedObject::ServiceAccount,
        annotation: "cloud/account",
        expected: "an e-mail",
        is_valid: |text| text.contains('@'),
    }];

    fn parse(pods: &str) -> Result<StaticPodsByAddress, ValidationErrors> {
        StaticPodsByAddress::parse(&format!("pods:{pods}"), Path::new("/etc/seawall"), KEYS)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_gives_its_pod_and_no_other() {
        let identity = parse(CART).unwrap();
        let (_, cart) = identity.pods().next().unwrap();
        assert_eq!(cart.pod.service_account.to_string(), "shop/cart");
        let said =
            [("cloud/account", "cart@my-project.iam.gserviceaccount.com".into())].into_iter().collect();
        let (pod, namespace) =
            (Annotations::default(), RelatedAnnotations::of_object(Annotations::default()));
        assert_eq!(
            cart.annotations,
            PodAnnotations {
                own_annotations: pod,
                service_account: RelatedAnnotations::of_object(said),
                namespace
            }
        );
        assert!(format!("{:?}", cart.subject_token_source).contains("/etc/seawall/tokens/cart-0"));
        let verdict = |address| {
            identity.attestation().verdict(&ConnectionEnds {
                peer: SocketAddr::new(ip(address), 1),
                read_local_address: &|| None,
            })
        };
        for own in ["10.4.0.7", "::ffff:10.4.0.7"] {
            assert_eq!(verdict(own), AttestationVerdict::Pod(cart.pod.uid.clone()));
        }
        for stranger in ["10.4.0.8", "127.0.0.1", "::1", "0.0.0.0"] {
            assert_eq!(
                verdict(stranger),
                AttestationVerdict::Rejected(RejectionReason::UnknownAddress),
                "{stranger}"
            );
        }
    }

    #[test]
    fn a_key_stands_for_an_annotation_of_what_would_carry_it() {
        let key = |name, of| IdentityFileKey {
            name,
            object: of,
            annotation: "cloud/role",
            expected: "a role",
            is_valid: |_| true,
        };
        let keys = [
            key("podRole", AnnotatedObject::Pod),
            key("accountRole", AnnotatedObject::ServiceAccount),
            key("role", AnnotatedObject::Namespace),
        ];
        let entry = CART.replace(
            "  googleServiceAccount: cart@my-project.iam.gserviceaccount.com",
            "  podRole: one\n  role: three",
        );
        let identity = StaticPodsByAddress::parse(&format!("pods:{entry}"), Path::new(""), &keys).unwrap();
        let said = |text: &str| -> Annotations { [("cloud/role", text.into())].into_iter().collect() };
        let (_, cart) = identity.pods().next().unwrap();
        let service_account = RelatedAnnotations::of_object(Annotations::default());
        assert_eq!(
            cart.annotations,
            PodAnnotations {
                own_annotations: said("one"),
                service_account,
                namespace: RelatedAnnotations::of_object(said("three"))
            }
        );
    }

    #[test]
    fn two_pods_with_one_address_are_refused_not_guessed() {
        for second in ["10.4.0.7", "\"::ffff:10.4.0.7\""] {
            let twice = format!("{CART}{}", CART.replace("10.4.0.7", second).replace("cart-0", "cart-1"));
            let text = parse(&twice).unwrap_err().to_string();
            assert!(
                text.contains("pods[1].address") && text.contains("another address: an earlier pod"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_key_that_no_cloud_names_is_a_mistake() {
        let text =
            StaticPodsByAddress::parse(&format!("pods:{CART}"), Path::new(""), &[]).unwrap_err().to_string();
        assert!(text.contains("googleServiceAccount"), "{text}");
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let wrong = "
- address: 10.4.0
  namespace: Shop
  pod: cart_0
  serviceAccount: ''
  googleServiceAccount: cart
  tokenfile: x
- address: 0.0.0.0
  namespace: shop
  pod: a
  serviceAccount: a
  tokenFile: a
";
        let mistakes = parse(wrong).unwrap_err();
        let text = mistakes.to_string();
        for place in [
            "pods[0].address",
            "pods[0].namespace",
            "pods[0].pod",
            "pods[0].serviceAccount",
            "pods[0].tokenFile",
            "pods[0].googleServiceAccount",
            "\"tokenfile\"",
            "pods[1].address",
        ] {
            assert!(text.contains(place), "{place} in {text}");
        }
        assert_eq!(mistakes.0.len(), 8, "{text}");
        assert!(StaticPodsByAddress::parse("{}", Path::new(""), KEYS).is_err());
    }

    #[test]
    fn a_repeated_address_is_named_also_beside_other_mistakes() {
        let wrong = CART.replace("serviceAccount: cart", "serviceAccount: CART");
        let mistakes = parse(&format!("{wrong}{CART}")).unwrap_err();
        let places: Vec<_> = mistakes.0.iter().map(|mistake| mistake.key_path.as_str()).collect();
        assert_eq!(places, ["pods[0].serviceAccount", "pods[1].address"]);
    }

    #[test]
    fn a_file_is_named_in_its_errors_and_a_missing_token_is_none() {
        let folder = std::env::temp_dir().join(format!("seawall-identity-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("pods.yaml");
        let failed = |path: &Path| StaticPodsByAddress::load(path, KEYS).unwrap_err().to_string();
        assert!(failed(&path).contains("pods.yaml") && failed(&path).contains("No such file"));
        assert!(failed(&folder).contains("is a directory, expected a regular file"));
        std::fs::write(&path, "pods: 7\n").unwrap();
        assert!(failed(&path).contains("pods.yaml") && failed(&path).contains("a list"));
        std::fs::write(&path, format!("pods:{CART}")).unwrap();
        let identity = StaticPodsByAddress::load(&path, KEYS).unwrap();
        let (_, cart) = identity.pods().next().unwrap();
        let token = folder.join("tokens/cart-0");
        assert!(
            format!("{:?}", cart.subject_token_source).contains(token.to_str().unwrap()),
            "{:?}",
            cart.subject_token_source
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
