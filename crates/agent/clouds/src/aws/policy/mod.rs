//! Decides which role a pod may have and by which method the agent assumes the role.
//!
//! The inputs are the configuration and the annotations of KIAM, kube2iam and the EKS webhook.
//!
//! The security of the policy depends on these rules, in this order:
//!
//! - A pod that names a role itself (`iam.amazonaws.com/role`) needs the permission of its namespace.
//! - If a pod's ServiceAccount names a role (`eks.amazonaws.com/role-arn`), the pod authenticates to AWS with its own token. The
//!   role's trust policy decides whether the pod gets the role.
//! - If the pod and its ServiceAccount name the same role, the pod's own token assumes the role. The role's trust policy then
//!   need not name the agent.
//! - If the pod and its ServiceAccount name different roles, the agent refuses both roles and informs the pod's owner. A wrong
//!   guess would give the pod credentials of another role.
//! - If neither the pod nor its ServiceAccount names a role, the pod gets the default role of its namespace (`aws.defaultRoles`).
//!   If its namespace has no default role, the agent asks EKS for the role that EKS associates with the pod's ServiceAccount. If
//!   EKS has no association, the pod gets no role.
//!
//! The agent does not decide before it has read all annotations. Other metadata agents used a default role until they had read
//! the annotations. So they gave pods the wrong role for a moment.

pub(crate) mod annotations;
pub(crate) mod namespace;
pub(crate) mod role_arn;
pub(crate) mod session;

use std::collections::HashMap;
use std::sync::Arc;

use seawall_broker::aws::{ClusterName, ExternalId, SessionName, SessionTags};
use seawall_core::annotations::{Annotations, LengthCheckedAnnotation, RelatedAnnotations};
use seawall_core::kubernetes_events::EventReason;
use seawall_core::{Pod, PodAnnotations};
use seawall_http::Refusal;
use seawall_protocols::aws::imds::NO_ROLE;

use self::annotations::{
    AUDIENCE_ANNOTATION, EXTERNAL_ID_ANNOTATION, ROLE_ANNOTATION, ROLE_ARN_ANNOTATION,
    SESSION_NAME_ANNOTATION,
};
use self::role_arn::{BaseRoleArn, NamedRole};
use self::session::PodTag;

/// The operator's rules for roles.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RolePolicy {
    /// The ARN prefix that completes the name of a role.
    pub(super) role_arn_prefix: Option<BaseRoleArn>,
    /// The rules by which a namespace permits the roles that its pods name. `None` if pods may not name roles.
    pub(super) pod_role_rules: Option<namespace::NamespaceRules>,
    /// The default audience for tokens of ServiceAccounts. `None` if ServiceAccounts may not name roles.
    pub(super) service_account_audience: Option<Arc<str>>,
    /// The cluster in which EKS associates roles with ServiceAccounts. `None` if the agent does not ask EKS.
    pub(super) association_cluster: Option<ClusterName>,
    /// The default roles by namespace, for pods that name no role.
    pub(super) default_roles: HashMap<String, NamedRole>,
    /// The tags of the sessions that the agent creates for a pod.
    pub(super) session_tags: Vec<PodTag>,
    /// The prefix of the session names.
    pub(super) session_prefix: String,
}

/// The role that a pod may have: a role that the agent knows, or a role that only EKS knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AllowedRole {
    /// A role that the agent knows.
    Granted(RoleGrant),
    /// The role that EKS associates with the pod's ServiceAccount in this cluster, if any. Only the answer of EKS names the role.
    Associated(ClusterName),
}

/// A role that a pod may have, and the method to assume it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoleGrant {
    pub(super) role: NamedRole,
    pub(super) session_name: SessionName,
    pub(super) method: GrantMethod,
}

/// The method to assume a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GrantMethod {
    /// The pod's own token with this audience assumes the role.
    WebIdentity { audience: Arc<str> },
    /// The agent assumes the role for the pod, with the configured base credentials.
    Assume { external_id: Option<ExternalId>, tags: SessionTags },
}

/// The reason why a pod has no role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoleDenial {
    /// The agent has not read all annotations that decide the role.
    Pending,
    /// Neither an annotation nor the configuration names a role for the pod. The pod's owner gets no event.
    NoRole(Refusal),
    /// The agent refuses the pod a role, for example because of a malformed annotation. The pod's owner gets this event.
    Refused(EventReason, Refusal),
}

