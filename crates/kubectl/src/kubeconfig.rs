//! Reads kubeconfig files as kubectl does: which files, which context, and the path to the server.
//!
//! It differs from [`seawall_kube::client_config::kubeconfig`], which refuses settings that must not apply unattended. Here a
//! file may name a credential plugin, a proxy, another identity, or an unverified server, because users' files do. The agent
//! never calls this module. Sources: Kubernetes documentation, "Organizing Cluster Access Using kubeconfig Files"; client-go,
//! tools/clientcmd (`loader.go`, `client_config.go`, `validation.go`).

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use seawall_core::name_syntax::{is_dns_label, is_loopback_host};
use seawall_core::{Secret, file};
use serde_json::Value;
use url::Url;

use super::plugin::CredentialPlugin;
use seawall_kube::ClientConfigError;
use seawall_kube::client_config::endpoint::{
    BaseUrl, KubeEndpoint, MAX_CREDENTIAL_FILE_BYTES, SERVICE_ACCOUNT_FOLDER,
};
use seawall_kube::client_config::kubeconfig::KubeconfigSection;

/// A selection among the API servers in a user's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeconfigSelection {
    /// The name of a context; `None` for the current one.
    pub context: Option<String>,
    /// The only file to read; `None` for those of `KUBECONFIG`, otherwise `~/.kube/config`, otherwise in-cluster credentials.
    pub kubeconfig: Option<PathBuf>,
}

/// The result of a [`KubeconfigSelection`].
pub(crate) struct ResolvedContext {
    pub(crate) endpoint: KubeEndpoint,
    /// The scheme: `http` on this machine (`kubectl proxy`) or without credentials, otherwise `https`.
    pub(crate) scheme: Scheme,
    /// True if the server's certificate is not verified (`insecure-skip-tls-verify`).
    pub(crate) is_unverified: bool,
    pub(crate) proxy: Option<ConnectProxy>,
    /// The user's name and password, as a header.
    pub(crate) basic_auth_header: Option<HeaderValue>,
    pub(crate) plugin: Option<CredentialPlugin>,
    /// The impersonation headers.
    pub(crate) impersonation: Vec<(HeaderName, HeaderValue)>,
    /// The namespace of the context, or `default`.
    pub(crate) namespace: String,
    /// The name of the context; `None` for in-cluster credentials.
    pub(crate) context: Option<String>,
    /// A description of the source, for messages.
    pub(crate) source_description: String,
}

/// An HTTP proxy with CONNECT.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConnectProxy {
    pub(crate) uri: Uri,
    pub(crate) authorization: Option<HeaderValue>,
}

impl fmt::Debug for ResolvedContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolvedContext")
            .field("context", &self.context)
            .field("access", &self.source_description)
            .finish_non_exhaustive()
    }
}

impl KubeconfigSelection {
    /// Reads the files. It sends no request and runs no program.
    ///
    /// # Errors
    /// The file, the place in it and the expected value, or the searched places if there is no file.
    pub(crate) fn resolve(&self) -> Result<ResolvedContext, ClientConfigError> {
        self.read_with(&|name| std::env::var_os(name), Path::new(SERVICE_ACCOUNT_FOLDER))
    }

    fn read_with(&self, variable: &Variable<'_>, pod: &Path) -> Result<ResolvedContext, ClientConfigError> {
        let mut chosen = match (self.files(variable)?, &self.context) {
            (Some(files), context) => files.chosen(context.as_deref()),
            (None, Some(name)) => {
                Err(wrong(POD, format!("cannot use context {name:?} without a kubeconfig")))
            }
            (None, None) => in_pod(variable, pod),
        }?;
        if chosen.proxy.is_none() {
            let around = proxy_around(variable, &chosen);
            chosen.proxy = around.map_err(|reason| wrong("the environment", reason))?;
        }
        Ok(chosen)
    }

