//! Programs that a kubeconfig names for their word on who asks (`exec`), such as `aws eks get-token` or `gke-gcloud-auth-plugin`.
//!
//! Such a program runs with the person's rights and environment, so it runs only because the person's own file names it. What it
//! writes is bounded in size and time, and nothing of that, nor of its arguments and environment, is in any error: tokens stand there.
//! Its standard error is the person's, since it may ask them to log in. Sources: Kubernetes documentation, "client-go credential
//! plugins"; client-go, plugin/pkg/client/auth/exec/exec.go.

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

use seawall_kube::access::endpoint::{CredentialSource, KubeEndpoint, MAX_FILE_BYTES};
use seawall_kube::access::kubeconfig::KubeconfigSection;
use seawall_kube::client::run_with_timeout;

/// How long a program may take: a person may have to log in.
const LONGEST: Duration = Duration::from_secs(180);

/// What such programs speak. v1alpha1 left kubectl in 1.24.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// How a program may ask the person, and what else leads to running it.
pub(crate) struct CredentialPlugin {
    /// Of its place in the file.
    place: String,
    version: &'static str,
    command: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, Secret<String>)>,
    hint: Option<String>,
    mode: InteractiveMode,
    /// What it is told of the cluster, if it wants to know.
    cluster: Option<(Value, Option<CredentialSource>)>,
}

/// Whether it is given our standard input, to ask the person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InteractiveMode {
    Never,
    IfAvailable,
    Always,
}

/// What a program said.
#[derive(Clone, Debug, Default)]
pub(crate) struct PluginCredential {
    pub(crate) token: Option<Secret<String>>,
    pub(crate) identity: Option<(Secret<String>, Secret<String>)>,
    pub(crate) expires: Option<SystemTime>,
}

impl CredentialPlugin {
    /// What stands under `exec` in a user's entry.
    ///
    /// # Errors
    /// Where something is missing or wrong.
    pub(super) fn read(
        user: &KubeconfigSection<'_>,
        cluster: &KubeconfigSection<'_>,
        endpoint: &KubeEndpoint,
    ) -> Result<Option<Self>, String> {
        let value = match user.value.get("exec") {
            None | Some(Value::Null) => return Ok(None),
            Some(value) if value.is_object() => value,
            Some(_) => return Err(user.error_at("exec", "expected a map")),
        };
        let exec = KubeconfigSection { value, path: format!("{}.exec", user.path), folder: user.folder };
        let said = exec.required("apiVersion")?;
        let version = VERSIONS.into_iter().find(|version| *version == said);
        let version = version
            .ok_or_else(|| exec.error_at("apiVersion", &format!("expected {}", VERSIONS.join(" or "))))?;
        let command = exec.required("command")?;
        // With a slash it is relative to the file; without one it is looked up in PATH.
        let command = if command.contains('/') {
            exec.folder.join(command).components().collect()
        } else {
            command.into()
        };
        let wants = exec.value.get("provideClusterInfo").and_then(Value::as_bool).unwrap_or_default();
        Ok(Some(Self {
            version,
            command,
            arguments: exec.texts("args", value.get("args"))?.into_iter().map(str::to_owned).collect(),
            variables: variables(&exec)?,
            hint: exec.text("installHint")?.map(|hint| hint.chars().take(1000).collect()),
            mode: mode(&exec, version)?,
            cluster: wants.then(|| (about(cluster), endpoint.roots.clone())),
            place: exec.path,
        }))
    }

    /// Runs it.
    ///
    /// # Errors
    /// That it cannot be run, how it ended, or what of its word is missing; no more of that than its place.
    pub(crate) async fn run(&self, clock: &Clock) -> Result<PluginCredential, String> {
        let is_terminal = io::stdin().is_terminal();
        if self.mode == InteractiveMode::Always && !is_terminal {
            return Err(self.wrong("interactiveMode", "Always needs a terminal on standard input"));
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
        // Before its end, which the closed pipe may have been.
        if text.expose().len() > MAX_FILE_BYTES {
            return Err(self.wrong("command", "wrote more than 1 MiB"));
        }
        if !status.success() {
            return Err(self.hinted(&format!("ended with {status}")));
        }
        self.credential(text.expose())
    }

    /// `KUBERNETES_EXEC_INFO`.
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
        // Not the reader's own words: they may repeat what they stumbled over.
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
        Ok(PluginCredential { token, identity, expires: expires.map(SystemTime::from) })
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

/// What a program writes.
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
        // v1 asks for it; before, this was what was done.
        None if version.ends_with("v1beta1") => Ok(InteractiveMode::IfAvailable),
        _ => Err(exec.error_at("interactiveMode", "expected Never, IfAvailable or Always")),
    }
}

/// `spec.cluster`: what the file says of the cluster, as far as such programs are told of it.
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

/// What it wrote, cut after [`MAX_FILE_BYTES`] and a byte, and how it ended. It is killed when nobody waits any more.
///
/// On a thread, not by tokio's processes: the agent's runtimes would get the part that reaps children with them.
async fn finished(mut child: Child) -> io::Result<(ExitStatus, Secret<Vec<u8>>)> {
    let leash = KillOnDrop::of(&child);
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (tell, ended) = oneshot::channel();
    std::thread::Builder::new().name("exec".into()).spawn(move || {
        let text = read(stdout);
        let status = child.wait();
        // Nobody waits any more: it was killed.
        let _ = tell.send(status.and_then(|status| Ok((status, text?))));
    })?;
    let ended = ended.await.map_err(io::Error::other)?;
    drop(leash);
    ended
}

fn read(stdout: ChildStdout) -> io::Result<Secret<Vec<u8>>> {
    let mut text = Secret::new(Vec::with_capacity(16 * 1024));
    stdout.take(MAX_FILE_BYTES as u64 + 1).read_to_end(text.expose_mut())?;
    Ok(text)
}

/// Kills when dropped. A process that has ended is named by its descriptor, never by a number that another may have by then.
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
            // It may have ended by itself.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}
