//! Everything that is decided and made before the listener is bound: options, keys of users, and the demo's issuer and tokens.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use seawall_core::{Clock, Secret};
use seawall_emulator::aws::{AwsEmulator, AwsEmulatorOptions, Ec2Instance, IamRole, IamUser, OidcProvider};
use seawall_emulator::faults::Faults;
use seawall_emulator::keys::{Algorithm, KeySet};
use seawall_emulator::service_account_tokens::{Issuer, Workload};
use serde_json::{Value, json};

use super::flags::EmulateAwsArgs;
use crate::emulate::files;
use crate::emulate::parse::{AwsPodArg, UserKeyFileArg};

/// Life of the demo's token files: nobody renews them as a kubelet would, so they outlive any demo.
const DEMO_TOKEN: Duration = Duration::from_secs(24 * 3600);

/// The `aud` of tokens for EKS Auth.
const POD_IDENTITY: &str = "pods.eks.amazonaws.com";

/// Everything that is decided before the listener is bound.
pub(super) struct AwsEmulatorPlan {
    pub(super) options: AwsEmulatorOptions,
    issuer: String,
    pub(super) pods: Vec<AwsDemoPod>,
    pub(super) users: Vec<UserKeys>,
}

/// A pod of the demo with its token.
pub(super) struct AwsDemoPod {
    workload: Workload,
    role: String,
    pub(super) token_file: PathBuf,
    token: Secret<String>,
}

/// A user and where its keys are written.
pub(super) struct UserKeys {
    user: IamUser,
    pub(super) file: PathBuf,
}

impl AwsEmulatorPlan {
    pub(super) fn new(args: &EmulateAwsArgs) -> anyhow::Result<Self> {
        // clap forgets a required flag that conflicts with one given.
        anyhow::ensure!(
            args.demo.demo_pods.is_some() || args.demo.pods.is_empty(),
            "PODS need --demo-pods DIR"
        );
        let (keys, pods) = match &args.demo.demo_pods {
            Some(folder) => args.demo_issuer(folder)?,
            None => (args.trust.read_jwks()?, Vec::new()),
        };
        let users = args.trust.user.iter().map(|user| args.keys_of(user));
        let users = users.collect::<anyhow::Result<Vec<_>>>()?;
        let options = args.options(keys, &pods, &users);
        Ok(Self { options, issuer: args.trust.issuer.clone(), pods, users })
    }

    /// Written so that only their owner reads them, in the format of AWS's own credentials file.
    pub(super) fn write_user_keys(&self) -> anyhow::Result<()> {
        self.users.iter().try_for_each(|UserKeys { user, file }| {
            let (id, secret) = (&user.access_key_id, user.secret_access_key.expose());
            let text = format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
            files::write_file_atomically(file, &text, files::SECRET_FILE_MODE)
        })
    }

    /// Returns the facts that a script needs, as JSON.
    pub(super) fn ready_document(&self, running: &AwsEmulator) -> Value {
        let url = running.url();
        let users = self.users.iter().map(|keys| json!({"arn": keys.user.arn, "keys_file": keys.file}));
        json!({
            "url": url,
            "address": running.address().to_string(),
            "pid": std::process::id(),
            "sts_url": url,
            "eks_auth_url": url,
            "metadata_url": url,
            "counts_url": format!("{url}/emulator/counts"),
            "issuer": self.issuer,
            "region": self.options.instance.region,
            "node_role": self.options.instance.role,
            "pods": self.pods.iter().map(AwsDemoPod::ready_document).collect::<Vec<_>>(),
            "users": users.collect::<Vec<_>>(),
        })
    }
}

impl AwsDemoPod {
    /// The file is named after both; a namespace has no dot, so no two pods share one.
    pub(super) fn write_token(&self) -> anyhow::Result<()> {
        files::write_file_atomically(&self.token_file, self.token.expose(), files::SECRET_FILE_MODE)
    }

    fn ready_document(&self) -> Value {
        let pod = self.workload.pod.as_ref();
        json!({
            "namespace": self.workload.namespace,
            "service_account": self.workload.service_account_name,
            "pod": pod.map(|pod| &pod.name),
            "pod_uid": pod.map(|pod| &pod.uid),
            "role": self.role,
            "token_file": self.token_file,
        })
    }
}

