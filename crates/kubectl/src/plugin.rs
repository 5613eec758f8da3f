//! Credential plugins of a kubeconfig (`exec`), such as `aws eks get-token` or `gke-gcloud-auth-plugin`.
//!
//! A plugin has the user's rights and environment, so it runs only if the user's own file names it. The size and time of its output are
//! bounded. Errors contain nothing of its output, arguments or environment, because these contain tokens. Its standard error is the user's,
//! because it may ask the user to log in. Sources: Kubernetes documentation, "client-go credential plugins"; client-go,
//! plugin/pkg/client/auth/exec/exec.go.

use std::io::{self, IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use seawall_core::{Clock, Secret};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use seawall_kube::client::run_with_timeout;
use seawall_kube::client_config::endpoint::{CredentialSource, KubeEndpoint, MAX_CREDENTIAL_FILE_BYTES};
use seawall_kube::client_config::kubeconfig::KubeconfigSection;

/// The time limit of a plugin, which includes a login by the user.
const LONGEST: Duration = Duration::from_secs(180);

/// The supported API versions. kubectl 1.24 removed v1alpha1.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// A credential plugin with its settings.
pub(crate) struct CredentialPlugin {
    /// The place of the plugin in the kubeconfig.
    place: String,
    version: &'static str,
    command: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, Secret<String>)>,
    hint: Option<String>,
    mode: InteractiveMode,
    /// The description of the cluster for the plugin, if it wants one.
    cluster: Option<(Value, Option<CredentialSource>)>,
}

/// The rule for giving the plugin standard input to ask the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InteractiveMode {
    Never,
    IfAvailable,
    Always,
}

/// The credentials from a plugin.
#[derive(Clone, Debug, Default)]
pub(crate) struct PluginCredential {
    pub(crate) token: Option<Secret<String>>,
    pub(crate) client_certificate: Option<(Secret<String>, Secret<String>)>,
    pub(crate) expires: Option<SystemTime>,
}

impl CredentialPlugin {
    /// Reads the `exec` section of a user's entry.
    ///
    /// # Errors
    /// The place of a missing or invalid value.
    pub(super) fn from_user_entry(
        user: &KubeconfigSection<'_>,
        cluster: &KubeconfigSection<'_>,
        endpoint: &KubeEndpoint,
    ) -> Result<Option<Self>, String> {
        let value = match user.value.get("exec") {
            None | Some(Value::Null) => return Ok(None),
            Some(value) if value.is_object() => value,
            Some(_) => return Err(user.error_at("exec", "expected a map")),
        };
        let exec =
            KubeconfigSection { value, key_path: format!("{}.exec", user.key_path), folder: user.folder };
        let said = exec.required_text("apiVersion")?;
        let version = VERSIONS.into_iter().find(|version| *version == said);
        let version = version
            .ok_or_else(|| exec.error_at("apiVersion", &format!("expected {}", VERSIONS.join(" or "))))?;
        let command = exec.required_text("command")?;
        // A command with a slash is relative to the file; another one is searched in PATH.
        let command = if command.contains('/') {
            exec.folder.join(command).components().collect()
        } else {
            command.into()
        };
        let wants = exec.value.get("provideClusterInfo").and_then(Value::as_bool).unwrap_or_default();
        Ok(Some(Self {
            version,
            command,
            arguments: exec.text_list("args", value.get("args"))?.into_iter().map(str::to_owned).collect(),
            variables: variables(&exec)?,
            hint: exec.text("installHint")?.map(|hint| hint.chars().take(1000).collect()),
            mode: mode(&exec, version)?,
            cluster: wants.then(|| (about(cluster), endpoint.root_certificates_source.clone())),
            place: exec.key_path,
        }))
    }

