//! Reads a kubeconfig file: the current context, and the settings of its cluster and user.
//!
//! The reader refuses settings that run a program, impersonate a user, or use a password or a proxy. It also refuses a setting
//! that skips the check of the server's certificate. The error names the setting. No user watches the agent on a node. If the
//! reader ignored such a setting, the agent would reach another server or act as another user. The reader ignores keys without
//! such an effect (`preferences`, `extensions`). Source: Kubernetes reference, kubeconfig (v1).

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::ServerName;
use seawall_core::{Secret, file};
use serde_json::Value;

use super::endpoint::{BaseUrl, CredentialSource, KubeEndpoint, MAX_CREDENTIAL_FILE_BYTES};

/// The keys that the reader refuses in a cluster.
const NOT_OF_A_CLUSTER: [&str; 2] = ["insecure-skip-tls-verify", "proxy-url"];

/// The keys that the reader refuses in a user.
const NOT_OF_A_USER: [&str; 8] =
    ["exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra"];

pub(super) fn read_kubeconfig(path: &Path) -> Result<KubeEndpoint, String> {
    let text = file::read_text(path, MAX_CREDENTIAL_FILE_BYTES)?;
    parse(text.expose(), path.parent().unwrap_or(Path::new("")))
}

/// Parses a kubeconfig. Relative paths start at `folder`.
fn parse(text: &str, folder: &Path) -> Result<KubeEndpoint, String> {
    let value = seawall_config::parse_foreign_yaml(text)?;
    let root = KubeconfigSection { value: &value, key_path: String::new(), folder };
    let context = root.table_of_named_entry("contexts", "context", root.required_text("current-context")?)?;
    let cluster = root.table_of_named_entry("clusters", "cluster", context.required_text("cluster")?)?;
    cluster.reject_keys(&NOT_OF_A_CLUSTER, "not supported")?;
    let url = cluster.required_text("server")?;
    let endpoint = KubeEndpoint {
        base_url: BaseUrl::parse(url).ok_or_else(|| cluster.error_at("server", "expected an https URL"))?,
        server_name: cluster.server_name()?,
        root_certificates_source: cluster.credential_source("certificate-authority")?,
        token_source: None,
        client_certificate_and_key_sources: None,
    };
    let Some(user) = context.text("user")? else { return Ok(endpoint) };
    let user = root.table_of_named_entry("users", "user", user)?;
    user.reject_keys(&NOT_OF_A_USER, "not supported: give a token, a tokenFile or a client-certificate")?;
    Ok(KubeEndpoint {
        token_source: user.token_source()?,
        client_certificate_and_key_sources: user.client_certificate_and_key_sources()?,
        ..endpoint
    })
}

/// A table of the kubeconfig file. Error messages show the table's path, never the table's content.
pub struct KubeconfigSection<'a> {
    /// The table's value.
    pub value: &'a Value,
    /// The path of the table, for error messages.
    pub key_path: String,
    /// The folder of the kubeconfig file, where relative paths start.
    pub folder: &'a Path,
}