const MALFORMED_ROLE: Refusal = Refusal::new(
    403,
    "malformed_role",
    "The annotation iam.amazonaws.com/role of this pod is neither a role ARN nor a role name below aws.baseRoleArn.",
);
const MALFORMED_ROLE_ARN: Refusal = Refusal::new(
    403,
    "malformed_role_arn",
    "The annotation eks.amazonaws.com/role-arn of this pod's ServiceAccount (or the one with aws.irsaAnnotationPrefix) is neither a role ARN \
     nor a role name below aws.baseRoleArn.",
);
const MALFORMED_AUDIENCE: Refusal = Refusal::new(
    403,
    "malformed_audience",
    "The annotation eks.amazonaws.com/audience of this pod's ServiceAccount (or the one with aws.irsaAnnotationPrefix) is not a valid token \
     audience.",
);
const MALFORMED_SESSION_NAME: Refusal = Refusal::new(
    403,
    "malformed_session_name",
    "The annotation iam.amazonaws.com/session-name of this pod is too long for a session name.",
);
const MALFORMED_EXTERNAL_ID: Refusal = Refusal::new(
    403,
    "malformed_external_id",
    "The annotation iam.amazonaws.com/external-id of this pod is not a valid external ID: expected 2 to 1224 letters, digits and _+=,.@:/-.",
);
const CONFLICTING_ROLES: Refusal = Refusal::new(
    403,
    "conflicting_roles",
    "The annotations iam.amazonaws.com/role of this pod and eks.amazonaws.com/role-arn of its ServiceAccount (or the one with \
     aws.irsaAnnotationPrefix) name different roles; remove one of the two annotations.",
);
const INVALID_SESSION_TAG: Refusal = Refusal::new(
    403,
    "invalid_session_tag",
    "The setting aws.session.tags uses a name of this pod as a session tag, but this name is not a valid tag value.",
);
const NO_SERVICE_ACCOUNT: Refusal =
    Refusal::new(403, "no_service_account", "This pod's Kubernetes ServiceAccount does not exist.");

impl RolePolicy {
    /// Decides which role this pod may have.
    ///
    /// # Errors
    /// Returns the reason why the pod may have no role.
    pub(super) fn decide_role(&self, pod: &Pod, facts: &PodAnnotations) -> Result<AllowedRole, RoleDenial> {
        let by_service_account = self.named_by_service_account(facts)?;
        let by_pod = self.named_by_pod(facts)?;
        match (by_pod, by_service_account) {
            (Some(one), Some((other, _))) if one != other => {
                Err(RoleDenial::Refused(EventReason::RefusedByPolicy, CONFLICTING_ROLES))
            }
            (_, Some((role, audience))) => {
                let session = session::default_session_name(&self.session_prefix, pod);
                Ok(AllowedRole::Granted(RoleGrant {
                    role,
                    session_name: session,
                    method: GrantMethod::WebIdentity { audience },
                }))
            }
            (Some(role), None) => self.permitted(pod, facts, role).map(AllowedRole::Granted),
            (None, None) => self.named_by_nobody(pod),
        }
    }

    /// Returns the role that the pod's ServiceAccount names, and the audience of the token.
    fn named_by_service_account(
        &self,
        facts: &PodAnnotations,
    ) -> Result<Option<(NamedRole, Arc<str>)>, RoleDenial> {
        let Some(audience) = &self.service_account_audience else { return Ok(None) };
        let account = match &facts.service_account {
            RelatedAnnotations::NotRead => return Err(RoleDenial::Pending),
            RelatedAnnotations::Known(object) => object
                .as_ref()
                .as_ref()
                .ok_or(RoleDenial::Refused(EventReason::TokenFailed, NO_SERVICE_ACCOUNT))?,
        };
        let Some(role) = said(account, ROLE_ARN_ANNOTATION, MALFORMED_ROLE_ARN)? else { return Ok(None) };
        let role = role_arn::resolve_role(role, self.role_arn_prefix.as_ref())
            .ok_or(malformed(MALFORMED_ROLE_ARN))?;
        let audience = match said(account, AUDIENCE_ANNOTATION, MALFORMED_AUDIENCE)? {
            Some(audience) if session::is_valid_audience(audience) => audience.clone(),
            Some(_) => return Err(malformed(MALFORMED_AUDIENCE)),
            None => audience.clone(),
        };
        Ok(Some((role, audience)))
    }