impl EmulateAwsArgs {
    fn options(&self, keys: KeySet, pods: &[AwsDemoPod], users: &[UserKeys]) -> AwsEmulatorOptions {
        let audiences = self.trust.audience.iter().cloned().collect();
        let named = self
            .trust
            .allow
            .iter()
            .map(|grant| (grant.workload.subject(), self.instance.role_arn_from(&grant.role)));
        let grants: Vec<_> =
            named.chain(pods.iter().map(|pod| (pod.workload.subject(), pod.role.clone()))).collect();
        let node = self.instance.role_arn_from(&self.instance.node_role);
        let associated = self.trust.associate.iter();
        let associated =
            associated.map(|grant| (grant.workload.subject(), self.instance.role_arn_from(&grant.role)));
        AwsEmulatorOptions {
            listen: self.listen,
            providers: vec![OidcProvider { issuer: self.trust.issuer.clone(), keys, audiences }],
            roles: self.roles(&grants, &node, users),
            unknown_roles_trust_everyone: self.trust.allow_all,
            users: users.iter().map(|keys| keys.user.clone()).collect(),
            associations: grants.into_iter().chain(associated).collect(),
            instance: Ec2Instance {
                id: self.instance.instance_id.clone(),
                region: self.instance.region.clone(),
                role: Some(node),
                tokens_required: !self.instance.without_tokens,
            },
            faults: Faults::default(),
            max_session_lifetime: self.sessions.session_lifetime,
            fractional_expiry: self.sessions.fractions,
        }
    }

    /// One role for each that is named, trusting all to whom it is granted, and the signers that may take all.
    fn roles(&self, grants: &[(String, String)], node: &str, users: &[UserKeys]) -> Vec<IamRole> {
        let mut signers: Vec<&str> = users.iter().map(|keys| &*keys.user.arn).collect();
        signers.extend(self.trust.node_may_assume.then_some(node));
        let mut arns: Vec<_> = grants.iter().map(|(_, role)| &**role).collect();
        arns.sort_unstable();
        arns.dedup();
        let role = |arn: &str| {
            let granted = grants.iter().filter(|(_, role)| role == arn).map(|(subject, _)| &**subject);
            let role = granted
                .chain(signers.iter().copied())
                .fold(IamRole::trusting_everyone(arn), IamRole::with_trusted_caller);
            IamRole {
                max_session_duration: self.sessions.max_session,
                external_id: self.trust.external_id.clone(),
                ..role
            }
        };
        arns.into_iter().map(role).collect()
    }

    fn keys_of(&self, asked: &UserKeyFileArg) -> anyhow::Result<UserKeys> {
        let arn = format!("arn:aws:iam::{}:user/{}", self.instance.account, asked.name);
        let user = IamUser::generate(&arn).context("cannot make keys")?;
        Ok(UserKeys { user, file: asked.file.clone() })
    }

    /// An issuer of this run alone, and a token for each pod.
    fn demo_issuer(&self, folder: &Path) -> anyhow::Result<(KeySet, Vec<AwsDemoPod>)> {
        files::create_secret_directory(folder)?;
        let issuer = Issuer::generate(&self.trust.issuer, Algorithm::Rs256).context("cannot make a key")?;
        let mut audiences: Vec<_> = self.trust.audience.iter().map(String::as_str).collect();
        audiences.push(POD_IDENTITY);
        let pod = |demo: &AwsPodArg| {
            let name = format!("{}-0", demo.workload.service_account_name);
            let workload = demo.workload.clone().in_pod(&name).on_node(&self.instance.instance_id);
            let token = issuer.mint(&workload, &audiences, DEMO_TOKEN, Clock::system().wall_time());
            let file = format!("{}.{}.token", workload.namespace, workload.service_account_name);
            let role = demo.role.as_deref().unwrap_or(&workload.service_account_name);
            let token = token.context("cannot sign a token")?;
            Ok(AwsDemoPod {
                role: self.instance.role_arn_from(role),
                workload,
                token_file: folder.join(file),
                token,
            })
        };
        let pods = self.demo.pods.iter().map(pod).collect::<anyhow::Result<Vec<_>>>()?;
        Ok((issuer.key_set().context("cannot publish the key")?, pods))
    }
}