impl<'a> KubeconfigSection<'a> {
    /// Finds the entry of `list` whose name is `name`, and returns the table `key` of this entry.
    pub fn table_of_named_entry(
        &self,
        list: &str,
        key: &str,
        name: &str,
    ) -> Result<KubeconfigSection<'a>, String> {
        let path = format!("{list}[{name:?}].{key}");
        let items = self.value.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let found = items.iter().find(|item| item.get("name").and_then(Value::as_str) == Some(name));
        let value = found.and_then(|item| item.get(key)).filter(|value| value.is_object());
        let value = value.ok_or_else(|| format!("{path}: found nothing, expected a table"))?;
        Ok(KubeconfigSection { value, key_path: path, folder: self.folder })
    }

    /// Returns the error message for a wrong key. The message contains the key's path and the text `what`.
    pub fn error_at(&self, key: &str, what: &str) -> String {
        let dot = if self.key_path.is_empty() { "" } else { "." };
        format!("{}{dot}{key}: {what}", self.key_path)
    }

    /// Returns the text of a key. Returns `None` if the text is absent or empty, because Kubernetes treats both cases alike.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        match self.value.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.error_at(key, "expected text; put a number, true or false in quotes")),
        }
    }

    /// Returns the text of a required key.
    ///
    /// # Errors
    /// The key is missing, or its value is not text.
    pub fn required_text(&self, key: &str) -> Result<&'a str, String> {
        self.text(key)?.ok_or_else(|| self.error_at(key, "found nothing, expected text"))
    }

    /// Returns `value` as a list of texts. An absent value gives an empty list. `key` names the value in the error.
    pub fn text_list(&self, key: &str, value: Option<&'a Value>) -> Result<Vec<&'a str>, String> {
        let expected = || self.error_at(key, "expected a list of texts");
        match value {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().ok_or_else(expected)).collect()
            }
            Some(_) => Err(expected()),
        }
    }

    /// Rejects these keys. A key is allowed if its value is null, `false` or an empty text.
    pub fn reject_keys(&self, keys: &[&str], why: &str) -> Result<(), String> {
        let says = |key: &&&str| match self.value.get(**key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(_) => true,
        };
        keys.iter().find(says).map_or(Ok(()), |key| Err(self.error_at(key, why)))
    }

    /// Returns the decoded text of `KEY-data`. If that key is absent, returns the file that `KEY` names.
    pub fn credential_source(&self, key: &str) -> Result<Option<CredentialSource>, String> {
        let inline = format!("{key}-data");
        match self.text(&inline)? {
            Some(data) => {
                let text = decoded(data).ok_or_else(|| self.error_at(&inline, "expected PEM in base64"))?;
                Ok(Some(CredentialSource::Given(text)))
            }
            None => self.file(key),
        }
    }

    fn file(&self, key: &str) -> Result<Option<CredentialSource>, String> {
        Ok(self.text(key)?.map(|path| CredentialSource::File(self.folder.join(path))))
    }

    /// Returns the expected name in the server's certificate, if it differs from the host.
    ///
    /// # Errors
    /// The text is not a DNS name or an address.
    pub fn server_name(&self) -> Result<Option<ServerName<'static>>, String> {
        let Some(name) = self.text("tls-server-name")? else { return Ok(None) };
        let name = ServerName::try_from(name.to_owned());
        name.map(Some).map_err(|_| self.error_at("tls-server-name", "expected a DNS name or an address"))
    }

    /// Returns the source of the token. `tokenFile` has priority over `token`, as in client-go.
    pub fn token_source(&self) -> Result<Option<CredentialSource>, String> {
        let given = self.text("token")?.map(|token| CredentialSource::Given(Secret::new(token.to_owned())));
        Ok(self.file("tokenFile")?.or(given))
    }

    /// Returns the sources of the client's certificate and key.
    ///
    /// # Errors
    /// The certificate is present without the key, or the key without the certificate.
    pub fn client_certificate_and_key_sources(
        &self,
    ) -> Result<Option<(CredentialSource, CredentialSource)>, String> {
        match (self.credential_source("client-certificate")?, self.credential_source("client-key")?) {
            (Some(chain), Some(key)) => Ok(Some((chain, key))),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(self.error_at("client-certificate", "missing; client-key needs it")),
            (Some(_), None) => Err(self.error_at("client-key", "missing; client-certificate needs it")),
        }
    }
}