    /// Returns the role that the pod names itself.
    fn named_by_pod(&self, facts: &PodAnnotations) -> Result<Option<NamedRole>, RoleDenial> {
        if self.pod_role_rules.is_none() {
            return Ok(None);
        }
        let Some(role) = said(&facts.own_annotations, ROLE_ANNOTATION, MALFORMED_ROLE)? else {
            return Ok(None);
        };
        role_arn::resolve_role(role, self.role_arn_prefix.as_ref()).map(Some).ok_or(malformed(MALFORMED_ROLE))
    }

    /// Returns the grant for the role that the pod's own annotation names, if the pod's namespace permits that role.
    fn permitted(&self, pod: &Pod, facts: &PodAnnotations, role: NamedRole) -> Result<RoleGrant, RoleDenial> {
        let namespace = match &facts.namespace {
            RelatedAnnotations::NotRead => return Err(RoleDenial::Pending),
            RelatedAnnotations::Known(object) => object.as_ref().as_ref(),
        };
        // Without rules, pods may not name roles.
        let Some(rules) = self.pod_role_rules else { return Err(RoleDenial::NoRole(NO_ROLE)) };
        rules
            .check_role_permitted(namespace, &role, self.role_arn_prefix.as_ref())
            .map_err(|refusal| RoleDenial::Refused(EventReason::RefusedByPolicy, refusal))?;
        let session = match said(&facts.own_annotations, SESSION_NAME_ANNOTATION, MALFORMED_SESSION_NAME)? {
            Some(wanted) => session::sanitize_session_name(&self.session_prefix, wanted),
            None => session::default_session_name(&self.session_prefix, pod),
        };
        let external_id = match said(&facts.own_annotations, EXTERNAL_ID_ANNOTATION, MALFORMED_EXTERNAL_ID)? {
            Some(id) => Some(ExternalId::parse(id).map_err(|_| malformed(MALFORMED_EXTERNAL_ID))?),
            None => None,
        };
        Ok(RoleGrant { role, session_name: session, method: self.assume(pod, external_id)? })
    }

    /// Returns the default role of the pod's namespace, or the association of EKS if the namespace has no default role.
    fn named_by_nobody(&self, pod: &Pod) -> Result<AllowedRole, RoleDenial> {
        if let Some(role) = self.default_roles.get(&*pod.service_account.namespace) {
            let session = session::default_session_name(&self.session_prefix, pod);
            return Ok(AllowedRole::Granted(RoleGrant {
                role: role.clone(),
                session_name: session,
                method: self.assume(pod, None)?,
            }));
        }
        self.association_cluster.clone().map(AllowedRole::Associated).ok_or(RoleDenial::NoRole(NO_ROLE))
    }

    fn assume(&self, pod: &Pod, external_id: Option<ExternalId>) -> Result<GrantMethod, RoleDenial> {
        let tags = session::build_session_tags(&self.session_tags, pod)
            .map_err(|_| RoleDenial::Refused(EventReason::RefusedByPolicy, INVALID_SESSION_TAG))?;
        Ok(GrantMethod::Assume { external_id, tags })
    }
}

