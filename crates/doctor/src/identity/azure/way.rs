//! How Azure's SDKs get a token here, which the environment says: from the machine's metadata service, or from an endpoint of the platform that
//! runs the container. In the order of MSAL (AzureAD/microsoft-authentication-library-for-python, `msal/managed_identity.py`,
//! `get_managed_identity_source`) and azidentity (Azure/azure-sdk-for-go, `sdk/azidentity/managed_identity_client.go`).

use crate::check::Site;
use crate::identity::lent::{Misread, Outcome, Wanted};

/// Which is asked, and as what.
pub(super) struct Way {
    pub(super) wanted: Wanted,
    /// What is asked for below the place.
    pub(super) path: &'static str,
    /// What says that it is an SDK that asks, a secret where the platform gave one.
    pub(super) headers: Vec<(&'static str, String)>,
    /// It says in how many seconds a token ends, and not when.
    pub(super) says_life: bool,
    /// The machine's own metadata service may be behind it.
    pub(super) is_machines: bool,
}

const ENDPOINT: &str = "IDENTITY_ENDPOINT";
const HEADER: &str = "IDENTITY_HEADER";
const OLD_ENDPOINT: &str = "MSI_ENDPOINT";
const OLD_SECRET: &str = "MSI_SECRET";

impl Way {
    /// # Errors
    /// The outcome where nobody can be asked.
    pub(super) fn of(site: &Site) -> Result<Self, Outcome> {
        let value = |name: &str| (site.environment)(name);
        let is = |name: &str| value(name).is_some();
        match (value(ENDPOINT), value(HEADER), value(OLD_ENDPOINT), value(OLD_SECRET)) {
            // Service Fabric's endpoint, over https:// with a certificate that is told by its print.
            (Some(_), Some(_), ..) if is("IDENTITY_SERVER_THUMBPRINT") => {
                Err(Outcome::Unaskable("IDENTITY_SERVER_THUMBPRINT", Misread::Unspoken))
            }
            (Some(url), Some(header), ..) => Self::app_service(url, header),
            (_, _, Some(url), Some(secret)) => Self::machine_learning(url, secret),
            // Azure Arc's, which has a token for who can read a file of root's.
            (Some(_), ..) if is("IMDS_ENDPOINT") => Err(Outcome::Unaskable(ENDPOINT, Misread::Unspoken)),
            // Cloud Shell's, which is asked with a body.
            (_, _, Some(_), None) => Err(Outcome::Unaskable(OLD_ENDPOINT, Misread::Unspoken)),
            _ => Self::metadata(value("AZURE_POD_IDENTITY_AUTHORITY_HOST")),
        }
    }

    fn metadata(host: Option<String>) -> Result<Self, Outcome> {
        let named = host.map(|url| ("AZURE_POD_IDENTITY_AUTHORITY_HOST", url));
        Ok(Self {
            wanted: Wanted::new("Azure's metadata service", named, Misread::url, "169.254.169.254:80")?,
            path: "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F",
            headers: vec![("Metadata", "true".to_owned())],
            says_life: true,
            is_machines: true,
        })
    }

    /// Of App Service, Functions and Container Apps ("REST endpoint reference" of App Service's managed identities).
    fn app_service(url: String, header: String) -> Result<Self, Outcome> {
        let wanted = endpoint("the endpoint of Azure's App Service", (ENDPOINT, url), "2019-08-01")?;
        let wanted = sent(wanted, HEADER, &header)?;
        let headers = vec![("X-IDENTITY-HEADER", header), ("Metadata", "true".to_owned())];
        Ok(Self { wanted, path: "", headers, says_life: false, is_machines: false })
    }

    fn machine_learning(url: String, secret: String) -> Result<Self, Outcome> {
        let wanted = endpoint("the endpoint of Azure's Machine Learning", (OLD_ENDPOINT, url), "2017-09-01")?;
        let wanted = sent(wanted, OLD_SECRET, &secret)?;
        Ok(Self { wanted, path: "", headers: vec![("secret", secret)], says_life: false, is_machines: false })
    }
}

/// The place of a token of this version at an endpoint, whose own query is kept.
fn endpoint(whose: &'static str, named: (&'static str, String), version: &str) -> Result<Wanted, Outcome> {
    let mut wanted = Wanted::new(whose, Some(named), Misread::url, "")?;
    let path = wanted.place.target();
    let and = if path.contains('?') { '&' } else { '?' };
    wanted.place.path =
        format!("{path}{and}api-version={version}&resource=https%3A%2F%2Fmanagement.azure.com%2F");
    Ok(wanted)
}

/// A server whose secret can be sent.
fn sent(wanted: Wanted, name: &str, secret: &str) -> Result<Wanted, Outcome> {
    if secret.contains(['\r', '\n']) {
        return Err(Outcome::Tokenless(wanted, format!("{name} has a line end, which cannot be sent")));
    }
    Ok(wanted)
}