    /// Runs the plugin.
    ///
    /// # Errors
    /// The plugin cannot run, failed, or its output is incomplete. Only the place of the problem is shown.
    pub(crate) async fn run(&self, clock: &Clock) -> Result<PluginCredential, String> {
        let is_terminal = io::stdin().is_terminal();
        if self.mode == InteractiveMode::Always && !is_terminal {
            return Err(self.wrong("interactiveMode", "the value Always needs a terminal on standard input"));
        }
        let is_interactive = is_terminal && self.mode != InteractiveMode::Never;
        let mut command = Command::new(&self.command);
        command.args(&self.arguments).env("KUBERNETES_EXEC_INFO", self.told(is_interactive)?);
        command.envs(self.variables.iter().map(|(name, value)| (name, value.expose())));
        command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
        let child = command.stdout(Stdio::piped()).spawn().map_err(|error| self.not_run(&error))?;
        let ended = run_with_timeout(clock, LONGEST, finished(child)).await;
        let ended =
            ended.map_err(|_| self.wrong("command", &format!("wrote no credentials within {LONGEST:?}")))?;
        let (status, text) = ended.map_err(|error| self.not_run(&error))?;
        // The size goes first, because closing the pipe may have ended the plugin.
        if text.expose().len() > MAX_CREDENTIAL_FILE_BYTES {
            return Err(self.wrong("command", "wrote more than 1 MiB"));
        }
        if !status.success() {
            return Err(self.hinted(&format!("ended with {status}")));
        }
        self.credential(text.expose())
    }

    /// Returns the content of `KUBERNETES_EXEC_INFO`.
    fn told(&self, is_interactive: bool) -> Result<String, String> {
        let mut spec = json!({"interactive": is_interactive});
        if let Some((cluster, roots)) = &self.cluster {
            spec["cluster"] = cluster.clone();
            if let Some(roots) = roots {
                let text = BASE64_STANDARD.encode(roots.read()?.expose());
                spec["cluster"]["certificate-authority-data"] = text.into();
            }
        }
        Ok(json!({"kind": "ExecCredential", "apiVersion": self.version, "spec": spec}).to_string())
    }

    fn credential(&self, text: &[u8]) -> Result<PluginCredential, String> {
        let unread = |what: &str| self.wrong("command", what);
        // The parser's message is not shown, because it may quote a token.
        let said: ExecCredential =
            serde_json::from_slice(text).map_err(|_| unread("did not write an ExecCredential in JSON"))?;
        if said.kind != "ExecCredential" || said.version != self.version {
            return Err(unread(&format!("wrote something other than an ExecCredential of {}", self.version)));
        }
        let status = said.status.ok_or_else(|| unread("wrote an ExecCredential without a status"))?;
        let secret = |text: Option<String>| text.filter(|text| !text.is_empty()).map(Secret::new);
        let token = secret(status.token);
        let identity = match (secret(status.chain), secret(status.key)) {
            (Some(chain), Some(key)) => Some((chain, key)),
            (None, None) => None,
            _ => return Err(unread("wrote one of clientCertificateData and clientKeyData, expected both")),
        };
        if token.is_none() && identity.is_none() {
            return Err(unread("wrote neither a token nor a client's certificate"));
        }
        let expires = status.expires.map(|text| text.parse::<jiff::Timestamp>()).transpose();
        let expires = expires.map_err(|_| unread("wrote an expirationTimestamp that is not RFC 3339"))?;
        Ok(PluginCredential { token, client_certificate: identity, expires: expires.map(SystemTime::from) })
    }

    fn not_run(&self, error: &io::Error) -> String {
        self.hinted(&format!("cannot run: {error}"))
    }

    fn hinted(&self, what: &str) -> String {
        let hint = self.hint.as_ref().map(|hint| format!("\n{hint}")).unwrap_or_default();
        self.wrong("command", &format!("{} {what}{hint}", self.command.display()))
    }

    fn wrong(&self, key: &str, what: &str) -> String {
        format!("{}.{key}: {what}", self.place)
    }
}