    /// Returns the existing files; `None` in a pod without files.
    ///
    /// A named file that does not exist is an error, never a reason to use other credentials.
    fn files(&self, variable: &Variable<'_>) -> Result<Option<Files>, ClientConfigError> {
        if let Some(path) = &self.kubeconfig {
            return Files::read(std::slice::from_ref(path)).map(Some);
        }
        let listed = variable("KUBECONFIG").unwrap_or_default();
        let listed: Vec<PathBuf> =
            std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).collect();
        if !listed.is_empty() {
            // Missing files of the list are ignored, unless all are missing.
            let there: Vec<PathBuf> = listed.iter().filter(|path| path.exists()).cloned().collect();
            return Files::read(if there.is_empty() { &listed } else { &there }).map(Some);
        }
        let own = variable("HOME").map(|home| Path::new(&home).join(".kube/config"));
        if let Some(own) = own.filter(|path| path.exists()) {
            return Files::read(&[own]).map(Some);
        }
        if variable("KUBERNETES_SERVICE_HOST").is_some() {
            return Ok(None);
        }
        let looked = "found no ~/.kube/config, no file in KUBECONFIG and no in-cluster credentials";
        Err(ClientConfigError { config_source: "a kubeconfig".into(), reason: looked.into() })
    }
}

type Variable<'v> = dyn Fn(&str) -> Option<OsString> + 'v;

const POD: &str = "the in-cluster credentials";

fn wrong(access: impl Into<String>, reason: impl Into<String>) -> ClientConfigError {
    ClientConfigError { config_source: access.into(), reason: reason.into() }
}

fn in_pod(variable: &Variable<'_>, pod: &Path) -> Result<ResolvedContext, ClientConfigError> {
    let said = |name: &str| variable(name).and_then(|value| value.into_string().ok());
    let endpoint = KubeEndpoint::in_cluster(said, pod).map_err(|reason| wrong(POD, reason))?;
    let namespace = file::read_text(&pod.join("namespace"), MAX_CREDENTIAL_FILE_BYTES).ok();
    let namespace = namespace.map(|text| text.expose().trim().to_owned()).filter(|name| is_dns_label(name));
    Ok(ResolvedContext::of(endpoint, Scheme::HTTPS, namespace, None, POD.into()))
}

impl ResolvedContext {
    fn of(
        endpoint: KubeEndpoint,
        scheme: Scheme,
        namespace: Option<String>,
        context: Option<String>,
        access: String,
    ) -> Self {
        let namespace = namespace.unwrap_or_else(|| "default".into());
        Self {
            endpoint,
            scheme,
            is_unverified: false,
            proxy: None,
            basic_auth_header: None,
            plugin: None,
            impersonation: Vec::new(),
            namespace,
            context,
            source_description: access,
        }
    }

    fn has_credentials(&self) -> bool {
        self.endpoint.token_source.is_some() || self.basic_auth_header.is_some() || self.plugin.is_some()
    }
}

/// The files of a list. For each name, the first file that has it counts.
struct Files(Vec<File>);

struct File {
    path: PathBuf,
    value: Value,
}

impl File {
    fn read(path: &Path) -> Result<Self, ClientConfigError> {
        let of = |reason| wrong(kubeconfig(path), reason);
        let text = file::read_text(path, MAX_CREDENTIAL_FILE_BYTES).map_err(of)?;
        Ok(Self {
            path: path.to_owned(),
            value: seawall_config::parse_foreign_yaml(text.expose()).map_err(of)?,
        })
    }

    /// Returns the root table. Relative paths start at the file's directory.
    fn root(&self) -> KubeconfigSection<'_> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        KubeconfigSection { value: &self.value, key_path: String::new(), folder }
    }

    /// Returns the names in one of its lists.
    fn names<'a>(&'a self, list: &str) -> impl Iterator<Item = &'a str> {
        let items = self.value.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        items.iter().filter_map(|item| item.get("name").and_then(Value::as_str))
    }

    fn told<T>(&self, read: Result<T, String>) -> Result<T, ClientConfigError> {
        read.map_err(|reason| wrong(kubeconfig(&self.path), reason))
    }
}

fn kubeconfig(path: &Path) -> String {
    format!("the kubeconfig {}", path.display())
}

impl Files {
    fn read(paths: &[PathBuf]) -> Result<Self, ClientConfigError> {
        Ok(Self(paths.iter().map(|path| File::read(path)).collect::<Result<_, _>>()?))
    }

