//! `static` identity: a file says which pod has which address.
//!
//! For laptops, tests and the demo, and for nodes whose pods are placed by hand. The argument: the address a connection
//! comes from cannot be chosen freely by a pod (the answer would not reach it), so address → pod is proof as far as
//! the file is true. What is not in the file is nobody. An address that stands in it twice makes the whole file
//! invalid: which of the two pods is meant would be a guess, and a wrong guess is somebody else's credential.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seawall_core::document::{Node, Table};
use seawall_core::{Document, Mistakes, Pod, PodUid, ServiceAccount};

use crate::{Attested, TokenFile};

/// Largest identity file, in bytes: some thousand pods.
const LARGEST: u64 = 4 * 1024 * 1024;

/// The pods of a file, by address. Immutable.
#[derive(Debug, Default)]
pub struct StaticIdentity {
    pods: HashMap<IpAddr, Arc<Attested>>,
}

/// Why an identity file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It cannot be read.
    #[error("cannot read the identity file {path}: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It has mistakes.
    #[error("{path} has {} mistake(s):\n{mistakes}", mistakes.0.len())]
    Mistaken {
        /// The file.
        path: PathBuf,
        /// All of them.
        mistakes: Mistakes,
    },
}

impl StaticIdentity {
    /// Reads a file; relative token files in it are relative to its folder.
    ///
    /// # Errors
    /// The file cannot be read or is implausibly large, or every mistake in it.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let unreadable = |reason: String| IdentityError::Unreadable { path: path.into(), reason };
        let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
        if size > LARGEST {
            return Err(unreadable(format!("it is larger than {LARGEST} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("")))
            .map_err(|mistakes| IdentityError::Mistaken { path: path.into(), mistakes })
    }

    /// Checks a text; `base` is where its relative token files start.
    ///
    /// # Errors
    /// Every mistake.
    pub fn parse(text: &str, base: &Path) -> Result<Self, Mistakes> {
        let document = Document::parse(text)?;
        let mut identity = Self::default();
        {
            let root = document.root();
            for node in root.required("pods", "a list of pods").list() {
                identity.read_pod(&node.table(), base);
            }
        }
        document.finish(identity)
    }

    fn read_pod(&mut self, table: &Table<'_>, base: &Path) {
        let place = table.required("address", ADDRESS);
        let address = place.text(ADDRESS, |text| text.parse::<IpAddr>().ok());
        let label = |key, what: &str| table.required(key, what).text(what, dns_label);
        let subdomain = |key, what: &str| table.required(key, what).text(what, dns_subdomain);
        let namespace = label("namespace", "a namespace: a DNS label such as shop");
        let pod = subdomain("pod", "a pod name: a DNS subdomain such as cart-0");
        let account = subdomain("serviceAccount", "a ServiceAccount name: a DNS subdomain such as cart");
        let file_node = table.required("tokenFile", "the path of the pod's Kubernetes token");
        let file = file_node.text("a path", |text| (!text.is_empty()).then(|| base.join(text)));
        let google_account = table.key("googleServiceAccount").text(EMAIL, google_service_account);
        let (Some(address), Some(namespace), Some(pod), Some(account), Some(file)) =
            (address, namespace, pod, account, file)
        else {
            return;
        };
        let service_account = ServiceAccount { namespace, name: account };
        let uid = PodUid(format!("static:{}/{pod}@{address}", service_account.namespace).into());
        let pod = Pod { uid, name: pod, service_account };
        self.enter(
            &place,
            address,
            Attested { pod, google_account, subject: Arc::new(TokenFile::new(file)) },
        );
    }

    fn enter(&mut self, place: &Node<'_>, address: IpAddr, attested: Attested) {
        let address = address.to_canonical();
        if address.is_unspecified() || address.is_multicast() {
            place.mistake("the address of one pod");
        } else if let Some(other) = self.pods.get(&address) {
            place.mistake(format!("an address of its own; pod {} already has this one", other.pod.name));
        } else {
            self.pods.insert(address, Arc::new(attested));
        }
    }

    /// The pod at this address; an IPv4 address inside IPv6 (`::ffff:a.b.c.d`) is that IPv4 address.
    pub fn pod_at(&self, address: IpAddr) -> Option<&Arc<Attested>> {
        self.pods.get(&address.to_canonical())
    }

    /// Every pod with its address, in no order.
    pub fn pods(&self) -> impl Iterator<Item = (IpAddr, &Arc<Attested>)> {
        self.pods.iter().map(|(address, pod)| (*address, pod))
    }
}

const ADDRESS: &str = "an IP address such as 10.4.0.7";
const EMAIL: &str = "a Google service account's e-mail such as cart@my-project.iam.gserviceaccount.com";

/// RFC 1123 label, as Kubernetes demands of namespaces (apimachinery `IsDNS1123Label`): at most 63 of a-z, 0-9, `-`.
fn dns_label(text: &str) -> Option<Arc<str>> {
    is_label(text).then(|| text.into())
}

/// RFC 1123 subdomain, as Kubernetes demands of pods and ServiceAccounts (`IsDNS1123Subdomain`): at most 253.
fn dns_subdomain(text: &str) -> Option<Arc<str>> {
    (text.len() <= 253 && text.split('.').all(is_label)).then(|| text.into())
}

fn is_label(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

/// An e-mail that may stand in a URL path and in a metadata listing: one `@`, no character with a meaning there.
fn google_service_account(text: &str) -> Option<Arc<str>> {
    let (user, domain) = text.split_once('@')?;
    let user_fits = !user.is_empty()
        && user.len() <= 64
        && user.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let domain_fits = domain.len() <= 253 && domain.contains('.') && domain.split('.').all(is_label);
    (user_fits && domain_fits && !user.starts_with('.')).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CART: &str = "
- address: 10.4.0.7
  namespace: shop
  pod: cart-0
  serviceAccount: cart
  tokenFile: tokens/cart-0
  googleServiceAccount: cart@my-project.iam.gserviceaccount.com
";

    fn parse(pods: &str) -> Result<StaticIdentity, Mistakes> {
        StaticIdentity::parse(&format!("pods:{pods}"), Path::new("/etc/seawall"))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_gives_its_pod_and_no_other() {
        let identity = parse(CART).unwrap();
        let cart = identity.pod_at(ip("10.4.0.7")).unwrap();
        assert_eq!(cart.pod.service_account.to_string(), "shop/cart");
        assert_eq!(cart.google_account.as_deref(), Some("cart@my-project.iam.gserviceaccount.com"));
        assert!(format!("{:?}", cart.subject).contains("/etc/seawall/tokens/cart-0"));
        assert!(identity.pod_at(ip("::ffff:10.4.0.7")).is_some());
        for stranger in ["10.4.0.8", "127.0.0.1", "::1", "0.0.0.0"] {
            assert!(identity.pod_at(ip(stranger)).is_none(), "{stranger}");
        }
    }

    #[test]
    fn two_pods_with_one_address_are_refused_not_guessed() {
        for second in ["10.4.0.7", "\"::ffff:10.4.0.7\""] {
            let twice = format!("{CART}{}", CART.replace("10.4.0.7", second).replace("cart-0", "cart-1"));
            let text = parse(&twice).unwrap_err().to_string();
            assert!(text.contains("pods[1].address") && text.contains("cart-0"), "{text}");
        }
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
        assert!(StaticIdentity::parse("{}", Path::new("")).is_err());
    }

    #[test]
    fn odd_emails_are_refused() {
        for odd in ["a@b", "@b.c", "a@b.c/../x", "a b@c.d", "a@b@c.d", "a@.d", "a\n@b.c", "a:b@c.d"] {
            assert!(google_service_account(odd).is_none(), "{odd}");
        }
    }
}