/// The output of a plugin.
#[derive(Deserialize)]
struct ExecCredential {
    kind: String,
    #[serde(rename = "apiVersion")]
    version: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
struct ExecCredentialStatus {
    token: Option<String>,
    #[serde(rename = "clientCertificateData")]
    chain: Option<String>,
    #[serde(rename = "clientKeyData")]
    key: Option<String>,
    #[serde(rename = "expirationTimestamp")]
    expires: Option<String>,
}

fn variables(exec: &KubeconfigSection<'_>) -> Result<Vec<(String, Secret<String>)>, String> {
    let expected = || exec.error_at("env", "expected a list of maps, each with name and value");
    let items = match exec.value.get("env") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(value) => value.as_array().ok_or_else(expected)?,
    };
    let read = |item: &Value| {
        let name =
            item.get("name")?.as_str().filter(|name| !name.is_empty() && !name.contains(['=', '\0']))?;
        let value = item.get("value")?.as_str().filter(|value| !value.contains('\0'))?;
        Some((name.to_owned(), Secret::new(value.to_owned())))
    };
    items.iter().map(|item| read(item).ok_or_else(expected)).collect()
}

fn mode(exec: &KubeconfigSection<'_>, version: &str) -> Result<InteractiveMode, String> {
    match exec.text("interactiveMode")? {
        Some("Never") => Ok(InteractiveMode::Never),
        Some("IfAvailable") => Ok(InteractiveMode::IfAvailable),
        Some("Always") => Ok(InteractiveMode::Always),
        // In v1 the field is required; v1beta1 behaved like IfAvailable.
        None if version.ends_with("v1beta1") => Ok(InteractiveMode::IfAvailable),
        _ => Err(exec.error_at("interactiveMode", "expected Never, IfAvailable or Always")),
    }
}

/// Returns the field `spec.cluster`: the parts of the cluster's entry that plugins may see.
fn about(cluster: &KubeconfigSection<'_>) -> Value {
    let mut told = json!({});
    for key in ["server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression"] {
        if let Some(value) = cluster.value.get(key) {
            told[key] = value.clone();
        }
    }
    let extensions = cluster.value.get("extensions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let own = |item: &&Value| item["name"] == "client.authentication.k8s.io/exec";
    if let Some(extension) = extensions.iter().find(own) {
        told["config"] = extension["extension"].clone();
    }
    told
}

/// Returns the plugin's output, cut one byte after [`MAX_CREDENTIAL_FILE_BYTES`], and its exit status. The plugin is killed when the caller
/// stops waiting.
///
/// It runs on a thread rather than as a process of tokio, because the agent's runtimes would otherwise include tokio's code for child
/// processes.
async fn finished(mut child: Child) -> io::Result<(ExitStatus, Secret<Vec<u8>>)> {
    let leash = KillOnDrop::of(&child);
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (tell, ended) = oneshot::channel();
    std::thread::Builder::new().name("exec".into()).spawn(move || {
        let text = read(stdout);
        let status = child.wait();
        // The caller has stopped waiting, so the plugin was killed.
        let _ = tell.send(status.and_then(|status| Ok((status, text?))));
    })?;
    let ended = ended.await.map_err(io::Error::other)?;
    drop(leash);
    ended
}

fn read(stdout: ChildStdout) -> io::Result<Secret<Vec<u8>>> {
    let mut text = Secret::new(Vec::with_capacity(16 * 1024));
    stdout.take(MAX_CREDENTIAL_FILE_BYTES as u64 + 1).read_to_end(text.expose_mut())?;
    Ok(text)
}

/// Kills the process when it is dropped. It names the process by its descriptor, because another process may reuse the number.
struct KillOnDrop(Option<OwnedFd>);

impl KillOnDrop {
    fn of(child: &Child) -> Self {
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Self(id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok()))
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(process) = &self.0 {
            // The process may have ended by itself.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}