    fn all(&self) -> String {
        let paths: Vec<String> = self.0.iter().map(|file| file.path.display().to_string()).collect();
        format!("the kubeconfig {}", paths.join(", "))
    }

    /// Returns the value of `key` in the entry with this name, and its file.
    fn entry(
        &self,
        list: &str,
        key: &str,
        name: &str,
    ) -> Result<(&File, KubeconfigSection<'_>), ClientConfigError> {
        let Some(file) = self.0.iter().find(|file| file.names(list).any(|found| found == name)) else {
            return Err(wrong(self.all(), format!("{list}[{name:?}]: found nothing; {}", self.known(list))));
        };
        Ok((file, file.told(file.root().table_of_named_entry(list, key, name))?))
    }

    /// Returns the names of a list for an error message; at most twenty.
    fn known(&self, list: &str) -> String {
        let mut names: Vec<&str> = Vec::new();
        for name in self.0.iter().flat_map(|file| file.names(list)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        match names.len() {
            0 => format!("the kubeconfig has no {list}"),
            1..=20 => format!("expected one of {}", names.join(", ")),
            more => format!("expected one of {more} names, such as {}", names[..20].join(", ")),
        }
    }

    fn context(&self, named: Option<&str>) -> Result<String, ClientConfigError> {
        if let Some(name) = named {
            return Ok(name.to_owned());
        }
        for file in &self.0 {
            if let Some(name) = file.told(file.root().text("current-context"))? {
                return Ok(name.to_owned());
            }
        }
        let known = self.known("contexts");
        Err(wrong(self.all(), format!("current-context: found nothing; give a context; {known}")))
    }

    fn chosen(&self, named: Option<&str>) -> Result<ResolvedContext, ClientConfigError> {
        let name = self.context(named)?;
        let (file, context) = self.entry("contexts", "context", &name)?;
        let namespace = file.told(namespace(&context))?;
        let (file_of_cluster, cluster) =
            self.entry("clusters", "cluster", file.told(context.required_text("cluster"))?)?;
        let mut chosen = file_of_cluster.told(reach(&cluster))?;
        (chosen.namespace, chosen.context) = (namespace, Some(name));
        chosen.source_description = kubeconfig(&file.path);
        if let Some(user) = file.told(context.text("user"))? {
            let (file, user) = self.entry("users", "user", user)?;
            file.told(identify(&mut chosen, &user, &cluster))?;
        }
        file_of_cluster.told(fits(&chosen, &cluster))?;
        Ok(chosen)
    }
}

fn namespace(context: &KubeconfigSection<'_>) -> Result<String, String> {
    let name = context.text("namespace")?.unwrap_or("default");
    // The namespace becomes a part of URL paths.
    if is_dns_label(name) {
        Ok(name.to_owned())
    } else {
        Err(context.error_at("namespace", "expected an RFC 1123 label"))
    }
}

/// Reads a cluster's entry: the server, its proxy and its verification.
fn reach(cluster: &KubeconfigSection<'_>) -> Result<ResolvedContext, String> {
    let url = cluster.required_text("server")?;
    let by = |scheme: Scheme| BaseUrl::parse_requiring_scheme(url, &scheme).map(|base| (base, scheme));
    let (base, scheme) = by(Scheme::HTTPS)
        .or_else(|| by(Scheme::HTTP))
        .ok_or_else(|| cluster.error_at("server", "expected an https or http URL"))?;
    let roots = cluster.credential_source("certificate-authority")?;
    let is_unverified = switch(cluster, "insecure-skip-tls-verify")?;
    if is_unverified && roots.is_some() {
        let what = "expected either insecure-skip-tls-verify or certificate-authority, but found both";
        return Err(cluster.error_at("insecure-skip-tls-verify", what));
    }
    let endpoint = KubeEndpoint {
        base_url: base,
        server_name: cluster.server_name()?,
        root_certificates_source: roots,
        token_source: None,
        client_certificate_and_key_sources: None,
    };
    let chosen = ResolvedContext::of(endpoint, scheme, None, None, String::new());
    Ok(ResolvedContext { is_unverified, proxy: proxy(cluster)?, ..chosen })
}

/// Allows credentials over http only to this machine, because they would be readable on a network.
fn fits(chosen: &ResolvedContext, cluster: &KubeconfigSection<'_>) -> Result<(), String> {
    let is_here = is_loopback_host(chosen.endpoint.base_url.host());
    if chosen.scheme == Scheme::HTTP && chosen.has_credentials() && !is_here {
        return Err(
            cluster.error_at("server", "expected https, because http would expose the user's credentials")
        );
    }
    Ok(())
}

fn switch(section: &KubeconfigSection<'_>, key: &str) -> Result<bool, String> {
    match section.value.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(section.error_at(key, "expected true or false")),
    }
}