/// Returns the value of an annotation. An empty value counts as absent, as in KIAM, kube2iam and the EKS webhook.
fn said<'a>(
    annotations: &'a Annotations,
    key: &str,
    too_long: Refusal,
) -> Result<Option<&'a Arc<str>>, RoleDenial> {
    match annotations.find(key) {
        Some(LengthCheckedAnnotation::Whole(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(LengthCheckedAnnotation::TooLong) => Err(malformed(too_long)),
        None => Ok(None),
    }
}

fn malformed(refusal: Refusal) -> RoleDenial {
    RoleDenial::Refused(EventReason::InvalidAnnotation, refusal)
}

#[cfg(test)]
mod tests {
    use seawall_core::{PodUid, ServiceAccount};

    use super::*;
    use crate::aws::policy::annotations::{ALLOWED_ROLES_ANNOTATION, PERMITTED_ROLES_ANNOTATION};
    use crate::aws::policy::namespace::{AllowedRolesFormat, Kube2iamFlags};

    const BASE: &str = "arn:aws:iam::123456789012:role/";
    const CART: &str = "arn:aws:iam::123456789012:role/cart";
    const PAY: &str = "arn:aws:iam::123456789012:role/pay";
    const ABROAD: &str = "arn:aws:iam::999999999999:role/cart";

    type Said = [(&'static str, &'static str)];

    fn rules(kiam: bool, kube2iam: bool, irsa: bool) -> RolePolicy {
        let kube2iam = kube2iam.then_some(Kube2iamFlags {
            namespace_restrictions: true,
            namespace_restriction_format: AllowedRolesFormat::Glob,
        });
        RolePolicy {
            role_arn_prefix: BaseRoleArn::new(BASE),
            pod_role_rules: (kiam || kube2iam.is_some())
                .then_some(namespace::NamespaceRules { uses_kiam_annotation: kiam, kube2iam }),
            service_account_audience: irsa.then(|| "sts.amazonaws.com".into()),
            ..RolePolicy::default()
        }
    }

    fn all() -> RolePolicy {
        rules(true, true, true)
    }

    fn pod() -> Pod {
        let service_account = ServiceAccount { namespace: "shop".into(), name: "cart".into() };
        Pod { uid: PodUid("u1".into()), name: "cart-0".into(), service_account }
    }

    fn told(said: &Said) -> Annotations {
        said.iter().map(|(key, text)| (*key, LengthCheckedAnnotation::from(*text))).collect()
    }

    fn facts(pod: &Said, account: &Said, namespace: &Said) -> PodAnnotations {
        let (service_account, namespace) =
            (RelatedAnnotations::of_object(told(account)), RelatedAnnotations::of_object(told(namespace)));
        PodAnnotations { own_annotations: told(pod), service_account, namespace }
    }

    fn granted(rules: &RolePolicy, facts: &PodAnnotations) -> Result<RoleGrant, RoleDenial> {
        rules.decide_role(&pod(), facts).map(|allowed| match allowed {
            AllowedRole::Granted(grant) => grant,
            AllowedRole::Associated(_) => panic!("{rules:?} {facts:?}"),
        })
    }

    fn code(denied: RoleDenial) -> (&'static str, u16) {
        match denied {
            RoleDenial::Pending => ("not yet", 503),
            RoleDenial::NoRole(refusal) | RoleDenial::Refused(_, refusal) => (refusal.code, refusal.status),
        }
    }

    #[test]
    fn each_way_names_a_role_by_its_own_annotations() {
        let (kiam, kube2iam, irsa) =
            (rules(true, false, false), rules(false, true, false), rules(false, false, true));
        let permits = [(PERMITTED_ROLES_ANNOTATION, ".*"), (ALLOWED_ROLES_ANNOTATION, "[\"*\"]")];
        for (rules, pod_says, account_says, role, way) in [
            (&kiam, &[(ROLE_ANNOTATION, "cart")][..], &[][..], CART, "assume"),
            (&kiam, &[(ROLE_ANNOTATION, ABROAD)], &[], ABROAD, "assume"),
            (&kube2iam, &[(ROLE_ANNOTATION, "/cart")], &[], CART, "assume"),
            (&irsa, &[], &[(ROLE_ARN_ANNOTATION, CART)], CART, "sts.amazonaws.com"),
            (&irsa, &[], &[(ROLE_ARN_ANNOTATION, ABROAD), (AUDIENCE_ANNOTATION, "mine")], ABROAD, "mine"),
            (&irsa, &[(ROLE_ANNOTATION, "pay")], &[(ROLE_ARN_ANNOTATION, "cart")], CART, "sts.amazonaws.com"),
            (&kiam, &[(ROLE_ANNOTATION, "pay")], &[(ROLE_ARN_ANNOTATION, CART)], PAY, "assume"),
            (&all(), &[(ROLE_ANNOTATION, "cart")], &[(ROLE_ARN_ANNOTATION, CART)], CART, "sts.amazonaws.com"),
            (&all(), &[(ROLE_ANNOTATION, "")], &[(ROLE_ARN_ANNOTATION, CART)], CART, "sts.amazonaws.com"),
            (&all(), &[(ROLE_ANNOTATION, "cart")], &[(ROLE_ARN_ANNOTATION, "")], CART, "assume"),
        ] {
            let grant = granted(rules, &facts(pod_says, account_says, &permits)).unwrap();
            assert_eq!(
                (grant.role.arn_str(), grant.session_name.as_str()),
                (role, "shop.cart"),
                "{pod_says:?}"
            );
            let taken = match &grant.method {
                GrantMethod::WebIdentity { audience } => &**audience,
                GrantMethod::Assume { .. } => "assume",
            };
            assert_eq!(taken, way, "{pod_says:?} {account_says:?}");
        }
    }

    #[test]
    fn every_refusal_is_final_and_says_which_annotation_decides() {
        let long: &'static str = Box::leak("x".repeat(3000).into_boxed_str());
        let permits = &[(PERMITTED_ROLES_ANNOTATION, "cart")][..];
        for (pod_says, account_says, namespace_says, expected, names) in [
            (&[][..], &[][..], permits, ("no_role", 404), "No AWS role"),
            (
                &[(ROLE_ANNOTATION, "cart")],
                &[],
                &[][..],
                ("no_permitted_annotation", 403),
                PERMITTED_ROLES_ANNOTATION,
            ),
            (
                &[(ROLE_ANNOTATION, "pay")],
                &[],
                permits,
                ("role_not_permitted", 403),
                PERMITTED_ROLES_ANNOTATION,
            ),
            (
                &[(ROLE_ANNOTATION, ABROAD)],
                &[],
                permits,
                ("role_not_permitted", 403),
                PERMITTED_ROLES_ANNOTATION,
            ),
            (&[(ROLE_ANNOTATION, "a b")], &[], permits, ("malformed_role", 403), ROLE_ANNOTATION),
            (&[(ROLE_ANNOTATION, long)], &[], permits, ("malformed_role", 403), ROLE_ANNOTATION),
            (
                &[(ROLE_ANNOTATION, "arn:aws:iam::1:role/x")],
                &[],
                permits,
                ("malformed_role", 403),
                ROLE_ANNOTATION,
            ),
            (
                &[(ROLE_ANNOTATION, "cart")],
                &[(ROLE_ARN_ANNOTATION, PAY)],
                permits,
                ("conflicting_roles", 403),
                ROLE_ANNOTATION,
            ),
            (
                &[(ROLE_ANNOTATION, "cart")],
                &[(ROLE_ARN_ANNOTATION, ABROAD)],
                permits,
                ("conflicting_roles", 403),
                ROLE_ARN_ANNOTATION,
            ),
            (
                &[(ROLE_ANNOTATION, "a b")],
                &[(ROLE_ARN_ANNOTATION, CART)],
                permits,
                ("malformed_role", 403),
                ROLE_ANNOTATION,
            ),
            (&[], &[(ROLE_ARN_ANNOTATION, "a b")], permits, ("malformed_role_arn", 403), ROLE_ARN_ANNOTATION),
            (
                &[(ROLE_ANNOTATION, "cart")],
                &[(ROLE_ARN_ANNOTATION, "a b")],
                permits,
                ("malformed_role_arn", 403),
                ROLE_ARN_ANNOTATION,
            ),
            (
                &[],
                &[(ROLE_ARN_ANNOTATION, CART), (AUDIENCE_ANNOTATION, "a b")],
                permits,
                ("malformed_audience", 403),
                AUDIENCE_ANNOTATION,
            ),
            (
                &[(ROLE_ANNOTATION, "cart"), (EXTERNAL_ID_ANNOTATION, "x")],
                &[],
                permits,
                ("malformed_external_id", 403),
                EXTERNAL_ID_ANNOTATION,
            ),
            (
                &[(ROLE_ANNOTATION, "cart"), (SESSION_NAME_ANNOTATION, long)],
                &[],
                permits,
                ("malformed_session_name", 403),
                SESSION_NAME_ANNOTATION,
            ),
        ] {
            let rules = rules(true, false, true);
            let denied =
                rules.decide_role(&pod(), &facts(pod_says, account_says, namespace_says)).unwrap_err();
            assert_eq!(code(denied), expected, "{pod_says:?} {account_says:?}");
            let (RoleDenial::NoRole(refusal) | RoleDenial::Refused(_, refusal)) = denied else {
                panic!("{denied:?}")
            };
            assert!(refusal.message.contains(names), "{} lacks {names}", refusal.message);
        }
    }

    #[test]
    fn what_is_not_read_yet_decides_nothing_where_it_counts() {
        let facts = |account: RelatedAnnotations, namespace: RelatedAnnotations, says: &Said| {
            PodAnnotations { own_annotations: told(says), service_account: account, namespace }
        };
        let (empty, role) =
            (|| RelatedAnnotations::of_object(Annotations::default()), &[(ROLE_ANNOTATION, "cart")][..]);
        let (irsa, kiam) = (rules(false, false, true), rules(true, false, false));
        for (rules, facts, expected) in [
            (&irsa, facts(RelatedAnnotations::NotRead, empty(), &[]), "not yet"),
            (&all(), facts(RelatedAnnotations::NotRead, empty(), role), "not yet"),
            (&kiam, facts(RelatedAnnotations::NotRead, empty(), role), "no_permitted_annotation"),
            (&kiam, facts(empty(), RelatedAnnotations::NotRead, role), "not yet"),
            (&kiam, facts(empty(), RelatedAnnotations::of_missing_object(), role), "no_namespace"),
            (&kiam, facts(empty(), RelatedAnnotations::NotRead, &[]), "no_role"),
            (&irsa, facts(RelatedAnnotations::of_missing_object(), empty(), &[]), "no_service_account"),
        ] {
            assert_eq!(code(rules.decide_role(&pod(), &facts).unwrap_err()).0, expected, "{facts:?}");
        }
    }

    #[test]
    fn a_default_role_is_the_configured_namespaces_alone_and_only_of_pods_that_name_none() {
        let defaults = HashMap::from([("shop".to_owned(), NamedRole::new(PAY).unwrap())]);
        let rules = RolePolicy { default_roles: defaults, ..all() };
        assert_eq!(granted(&rules, &facts(&[], &[], &[])).unwrap().role.arn_str(), PAY);
        let refused = rules.decide_role(&pod(), &facts(&[(ROLE_ANNOTATION, "cart")], &[], &[])).unwrap_err();
        assert_eq!(
            code(refused).0,
            "no_permitted_annotation",
            "the default role does not replace a refused role"
        );
        let elsewhere = ServiceAccount { namespace: "lab".into(), name: "cart".into() };
        let elsewhere = Pod { service_account: elsewhere, ..pod() };
        assert_eq!(code(rules.decide_role(&elsewhere, &facts(&[], &[], &[])).unwrap_err()).0, "no_role");
    }

    #[test]
    fn eks_is_asked_only_for_pods_for_which_nobody_names_a_role() {
        let reef = ClusterName::parse("reef").unwrap();
        let rules = RolePolicy { association_cluster: Some(reef.clone()), ..all() };
        let defaults = HashMap::from([("shop".to_owned(), NamedRole::new(PAY).unwrap())]);
        let with_default = RolePolicy { default_roles: defaults, ..rules.clone() };
        let permits = &[(PERMITTED_ROLES_ANNOTATION, "cart"), (ALLOWED_ROLES_ANNOTATION, "[\"*\"]")][..];
        let code_of = |rules: &RolePolicy, facts: &PodAnnotations| match rules.decide_role(&pod(), facts) {
            Ok(AllowedRole::Granted(grant)) => grant.role.name().as_str().to_owned(),
            Ok(AllowedRole::Associated(cluster)) => cluster.as_str().to_owned(),
            Err(denied) => code(denied).0.to_owned(),
        };
        for (rules, pod_says, account_says, namespace_says, expected) in [
            (&rules, &[][..], &[][..], &[][..], "reef"),
            (&rules, &[(ROLE_ANNOTATION, "")], &[(ROLE_ARN_ANNOTATION, "")], permits, "reef"),
            (&rules, &[(ROLE_ANNOTATION, "cart")], &[], permits, "cart"),
            (&rules, &[], &[(ROLE_ARN_ANNOTATION, CART)], permits, "cart"),
            // A refused role is not replaced by a role from another source.
            (&rules, &[(ROLE_ANNOTATION, "pay")], &[], permits, "role_not_permitted"),
            (
                &rules,
                &[(ROLE_ANNOTATION, "cart")],
                &[(ROLE_ARN_ANNOTATION, PAY)],
                permits,
                "conflicting_roles",
            ),
            (&rules, &[], &[(ROLE_ARN_ANNOTATION, "a b")], permits, "malformed_role_arn"),
            (&with_default, &[], &[], &[], "pay"),
            (&with_default, &[(ROLE_ANNOTATION, "cart")], &[], permits, "cart"),
        ] {
            let facts = facts(pod_says, account_says, namespace_says);
            assert_eq!(code_of(rules, &facts), expected, "{pod_says:?} {account_says:?}");
        }
        let unread = PodAnnotations {
            own_annotations: Annotations::default(),
            service_account: RelatedAnnotations::NotRead,
            namespace: RelatedAnnotations::of_object(Annotations::default()),
        };
        assert_eq!(code_of(&rules, &unread), "not yet", "an annotation may name a role");
        let alone = RolePolicy { pod_role_rules: None, service_account_audience: None, ..rules.clone() };
        assert_eq!(code_of(&alone, &unread), "reef", "annotations are off");
    }

    #[test]
    fn a_session_has_the_name_the_external_id_and_the_tags_that_are_asked_for() {
        let rules = RolePolicy {
            session_tags: vec![PodTag::Namespace, PodTag::PodName],
            session_prefix: "kiam-".into(),
            ..all()
        };
        let says = [
            (ROLE_ANNOTATION, "cart"),
            (SESSION_NAME_ANNOTATION, "my session"),
            (EXTERNAL_ID_ANNOTATION, "me:1"),
        ];
        let grant = granted(&rules, &facts(&says, &[], &[(PERMITTED_ROLES_ANNOTATION, "cart")])).unwrap();
        assert_eq!(grant.session_name.as_str(), "kiam-my-session");
        let tags = session::build_session_tags(&[PodTag::PodName, PodTag::Namespace], &pod()).unwrap();
        assert_eq!(grant.method, GrantMethod::Assume { external_id: ExternalId::parse("me:1").ok(), tags });
    }

    const MANIFESTS: [(&str, &str); 3] = [
        ("kiam", include_str!("manifests/kiam.yaml")),
        ("kube2iam", include_str!("manifests/kube2iam.yaml")),
        ("irsa", include_str!("manifests/irsa.yaml")),
    ];

    /// Returns the annotations of the object of this kind in a manifest with several objects.
    fn annotated(manifest: &str, kind: &str) -> Annotations {
        const KEYS: [&str; 7] = [
            ROLE_ANNOTATION,
            SESSION_NAME_ANNOTATION,
            EXTERNAL_ID_ANNOTATION,
            PERMITTED_ROLES_ANNOTATION,
            ALLOWED_ROLES_ANNOTATION,
            ROLE_ARN_ANNOTATION,
            AUDIENCE_ANNOTATION,
        ];
        let objects = manifest.split("\n---\n").map(|text| seawall_config::parse_foreign_yaml(text).unwrap());
        let object = objects.into_iter().find(|object| object["kind"] == kind).unwrap();
        let said = |key: &'static str| {
            Some((key, LengthCheckedAnnotation::from(object["metadata"]["annotations"][key].as_str()?)))
        };
        KEYS.into_iter().filter_map(said).collect()
    }

    #[test]
    fn manifests_written_for_other_agents_mean_what_they_did() {
        for (rules, (of, manifest), role, session) in [
            (rules(true, false, false), MANIFESTS[0], "role/ledger-reader", "nightly-report"),
            (rules(false, true, false), MANIFESTS[1], "role/video/encoder", "shop.cart"),
            (rules(false, false, true), MANIFESTS[2], "role/indexer", "shop.cart"),
        ] {
            let [service_account, namespace] = ["ServiceAccount", "Namespace"]
                .map(|kind| RelatedAnnotations::of_object(annotated(manifest, kind)));
            let facts =
                PodAnnotations { own_annotations: annotated(manifest, "Pod"), service_account, namespace };
            let grant = granted(&rules, &facts).unwrap();
            assert!(grant.role.arn_str().ends_with(role), "{of}: {grant:?}");
            assert_eq!(grant.session_name.as_str(), session, "{of}");
            let others = RolePolicy { pod_role_rules: None, service_account_audience: None, ..rules };
            assert_eq!(
                code(others.decide_role(&pod(), &facts).unwrap_err()).0,
                "no_role",
                "{of}: a role source that is off names no role"
            );
        }
    }
}
