//! What an administrator has to create where the pod may not act as a ServiceAccount.

use bundle_core::names::{KubeName, NameKind};

const POD: &str = "system:serviceaccount:";

/// The commands that let the pod act as the ServiceAccount that it was refused, if `message` is the API server's refusal of that.
///
/// The shipped Role names the installer alone; each further ServiceAccount needs a Role in its namespace.
pub(crate) fn missing_right(message: &str) -> Option<String> {
    let rest = message.strip_prefix("serviceaccounts \"")?;
    let (name, rest) = rest.split_once("\" is forbidden: User \"")?;
    let (pod, rest) = rest.split_once("\" cannot impersonate resource \"serviceaccounts\"")?;
    let (_, rest) = rest.split_once("in the namespace \"")?;
    let (namespace, _) = rest.split_once('"')?;
    let (pod_namespace, pod_name) = pod.strip_prefix(POD)?.split_once(':')?;
    let label = |text| KubeName::parse(NameKind::Label, text).ok();
    let subdomain = |text| KubeName::parse(NameKind::Subdomain, text).ok();
    let (namespace, name) = (label(namespace)?, subdomain(name)?);
    let (pod_namespace, pod_name) = (label(pod_namespace)?, subdomain(pod_name)?);
    Some(format!(
        "let the pod act as it: `kubectl create role bundle-impersonator-{name} -n {namespace} --verb=impersonate --resource=serviceaccounts --resource-name={name}` and `kubectl create rolebinding bundle-impersonator-{name} -n {namespace} --role=bundle-impersonator-{name} --serviceaccount={pod_namespace}:{pod_name}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_impersonation_names_the_role_to_create() {
        let refused = r#"serviceaccounts "deployer" is forbidden: User "system:serviceaccount:bundle-system:bundle-webhook" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "team-a""#;
        let hint = missing_right(refused).unwrap();
        assert!(hint.contains("kubectl create role bundle-impersonator-deployer -n team-a --verb=impersonate --resource=serviceaccounts --resource-name=deployer`"));
        assert!(hint.contains("--serviceaccount=bundle-system:bundle-webhook`"));
        assert_eq!(missing_right(&refused.replace("team-a", "a; id")), None);
        assert_eq!(missing_right("configmaps \"a\" is forbidden: no"), None);
    }
}