const PROXY: &str =
    "expected http://HOST:PORT; for an https or socks5 proxy, use your own tunnel to the server";

fn proxy(cluster: &KubeconfigSection<'_>) -> Result<Option<ConnectProxy>, String> {
    let Some(url) = cluster.text("proxy-url")? else { return Ok(None) };
    ConnectProxy::parse(url).map(Some).ok_or_else(|| cluster.error_at("proxy-url", PROXY))
}

/// Returns the proxy from the environment, for a remote server without a proxy in its file. Source: Go, net/http
/// `ProxyFromEnvironment`.
fn proxy_around(variable: &Variable<'_>, chosen: &ResolvedContext) -> Result<Option<ConnectProxy>, String> {
    let said = |names: [&'static str; 2]| {
        let value =
            |name| Some((name, variable(name)?.into_string().ok().filter(|value| !value.is_empty())?));
        names.into_iter().find_map(value)
    };
    let names = if chosen.scheme == Scheme::HTTPS {
        ["HTTPS_PROXY", "https_proxy"]
    } else {
        ["HTTP_PROXY", "http_proxy"]
    };
    let host = chosen.endpoint.base_url.host();
    let Some((name, url)) = said(names).filter(|_| !is_loopback_host(host)) else { return Ok(None) };
    let but = said(["NO_PROXY", "no_proxy"]).map(|(_, hosts)| hosts).unwrap_or_default();
    let others = Matcher::builder().all("http://proxy").no(but).build();
    let server = chosen.endpoint.base_url.url_with_scheme(chosen.scheme.clone(), &Uri::from_static("/"));
    if server.is_ok_and(|server| others.intercept(&server).is_none()) {
        return Ok(None);
    }
    let url = if url.contains("://") { url } else { format!("http://{url}") };
    ConnectProxy::parse(&url).map(Some).ok_or_else(|| format!("{name}: {PROXY}"))
}

impl ConnectProxy {
    /// Parses the URL of a plain HTTP proxy with CONNECT; the tunnel carries TLS. The result is `None` for other proxies.
    fn parse(url: &str) -> Option<Self> {
        let url = Url::parse(url).ok().filter(|url| url.scheme() == "http")?;
        let uri = format!("http://{}:{}", url.host_str()?, url.port().unwrap_or(80)).parse().ok()?;
        let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let authorization = match url.username() {
            "" => None,
            name => Some(basic(&decoded(name), &decoded(url.password().unwrap_or_default()))?),
        };
        Some(Self { uri, authorization })
    }
}

/// Returns the header of basic authentication (RFC 7617); `None` for an invalid name or password.
fn basic(name: &str, password: &str) -> Option<HeaderValue> {
    let pair = Secret::new(format!("{name}:{password}"));
    let text = Secret::new(format!("Basic {}", BASE64_STANDARD.encode(pair.expose())));
    let mut value = HeaderValue::from_str(text.expose()).ok().filter(|_| !name.contains(':'))?;
    value.set_sensitive(true);
    Some(value)
}