/// Decodes base64 text. The text may contain line breaks from YAML.
fn decoded(data: &str) -> Option<Secret<String>> {
    let packed: String = data.split_ascii_whitespace().collect();
    String::from_utf8(BASE64_STANDARD.decode(packed).ok()?).ok().map(Secret::new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Parses a kubeconfig with two contexts. The cluster and the user of the current context have these entries.
    fn parsed(cluster: &Value, user: &Value) -> Result<KubeEndpoint, String> {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": "mine",
            "contexts": [
                {"name": "other", "context": {"cluster": "other", "user": "other"}},
                {"name": "mine", "context": {"cluster": "reef", "user": "agent", "namespace": "seawall"}},
            ],
            "clusters": [{"name": "other", "cluster": {"server": "https://other"}}, {"name": "reef", "cluster": cluster}],
            "users": [{"name": "agent", "user": user}, {"name": "other", "user": {"exec": {"command": "sh"}}}],
        });
        parse(&text.to_string(), Path::new("/etc/seawall"))
    }

    fn told(source: Option<&CredentialSource>) -> String {
        match source {
            None => "nothing".into(),
            Some(CredentialSource::Given(text)) => format!("given {}", text.expose()),
            Some(CredentialSource::File(path)) => format!("file {}", path.display()),
        }
    }

    #[test]
    fn the_current_context_says_where_and_who() {
        let cluster = json!({
            "server": "https://10.0.0.1:6443/prefix", "tls-server-name": "kubernetes", "certificate-authority": "ca.crt",
            "insecure-skip-tls-verify": false, "extensions": [],
        });
        let user = json!({"token": "t", "client-certificate": "/pki/c.crt", "client-key-data": "a2\nV5"});
        let endpoint = parsed(&cluster, &user).unwrap();
        assert_eq!(Some(endpoint.base_url), BaseUrl::parse("https://10.0.0.1:6443/prefix"));
        assert_eq!(endpoint.server_name, Some(ServerName::try_from("kubernetes").unwrap()));
        assert_eq!(told(endpoint.root_certificates_source.as_ref()), "file /etc/seawall/ca.crt");
        assert_eq!(told(endpoint.token_source.as_ref()), "given t");
        let (chain, key) = endpoint.client_certificate_and_key_sources.unwrap();
        assert_eq!([told(Some(&chain)), told(Some(&key))], ["file /pki/c.crt", "given key"]);
    }

    #[test]
    fn data_goes_before_a_file_and_a_token_file_before_a_token() {
        let cluster = json!({
            "server": "https://h", "certificate-authority": "ca.crt", "certificate-authority-data": "Y2E=",
        });
        let endpoint = parsed(&cluster, &json!({"token": "t", "tokenFile": "token"})).unwrap();
        assert_eq!(told(endpoint.root_certificates_source.as_ref()), "given ca");
        assert_eq!(told(endpoint.token_source.as_ref()), "file /etc/seawall/token");
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        let server = json!({"server": "https://h"});
        for (key, value) in [("insecure-skip-tls-verify", json!(true)), ("proxy-url", json!("http://p"))] {
            let mut cluster = server.clone();
            cluster[key] = value;
            let reason = parsed(&cluster, &json!({})).unwrap_err();
            assert_eq!(reason, format!("clusters[\"reef\"].cluster.{key}: not supported"));
        }
        for key in NOT_OF_A_USER {
            let reason = parsed(&server, &json!({"token": "t", key: "secret"})).unwrap_err();
            assert!(
                reason.starts_with(&format!("users[\"agent\"].user.{key}: not supported: give")),
                "{reason}"
            );
            assert!(!reason.contains("secret"), "{reason}");
        }
    }

    #[test]
    fn a_mistake_is_named_by_its_place_and_shows_no_secret() {
        let server = json!({"server": "https://h"});
        for (cluster, user, place) in [
            (json!({}), json!({}), "clusters[\"reef\"].cluster.server"),
            (json!({"server": "http://h"}), json!({}), "cluster.server: expected an https URL"),
            (json!({"server": "https://h", "tls-server-name": "a b"}), json!({}), "tls-server-name"),
            (server.clone(), json!({"token": 5318008}), "users[\"agent\"].user.token: expected text"),
            (server.clone(), json!({"client-key-data": "5318008!"}), "user.client-key-data"),
            (server.clone(), json!({"client-key": "5318008"}), "user.client-certificate: missing"),
            (server.clone(), json!({"client-certificate": "5318008"}), "user.client-key: missing"),
            (server, json!("5318008"), "users[\"agent\"].user: found nothing"),
        ] {
            let reason = parsed(&cluster, &user).unwrap_err();
            assert!(reason.contains(place) && !reason.contains("5318008"), "{reason}");
        }
        for text in ["", "[]", "current-context: gone", "token: \"5318008", "a: 1\na: 5318008"] {
            let reason = parse(text, Path::new("")).unwrap_err();
            assert!(!reason.contains("5318008"), "{reason}");
        }
    }

    #[test]
    fn who_has_no_user_needs_no_credentials() {
        let text = "current-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n\
                    clusters: [{name: c, cluster: {server: 'https://h'}}]\n";
        let endpoint = parse(text, Path::new("")).unwrap();
        assert!(endpoint.token_source.is_none() && endpoint.client_certificate_and_key_sources.is_none());
    }
}