/// Reads a user's entry: the credentials and the impersonation.
fn identify(
    chosen: &mut ResolvedContext,
    user: &KubeconfigSection<'_>,
    cluster: &KubeconfigSection<'_>,
) -> Result<(), String> {
    let gone = "not supported, as in kubectl since 1.26: use exec (client.authentication.k8s.io/v1)";
    user.reject_keys(&["auth-provider"], gone)?;
    chosen.endpoint.token_source = user.token_source()?;
    chosen.endpoint.client_certificate_and_key_sources = user.client_certificate_and_key_sources()?;
    let (name, password) = (user.text("username")?, user.text("password")?);
    if name.or(password).is_some() {
        if chosen.endpoint.token_source.is_some() {
            return Err(
                user.error_at("token", "expected either a token or username and password, but found both")
            );
        }
        let header = basic(name.unwrap_or_default(), password.unwrap_or_default());
        chosen.basic_auth_header =
            Some(header.ok_or_else(|| user.error_at("username", "expected no colon"))?);
    }
    chosen.plugin = CredentialPlugin::from_user_entry(user, cluster, &chosen.endpoint)?;
    chosen.impersonation = acting(user)?;
    Ok(())
}

/// Returns the impersonation headers. Source: Kubernetes documentation, "User impersonation"; client-go,
/// transport/round_trippers.go.
fn acting(user: &KubeconfigSection<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    let mut add = |key: &str, name: &'static str, value: &str| {
        let value =
            HeaderValue::from_str(value).map_err(|_| user.error_at(key, "expected a valid header value"))?;
        headers.push((HeaderName::from_static(name), value));
        Ok::<_, String>(())
    };
    let name = user.text("as")?;
    name.map_or(Ok(()), |name| add("as", "impersonate-user", name))?;
    user.text("as-uid")?.map_or(Ok(()), |uid| add("as-uid", "impersonate-uid", uid))?;
    for group in user.text_list("as-groups", user.value.get("as-groups"))? {
        add("as-groups", "impersonate-group", group)?;
    }
    headers.extend(extra(user)?);
    if name.is_none() && !headers.is_empty() {
        return Err(user.error_at("as", "found nothing, but as-uid, as-groups and as-user-extra need a user"));
    }
    Ok(headers)
}

/// Returns one header for each value of each key in `as-user-extra`.
fn extra(user: &KubeconfigSection<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    /// The characters that a header name escapes: all except the valid ones (RFC 9110, section 5.6.2), and the escape sign itself.
    const TOKEN: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'!')
        .remove(b'#')
        .remove(b'$')
        .remove(b'&')
        .remove(b'\'')
        .remove(b'*')
        .remove(b'+')
        .remove(b'-')
        .remove(b'.')
        .remove(b'^')
        .remove(b'_')
        .remove(b'`')
        .remove(b'|')
        .remove(b'~');
    let expected = || user.error_at("as-user-extra", "expected a map of string lists");
    let table = match user.value.get("as-user-extra") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(value) => value.as_object().ok_or_else(expected)?,
    };
    let mut headers = Vec::new();
    for (key, values) in table {
        let name = format!("impersonate-extra-{}", utf8_percent_encode(key, TOKEN));
        let name: HeaderName = name.parse().map_err(|_| expected())?;
        for value in user.text_list("as-user-extra", Some(values))? {
            headers.push((name.clone(), HeaderValue::from_str(value).map_err(|_| expected())?));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// A directory with kubeconfig files, and the environment variables of a process.
    struct World {
        folder: TempDir,
        variables: Vec<(&'static str, String)>,
    }

    impl World {
        fn new() -> Self {
            Self { folder: TempDir::new().unwrap(), variables: Vec::new() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, name: &str, value: &Value) -> &Self {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), value.to_string()).unwrap();
            self
        }

        fn list(&mut self, names: &[&str]) {
            let paths: Vec<String> = names.iter().map(|name| self.path(name).display().to_string()).collect();
            self.variables.push(("KUBECONFIG", paths.join(":")));
        }

        fn read(&self, context: Option<&str>) -> Result<ResolvedContext, ClientConfigError> {
            let choice = KubeconfigSelection { context: context.map(str::to_owned), kubeconfig: None };
            let variable = |name: &str| {
                self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            choice.read_with(&variable, &self.path("pod"))
        }

        fn reason(&self, context: Option<&str>) -> String {
            self.read(context).unwrap_err().to_string()
        }
    }

    fn context(name: &str, cluster: &str, user: &str) -> Value {
        json!({"name": name, "context": {"cluster": cluster, "user": user, "namespace": format!("of-{name}")}})
    }

    fn cluster(name: &str, url: &str) -> Value {
        json!({"name": name, "cluster": {"server": url}})
    }

    fn user(name: &str, token: &str) -> Value {
        json!({"name": name, "user": {"token": token}})
    }

    /// Returns a kubeconfig with these values in its cluster and its user.
    fn one(cluster: &Value, user: &Value) -> Result<ResolvedContext, ClientConfigError> {
        let mut world = World::new();
        let text = json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "reef", "user": "me"}}],
            "clusters": [{"name": "reef", "cluster": cluster}], "users": [{"name": "me", "user": user}],
        });
        world.write("config", &text);
        world.list(&["config"]);
        world.read(None)
    }

    fn token(chosen: &ResolvedContext) -> String {
        chosen.endpoint.read_credentials().unwrap().token.unwrap().expose().clone()
    }

    #[test]
    fn of_a_list_of_files_the_first_that_says_a_thing_counts() {
        let mut world = World::new();
        world.write("a", &json!({"contexts": [context("x", "reef", "me")], "users": [user("me", "first")]}));
        world.write(
            "b",
            &json!({
                "current-context": "x", "contexts": [context("x", "other", "me"), context("y", "reef", "me")],
                "users": [user("me", "second")], "clusters": [cluster("reef", "https://b")],
            }),
        );
        world.write("c", &json!({"current-context": "y", "clusters": [cluster("reef", "https://c")]}));
        world.list(&["missing", "a", "b", "c"]);
        let chosen = world.read(None).unwrap();
        assert_eq!((chosen.context.as_deref(), &*chosen.namespace), (Some("x"), "of-x"));
        assert_eq!((chosen.endpoint.base_url.authority(), &*token(&chosen)), ("b", "first"));
        assert_eq!(world.read(Some("y")).unwrap().namespace, "of-y");
    }

    #[test]
    fn what_is_relative_is_so_to_the_file_in_which_it_stands() {
        let mut world = World::new();
        world.write("one/a", &json!({"current-context": "x", "contexts": [context("x", "reef", "me")]}));
        let reef =
            json!({"name": "reef", "cluster": {"server": "https://h", "certificate-authority": "ca.crt"}});
        world.write("two/b", &json!({"clusters": [reef]}));
        world.write("three/c", &json!({"users": [{"name": "me", "user": {"tokenFile": "token"}}]}));
        world.list(&["one/a", "two/b", "three/c"]);
        fs::write(world.path("two/ca.crt"), "ca of two").unwrap();
        fs::write(world.path("three/token"), "token of three").unwrap();
        let papers = world.read(None).unwrap().endpoint.read_credentials().unwrap();
        assert_eq!(papers.roots.unwrap().expose(), "ca of two");
        assert_eq!(papers.token.unwrap().expose(), "token of three");
    }

    #[test]
    fn what_is_named_and_not_there_is_never_a_reason_to_ask_as_somebody_else() {
        let mut world = World::new();
        world.variables = vec![("HOME", world.folder.path().display().to_string())];
        world.variables.push(("KUBERNETES_SERVICE_HOST", "10.96.0.1".into()));
        world.variables.push(("KUBERNETES_SERVICE_PORT", "443".into()));
        let in_pod = world.read(None).unwrap();
        assert_eq!((in_pod.context, &*in_pod.namespace), (None, "default"));
        fs::create_dir(world.path("pod")).unwrap();
        fs::write(world.path("pod/namespace"), "shop").unwrap();
        assert_eq!(world.read(None).unwrap().namespace, "shop");
        assert!(world.reason(Some("x")).contains("cannot use context \"x\" without a kubeconfig"));
        let own = json!({"current-context": "x", "contexts": [context("x", "reef", "me")],
            "clusters": [cluster("reef", "https://h")], "users": [user("me", "t")]});
        world.write(".kube/config", &own);
        assert_eq!(world.read(None).unwrap().context.as_deref(), Some("x"));
        world.list(&["gone", "gone too"]);
        assert!(world.reason(None).contains("/gone: "), "{}", world.reason(None));
        let reason = World::new().reason(None);
        assert!(reason.contains("~/.kube/config") && reason.contains("KUBECONFIG"), "{reason}");
    }

    #[test]
    fn a_context_that_is_not_there_is_told_with_those_that_are() {
        let mut world = World::new();
        world.write("a", &json!({"contexts": [context("x", "reef", "me"), context("y", "reef", "me")]}));
        world.write("b", &json!({"contexts": [context("y", "reef", "me"), context("z", "reef", "me")]}));
        world.list(&["a", "b"]);
        let reason = world.reason(Some("w"));
        assert!(reason.ends_with("contexts[\"w\"]: found nothing; expected one of x, y, z"), "{reason}");
        let reason = world.reason(None);
        assert!(reason.contains("current-context: found nothing") && reason.ends_with("x, y, z"), "{reason}");
        let reason = world.reason(Some("x"));
        assert!(
            reason.ends_with("clusters[\"reef\"]: found nothing; the kubeconfig has no clusters"),
            "{reason}"
        );
    }

    #[test]
    fn a_user_may_have_a_password_and_act_as_somebody_else() {
        let user = json!({
            "username": "me", "password": "secret", "as": "you", "as-uid": "7", "as-groups": ["a", "b"],
            "as-user-extra": {"Reason/why": ["c"]},
        });
        let chosen = one(&json!({"server": "https://h"}), &user).unwrap();
        assert_eq!(chosen.basic_auth_header.as_ref().unwrap(), "Basic bWU6c2VjcmV0");
        assert!(chosen.basic_auth_header.unwrap().is_sensitive());
        let acting: Vec<String> = chosen
            .impersonation
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        assert_eq!(
            acting,
            [
                "impersonate-user: you",
                "impersonate-uid: 7",
                "impersonate-group: a",
                "impersonate-group: b",
                "impersonate-extra-reason%2fwhy: c",
            ]
        );
    }

    #[test]
    fn credentials_go_over_http_to_this_machine_alone() {
        let to = |url: &str, user: Value| one(&json!({"server": url}), &user).map(|chosen| chosen.scheme);
        for url in ["http://127.0.0.1:8001", "http://localhost:8001", "http://[::1]:8001"] {
            assert_eq!(to(url, json!({"token": "t"})).unwrap(), Scheme::HTTP, "{url}");
        }
        assert_eq!(to("http://proxy:8001", json!({})).unwrap(), Scheme::HTTP);
        for user in [json!({"token": "t"}), json!({"tokenFile": "t"}), json!({"username": "me"})] {
            let reason = to("http://proxy:8001", user).unwrap_err().to_string();
            assert!(
                reason
                    .contains("clusters[\"reef\"].cluster.server: expected https, because http would expose"),
                "{reason}"
            );
        }
    }

    #[test]
    fn a_proxy_is_asked_by_http_with_the_name_and_password_of_its_url() {
        let proxy = |url: &str| {
            one(&json!({"server": "https://h", "proxy-url": url}), &json!({}))
                .map(|chosen| chosen.proxy.unwrap())
        };
        let found = proxy("http://me:p%40ss@proxy:3128").unwrap();
        assert_eq!(
            (found.uri.to_string(), found.authorization),
            ("http://proxy:3128/".into(), basic("me", "p@ss"))
        );
        assert_eq!(proxy("http://proxy").unwrap().authorization, None);
        for url in ["https://proxy:3128", "socks5://me:5318008@proxy:1080", "proxy:3128", "5318008"] {
            let reason = proxy(url).unwrap_err().to_string();
            assert!(reason.contains("cluster.proxy-url: expected http://HOST:PORT"), "{reason}");
            assert!(!reason.contains("5318008"), "{reason}");
        }
    }

    #[test]
    fn the_environments_proxy_carries_what_it_is_not_told_to_leave() {
        let mut world = World::new();
        let contexts =
            [context("near", "near", "me"), context("far", "far", "me"), context("own", "own", "me")];
        let own = json!({"name": "own", "cluster": {"server": "https://reef.example", "proxy-url": "http://own:1"}});
        let clusters =
            [cluster("near", "https://127.0.0.1:6443"), cluster("far", "https://reef.example"), own];
        world.write("a", &json!({"contexts": contexts, "clusters": clusters, "users": [user("me", "t")]}));
        world.list(&["a"]);
        let through = |world: &World, context: &str| {
            world.read(Some(context)).map(|chosen| chosen.proxy.map(|proxy| proxy.uri.to_string()))
        };
        world.variables.push(("https_proxy", "proxy:3128".into()));
        assert_eq!(through(&world, "far").unwrap().as_deref(), Some("http://proxy:3128/"));
        assert_eq!(through(&world, "own").unwrap().as_deref(), Some("http://own:1/"));
        assert_eq!(through(&world, "near").unwrap(), None);
        world.variables.push(("NO_PROXY", "10.0.0.0/8,.example".into()));
        assert_eq!(through(&world, "far").unwrap(), None);
        world.variables = vec![world.variables[0].clone(), ("HTTPS_PROXY", "socks5://5318008@proxy".into())];
        let reason = through(&world, "far").unwrap_err().to_string();
        assert!(reason.contains("HTTPS_PROXY: expected http://") && !reason.contains("5318008"), "{reason}");
    }

    #[test]
    fn a_mistake_is_named_by_its_place_and_shows_no_secret() {
        let server = json!({"server": "https://h"});
        let exec = |more: Value| {
            let mut exec = json!({"apiVersion": VERSION, "command": "5318008", "interactiveMode": "Never"});
            more.as_object().unwrap().iter().for_each(|(key, value)| exec[key] = value.clone());
            json!({"exec": exec})
        };
        for (cluster, user, place) in [
            (json!({"server": "ftp://h"}), json!({}), "cluster.server: expected an https or http URL"),
            (
                json!({"server": "https://h", "insecure-skip-tls-verify": true, "certificate-authority": "5318008"}),
                json!({}),
                "cluster.insecure-skip-tls-verify: expected either insecure-skip-tls-verify or certificate-authority",
            ),
            (
                json!({"server": "https://h", "insecure-skip-tls-verify": "5318008"}),
                json!({}),
                "expected true or false",
            ),
            (
                server.clone(),
                json!({"auth-provider": {"5318008": 1}}),
                "users[\"me\"].user.auth-provider: not supported",
            ),
            (
                server.clone(),
                json!({"token": "5318008", "username": "me"}),
                "user.token: expected either a token or username and password",
            ),
            (server.clone(), json!({"username": "a:5318008"}), "user.username: expected no colon"),
            (server.clone(), json!({"as-uid": "5318008"}), "user.as: found nothing"),
            (
                server.clone(),
                json!({"as": "5318008", "as-groups": "5318008"}),
                "user.as-groups: expected a list",
            ),
            (
                server.clone(),
                json!({"as": "a", "as-user-extra": ["5318008"]}),
                "user.as-user-extra: expected a map",
            ),
            (server.clone(), json!({"exec": "5318008"}), "user.exec: expected a map"),
            (
                server.clone(),
                exec(json!({"apiVersion": "5318008"})),
                "user.exec.apiVersion: expected client.auth",
            ),
            (server.clone(), exec(json!({"command": ""})), "user.exec.command: found nothing"),
            (server.clone(), exec(json!({"args": [5_318_008]})), "user.exec.args: expected a list of texts"),
            (
                server.clone(),
                exec(json!({"env": [{"name": "5318008"}]})),
                "user.exec.env: expected a list of maps",
            ),
            (server, exec(json!({"interactiveMode": null})), "user.exec.interactiveMode: expected Never"),
        ] {
            let reason = one(&cluster, &user).unwrap_err().to_string();
            assert!(reason.contains(place) && reason.contains("/config: "), "{place}: {reason}");
            assert!(!reason.contains("5318008"), "{reason}");
        }
    }

    const VERSION: &str = "client.authentication.k8s.io/v1";

    #[test]
    fn a_namespace_that_is_none_becomes_no_part_of_a_path() {
        let mut world = World::new();
        let context = json!({"name": "c", "context": {"cluster": "reef", "namespace": "a/../b"}});
        world.write("a", &json!({"current-context": "c", "contexts": [context], "clusters": []}));
        world.list(&["a"]);
        assert!(world.reason(None).contains("contexts[\"c\"].context.namespace: expected"));
    }
}
